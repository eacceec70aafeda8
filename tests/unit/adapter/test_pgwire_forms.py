"""Text and binary forms of whole columns: there and back, and as PostgreSQL has them."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire.binary_form import from_binary, to_binary
from headwater.adapter.pgwire.passed_form import (
    passed_from_binary,
    passed_name,
    passed_to_binary,
)
from headwater.adapter.pgwire.text_form import from_text, to_text
from headwater.adapter.pgwire.wire_types import of_arrow
from headwater.adapter.sql import text
from headwater.collection.types import (
    SqlType,
    array,
    by_postgres,
    numeric,
    scalar,
)
from headwater.collection.types import (
    struct as record,
)

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
INSTANTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999))  # noqa: DTZ001
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "smallint": st.integers(-(1 << 15), (1 << 15) - 1),
    "integer": st.integers(-(1 << 31), (1 << 31) - 1),
    "bigint": st.integers(-(1 << 63), (1 << 63) - 1),
    "real": st.floats(width=32, allow_nan=False),
    "double precision": st.floats(allow_nan=False),
    "text": TEXTS,
    "bytea": st.binary(max_size=8),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": INSTANTS,
    "timestamptz": INSTANTS.map(lambda instant: instant.replace(tzinfo=UTC)),
    "interval": st.integers(-(1 << 62), (1 << 62) - 1),
    "uuid": st.uuids().map(str),
    "jsonb": st.sampled_from(['{"a": [1, 2.5, null]}', '"x"', "null", "[]"]),
}


def numerics(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    bound = 10**precision - 1
    # By digits: arithmetic would round to the context's 28.
    return st.integers(-bound, bound).map(
        lambda whole: Decimal((int(whole < 0), tuple(map(int, str(abs(whole)))), -scale))
    )


@st.composite
def columns(draw: st.DrawFn) -> tuple[SqlType, list[Any]]:
    name = draw(st.sampled_from([*SCALARS, "numeric"]))
    if name == "numeric":
        precision = draw(st.integers(1, 38))
        scale = draw(st.integers(0, precision))
        type_, values = numeric(precision, scale), numerics(precision, scale)
    else:
        type_, values = scalar(name), SCALARS[name]
    nullable = st.none() | values
    if draw(st.booleans()):
        inner = draw(st.integers(1, 3))
        if draw(st.booleans()):  # two dimensions, rectangular
            rows = st.lists(nullable, min_size=inner, max_size=inner)
            return array(array(type_)), draw(st.lists(st.none() | st.lists(rows, max_size=3)))
        return array(type_), draw(st.lists(st.none() | st.lists(nullable, max_size=4)))
    return type_, draw(st.lists(nullable))


@given(columns())
def test_binary_there_and_back(column: tuple[SqlType, list[Any]]) -> None:
    type_, values = column
    stored = pa.array(values, type_.arrow)
    assert from_binary(to_binary(stored, type_), type_).equals(stored)


@given(columns())
def test_text_there_and_back(column: tuple[SqlType, list[Any]]) -> None:
    type_, values = column
    stored = pa.array(values, type_.arrow)
    texts = [None if each is None else each.decode() for each in to_text(stored, type_)]
    assert from_text(texts, type_).equals(stored)


@given(columns(), st.integers(0, 3), st.integers(0, 5))
def test_a_part_of_a_column_is_written_as_the_part_it_is(
    column: tuple[SqlType, list[Any]], start: int, length: int
) -> None:
    type_, values = column
    stored = pa.array(values, type_.arrow)
    for write in (to_text, to_binary):
        whole = write(stored, type_)
        assert write(stored.slice(start, length), type_) == whole[start : start + length]


@given(st.lists(st.none() | INSTANTS))
def test_a_column_of_timestamps_is_written_as_each_of_them(values: list[datetime | None]) -> None:
    for type_, zone in (("timestamp", None), ("timestamptz", UTC)):
        stored = pa.array(values, pa.timestamp("us", zone and "UTC"))
        expected = [
            None if each is None else text.timestamp_to_text(each.replace(tzinfo=zone)).encode()
            for each in values
        ]
        assert to_text(stored, scalar(type_)) == expected


@given(numerics(38, 9))
def test_a_column_of_numerics_is_written_as_each_of_them(value: Decimal) -> None:
    (written,) = to_text(pa.array([value], pa.decimal128(38, 9)), numeric(38, 9))
    assert written == text.numeric_to_text(value).encode()


WRITTEN: list[tuple[str, Any, str, str | None]] = [
    ("boolean", True, "t", "01"),
    ("bigint", -2, "-2", "fffffffffffffffe"),
    ("numeric(10,2)", Decimal("-12345.60"), "-12345.60", "0003 0001 4000 0002 0001 0929 1770"),
    ("numeric(10,2)", Decimal("0.00"), "0.00", "0000 0000 0000 0002"),
    ("numeric(12,8)", Decimal("0.00000001"), "0.00000001", "0001 fffe 0000 0008 0001"),
    ("date", date(2000, 1, 2), "2000-01-02", "00000001"),
    ("time", time(1, 2, 3, 400_000), "01:02:03.4", "00000000ddee9340"),
    ("timestamp", datetime.fromisoformat("2000-01-01T00:00:01"), "2000-01-01 00:00:01", None),
    ("interval", timedelta(days=1), "1 day", "0000000000000000 00000001 00000000"),
    ("interval", timedelta(days=-2, hours=12), "-1 days -12:00:00", None),
    ("interval", timedelta(microseconds=-1), "-00:00:00.000001",
     "ffffffffffffffff 00000000 00000000"),
    ("interval", timedelta(0), "00:00:00", None),
    ("jsonb", '{"a": 1}', '{"a": 1}', "01 7b2261223a20317d"),
    ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
     "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
    ("integer[]", [1, None], "{1,NULL}",
     "00000001 00000001 00000017 00000002 00000001 00000004 00000001 ffffffff"),
    ("integer[]", [], "{}", "00000000 00000000 00000017"),
    ("text[]", ["a b", "", "null", 'q"\\', "{,}"], '{"a b","","null","q\\"\\\\","{,}"}', None),
    ("integer[][]", [[1, 2], [3, 4]], "{{1,2},{3,4}}", None),
]  # fmt: skip


@pytest.mark.parametrize(("type_name", "value", "as_text", "as_hex"), WRITTEN)
def test_forms_are_those_of_postgresql(
    type_name: str, value: Any, as_text: str, as_hex: str | None
) -> None:
    type_ = by_postgres(type_name)
    stored = pa.array([value], type_.arrow)
    assert to_text(stored, type_) == [as_text.encode()]
    if as_hex is not None:
        (written,) = to_binary(stored, type_)
        assert written == bytes.fromhex(as_hex)


def test_records_and_maps() -> None:
    type_ = record(("a", scalar("integer")), ("b", scalar("text")))
    stored = pa.array([{"a": 1, "b": "x,y"}, {"a": None, "b": ""}, None], type_.arrow)
    assert to_text(stored, type_) == [b'(1,"x,y")', b'(,"")', None]
    binary = to_binary(stored, type_)
    assert binary[0] == struct.pack("!iIii", 2, 23, 4, 1) + struct.pack("!Ii", 25, 3) + b"x,y"
    assert binary[2] is None
    mapped = pa.array([[("b", 1), ("a", None)], None], pa.map_(pa.string(), pa.int32()))
    as_json = of_arrow(mapped.type)
    assert as_json.oid == 3802
    assert to_text(mapped, as_json) == [b'{"a": null, "b": 1}', None]
    assert to_binary(mapped, as_json)[0] == b'\x01{"a": null, "b": 1}'


@pytest.mark.parametrize(
    ("type_name", "written", "sqlstate"),
    [
        ("bigint", "0x1G", "22P02"),
        ("double precision", "1e-400", "22003"),
        ("timestamp", "2024-01-01 10", "22007"),
        ("integer", "2147483648", "22003"),
        ("double precision", "1e400", "22003"),
        ("numeric(3,1)", "100", "22003"),
        ("date", "0000-01-01", "22008"),
        ("timestamp", "2026-02-30 00:00:00", "22008"),
        ("uuid", "a0eebc99", "22P02"),
        ("jsonb", "{", "22P02"),
        ("interval", "1 month", "0A000"),
        ("integer[]", "{1", "22P02"),
        ("integer[]", "1}", "22P02"),
        ("boolean", "maybe", "22P02"),
    ],
)
def test_texts_that_are_no_values_are_refused(type_name: str, written: str, sqlstate: str) -> None:
    with pytest.raises(AdapterError) as refused:
        from_text([None, written], by_postgres(type_name))
    assert refused.value.sqlstate == sqlstate


def test_what_arrow_would_refuse_or_round_is_read_as_postgresql_reads_it() -> None:
    assert from_text([" 5 ", "+5"], scalar("bigint")).to_pylist() == [5, 5]
    assert from_text(["1.005"], numeric(5, 2)).to_pylist() == [Decimal("1.01")]
    assert from_text(["-Infinity"], scalar("double precision")).to_pylist() == [float("-inf")]
    assert from_text(["2026-01-02"], scalar("timestamptz")).to_pylist() == [
        datetime(2026, 1, 2, tzinfo=UTC)
    ]


@given(st.sampled_from([*SCALARS, "numeric"]), st.booleans(), st.binary(max_size=40))
def test_bytes_that_are_no_value_are_refused_and_nothing_else(
    name: str, in_array: bool, hostile: bytes
) -> None:
    type_ = numeric(38, 9) if name == "numeric" else scalar(name)
    type_ = array(type_) if in_array else type_
    try:
        from_binary([hostile], type_)
    except AdapterError as refused:
        assert refused.sqlstate[:2] in ("22", "0A")  # noqa: PT017


def test_an_array_cannot_announce_more_items_than_it_has() -> None:
    for sizes in ((1 << 31) - 1,), ((1 << 31) - 1, 0), (1 << 20, 1 << 20):
        hostile = struct.pack("!iiI", len(sizes), 0, 23)
        hostile += b"".join(struct.pack("!ii", size, 1) for size in sizes)
        type_ = array(scalar("integer"))
        try:
            from_binary([hostile], type_ if len(sizes) == 1 else array(type_))
        except AdapterError as refused:
            assert refused.sqlstate == "22P03"  # noqa: PT017


@pytest.mark.parametrize(
    ("oid", "value", "as_hex"),
    [
        (26, "4294967295", "ffffffff"),
        (19, "pg_class", "70675f636c617373"),
        (18, "r", "72"),
        (18, "", "00"),
        (16, "t", "01"),
        (23, "-1", "ffffffff"),
        (22, "1 2", "00000001 00000000 00000015 00000002 00000000 00000002 0001 00000002 0002"),
        (30, "", "00000000 00000000 0000001a"),
        (1028, "{7}", "00000001 00000000 0000001a 00000001 00000001 00000004 00000007"),
        (1003, "{a,NULL}", "00000001 00000001 00000013 00000002 00000001 00000001 61 ffffffff"),
    ],
)
def test_columns_of_the_catalog_in_binary(oid: int, value: str, as_hex: str) -> None:
    assert passed_to_binary([value, None], oid) == [bytes.fromhex(as_hex), None]


def test_other_types_of_others_are_sent_as_text_only() -> None:
    with pytest.raises(AdapterError) as refused:
        passed_to_binary(["(1,2)"], 600)
    assert refused.value.sqlstate == "0A000"


@pytest.mark.parametrize(
    ("oid", "texts"),
    [
        (26, ["0", "4294967295"]),
        (5069, [str(2**40)]),
        (18, ["r"]),
        (19, ["pg_class"]),
        (22, ["1 2", ""]),
        (30, ["25 4294967295"]),
        (1028, ['{"23","25"}', "{}"]),
        (1003, [r'{"a","b \"c\\"}']),
    ],
)
def test_parameters_of_catalog_types_come_back(oid: int, texts: list[str]) -> None:
    for written in texts:
        if passed_name(oid) is None:
            assert oid in (18, 19), "these stand in the text without a type"
        (packed,) = passed_to_binary([written], oid)
        assert packed is not None
        assert passed_from_binary(packed, oid).decode() == written


def test_a_parameter_that_is_cut_off_is_refused() -> None:
    one_name = struct.pack("!iiIii", 1, 0, 19, 1, 1)
    for oid, data in ((26, b"\0\0"), (1028, b"\0\0\0\1"), (1003, one_name + b"\0\0\0\2x")):
        with pytest.raises(AdapterError):
            passed_from_binary(data, oid)
