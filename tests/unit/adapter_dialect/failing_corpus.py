"""Queries that fail while they run, in PostgreSQL and so in Spark: no NULL, no wrong row."""

from __future__ import annotations

FAILING: tuple[str, ...] = (
    "select i4 + 2147483647 from x where i4 > 0",
    "select 2147483647 - i4 from x where i4 < 0",
    "select i8 + 9223372036854775807 from x where i8 > 0",
    "select i4 * 2147483647 from x where i4 > 1",
    "select i2 * 32767::smallint from x where i2 > 1",
    "select -(i4 - i4 - 2147483648::bigint)::int from x",
    "select abs(i4 - i4 + (-2147483648)) from x",
    "select i4 / (g - g) from x where g is not null and i4 is not null",
    "select i4 % (g - g) from x where g is not null and i4 is not null",
    "select n / (n - n) from x where n is not null",
    "select f / (f - f) from x where f is not null",
    "select (i4 + 100000)::smallint from x where i4 is not null",
    "select (i8 * 10000)::int from x where i8 > 1000000",
    "select (f * 1e15::float8 + 1e15::float8)::int from x where f >= 0",
    "select (n * 1000)::numeric(5,2) from x where n > 1",
    "select w::int from x where w = 'apple'",
    "select num::smallint * 100::smallint from x where num::int > 400",
    "select w::date from x where w = 'apple'",
    "select (num || '-01')::date from x where num is not null",
    "select w::boolean from x where w = 'apple'",
    "select (num || 'd')::float8 from x where num is not null",
    "select w::numeric(10,2) from x where w = 'apple'",
    "select w::timestamp from x where w = 'a.b.c'",
    "select sqrt(-abs(f)) from x where f <> 0",
    "select substring(s, 1, g - 10) from x where g is not null and s is not null",
    "select split_part(w, '.', g - g) from x where g is not null and w is not null",
    "select make_date(2023, 2, 28 + g) from x where g > 0",
    "select (select y.id from y where y.g = 1 or y.g = 2 or y.g = 3) from x",
    "select sum(i4 * 2147483647) from x where i4 > 1",
    "select count(*) / (count(*) - count(*)) from x",
)
"""Each must fail on the tables of every seed that the tests use."""
