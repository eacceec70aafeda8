"""The plans of all TPC-H and NEXMark queries, in our own words; ``REWRITE=1`` writes them anew."""

from __future__ import annotations

import os
from typing import Any

import pytest

from headwater.compute.catalyst.compiler import Workspace, relations_of
from headwater.compute.ir.node import Join, Scan, walk
from headwater.compute.ir.text import written
from tests.queries.tables import FOLDER, queries, schemas

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("suite", ["tpch", "nexmark"])
def test_every_query_has_the_plan_that_was_reviewed(spark: Any, suite: str) -> None:
    workspace = Workspace(spark, schemas(suite))
    wrong: list[str] = []
    for name, text in queries(suite).items():
        found = written(workspace.compile_sql(text))
        golden = FOLDER / suite / f"{name}.plan"
        if os.environ.get("REWRITE"):
            golden.write_text(found, "utf-8")
        elif golden.read_text("utf-8") != found:
            wrong.append(f"{name}:\n{found}")
    assert not wrong, "if the new plans are right: REWRITE=1\n" + "\n".join(wrong)


def test_the_same_query_has_the_same_plan_whatever_was_compiled_before(spark: Any) -> None:
    text = queries("tpch")["q20"]
    first = Workspace(spark, schemas("tpch")).compile_sql(text)
    other = Workspace(spark, schemas("tpch"))
    other.compile_sql(queries("tpch")["q02"])
    assert other.compile_sql(text) == first


def test_subqueries_become_semi_and_anti_joins(spark: Any) -> None:
    workspace = Workspace(spark, schemas("tpch"))
    kinds: list[str] = []
    for text in queries("tpch").values():
        nodes = walk(workspace.compile_sql(text).root)
        kinds.extend(node.kind for node in nodes if isinstance(node, Join))
    assert (kinds.count("semi"), kinds.count("anti")) == (5, 3)


def test_a_scan_has_the_columns_that_are_needed(spark: Any) -> None:
    plan = Workspace(spark, schemas("tpch")).compile_sql(
        "SELECT count(*) FROM orders WHERE o_custkey = 1"
    )
    (scan,) = (node for node in walk(plan.root) if isinstance(node, Scan))
    assert [field.field for field in scan.fields] == ["o_custkey"]
    assert plan.relations == ("orders",)


def test_relations_are_found_in_every_corner(spark: Any) -> None:
    text = """WITH c AS (SELECT * FROM A) SELECT * FROM c, `b b` x, LATERAL (SELECT 1 FROM d) y
        WHERE EXISTS (SELECT 1 FROM e) AND (SELECT max(z) FROM f) > 1"""
    assert relations_of(spark, text) >= {"a", "b b", "d", "e", "f"}
