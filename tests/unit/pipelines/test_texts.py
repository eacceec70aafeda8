"""Names and SQL files of a project: what relations are called, and what statements declare."""

from __future__ import annotations

import pytest

from headwater.base.errors import InvalidUsage
from headwater.compute.declared.auto_cdc import Changes
from headwater.compute.declared.elements import Flow, MistakeInProject, Output
from headwater.pipelines.names import Names
from headwater.pipelines.sql_file import elements

NAMES = Names("lake", "sales")


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Orders", "orders"),
        ("sales.orders", "orders"),
        ("lake.sales.`Orders`", "orders"),
        ("spark_catalog.default.orders", "orders"),
        ("`a.b`", "a.b"),
        ("other.orders", "other.orders"),
    ],
)
def test_what_a_relation_is_called(name: str, plain: str) -> None:
    assert NAMES.plain(name) == plain


@pytest.mark.parametrize("name", ["", "a.", "a b", "`a"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(InvalidUsage, match="is no name"):
        NAMES.plain(name)


@pytest.mark.parametrize(
    ("sql", "rewritten"),
    [
        ("SELECT * FROM orders", "SELECT * FROM orders"),
        ("SELECT * FROM sales.orders o", "SELECT * FROM `orders` o"),
        (
            "SELECT * FROM STREAM orders WHERE orders.k > 1",
            "SELECT * FROM `__stream__orders` AS `orders` WHERE orders.k > 1",
        ),
        (
            "SELECT * FROM STREAM(lake.sales.a) x JOIN default.b USING (k)",
            "SELECT * FROM `__stream__a` x JOIN `b` USING (k)",
        ),
        ("SELECT * FROM a, STREAM(default.b)", "SELECT * FROM a, `__stream__b` AS `b`"),
        ("SELECT extract(day FROM t) FROM range(3)", "SELECT extract(day FROM t) FROM range(3)"),
        ("SELECT * FROM stream", "SELECT * FROM stream"),
        ("SELECT * FROM parquet.`f`", "SELECT * FROM parquet.`f`"),
        ("SELECT 'FROM STREAM x' AS t", "SELECT 'FROM STREAM x' AS t"),
        ("SELECT 'open", "SELECT 'open"),
    ],
)
def test_texts_over_our_names(sql: str, rewritten: str) -> None:
    assert NAMES.rewritten(sql) == rewritten


FILE = """\
-- two tables
CREATE OR REFRESH STREAMING TABLE `raw` (x int COMMENT 'y', y decimal(10,2))
USING delta PARTITIONED BY (x) TBLPROPERTIES ('a' = 'b') COMMENT "it's raw";

CREATE FLOW f AS INSERT INTO raw BY NAME SELECT * FROM STREAM(events);
CREATE MATERIALIZED VIEW sales.totals CLUSTER BY (x) AS
WITH a AS (SELECT 1 AS x) SELECT * FROM a;
CREATE TEMPORARY VIEW v AS SELECT 2;
CREATE STREAMING TABLE s AS SELECT * FROM STREAM raw
"""


def test_the_statements_of_a_file() -> None:
    found = list(elements(FILE, "f.sql"))
    outputs = [each for each in found if isinstance(each, Output)]
    flows = [each for each in found if isinstance(each, Flow)]
    assert [(o.name, o.kind, o.where.line) for o in outputs] == [
        ("`raw`", "streaming table", 2),
        ("`sales`.`totals`", "materialized view", 6),
        ("`v`", "temporary view", 8),
        ("`s`", "streaming table", 9),
    ]
    assert outputs[0].schema == "x int COMMENT 'y', y decimal(10,2)"
    assert outputs[0].comment == "it's raw"
    assert [(f.name, f.target, f.query) for f in flows] == [
        ("`f`", "`raw`", "SELECT * FROM STREAM(events)"),
        ("`sales`.`totals`", "`sales`.`totals`", "WITH a AS (SELECT 1 AS x) SELECT * FROM a"),
        ("`v`", "`v`", "SELECT 2"),
        ("`s`", "`s`", "SELECT * FROM STREAM raw"),
    ]


CDC = """CREATE FLOW f AS AUTO CDC INTO people FROM STREAM(sales.events) KEYS (id, `Day`)
APPLY AS DELETE WHEN op = 'DELETE' SEQUENCE BY struct(at, coalesce(n, 0))"""


def test_changes_by_key() -> None:
    (found,) = elements(CDC + " COLUMNS * EXCEPT (op, at) STORED AS SCD TYPE 1", "f.sql")
    assert isinstance(found, Changes)
    assert (found.target, found.source) == ("`people`", "`sales`.`events`")
    assert tuple(found.keys) == ("id", "Day")
    assert found.apply_as_deletes == "op = 'DELETE'"
    assert found.sequence_by == "struct(at, coalesce(n, 0))"
    assert found.except_column_list == ("op", "at")
    text = CDC.replace("CREATE FLOW f AS AUTO CDC INTO", "CREATE STREAMING TABLE").replace(
        " FROM STREAM", " FLOW AUTO CDC FROM STREAM"
    )
    _, kept = elements(text + " STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (a)", "f.sql")
    assert isinstance(kept, Changes)
    assert (kept.name, kept.target, kept.keeps_history) == ("`people`", "`people`", True)
    assert kept.track_history_except_column_list == ("a",)
    (plain,) = elements("CREATE FLOW f AS AUTO CDC INTO t FROM s KEYS (k) SEQUENCE BY n", "f.sql")
    assert isinstance(plain, Changes)
    assert (plain.source, plain.sequence_by, plain.apply_as_deletes) == ("`s`", "n", None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT 1", "f.sql, line 1: syntax error"),
        ("\nDROP TABLE x", "f.sql, line 2: syntax error"),
        ("CREATE TABLE t (k int)", "there are CREATE MATERIALIZED VIEW"),
        ("CREATE MATERIALIZED VIEW v", "syntax error"),
        ("SET a = b", "configuration"),
        ("CREATE FLOW f AS INSERT INTO t SELECT 1", "no BY NAME"),
        ("CREATE FLOW f AS AUTO CDC INTO t", "syntax error"),
        (CDC + " STORED AS SCD TYPE 3", "there is no SCD type 3"),
        (CDC + " TRACK HISTORY ON (a)", "SCD type 1 has no history"),
        (CDC + " COLUMNS a", "syntax error"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 'x", "end of input"),
    ],
)
def test_statements_that_are_none(text: str, told: str) -> None:
    with pytest.raises(MistakeInProject) as raised:
        list(elements(text, "f.sql"))
    assert told in str(raised.value)
    assert str(raised.value).startswith("f.sql")
