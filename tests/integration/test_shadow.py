"""The shadow PostgreSQL, run: what it shows, and what no client can do there."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.adapter.shadow import bootstrap
from headwater.adapter.shadow.catalog_names import PG_CATALOG
from headwater.adapter.shadow.errors import AnswerTooLarge, PostgresRejected
from headwater.adapter.shadow.objects import Column, Relation, Schema
from headwater.adapter.shadow.shadow import Shadow
from headwater.adapter.sql.reserved import RESERVED
from headwater.testing.shadow_directory import shadow_directory
from tests.integration.shadow_world import OBJECTS, SPARK, M, T, V, oid, rows

pytestmark = pytest.mark.server

RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "unit/adapter_shadow/recorded_queries.json").read_text()
)


@pytest.fixture(scope="module")
def shadow() -> Iterator[Shadow]:
    with shadow_directory() as directory, Shadow(directory) as running:
        running.mirror(OBJECTS)
        yield running


def test_it_listens_on_no_port(shadow: Shadow) -> None:
    assert rows(shadow, "show listen_addresses") == [("",)]


def test_reserved_words_are_postgresqls(shadow: Shadow) -> None:
    listed = rows(shadow, "SELECT word FROM pg_get_keywords() WHERE catcode IN ('R', 'T')")
    assert {word for (word,) in listed} == RESERVED


# --- what it shows --------------------------------------------------------------------------------


SURROUNDINGS = {
    "PGPORT": "1",
    "PGDATA": "nowhere",
    "PGOPTIONS": "-c search_path=nowhere",
    "PGUSER": "nobody",
    "PGDATABASE": "nothing",
    "PGCLIENTENCODING": "LATIN1",
}


def test_mirroring_again_does_nothing_and_a_change_remakes_what_depends_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """… under a path too long for a socket, in an environment meant for other PostgreSQLs."""
    for name, value in SURROUNDINGS.items():
        monkeypatch.setenv(name, value)
    with shadow_directory() as directory, Shadow(directory / ("long" * 30)) as own:
        assert rows(own, "select current_schema(), 'é'") == [("public", "é")]
        assert len(own.mirror(OBJECTS)) == len(OBJECTS)
        assert own.mirror(OBJECTS) == ()
        view = oid(own, "v")
        # A comment on the materialized view: nothing else is touched.
        commented = replace(M, comment="counts")
        assert own.mirror((*OBJECTS[:4], commented, SPARK)) == (M.key,)
        assert oid(own, "v") == view
        # Another column of the table: the views over it are made again.
        wider = replace(T, columns=(*T.columns, Column("z", "date")))
        assert own.mirror((*OBJECTS[:2], wider, V, commented, SPARK)) == (T.key, V.key, M.key)
        assert own.mirror((Schema("public"), wider)) == ()
        assert rows(own, "select to_regclass('m')") == [(None,)]
        assert rows(own, "select nspname from pg_namespace where nspname = 'sales'") == []
        assert own.mirror(()) == ()
        assert rows(own, "select to_regclass('t')") == [(None,)]


def test_a_definition_is_one_query_and_runs_as_nobody_special(shadow: Shadow) -> None:
    for definition in (
        "SELECT 1 AS x; DROP TABLE public.t",
        "SELECT 1 AS x) ; DROP TABLE public.t --",
        "SELECT length(pg_read_file('postgresql.conf')) AS x",
    ):
        bad = Relation("public", "bad", "materialized view", (Column("x", "integer"),), definition)
        assert shadow.mirror((*OBJECTS, bad)) == (bad.key,)
        assert oid(shadow, "t") is not None
        assert rows(
            shadow,
            "select atttypid::regtype from pg_attribute where attname = 'x'"
            " and attrelid = 'bad'::regclass",
        ) == [("integer",)]
    shadow.mirror(OBJECTS)


def test_a_definition_with_a_percent_sign_is_shown(shadow: Shadow) -> None:
    definition = "SELECT a % 2 AS x FROM t WHERE 'a%' LIKE '%s'"
    odd = Relation("public", "odd", "view", (Column("x", "integer"),), definition)
    shadow.mirror((*OBJECTS, odd))
    ((shown,),) = rows(shadow, "select pg_get_viewdef('odd'::regclass)")
    assert "% 2" in str(shown)
    assert "'%s'" in str(shown)
    shadow.mirror(OBJECTS)


def test_clients_see_the_catalog_before_or_after_a_change_and_never_between(
    shadow: Shadow,
) -> None:
    pair = tuple(
        Relation("public", name, "table", (Column("a", "integer"),)) for name in ("one", "two")
    )
    seen: list[str | None] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            ((count,),) = rows(
                shadow, "select count(*) from pg_class where relname in ('one', 'two')"
            )
            seen.append(count)

    readers = [threading.Thread(target=look) for _ in range(4)]
    for reader in readers:
        reader.start()
    for _ in range(10):
        shadow.mirror((*OBJECTS, *pair))
        shadow.mirror(OBJECTS)
    done.set()
    for reader in readers:
        reader.join()
    assert seen
    assert set(seen) <= {"0", "2"}


def test_keys_comments_and_types_are_there(shadow: Shadow) -> None:
    assert rows(
        shadow,
        "select attname, format_type(atttypid, atttypmod), attnotnull::text from pg_attribute"
        " where attrelid = 't'::regclass and attnum > 0 order by attnum",
    ) == [
        ("a", "integer", "true"),
        ("b", "text", "false"),
        ("n", "numeric(12,2)", "false"),
        ("at", "timestamp with time zone", "false"),
    ]
    assert rows(
        shadow,
        "select constraint_type from information_schema.table_constraints"
        " where table_name = 't' and constraint_name not like '%not_null' order by 1",
    ) == [("PRIMARY KEY",), ("UNIQUE",)]
    assert rows(shadow, "select obj_description('t'::regclass, 'pg_class')") == [("it's a table",)]
    assert rows(shadow, "select relispopulated::text from pg_class where relname = 'm'") == [
        ("false",)
    ]
    # What dbt asks: which view depends on which relation.
    assert rows(
        shadow,
        "select distinct d.refobjid::regclass::text from pg_depend d join pg_rewrite r"
        " on r.oid = d.objid where r.ev_class = 'm'::regclass and d.refobjid <> r.ev_class"
        " and d.refclassid = 'pg_class'::regclass",
    ) == [("v",)]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (r"\d", ["public | m    | materialized view | headwater", "public | t    | table "]),
        (r"\dt", ["public | t    | table | headwater"]),
        (r"\dv", ["public | v    | view | headwater"]),
        (r"\dm", ["public | m    | materialized view | headwater"]),
        (
            r"\d t",
            [
                "n      | numeric(12,2)            |",
                '"t_pkey" PRIMARY KEY, btree (a)',
                '"t_b" btree (b)',
                '"t_b_n_key" UNIQUE CONSTRAINT, btree (b, n)',
            ],
        ),
        (r"\d+ v", ["SELECT a,", "FROM t;"]),
        (r"\d m", ['"m_b" UNIQUE, btree (b)']),
        (r'\d sales."Odd Name"', ["x      | bigint"]),
        (r"\l", ["headwater | headwater |", "(1 row)"]),
        (r"\dn", ["public | headwater", "sales  | headwater"]),
        (r"\df", ["(0 rows)"]),
        (r"\du", [" headwater | \n\n"]),
        ("SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_'", ["(1 row)"]),
        ("SELECT usename FROM pg_user", [" headwater", "(1 row)"]),
    ],
)
def test_psql_shows_what_its_user_expects(
    shadow: Shadow, command: str, expected: list[str]
) -> None:
    psql = shadow.instance._binaries / "psql"
    sockets = str(shadow.instance._sockets)
    shown = subprocess.run(
        [psql, "-X", "-h", sockets, "-U", bootstrap.READER, bootstrap.DATABASE, "-c", command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    for line in expected:
        assert line in shown.stdout, shown.stdout
    assert "pg_headwater" not in shown.stdout


def test_every_recorded_catalog_query_is_answered(shadow: Shadow) -> None:
    for query in RECORDED:
        if query["catalog"]:
            shadow.run_catalog_query(query["sql"], query.get("parameters", ()))


def test_the_names_of_the_catalog_are_those_of_this_version(shadow: Shadow) -> None:
    found = rows(
        shadow,
        "select relname from pg_class where relkind in ('r', 'v')"
        " and relnamespace = 'pg_catalog'::regnamespace",
    )
    assert {name for (name,) in found} == PG_CATALOG


# --- what it analyses -----------------------------------------------------------------------------


def test_analysis_gives_names_types_and_parameters(shadow: Shadow) -> None:
    found = shadow.analyse("select a / 2 as half, sum(n), $1 from t where b = $2 group by a", [23])
    assert [(c.name, c.oid) for c in found.columns] == [
        *(("half", 23), ("sum", 1700), ("?column?", 23)),
    ]
    assert found.parameters == (23, 25)
    assert shadow.analyse("select n from t").columns[0].modifier == (12 << 16 | 2) + 4
    assert shadow.analyse("insert into t values ($1, $2)").parameters == (23, 25)


@pytest.mark.parametrize(
    ("sql", "sqlstate", "position"),
    [
        ("selec 1", "42601", 1),
        ("select a, zz from t", "42703", 11),
        ("select * from tt", "42P01", 15),
        ("select a + b from t", "42883", 10),
        ("select a from t group by b", "42803", 8),
        ("select 'x'::int", "22P02", 8),
        ("select 1; select 2", "42601", None),
        ("select 'ä', zz", "42703", 13),
        ("select '\0'", "22021", None),
    ],
)
def test_an_error_is_postgresqls_own(
    shadow: Shadow, sql: str, sqlstate: str, position: int | None
) -> None:
    with pytest.raises(PostgresRejected) as refused:
        shadow.analyse(sql)
    assert (refused.value.sqlstate, refused.value.position) == (sqlstate, position)


# --- what no client can do ------------------------------------------------------------------------

DENIED = "42501"
READ_ONLY = "25006"


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        # Files and programs.
        ("select pg_read_file('/etc/passwd')", DENIED),
        ("select pg_read_binary_file('PG_VERSION')", DENIED),
        ("select pg_ls_dir('/')", DENIED),
        ("select pg_stat_file('/etc/passwd')", DENIED),
        ("copy t to '/tmp/x'", DENIED),
        ("copy t from '/etc/passwd'", DENIED),
        ("copy t to program 'id'", DENIED),
        ("copy (select 1) to program 'id'", DENIED),
        ("select lo_import('/etc/passwd')", DENIED),
        ("select lo_export(1, '/tmp/x')", DENIED),
        ("load 'plpgsql'", None),
        ("create extension dblink", None),
        # Writes.
        ("insert into t values (1)", READ_ONLY),
        ("delete from t", READ_ONLY),
        ("with d as (delete from t returning a) select * from d", READ_ONLY),
        ("drop table t", READ_ONLY),
        ("create table x (a int)", READ_ONLY),
        ("create temp table x (a int)", READ_ONLY),
        ("select * into x from t", READ_ONLY),
        ("select set_config('transaction_read_only', 'off', false)", "25001"),
        ("select lo_create(0)", DENIED),
        ("refresh materialized view m", READ_ONLY),
        ("comment on table t is 'x'", READ_ONLY),
        ("select * from t for update", READ_ONLY),
        # Programs of its own, and text run from inside.
        ("do $$ begin end $$", DENIED),
        ("create function f() returns int language sql as 'select 1'", READ_ONLY),
        ("select query_to_xml('drop table t', true, true, '')", DENIED),
        # Waiting, locking, signalling.
        ("select pg_sleep(100)", DENIED),
        ("select pg_sleep_for('1 hour')", DENIED),
        ("select pg_advisory_lock(1)", DENIED),
        ("select pg_terminate_backend(pg_backend_pid())", DENIED),
        ("select pg_cancel_backend(1)", DENIED),
        ("notify x", None),
        # Roles.
        ("set role headwater", DENIED),
        ("set role headwater_admin", DENIED),
        ("set session authorization headwater_admin", DENIED),
        ("select set_config('role', 'headwater_admin', false)", DENIED),
        ("alter role headwater_reader superuser", READ_ONLY),
        ("grant headwater_admin to headwater_reader", None),
        # What is not for clients.
        ("select * from pg_headwater.mirrored", DENIED),
        ("select * from pg_authid", DENIED),
        ("select * from pg_shadow", DENIED),
        ("show data_directory", DENIED),
        ("alter system set fsync = off", DENIED),
        ("select * from pg_stat_activity", DENIED),
        # Memory and disk.
        ("select repeat('x', 1000000000)", "53200"),
        ("select count(*) from generate_series(1, 100000000000)", "53400"),
        ("select 1; drop table t", "42601"),
    ],
)
def test_forbidden(shadow: Shadow, sql: str, sqlstate: str | None) -> None:
    with pytest.raises(PostgresRejected) as refused:
        shadow.run_catalog_query(sql)
    assert sqlstate is None or refused.value.sqlstate == sqlstate, refused.value


def test_each_lock_would_hold_alone(shadow: Shadow) -> None:
    """Read-only mode and rights are two locks: without the first, the second still holds."""
    with shadow.instance.connect(bootstrap.READER) as reader:
        reader.execute("set default_transaction_read_only = off")
        for sql in (
            "insert into t values (1)",
            "drop table t",
            "create table x (a int)",
            "create temp table x (a int)",
            "create schema x",
            "refresh materialized view m",
            "comment on table t is 'x'",
            "create function f() returns int language sql as 'select 1'",
            "copy t from '/etc/passwd'",
            "begin; lock table t",
            "alter role headwater_reader superuser",
            "create database x",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(sql)
            reader.execute("rollback")


def test_other_databases_are_closed(shadow: Shadow) -> None:
    for role, database in (
        (bootstrap.READER, "template1"),
        (bootstrap.READER, "template0"),
        (bootstrap.OWNER, bootstrap.DATABASE),
    ):
        with pytest.raises(psycopg.OperationalError):
            shadow.instance.connect(role, dbname=database)


def test_a_query_ends_at_the_timeout_whatever_it_sets(shadow: Shadow) -> None:
    with shadow.instance.connect(bootstrap.ADMIN) as admin:
        admin.execute("alter role headwater_reader set statement_timeout = 200")
    busy = "(select count(*) from generate_series(1, 30000) a, generate_series(1, 30000) b)"
    try:
        own = Shadow(shadow.instance.directory)
        own.instance = shadow.instance
        for sql in (
            f"select {busy}",
            f"select set_config('statement_timeout', '0', false), {busy}",
        ):
            with pytest.raises(PostgresRejected) as refused:
                own.run_catalog_query(sql)
            assert refused.value.sqlstate == "57014"
    finally:
        own._sessions.close()
        with shadow.instance.connect(bootstrap.ADMIN) as admin:
            admin.execute("alter role headwater_reader set statement_timeout = 5000")


def test_nothing_a_client_sets_stays(shadow: Shadow) -> None:
    before = rows(shadow, "show statement_timeout")
    shadow.run_catalog_query(
        "select set_config('statement_timeout', '0', false),"
        " set_config('search_path', 'sales', false), set_config('headwater.x', 'y', false)"
    )
    for sql in ("set search_path = sales", "begin", "reset role", "discard all"):
        with pytest.raises(PostgresRejected, match="returns rows"):
            shadow.run_catalog_query(sql)
    for _ in range(10):  # every session, in turn
        assert rows(shadow, "show statement_timeout") == before
        assert rows(shadow, "select current_schema(), current_user, session_user") == [
            ("public", bootstrap.READER, bootstrap.READER)
        ]


def test_an_answer_without_rows_has_its_columns(shadow: Shadow) -> None:
    asked = "select relname, oid, relnatts, reltype::bigint as n from pg_class where relname = $1"
    some, none = (shadow.run_catalog_query(asked, [name]) for name in ("t", "no such thing"))
    assert len(some.rows) == 1
    assert none.rows == ()
    assert [column.name for column in none.columns] == ["relname", "oid", "relnatts", "n"]
    assert none.columns == some.columns


def test_a_huge_answer_is_given_up(shadow: Shadow) -> None:
    with pytest.raises(AnswerTooLarge):
        shadow.run_catalog_query("select * from generate_series(1, 200000)")
    with pytest.raises(AnswerTooLarge):
        shadow.run_catalog_query("select repeat('x', 1000000) from generate_series(1, 1000)")
    assert rows(shadow, "select 1") == [("1",)]
