"""Literals, and the rows of an ``INSERT`` as one Arrow batch.

- :func:`evaluate`: a literal expression → :data:`~.statements.Value`. Nothing is computed here.
- :func:`value_of`: the same, or a :class:`~.statements.Calculated` that PostgreSQL itself will
  evaluate (``adapter/calculations.py``), of an expression that reads no relation.
- :func:`assign`: a value → the value its column stores, by PostgreSQL's *assignment* casts: a
  string of unknown type is read by the type's input function, numbers are rounded (numeric half
  away from zero, float half to even) and range-checked, and what has no such cast is refused.
- :func:`stored_columns`: an :class:`~.statements.Insert` and the table's schema → the values that
  are stored: columns in the table's order, those not named by default, NOT NULL checked;
- :func:`as_batch`: the same as a batch of exactly that schema.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Decimal, localcontext
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headwater.adapter.errors import (
    DuplicateColumn,
    NotNullViolation,
    OutOfRange,
    TypeMismatch,
    UnknownColumn,
    Unsupported,
    WrongRowWidth,
)
from headwater.adapter.sql import text
from headwater.adapter.sql.forms import Form, canonical, form_of, written_form
from headwater.adapter.sql.query import is_user
from headwater.adapter.sql.statements import Calculated, Insert, Keyword, Value
from headwater.adapter.sql.types import NUMERIC_BARE, arrow_type, wire_type
from headwater.adapter.value_errors import NotBareNumeric, NumericOverflow, TooLong

_DIGITS_MAX = 2_000  # Enough for every finite double written out; a bound on the work per literal.


def evaluate(expression: Any) -> Value:
    """The value of a literal: number, string, NULL, boolean, a sign, parentheses, a cast."""
    if isinstance(expression, exp.Literal):
        return str(expression.this) if expression.is_string else _number(str(expression.this))
    if isinstance(expression, exp.Null):
        return None
    if isinstance(expression, exp.Boolean):
        return bool(expression.this)
    if isinstance(expression, exp.ByteString | exp.RawString):  # E'…' and $$…$$
        return str(expression.this)
    if isinstance(expression, exp.Paren):
        return evaluate(expression.this)
    if isinstance(expression, exp.Neg):
        operand = evaluate(expression.this)
        if operand is None:
            return None
        if isinstance(operand, Decimal):
            # Unary minus would round to the context's 28 digits. A numeric has no zero below zero.
            return operand.copy_negate() if operand else operand
        if isinstance(operand, int | float) and not isinstance(operand, bool):
            return -operand
    if isinstance(expression, exp.Cast) and not isinstance(expression, exp.TryCast):
        type_ = arrow_type(expression.to)
        operand = evaluate(expression.this)
        if type_ == NUMERIC_BARE and operand is not None:
            # It has all of its digits; whether they fit, the column says that it is for.
            number = text.from_text(operand, type_) if isinstance(operand, str) else operand
            return _decimal(number, type_)
        return assign(operand, type_, written_form(expression.to))
    raise Unsupported(
        f"the expression {expression.sql(dialect='postgres')} in VALUES",
        detail="A row of VALUES reads nothing: it holds literals, and expressions of them.",
        hint="Write INSERT … SELECT.",
    )


_READS = (exp.Column, exp.Query, exp.Star, exp.Parameter, exp.Placeholder, exp.Window)
_UNSTEADY = (exp.Anonymous, exp.Rand, exp.Randn, exp.Uuid)
"""What has another value each time, or is not known to have one."""


def value_of(expression: Any) -> Value | Calculated:
    """The value of a literal, or what it takes to calculate one."""
    try:
        return evaluate(expression)
    except Unsupported:
        if any(isinstance(node, _READS) and not is_user(node) for node in expression.walk()):
            raise
    is_steady = expression.find(*_UNSTEADY) is None
    return Calculated(expression.sql(dialect="postgres"), is_steady)


def _number(written: str) -> int | Decimal:
    if len(written) > _DIGITS_MAX:
        raise OutOfRange("numeric", f"{written[:20]}…")
    return int(written) if written.isascii() and written.isdigit() else Decimal(written)


def assign(value: Value, target: pa.DataType, form: Form | None = None) -> Value:
    """What a column of type ``target`` stores for ``value``; ``form``: what it is as text."""
    if value is None:
        return None
    if form is not None:
        if not isinstance(value, str):
            raise TypeMismatch(form, _type_name(value))
        return canonical(value, form)
    if pa.types.is_string(target):
        return value if isinstance(value, str) else cast_to_text(value)
    if isinstance(value, str):
        value = text.from_text(value, target)
    if pa.types.is_integer(target):
        return _to_integer(value, target)
    if pa.types.is_floating(target):
        return _to_float(value, target)
    if pa.types.is_decimal(target):
        return _to_numeric(value, target)
    if pa.types.is_date(target):
        if isinstance(value, datetime):
            return value.date()
        if isinstance(value, date):
            return value
    if pa.types.is_timestamp(target) and isinstance(value, date):
        return _to_timestamp(value, zoned=target.tz is not None)
    if pa.types.is_boolean(target) and isinstance(value, bool):
        return value
    if pa.types.is_binary(target) and isinstance(value, bytes):
        return value
    raise _mismatch(value, target)


def fitted(value: str, length_max: int) -> str:
    """A text as ``varchar(length_max)`` stores it: too long by blanks alone, it loses these."""
    if len(value) <= length_max:
        return value
    if value[length_max:].strip(" "):
        raise TooLong(length_max)
    return value[:length_max]


def fitted_column(column: Any, length_max: int) -> Any:
    """The same of a column."""
    longest = pc.max(pc.utf8_length(column)).as_py()
    if longest is None or longest <= length_max:
        return column
    values = [None if value is None else fitted(value, length_max) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(values, column.type)])


def _mismatch(value: Value, target: pa.DataType) -> TypeMismatch:
    return TypeMismatch(wire_type(target).name, _type_name(value))


def _type_name(value: Value) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, Decimal):
        return "numeric"
    if isinstance(value, float):
        return "double precision"
    if isinstance(value, bytes):
        return "bytea"
    if isinstance(value, datetime):
        return "timestamp" if value.tzinfo is None else "timestamp with time zone"
    return "date" if isinstance(value, date) else "text"


def cast_to_text(value: object) -> str:
    """A value as PostgreSQL writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return text.numeric_to_text(value)
    if isinstance(value, float):
        return text.float_to_text(value)
    if isinstance(value, bytes):
        return text.bytea_to_text(value)
    if isinstance(value, datetime):
        return text.timestamp_to_text(value)
    return text.date_to_text(value) if isinstance(value, date) else str(value)


