"""Which edges a stage computes by itself, and what it does where one fails on a row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.dataflow.edge import Edge, lane_scan
from headwater.compute.dataflow.native import native
from headwater.compute.dataflow.operator import update_schema
from headwater.compute.dataflow.term import Constant
from headwater.compute.dataflow.texts import mentioned
from headwater.compute.ir.expression import Column, Expression, Named
from headwater.compute.ir.node import Filter, Node, Project
from headwater.persist.consolidate import DIFF, TIME

COLUMNS = tuple(
    Column(name, type_, True)
    for name, type_ in (
        ("a_1", "bigint"),
        ("b_1", "bigint"),
        ("d_1", "decimal(12,2)"),
        ("s_1", "string"),
        ("p_1", "date"),
    )
)
SCAN = lane_scan(COLUMNS)


def _expression(text: str, type_: str) -> Expression:
    return Expression(text, type_, True, tuple(dict.fromkeys(mentioned(text))))


def _showing(node: Node, text: str, type_: str = "bigint", name: str = "r_1") -> Project:
    return Project(node, (Named(name, _expression(text, type_)),))


NOT_NATIVE = (
    ("(a_1 / b_1)", "double"),
    ("(a_1 % b_1)", "bigint"),
    ("(a_1 % 0L)", "bigint"),
    ("(a_1 + (a_1 * b_1))", "bigint"),  # Not computed where a_1 is NULL.
    ("((a_1 > 0L) AND ((a_1 * b_1) > 0L))", "boolean"),
    ("CASE WHEN (a_1 > 0L) THEN (a_1 * b_1) ELSE 0L END", "bigint"),
    ("coalesce(a_1, (a_1 * b_1))", "bigint"),
    ("(CAST(a_1 AS DOUBLE) > 0.5D)", "boolean"),
    ("s_1 LIKE '_b'", "boolean"),
    ("s_1 LIKE 'a\\\\%'", "boolean"),
    ("(s_1 = 'a\\\\b')", "boolean"),
    ("(s_1 = 'it''s')", "boolean"),
    ("CAST(a_1 AS INT)", "int"),
    ("CAST(d_1 AS DECIMAL(10,1))", "decimal(10,1)"),
    ("(((d_1 * d_1) * d_1) * d_1)", "decimal(38,8)"),
    ("((((d_1 * d_1) * d_1) * d_1) IS NULL)", "boolean"),  # Rounded, or too large.
    ("upper(s_1)", "string"),
    ("p_1 + INTERVAL '1' MONTH", "date"),
    ("(a_1 <=> b_1)", "boolean"),
    ("(a_1 + 1)", "bigint"),  # Spark says no such thing: both are of one type.
    ("(a_1 > d_1)", "boolean"),
    ("(d_1 > a_1)", "boolean"),
    ("(a_1 + b_1)", "int"),
    ("(a_1 + b_1", "bigint"),
    ("a_1 b_1", "bigint"),
)


@pytest.mark.parametrize(("text", "type_"), NOT_NATIVE)
def test_what_is_not_known_for_sure_is_the_jvms(text: str, type_: str) -> None:
    assert native(Edge(0, _showing(SCAN, text, type_), 1)) is None


def _updates(*rows: tuple[Any, ...]) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)]
    nothing = [[None] * len(rows)] * 3
    numbers = list(range(len(rows)))
    return pa.table([*columns, *nothing, numbers, numbers], schema=update_schema(COLUMNS))


def _moved(node: Node, updates: pa.Table) -> tuple[list[tuple[Any, int]], list[int]]:
    """Return value and number of what comes out, and the numbers of the rows that fail."""
    found = native(Edge(0, node, 1))
    assert found is not None
    moved, failed = found.moved(updates, update_schema(node.columns))
    assert failed.schema.names == updates.schema.names
    shown = zip(moved.column(0).to_pylist(), moved.column("__diff").to_pylist(), strict=True)
    return list(shown), failed.column("__diff").to_pylist()


BIG = 2**62
ROWS = _updates((1, 2), (BIG, 2), (None, 2), (3, None), (-BIG, 3), (BIG, -2), (0, 0))


def test_only_the_rows_that_fail_fail() -> None:
    shown, failed = _moved(_showing(SCAN, "(a_1 * b_1)"), ROWS)
    assert shown == [(2, 0), (None, 2), (None, 3), (-(2**63), 5), (0, 6)]
    assert failed == [1, 4]


def test_what_a_filter_leaves_out_does_not_fail() -> None:
    kept = Filter(SCAN, _expression("(b_1 < 2L)", "boolean"))
    assert _moved(_showing(kept, "(a_1 * b_1)"), ROWS) == ([(-(2**63), 5), (0, 6)], [])


def test_a_projection_below_a_filter_is_computed_where_it_is_used() -> None:
    both = Project(
        SCAN,
        (
            Named("x_1", _expression("(a_1 * b_1)", "bigint")),
            Named("b_2", _expression("b_1", "bigint")),
        ),
    )
    kept = Filter(both, _expression("(b_2 < 2L)", "boolean"))
    assert _moved(_showing(kept, "x_1"), ROWS) == ([(-(2**63), 5), (0, 6)], [])
    # Not used at all: computed for nobody, it fails for nobody.
    assert _moved(_showing(both, "b_2"), ROWS)[1] == []
    # In the filter, it fails there.
    below = Filter(both, _expression("(x_1 > 0L)", "boolean"))
    assert _moved(_showing(below, "b_2"), ROWS) == ([(2, 0)], [1, 4])


def test_nothing_comes_of_nothing() -> None:
    kept = Filter(SCAN, _expression("(a_1 = 17L)", "boolean"))
    assert _moved(_showing(kept, "(a_1 * b_1)"), ROWS) == ([], [])
    assert _moved(_showing(SCAN, "7L"), ROWS.slice(0, 0)) == ([], [])


def test_projections_that_grow_without_end_are_the_jvms() -> None:
    node: Node = SCAN
    name = "a_1"
    for n in range(2, 40):
        node = _showing(node, f"coalesce({name}, {name})", name=f"a_{n}")
        name = f"a_{n}"
    assert native(Edge(0, node, 1)) is None


def _chained(operator: str, parts: list[str]) -> str:
    text = parts[0]
    for part in parts[1:]:
        text = f"({text} {operator} {part})"
    return text


def test_what_is_too_deep_is_the_jvms() -> None:
    for text, type_ in (
        (_chained("+", ["a_1"] * 2_000), "bigint"),
        (_chained("OR", ["(a_1 = 1L)"] * 2_000), "boolean"),
        (" OR ".join(["(a_1 = 1L)"] * 2_000), "boolean"),
        (f"(a_1 IN ({', '.join(f'{n}L' for n in range(2_000))}))", "boolean"),
        ("(NOT " * 2_000 + "(a_1 = 1L)" + ")" * 2_000, "boolean"),
    ):
        assert native(Edge(0, _showing(SCAN, text, type_), 1)) is None
        if type_ == "boolean":
            assert native(Edge(0, Filter(SCAN, _expression(text, type_)), 1)) is None


def test_a_list_is_searched_whole() -> None:
    for count in (1, 2, 3, 100):
        listed = ", ".join(f"{2 * n}L" for n in range(count))
        found = native(Edge(0, Filter(SCAN, _expression(f"(a_1 IN ({listed}))", "boolean")), 1))
        assert found is not None
        values = [None, *range(-1, 2 * count + 2)]
        rows = {c.name: pa.nulls(len(values), c.sql_type.arrow) for c in COLUMNS}
        rows["a_1"] = pa.array(values, pa.int64())
        rows |= {name: pa.array([1] * len(values), pa.int64()) for name in (TIME, DIFF)}
        schema = update_schema(COLUMNS)
        kept, failed = found.moved(pa.table(rows, schema=schema), schema)
        assert kept.column("a_1").to_pylist() == list(range(0, 2 * count, 2))
        assert not failed.num_rows


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1234567890123456789012345678.9123456789BD", "-1234567890123456789012345678.9123456789"),
        ("(- 99999999999999999999999999999999999999BD)", f"-{'9' * 38}"),
        ("(12345678901234567890123456789.12BD + 0.01BD)", "12345678901234567890123456789.13"),
        (
            "(0.12345678901234567890BD * 0.1234567890123456BD)",
            "0.015241578753238827009449866913427840",
        ),
    ],
)
def test_a_literal_has_all_its_digits(text: str, value: str) -> None:
    """Python's own arithmetic of decimals rounds to 28, and that of a sign as well."""
    digits, scale = len(value.replace("-", "").replace(".", "")), len(value.partition(".")[2])
    for wide in (f"decimal({n},{scale})" for n in range(digits - 1, 39)):
        found = native(Edge(0, _showing(SCAN, text, wide), 1))
        if found is not None:
            (shown,) = found.shown
            assert isinstance(shown, Constant)
            assert str(shown.value) == value
            return
    pytest.fail("of no type")
