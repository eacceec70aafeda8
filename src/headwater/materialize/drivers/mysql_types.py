"""Columns and values as MySQL and MariaDB have them, both ways.

    field ─▶ type of a new column                        :func:`native`
    type of an existing column ─▶ whether it can hold    :func:`holds`
    rows ─▶ their texts in a statement                   :func:`row_texts`
    what a query answers ─▶ rows                         :func:`from_answers`

Texts are compared byte by byte, spaces at their end included: the collation is the one without
padding, which MySQL and MariaDB call differently. A key is at most 3,072 bytes in InnoDB, so texts
and bytes in a key have a length. Times are ``datetime(6)`` in UTC, because ``timestamp`` ends in
2038. A decimal has its own digits, or is a text if it has more than there can be. A UUID is
``uuid`` where there is such a type (MariaDB since 10.7), else ``char(36)``. MySQL's JSON has
doubles for numbers, so others are refused (:func:`check_numbers`); MariaDB's is a text.

A value's text is a number, a hexadecimal literal, or stands in single quotes, which are doubled
within it. That is all there is to escape, because the session's ``sql_mode`` has
``NO_BACKSLASH_ESCAPES``.

Kept by:        :func:`row_texts`; :data:`SQL_MODE` is set by whoever connects.
Relied on by:   the driver, for "a value is stored as it is, or not at all": the mode is strict, and
                what it would round nevertheless is refused by Arrow (``typed_rows``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import Determinate
from headwater.materialize.drivers.columns import Column, Kind

SQL_MODE: Final = "STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO"

_KEY_BYTES_MAX: Final = 3_072
_FIXED_BYTES_MAX: Final = 36
_BYTES_PER_CHARACTER: Final = 4
_DIGITS_MAX, _SCALE_MAX = 65, 30

_NATIVE: Final[Mapping[Kind, str]] = {
    Kind.BOOLEAN: "tinyint(1)",
    Kind.INTEGER: "bigint",
    Kind.DOUBLE: "double",
    Kind.WHOLE: f"decimal({_DIGITS_MAX},0)",
    Kind.BYTES: "longblob",
    Kind.DATE: "date",
    Kind.TIME: "time(6)",
    Kind.TIMESTAMP: "datetime(6)",
    Kind.LOCAL_TIMESTAMP: "datetime(6)",
    Kind.JSON: "json",
}
_TEXT: Final = r"(?:varchar\(\d+\)|text|mediumtext|longtext)(?: collate \w+_bin)?"
_HOLDS: Final[Mapping[Kind, re.Pattern[str]]] = {
    Kind.BOOLEAN: re.compile(r"tinyint\(1\)"),
    Kind.INTEGER: re.compile(r"bigint(?:\(\d+\))?"),
    Kind.DOUBLE: re.compile(r"double"),
    Kind.DECIMAL: re.compile(rf"decimal\(\d+,\d+\)|{_TEXT}"),
    Kind.WHOLE: re.compile(r"decimal\(\d+,0\)"),
    Kind.TEXT: re.compile(_TEXT),
    Kind.BYTES: re.compile(r"varbinary\(\d+\)|blob|mediumblob|longblob"),
    Kind.DATE: re.compile(r"date"),
    Kind.TIME: re.compile(r"time\(6\)"),
    Kind.TIMESTAMP: re.compile(r"(?:datetime|timestamp)\(6\)"),
    Kind.LOCAL_TIMESTAMP: re.compile(r"datetime\(6\)"),
    Kind.JSON: re.compile(rf"json|{_TEXT}"),
    Kind.UUID: re.compile(rf"uuid|char\(36\)(?: collate \w+)?|{_TEXT}"),
}
_ARROW: Final[Mapping[Kind, pa.DataType]] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.LOCAL_TIMESTAMP: pa.timestamp("us"),
    Kind.JSON: pa.string(),
    Kind.UUID: pa.string(),
}
UUID_TEXT: Final = "char(36) CHARACTER SET ascii COLLATE ascii_bin"
"""What a UUID is where there is no type for it."""
_LONG_NUMBER: Final = r"[0-9][0-9.]{15}"
_WHOLE_MIN, _WHOLE_MAX = -(1 << 63), (1 << 64) - 1
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")


def quoted(*names: str) -> str:
    """Return an identifier, of parts."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def literal(text: str) -> str:
    """Return a text as it stands in a statement."""
    return "'" + text.replace("'", "''") + "'"