def _to_integer(value: Value, target: pa.DataType) -> int:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float):
        raise _mismatch(value, target)
    name = wire_type(target).name
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise OutOfRange(name, value)
        whole = round(value)
    elif isinstance(value, Decimal):
        if value.adjusted() > _DIGITS_MAX:
            raise OutOfRange(name, value)
        whole = int(value.to_integral_value(ROUND_HALF_UP))
    else:
        whole = value
    bound = 1 << (target.bit_width - 1)
    if not -bound <= whole < bound:
        raise OutOfRange(name, whole)
    return whole


def _to_float(value: Value, target: pa.DataType) -> float:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float):
        raise _mismatch(value, target)
    try:
        double = float(value)
        if double in (float("inf"), float("-inf")) and not isinstance(value, float):
            raise OutOfRange(wire_type(target).name, value)
        if pa.types.is_float32(target):
            (double,) = struct.unpack("!f", struct.pack("!f", double))
        if not double and value:
            raise OutOfRange(wire_type(target).name, value)
    except OverflowError:
        raise OutOfRange(wire_type(target).name, value) from None
    return double


def _to_numeric(value: Value, target: pa.DataType) -> Decimal:
    exact = _decimal(value, target)
    precision, scale = target.precision, target.scale
    with localcontext() as context:
        context.prec = _DIGITS_MAX
        if target == NUMERIC_BARE:
            _require_bare(exact)
        elif exact.adjusted() >= precision - scale and exact:
            raise NumericOverflow(precision, scale)
        scaled = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    if len(scaled.as_tuple().digits) > precision and scaled != 0:
        raise NumericOverflow(precision, scale)
    return scaled


