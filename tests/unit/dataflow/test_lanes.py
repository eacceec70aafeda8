"""Lanes packed into one stream come out as they went in; slots are a function of the lanes."""

from __future__ import annotations

import struct
from decimal import Decimal
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.compute.dataflow.edge import Lane
from headwater.compute.dataflow.lanes import (
    FAILED,
    LANE,
    NOTE,
    Stream,
    contents,
    failed_edge,
    failed_lane,
    payloads,
    read_failure,
    split_failures,
)
from headwater.compute.dataflow.operator import update_schema
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME
from tests.seeds import seeds

TYPES = (
    "bigint",
    "string",
    "double",
    "decimal(12,2)",
    "array<struct<a:int,b:map<string,double>>>",
    "timestamp",
    "void",
    "binary",
)


def lane(*types: str) -> Lane:
    return Lane(tuple(Column(f"c_{n}", type_, True) for n, type_ in enumerate(types)))


def _value(random: Random, type_: pa.DataType) -> Any:
    t = pa.types
    if t.is_null(type_) or random.random() < 0.2:
        return None
    if t.is_list(type_):
        return [_value(random, type_.value_type) for _ in range(random.randrange(3))]
    if t.is_struct(type_):
        return {f.name: _value(random, f.type) for f in type_}
    if t.is_map(type_):
        return [(f"k{n}", _value(random, type_.item_type)) for n in range(random.randrange(3))]
    if t.is_floating(type_):
        return random.choice([float("nan"), -0.0, 0.0, 1.5])
    if t.is_decimal(type_):
        return Decimal(random.randrange(-999, 999)).scaleb(-2)
    if t.is_string(type_):
        return random.choice(["", "a", "ä'\\"])
    if t.is_binary(type_):
        return random.choice([b"", b"\x00\xff"])
    return random.randrange(-5, 5)


def updates(random: Random, of: Lane, rows: int) -> pa.Table:
    schema = update_schema(of.columns)
    values = [[_value(random, f.type) for _ in range(rows)] for f in schema]
    values[-2:] = [[random.randrange(9) for _ in range(rows)] for _ in range(2)]
    return pa.table([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema)


def _bits(table: pa.Table) -> list[Any]:
    def bits(value: Any) -> Any:
        if isinstance(value, float):
            return struct.pack("d", value)
        if isinstance(value, dict):
            return {k: bits(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [bits(v) for v in value]
        return value

    return [bits(row) for row in table.to_pylist()]


@pytest.mark.parametrize("seed", seeds(15, 150))
def test_lanes_come_out_as_they_went_in(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    lanes = {n: lane(*random.choices(TYPES, k=random.randrange(7))) for n in range(4)}
    stream = Stream(lanes)
    sent = {n: updates(random, of, random.randrange(20)) for n, of in lanes.items()}
    batches = list(stream.batches(sent))
    for batch in batches:
        assert batch.schema == stream.arrow_schema()
    pieces = [piece for b in batches for piece in pa.Table.from_batches([b]).to_batches(5)]
    found = stream.unpack(pieces)
    assert set(found) == {n for n, table in sent.items() if table.num_rows}
    for n, table in found.items():
        assert table.schema == sent[n].schema
        assert _bits(table) == _bits(sent[n])


def test_rows_of_one_lane_keep_their_order_among_those_of_another() -> None:
    random = Random(11)
    stream = Stream({3: lane("bigint"), 5: lane("bigint", "bigint")})
    sent: dict[int, list[int]] = {3: [], 5: []}
    rows = []
    for n in range(300):  # a sort that is not stable is one for few rows
        to = random.choice([3, 5])
        sent[to].append(n)
        row = {"c_0": [n], "c_1": [-n], TIME: [n], DIFF: [1]}
        rows.append(stream.pack(to, pa.table(row)))
    found = stream.unpack(pa.concat_tables(rows).to_batches())
    assert {to: table.column("c_0").to_pylist() for to, table in found.items()} == sent
    assert found[5].column("c_1").to_pylist() == [-n for n in sent[5]]


def test_a_stream_is_as_wide_as_its_widest_lane_of_each_type() -> None:
    stream = Stream({0: lane("bigint", "string", "bigint"), 1: lane("string", "string", "void")})
    assert [(slot.name, slot.type.spark) for slot in stream.slots] == [
        ("s_0_0", "bigint"),
        ("s_0_1", "bigint"),
        ("s_1_0", "binary"),
        ("s_2_0", "string"),
        ("s_2_1", "string"),
    ]
    assert stream.places(0) == ("s_0_0", "s_2_0", "s_0_1")
    assert stream.places(1) == ("s_2_0", "s_2_1", None)
    assert stream.places(NOTE) == stream.places(FAILED) == ("s_1_0",)
    assert stream.spark_schema() == (
        f"{LANE} int NOT NULL, {TIME} bigint NOT NULL, {DIFF} bigint NOT NULL, "
        "s_0_0 bigint, s_0_1 bigint, s_1_0 binary, s_2_0 string, s_2_1 string"
    )


def test_types_that_are_spelled_differently_share_a_slot() -> None:
    stream = Stream({0: lane("long", "struct<a:int>"), 1: lane("bigint", "struct<a: integer>")})
    assert stream.places(0) == stream.places(1)


def test_equal_lanes_make_equal_streams_in_whatever_order() -> None:
    a, b = lane("bigint", "double"), lane("string")
    assert Stream({1: a, 2: b}) == Stream({2: b, 1: a})
    assert Stream({1: a, 2: b}).spark_schema() == Stream({7: b, 9: a}).spark_schema()


def test_rows_without_columns_are_rows() -> None:
    stream = Stream({0: Lane(())})
    rows = pa.table({TIME: [1, 2], DIFF: [1, 1]})
    assert stream.unpack(stream.batches({0: rows}))[0].to_pylist() == rows.to_pylist()


def test_nothing_packed_is_nothing() -> None:
    stream = Stream({0: lane("bigint")})
    assert list(stream.batches({0: stream.empty(0)})) == []
    assert stream.unpack([]) == {}


def test_payloads_pass() -> None:
    stream = Stream({})
    found = stream.unpack(stream.batches({NOTE: payloads([b"a", b""]), FAILED: payloads([b"f"])}))
    assert contents(found[NOTE]) == [b"a", b""]
    assert contents(found[FAILED]) == [b"f"]
    assert contents(found.get(0)) == []


def test_rows_on_which_an_edge_failed_become_payloads() -> None:
    source = lane("bigint", "string")
    stream = Stream({0: source, failed_lane(4): source})
    assert failed_edge(failed_lane(4)) == 4
    assert failed_edge(0) is failed_edge(NOTE) is failed_edge(FAILED) is None
    rows = updates(Random(1), source, 3)
    kept, failures = split_failures(stream.unpack(stream.batches({0: rows, failed_lane(4): rows})))
    assert set(kept) == {0}
    (failure,) = map(read_failure, failures)
    assert failure.edge == 4
    assert failure.table().equals(rows)
    assert msgspec.msgpack.decode(failures[0])["edge"] == 4
