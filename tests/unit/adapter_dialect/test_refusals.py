"""What is outside the allow-list is refused, with its place; nothing else comes out."""

from __future__ import annotations

import pytest

from headwater.adapter.dialect import to_spark
from headwater.adapter.errors import AdapterError
from tests.unit.adapter_dialect.relations import RELATIONS

NOT_SUPPORTED = "0A000"
NO_FUNCTION = "42883"


def refusal(sql: str) -> AdapterError:
    with pytest.raises(AdapterError) as refused:
        to_spark(sql, RELATIONS)
    return refused.value


@pytest.mark.parametrize(
    ("sql", "words", "position"),
    [
        # Functions and overloads.
        ("select initcap(s) from x", "function initcap", 8),
        ("select id, to_date(s, 'YYYY') from x", "function to_date", 12),
        ("select random()", "function random", 8),
        ("select chr(65)", "function chr", 8),
        ("select regexp_replace(s, 'a', 'b') from x", "function regexp_replace", 8),
        ("select array_agg(distinct i4) from x", "array_agg of this kind", 8),
        ("select json_agg(i4) from x", "function json_agg", 8),
        ("select jsonb_build_object('a', 1)", "function jsonb_build_object", 8),
        ("select stddev(f) from x", "function stddev", 8),
        ("select regr_avgx(distinct f, f) from x", "function regr_avgx", 8),
        ("select ln(f) from x", "function ln", 8),
        ("select age(ts, ts) from x", "function age", 8),
        ("select sqrt(n) from x", "sqrt of a numeric", 8),
        ("select round(n, g) from x", "digits that is no literal", 8),
        ("select substring(s from '[a-z]') from x", "regular expression", 18),
        ("select pg_sleep(1)", "function pg_sleep", 8),
        # Casts.
        ("select f::text from x", "cast of double precision to text", 8),
        ("select (n / 3)::text from x", "text of a numeric", 9),
        ("select z::text from x", "text of a numeric", 8),
        ("select f::numeric from x", "cast of double precision to numeric", 8),
        ("select s::char(3) from x", "type char(3)", None),
        ("select s::bytea from x", "cast of text to bytea", 8),
        ("select iv::text from x", "cast of interval to text", 8),
        ("select '{1}'::int[]", "a literal of type integer[]", 8),
        ("select 't'::regclass", "type regclass", 8),
        # Expressions.
        ("select s like w escape '!' from x", "this ESCAPE", 8),
        ("select s ~ w from x", "no literal", 8),
        ("select s ~ '\\d' from x", "escape of a regular expression", 8),
        ("select s ~ '[[:alpha:]]' from x", "bracket expression", 8),
        ("select s ~ '(?i)a' from x", "group of this kind", 8),
        ("select i4 ^ 2 from x", "pow expression", 8),
        ("select i4 << 1 from x", "bitwiseleftshift expression", 8),
        ("select $1", "parameter expression", 9),
        ("select b'101'", "bitstring expression", None),
        ("select (1, 2) < (3, 4)", "comparison of rows", 9),
        ("select arr || arr from x", "concatenation of arrays", 8),
        ("select arr[1:2] from x", "a slice", 8),
        ("select arr = arr from x", "a comparison of", 8),
        ("select interval '1 month'", "interval of months as a value", None),
        ("select iv + interval '1 month' from x", "interval of months as a value", None),
        ("select ts at time zone 'Europe/Paris' from x", "time zone 'Europe/Paris'", 8),
        ("select extract(century from d) from x", "extract of 'century'", 29),
        ("select date_part('second', ts) from x", "date_part of 'second'", 8),
        ("select to_char(d, 'Month') from x", "'th' in a pattern of to_char", 8),
        ("select to_char(d, w) from x", "to_char of a pattern that is no literal", 8),
        ("select date_trunc('decade', d) from x", "date_trunc to this unit", 8),
        ("select n * 1e-400 from x", "a number of more than 76 digits", 12),
        ("select '1e-400'::numeric", "a number of more than 76 digits", 8),
        ("select n + '1e-400' from x", "a number of more than 76 digits", 12),
        ("select 1e39 from x", "a number of 40 digits", 8),
        # Clauses.
        (
            "with recursive r as (select 1 as n union select n from r) select * from r",
            "UNION in WITH RECURSIVE",
            None,
        ),
        ("with recursive r as (select n from r) select * from r", "the recursive query", None),
        (
            "with recursive r as (select n from r union all select 1 as n) select * from r",
            "the recursive query",
            None,
        ),
        ("select count(*) from x group by distinct rollup(g)", "ALL or DISTINCT of GROUP BY", None),
        (
            "select g, rank() over (order by g) from x group by rollup(g) having count(*) < 3",
            "a window function beside HAVING of grouping sets",
            59,
        ),
        ("select id from x tablesample system (10)", "sample of table", None),
        ("select id from x for update", "locks of select", None),
        ("select id into q from x", "into of select", None),
        ("select id from x order by id fetch first 2 rows with ties", "WITH TIES", None),
        ("select sum(id) over (order by n range 2 preceding) from x", "bound of a window", None),
        (
            "select sum(id) over (order by ts range interval '1 month' preceding) from x",
            "bound of a window",
            None,
        ),
        ("select sum(id) over (order by id groups 2 preceding) from x", "frame of GROUPS", None),
        (
            "select sum(id) over (order by id rows 1 preceding exclude ties) from x",
            "exclude of windowspec",
            None,
        ),
        ("select row_number() over () from x", "no order", 8),
        ("select count(distinct g) over () from x", "DISTINCT over a window", 8),
        ("select string_agg(s, ',') over (order by id) from x", "over a window", 8),
        ("select generate_series(1, 3)", "function generate_series", 8),
        ("select unnest(arr) from x", "function unnest", 8),
        ("select * from unnest(array[1]) with ordinality", "offset of unnest", None),
        ("select * from x, y right join x as q on true", "after a comma", None),
        ("select 1 from (x join y on true)", "a join in brackets", None),
        ("select * from elsewhere.public.tables", 'the database "elsewhere"', None),
        ("select id from x limit g", "LIMIT", None),
        ("insert into x values (1)", "no query", None),
        ("select distinct id from x order by g", "SELECT DISTINCT does not list", None),
    ],
)
def test_outside_the_list(sql: str, words: str, position: int | None) -> None:
    error = refusal(sql)
    assert error.sqlstate == NOT_SUPPORTED, error
    assert words in error.primary
    if position is not None:
        assert error.position == position


