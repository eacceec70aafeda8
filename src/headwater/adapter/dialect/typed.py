"""An expression in Spark SQL with the type PostgreSQL gives it.

Numeric types have a precision and scale here, as in Spark; PostgreSQL's numerics have as many
digits as they need. Both agree on the *value*, or there is an error (``numerics.py``).

``scale_shown`` says that PostgreSQL's value carries exactly the digits of our scale: then its text
is the same text. It holds for declared columns, literals, sums and products, and not for quotients,
of which ``digits`` may know how many PostgreSQL's value carries.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from headwater.adapter.dialect.refusal import refuse
from headwater.collection.types import NUMERIC_BARE, SqlType, numeric, scalar

BOOLEAN: Final = scalar("boolean")
SMALLINT: Final = scalar("smallint")
INTEGER: Final = scalar("integer")
BIGINT: Final = scalar("bigint")
REAL: Final = scalar("real")
DOUBLE: Final = scalar("double precision")
TEXT: Final = scalar("text")
BYTEA: Final = scalar("bytea")
DATE: Final = scalar("date")
TIMESTAMP: Final = scalar("timestamp")
TIMESTAMPTZ: Final = scalar("timestamptz")
INTERVAL: Final = scalar("interval")
UUID: Final = scalar("uuid")
UNKNOWN: Final = scalar("void")
"""A quoted literal or NULL whose type its surroundings decide."""

BARE: Final = numeric(*NUMERIC_BARE)
PRECISION_MAX: Final = 38
SCALE_KEPT: Final = 24
"""Digits after the point that a type of several numerics has, however many they have before it."""

INTEGERS: Final = (SMALLINT, INTEGER, BIGINT)
FLOATS: Final = (REAL, DOUBLE)
_DIGITS: Final = {"smallint": 5, "integer": 10, "bigint": 19}


@dataclass(frozen=True, slots=True)
class Typed:
    """``sql`` is complete in itself: it can stand as an operand without brackets."""

    sql: str
    type: SqlType
    node: Any = field(repr=False, compare=False)
    literal: str | None = None
    """The text of a quoted literal: of one that has no type yet, of a text, of an interval."""
    scale_shown: bool = True
    digits: str | None = None
    """Digits after the point that PostgreSQL's value carries, as Spark SQL, where it is known."""
    operation: object = field(default=None, repr=False, compare=False)
    """What the value was found by, where that may have found more digits than the type has."""

    @property
    def is_null(self) -> bool:
        """Whether it is the bare word NULL."""
        return self.type == UNKNOWN and self.literal is None

    def of(self, sql: str, type_: SqlType, *, scale_shown: bool = True) -> Typed:
        """Another expression at the same place."""
        return Typed(sql, type_, self.node, scale_shown=scale_shown)

    def showing(self, digits: str | None) -> Typed:
        """The same, of which is known how many digits PostgreSQL shows."""
        return replace(self, digits=digits)


def is_number(type_: SqlType) -> bool:
    """Integers, numerics, floats."""
    return type_ in INTEGERS or type_ in FLOATS or type_.name == "numeric"


def as_numeric(type_: SqlType) -> SqlType:
    """The numeric type that holds every value of an integer or numeric type."""
    return type_ if type_.name == "numeric" else numeric(_DIGITS[type_.name], 0)


_RANK: Final = {"smallint": 0, "integer": 1, "bigint": 2, "numeric": 3, "real": 4}
_RANK_DOUBLE: Final = 5


def common_number(left: SqlType, right: SqlType, *, operator: bool = False) -> SqlType:
    """The type both numbers are taken to: for an operator, real meets others as double."""
    rank = {**_RANK, "double precision": _RANK_DOUBLE}
    low, high = sorted((left, right), key=lambda t: rank[t.name])
    if high == REAL and low != REAL and operator:
        return DOUBLE
    if high.name == "numeric":
        (p1, s1), (p2, s2) = as_numeric(low).args, high.args
        whole, scale = max(p1 - s1, p2 - s2), max(s1, s2)
        scale = min(scale, max(SCALE_KEPT, PRECISION_MAX - whole))
        return numeric(min(PRECISION_MAX, whole + scale), scale)
    return high


_TIMES: Final = ("date", "timestamp", "timestamptz")


def common(node: Any, operands: list[Typed]) -> SqlType:
    """The one type of CASE branches, set operations, VALUES, arrays: PostgreSQL's rule."""
    known = [operand.type for operand in operands if operand.type != UNKNOWN]
    if not known:
        return TEXT
    found = known[0]
    for other in known[1:]:
        if other == found:
            continue
        if is_number(found) and is_number(other):
            found = common_number(found, other)
        elif found.name in _TIMES and other.name in _TIMES:
            found = max(found, other, key=lambda t: _TIMES.index(t.name))
        else:
            refuse(
                node,
                f"a mixture of types {found.postgres} and {other.postgres}",
                "Cast one of them.",
            )
    return found


def scale_is_shown(operands: list[Typed], type_: SqlType) -> bool:
    """Whether values that come from any of ``operands`` show the digits of ``type_``."""
    return type_.name != "numeric" or all(
        operand.is_null or (operand.type == type_ and operand.scale_shown) for operand in operands
    )


def cast_sql(sql: str, type_: SqlType) -> str:
    """``CAST``, as Spark writes it."""
    return f"CAST({sql} AS {type_.spark.upper()})"