def native(column: Column, columns: Sequence[Column], collation: str, uuid: str) -> str:
    """Return the type of a new column among others; ``uuid``: the server's type of UUIDs."""
    if column.kind is Kind.UUID:
        return uuid
    if column.kind in (Kind.DECIMAL, Kind.WHOLE) and column.digits is not None:
        precision, scale = column.digits
        if precision <= _DIGITS_MAX and scale <= _SCALE_MAX:
            return f"decimal({precision},{scale})"
    if column.kind in (Kind.TEXT, Kind.DECIMAL):
        sized = f"varchar({_length(columns) // _BYTES_PER_CHARACTER})" if column.key else "longtext"
        return f"{sized} CHARACTER SET utf8mb4 COLLATE {collation}"
    if column.kind is Kind.BYTES and column.key:
        return f"varbinary({_length(columns)})"
    return _NATIVE[column.kind]


def _length(columns: Sequence[Column]) -> int:
    """Return how many bytes each part of a key may have that has no length of its own."""
    keys = [column for column in columns if column.key]
    sized = sum(column.kind in (Kind.TEXT, Kind.DECIMAL, Kind.BYTES) for column in keys)
    return (_KEY_BYTES_MAX - _FIXED_BYTES_MAX * (len(keys) - sized)) // sized


def holds(found: str, kind: Kind) -> bool:
    """Return whether an existing column can hold a kind; of a key, its collation stands with it."""
    return _HOLDS[kind].fullmatch(found) is not None


def arrow_type(column: Column, found: str) -> pa.DataType:
    """Return the Arrow type of what an existing column holds."""
    decimal = _DECIMAL.fullmatch(found)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        return pa.decimal256(precision, scale)
    return _ARROW.get(column.kind, pa.string())


def check_numbers(column: str, texts: pa.ChunkedArray) -> None:
    """Refuse JSON with a number that MySQL rounds: it has integers of 64 bits, and doubles."""

    def check(digits: str) -> None:
        number = Decimal(digits)
        whole = "." not in digits and _WHOLE_MIN <= number <= _WHOLE_MAX
        if not whole and Decimal(repr(float(digits))) != number:
            raise OverflowError(
                f"column {column!r} has JSON with the number {digits}, which MySQL would round"
            )

    suspect = texts.filter(pc.match_substring_regex(texts, _LONG_NUMBER))
    for text in suspect.to_pylist():
        json.loads(text, parse_float=check, parse_int=check)


def row_texts(rows: pa.Table, flags: Sequence[pa.BooleanArray] = ()) -> pa.ChunkedArray:
    """Return of each row, in its columns' types, the text ``(value,…)``; flags stand behind."""
    texts = [_texts(name, rows.column(at)) for at, name in enumerate(rows.column_names)]
    texts += [_texts("", pa.chunked_array([flag])) for flag in flags]
    joined = pc.binary_join_element_wise(*texts, _text(","))
    return pc.binary_join_element_wise(_text("("), joined, _text(")"), _text(""))


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _texts(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_boolean(kind):
        texts = column.cast(pa.int8()).cast(pa.large_string())
    elif pa.types.is_integer(kind):
        texts = column.cast(pa.large_string())
    elif pa.types.is_binary(kind):
        hexed = [None if value is None else f"X'{value.hex()}'" for value in column.to_pylist()]
        texts = pa.chunked_array([pa.array(hexed, pa.large_string())])
    else:
        if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column), min_count=0).as_py():
            raise Determinate(
                f"column {name!r} has a NaN or infinite value, which MySQL cannot hold"
            )
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("us"))
        plain = column.cast(pa.large_string())
        doubled = pc.replace_substring(plain, "'", "''") if pa.types.is_string(kind) else plain
        texts = pc.binary_join_element_wise(_text("'"), doubled, _text("'"), _text(""))
    return pc.fill_null(texts, _text("NULL"))


def from_answers(
    columns: Sequence[Column], kinds: Sequence[pa.DataType], answers: Sequence[Sequence[Any]]
) -> pa.Table:
    """Return what a query answered, as rows."""
    values = list(zip(*answers, strict=True)) or [()] * len(columns)
    arrays = [_array(list(v), kind) for v, kind in zip(values, kinds, strict=True)]
    return pa.table(arrays, names=[column.name for column in columns])


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array([None if value is None else bool(value) for value in values], kind)
    if pa.types.is_time(kind):  # PyMySQL has it as the time since midnight.
        return pa.array(values, pa.duration("us")).cast(pa.int64()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.timestamp("us")).cast(kind)
    return pa.array(values, kind)
