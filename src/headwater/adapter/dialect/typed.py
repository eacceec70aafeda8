"""An expression in Spark SQL with the type PostgreSQL gives it.

Numeric types have a precision and scale here, as in Spark; PostgreSQL's numerics have as many
digits as they need. Both agree on the *value* as long as no digit is lost, and :func:`added`,
:func:`multiplied` see to that: where Spark would drop digits of a fraction to make room, the
operands are narrowed first, so that a value too large is an error and a value that fits is exact.

``scale_shown`` says that PostgreSQL's value carries exactly the digits of our scale: then its text
is the same text. It holds for declared columns, literals, sums and products, and not for quotients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
WHOLE_DIGITS_MIN: Final = 9
"""Fewer digits before the point than this and an operation is refused rather than narrowed."""

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

    @property
    def is_null(self) -> bool:
        """Whether it is the bare word NULL."""
        return self.type == UNKNOWN and self.literal is None

    def of(self, sql: str, type_: SqlType, *, scale_shown: bool = True) -> Typed:
        """Another expression at the same place."""
        return Typed(sql, type_, self.node, scale_shown=scale_shown)


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
        scale = max(s1, s2)
        return numeric(min(PRECISION_MAX, max(p1 - s1, p2 - s2) + scale), scale)
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


# --- arithmetic of numerics -----------------------------------------------------------------------


def cast_sql(sql: str, type_: SqlType) -> str:
    """``CAST``, as Spark writes it."""
    return f"CAST({sql} AS {type_.spark.upper()})"


def _narrowed(operand: Typed, whole: int) -> Typed:
    """``operand`` with at most ``whole`` digits before the point; larger values are an error."""
    precision, scale = operand.type.args
    if precision - scale <= whole:
        return operand
    type_ = numeric(whole + scale, scale)
    return operand.of(cast_sql(operand.sql, type_), type_, scale_shown=operand.scale_shown)


def added(node: Any, left: Typed, right: Typed, sign: str) -> Typed:
    """``left ± right`` of numerics, exact."""
    (p1, s1), (p2, s2) = left.type.args, right.type.args
    scale = max(s1, s2)
    room = PRECISION_MAX - 1 - scale
    if room < min(WHOLE_DIGITS_MIN, max(p1 - s1, p2 - s2)):
        refuse(node, "a sum of so many digits", "Cast the operands to a numeric of fewer digits.")
    left, right = _narrowed(left, room), _narrowed(right, room)
    whole = max(t.type.args[0] - t.type.args[1] for t in (left, right)) + 1
    return Typed(
        f"({left.sql} {sign} {right.sql})",
        numeric(whole + scale, scale),
        node,
        scale_shown=left.scale_shown and right.scale_shown,
    )


def multiplied(node: Any, left: Typed, right: Typed) -> Typed:
    """``left * right`` of numerics, exact."""
    (p1, s1), (p2, s2) = left.type.args, right.type.args
    if p1 + p2 + 1 > PRECISION_MAX:
        room = PRECISION_MAX - 1 - s1 - s2
        small = min(p1 - s1, p2 - s2, max(room // 2, 0))
        hint = "Cast the operands to a numeric of fewer digits."
        if room - small < min(WHOLE_DIGITS_MIN, max(p1 - s1, p2 - s2)) or small < min(
            WHOLE_DIGITS_MIN, p1 - s1, p2 - s2
        ):
            refuse(node, "a product of so many digits", hint)
        if p1 - s1 <= p2 - s2:
            left, right = _narrowed(left, small), _narrowed(right, room - small)
        else:
            left, right = _narrowed(left, room - small), _narrowed(right, small)
    (p1, s1), (p2, s2) = left.type.args, right.type.args
    return Typed(
        f"({left.sql} * {right.sql})",
        numeric(p1 + p2 + 1, s1 + s2),
        node,
        scale_shown=left.scale_shown and right.scale_shown,
    )


_QUOTIENT_DIGITS: Final = 16
_SPARK_SCALE_MIN: Final = 6


def divided(node: Any, left: Typed, right: Typed) -> Typed:
    """``left / right`` of numerics: at least 16 digits of a fraction where they fit, never under 6.

    PostgreSQL shows at least 16 significant digits; ours is rounded once, at our scale.
    """
    (p1, s1), (p2, s2) = left.type.args, right.type.args
    whole = p1 - s1 + s2
    wanted = min(max(_QUOTIENT_DIGITS, s1, s2), max(PRECISION_MAX - whole, _SPARK_SCALE_MIN))
    more = min(wanted - (s1 + p2 + 1), PRECISION_MAX - p1)
    if more > 0:
        type_ = numeric(p1 + more, s1 + more)
        left = left.of(cast_sql(left.sql, type_), type_)
        p1, s1 = type_.args
    return Typed(
        f"({left.sql} / {right.sql})", quotient(left.type, right.type), node, scale_shown=False
    )


def quotient(left: SqlType, right: SqlType) -> SqlType:
    """The type Spark gives a quotient of decimals."""
    (p1, s1), (p2, s2) = left.args, right.args
    whole, scale = p1 - s1 + s2, max(_SPARK_SCALE_MIN, s1 + p2 + 1)
    if whole + scale <= PRECISION_MAX:
        return numeric(whole + scale, scale)
    scale = max(PRECISION_MAX - whole, min(scale, _SPARK_SCALE_MIN))
    return numeric(PRECISION_MAX, scale)
