"""Casts: which exist, and how Spark is asked for PostgreSQL's.

- :func:`coerce` is implicit: literals take the type that is wanted, numbers and times widen.
- :func:`cast` is what the client writes: a pair of types in :data:`_EXPLICIT`, and no other.

PostgreSQL rounds where Spark truncates (numeric → integer half away from zero, float → integer half
to even). Text is read by ``headwater_read`` (``compute/catalyst/reading.py``), which knows the same
texts as the readers of literals, parameters, INSERT and COPY, and fails in PostgreSQL's words. What
prints differently in the two (floats, numerics of unknown scale, intervals, bytea) has no cast to
text.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from headwater.adapter.dialect import numerics
from headwater.adapter.dialect.literals import number, quoted
from headwater.adapter.dialect.refusal import CannotCoerce, position, refuse
from headwater.adapter.dialect.typed import (
    BARE,
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    FLOATS,
    INTEGER,
    INTEGERS,
    REAL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    UUID,
    Typed,
    as_numeric,
    cast_sql,
    is_number,
)
from headwater.collection.type_table import UnsupportedType
from headwater.collection.types import NUMERIC_BARE, SqlType, array, by_postgres

_TIMES: Final = ("date", "timestamp", "timestamptz")
_RANK: Final = {
    "smallint": 0,
    "integer": 1,
    "bigint": 2,
    "numeric": 3,
    "real": 4,
    "double precision": 5,
}


def written_type(cast_node: Any, node: Any) -> SqlType:
    """The type that ``node`` names in a cast."""
    if node.key != "datatype":
        refuse(cast_node, f"type {node.sql(dialect='postgres').lower()}")
    if node.this.name == "ARRAY" and node.expressions:
        return array(written_type(cast_node, node.expressions[0]))
    if node.this.name == "INTERVAL":
        return by_postgres("interval")
    text = str(node.sql(dialect="postgres")).lower()
    name, _, rest = text.partition("(")
    digits = [part.strip() for part in rest.rstrip(") ").split(",")] if rest else []
    if not all(part.isascii() and part.isdigit() for part in digits):
        refuse(cast_node, f"type {text}", "The modifiers of a type are whole numbers.")
    args = tuple(map(int, digits))
    try:
        return by_postgres(name.strip(), args)
    except (UnsupportedType, ValueError) as error:
        hint = error.hint if isinstance(error, UnsupportedType) else str(error)
        refuse(cast_node, f"type {text}", f"{hint[:1].upper()}{hint[1:]}.")


def can_coerce(operand: Typed, type_: SqlType) -> bool:
    """Whether PostgreSQL would take ``operand`` where ``type_`` is wanted."""
    found = operand.type
    if found in (UNKNOWN, type_):
        return True
    if is_number(found) and is_number(type_):
        return _RANK[found.name] <= _RANK[type_.name]
    if found.name in _TIMES and type_.name in _TIMES:
        return _TIMES.index(found.name) <= _TIMES.index(type_.name)
    return found.name == type_.name == "numeric"


def coerce(operand: Typed, type_: SqlType) -> Typed:
    """``operand`` as a value of ``type_``, implicitly."""
    if operand.type == type_:
        return operand
    if operand.type == UNKNOWN:
        taken = like_literal(operand, type_)
        return taken if taken.type == type_ else coerce(taken, type_)
    if not can_coerce(operand, type_):
        raise CannotCoerce(
            f"a value of type {type_.postgres} is wanted but the expression is of type"
            f" {operand.type.postgres}",
            hint="Cast it.",
            position=position(operand.node),
        )
    return _widen(operand, type_)


def like_literal(operand: Typed, type_: SqlType) -> Typed:
    """An untyped literal next to a value of ``type_``; a numeric keeps the digits it has.

    (PostgreSQL gives it the type without its precision.)
    """
    if type_.name != "numeric" or operand.literal is None:
        return quoted(operand, type_)
    quoted(operand, BARE)  # reports what is no number
    return to_numeric(number(operand.node, format(Decimal(operand.literal.strip()), "f")))


to_numeric: Final = numerics.exact


def _widen(operand: Typed, type_: SqlType) -> Typed:
    if type_ == BIGINT and operand.sql.isdigit():
        return operand.of(f"{operand.sql}L", BIGINT)
    if type_.name != "numeric":
        return operand.of(cast_sql(operand.sql, type_), type_)
    scale = as_numeric(operand.type).args[1]
    shown = operand.scale_shown and scale == type_.args[1]
    fewer_before = numerics.whole_digits(type_) < numerics.whole_digits(operand.type)
    holds = scale <= type_.args[1] and not fewer_before
    sql = cast_sql(operand.sql, type_) if holds else numerics.fitted(operand, type_)
    return operand.of(sql, type_, scale_shown=shown)


def cast(operand: Typed, type_: SqlType) -> Typed:
    """``operand::type``."""
    if operand.type == UNKNOWN:
        return (like_literal if type_.args == NUMERIC_BARE else quoted)(operand, type_)
    if operand.type == type_ and type_.args != NUMERIC_BARE:
        return operand
    rule = _EXPLICIT.get((operand.type.name, type_.name))
    if rule is None:
        refuse(operand.node, f"a cast of {operand.type.postgres} to {type_.postgres}")
    return rule(operand, type_)


Rule = Callable[[Typed, SqlType], Typed]


def guarded(condition: str, message: str, value: str) -> str:
    """``value`` where ``condition`` holds (or is NULL); else an error that says ``message``."""
    return f"CASE WHEN NOT ({condition}) THEN raise_error({message}) ELSE {value} END"


def strict(operands: list[str], value: str) -> str:
    """``value`` if none of these is NULL, else NULL, whatever it may fail of."""
    present = " AND ".join(f"{operand} IS NOT NULL" for operand in operands)
    return f"(CASE WHEN {present} THEN {value} END)"


def _plain(operand: Typed, type_: SqlType) -> Typed:
    return operand.of(cast_sql(operand.sql, type_), type_)


def _float_to_integer(operand: Typed, type_: SqlType) -> Typed:
    return operand.of(cast_sql(f"rint({operand.sql})", type_), type_)


def _double_to_real(operand: Typed, type_: SqlType) -> Typed:
    """Spark makes infinity or zero of what a real cannot hold."""
    wide, real = operand.sql, cast_sql(operand.sql, type_)
    infinite = "CAST('Infinity' AS DOUBLE)"
    too_large = f"abs({real}) = {infinite} AND abs({wide}) < {infinite}"
    sql = (
        f"(CASE WHEN {too_large} THEN raise_error('value out of range: overflow')"
        f" WHEN {real} = 0 AND {wide} <> 0 THEN raise_error('value out of range: underflow')"
        f" ELSE {real} END)"
    )
    return operand.of(sql, type_)


def _numeric_to_integer(operand: Typed, type_: SqlType) -> Typed:
    return operand.of(cast_sql(f"round({operand.sql}, 0)", type_), type_)


def _to_numeric(operand: Typed, type_: SqlType) -> Typed:
    if type_.args == NUMERIC_BARE:
        # PostgreSQL's bare numeric keeps every digit; so do we.
        return to_numeric(operand)
    return operand.of(numerics.rounded(operand, type_), type_)


def _numeric_to_text(operand: Typed, type_: SqlType) -> Typed:
    if not operand.scale_shown:
        refuse(
            operand.node,
            "the text of a numeric whose number of digits PostgreSQL decides row by row",
            "Cast it to numeric(p,s) first.",
        )
    return _plain(operand, type_)


def _zoned_to_text(operand: Typed, type_: SqlType) -> Typed:
    return operand.of(f"concat({cast_sql(operand.sql, TEXT)}, '+00')", type_)


def _text_to(operand: Typed, type_: SqlType) -> Typed:
    """By PostgreSQL's input function, which reads the rows of a column as it does a literal."""
    # What errors call it, which of this one type is not the whole name.
    name = type_.name if type_ == TIMESTAMP else type_.postgres
    sql = f"headwater_read('{name}', {operand.sql})"
    return operand.of(sql, type_, scale_shown=type_.args != NUMERIC_BARE)


