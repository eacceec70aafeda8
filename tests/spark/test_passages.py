"""Passages: lanes survive the JVM bit for bit, and edges mean what their plans mean.

The edges are plans that the front end made of SQL, and some made by hand where it would simplify
them away. What they must yield is what ``render.execute`` yields for the same plan and rows.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.compute.catalyst import render
from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.dataflow import passage
from headwater.compute.dataflow.edge import LANE, Lane, lane_scan
from headwater.compute.dataflow.lanes import NOTE, Stream, contents, payloads
from headwater.compute.dataflow.passage import (
    NumberedEdge,
    passage_sql,
    passage_stream,
    why_not_linear,
)
from headwater.compute.ir.expression import Column, Expression, Named
from headwater.compute.ir.node import Expand, Filter, Generate, Node, Project, Scan
from headwater.compute.ir.plan import VERSION, OutputColumn, Plan
from headwater.compute.session import MEANING
from headwater.persist.consolidate import DIFF, TIME
from tests.spark import passage_rows
from tests.spark.passage_rows import XS, A, B, bits, columns, expression, ran, rows_of, with_times

pytestmark = pytest.mark.spark

session = passage_rows.session


# ---- every type survives ---------------------------------------------------------------------

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - it has no zone
ODD_NAN = struct.unpack("d", struct.pack("Q", 0x7FF8_0000_0000_1234))[0]
VALUES: Mapping[str, Sequence[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "smallint": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "float": [float("nan"), -0.0, 0.0, float("-inf"), 1.5],
    "double": [float("nan"), ODD_NAN, -0.0, 0.0, float("inf"), 5e-324],
    "decimal(9,2)": [Decimal("-9999999.99"), Decimal("0.01")],
    "decimal(18,0)": [Decimal(10**18 - 1), Decimal(-(10**18) + 1)],
    "decimal(38,9)": [Decimal("12345678901234567890123456789.123456789"), Decimal(0)],
    "decimal(38,38)": [Decimal("0." + "9" * 38)],
    "string": ["", "a", "ä€😀", 'it\'s \\ "quoted"', "a\x00b"],
    "binary": [b"", b"\x00\xff", bytes(range(256))],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), date(1582, 10, 10)],
    "time(6)": [time(0), time(23, 59, 59, 999999)],
    "timestamp_ntz": [
        EPOCH.replace(year=1),
        EPOCH - timedelta(microseconds=1),
        EPOCH.replace(year=9999, month=12, day=31, hour=23, microsecond=999999),
    ],
    "timestamp": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1582, 10, 10, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    "interval day to second": [timedelta(days=-1, microseconds=1), timedelta(days=100000)],
    "void": [None],
    "array<int>": [[], [1, None, 3], None],
    "array<array<string>>": [[["a", None], None, []]],
    "array<double>": [[-0.0, float("nan"), None]],
    "map<string,double>": [[("a", -0.0), ("b", None)], []],
    "map<int,array<decimal(12,2)>>": [[(1, [Decimal("1.10"), None])]],
    "struct<a:int,`b c`:struct<d:timestamp,e:binary>>": [
        {"a": None, "b c": {"d": datetime(1, 1, 1, tzinfo=UTC), "e": b"x"}},
        {"a": 1, "b c": None},
    ],
    "array<struct<t:timestamp_ntz,i:interval day to second,m:map<date,boolean>>>": [
        [
            {"t": EPOCH, "i": timedelta(1), "m": [(date(1, 1, 1), None)]},
            None,
        ]
    ],
}


def test_every_type_survives_the_jvm_bit_for_bit(session: Any) -> None:
    types = {f"c_{n}": type_ for n, type_ in enumerate(VALUES)}
    lane = Lane(columns(types))
    height = max(map(len, VALUES.values())) + 1
    arrays = [
        pa.array([*VALUES[c.type], *[None] * (height - len(VALUES[c.type]))], c.sql_type.arrow)
        for c in lane.columns
    ]
    sent = with_times(pa.table(arrays, names=list(types)))
    # One edge that computes, so that values pass through a struct, a lambda and a TryEval as well.
    everything = [Named(c.name, expression(c.name, c.type, c.name)) for c in lane.columns]
    twice = expression("explode(array(0, 1))", "array<struct<col:int>>")
    node: Node = Generate(lane_scan(lane.columns), twice, columns({"n_1": "int"}))
    node = Project(Filter(node, expression("(n_1 = 1)", "boolean", "n_1")), tuple(everything))
    edges = [NumberedEdge(0, 0, node, 1)]
    before = Stream({0: lane})
    after = passage_stream(edges, {0: lane, 1: lane}, passed=[0])
    assert to_arrow_schema(_schema(session, before), timezone="UTC") == before.arrow_schema()

    def leaf(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from before.batches({0: sent, NOTE: payloads([b"\x00note"])})

    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from after.batches(after.unpack(batches))

    frame = session.range(0, 1, 1, 1).mapInArrow(leaf, before.spark_schema())
    frame = frame.selectExpr(*passage_sql(edges, before, after, [0]))
    found = after.unpack(frame.mapInArrow(seen, after.spark_schema()).toArrow().to_batches())
    assert set(found) == {0, 1, NOTE}
    assert contents(found[NOTE]) == [b"\x00note"]
    for number in (0, 1):
        assert found[number].schema.types == sent.schema.types
        for name in sent.column_names:
            want, have = sent.column(name).to_pylist(), found[number].column(name).to_pylist()
            assert bits(have) == bits(want), (number, name, types.get(name))


def _schema(session: Any, stream: Stream) -> Any:
    return session.createDataFrame([], stream.spark_schema()).schema


# ---- edges mean what plans mean --------------------------------------------------------------

TABLE = pa.schema(
    [
        pa.field("a", pa.int32()),
        pa.field("b", pa.int32()),
        pa.field("c", pa.int64()),
        pa.field("d", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("dt", pa.date32()),
        pa.field("p", pa.decimal128(12, 2)),
        pa.field("xs", pa.list_(pa.field("element", pa.int32()))),
        pa.field("m", pa.map_(pa.string(), pa.int32())),
        pa.field("o", pa.struct([("x", pa.int32()), ("y_1", pa.string())])),
        pa.field(
            "os",
            pa.list_(pa.field("element", pa.struct([("x", pa.int32()), ("y_1", pa.string())]))),
        ),
        pa.field("i", pa.duration("us")),
    ]
)

QUERIES = r"""
SELECT a, s FROM t WHERE a > b
SELECT a + 1 AS x, upper(s) AS u, concat(s, 'a_1', '\'b_1', "c_1") AS v FROM t WHERE s LIKE 'a%'
SELECT s FROM t WHERE s = 'a_1' OR NOT s <=> 'b'
SELECT a IS NULL AS n, coalesce(a, b, 0) AS z, nullif(a, b) AS y, nvl(s, 'x') AS w FROM t
SELECT a FROM t WHERE a BETWEEN -1 AND b AND nullif(a + b, 1) BETWEEN 0 AND 5
SELECT CASE WHEN a > 0 THEN 'p' WHEN a < 0 THEN 'n' END AS k, CASE a WHEN 1 THEN b END AS w FROM t
SELECT d * 2 AS d2, -d AS n, d / 3 AS q, sqrt(abs(d)) AS r FROM t
SELECT p + 1.5 AS p1, p * p AS pp, CAST(p AS int) AS pi, round(p, 1) AS pr FROM t
SELECT year(ts) AS y, date_trunc('hour', ts) AS h, ts + INTERVAL '1' DAY AS n, ts - ts AS z FROM t
SELECT dt + 1 AS n, datediff(dt, DATE'2020-01-01') AS df, extract(MONTH FROM dt) AS mo FROM t
SELECT i, i * 2 AS i2, ts + i AS tsi, INTERVAL '3' HOUR AS h FROM t
SELECT o.x AS ox, o.y_1 AS oy, named_struct('a_1', a, 'b', s) AS n, o FROM t
SELECT to_json(o) AS j, o IS NULL AS z, from_json(s, 'a_1 int, b int') AS f FROM t
SELECT get_json_object('{"a_1": 1}', '$.a_1') AS g, from_json('{"x":1}', 'x int').x AS j FROM t
SELECT xs[0] AS f, size(xs) AS n, array_contains(xs, 1) AS k FROM t WHERE size(xs) > 0
SELECT element_at(m, 'k') AS k, map_keys(m) AS ks, cardinality(m) AS n FROM t WHERE map_contains_key(m, 'k')
SELECT transform(xs, x -> x + a) AS t1, filter(xs, (x, n) -> x > n) AS t2 FROM t
SELECT aggregate(xs, 0, (acc, x) -> acc + coalesce(x, 0), acc -> acc * 2) AS g FROM t
SELECT transform(xs, x -> size(filter(xs, y -> y > x))) AS nested, exists(xs, x -> x = b) AS ex FROM t
SELECT map_filter(m, (k, v) -> v > a) AS mf, transform_values(m, (k, v) -> v + 1) AS mv FROM t
SELECT array_sort(xs, (l, r) -> CASE WHEN l < r THEN 1 WHEN l > r THEN -1 ELSE 0 END) AS so FROM t
SELECT a, x FROM t LATERAL VIEW explode(xs) e AS x
SELECT a, x + a AS y FROM t LATERAL VIEW explode(xs) e AS x WHERE x > 0 AND b IS NOT NULL
SELECT a, x FROM t LATERAL VIEW OUTER explode(xs) e AS x
SELECT a, posexplode(xs) FROM t
SELECT a, posexplode_outer(xs) AS (p, x) FROM t
SELECT a, k, v FROM t LATERAL VIEW explode(m) e AS k, v
SELECT a, k, v FROM t LATERAL VIEW OUTER explode(m) e AS k, v
SELECT a, posexplode(m) AS (p, k, v) FROM t
SELECT a, posexplode_outer(m) AS (p, k, v) FROM t
SELECT a, inline(os) FROM t
SELECT a, inline_outer(os) FROM t
SELECT b, inline(array(o, o)) FROM t
SELECT c, stack(2, a, 'a,(', b, 'b') AS (v, n) FROM t
SELECT c, stack(3, a, b, a, b, a) AS (v, w) FROM t
SELECT a, x, y FROM t LATERAL VIEW explode(xs) e AS x LATERAL VIEW OUTER explode(sequence(1, x)) f AS y
SELECT x.x AS xx, count FROM t LATERAL VIEW explode(os) e AS x LATERAL VIEW explode(array(1, 2)) AS count
SELECT window.start AS ws, window.end AS we, a FROM (SELECT window(ts, '1 hour'), a FROM t)
SELECT window.start AS ws, a FROM (SELECT window(ts, '10 minutes', '5 minutes'), a FROM t)
SELECT NULL AS nothing, a FROM t
SELECT 1 AS one FROM t
SELECT try_divide(a, b) AS q, try_cast(s AS int) AS k, try_add(a, 2147483647) AS ta FROM t
SELECT s, n, v FROM t UNPIVOT INCLUDE NULLS (v FOR n IN (a, b))
SELECT l.a FROM t l JOIN t r ON l.a = r.b
"""  # noqa: E501 - a query a line


def random_rows(random: Random, count: int) -> pa.Table:
    def maybe(value: Callable[[], Any]) -> Any:
        return None if random.random() < 0.15 else value()

    def small() -> int:
        return random.randrange(-3, 6)

    def record() -> Any:
        return maybe(lambda: {"x": maybe(small), "y_1": maybe(lambda: random.choice("ab"))})

    def many(value: Callable[[], Any]) -> list[Any]:
        return [value() for _ in range(random.randrange(4))]

    def row() -> list[Any]:
        instant = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(
            minutes=random.randrange(-9999, 9999)
        )
        return [
            maybe(small),
            maybe(small),
            maybe(small),
            maybe(lambda: random.choice([float("nan"), -0.0, 0.0, 1.5, float("inf")])),
            maybe(lambda: random.choice(["", "a", "abc", "a_1", "b", "7", "it's"])),
            maybe(lambda: instant),
            maybe(instant.date),
            maybe(lambda: Decimal(random.randrange(-999, 999)).scaleb(-2)),
            maybe(lambda: many(lambda: maybe(small))),
            maybe(lambda: [(k, maybe(small)) for k in random.sample(["k", "l", "m"], 2)]),
            record(),
            maybe(lambda: many(record)),
            maybe(lambda: timedelta(seconds=random.randrange(-99999, 99999))),
        ]

    made = [row() for _ in range(count)]
    return pa.Table.from_arrays(
        [pa.array([r[n] for r in made], f.type) for n, f in enumerate(TABLE)], schema=TABLE
    )


def over_lane(node: Node, scan: Scan, source: Mapping[str, Column]) -> Node:
    """Return the plan over a lane instead of the table: one that has all its columns."""
    if isinstance(node, Scan):
        wanted = tuple(
            Named(
                f.column.name, expression(source[f.field].name, f.column.type, source[f.field].name)
            )
            for f in node.fields
        )
        return Project(scan, wanted)
    match node:
        case Filter():
            return Filter(over_lane(node.input, scan, source), node.condition)
        case Project():
            return Project(over_lane(node.input, scan, source), node.outputs)
        case Generate():
            below = over_lane(node.input, scan, source)
            return Generate(below, node.generator, node.outputs, node.outer)
        case Expand():
            below = over_lane(node.input, scan, source)
            return Expand(below, node.projections, node.columns)
        case _:
            raise AssertionError(f"{node} is not linear")


def is_chain(node: Node) -> bool:
    while not isinstance(node, Scan):
        if why_not_linear(node) is not None:
            return False
        (node,) = node.inputs
    return True


def counted(table: pa.Table) -> Counter[Any]:
    return Counter(rows_of(table.drop_columns([TIME, DIFF])))


def test_edges_yield_what_their_plans_yield(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = 607
    print(f"seed {seed}")
    data = random_rows(Random(seed), 60)
    workspace = Workspace(session, {"t": TABLE})
    plans = {text: workspace.compile_sql(text) for text in QUERIES.strip().splitlines()}
    chains = {text: plan for text, plan in plans.items() if is_chain(plan.shown())}
    assert set(plans) - set(chains) == {QUERIES.strip().splitlines()[-1]}  # the join
    scanned = workspace.compile_sql("SELECT * FROM t")
    source = {o.label: c for o, c in zip(scanned.outputs, scanned.columns, strict=True)}
    lane = Lane(tuple(source.values()))
    edges = [
        NumberedEdge(n, 0, over_lane(plan.shown(), lane_scan(lane.columns), source), n + 1)
        for n, plan in enumerate(chains.values())
    ]
    rows = with_times(data.rename_columns([c.name for c in lane.columns]))
    replaced = ran(session, edges, lane, rows)
    assert min(replaced) > 0, "nothing failed"
    monkeypatch.setattr(passage, "BIND_FROM", 0)
    bound = ran(session, edges, lane, rows)
    frame = session.createDataFrame(data, session.createDataFrame([], _ddl(lane, source)).schema)
    kinds = Counter[str]()
    for edge, (text, plan) in zip(edges, chains.items(), strict=True):
        want = render.execute(session, plan, {"t": frame}).toArrow()
        for found in (replaced, bound):
            have = found.get(edge.target, Stream({0: Lane(edge.node.columns)}).empty(0))
            assert counted(have) == Counter(rows_of(want)), text
        kinds.update(type(step).__name__ for step in edge.edge.chain())
    assert {"Filter", "Project", "Generate", "Expand"} <= set(kinds)


def _ddl(lane: Lane, source: Mapping[str, Column]) -> str:
    return ", ".join(f"{label} {c.type}" for label, c in source.items())


def handmade() -> list[Node]:
    scan = lane_scan((A, B, XS))
    long = " + ".join(["a_1", "coalesce(b_1, 1)"] * 15)
    squared = " + ".join(["x_1 * x_1"] * 12)
    grown: Node = Project(scan, (Named("x_1", expression(f"({long})", "int", "a_1", "b_1")),))
    for n in range(2, 5):  # replaced only, it would have 24 ** 4 times the length
        text = squared.replace("x_1", f"x_{n - 1}")
        limited = expression(f"(({text}) % 7)", "int", f"x_{n - 1}")
        grown = Project(grown, (Named(f"x_{n}", limited),))
    by_sets = Expand(
        scan,
        (
            (expression("a_1", "int", "a_1"), expression("b_1", "int", "b_1"), _number(0)),
            (expression("a_1", "int", "a_1"), expression("CAST(NULL AS INT)", "int"), _number(1)),
            (expression("CAST(NULL AS INT)", "int"), expression("b_1", "int", "b_1"), _number(2)),
        ),
        columns({"a_2": "int", "b_2": "int", "g_1": "int"}),
    )
    exploded = expression("explode(xs_1)", "array<struct<col:int>>", "xs_1")
    return [
        grown,
        by_sets,
        Filter(
            Generate(
                Expand(
                    scan,
                    (
                        (expression("xs_1", XS.type, "xs_1"),),
                        (expression("array(1, CAST(NULL AS INT))", XS.type),),
                    ),
                    columns({"xs_2": XS.type}),
                ),
                expression("posexplode(xs_2)", "array<struct<pos:int,col:int>>", "xs_2"),
                columns({"pos_1": "int", "x_1": "int"}),
                True,
            ),
            expression("((x_1 > 0) OR (pos_1 IS NULL))", "boolean", "x_1", "pos_1"),
        ),
        Project(Generate(scan, exploded, columns({"x_1": "int"})), ()),
        Project(Filter(scan, expression("true", "boolean")), ()),
    ]


def _number(value: int) -> Expression:
    return Expression(str(value), "int", False)


def test_edges_made_by_hand_yield_what_their_plans_yield(session: Any) -> None:
    data = (
        random_rows(Random(3), 40).select(["a", "b", "xs"]).rename_columns(["a_1", "b_1", "xs_1"])
    )
    nodes = handmade()
    edges = [NumberedEdge(n, 0, node, n + 1) for n, node in enumerate(nodes)]
    found = ran(session, edges, Lane((A, B, XS)), with_times(data))
    frame = session.createDataFrame(data, "a_1 int, b_1 int, xs_1 array<int>")
    for edge in edges:
        outputs = tuple(OutputColumn(c.name, c.name) for c in edge.node.columns)
        plan = Plan(VERSION, session.version, dict(MEANING), edge.node, outputs)
        want = render.execute(session, plan, {LANE: frame}).toArrow()
        have = found[edge.target]
        assert have.num_rows == want.num_rows
        if outputs:
            assert counted(have) == Counter(rows_of(want))


def test_an_edge_of_one_lane_is_not_evaluated_for_rows_of_another(session: Any) -> None:
    numbers, words = Lane((Column("s_1", "string", True),)), Lane((Column("w_1", "string", True),))
    cast = expression("CAST(s_1 AS INT)", "int", "s_1")
    node = Project(lane_scan(numbers.columns), (Named("n_1", cast),))
    edges = [NumberedEdge(0, 0, node, 2)]
    before = Stream({0: numbers, 1: words})
    after = passage_stream(edges, {0: numbers, 1: words, 2: Lane(node.columns)}, [1])
    rows = [
        before.pack(0, with_times(pa.table({"s_1": ["1", "2"]}))),
        before.pack(1, with_times(pa.table({"w_1": ["one", "two", "three"]}))),
    ]
    frame = session.createDataFrame(pa.concat_tables(rows), before.spark_schema())
    frame = frame.selectExpr(*passage_sql(edges, before, after, [1]))
    found = after.unpack(frame.toArrow().to_batches())
    assert {lane: table.column(0).to_pylist() for lane, table in found.items()} == {
        1: ["one", "two", "three"],
        2: [1, 2],
    }


# ---- what there can be -----------------------------------------------------------------------


def test_many_views_of_many_edges_are_one_passage(session: Any) -> None:
    types = [*(f"decimal({n},2)" for n in range(10, 16)), "string", "bigint", "double", "date"] * 3
    lane = Lane(tuple(Column(f"c_{n}", type_, True) for n, type_ in enumerate(types)))
    kept = tuple(Named(c.name, expression(c.name, c.type, c.name)) for c in lane.columns)
    edges = []
    for n in range(80):
        condition = expression(f"((c_7 % 80) = {n})", "boolean", "c_7")
        node = Project(Filter(lane_scan(lane.columns), condition), kept)
        edges.append(NumberedEdge(n, n, node, 100 + n))
    before = Stream(dict.fromkeys(range(80), lane))
    after = passage_stream(
        edges, {**dict.fromkeys(range(80), lane), **{e.target: lane for e in edges}}
    )
    assert len(before.slots) == 31
    arrays = [pa.nulls(160, c.sql_type.arrow) for c in lane.columns]
    arrays[7] = pa.array(range(160), pa.int64())
    rows = with_times(pa.table(arrays, names=[c.name for c in lane.columns]))
    packed = pa.concat_tables([before.pack(n, rows) for n in (0, 41, 79)])
    frame = session.createDataFrame(packed, before.spark_schema())
    frame = frame.mapInArrow(lambda batches: batches, before.spark_schema())
    found = after.unpack(
        frame.selectExpr(*passage_sql(edges, before, after)).toArrow().to_batches()
    )
    assert {lane: table.column("c_7").to_pylist() for lane, table in found.items()} == {
        100: [0, 80],
        141: [41, 121],
        179: [79, 159],
    }


def test_generators_without_an_array_are_said_to_have_none(session: Any) -> None:
    workspace = Workspace(session, {"t": TABLE})
    plan = workspace.compile_sql("SELECT a, x FROM t LATERAL VIEW json_tuple(s, 'k') j AS x")
    found = [why_not_linear(n) for n in _chain_of(plan.shown()) if isinstance(n, Generate)]
    assert found == ["json_tuple has no form as an array"]


def _chain_of(node: Node) -> Iterator[Node]:
    yield node
    for below in node.inputs:
        yield from _chain_of(below)
