"""Every command block of the pages is executed by a test, and the options of commands exist.

Which test executes which page is said in ``tests/integration/docs_pages.py``. A form, with ``[…]``
or a choice in it, is shown as ``text``: nobody can type it.
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

from headwater.cli.main import app
from tests.integration.docs_pages import ELSEWHERE, HERE, ROOT, pages, typed


def test_every_block_that_can_be_typed_is_executed_by_a_test() -> None:
    found = {page for page in pages() if typed(page)}
    assert found == {*HERE, *ELSEWHERE}, "say in tests/integration/docs_pages.py who executes it"
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text("utf-8"), f"{test} does not read {page}"


def test_no_form_is_shown_as_something_to_type() -> None:
    for page in pages():
        for language, text in typed(page):
            plain = re.sub(r"'[^']*'|--[^\n]*", "", text)
            assert language != "sql" or not re.search(r"[\[\]{}|…]", plain), f"{page}: {text}"


def _lines() -> Iterator[tuple[str, str]]:
    """Yield the lines that begin with our command, also of forms and of what is typed elsewhere."""
    for page, blocks in pages().items():
        for _, text in blocks:
            for line in text.replace("\\\n", " ").splitlines():
                if line.startswith("headwater "):
                    yield page, line


def test_commands_and_their_options_exist() -> None:
    known: Any = get_command(app)
    seen = set()
    for page, line in _lines():
        words = shlex.split(line, comments=True)
        if words[1].startswith("-"):
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
