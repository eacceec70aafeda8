"""A small number that would make a huge value is an error of its row; Spark's JVM stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headwater.compute import select as selecting
from headwater.compute.catalyst.bounded import VALUE_BYTES_MAX
from headwater.compute.catalyst.query_session import query_session
from headwater.compute.controller import ViewController
from headwater.compute.ir.refusal import NotUnderstood
from headwater.compute.select import QueryFailed
from headwater.persist.client import Client
from headwater.persist.errors import CollectionHasErrors

pytestmark = pytest.mark.spark

T = pa.schema([("k", pa.int64()), ("s", pa.string()), ("n", pa.int32())])
GOOD, BAD = {"k": 2, "s": "ab", "n": 3}, {"k": 2, "s": "ab", "n": 2**31 - 1}

CALLS = {
    "repeat": "repeat(s, n)",
    "space": "space(n)",
    "lpad": "lpad(s, n, 'é')",
    "rpad": "rpad(s, n)",
    "sequence": "size(sequence(1, k * n))",
    "array_repeat": "size(array_repeat(s, n))",
    "array_insert": "size(array_insert(array(1), n, 5))",
    "format_string": "format_string(concat('%', n, 'd'), 1)",
    "format_number": "format_number(1.5D, n)",
}
BINARY = {"lpad": "lpad(CAST(s AS BINARY), n)", "rpad": "rpad(CAST(s AS BINARY), n)"}


@pytest.mark.parametrize("rules", [True, False], ids=["maintained", "recomputed"])
def test_a_value_too_large_is_an_error_while_its_row_is_there(
    spark: Any, client: Client, rules: bool
) -> None:
    write, _ = client.create_or_load("t", T)
    controller = ViewController(client, spark)
    write.compare_and_append([(BAD, 0, 1)], 0, 1).result()
    calls = {**CALLS, **{f"{name}_binary": text for name, text in BINARY.items()}}
    for name, text in calls.items():
        controller.create_view(name, f"SELECT k, {text} AS y FROM t", rules=rules)
    controller.create_view("exploded", "SELECT explode(sequence(1, n)) AS y FROM t", rules=rules)
    controller.create_view("kept", f"SELECT k FROM t WHERE {CALLS['repeat']} > ''", rules=rules)
    controller.create_view("other", "SELECT max(n) AS n FROM t", rules=rules)
    views = {*calls, "exploded", "kept", "other"}
    assert set(controller.run_once()) == views, controller.failures()
    write.compare_and_append([(GOOD, 1, 1), (BAD, 1, -1), (BAD, 2, 1), (BAD, 3, -1)], 1, 4).result()
    assert set(controller.run_once()) == views, controller.failures()
    for name in views - {"other"}:
        read = client.reader(name)
        assert read.snapshot(1).to_table().num_rows == (3 if name == "exploded" else 1)
        assert read.snapshot(1).to_table() == read.snapshot(3).to_table()
        made = {"exploded": "sequence", "kept": "repeat"}.get(name, name.removesuffix("_binary"))
        for time in (0, 2):
            with pytest.raises(CollectionHasErrors) as told:
                read.snapshot(time).to_table()
            assert f"requested length too large: {made}() would make a value of" in str(told.value)
            assert f"bytes; the limit is {VALUE_BYTES_MAX}" in str(told.value)
    assert client.reader("other").snapshot(2).to_table().column("n").to_pylist() == [BAD["n"]]


def test_a_value_too_large_is_an_error_of_a_query(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("t", T)
    write.compare_and_append([(GOOD, 0, 1), (BAD, 1, 1)], 0, 2).result()

    def asked(sql: str, as_of: int) -> pa.Table:
        return selecting.select(client, spark, sql, as_of, {"t": "t"})

    for name, text in CALLS.items():
        assert asked(f"SELECT {text} FROM t", 0).num_rows == 1
        for sql in (f"SELECT {text} FROM t", f"SELECT max({text}), rand() FROM t"):
            with pytest.raises(QueryFailed, match=rf"too large: {name}\(\) would make"):
                asked(sql, 1)
    # Constants are computed when a query is planned, or even read.
    constant = "repeat('a', 2147483647)"
    for sql in (f"SELECT {constant}", f"SELECT k FROM t WHERE {constant} > s"):
        with pytest.raises(QueryFailed, match=r"too large: repeat\(\)"):
            asked(sql, 0)
    with pytest.raises(NotUnderstood, match=r"too large: repeat\(\)"):
        ViewController(client, spark).create_view("view", f"SELECT k, {constant} AS y FROM t")


FAIL_AS_WELL = (
    CALLS["array_insert"],
    CALLS["format_string"],
    "array_insert(xs, -n, NULL)",
    "array_insert(xs, n, k)",
    "sequence(1, 10, n)",
)
"""What Spark says no to because of one of the rows: it is asked alone."""
SAME_PER_QUERY = 12
SAME = (
    *(
        text.replace("k * n", "k + n")
        for text in (*CALLS.values(), *BINARY.values())
        if text not in FAIL_AS_WELL
    ),
    "lpad(s, 0, 'x')",
    "lpad(s, n, '')",
    "rpad(s, -1, 'x')",
    "repeat(s, -1)",
    "array_repeat(s, -1)",
    "array_repeat(xs, n)",
    "array_repeat(d, n)",
    "format_string('%2$s %1$5.2f|%s|%%', d, s)",
    "format_string(s)",
    "printf('%-4d', k)",
    "format_number(d, 2)",
    "format_number(d, '#.#')",
    "sequence(k, -3)",
    "sequence(k, k)",
    "sequence(DATE'2020-01-01', DATE'2020-06-01', INTERVAL '2' MONTH)",
    "sequence(DATE'2020-01-01', DATE'2020-01-05')",
    "sequence(TIMESTAMP'2020-01-01', TIMESTAMP'2020-01-01 05:00:00', INTERVAL '1' HOUR)",
    "transform(sequence(1, n), i -> repeat(s, i))",
    "repeat(repeat(repeat(s, n), n), n)",
    # What is NULL before an argument that fails is NULL, and fails where Spark fails.
    "repeat(s, CAST(if(s IS NULL, 'x', '1') AS INT))",
    "lpad(s, n, if(n IS NULL, raise_error('no n'), 'x'))",
)
ROWS = (
    "VALUES (1L, 'ab', 3, 1.5D, array(1L, 2L)), (2L, 'é', 2, -2.25D, array()), "
    "(3L, '', 0, 0.0D, array(NULL)), (4L, NULL, 4, 1.0D, array(5L)), (5L, 'x', NULL, NULL, NULL) "
    "AS t(k, s, n, d, xs)"
)


@pytest.mark.parametrize("generated", ["true", "false"])
def test_what_is_not_too_large_is_what_spark_says(spark: Any, generated: str) -> None:
    def answers(session: Any, texts: Sequence[str]) -> Any:
        listed = ", ".join(texts)
        frame = session.sql(f"SELECT k, {listed} FROM same_rows WHERE k > rand() ORDER BY k")
        try:
            return frame.dtypes, [column.to_pylist() for column in frame.toArrow().columns]
        except (PySparkException, Py4JJavaError):
            return frame.dtypes, "fails"

    ours, theirs = query_session(spark), spark.newSession()
    for session in (ours, theirs):
        session.conf.set("spark.sql.codegen.wholeStage", generated)
        session.conf.set("spark.sql.optimizer.excludedRules", _LOCAL)
        # Not of rows that are there when it is planned: those are computed without any code.
        session.sql(f"SELECT * FROM {ROWS}").repartition(1).createOrReplaceTempView("same_rows")
    for place in range(0, len(SAME), SAME_PER_QUERY):
        some = SAME[place : place + SAME_PER_QUERY]
        types, columns = answers(theirs, some)
        our_types, our_columns = answers(ours, some)
        assert "fails" not in (columns, our_columns), some
        for number, text in enumerate(some, 1):
            assert our_types[number] == types[number], text
            assert our_columns[number] == columns[number], text
        assert our_columns[0] == columns[0] == [1, 2, 3, 4, 5]
    for text in FAIL_AS_WELL:
        types, failed = answers(theirs, [text])
        assert failed == "fails", text
        assert answers(ours, [text]) == (types, failed), text


_LOCAL = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
