"""Deterministic queries that once were refused: as views they are what Spark says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.run_layout import LAYOUTS
from headwater.compute.catalyst.user_functions import session_of
from headwater.compute.controller import ViewController
from headwater.compute.ir.refusal import NotUnderstood, Refused
from headwater.compute.maintained import MaintainedView
from headwater.persist.client import Client, open_location
from headwater.persist.errors import CollectionHasErrors
from headwater.testing.few_rows import for_few_rows
from headwater.testing.random_views import step_together

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.string()),
        ("js", pa.string()),
        ("bin", pa.binary()),
        ("xi", pa.list_(pa.int32())),
        ("xs", pa.list_(pa.string())),
    ]
)
MAINTAINED = {
    "zipped": "SELECT k, to_json(arrays_zip(xi, xs)) AS y FROM t",
    "zipped_within": "SELECT k, to_json(named_struct('z', arrays_zip(xi, xs))) AS y, "
    "to_json(map('z', arrays_zip(xi, xs))) AS m, to_csv(arrays_zip(xi, xs)[0]) AS c FROM t",
    "by_zipped": "SELECT to_json(arrays_zip(xi, xs)) AS y, count(*) AS n FROM t GROUP BY 1",
    "encrypted": "SELECT k, aes_encrypt(s, '0123456789abcdef', 'CBC', 'DEFAULT', bin) AS y, "
    "aes_encrypt(s, '0123456789abcdef', 'GCM', 'DEFAULT', substr(bin, 1, 12), s) AS z FROM t",
    "by_mode": "SELECT k, hex(aes_encrypt(s, '0123456789abcdef', IF(i > 2, 'CBC', 'ECB'), 'PKCS', "
    "IF(i > 2, bin, X''))) AS y FROM t",
    "having": "SELECT i, count(*) AS n FROM t GROUP BY i HAVING max(btrim(s)) > 'a' "
    "AND min(nvl(s, 'x') BETWEEN 'a' AND 'z') AND max(date_part('YEAR', DATE'2020-01-01')) > i",
    "like": "SELECT k, (s LIKE 'a%') IS NOT NULL AS y, (s LIKE s) IS NULL AS n, "
    "s ILIKE 'A/%%' ESCAPE '/' AS e, NOT (s LIKE 'a_%') AS r FROM t WHERE (s LIKE '%b') IS NULL "
    "OR (s LIKE '%/%' ESCAPE '/') = false",
    "spelled": "SELECT k, to_varchar(bin, 'base64') AS b, to_varchar(bin, 'hex') AS h FROM t",
    "zoned": "SELECT k, try_make_timestamp(2020, i, 1, 2, 3, 4, IF(k > 1, 'CET', '+01:00')) AS y "
    "FROM t",
    "typed": "SELECT typeof(i) AS y, count(*) AS n FROM t GROUP BY typeof(i)",
    "collated": "SELECT k, s COLLATE UTF8_LCASE = 'AB' AS y, "
    "(s COLLATE UTF8_LCASE) LIKE 'A%' AS l, contains(s COLLATE UTF8_LCASE, 'B') AS c "
    "FROM t WHERE s COLLATE UTF8_LCASE < 'B'",
    "collated_sum": "SELECT i, count_if(s COLLATE UTF8_LCASE IN ('AB', 'A%C')) AS n FROM t "
    "GROUP BY i HAVING max(s) COLLATE UTF8_LCASE >= 'AB'",
    "sorted": "SELECT k, (SELECT array_sort(collect_list(i)) FROM t u WHERE u.k = t.k + 1) AS y "
    "FROM t",
}
RECOMPUTED = {
    "exploded": "SELECT k, v.pos, v.key, to_json(v.value) AS y "
    "FROM t, LATERAL variant_explode(try_parse_json(js)) v",
    "outer": "SELECT k, v.key, to_json(v.value) AS y "
    "FROM t, LATERAL variant_explode_outer(try_parse_json(js)) v",
    "left": "SELECT k, v.key FROM t LEFT JOIN LATERAL variant_explode(try_parse_json(js)) v "
    "ON true",
    "counted": "SELECT v.key, count(*) AS n, max(v.pos) AS p "
    "FROM t, LATERAL variant_explode(try_parse_json(js)) v GROUP BY v.key",
    "keywords": "SELECT * FROM sql_keywords()",
    "collations": "SELECT name FROM collations() WHERE name LIKE 'U%'",
    "reserved": "SELECT k, w.keyword FROM t JOIN sql_keywords() w ON upper(t.s) = w.keyword",
    "any": "SELECT k, to_json(any_value(try_parse_json(js))) AS y FROM t GROUP BY k",
    "over": "SELECT k, count(try_parse_json(js)) OVER (ORDER BY k) AS n FROM t",
    "months": "SELECT CAST(m AS STRING) AS m, n FROM (SELECT make_ym_interval(i) AS m, "
    "count(*) AS n FROM t GROUP BY make_ym_interval(i))",
    "by_months": "SELECT k, row_number() OVER (ORDER BY make_ym_interval(i), k) AS r FROM t",
    "topped": "SELECT k FROM t ORDER BY make_ym_interval(i), k LIMIT 2",
    "different": "SELECT count(DISTINCT make_ym_interval(i)) AS n, count(make_ym_interval(i)) AS m "
    "FROM t",
    "joined": "SELECT a.k, b.k AS l FROM t a JOIN t b ON make_ym_interval(a.i) = "
    "make_ym_interval(b.i)",
    "parted": "SELECT k, max(k) OVER (PARTITION BY make_ym_interval(i)) AS m FROM t",
    "spans": "SELECT CAST(m AS STRING) AS m, n FROM (SELECT make_interval(0, i) AS m, "
    "count(*) AS n FROM t GROUP BY make_interval(0, i))",
}
QUERIES = {**MAINTAINED, **RECOMPUTED}
IV = b"0123456789abcdef"
ROWS: list[tuple[Any, ...]] = [
    (1, 3, "ab", '{"a": 1, "b": [1, null]}', IV, [1, 2], ["x", None]),
    (2, None, None, None, None, None, None),
    (3, 2, "select", "[7, {}]", IV[::-1], [], ["y"]),
    (2, 3, "a%c", "no json", IV, [None], None),
]
HISTORY = [
    [(0, 1), (1, 1)],
    [(2, 2)],
    [(3, 1), (1, -1)],
    [(2, -1), (0, -1)],
    [(2, -1), (3, -1), (0, 1)],
]
"""What comes and goes at each time: a row, and how often."""


def _row(number: int) -> dict[str, Any]:
    return dict(zip(SCHEMA.names, ROWS[number], strict=True))


def _bag(rows: pa.Table) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows.to_pylist():
        diff = row.pop("__diff", 1)
        found[repr(tuple(row.values()))] += diff
    return found


@pytest.fixture(scope="module")
def wanted(spark: Any) -> dict[tuple[str, int], Counter[str]]:
    """What Spark says of each query at each time."""
    asked = for_few_rows(session_of(spark))
    answers: dict[tuple[str, int], Counter[str]] = {}
    there: Counter[int] = Counter()
    for time, changes in enumerate(HISTORY):
        there.update(dict(changes))
        rows = [_row(number) for number in there.elements()]
        asked.createDataFrame(pa.Table.from_pylist(rows, SCHEMA)).createOrReplaceTempView("t")
        for name, sql in QUERIES.items():
            answers[name, time] = _bag(asked.sql(sql).toArrow())
    return answers


@pytest.mark.parametrize("rules", [True, False])
def test_each_is_what_spark_says_also_after_a_restart(
    spark: Any, tmp_path: Path, wanted: dict[tuple[str, int], Counter[str]], rules: bool
) -> None:
    for lower, upper in ((0, 1), (1, 3), (3, 5)):
        with open_location(tmp_path, layouts=LAYOUTS) as client:
            write, _ = client.create_or_load("t", SCHEMA)
            controller = ViewController(client, spark)
            for name, sql in QUERIES.items() if lower == 0 else ():
                view = controller.create_view(name, sql, rules=rules)
                assert isinstance(view, MaintainedView) == (rules and name in MAINTAINED), name
            updates = [
                (_row(number), time, diff)
                for time in range(lower, upper)
                for number, diff in HISTORY[time]
            ]
            write.compare_and_append(updates, lower, upper).result()
            kept = [view for view in controller.views() if isinstance(view, MaintainedView)]
            assert step_together(client, controller, kept) == []
            for name, sql in QUERIES.items():
                for time in range(lower, upper):
                    found = _bag(client.reader(name).snapshot(time).to_table())
                    assert found == wanted[name, time], f"{name} at {time}"
                if rules:  # They are for views; who asks is answered without.
                    found = _bag(controller.select(sql, upper - 1))
                    assert found == wanted[name, upper - 1], f"{name} asked at {upper - 1}"


def test_an_empty_iv_is_an_error_of_its_row(spark: Any, client: Client) -> None:
    """Spark would make one up, and another one where the row is taken back."""
    write, _ = client.create_or_load("t", SCHEMA)
    controller = ViewController(client, spark)
    controller.create_view("view", MAINTAINED["encrypted"])
    empty = {**_row(0), "bin": b""}
    write.compare_and_append([(_row(0), 0, 1), (empty, 1, 1), (empty, 2, -1)], 0, 3).result()
    assert controller.run_once() == ("view",), controller.failures()
    read = client.reader("view")
    for time in (0, 2):
        assert read.snapshot(time).to_table().num_rows == 1
    with pytest.raises(CollectionHasErrors, match="of an empty iv is not deterministic"):
        read.snapshot(1).to_table()


def test_what_is_to_be_stored_has_a_type_that_can_be(spark: Any, client: Client) -> None:
    client.create_or_load("t", SCHEMA)
    controller = ViewController(client, spark)
    for sql, why in (
        ("SELECT v.value FROM t, LATERAL variant_explode(parse_json(js)) v", "column 'value' of"),
        ("SELECT make_ym_interval(i) AS m, count(*) AS n FROM t GROUP BY 1", "column 'm' of type"),
        ("SELECT aes_encrypt(s, 'k', 'CBC', 'PKCS', '') FROM t", "random bytes"),
    ):
        with pytest.raises(Refused, match=why):
            controller.create_view("view", sql)
    with pytest.raises(NotUnderstood, match="Non-deterministic expression"):
        controller.create_view("view", "SELECT count(*) FROM t GROUP BY uniform(0, 9, 1)")


def test_whatever_an_expression_raises_is_an_error_of_the_data(spark: Any, client: Client) -> None:
    """Also where Spark has no SQLSTATE for it, or one that speaks of the query."""
    write, _ = client.create_or_load("t", SCHEMA)
    controller = ViewController(client, spark)
    key = "'0123456789abcdef'"
    queries = {
        "escaped": ("SELECT s LIKE js AS y FROM t", "escape character"),
        "formatted": (
            "SELECT date_format(TIMESTAMP'2020-01-01 00:00:00', js) AS y FROM t",
            "week-based",
        ),
        "mode": (f"SELECT aes_decrypt(bin, {key}, js) AS y FROM t", "AES-"),
        "pattern": ("SELECT split(s, js) AS y FROM t", "PatternSyntaxException"),
        "parsed": (RECOMPUTED["exploded"].replace("try_parse", "parse"), "(?i)malformed"),
        "compared": (
            "SELECT array_sort(xi, (a, b) -> IF(js > 'd', NULL, 0)) AS y FROM t",
            "comparator has returned a NULL",
        ),
        "number": ("SELECT to_number(js, '99') AS y FROM t", "not match"),
        "xml": ("SELECT xpath_int(js, 'a') AS y FROM t", "loading expression"),
        "steps": ("SELECT sequence(1, 5, IF(js > 'd', 0, 1)) AS y FROM t", "sequence"),
    }
    for name, (sql, _) in queries.items():
        controller.create_view(name, sql, rules=False)
    bad = {**_row(0), "js": "q\\d(YYYY"}
    write.compare_and_append([(bad, 0, 1), (bad, 1, -1)], 0, 2).result()
    assert set(controller.run_once()) == set(queries), controller.failures()
    for name, (_, message) in queries.items():
        with pytest.raises(CollectionHasErrors, match=message):
            client.reader(name).snapshot(0).to_table()
        assert client.reader(name).snapshot(1).to_table().num_rows == 0, name
