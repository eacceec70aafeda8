"""Saying no, with the place in the client's text.

``position`` is PostgreSQL's: in characters from 1. A node that carries none of its own is placed
where the first of its parts stands.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from headwater.adapter.errors import AdapterError, Unsupported


class UndefinedColumn(AdapterError):
    """No relation in scope has such a column."""

    condition = "UNDEFINED_COLUMN"
    sqlstate = "42703"


class AmbiguousColumn(AdapterError):
    """Several relations in scope have such a column."""

    condition = "AMBIGUOUS_COLUMN"
    sqlstate = "42702"


class UndefinedTable(AdapterError):
    """No relation of that name or alias."""

    condition = "UNDEFINED_RELATION"
    sqlstate = "42P01"


class UndefinedFunction(AdapterError):
    """No function or operator takes such arguments."""

    condition = "UNDEFINED_FUNCTION"
    sqlstate = "42883"


class CannotCoerce(AdapterError):
    """No cast leads from one type to the other."""

    condition = "CANNOT_COERCE"
    sqlstate = "42846"


class InvalidReference(AdapterError):
    """An ordinal, a width or a place that does not fit."""

    condition = "INVALID_COLUMN_REFERENCE"
    sqlstate = "42P10"


def position(node: Any) -> int | None:
    """Where ``node`` begins in the text."""
    starts = [found.meta["start"] for found in node.walk() if "start" in found.meta]
    return min(starts) + 1 if starts else None


def refused(node: Any, feature: str, hint: str | None = None) -> Unsupported:
    """``feature`` is outside the allow-list."""
    return Unsupported(feature, hint=hint, position=position(node))


def refuse(node: Any, feature: str, hint: str | None = None) -> NoReturn:
    """Raise :func:`refused`."""
    raise refused(node, feature, hint)


def only(node: Any, *parts: str) -> None:
    """Refuse ``node`` if it has a part that its rule does not look at."""
    for part, value in node.args.items():
        if value not in (None, False, []) and part not in parts:
            name = part.strip("_").replace("_", " ")
            refuse(node, f"{name} of {node.key}" if name else node.key)


UNSTEADY: Final = frozenset(
    {
        *("random", "random_normal", "gen_random_uuid", "nextval"),
        *("clock_timestamp", "statement_timestamp", "timeofday"),
    }
)
"""Functions whose values no rows say."""


IN_SPARK: Final = "Spark's dialect may have it: SET dialect = spark."


def remedy(function: str) -> str:
    """What to do instead of calling a function that we do not have."""
    if function not in UNSTEADY:
        return IN_SPARK
    return "It is not deterministic: write its value into a column of the data instead."