_READ: Final = (*INTEGERS, *FLOATS, BARE, BOOLEAN, BYTEA, DATE, TIMESTAMP, TIMESTAMPTZ, UUID)

_EXPLICIT: Final[dict[tuple[str, str], Rule]] = {
    **{(a.name, b.name): _plain for a in INTEGERS for b in (*INTEGERS, *FLOATS, TEXT) if a != b},
    **{(a.name, "numeric"): _to_numeric for a in INTEGERS},
    ("numeric", "numeric"): _to_numeric,
    **{("numeric", b.name): _numeric_to_integer for b in INTEGERS},
    **{("numeric", b.name): _plain for b in FLOATS},
    ("numeric", "text"): _numeric_to_text,
    **{(a.name, b.name): _float_to_integer for a in FLOATS for b in INTEGERS},
    (REAL.name, DOUBLE.name): _plain,
    (DOUBLE.name, REAL.name): _double_to_real,
    (BOOLEAN.name, TEXT.name): _plain,
    (BOOLEAN.name, INTEGER.name): _plain,
    (INTEGER.name, BOOLEAN.name): _plain,
    (DATE.name, TEXT.name): _plain,
    (DATE.name, TIMESTAMP.name): _plain,
    (DATE.name, TIMESTAMPTZ.name): _plain,
    (TIMESTAMP.name, DATE.name): _plain,
    (TIMESTAMP.name, TIMESTAMPTZ.name): _plain,
    (TIMESTAMP.name, TEXT.name): _plain,
    (TIMESTAMPTZ.name, DATE.name): _plain,
    (TIMESTAMPTZ.name, TIMESTAMP.name): _plain,
    (TIMESTAMPTZ.name, TEXT.name): _zoned_to_text,
    **{(TEXT.name, b.name): _text_to for b in _READ},
    ("uuid", TEXT.name): _plain,
    ("jsonb", TEXT.name): _plain,
}


def casts() -> list[tuple[str, str]]:
    """Every pair of types with an explicit cast."""
    return sorted(_EXPLICIT)
