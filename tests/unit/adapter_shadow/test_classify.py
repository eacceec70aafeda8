"""What goes to the shadow, judged on what clients really send (recorded) and on near misses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.adapter.shadow.classify import is_catalog_query

RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "recorded_queries.json").read_text()
)


def test_every_recorded_query_is_known_for_what_it_is() -> None:
    """psql 15 and 18, SQLAlchemy 2.1 (psycopg2, psycopg), asyncpg 0.32, dbt-postgres 1.11."""
    wrong = [r for r in RECORDED if is_catalog_query(r["sql"]) != r["catalog"]]
    assert not wrong, "\n".join(f"{r['client']}: {r['sql'][:200]}" for r in wrong)
    assert {r["client"].split()[0] for r in RECORDED if r["catalog"]} == {
        *("psql", "sqlalchemy", "asyncpg", "dbt")
    }


@pytest.mark.parametrize(
    "sql",
    [
        "select * from pg_class",
        "SELECT * FROM PG_CATALOG.PG_CLASS",
        'select * from "headwater".INFORMATION_SCHEMA.columns',
        "select 't'::regclass::oid",
        "select pg_catalog.format_type(23, null)",
        "select current_schema(), 1",
        "select has_table_privilege('t', 'select')",
        "with t as (select oid from pg_class) select * from t",
        "(select 1 from pg_type) union (select 2 from pg_class);",
        "/* a comment */ -- and another\n select version()",
        "table pg_class",
        "select * from unnest(array[1]) u, pg_class",
    ],
)
def test_questions_about_the_catalog(sql: str) -> None:
    assert is_catalog_query(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "select * from t",
        "select count(*) from t, pg_class",
        "select * from t where exists (select from pg_class where relname = t.name)",
        # In one place a WITH name, in the other a relation of ours.
        "select * from (with t as (select oid from pg_class) select * from t) x, t",
        "select * from public.pg_class",
        'select * from "PG_CLASS"',
        "select * from pg_of_mine",
        "select * into x from pg_class",
        "select * from pg_class for update",
        "with d as (delete from pg_class returning 1) select * from d",
        "insert into t select oid from pg_class",
        "select 1 from pg_class; drop table t",
        "show server_version",
        "set role headwater",
        "copy pg_class to stdout",
        "explain select * from pg_class",
        "select (((",
        "",
        "select upper('pg_class')",
    ],
)
def test_everything_else(sql: str) -> None:
    assert not is_catalog_query(sql)
