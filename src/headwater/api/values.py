"""Python values as parameters of a statement, and Python's rows as Arrow.

A parameter becomes the literal that the same value sent over the wire becomes
(``adapter/pgwire/parameters.py``), so what ``$1`` means does not depend on the way it came. A text
has no type of its own, as in PostgreSQL: it becomes one of the type that it meets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from headwater.adapter.pgwire import parameters, text_form
from headwater.adapter.pgwire.wire_types import UNKNOWN_OIDS, of_arrow
from headwater.adapter.sql import text
from headwater.adapter.sql.forms import Form, canonical, form_of
from headwater.adapter.sql.types import INT4, INT8, NUMERIC
from headwater.base.errors import InvalidUsage
from headwater.collection.types import NUMERIC_PRECISION_MAX

UNKNOWN: Final = min(UNKNOWN_OIDS)

_INT4_MAX: Final = 2**31
_INT8_MAX: Final = 2**63


class NotAParameter(InvalidUsage):
    """A value that no SQL type stands for."""

    def __init__(self, number: int, value: object) -> None:
        super().__init__(
            f"parameter ${number} is a {type(value).__name__}, which has no SQL type; "
            f"give a number, text, bytes, date, time, UUID, list, mapping or None"
        )


def bound(sql: str, values: Sequence[object]) -> str:
    """Return the statement with the values in place of ``$1`` … ``$n``.

    >>> bound("SELECT $1 + $2, $3", (1, -2, "it's"))
    "SELECT 1 + (-2) , 'it''s'"
    """
    source = parameters.only_statement(sql)
    wanted = 0 if source is None else parameters.count(source)
    if wanted != len(values):
        raise InvalidUsage(f"the statement has {wanted} parameter(s), and {len(values)} were given")
    if source is None:
        return sql
    pairs = [_written(number, value) for number, value in enumerate(values, start=1)]
    return parameters.bind(source, [written for written, _ in pairs], [oid for _, oid in pairs])


def _written(number: int, value: object) -> tuple[str | None, int]:
    """Return the text form of a value, and the OID of its type."""
    match value:
        case None:
            return None, UNKNOWN
        case str():
            return value, UNKNOWN
        case bool():
            pass
        case int():
            if -_INT8_MAX <= value < _INT8_MAX:
                return str(value), (INT4 if -_INT4_MAX <= value < _INT4_MAX else INT8).oid
            return str(value), NUMERIC.oid
        case Decimal():
            return text.numeric_to_text(value), NUMERIC.oid
        case UUID():
            return str(value), UNKNOWN
        case Mapping():
            return json.dumps(value), UNKNOWN
        case _:
            pass
    try:
        array = pa.array([value])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise NotAParameter(number, value) from error
    type_ = of_arrow(array.type)
    (written,) = text_form.to_text(array, type_)
    assert written is not None
    return written.decode("utf-8"), type_.oid


class UnfitRows(InvalidUsage):
    """Rows that cannot be those of a table."""

    def __init__(self, table: str, why: str) -> None:
        super().__init__(f'the rows do not fit table "{table}": {why}')


def rows_of(given: Any, schema: pa.Schema, table: str) -> pa.Table:
    """Return rows, however they were given, as an Arrow table with the types of ``schema``.

    ``given``: an Arrow table or batch, a pandas or PySpark DataFrame, or mappings. Columns are
    matched by name; those left out get their defaults.
    """
    try:
        rows = _arrow(given, schema, table)
        unknown = [name for name in rows.column_names if name not in schema.names]
        if unknown:
            raise UnfitRows(table, f"it has no column {unknown[0]!r}; it has {schema.names}")
        # NULLs are told by the column's name, by whoever takes the rows.
        fields = [schema.field(name).with_nullable(True) for name in rows.column_names]
        columns = [_cast(rows.column(field.name), field) for field in fields]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))
    except pa.ArrowException as error:
        raise UnfitRows(table, str(error)) from error


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Return a column in its type; what does not fit is refused, never rounded away."""
    wanted, form = field.type, form_of(field)
    if form is not None:
        texts = column.cast(wanted).to_pylist()
        read = [None if text is None else canonical(text, form) for text in texts]
        return pa.chunked_array([pa.array(read, wanted)])
    if pa.types.is_decimal(wanted) and pa.types.is_integer(column.type):
        # Arrow asks for room for every integer there is, not only for those that are here.
        column = column.cast(pa.decimal128(NUMERIC_PRECISION_MAX, wanted.scale))
    return column.cast(wanted)


def _arrow(given: Any, schema: pa.Schema, table: str) -> pa.Table:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    # By name, so that neither library is imported for those who do not use it.
    origin = type(given).__module__.partition(".")[0]
    if origin == "pandas":
        return pa.Table.from_pandas(given, preserve_index=False)
    if origin == "pyspark":
        from headwater.persist.spark import frame_rows

        return frame_rows(given)
    rows = list(given)
    names = list(dict.fromkeys(name for row in rows for name in row))
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise UnfitRows(table, f"it has no column {unknown[0]!r}; it has {schema.names}")
    fields = [schema.field(name).with_nullable(True) for name in names]
    forms = {field.name: form for field in fields if (form := form_of(field)) is not None}
    if forms:
        rows = [{n: _text(v, forms.get(n)) for n, v in row.items()} for row in rows]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def _text(value: Any, form: Form | None) -> Any:
    """Return what a column of a canonical text is given, as text."""
    if form == "uuid" and isinstance(value, UUID):
        return str(value)
    return json.dumps(value) if form == "jsonb" and isinstance(value, dict | list) else value
