"""Each decision on meaning, asked of a real PostgreSQL and of a real Spark: one answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headwater.collection.meaning import MEANINGS, Meaning
from headwater.collection.types import by_postgres, by_spark
from headwater.testing.servers import postgres_server

pytestmark = [pytest.mark.spark, pytest.mark.server]

AGGREGATES = ("sum", "count")
HALVES = ["-2.5", "-1.5", "-0.5", "0.5", "1.5", "2.5", "0.49999999", "7", None]
SAMPLES: dict[str, list[str | None]] = {
    "smallint": ["-7", "-3", "-1", "2", "3", "7", "32767", None],
    "integer": ["-7", "-3", "-1", "2", "3", "7", "2147483647", None],
    "bigint": ["-7", "-3", "-1", "2", "3", "9223372036854775807", "9223372036854775806", None],
    "double precision": HALVES,
    "real": HALVES,
    "numeric(38,9)": HALVES,
    "date": ["2024-02-28", "2024-03-01", "1969-12-31", None],
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection[Any]]:
    with postgres_server() as url, psycopg.connect(url) as connection:
        yield connection


def _literal(value: str | None, type_: str, spark: bool) -> str:
    named = by_postgres(type_).spark if spark else type_
    return f"cast({'null' if value is None else repr(value)} as {named})"


def _rows(meaning: Meaning, spark: bool) -> list[list[str]]:
    first = meaning.operands[0]
    values = [[value] for value in SAMPLES[first]]
    if len(meaning.operands) == 2:
        values = [[a, b] for a in SAMPLES[first] for b in SAMPLES[meaning.operands[1]]]
    return [
        [_literal(value, type_, spark) for value, type_ in zip(row, meaning.operands, strict=True)]
        for row in values
    ]


def _query(meaning: Meaning, spark: bool) -> str:
    text = meaning.sql if spark else meaning.construct
    rows = _rows(meaning, spark)
    if text_is_aggregate(meaning):
        union = " union all ".join(f"select {row[0]} as x" for row in rows)
        return f"select {text.format('x')} from ({union}) t"
    cells = ", ".join(f"{text.format(*row)} as c{n}" for n, row in enumerate(rows))
    return f"select {cells}"


def text_is_aggregate(meaning: Meaning) -> bool:
    return meaning.construct.startswith(AGGREGATES)


@pytest.mark.parametrize("meaning", MEANINGS, ids=lambda m: f"{m.construct} {m.operands[0]}")
def test_both_say_the_same(spark: Any, postgres: psycopg.Connection[Any], meaning: Meaning) -> None:
    found = spark.sql(_query(meaning, spark=True))
    types = {by_spark(field.dataType.simpleString()) for field in found.schema}
    assert types == {by_postgres(meaning.result)}
    row = postgres.execute(_query(meaning, spark=False).encode()).fetchone()
    assert row is not None
    assert list(found.collect()[0]) == list(row)


def test_what_does_not_fit_is_an_error_in_both(spark: Any) -> None:
    for text in ("1 div 0", "cast(rint(2147483647.5D) as int)", "2147483647 + 1"):
        with pytest.raises(Exception, match=r"DIVIDE_BY_ZERO|OVERFLOW"):
            spark.sql(f"select {text}").collect()
