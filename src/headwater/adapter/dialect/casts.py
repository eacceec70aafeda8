"""Casts: which exist, and how Spark is asked for PostgreSQL's.

- :func:`coerce` is implicit: literals take the type that is wanted, numbers and times widen.
- :func:`cast` is what the client writes: a pair of types in :data:`_EXPLICIT`, and no other.

PostgreSQL rounds where Spark truncates (numeric → integer half away from zero, float → integer half
to even), and reads text by its own rules: where Spark's reader accepts more, a pattern stands
before it, and text outside the pattern is an error with PostgreSQL's words. What prints differently
in the two (floats, numerics of unknown scale, intervals, bytea) has no cast to text.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from headwater.adapter.dialect.literals import number, quoted, string
from headwater.adapter.dialect.refusal import CannotCoerce, position, refuse
from headwater.adapter.dialect.typed import (
    BARE,
    BIGINT,
    BOOLEAN,
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
    # Only the digits of the fraction may not shrink; the digits before it are checked by Spark.
    if type_.name == "numeric" and as_numeric(operand.type).args[1] > type_.args[1]:
        refuse(operand.node, "a numeric of fewer digits here", "Cast it.")
    return _widen(operand, type_)


def like_literal(operand: Typed, type_: SqlType) -> Typed:
    """An untyped literal next to a value of ``type_``; a numeric keeps the digits it has.

    (PostgreSQL gives it the type without its precision.)
    """
    if type_.name != "numeric" or operand.literal is None:
        return quoted(operand, type_)
    quoted(operand, BARE)  # reports what is no number
    return to_numeric(number(operand.node, format(Decimal(operand.literal.strip()), "f")))


def to_numeric(operand: Typed) -> Typed:
    """An integer or numeric as a numeric of all its digits."""
    type_ = as_numeric(operand.type)
    return operand if operand.type == type_ else operand.of(cast_sql(operand.sql, type_), type_)


def _widen(operand: Typed, type_: SqlType) -> Typed:
    if type_ == BIGINT and operand.sql.isdigit():
        return operand.of(f"{operand.sql}L", BIGINT)
    shown = type_.name != "numeric" or (
        operand.scale_shown and as_numeric(operand.type).args[1] == type_.args[1]
    )
    return operand.of(cast_sql(operand.sql, type_), type_, scale_shown=shown)


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


def _plain(operand: Typed, type_: SqlType) -> Typed:
    return operand.of(cast_sql(operand.sql, type_), type_)


def _float_to_integer(operand: Typed, type_: SqlType) -> Typed:
    return operand.of(cast_sql(f"rint({operand.sql})", type_), type_)


def _numeric_to_integer(operand: Typed, type_: SqlType) -> Typed:
    return operand.of(cast_sql(f"round({operand.sql}, 0)", type_), type_)


def _to_numeric(operand: Typed, type_: SqlType) -> Typed:
    if type_.args == NUMERIC_BARE:
        # PostgreSQL's bare numeric keeps every digit; so do we, while there are digits.
        exact = as_numeric(operand.type)
        shown = operand.scale_shown
        return operand.of(cast_sql(operand.sql, exact), exact, scale_shown=shown)
    return operand.of(cast_sql(operand.sql, type_), type_)


def _text_to_numeric(operand: Typed, type_: SqlType) -> Typed:
    cast = _text_to(r"[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?")(operand, type_)
    return operand.of(cast.sql, type_, scale_shown=type_.args != NUMERIC_BARE)


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


def _text_to(pattern: str) -> Rule:
    def rule(operand: Typed, type_: SqlType) -> Typed:
        named = type_.postgres.partition("(")[0]
        words = string(f'invalid input syntax for type {named}: "')
        message = f"concat({words}, {operand.sql}, '\"')"
        checked = guarded(
            f"{operand.sql} RLIKE '^[ \\\\t\\\\n]*({pattern})[ \\\\t\\\\n]*\\\\z'",
            message,
            cast_sql(f"trim({operand.sql})", type_),
        )
        return operand.of(checked, type_)

    return rule


_UUID_TEXT: Final = "([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}"


def _text_to_uuid(operand: Typed, type_: SqlType) -> Typed:
    """The digits, in whatever groups they stand, in those of 8, 4, 4, 4 and 12."""
    text = operand.sql
    digits = f"lower(regexp_replace({text}, '[{{}}-]', ''))"
    groups = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    pieces = ", ".join(f"substring({digits}, {start}, {size})" for start, size in groups)
    pattern = f"^({_UUID_TEXT}|\\\\{{{_UUID_TEXT}\\\\}})\\\\z"
    words = string('invalid input syntax for type uuid: "')
    message = f"concat({words}, {text}, '\"')"
    value = f"concat_ws('-', {pieces})"
    # Of NULL it would be a text of bars.
    known = guarded(f"{text} RLIKE '{pattern}'", message, value)
    return operand.of(f"CASE WHEN {text} IS NOT NULL THEN {known} END", type_)


_INTEGER_TEXT: Final = "[+-]?[0-9]+"
_FLOAT_TEXT: Final = r"[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
_DATE_TEXT: Final = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_TIMESTAMP_TEXT: Final = _DATE_TEXT + r"([ T][0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,6})?)?)?"

_EXPLICIT: Final[dict[tuple[str, str], Rule]] = {
    **{(a.name, b.name): _plain for a in INTEGERS for b in (*INTEGERS, *FLOATS, TEXT) if a != b},
    **{(a.name, "numeric"): _to_numeric for a in INTEGERS},
    ("numeric", "numeric"): _to_numeric,
    **{("numeric", b.name): _numeric_to_integer for b in INTEGERS},
    **{("numeric", b.name): _plain for b in FLOATS},
    ("numeric", "text"): _numeric_to_text,
    **{(a.name, b.name): _float_to_integer for a in FLOATS for b in INTEGERS},
    (REAL.name, DOUBLE.name): _plain,
    (DOUBLE.name, REAL.name): _plain,
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
    **{(TEXT.name, b.name): _text_to(_INTEGER_TEXT) for b in INTEGERS},
    (TEXT.name, "numeric"): _text_to_numeric,
    (TEXT.name, DOUBLE.name): _text_to(_FLOAT_TEXT),
    (TEXT.name, BOOLEAN.name): _text_to("(?i)t|true|y|yes|1|f|false|n|no|0"),
    (TEXT.name, DATE.name): _text_to(_DATE_TEXT),
    (TEXT.name, TIMESTAMP.name): _text_to(_TIMESTAMP_TEXT),
    (TEXT.name, "uuid"): _text_to_uuid,
    ("uuid", TEXT.name): _plain,
    ("jsonb", TEXT.name): _plain,
}


def casts() -> list[tuple[str, str]]:
    """Every pair of types with an explicit cast."""
    return sorted(_EXPLICIT)
