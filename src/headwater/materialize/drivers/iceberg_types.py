"""Which Iceberg type a column of ours is, and which existing ones can hold it.

Every kind but JSON has a type of its own; a decimal of which nothing is said has 38 digits. A
column of UUIDs may be a string, too, as it was in tables that we made before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from headwater.materialize.drivers.columns import Column, Kind

_TYPES: Final[Mapping[Kind, tuple[PrimitiveType, pa.DataType]]] = {
    Kind.BOOLEAN: (BooleanType(), pa.bool_()),
    Kind.INTEGER: (LongType(), pa.int64()),
    Kind.DOUBLE: (DoubleType(), pa.float64()),
    Kind.TEXT: (StringType(), pa.large_string()),
    Kind.BYTES: (BinaryType(), pa.large_binary()),
    Kind.DATE: (DateType(), pa.date32()),
    Kind.TIME: (TimeType(), pa.time64("ns")),  # The unit of ours: keys have all its digits.
    Kind.TIMESTAMP: (TimestamptzType(), pa.timestamp("us", "UTC")),
    Kind.LOCAL_TIMESTAMP: (TimestampType(), pa.timestamp("us")),
    Kind.JSON: (StringType(), pa.large_string()),
    Kind.UUID: (UUIDType(), pa.uuid()),
}
_DIGITS: Final[Mapping[Kind, tuple[int, int]]] = {Kind.DECIMAL: (38, 9), Kind.WHOLE: (38, 0)}
"""Of a decimal of which nothing is said."""
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+), ?([0-9]+)\)")


def iceberg_type(column: Column) -> PrimitiveType:
    """Return the type of a new column."""
    if column.kind in _DIGITS:
        return DecimalType(*(column.digits or _DIGITS[column.kind]))
    return _TYPES[column.kind][0]


def native_type(column: Column) -> str:
    """Return Iceberg's name of the type of a new column."""
    return str(iceberg_type(column))


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a new column."""
    if column.kind in _DIGITS:
        return pa.decimal128(*(column.digits or _DIGITS[column.kind]))
    return _TYPES[column.kind][1]


def holds(native: str, column: Column) -> bool:
    """Return whether an existing column of a type can hold all values of a column of ours."""
    found = _DECIMAL.fullmatch(native)
    if found is None or column.kind not in _DIGITS:
        return native == native_type(column) or (native == "string" and column.kind is Kind.UUID)
    precision, scale = map(int, found.groups())
    ours, fraction = column.digits or _DIGITS[column.kind]
    return scale >= fraction and precision - scale >= ours - fraction
