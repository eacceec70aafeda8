"""The reference of statements is what the parser reads: nothing more, nothing less, nothing old."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

from headwater.adapter import reference
from headwater.adapter.pgwire.wire_statements import AnyStatement, parse_text
from headwater.adapter.reference import SECTIONS
from headwater.adapter.sql.parse import _STATEMENTS

PAGE = Path(__file__).parents[3] / "docs" / "sql" / "statements.md"
REFUSED = {("CREATE", "UNIQUE", "INDEX")}
"""Read to be refused with a reason."""
ENTRIES = [entry for entries in SECTIONS.values() for entry in entries]


def test_the_page_is_as_new_as_the_code() -> None:
    if os.environ.get("REWRITE"):
        PAGE.write_text(reference.page(), "utf-8")
    assert PAGE.read_text("utf-8") == reference.page(), "REWRITE=1 pytest this file writes it"


def test_every_statement_of_the_parser_is_there_once() -> None:
    assert sorted(entry.kind.__name__ for entry in ENTRIES) == sorted(
        kind.__name__ for kind in get_args(AnyStatement)
    )


def test_its_examples_are_what_they_stand_for() -> None:
    for entry in ENTRIES:
        for example in entry.examples:
            ((statement, _),) = parse_text(example)
            assert isinstance(statement, entry.kind), example


def test_every_beginning_that_the_parser_knows_has_an_example_or_a_form() -> None:
    shown = [" ".join((entry.shown, *entry.examples)).upper() for entry in ENTRIES]
    # What may be left out or chosen stands between the words.
    known = [words for words, _ in _STATEMENTS if words not in REFUSED]
    assert [w for w in known if not any(all(x in text for x in w) for text in shown)] == []
