"""What is known to differ from PostgreSQL, and why: one table, which the judge reads.

An entry is one construct with its types, and an example in which both answers can be seen: an entry
that is not so any more has to go (``tests/spark/test_four_answers.py`` asks both, and holds the
table of ``docs/sql/differences.md`` against this one). ``where`` and ``what`` recognize what an
entry excuses, by the text of a query and by what differs; entries without are of what the generator
never makes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Difference:
    """One construct that answers otherwise than PostgreSQL."""

    construct: str
    """What a user writes, with types."""
    example: str
    ours: str
    theirs: str
    """What an example answers: its only value, or the SQLSTATE of its error."""
    reason: str
    given: tuple[str, ...] = ()
    """What an example needs to be there."""
    where: re.Pattern[str] | None = None
    what: re.Pattern[str] | None = None


DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        "LIMIT without ORDER BY",
        "SELECT k FROM (VALUES (2), (1)) v(k) LIMIT 1",
        "1",
        "2",
        "SQL leaves the order open; here it is the order of the whole row, in every way of asking",
    ),
    Difference(
        "string_agg(text, text) without ORDER BY",
        "SELECT string_agg(s, '') FROM (VALUES ('b'), ('a')) v(s)",
        "ab",
        "ba",
        "SQL leaves the order open; here it is the order of the values",
    ),
    Difference(
        "array_agg(integer) without ORDER BY",
        "SELECT array_agg(k) FROM (VALUES (2), (1)) v(k)",
        "{1,2}",
        "{2,1}",
        "SQL leaves the order open; here it is the order of the values",
    ),
    Difference(
        "sum(double precision) of values that cancel",
        "SELECT sum(f) FROM (VALUES (1e16::float8), (1::float8), ((-1e16)::float8)) v(f)",
        "1",
        "0",
        "PostgreSQL's depends on the order of rows; here it is the exact sum, rounded once",
    ),
    Difference(
        "double precision * double precision beyond its range",
        "SELECT f * 10 FROM (VALUES ('1e308'::float8)) v(f)",
        "Infinity",
        "22003",
        "arithmetic of doubles is IEEE 754's",
    ),
    Difference(
        "ceil(double precision) of what lies between -1 and 0",
        "SELECT ceil(f) FROM (VALUES ((-0.5)::float8)) v(f)",
        "0",
        "-0",
        "a zero has no sign in an answer: it would tell equal rows apart",
    ),
    Difference(
        "jsonb with a number that ends in zeros",
        "SELECT '{\"a\": 1.0}'::jsonb",
        '{"a": 1}',
        '{"a": 1.0}',
        "equal jsonb is one text here, so that it can be grouped by and be a key",
    ),
    Difference(
        "a column of numeric without precision",
        "SELECT z FROM d",
        "1.500000000",
        "1.5",
        "it shows the digits of its type here, of the value there; the values are equal",
        given=("CREATE TABLE d (z numeric)", "INSERT INTO d VALUES (1.5)"),
    ),
)


def known(sql: str, what: str) -> Difference | None:
    """Return the entry that a difference is an instance of."""
    for entry in DIFFERENCES:
        if entry.where is None or entry.what is None:
            continue
        if entry.where.search(sql) and entry.what.search(what):
            return entry
    return None
