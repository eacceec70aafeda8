"""The golden vectors of the key hash: how a line of ``key_hash_v1.json`` is read.

A vector is a key and its hash. A key is a list of ``[Spark type, text or null]``; the text is what
``cast('…' as type)`` understands, hexadecimal digits for binary. The hashes in the file were
computed by Spark; ``tests/spark/test_key_hash.py`` computes them again, and writes them where
``REWRITE=1`` is set. They are stored in every keyed run, so an existing line never changes.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

PATH = Path(__file__).with_name("key_hash_v1.json")

_TYPES = {
    "void": pa.null(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time(6)": pa.time64("ns"),
    "interval day to second": pa.duration("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}


@dataclass(frozen=True, slots=True)
class Vector:
    """One key, by Spark type and text, and the hash Spark gives it."""

    key: tuple[tuple[str, str | None], ...]
    hash: int

    def columns(self) -> list[Any]:
        """Return the key as Arrow arrays of one row."""
        return [pa.array([_value(*part)], arrow_type(part[0])) for part in self.key]

    def sql(self) -> list[tuple[str, pa.DataType]]:
        """Return the key as Spark SQL expressions with their types."""
        return [(_literal(*part), arrow_type(part[0])) for part in self.key]


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a Spark type."""
    if name.startswith("decimal("):
        precision, scale = name.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return _TYPES[name]


def load() -> list[Vector]:
    """Return the vectors of the file."""
    return [
        Vector(tuple((type_, text) for type_, text in entry["key"]), entry["hash"])
        for entry in json.loads(PATH.read_text())["vectors"]
    ]


def _value(type_: str, text: str | None) -> Any:
    if text is None:
        return None
    match arrow_type(type_):
        case t if pa.types.is_boolean(t):
            return text == "true"
        case t if pa.types.is_integer(t):
            return int(text)
        case t if pa.types.is_floating(t):
            return float(text)
        case t if pa.types.is_decimal(t):
            return decimal.Decimal(text)
        case t if pa.types.is_date(t):
            return dt.date.fromisoformat(text)
        case t if pa.types.is_timestamp(t):
            moment = dt.datetime.fromisoformat(text)
            return moment.replace(tzinfo=dt.UTC if t.tz else None)
        case t if pa.types.is_time(t):
            return dt.time.fromisoformat(text)
        case t if pa.types.is_duration(t):
            return dt.timedelta(microseconds=int(text))
        case t if pa.types.is_binary(t):
            return bytes.fromhex(text)
        case _:
            return text


def _literal(type_: str, text: str | None) -> str:
    if text is None:
        return f"cast(null as {type_})"
    if type_ == "binary":
        return f"X'{text}'"
    if type_ == "interval day to second":
        return f"make_dt_interval(0, 0, 0, cast({text} as decimal(18, 0)) / 1000000)"
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"cast('{quoted}' as {type_})"
