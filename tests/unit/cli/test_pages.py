"""Every command block of the pages is something we understand, whether or not a test executes it.

``tests/end_to_end/test_quickstart.py`` and ``tests/spark/test_python_page.py`` execute those that
somebody types from top to bottom; the rest show one thing each, with names of somebody's own, and
are parsed here: SQL by the parser, commands by the command line. A block with ``[…]``, ``|`` or
``…`` in it is a form, which nobody can type; forms are held by the reference of statements.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from headwater.adapter.pgwire.wire_statements import parse_text
from headwater.cli.main import app

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"'[^']*'|--[^\n]*")
FORM = re.compile(r"[\[\]{}|…]")
ELSEWHERE = re.compile(r"^-- upstream\n.*?^-- here\n", re.MULTILINE | re.DOTALL)
"""What is typed into another system."""


def _blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if "design" not in page.parts:
            for found, text in BLOCK.findall(page.read_text("utf-8")):
                if found == language:
                    yield str(page.relative_to(ROOT)), text


def test_sql_is_what_the_parser_reads() -> None:
    parsed = 0
    for page, text in _blocks("sql"):
        own = ELSEWHERE.sub("", text)
        if not FORM.search(QUOTED.sub("", own)):
            try:
                parsed += len(parse_text(own))
            except Exception as error:
                raise AssertionError(f"{page}: {error}\n{own}") from error
    assert parsed > 100


def test_commands_and_their_options_exist() -> None:
    known: Any = get_command(app)
    seen = set()
    for page, text in _blocks("sh"):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] != ["headwater"] or words[1].startswith("-"):
                continue
            command = known.commands.get(words[1])
            assert command is not None, f"{page}: {line}"
            options = {name for each in command.params for name in each.opts}
            given = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
            assert given <= options, f"{page}: {line}: {sorted(given - options)}"
            seen.add(words[1])
    assert {"serve", "demo", "backup", "sql"} <= seen


def test_every_command_that_answers_can_answer_in_json() -> None:
    """Those that do not are the ones that run until they are stopped, or only act."""
    known: Any = get_command(app)
    silent = {"serve", "connector", "user"}
    without = {
        name
        for name, command in known.commands.items()
        if "--json" not in {each for param in command.params for each in param.opts}
    }
    assert without <= silent, sorted(without - silent)


def test_versions_for_scripts() -> None:
    told = json.loads(CliRunner().invoke(app, ["version", "--json"]).stdout)
    assert {"headwater", "log format", "python", "pyspark", "pyarrow"} == set(told)


def test_the_shell_is_told_how_words_go_on() -> None:
    def completed(words: str) -> set[str]:
        environment = {
            "_HEADWATER_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        done = CliRunner().invoke(app, [], env=environment, prog_name="headwater")
        return set(done.stdout.split())

    assert completed("headwater ba") == {"backup"}
    assert {"serve", "sql"} <= completed("headwater s")
    assert "--query-result-mib" in completed("headwater serve --q")
