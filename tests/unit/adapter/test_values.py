"""Text forms and assignments: what a column stores for a literal, and how it is written again."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.adapter.errors import AdapterError
from headwater.adapter.sql import text
from headwater.adapter.sql.parse import parse
from headwater.adapter.sql.statements import Calculated, Insert, Value
from headwater.adapter.sql.types import NUMERIC_BARE, wire_type
from headwater.adapter.sql.values import as_batch, assign

INT16, INT32, INT64 = pa.int16(), pa.int32(), pa.int64()
NUMERIC_5_2 = pa.decimal128(5, 2)
TIMESTAMP, TIMESTAMPTZ = pa.timestamp("us"), pa.timestamp("us", "UTC")

ASSIGNED: list[tuple[Value, pa.DataType, Value]] = [
    (None, INT32, None),
    ("12", INT32, 12),
    (" -12 ", INT64, -12),
    (Decimal("2.5"), INT32, 3),  # numeric rounds half away from zero
    (Decimal("-2.5"), INT32, -3),
    (2.5, INT32, 2),  # double rounds half to even
    (32767, INT16, 32767),
    (1, pa.float64(), 1.0),
    ("NaN", pa.float64(), "NaN"),
    ("-Infinity", pa.float64(), float("-inf")),
    (Decimal("0.1"), pa.float32(), struct.unpack("f", struct.pack("f", 0.1))[0]),
    (7, NUMERIC_5_2, Decimal("7.00")),
    (Decimal("1.005"), NUMERIC_5_2, Decimal("1.01")),
    (Decimal("-1.005"), NUMERIC_5_2, Decimal("-1.01")),
    (0.1, NUMERIC_5_2, Decimal("0.10")),
    (0.1, NUMERIC_BARE, Decimal("0.100000000")),
    ("0.0000000010000", NUMERIC_BARE, Decimal("1E-9")),
    (10**29 - 1, NUMERIC_BARE, Decimal(10**29 - 1)),
    ("0", NUMERIC_5_2, Decimal("0.00")),
    ("on", pa.bool_(), True),
    ("F", pa.bool_(), False),
    (5, pa.string(), "5"),
    (True, pa.string(), "true"),
    (date(2026, 1, 2), pa.string(), "2026-01-02"),
    ("2026-1-2", pa.date32(), date(2026, 1, 2)),
    ("2026-01-02 23:59:59", pa.date32(), date(2026, 1, 2)),
    ("2026-01-02", TIMESTAMP, datetime.fromisoformat("2026-01-02")),
    (
        "2026-01-02 00:00:00.1234565",
        TIMESTAMP,
        datetime.fromisoformat("2026-01-02T00:00:00.123456"),
    ),
    ("2026-01-02T03:04", TIMESTAMP, datetime.fromisoformat("2026-01-02T03:04")),
    (
        "2026-01-02 03:04:05.000001+02",
        TIMESTAMP,
        datetime.fromisoformat("2026-01-02T03:04:05.000001"),
    ),
    ("2026-01-02 03:04:05+0230", TIMESTAMPTZ, datetime(2026, 1, 2, 0, 34, 5, tzinfo=UTC)),
    (date(2026, 1, 2), TIMESTAMPTZ, datetime(2026, 1, 2, tzinfo=UTC)),
    ("\\x00fF", pa.binary(), b"\x00\xff"),
    ("plain", pa.binary(), b"plain"),
]
NOT_ASSIGNED: list[tuple[Value, pa.DataType, str]] = [
    ("1.5", INT32, "22P02"),
    ("", INT32, "22P02"),
    (2**31, INT32, "22003"),
    (-(2**15) - 1, INT16, "22003"),
    (Decimal("1e100"), INT64, "22003"),
    (float("nan"), INT64, "22003"),
    (Decimal("1e400"), pa.float64(), "22003"),
    (1e39, pa.float32(), "22003"),
    (1000, NUMERIC_5_2, "22003"),
    (Decimal("999.995"), NUMERIC_5_2, "22003"),
    ("NaN", NUMERIC_5_2, "0A000"),
    ("1e-400", pa.float64(), "22003"),
    (Decimal("1e-400"), pa.float64(), "22003"),
    (Decimal("1e-46"), pa.float32(), "22003"),
    ("NaN", NUMERIC_BARE, "0A000"),
    (Decimal("0.0000000001"), NUMERIC_BARE, "22003"),
    ("1e-400", NUMERIC_BARE, "22003"),
    ("1e400", NUMERIC_BARE, "22003"),
    (10**29, NUMERIC_BARE, "22003"),
    ("1,5", NUMERIC_5_2, "22P02"),
    (1, pa.bool_(), "42804"),
    (True, INT32, "42804"),
    (1, pa.date32(), "42804"),
    (date(2026, 1, 2), INT32, "42804"),
    (b"x", NUMERIC_5_2, "42804"),
    ("maybe", pa.bool_(), "22P02"),
    ("2026-01-02x", pa.date32(), "22007"),
    ("0000-01-01", pa.date32(), "22008"),
    ("2026-01-02 25:00", TIMESTAMP, "22008"),
    ("\\xzz", pa.binary(), "22023"),
]


@pytest.mark.parametrize(("value", "target", "stored"), ASSIGNED)
def test_assigned(value: Value, target: pa.DataType, stored: Value) -> None:
    got = assign(value, target)
    if stored == "NaN":
        assert isinstance(got, float)
        assert got != got
    else:
        assert got == stored
        assert type(got) is type(stored)


@pytest.mark.parametrize(("value", "target", "sqlstate"), NOT_ASSIGNED)
def test_not_assigned(value: Value, target: pa.DataType, sqlstate: str) -> None:
    with pytest.raises(AdapterError) as refused:
        assign(value, target)
    assert refused.value.sqlstate == sqlstate


# What PostgreSQL prints, taken from a PostgreSQL.
@pytest.mark.parametrize(
    ("value", "size", "written"),
    [
        (1.0, 8, "1"),
        (-0.0, 8, "-0"),
        (0.1, 8, "0.1"),
        (100000.0, 8, "100000"),
        (123456789012345.0, 8, "123456789012345"),
        (1e15, 8, "1e+15"),
        (1.5e300, 8, "1.5e+300"),
        (0.0001, 8, "0.0001"),
        (0.00001, 8, "1e-05"),
        (5e-324, 8, "5e-324"),
        (0.1 + 0.2, 8, "0.30000000000000004"),
        (float("nan"), 8, "NaN"),
        (float("-inf"), 8, "-Infinity"),
        (1.0, 4, "1"),
        (struct.unpack("f", struct.pack("f", 0.1))[0], 4, "0.1"),
        (100000.0, 4, "100000"),
        (1e6, 4, "1e+06"),
        (16777216.0, 4, "1.6777216e+07"),
    ],
)
def test_floats_are_written_as_postgresql_writes_them(
    value: float, size: int, written: str
) -> None:
    assert text.float_to_text(value, size=size) == written


@given(st.floats(allow_nan=False))
def test_a_double_reads_back(value: float) -> None:
    assert text.from_text(text.float_to_text(value), pa.float64()) == value


@given(st.floats(allow_nan=False, width=32))
def test_a_real_reads_back(value: float) -> None:
    written = text.float_to_text(value, size=4)
    assert assign(written, pa.float32()) == value


@given(st.datetimes(), st.booleans())
def test_a_timestamp_reads_back(value: datetime, zoned: bool) -> None:
    instant = value.replace(tzinfo=UTC) if zoned else value
    written = text.timestamp_to_text(instant)
    assert text.timestamp_from_text(written, zoned=zoned) == instant


@given(st.binary())
def test_bytes_read_back(value: bytes) -> None:
    assert text.from_text(text.bytea_to_text(value), pa.binary()) == value


SCHEMA = pa.schema(
    [pa.field("k", INT64, nullable=False), pa.field("v", pa.string()), pa.field("n", NUMERIC_5_2)]
)


def insert(sql: str) -> Insert:
    (statement,) = parse(sql)
    assert isinstance(statement, Insert)
    return statement


def test_rows_become_a_batch_of_the_table() -> None:
    batch = as_batch(insert("insert into t (n, k) values (1.5, 1), (null, '2')"), SCHEMA)
    assert batch.schema == SCHEMA
    assert batch.to_pylist() == [
        {"k": 1, "v": None, "n": Decimal("1.50")},
        {"k": 2, "v": None, "n": None},
    ]


def test_a_default_is_not_looked_at_where_every_row_has_a_value() -> None:
    (insert,) = parse("INSERT INTO t (a) VALUES (1), (2)")
    assert isinstance(insert, Insert)
    drawn = {"a": Calculated("random()", is_steady=False)}
    assert as_batch(insert, pa.schema([("a", INT32)]), drawn).to_pydict() == {"a": [1, 2]}


def test_a_short_row_fills_the_first_columns() -> None:
    assert as_batch(insert("insert into t values (1, 'a')"), SCHEMA).to_pylist() == [
        {"k": 1, "v": "a", "n": None}
    ]


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("insert into t values (1, 'a', 2, 3)", "42601"),
        ("insert into t values (1, 'a'), (2)", "42601"),
        ("insert into t (k) values (1, 2)", "42601"),
        ("insert into t (k, v) values (1)", "42601"),
        ("insert into t (k, x) values (1, 2)", "42703"),
        ("insert into t (k, k) values (1, 2)", "42701"),
        ("insert into t values (null)", "23502"),
        ("insert into t (v) values ('a')", "23502"),
        ("insert into t values ('a')", "22P02"),
        ("insert into t values (true)", "42804"),
    ],
)
def test_rows_that_do_not_fit(sql: str, sqlstate: str) -> None:
    with pytest.raises(AdapterError) as refused:
        as_batch(insert(sql), SCHEMA)
    assert refused.value.sqlstate == sqlstate


@pytest.mark.parametrize(
    ("arrow", "oid", "modifier"),
    [
        (pa.bool_(), 16, -1),
        (pa.int8(), 21, -1),
        (pa.int16(), 21, -1),
        (pa.int32(), 23, -1),
        (pa.int64(), 20, -1),
        (pa.float32(), 700, -1),
        (pa.float64(), 701, -1),
        (pa.string(), 25, -1),
        (pa.large_string(), 25, -1),
        (pa.null(), 25, -1),
        (pa.binary(), 17, -1),
        (pa.decimal128(10, 2), 1700, (10 << 16 | 2) + 4),
        (pa.date32(), 1082, -1),
        (TIMESTAMP, 1114, -1),
        (TIMESTAMPTZ, 1184, -1),
    ],
)
def test_names_of_types_on_the_wire(arrow: pa.DataType, oid: int, modifier: int) -> None:
    wire = wire_type(arrow)
    assert (wire.oid, wire.modifier) == (oid, modifier)


@pytest.mark.parametrize("arrow", [pa.list_(INT32), pa.struct([("a", INT32)]), pa.uint64()])
def test_a_type_without_a_wire_form_is_refused(arrow: Any) -> None:
    with pytest.raises(AdapterError) as refused:
        wire_type(arrow)
    assert refused.value.sqlstate == "0A000"
