"""The language: a table of texts and what they mean, and a table of texts that are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.materialization_statements import (
    Binding,
    CreateMaterialization,
    SetMaterialization,
)
from headwater.adapter.sql.parse import parse, parse_with_text
from headwater.adapter.sql.statements import (
    AsOf,
    Assignment,
    Begin,
    ColumnDef,
    Commit,
    Constant,
    CreateMaterializedView,
    CreateTable,
    CreateTableAs,
    Delete,
    Drop,
    DropSchema,
    ExplainTimestamp,
    Insert,
    OnConflict,
    Refresh,
    Release,
    Returned,
    Rollback,
    RollbackTo,
    Savepoint,
    Select,
    SelectCatalog,
    SelectSession,
    SessionColumn,
    SetSchema,
    SetVariable,
    Show,
    ShowTables,
    Statement,
    Truncate,
    Update,
)

UNDERSTOOD: list[tuple[str, Statement]] = [
    # --- CREATE TABLE
    (
        "CREATE TABLE t (a int)",
        CreateTable("t", (ColumnDef("a", pa.int32()),)),
    ),
    (
        'create table if not exists public.T (K bigint primary key, "V" text not null);',
        CreateTable(
            "public.t",
            (ColumnDef("k", pa.int64(), False), ColumnDef("V", pa.string(), False)),
            key=("k",),
            if_not_exists=True,
        ),
    ),
    (
        "create table headwater.public.t (a int, b text, c int null, primary key (b, a))",
        CreateTable(
            "public.t",
            (
                ColumnDef("a", pa.int32(), False),
                ColumnDef("b", pa.string(), False),
                ColumnDef("c", pa.int32()),
            ),
            key=("b", "a"),
        ),
    ),
    (
        (
            "create table t (a int2, b int4, c int8, d bool, e varchar, f float4, g float8,"
            " h numeric(10,2), i numeric, j date, k timestamp, l timestamptz, m bytea,"
            " n double precision, o real, p numeric(5), q timestamp with time zone, r float(10))"
        ),
        CreateTable(
            "t",
            tuple(
                ColumnDef(name, arrow)
                for name, arrow in zip(
                    "abcdefghijklmnopqr",
                    (
                        pa.int16(),
                        pa.int32(),
                        pa.int64(),
                        pa.bool_(),
                        pa.string(),
                        pa.float32(),
                        pa.float64(),
                        pa.decimal128(10, 2),
                        pa.decimal128(38, 9),
                        pa.date32(),
                        pa.timestamp("us"),
                        pa.timestamp("us", "UTC"),
                        pa.binary(),
                        pa.float64(),
                        pa.float32(),
                        pa.decimal128(5, 0),
                        pa.timestamp("us", "UTC"),
                        pa.float32(),
                    ),
                    strict=True,
                )
            ),
        ),
    ),
    # --- INSERT and DELETE
    ("insert into t values (1)", Insert("t", None, ((1,),))),
    (
        "INSERT INTO t (a, \"B\") VALUES (-1, 'it''s'), (NULL, ''), (+2, ';')",
        Insert("t", ("a", "B"), ((-1, "it's"), (None, ""), (2, ";"))),
    ),
    (
        "insert into t values (1.50, 1e3, true, FALSE, ((7)), $$a'b$$, E'a\\tb', 'a\\tb')",
        Insert(
            "t",
            None,
            ((Decimal("1.50"), Decimal("1e3"), True, False, 7, "a'b", "a\tb", "a\\tb"),),
        ),
    ),
    (
        (
            "insert into t values ('2026-01-02'::date, date '2026-01-02', cast('5' as int),"
            " -5::int, '2026-01-02 03:04:05.6'::timestamp, timestamptz '2026-01-02 03:04+02',"
            " '\\x00ff'::bytea, '1.5'::float8, 5::text, null::int, '2.345'::numeric(3,2))"
        ),
        Insert(
            "t",
            None,
            (
                (
                    date(2026, 1, 2),
                    date(2026, 1, 2),
                    5,
                    -5,
                    datetime.fromisoformat("2026-01-02T03:04:05.600000"),
                    datetime(2026, 1, 2, 1, 4, tzinfo=UTC),
                    b"\x00\xff",
                    1.5,
                    "5",
                    None,
                    Decimal("2.35"),
                ),
            ),
        ),
    ),
    (
        "insert into t values (-12345678901234567890123456789012345678.9)",
        Insert("t", None, ((Decimal("-12345678901234567890123456789012345678.9"),),)),
    ),
    ("delete from t", Delete("t")),
    ("delete from t as of 5", Delete("t", as_of=5)),
    (
        "update t set a = 1 where b = 2 returning a as of as of '1970-01-01 00:00:01Z'",
        Update(
            "t",
            (Assignment("a", Constant(1)),),
            "b = 2",
            (Returned("a", "of"),),
            as_of=1_000,
        ),
    ),
    (
        "insert into t select a from u on conflict do nothing as of 7",
        Insert("t", None, (), Select("SELECT a FROM u", None, ("u",)), OnConflict(()), as_of=7),
    ),
    ("DELETE FROM T WHERE A = 1 and b is null", Delete("t", "A = 1 AND b IS NULL")),
    # --- queries
    ("select * from T", Select("select * from T", None, ("t",))),
    ("SELECT 1 AS OF 12", Select("SELECT 1", AsOf(12), ())),
    ("select a as of from t", Select("select a as of from t", None, ("t",))),
    ("select a as of from t as of 7", Select("select a as of from t", AsOf(7), ("t",))),
    ("select * from t as of '7'", Select("select * from t", AsOf(7), ("t",))),
    (
        "(select * from t) AS OF TIMESTAMP '1970-01-01 00:00:01.0019'",
        Select("(select * from t)", AsOf(1001), ("t",)),
    ),
    ("select 1 as of at least 3", Select("select 1", AsOf(3, at_least=True), ())),
    (
        "explain timestamp for select * from t as of 5",
        ExplainTimestamp(Select("select * from t", AsOf(5), ("t",))),
    ),
    ("values (1), (2)", Select("values (1), (2)", None, ())),
    (
        "select 1 union all select a from t -- as of 5",
        Select("select 1 union all select a from t", None, ("t",)),
    ),
    (
        "with t as (select * from t), x as (select 1) select * from t join x on true",
        Select(
            "with t as (select * from t), x as (select 1) select * from t join x on true",
            None,
            ("t",),
        ),
    ),
    (
        'select * from a, (select * from public.b) s where exists (select 1 from "C")',
        Select(
            'select * from a, (select * from public.b) s where exists (select 1 from "C")',
            None,
            ("public.b", "C", "a"),
        ),
    ),
    (
        "select * from generate_series(1, 3)",
        Select("select * from generate_series(1, 3)", None, ()),
    ),
    ("select version()", SelectSession((SessionColumn("version", None, "version"),))),
    (
        "select pg_catalog.version() as v, current_user, current_setting('TimeZone')",
        SelectSession(
            (
                SessionColumn("version", None, "v"),
                SessionColumn("current_user", None, "current_user"),
                SessionColumn("current_setting", "timezone", "current_setting"),
            )
        ),
    ),
    ("select version(), 1", SelectCatalog("select version(), 1")),
    ("set local a = 1", SetVariable("a", "1", local=True)),
    ("set my.own to 'x'", SetVariable("my.own", "x")),
    ('savepoint "A"', Savepoint("A")),
    ("rollback to savepoint a", RollbackTo("a")),
    ("rollback work to a", RollbackTo("a")),
    ("release a", Release("a")),
    ("REFRESH MATERIALIZED VIEW CONCURRENTLY public.m", Refresh("public.m")),
    (
        "select set_config('search_path', '', false)",
        SelectSession((SessionColumn("set_config", "search_path", "set_config", ""),)),
    ),
    (
        "create table s.t (a, b) as (select 1, 2) with no data",
        CreateTableAs("s.t", Select("(select 1, 2)", None, ()), ("a", "b"), with_data=False),
    ),
    ("truncate table s.t, u restart identity cascade", Truncate(("s.t", "u"))),
    ('drop schema if exists a, "B.c" cascade', DropSchema(("a", "B.c"), True, True)),
    ("alter table s.t set schema r", SetSchema("table", "s.t", "r")),
    ('select * from s."a.b"', Select('select * from s."a.b"', None, ('s."a.b"',))),
    ("set search_path to 'A', b", SetVariable("search_path", "'A', b")),
    # --- views and materializations
    (
        'CREATE MATERIALIZED VIEW IF NOT EXISTS "public"."v" AS select k, sum(x) from t group by k',
        CreateMaterializedView("public.v", "select k, sum(x) from t group by k", ("t",), True),
    ),
    (
        "CREATE MATERIALIZATION m INTO SQLITE (PATH '/x.db') (totals AS \"Totals\" KEY (k))",
        CreateMaterialization(
            "m", "sqlite", {"PATH": "/x.db"}, (Binding("totals", "Totals", ("k",)),)
        ),
    ),
    (
        "create materialization m into sqlite (path 'x') (a as b key (k)) with (shards 2)",
        CreateMaterialization(
            "m", "sqlite", {"PATH": "x"}, (Binding("a", "b", ("k",)),), settings={"SHARDS": "2"}
        ),
    ),
    (
        "alter materialization m set (shards = 4)",
        SetMaterialization("m", {"SHARDS": "4"}),
    ),
    (
        (
            "create materialization if not exists M into sqlite (path 'a''b')"
            ' (public.A as a key (K, "L"), b as bb key (k));'
        ),
        CreateMaterialization(
            "m",
            "sqlite",
            {"PATH": "a'b"},
            (Binding("public.a", "a", ("k", "L")), Binding("b", "bb", ("k",))),
            True,
        ),
    ),
    (
        (
            "create materialization m into postgres (dsn 'host=x', schema 's')"
            ' (a as "s.a" key (k) reduce (n SUM, t lastwritewins), a as log key (k) delta updates)'
        ),
        CreateMaterialization(
            "m",
            "postgres",
            {"DSN": "host=x", "SCHEMA": "s"},
            (
                Binding("a", "s.a", ("k",), (("n", "sum"), ("t", "lastWriteWins"))),
                Binding("a", "log", ("k",), delta_updates=True),
            ),
        ),
    ),
    ("drop table t", Drop("table", "t")),
    ("drop table if exists T restrict", Drop("table", "t", True)),
    ("drop materialized view v", Drop("materialized view", "v")),
    ("drop materialization m", Drop("materialization", "m")),
    # --- sessions
    ("show server_version", Show("server_version")),
    ("SHOW TimeZone", Show("timezone")),
    ("show time zone", Show("timezone")),
    ("show transaction isolation level", Show("transaction_isolation")),
    ("show tables", ShowTables()),
    ("set client_encoding to 'UTF8'", SetVariable("client_encoding", "UTF8")),
    ("SET SESSION DateStyle = ISO", SetVariable("datestyle", "ISO")),
    ("set search_path = a, public", SetVariable("search_path", "a, public")),
    ("set extra_float_digits = 3", SetVariable("extra_float_digits", "3")),
    ("set time zone 'UTC'", SetVariable("timezone", "UTC")),
    ("set a to default", SetVariable("a", None)),
    ("reset a", SetVariable("a", None)),
    ("begin", Begin()),
    ("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ", Begin()),
    ("start transaction", Begin()),
    ("commit work", Commit()),
    ("end", Commit()),
    ("rollback", Rollback()),
    ("abort transaction", Rollback()),
]

REFUSED: list[tuple[str, str, int | None]] = [
    # --- not our language, with the place of the complaint
    ("foo bar", "42601", 1),
    ("select 1 2", "42601", 10),
    ("select * from t where", "42601", 17),
    ("select * from", "42601", 10),
    ("select 1;\n select 1 2", "42601", 21),
    ("select 'open", "42601", None),
    ("select 1 /* open", "42601", None),
    ("create table t (a int, b)", "42601", None),
    ("create table t", "42601", None),
    ("drop table", "42601", 11),
    ("drop table t u", "42601", 14),
    ("drop table User", "42601", 12),
    ("create materialized view order as select 1", "42601", 26),
    ("create table t (a int, limit int)", "42601", 24),
    ("create table user (a int)", "42601", 14),
    ("create view v (end) as select 1", "42601", 16),
    ("create schema table", "42601", 15),
    ("alter table t rename to table", "42601", 25),
    ("show", "42601", 5),
    ("begin foo", "42601", 7),
    ("set x", "42601", 6),
    ("create materialization m", "42601", 25),
    ("create materialization m into sqlite (path) (a as b key (k))", "42601", 43),
    ("create materialization m into sqlite (path 'x') (a key (k))", "42601", 52),
    ("create materialization m into sqlite (path 'x') (a as b key ())", "42601", 62),
    ("create materialization m into sqlite (path 'x') (a as b key (k)) x", "42601", 66),
    # --- SQL, but not ours
    ("create sequence s", "0A000", 1),
    ("explain analyze select 1", "0A000", None),
    ("update t set (a, b) = (1, 2)", "0A000", None),
    ("update t set a = 1 from u", "0A000", None),
    ("update t set a = 1, a = 2", "42701", None),
    ("insert into t values (1) returning a + 1", "0A000", None),
    ("begin isolation level snapshot", "42601", 23),
    ("copy t from stdin", "0A000", 1),
    ("create temporary table t as select 1", "0A000", 1),
    ("create temp table t (a int)", "0A000", 1),
    ("create table t (a int unique)", "0A000", 17),
    ("create table t (a int references u (b))", "0A000", 17),
    ("create table t (a int, check (a > 0))", "0A000", None),
    ("create table t (a char(10))", "0A000", 17),
    ("create table t (a int[])", "0A000", 17),
    ("create table t (a serial)", "0A000", 17),
    ("create table t (a json)", "0A000", 17),
    ("create table t (a numeric(39, 2))", "0A000", 17),
    ("create table other.public.t (a int)", "0A000", None),
    ("insert into t values (now(), x)", "0A000", None),
    ("insert into t values (1 + (select 1))", "0A000", None),
    ("insert into t select 1 as of at least 5", "0A000", None),
    ("update t set a = 1 as of at least 5", "0A000", None),
    ("delete from t as of 5 as of 6", "42601", 23),
    ("select 1 as of 9223372036854775807", "22008", None),
    ("delete from t using u", "0A000", None),
    ("select a into b from t", "0A000", None),
    ("select * from t for update skip locked", "0A000", None),
    ("select * from (select * from t for update) as s", "0A000", None),
    ("select * from t for update as of 5", "0A000", None),
    ("insert into u select * from t for update", "0A000", None),
    ("with x as (delete from t returning a) select * from x", "0A000", None),
    ("select * from other.public.t", "0A000", None),
    ("select $1", "0A000", None),
    ("create materialized view v as select 1 as of 5", "0A000", None),
    ("create materialized view v (a) as select 1", "0A000", None),
    ("create materialization m into oracle (host 'x') (a as b key (k))", "0A000", None),
    ("create materialization m into sqlite (path 'x') (a as b key (k)) with (x 1)", "42P16", None),
    ("create materialization m into sqlite (path 'x') (a as b key (k)) with (shards 'two')",
     "42P16", None),
    ("alter materialization m set (shards 0)", "42P16", None),
    ("alter materialization m set (shards 2, shards 3)", "42P16", None),
    ("commit and chain", "0A000", None),
    # --- ours, but contradictory
    ("create table t (a foo)", "42704", 17),
    ("create table t (a int, A text)", "42701", 24),
    ("create table t (a int, primary key (b))", "42703", None),
    ("create table t (a int primary key, b int primary key)", "42P16", None),
    ("create table t (a numeric(3, 5))", "42P16", 17),
    ("create materialization m into sqlite (dir 'x') (a as b key (k))", "42P16", None),
    ("create materialization m into sqlite (path 'x') (a as b key (k) reduce (n min))",
     "42P16", None),
    ("create materialization m into sqlite (path 'x') (a as b key (k), c as b key (k))",
     "42P16", None),
    ("create materialization m into sqlite (path 'x') (a as b key (k, k))", "42701", None),
    ("insert into t values ('abc'::int)", "22P02", None),
    ("insert into t values ('40000'::int2)", "22003", None),
    ("insert into t values ('1e999'::float8)", "22003", None),
    ("insert into t values ('x'::date)", "22007", None),
    ("insert into t values ('2026-02-30'::date)", "22008", None),
    ("insert into t values (true::int)", "42804", None),
    ("select 1 as of timestamp 'someday'", "22007", None),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "statement"), UNDERSTOOD, ids=[sql for sql, _ in UNDERSTOOD])
def test_understood(sql: str, statement: Statement) -> None:
    assert parse(sql) == (statement,)


@pytest.mark.parametrize(("sql", "sqlstate", "position"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(sql: str, sqlstate: str, position: int | None) -> None:
    with pytest.raises(AdapterError) as refused:
        parse(sql)
    error = refused.value
    assert (error.sqlstate, error.position) == (sqlstate, position)
    assert error.primary[0] == error.primary[0].lower() or error.primary[:2].isupper()
    assert not error.primary.endswith(".")
    assert error.condition.isupper()


def test_several_statements_keep_their_texts() -> None:
    parsed = parse_with_text("begin;; insert into t values (';') ; -- done;\n commit")
    assert [text for _, text in parsed] == ["begin", "insert into t values (';')", "commit"]
    assert [type(statement) for statement, _ in parsed] == [Begin, Insert, Commit]


@pytest.mark.parametrize("sql", ["", " ", ";", "-- nothing", "/* a */ ; /* b */"])
def test_nothing_is_no_statement(sql: str) -> None:
    assert parse(sql) == ()


@pytest.mark.parametrize(
    ("into", "option", "value"),
    [
        ("mysql (host 'h', user 'u', port 3306)", "PORT", "3306"),
        ("redis (url 'redis://h', guarded false)", "GUARDED", "false"),
    ],
)
def test_options_of_an_endpoint_need_no_quotes(into: str, option: str, value: str) -> None:
    (statement,) = parse(f"create materialization m into {into} (a as b key (k))")
    assert isinstance(statement, CreateMaterialization)
    assert statement.options[option] == value


def test_a_statement_cannot_be_changed_through_its_options() -> None:
    (statement,) = parse("create materialization m into sqlite (path 'x') (a as b key (k))")
    assert isinstance(statement, CreateMaterialization)
    with pytest.raises(TypeError):
        statement.options["PATH"] = "y"  # type: ignore[index]
