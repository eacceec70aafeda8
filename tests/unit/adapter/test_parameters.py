"""Parameters become literals by token, never by text."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire.parameters import as_values, bind, count, only_statement
from headwater.adapter.pgwire.portals import Prepared, bound
from headwater.adapter.sql.parse import parse
from headwater.adapter.sql.point import point_read
from headwater.adapter.sql.statements import Insert, Select
from headwater.adapter.sql.templates import filled, is_steady, places
from headwater.adapter.sql.tokens import Source

UNKNOWN, BOOL, INT8, FLOAT8, DATE, NUMERIC, UUID, POINT = 0, 16, 20, 701, 1082, 1700, 2950, 600


def source(sql: str) -> Source:
    found = only_statement(sql)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("sql", "values", "oids", "bound"),
    [
        ("select $1", ["a"], [UNKNOWN], "select 'a'"),
        ("select $1", ["it's; --"], [25], "select 'it''s; --'"),
        ("select $2, $1, $2", ["a", "5"], [UNKNOWN, INT8], "select 5 , 'a' , 5"),
        ("select 1 -$1", ["-5"], [INT8], "select 1 -(-5)"),
        ("select '$1', $1 -- $1", [None], [INT8], "select '$1', NULL"),
        ("select $$ $1 $$, $1;", ["t"], [BOOL], "select $$ $1 $$, TRUE"),
        ("select $1", ["7"], [NUMERIC], "select 7.0"),
        ("select $1", ["-1e2"], [NUMERIC], "select (-100.0)"),
        ("select $1", ["NaN"], [FLOAT8], "select 'NaN'::double precision"),
        ("select $1", ["2026-01-02"], [DATE], "select '2026-01-02'::date"),
        ("select $1", ["{1,NULL}"], [1016], "select ARRAY['1'::bigint, NULL::bigint]"),
        ("select $1", ["{}"], [1009], "select ARRAY[]::text[]"),
        ("select $1", [None], [1009], "select NULL::text[]"),
        ("select $1", ['{"it\'s, ]",b}'], [1009], "select ARRAY['it''s, ]'::text, 'b'::text]"),
        ("select * from t as of $1", ["12"], [INT8], "select * from t as of 12"),
        ("values ($1,$2),($1,$2)", ["1", "2"], [INT8] * 2, "values (1 ,2 ),(1 ,2 )"),
        ("select $1,$a$ $1 $a$,$1", ["1"], [INT8], "select 1 ,$a$ $1 $a$,1"),
        ("select a$1, $1", ["1"], [INT8], "select a$1, 1"),
        (
            "select '$1,$2', \"$1,$2\", /* $1,$2 */ E'\\'$1,$2', $$$1,$2$$, $1 -- $1,$2",
            ["1"],
            [INT8],
            "select '$1,$2', \"$1,$2\", /* $1,$2 */ E'\\'$1,$2', $$$1,$2$$, 1",
        ),
        ("select $1::int,$2", ["1", "2"], [INT8] * 2, "select 1 ::int,2"),
        ("select $10", ["x"] * 9 + ["y"], [UNKNOWN] * 10, "select 'y'"),
    ],
)
def test_bound(sql: str, values: list[str | None], oids: list[int], bound: str) -> None:
    assert count(source(sql)) == len(oids)
    assert bind(source(sql), values, oids) == bound


@pytest.mark.parametrize(
    ("value", "oid", "sqlstate"),
    [
        ("1; drop table t", INT8, "22P02"),
        ("1) --", NUMERIC, "22P02"),
        ("x' or 'a", DATE, "22007"),
        ("0", UUID, "22P02"),
        ("(1,2)", POINT, "0A000"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused(value: str, oid: int, sqlstate: str) -> None:
    with pytest.raises(AdapterError) as refused:
        bind(source("select $1"), [value], [oid])
    assert refused.value.sqlstate == sqlstate


@pytest.mark.parametrize("value", ["'", "''", "\\", "\\'", "'; drop table t; --", "$1", "é\n", ""])
def test_a_string_arrives_as_it_was_sent(value: str) -> None:
    (statement,) = parse(bind(source("insert into t values ($1)"), [value], [UNKNOWN]))
    assert statement == Insert("t", None, ((value,),))


def test_numbers_must_agree() -> None:
    with pytest.raises(AdapterError) as refused:
        bind(source("select $1"), [], [UNKNOWN])
    assert refused.value.sqlstate == "08P01"


def test_there_is_no_parameter_zero() -> None:
    with pytest.raises(AdapterError) as refused:
        count(source("select $0"))
    assert refused.value.sqlstate == "08P01"


def test_one_statement_can_be_prepared() -> None:
    assert only_statement("-- nothing") is None
    with pytest.raises(AdapterError) as refused:
        only_statement("select 1; select 2")
    assert refused.value.sqlstate == "42601"


WORDS = ["", "it's; --", "$1", "1", "-1", " 7", "nan", "-Infinity", "t", "off", "2026-02-30", "\\x"]
MORE = ["2026-01-02", "1999-12-31 23:59:59.5+02", "9223372036854775808", "-32768", "1e3", "\\x00ff"]
OIDS = [UNKNOWN, 25, 1043, 16, 17, 21, 23, INT8, 700, FLOAT8, NUMERIC, DATE, 1114, 1184]


@pytest.mark.parametrize("oid", OIDS)
@pytest.mark.parametrize(
    "sql",
    [
        "insert into t values ($1)",
        "insert into t (b, a) values ($1, 'x'), (NULL, $1), (DEFAULT, -1) returning a",
        "insert into t values ($1) as of 12",
    ],
)
def test_an_insert_parsed_once_is_the_insert_parsed_again(sql: str, oid: int) -> None:
    (first,) = parse(bind(source(sql), [None], [oid]))
    assert isinstance(first, Insert)
    where = places(source(sql))
    assert where is not None
    found = 0
    for value in (None, *WORDS, *MORE):
        try:
            (again,) = parse(bind(source(sql), [value], [oid]))
        except AdapterError as error:
            with suppress(type(error)):  # The same refusal; or it is parsed, and refused there.
                assert as_values([value], [oid]) is None
            continue
        given = as_values([value], [oid])
        if given is not None:
            assert repr(filled(first, where, given)) == repr(again)
            found += 1
    assert found > 1 or oid == NUMERIC


@pytest.mark.parametrize(
    "sql",
    [
        "insert into t values ($1::text)",
        "insert into t values (($1))",
        "insert into t values (-$1)",
        "insert into t values ($1) as of $2",
        "insert into t values ($1) on conflict (a) do update set b = $2",
        "insert into t select $1",
        "insert into t default values",
    ],
)
def test_other_inserts_are_parsed_each_time(sql: str) -> None:
    values = ["1"] * count(source(sql))
    (first,) = parse(bind(source(sql), values, [INT8] * len(values)))
    assert isinstance(first, Insert)
    assert places(source(sql)) is None


READ = pa.schema(
    [("k", pa.int64()), ("n", pa.decimal128(6, 2)), ("b", pa.bool_()), ("s", pa.string())]
)
READS = (
    ("select s from t where k = $1", 1),
    ("select * from t where $1 = k", 1),
    ("select s from t where k = ($1)", 1),
    ("select s from t where k in ($1, 7, $2)", 2),
    ("select k from t where s = $1", 1),
    ("select k from t where b = $1", 1),
    ("select k from t where n = $1", 1),
    ("select k from t where k = $1::bigint", 1),
    ("select k, $1 from t where k = 1", 1),
    ("select k from t where k = $1 limit $2", 2),
    ("select k from t where s = 'pg_class' and k > $1", 1),
)
TEXTS = ("1", "-3", "t", "07", "1.5", "it's", "x", "pg_class", None)


@pytest.mark.parametrize(("sql", "total"), READS)
@pytest.mark.parametrize("oid", [UNKNOWN, 25, INT8, BOOL, NUMERIC, DATE])
def test_a_query_that_is_bound_is_what_its_text_says(sql: str, total: int, oid: int) -> None:
    prepared_source = source(sql)
    nulls = bind(prepared_source, [None] * total, [oid] * total)
    (parsed,) = parse(nulls)
    assert is_steady(prepared_source, parsed)
    once = Prepared(prepared_source, (oid,) * total, statement=parsed, steady=True)
    compared = 0
    for text in TEXTS:
        values = [text] * total
        try:
            written = bind(prepared_source, values, [oid] * total)
            (anew,) = parse(written)
        except AdapterError:
            continue  # A value that its type does not have.
        found = bound(once, values, ()).statement
        assert isinstance(found, Select)
        assert found == anew
        for key in (("k",), ("s",), ("b",), ("n",)):
            asked = point_read(found.query_sql, "t", READ, key, found.given)
            assert asked == point_read(written, "t", READ, key)
            compared += asked is not None
    simple = sql.startswith("select s from t where k = ") and oid in (UNKNOWN, 25, INT8)
    assert compared or not simple


@pytest.mark.parametrize(
    "sql", ["select * from t as of $1", "select $1::regclass", "select k as of from t where k = $1"]
)
def test_what_depends_on_its_parameters_is_parsed_anew(sql: str) -> None:
    prepared_source = source(sql)
    with suppress(AdapterError):
        (parsed,) = parse(bind(prepared_source, [None], [UNKNOWN]))
        assert not is_steady(prepared_source, parsed)