@pytest.mark.parametrize(
    ("sql", "sqlstate", "position"),
    [
        ("select zz from x", "42703", 8),
        ("select q.id from x", "42P01", 8),
        ("select id from x, y", "42702", 8),
        ("select * from nowhere", "42P01", None),
        ("select * from information_schema.tables", "42P01", None),
        ("select i4 + s from x", NO_FUNCTION, 8),
        ("select i4 = s from x", NO_FUNCTION, 8),
        ("select upper(i4) from x", NO_FUNCTION, 8),
        ("select substring(s) from x", NO_FUNCTION, 18),
        ("select round(f, 2) from x", NO_FUNCTION, 8),
        ("select max(b) from x", NO_FUNCTION, 8),
        ("select f % 2.5::float8 from x", NO_FUNCTION, 8),
        ("select id from x where i4", NO_FUNCTION, 24),
        ("select not i4 from x", NO_FUNCTION, 12),
        ("select id from x order by 2", "42P10", 27),
        ("select id from x group by 2", "42P10", 27),
        ("select distinct on (g) id from x order by id", "42P10", 21),
        ("select d > 'tomorrow' from x", "22007", 12),
        ("select i4 = 'seven' from x", "22P02", 13),
        ("select 'a' + 1", "22P02", 8),
        ("select '2024-02-30'::date", "22008", 8),
        ("select i4 from x where i2 = '99999'", "22003", 29),
        ("select case when b then 1 else 'x' end from x", "22P02", 32),
        ("selec 1", "42601", None),
        ("select interval '1 day' hour", "42601", None),
        ("select interval '1' day to hour", "42601", None),
        ("select 1 +", "42601", None),
        ("select (1", "42601", None),
        ("select 1; select 2", "42601", None),
        ("", "42601", None),
        ("select '\0'", "42601", None),
    ],
)
def test_mistakes(sql: str, sqlstate: str, position: int | None) -> None:
    error = refusal(sql)
    assert error.sqlstate == sqlstate, error
    if position is not None:
        assert error.position == position


@pytest.mark.parametrize(
    "sql",
    [
        "select s ~ 'a' || 'b' from x",  # PostgreSQL: (s ~ 'a') || 'b'
        "select i4 = g = b from x",
        "select i4 < g < 3 from x",
    ],
)
def test_an_order_of_operators_that_the_two_parsers_read_differently(sql: str) -> None:
    assert "order of operators" in refusal(sql).primary


def test_depth_and_size_are_bounded() -> None:
    assert refusal("select " + "(" * 3_000 + "1" + ")" * 3_000).sqlstate in (NOT_SUPPORTED, "42601")
    assert refusal("select " + " + ".join(["1"] * 5_000)).sqlstate == NOT_SUPPORTED
    wide = " union all ".join(["select 1"] * 150)
    assert to_spark(wide, {}).text.count("UNION ALL") == 149


def test_spark_never_sees_a_setting_to_replace() -> None:
    assert "${" not in to_spark("select '${env:HOME}', $$${spark.app.name}$$", {}).text
    assert "${" in refusal('select 1 as "${env:HOME}"').primary


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("select '(1,2)'::point", "Supported are boolean, "),
        ("select random()", "It is not deterministic: write its value into a column"),
        ("select power(2, 2)", "Spark's dialect may have it: SET dialect = spark."),
        ("select var_samp(x) from (values (1)) v(x)", "Spark's dialect may have it"),
        ("select percentile_cont(0.5) within group (order by 1)", "Spark's dialect may have it"),
        ("select * from posexplode(array[1])", "Spark's dialect may have it"),
    ],
)
def test_a_refusal_says_what_to_do(sql: str, hint: str) -> None:
    found = refusal(sql).hint
    assert found is not None
    assert found.startswith(hint)
