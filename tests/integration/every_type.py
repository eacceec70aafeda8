"""A row with a column of every type, for the tests of what endpoints make of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headwater.collection.schema import Column, arrow_schema
from headwater.collection.types import scalar

EVERYTHING = pa.schema(
    [
        pa.field("b", pa.bool_()),
        pa.field("i", pa.int64()),
        pa.field("f", pa.float64()),
        pa.field("d", pa.decimal128(20, 3)),
        pa.field("w", pa.decimal128(38, 0)),
        pa.field("s", pa.string()),
        pa.field("y", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("t", pa.time64("ns")),
        pa.field("l", pa.list_(pa.int64())),
        *arrow_schema([Column("u", scalar("uuid")), Column("j", scalar("jsonb"))]),
    ]
)
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
MOMENT = dt.datetime(2026, 11, 15, 7, 8, 9, 120_000, tzinfo=dt.UTC)


def values(whole: int, number: str) -> tuple[Any, ...]:
    """Return a row of them; ``number`` is in its JSON, both as large as an endpoint takes them."""
    json = """{"a": [1.5, null, true, "ü'\\\\\\""], "n": """ + number + "}"
    return (
        True, -(2**63), 0.1, Decimal("-12.340"), Decimal(whole), "ü'\"\\\t\x01", b"\x00\xff",
        dt.date(1, 1, 1), MOMENT, MOMENT.replace(tzinfo=None), dt.time(7, 8, 9, 120_000), [1, None],
        UUID, json,
    )  # fmt: skip
