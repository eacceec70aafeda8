"""Which datasets there are and in which order, from queries that only say what they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.declared.auto_cdc import Changes
from headwater.compute.declared.elements import Flow, MistakeInProject, Output, OutputKind, Where
from headwater.compute.declared.guarded import stream_of
from headwater.compute.declared.queries import Query
from headwater.compute.ir.expression import Column, Field
from headwater.compute.ir.node import Join, Project, Scan, reference
from headwater.compute.ir.plan import VERSION, OutputColumn, Plan
from headwater.pipelines.graph import Dataset, Resolution, declared, with_changes
from headwater.pipelines.names import Names

SCHEMA = pa.schema([pa.field("k", pa.int64())])


class Reads:
    """Compiles flows whose text is the names that they read, in between spaces."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.asked: list[str] = []

    def add(self, name: str, schema: pa.Schema) -> None:
        assert schema is not None
        self.known |= {name, stream_of(name)}

    def define(self, name: str, frame: Any) -> None:
        self.known |= {name, stream_of(name)}

    def frame(self, flow: Flow, provide: Callable[[str], None]) -> Any:
        assert isinstance(flow.query, str)
        for name in flow.query.split():
            if name not in self.known:
                self.asked.append(name)
                provide(name)
            assert name in self.known
        return flow.query.split()

    def query(self, flow: Flow, frame: Any) -> Query:
        scans = [
            Scan(name, (Field("k", Column(f"k_{number}", "bigint", True)),))
            for number, name in enumerate(frame)
        ]
        root: Any = scans[0]
        for scan in scans[1:]:
            root = Join(root, scan, "inner")
        root = Project(root, (reference(root.columns[0]),))
        plan = Plan(VERSION, "4", {}, root, (OutputColumn("k", "k_0"),))
        return Query(plan, SCHEMA, {})

    def declared_schema(self, given: Any, where: Where) -> pa.Schema:
        return given


def output(name: str, kind: OutputKind = "materialized view", **more: Any) -> Output:
    return Output(name, kind, Where("a.py", 1), **more)


def flow(name: str, query: str, target: str = "") -> Flow:
    return Flow(name, target or name, query, Where("a.py", 2))


def resolved(outputs: list[Output], flows: list[Flow]) -> tuple[Dataset, ...]:
    names = Names()
    relations = {"table_there": SCHEMA}
    return Resolution(
        declared(outputs, flows, names), Reads(), relations.get, list(relations), names
    ).datasets()


def test_each_comes_after_what_it_reads() -> None:
    outputs = [output("c"), output("B"), output("t", "temporary view"), output("a")]
    flows = [flow("c", "t b"), flow("B", "a"), flow("t", "a"), flow("a", "table_there")]
    found = resolved(outputs, flows)
    assert [each.name for each in found] == ["a", "b", "c"]
    assert [each.reads for each in found] == [("table_there",), ("a",), ("t", "b")]


def test_streams_are_read_as_such() -> None:
    outputs = [output("s", "streaming table"), output("u", "streaming table")]
    flows = [
        flow("one", "__stream__table_there", "s"),
        flow("two", "__stream__u table_there", "s"),
        flow("u", "__stream__table_there"),
    ]
    found = {each.name: each for each in resolved(outputs, flows)}
    assert list(found) == ["u", "s"]
    assert found["s"].reads == ("table_there", "u")
    assert found["s"].follows == ("table_there", "u")
    assert [each.name for each in found["s"].flows] == ["one", "two"]


MISTAKES: list[tuple[list[Output], list[Flow], str]] = [
    ([output("a"), output("b")], [flow("a", "b"), flow("b", "a")], "in a circle: a → b → a"),
    ([output("a")], [flow("a", "a")], "in a circle: a → a"),
    ([output("a")], [flow("a", "table_their")], "perhaps 'table_there'"),
    ([output("a"), output("A")], [flow("a", "table_there")], "'a' is defined twice, first in a.py"),
    ([output("a")], [flow("a", "x"), flow("f", "x", "b")], "into 'b', which nothing defines"),
    ([output("a")], [flow("a", "x"), flow("f", "x", "a")], "no other flow can go into it"),
    ([output("s", "streaming table")], [], "nothing flows into streaming table 's'"),
    (
        [output("s", "streaming table")],
        [flow("f", "x", "s"), flow("f", "x", "s")],
        "flow 'f' into 's' is defined twice",
    ),
    ([output("other.a")], [flow("other.a", "x")], "in another database"),
    (
        [output("k", "sink"), output("a")],
        [flow("k", "__stream__table_there"), flow("a", "k")],
        "is a sink, which cannot be read",
    ),
    (
        [output("a", schema=pa.schema([("k", pa.string())]))],
        [flow("a", "table_there")],
        "is declared with (k string), but its query has (k bigint)",
    ),
    (
        [output("s", "streaming table", schema=pa.schema([("x", pa.int64())]))],
        [flow("s", "__stream__table_there")],
        "flow 's' brings k bigint, and 's' has no such column",
    ),
]


@pytest.mark.parametrize(("outputs", "flows", "told"), MISTAKES)
def test_what_does_not_fit_together(outputs: list[Output], flows: list[Flow], told: str) -> None:
    with pytest.raises(MistakeInProject) as raised:
        resolved(outputs, flows)
    assert told in str(raised.value)
    assert str(raised.value).startswith("a.py, line ")


def changes(target: str, source: str) -> Changes:
    return Changes(target, target, source, ("k",), "n", Where("a.py", 3))


def test_changes_are_kept_whole_and_their_target_is_a_view_of_them() -> None:
    outputs = [output("s", "streaming table"), output("t", "streaming table", comment="c")]
    made, flows = with_changes(outputs, [], [changes("t", "sales.s")], None, Names(None, "sales"))
    assert [(each.name, each.kind) for each in made] == [
        ("s", "streaming table"),
        ("t", "materialized view"),
    ]
    assert made[1].comment == "c"
    assert [(each.name, each.target) for each in flows] == [("t", "t")]
    # What is no streaming table may forget: it is taken into one.
    made, flows = with_changes(outputs[1:], [], [changes("t", "events")], None, Names())
    assert [(each.name, each.kind) for each in made] == [
        ("t", "materialized view"),
        ("t_changes", "streaming table"),
    ]
    assert [each.target for each in flows] == ["t_changes", "t"]


@pytest.mark.parametrize(
    ("outputs", "flows", "found", "told"),
    [
        ([output("t")], [], [changes("t", "s")], "which is no streaming table"),
        ([], [], [changes("t", "s")], "dp.create_streaming_table('t')"),
        (
            [output("t", "streaming table")],
            [flow("f", "x", "t")],
            [changes("t", "s")],
            "another flow goes into 't'",
        ),
        (
            [output("t", "streaming table")],
            [],
            [changes("t", "s"), changes("t", "u")],
            "another flow goes into 't'",
        ),
        (
            [output("t", "streaming table"), output("t_changes")],
            [],
            [changes("t", "s")],
            "'t_changes' is taken",
        ),
    ],
)
def test_changes_that_do_not_fit(
    outputs: list[Output], flows: list[Flow], found: list[Changes], told: str
) -> None:
    with pytest.raises(MistakeInProject) as raised:
        with_changes(outputs, flows, found, None, Names())
    assert told in str(raised.value)
