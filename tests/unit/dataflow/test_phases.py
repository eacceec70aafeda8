"""First steps in phases: what is cut by ranges comes together again; each operator runs once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headwater.collection.key_hash import key_hash
from headwater.collection.run_layout import LAYOUTS, RunLayout
from headwater.compute.dataflow.chain import Chain
from headwater.compute.dataflow.exchange import (
    Received,
    Scatter,
    Sliced,
    cut_by_range,
    put_aside,
    ranges_of,
    slices,
)
from headwater.compute.dataflow.graph import (
    Arranged,
    Dataflow,
    Exchanged,
    Laned,
    Output,
    Read,
    Scanned,
    used_names,
)
from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.dataflow.phases import exchanged, phases
from headwater.compute.hydration import ranges_for
from headwater.compute.ir.node import Union
from headwater.persist.client import open_location
from headwater.persist.decision import collection_of
from headwater.persist.layout import PARQUET
from headwater.persist.spark import writing
from headwater.persist.spark_parts import Reading, cut, place_of
from headwater.testing.random_cases import SIZE, case
from tests.unit.dataflow.lowered_plans import A, dataflow

ROWS = 1_200_000
"""More than a group of rows of Parquet."""


def updates(count: int, names: int) -> pa.Table:
    numbers = np.arange(count)
    return pa.table(
        {
            "k": numbers % names,
            "name": pa.array(numbers % 1_000).cast(pa.string()),
            "__time": np.zeros(count, np.int64),
            "__diff": np.ones(count, np.int64),
        }
    )


# ---- ranges ----------------------------------------------------------------------------------


def test_a_key_is_in_one_range_and_ranges_rise_with_the_hash() -> None:
    table = updates(5_000, 700)
    pieces = dict(cut_by_range(table, ["k"], 7))
    assert sum(piece.num_rows for piece in pieces.values()) == table.num_rows
    keys = [set(piece.column("k").to_pylist()) for piece in pieces.values()]
    assert len(set.union(*keys)) == sum(map(len, keys)) == 700
    hashes = {number: key_hash([piece.column("k")]) for number, piece in pieces.items()}
    assert sorted(hashes) == list(range(7))
    assert all(hashes[n].max() < hashes[n + 1].min() for n in range(6))


def test_the_ends_of_hashes_are_in_the_first_and_the_last_range() -> None:
    ends = np.array([np.iinfo(np.int64).min, -1, 0, np.iinfo(np.int64).max])
    assert ranges_of(ends, 4).tolist() == [0, 1, 2, 3]
    assert ranges_of(ends, 256).tolist() == [0, 127, 128, 255]


def test_without_key_columns_all_rows_are_in_the_first_range() -> None:
    assert [(n, piece.num_rows) for n, piece in cut_by_range(updates(9, 3), [], 4)] == [(0, 9)]
    assert not list(cut_by_range(updates(0, 3), ["k"], 4))


def test_how_many_ranges_there_are_follows_the_rows() -> None:
    assert ranges_for(2_000, 1_000, 2) is None
    some = ranges_for(2_001, 1_000, 2)
    assert some is not None
    assert (some.count, some.rows) == (3, 667)
    most = ranges_for(1_000_000, 1_000, 2)
    assert most is not None
    assert most.count == 256
    assert most.count * most.rows >= 1_000_000


@pytest.mark.parametrize("key", [(), ("k",)], ids=["parquet", "run"])
def test_scattered_updates_come_together_again(tmp_path: Path, key: tuple[str, ...]) -> None:
    rows = ROWS if not key else 5_000
    schema = pa.schema([("k", pa.int64()), ("name", pa.string())])
    with open_location(tmp_path / "data", layouts=LAYOUTS) as client:
        layout = RunLayout.name if key else PARQUET.name
        write, _ = client.create_or_load("t", schema, key=key, layout=layout)
        table = updates(rows, 1_000)
        write.compare_and_append(table, 0, 1).result()
        core = client.core
        place, collection = place_of(core), collection_of(core.state, write.id)
        assert place is not None
        wanted, _ = cut(collection, 0, 1, hydrating=True)
        pieces = slices(wanted, rows // 3)
        assert len(pieces) >= 3
        reading = Reading.of(place, collection)
        with core.step() as step:
            into = writing(core, step)
            sliced = [Sliced(reading, wanted, (piece,)) for piece in pieces]
            assert sum(one.table().num_rows for one in sliced) == rows
            put = []
            for number, one in enumerate(sliced):
                parts = list(cut_by_range(one.table(), ("k",), 4))
                put += put_aside(into, f"a{number}", parts)
            assert Scatter(sliced[0], ("k",), 4, into)("b0")
            found = [
                Received(place, reading.schema, tuple(a.where for a in put if a.range == n)).table()
                for n in range(4)
            ]
    assert sum(one.num_rows for one in found) == rows
    counts = Counter(k for one in found for k in one.column("k").unique().to_pylist())
    assert set(counts.values()) == {1}, "a key is in one range"
    together = pa.concat_tables(found).group_by("k").aggregate([("__diff", "sum")])
    assert set(together.column("__diff_sum").to_pylist()) == {rows // 1_000}


# ---- phases ----------------------------------------------------------------------------------

FLOWS = [
    (batch, number, flow)
    for batch in range(6)
    for number in range(0, SIZE, 3)
    if not isinstance(flow := lowered(case(batch, number).plan), NoRule)
]


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "older"])
def test_every_operator_is_in_one_phase_and_reads_what_was_put_aside_before(fresh: bool) -> None:
    deepest = 0
    for batch, number, flow in FLOWS:
        shared = {a.name for a in flow.arrangements if isinstance(a.of, Scanned)}
        found = phases(flow, shared if fresh else ())
        assert found is not None, f"batch {batch}, case {number}"
        deepest = max(deepest, len(found))
        marks = Output | Exchanged | Arranged | Read
        flows = [phase.flow for phase in found]
        once = Counter(
            type(o).__name__ for f in flows if f for o in f.operators if not isinstance(o, marks)
        )
        meant = Counter(type(o).__name__ for o in flow.operators if not isinstance(o, marks))
        assert once == meant, f"batch {batch}, case {number}"
        _check_exchanges(flows)
        for phase in found:
            if phase.flow is not None:
                assert Chain((phase.flow,)).depth
            private = {a.name for a in flow.arrangements if isinstance(a.of, Laned)}
            probed = {n for o in phase.flow.operators for n in used_names(o)} if phase.flow else ()
            written = phase.arranged & set(probed) & private
            before = [f for f in flows[: found.index(phase)] if f is not None]
            for name in written:
                assert any(name in used_names(o) for f in before for o in f.operators)
    assert deepest > 3, "some are deep"


def test_a_union_of_a_collection_with_itself_has_its_edge_twice() -> None:
    flow = dataflow(Union((A, A), A.columns))
    found = phases(flow, ())
    assert found is not None
    kept = [edge for phase in found if phase.flow is not None for edge in phase.flow.edges]
    assert len(kept) == len(flow.edges) == 2
    assert kept[0] == kept[1]


def _check_exchanges(flows: list[Dataflow | None]) -> None:
    put: set[str] = set()
    for flow in flows:
        operators = flow.operators if flow is not None else ()
        for operator in operators:
            if isinstance(operator, Read) and operator.of.relation.startswith("\0"):
                assert operator.of.relation in put, "it was put aside before"
        put |= {exchanged(o.number) for o in operators if isinstance(o, Exchanged)}
