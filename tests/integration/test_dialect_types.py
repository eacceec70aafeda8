"""The dialect against PostgreSQL alone: names, types and refusals, for the whole corpus."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headwater.adapter.dialect import to_spark
from headwater.adapter.dialect.literals import string
from headwater.adapter.errors import AdapterError
from tests.unit.adapter_dialect.corpus import EXPRESSIONS
from tests.unit.adapter_dialect.failing_corpus import FAILING
from tests.unit.adapter_dialect.postgres_side import ask, loaded
from tests.unit.adapter_dialect.query_corpus import QUERIES
from tests.unit.adapter_dialect.relations import RELATIONS

pytestmark = pytest.mark.server

TEXT, VARCHAR = 25, 1043
SEED = random.SystemRandom().randrange(1_000_000)


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection[Any]]:
    print(f"seed {SEED}")
    with loaded(SEED) as connection:
        yield connection


def test_names_and_types_are_postgresqls(postgres: psycopg.Connection[Any]) -> None:
    written = [f"select {e} from x" for e in EXPRESSIONS]
    different = []
    for sql in (*written, *(q.lstrip("=") for q in QUERIES)):
        names, oids, _ = ask(postgres, sql)
        oids = [TEXT if oid == VARCHAR else oid for oid in oids]  # Clients see text.
        ours = to_spark(sql, RELATIONS).columns
        if [c.name for c in ours] != names or [c.type.oid for c in ours] != oids:
            different.append((sql, names, oids, ours))
    assert not different


def test_strings_with_escapes_are_the_same_strings(postgres: psycopg.Connection[Any]) -> None:
    chance = random.Random(SEED)
    pieces = [
        "a",
        "''",
        "\\'",
        "\\\\",
        "\\n",
        "\\t",
        "\\x41",
        "\\101",
        "\\u00e9",
        "\\U0001F600",
        "%",
        "$",
        "é",
    ]
    for _ in range(100):
        sql = f"select E'{''.join(chance.choices(pieces, k=chance.randint(0, 8)))}'"
        ((text,),) = ask(postgres, sql)[2]
        assert to_spark(sql, {}).text == f"SELECT {string(text)} AS `?column?`", sql


def test_what_fails_there_is_taken_here(postgres: psycopg.Connection[Any]) -> None:
    """It fails when it runs, on both; see tests/spark/test_dialect.py."""
    for sql in FAILING:
        with pytest.raises(psycopg.Error):
            ask(postgres, sql)
        to_spark(sql, RELATIONS)


@pytest.mark.parametrize(
    "sql",
    [
        "select zz from x",
        "select id from x, y",
        "select i4 + s from x",
        "select i4 = s from x",
        "select upper(i4) from x",
        "select round(f, 2) from x",
        "select max(b) from x",
        "select id from x order by 2",
        "select id from x group by 2",
        "select i4 = 'seven' from x",
        "select '2024-02-30'::date",
        "select d > 'tomorow' from x",
        "select q.id from x",
        "select * from nowhere",
        "select 1 union select 1, 2",
        "select distinct on (g) id from x order by id",
        "select case when b then 1 else 'x' end from x",
        "select 'a' + 1",
        "select i4 from x where i2 = '99999'",
    ],
)
def test_a_mistake_is_a_mistake_in_both(postgres: psycopg.Connection[Any], sql: str) -> None:
    with pytest.raises(psycopg.Error) as theirs:
        ask(postgres, sql)
    with pytest.raises(AdapterError) as ours:
        to_spark(sql, RELATIONS)
    if ours.value.sqlstate != "0A000":
        assert ours.value.sqlstate == theirs.value.sqlstate
        if ours.value.position is not None and theirs.value.diag.statement_position is not None:
            # An operator's place is the operator to PostgreSQL and its first operand to us.
            assert ours.value.position <= int(theirs.value.diag.statement_position)
