"""What a server answers to a statement, as it came over the wire, and when two answers agree.

    ours = ask(connection, "SELECT 1 / 3.0")        Rows or Failed
    disagreement(ours, theirs, is_ordered=False)    None, or what differs

Rows agree as multisets (as lists where the query has an order), value by value: texts as they are,
floats by value, numerics where ours, rounded to the digits that PostgreSQL prints, is PostgreSQL's.
Errors agree where their SQLSTATEs are of one class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

import psycopg

Row = tuple[str | None, ...]

NUMERIC: Final = 1700
FLOATS: Final = (700, 701)
_DIGITS: Final = 1000
_GREEDY_MAX: Final = 300
"""So many rows are matched one with all others, where sorting does not bring pairs together."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as texts, and the types of their columns."""

    types: tuple[int, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """An error."""

    sqlstate: str
    message: str


Answer = Rows | Failed


def ask(connection: psycopg.Connection[Any], sql: str) -> Answer:
    """Send one statement by the simple protocol; the answer is in texts."""
    found = connection.pgconn.exec_(sql.encode())
    if found.status in (psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK):
        columns = range(found.nfields)
        rows = tuple(
            tuple(_text(found.get_value(row, column)) for column in columns)
            for row in range(found.ntuples)
        )
        return Rows(tuple(found.ftype(column) for column in columns), rows)
    field = psycopg.pq.DiagnosticField
    state = found.error_field(field.SQLSTATE) or b"XX000"
    primary = found.error_field(field.MESSAGE_PRIMARY) or found.error_message
    return Failed(state.decode(), (primary or b"").decode())


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def disagreement(ours: Answer, theirs: Answer, *, is_ordered: bool) -> str | None:
    """Return what differs, if anything does."""
    if isinstance(ours, Failed) or isinstance(theirs, Failed):
        if isinstance(ours, Failed) and isinstance(theirs, Failed):
            same = _class_of(ours) == _class_of(theirs)
            return None if same else f"another error: {ours} for {theirs}"
        return f"{_short(ours)} for {_short(theirs)}"
    if ours.types != theirs.types:
        return f"other types: {ours.types} for {theirs.types}"
    if len(ours.rows) != len(theirs.rows):
        return f"{_short(ours)} for {_short(theirs)}"
    if _are_equal(ours.rows, theirs.rows, ours.types):
        return None
    if is_ordered:
        return f"{_short(ours)} for {_short(theirs)}"
    mine = sorted(ours.rows, key=lambda row: _order(row, ours.types))
    other = sorted(theirs.rows, key=lambda row: _order(row, ours.types))
    if _are_equal(mine, other, ours.types) or _are_matched(mine, other, ours.types):
        return None
    pairs = zip(mine, other, strict=True)
    first = next((a, b) for a, b in pairs if not _is_equal(a, b, ours.types))
    return f"row {first[0]} for {first[1]}"


def _class_of(failed: Failed) -> str:
    return failed.sqlstate[:2]


def _short(answer: Answer) -> str:
    if isinstance(answer, Failed):
        return f"error {answer.sqlstate} ({answer.message})"
    return f"{len(answer.rows)} rows {answer.rows[:5]}"


def _order(row: Row, types: Sequence[int]) -> tuple[tuple[Any, ...], ...]:
    """Return what sorts rows; values that agree, but for digits, are side by side."""
    exact = tuple(
        (value is not None, value or "")
        for value, type_ in zip(row, types, strict=True)
        if type_ != NUMERIC and type_ not in FLOATS
    )
    loose = tuple(
        (value is not None, float(value) if value is not None else 0.0)
        for value, type_ in zip(row, types, strict=True)
        if type_ == NUMERIC or type_ in FLOATS
    )
    return (*exact, *loose)


def _are_equal(ours: Sequence[Row], theirs: Sequence[Row], types: Sequence[int]) -> bool:
    return all(_is_equal(a, b, types) for a, b in zip(ours, theirs, strict=True))


def _are_matched(ours: Sequence[Row], theirs: Sequence[Row], types: Sequence[int]) -> bool:
    rest = list(theirs)
    if len(rest) > _GREEDY_MAX:
        return False
    for row in ours:
        found = next((n for n, other in enumerate(rest) if _is_equal(row, other, types)), None)
        if found is None:
            return False
        rest.pop(found)
    return True


def _is_equal(ours: Row, theirs: Row, types: Sequence[int]) -> bool:
    return all(_is_same(a, b, t) for a, b, t in zip(ours, theirs, types, strict=True))


def _is_same(ours: str | None, theirs: str | None, type_: int) -> bool:
    if ours is None or theirs is None or ours == theirs:
        return ours == theirs
    if type_ == NUMERIC:
        return is_same_numeric(ours, theirs)
    return type_ in FLOATS and float(ours) == float(theirs)


def is_same_numeric(ours: str, theirs: str) -> bool:
    """Whether our value, rounded to the digits that PostgreSQL prints, is PostgreSQL's."""
    with localcontext() as context:
        context.prec = _DIGITS
        mine, other = Decimal(ours), Decimal(theirs)
        if not (mine.is_finite() and other.is_finite()):
            return mine.is_nan() == other.is_nan() and str(mine) == str(other)
        last = Decimal(1).scaleb(int(other.as_tuple().exponent))
        return mine.quantize(last, ROUND_HALF_UP) == other