def _decimal(value: Value, target: pa.DataType) -> Decimal:
    """A number with all of its digits."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float):
        raise _mismatch(value, target)
    # PostgreSQL casts a double to numeric through its 15 significant digits.
    exact = Decimal(f"{value:.15g}") if isinstance(value, float) else Decimal(value)
    if not exact.is_finite() or (exact and abs(exact.adjusted()) > _DIGITS_MAX // 2):
        raise OutOfRange(wire_type(target).name, value)
    return exact


def _require_bare(value: Decimal) -> None:
    """Refuse what a numeric without precision would have to round: PostgreSQL does not."""
    if not value:
        return
    plain = value.normalize()
    exponent = plain.as_tuple().exponent
    assert isinstance(exponent, int)
    whole_max = NUMERIC_BARE.precision - NUMERIC_BARE.scale
    if -exponent > NUMERIC_BARE.scale:
        raise NotBareNumeric(value, -exponent, "after", NUMERIC_BARE.scale)
    if plain.adjusted() >= whole_max:
        raise NotBareNumeric(value, plain.adjusted() + 1, "before", whole_max)


def _to_timestamp(value: date, *, zoned: bool) -> datetime:
    instant = value if isinstance(value, datetime) else datetime.combine(value, time())
    if zoned:
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    return instant if instant.tzinfo is None else instant.astimezone(UTC).replace(tzinfo=None)


def as_batch(
    insert: Insert,
    schema: pa.Schema,
    defaults: Mapping[str, Value | Calculated] = MappingProxyType({}),
) -> pa.RecordBatch:
    """The rows of ``insert`` as a batch of ``schema``, the schema of its table."""
    columns = stored_columns(insert, schema, defaults)
    arrays = [pa.array(stored, field.type) for stored, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def stored_columns(
    insert: Insert,
    schema: pa.Schema,
    defaults: Mapping[str, Value | Calculated] = MappingProxyType({}),
) -> list[list[Value]]:
    """What each column of ``schema`` stores of the rows of ``insert``.

    What is calculated has been (``adapter/calculations.py``).
    """
    named = insert.columns
    if named is None:
        # As in PostgreSQL, a shorter row fills the first columns.
        width = max(len(row) for row in insert.rows)
        if width > len(schema.names):
            raise WrongRowWidth(width, len(schema.names))
        named = tuple(schema.names[:width])
    check_columns(insert.table, named, schema)
    for row in insert.rows:
        if len(row) != len(named):
            raise WrongRowWidth(len(row), len(named))

    columns: list[list[Value]] = []
    for field in schema:
        default = defaults.get(field.name)
        if field.name in named:
            index, form = named.index(field.name), form_of(field)
            stored = [
                _known(default)
                if isinstance(given, Keyword)
                else assign(_known(given), field.type, form)
                for given in (row[index] for row in insert.rows)
            ]
        else:
            stored = [_known(default)] * len(insert.rows)
        if not field.nullable and None in stored:
            raise NotNullViolation(field.name, insert.table)
        columns.append(stored)
    return columns


def _known(value: Value | Calculated) -> Value:
    assert not isinstance(value, Calculated), f"{value.sql} was calculated"
    return value


def check_columns(table: str, named: Sequence[str], schema: pa.Schema) -> None:
    """Refuse a column that the table does not have, and one that is named twice."""
    for index, column in enumerate(named):
        if column not in schema.names:
            raise UnknownColumn(column, table, schema.names)
        if column in named[:index]:
            raise DuplicateColumn(column)


def assign_column(column: Any, into: pa.Field, form: Form | None = None) -> Any:
    """A computed column as ``into`` stores it, by the same casts; ``form``: what it is as text."""
    target, wanted = into.type, form_of(into)
    if wanted is not None and form != wanted and column.null_count < len(column):
        raise TypeMismatch(wanted, form or wire_type(column.type).name)
    if column.type == target:
        return column
    if pa.types.is_integer(column.type) and pa.types.is_integer(target):
        try:
            return column.cast(target)
        except pa.ArrowInvalid as error:
            raise OutOfRange(wire_type(target).name, "of the expression") from error
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type) and not pa.types.is_string(target):
        # A computed text has a type, unlike a literal: there is no assignment cast from it.
        raise TypeMismatch(wire_type(target).name, "text")
    return pa.chunked_array([pa.array([assign(v, target) for v in column.to_pylist()], target)])
