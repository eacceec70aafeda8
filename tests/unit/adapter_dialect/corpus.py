"""Expressions in PostgreSQL's dialect, asked of random tables (``relations``).

Used three times: without a server (everything is taken, golden texts), with PostgreSQL alone (names
and types agree), and with PostgreSQL and Spark (rows agree).
"""

from __future__ import annotations

from collections.abc import Iterator

_TYPES_COMPARED = ("i2", "i4", "i8", "n", "m", "z", "r", "f", "s", "d", "ts", "tz", "iv", "b")
_NUMBERS = ("i2", "i4", "i8", "n", "m", "r", "f")


def _expressions() -> Iterator[str]:
    # --- arithmetic: every pair of number types and every operator
    for left in _NUMBERS:
        for right in _NUMBERS:
            yield f"{left} + {right}"
            yield f"{left} - {right}"
            if (left, right) != ("m", "m"):
                yield f"{left} * {right}"
            yield f"{left} / nullif({right}, 0)"
            if not {left, right} & {"r", "f"}:
                yield f"{left} % nullif({right}, 0)"
        yield f"-{left}"
        yield f"- {left} + 1"
        yield f"abs({left})"
        yield f"{left} * 2 - 1"
        yield f"{left} + 1.5"
        yield f"{left} = '7'"
    yield from (
        *("i4 + '5'", "n + '1.555'", "n = '2.50'", "f + '0.25'", "7 / 2", "-7 / 2", "7 % -3"),
        *(
            "-7 % 3",
            "2147483647 + i8",
            "-2147483648",
            "9223372036854775807",
            "1e3",
            "1.50",
            "0.001",
        ),
        *(
            "1.5e-3 + 1",
            "1 / 3.0",
            "10.0 / 4",
            "2.00 / 3.0000",
            "1.0 / 7",
            "12345678901234567890",
        ),
        *("z + 1", "z - z", "z * 2", "n * z", "z * z", "z / 3", "z % 3", "-z", "abs(z)", "z > 0"),
        *(
            "n * n",
            "n * 1.075",
            "m * n",
            "i8 * i8",
            "i2 * 3",
            "mod(i4, 7)",
            "mod(n, 3)",
            "i4 * 1.0",
        ),
        *("f / 4", "n / 100", "n / 4 > 1", "i4 / 4 * 4 + i4 % 4 = i4", "(i4 + i8) * 2"),
        *("i4 - (i4 - 1)", "i4 - i4 - 1", "i4 * (2 + 3)", "- (i4 + 1)", "2 * -3", "1 - -1"),
    )
    # --- rounding
    for literal in (
        "0.5",
        "1.5",
        "2.5",
        "-0.5",
        "-1.5",
        "-2.5",
        "2.45",
        "2.55",
        "-2.45",
        "1234.5678",
    ):
        yield f"round({literal})"
        yield f"round({literal}, 1)"
        yield f"trunc({literal})"
        yield f"ceil({literal})"
        yield f"floor({literal})"
        yield f"({literal})::int"
        yield f"({literal})::float8::int"
        yield f"round(({literal})::float8)"
        yield f"({literal})::numeric(10,1)"
    yield from (
        *("round(n)", "round(n, 1)", "round(n, 2)", "round(n, -2)", "round(n, 0)", "round(m, 3)"),
        *("round(f)", "round(r)", "round(i4)", "round(i4, -1)", "round(z, 2)", "round(n / 3, 4)"),
        *("trunc(n)", "trunc(n, 1)", "trunc(f)", "trunc(m, 4)", "trunc(i4)", "ceil(n)", "ceil(f)"),
        *("ceiling(m)", "floor(n)", "floor(f)", "floor(i4)", "floor(r)", "sign(n)", "sign(m)"),
        *("sqrt(abs(f))", "sqrt(4)", "sqrt(abs(i4))", "ceil(z)", "floor(-z)", "ceil(-0.5::float8)"),
    )
    # --- casts
    for source, targets in {
        "i2": ("int", "bigint", "numeric", "numeric(10,2)", "float8", "real", "text"),
        "i4": ("bigint", "numeric", "numeric(10,3)", "float8", "real", "text", "bool"),
        "i8": ("numeric", "float8", "text", "numeric(20,4)"),
        "n": (
            "int",
            "bigint",
            "numeric",
            "numeric(10,1)",
            "numeric(10,0)",
            "float8",
            "real",
            "text",
        ),
        "m": ("int", "bigint", "numeric(12,3)", "float8", "text", "numeric(38,10)"),
        "z": ("int", "bigint", "numeric(12,3)", "float8"),
        "f": ("int", "bigint", "real", "smallint"),
        "r": ("int", "bigint", "float8"),
        "b": ("text", "int"),
        "d": ("text", "timestamp", "timestamptz"),
        "ts": ("text", "date", "timestamptz"),
        "tz": ("text", "date", "timestamp"),
        "num": ("int", "bigint", "smallint", "numeric(10,2)", "float8", "numeric"),
    }.items():
        for target in targets:
            yield f"{source}::{target}"
    yield from (
        *("(' ' || num)::float8", "(num || '.5')::real", "(i4 || 'e-3')::numeric(12,2)"),
        *("'NaN'::text::real", "(case when b then 'oN' else ' f ' end)::boolean"),
        *("(num || ' ')::bigint", "('0x' || g)::int", "(d || ' 10:11 PM')::timestamp"),
        *("(d || ' 10:11 Europe/Berlin')::timestamptz", "(d::text || '')::date"),
        *(
            "(ts || '')::timestamp",
            "(tz || '')::timestamptz",
            "('Jan ' || g + 1 || ', 2024')::date",
        ),
        *(
            "(num || '')::bytea",
            "num::bytea || 'a'",
            "'\\x01'::bytea || '\\x02'",
            "md5(w)::uuid::text",
        ),
        *("(f / 7)::real", "substr(null, g, -1)", "substr(s, null, -1)", "substr(s, -2147483648)"),
        *("substr(s, -2147483648, 2147483647)", "left(s, -2147483648)", "right(s, -2147483648)"),
        *("left(s, -2147483647)", "right(s, -2147483647)", "substr(s, 2147483647, 2147483647)"),
        "substr(case when b then s end, g, case when b then 2 else -1 end)",
        *("split_part(null, w, 0)", "make_date(null, 13, 45)", "null::int / 0", "repeat(null, g)"),
        "mod(case when b then i4 end, case when b then 3 else 0 end)",
        "split_part(case when b then w end, '.', case when b then 1 else 0 end)",
        "make_date(case when b then 2024 end, case when b then 2 else 13 end, 3)",
        *("lpad(null, 3)", "strpos(null, s)", "sqrt(null)", "to_char(null::date, 'YYYY')"),
        *("- (2147483648)", "-2147483648", "-(-(2147483648))", "-9223372036854775808", "- (1.5)"),
        *(
            "cast(i4 as text)",
            "'12'::int",
            "' 12 '::int",
            "'1.5'::numeric",
            "'1.555'::numeric(5,2)",
        ),
        *("'t'::bool", "'off'::boolean", "'yes'::bool", "'2024-02-29'::date", "date '2024-02-29'"),
        *("'2024-02-29 10:11:12.5'::timestamp", "timestamp '2024-02-29'", "'1e3'::float8"),
        *(
            "timestamptz '2024-02-29 10:00:00+02'",
            "'NaN'::float8",
            "'-Infinity'::float8",
            "null::int",
        ),
        *("'abc'::text", "'a' || 'b'", "null", "'x'", "true", "false", "not b", "interval '1 day'"),
        *("'36 hours'::interval", "interval '1 day 02:03:04.5'", "interval '-1 day 2 hours'"),
        *(
            "interval '2 weeks'",
            "interval '3' day",
            "d - interval '2' month",
            r"E'a\n\'\\b'",
            "interval '90 minutes'",
            "i4::text || s",
            "s::varchar(2) || '|'",
            "cast(i4 as character varying(1))",
            "'abc'::varchar(2)",
            "s || i4",
            "d || ''",
        ),
        *(
            "n::text",
            "(n * 2)::text",
            "round(m, 2)::text",
            "(n + 1)::text",
            "(-n)::text",
            "b || 'x'",
        ),
        *("length(i4::text)", "(i4::numeric(10,2))::text", "i8::text", "ts::text", "tz::text"),
        *("'\\x0aff'::bytea", "'2024-1-5'::date + 1", "(num::int + 1)::text", "trim(num)::int"),
        *("lower(b::text)", "extract(year from d)::int", "(i4 > 0)::int", "(i4 > 0)::text"),
        *(
            "lpad(length(s)::text, 32, '0')::uuid::text",
            "upper(lpad(length(s)::text, 32, 'f'))::uuid::text || s",
            "lpad(length(s)::text, 32, 'A')::uuid > '{AAAAAAAA-AAAA-AAAA-AAAA-AAAAAAAAAAA5}'",
            "(null::text)::uuid is null",
        ),
    )
    # --- comparisons and logic, with NULLs
    for column in _TYPES_COMPARED:
        yield f"{column} is null"
        yield f"{column} is not null"
        yield f"{column} = {column}"
        yield f"{column} is distinct from null"
        yield f"coalesce({column}, {column})"
        yield f"nullif({column}, {column})"
        yield f"case when id % 2 = 0 then {column} end"
        if column != "b":
            yield f"greatest({column}, {column})"
            yield f"{column} between {column} and {column}"
    for left in ("i2", "i4", "i8", "n", "m", "r", "f", "z"):
        for right in ("i4", "n", "f"):
            yield f"{left} < {right}"
            yield f"{left} is not distinct from {right}"
            yield f"greatest({left}, {right})"
            yield f"least({left}, {right}, 1)"
            yield f"coalesce({left}, {right}, 0)"
            yield f"case when b then {left} else {right} end"
    yield from (
        *("i4 = 7", "i4 <> 7", "i4 != 7", "i4 < 0 and b", "i4 < 0 or b", "not (i4 < 0 or b)"),
        *("b is true", "b is not true", "b is false", "b is not false", "b is unknown", "b = true"),
        *("i4 in (1, 7, null)", "i4 not in (1, 7)", "i4 not in (1, null)", "s in ('a', 'b', '')"),
        *(
            "n in (2.5, 0)",
            "n in (2.50, 0, -2.5)",
            "i4 in (1.0, 7)",
            "i8 in (1, 0)",
            "d in ('2000-01-01')",
        ),
        *("(i4, g) = (7, 1)", "(i4, g) in ((7, 1), (1, 2), (0, null))", "(g, b) = (1, true)"),
        *("i4 between -5 and 5", "i4 not between -5 and 5", "i4 between symmetric 5 and -5"),
        *(
            "n between 0 and 2.5",
            "d between '1999-01-01' and '2001-01-01'",
            "s between 'a' and 'c'",
        ),
        *("i4 is distinct from g", "i4 is not distinct from g", "null is null", "(i4 = g) is null"),
        *("d < ts", "d = ts::date", "ts < tz", "tz >= '2000-01-01'", "ts > '1999-06-01 12:00'"),
        *(
            "d > '1999-12-31'",
            "s < 'b'",
            "s > w",
            "s = ''",
            "s = 'é'",
            "f > 'NaN'",
            "f < 'Infinity'",
        ),
        *(
            "case i4 when 7 then 'seven' when -7 then 'minus' else 'other' end",
            "case when b then 1 end",
        ),
        *(
            "case when i4 > 0 then 'p' when i4 < 0 then 'n' end",
            "case g when 1 then n when 2 then 0 end",
        ),
        *(
            "case when b then 1 else 2.5 end",
            "case when b then null else i4 end",
            "coalesce(s, 'none')",
        ),
        *(
            "coalesce(null, i4)",
            "coalesce(i4, i8, 0)",
            "coalesce(n, 0)",
            "coalesce(d, '2000-01-01')",
        ),
        *("nullif(s, '')", "nullif(i4, 7)", "nullif(n, 0)", "nullif(1, 1)", "nullif('a', 'b')"),
        *("greatest(1, null, i4)", "least(s, w)", "greatest(d, '2000-01-01')", "least(n, 1.5, i4)"),
        *("greatest(f, 'NaN')", "least(null, i4)", "greatest(s, 'b')", "coalesce(b, false)"),
        *(
            "not b and i4 = 7 or g = 1",
            "b or null",
            "b and null",
            "not null::bool",
            "i4 = 7 is true",
        ),
        *('"Odd Name" + 1', 'x."Odd Name"', "x.i4", "public.x.i4", "iv > interval '0 days'"),
        *("i4 >= all(array[1, 2])", "i4 <> all(array[7, null])", "i4 < any(array[0, 5])"),
    )
    # --- text
    yield from (
        *(
            "s || w",
            "s || null",
            "length(s)",
            "char_length(s)",
            "character_length(w)",
            "octet_length(s)",
        ),
        *("upper(s)", "lower(s)", "upper(w)", "lower('ÀÉ')", "upper('straße')", "bit_length(s)"),
        *(
            "substring(s, 2)",
            "substring(s, 2, 3)",
            "substring(s from 2 for 3)",
            "substring(s from 3)",
        ),
        *(
            "substr(s, 0)",
            "substr(s, 0, 2)",
            "substr(s, -1, 3)",
            "substr(s, -2)",
            "substring(s for 2)",
        ),
        *(
            "substring(s, i2)",
            "substring(s, i2, 3)",
            "substring(s, 2, abs(g))",
            "substring(s, 3, 0)",
        ),
        *("substring('abcdef' from 2 for 2147483647)", "left(s, 2)", "left(s, -2)", "left(s, 0)"),
        *(
            "left(s, g)",
            "right(s, 2)",
            "right(s, -2)",
            "right(s, 0)",
            "right(s, g - 2)",
            "left(s, 99)",
        ),
        *(
            "lpad(s, 5)",
            "lpad(s, 5, 'xy')",
            "rpad(s, 5, 'xy')",
            "lpad(s, 0, 'x')",
            "lpad(w, 3, '')",
        ),
        *("rpad(s, -1, 'x')", "lpad(s, g, '日')", "trim(w)", "trim(both from w)", "btrim(w)"),
        *("ltrim(w)", "rtrim(w)", "trim(leading 'a' from w)", "trim(trailing 'e' from w)"),
        *(
            "btrim(w, 'ae ')",
            "ltrim(w, 'ap')",
            "rtrim(w, 'e i')",
            "trim('a' from s)",
            "btrim(s, '')",
        ),
        *(
            "position('a' in s)",
            "strpos(s, 'b')",
            "strpos(s, '')",
            "strpos('', '')",
            "position('é' in s)",
        ),
        *("replace(s, 'a', 'xy')", "replace(w, '', 'x')", "replace(s, 'a', '')", "repeat(s, 2)"),
        *(
            "repeat('ab', 0)",
            "repeat(s, -1)",
            "repeat(w, g)",
            "reverse(w)",
            "translate(w, 'ape', 'xy')",
        ),
        *("translate(s, 'ab', '')", "split_part(w, '.', 1)", "split_part(w, '.', 3)"),
        *("split_part(w, '.', -1)", "split_part(w, ' ', 2)", "split_part(w, '.', 9)"),
        *("split_part(w, '', 1)", "starts_with(w, 'a')", "starts_with(s, '')", "md5(s)", "md5('')"),
        *(
            "concat(s, i4, b)",
            "concat(s, null, w)",
            "concat(d, ' ', n)",
            "concat_ws('-', s, w, i4)",
        ),
        *("concat_ws(',', null, s)", "concat('a')", "concat_ws('', w, w)", "concat(b)"),
        *(
            "w like 'a%'",
            "w like '%e'",
            "w not like 'a%'",
            "s like '_'",
            "s like '%\\%%'",
            "s like '\\_%'",
        ),
        *(
            "s like '%!%%' escape '!'",
            "s like 'a\\b%'",
            "w ilike 'B%'",
            "w ilike '%P%'",
            "w not ilike 'b%'",
        ),
        *(
            "s like ''",
            "s like '%'",
            "s like 'é%'",
            "w like 'a_ple'",
            "s like '%''%'",
            "s ilike 'ä%'",
        ),
        *("s like '%\\\\%'", "s like '%!_%' escape '!'", "s like 'a$b{c}'", "s = '${env:HOME}'"),
        *(
            "w ~ '^a'",
            "w ~ 'e$'",
            "w !~ 'p+'",
            "w ~* 'BAN'",
            "w ~* '^[^A-C][A-Z]'",
            "s ~* '[éa-c]$'",
            *(
                "s ~* 'ß'",
                "'\u017f' ~* 's'",
                "'S' ~* '\u017f'",
                "'İ' ~* 'i'",
                "'i' ~* 'İ'",
                "'\u0131' ~* 'I'",
            ),
            *("'ς' ~* 'Σ'", "'\u212a' ~* 'k'", "'k' ~* '\u212a'", "'ǅ' ~* 'ǅ'", "'ǅ' ~* 'ǆ'"),
            *(
                "'µ' ~* 'μ'",
                "'\u212a' ~* '[a-z]'",
                "'ǅ' ilike 'Ǆ'",
                "'İ' ilike 'i'",
                "'ß' ilike 'SS'",
            ),
            *("upper('ßŉΐﬃǅᾳ')", "lower('ΑΣ ΑΣΑ İ ǅ ᾼ')", "'ας' ilike 'ΑΣ'", "'a-b' ~* 'A[+-]B'"),
            "w !~* '^b'",
            "w ~ '^[a-c].*'",
            "w ~ 'p{2}'",
        ),
        *(
            "w ~ '(apple|pie)'",
            "w ~ '[^a-z]'",
            "w ~ '\\.'",
            "s ~ '.'",
            "w ~ '^$'",
            "w ~ ' '",
            "s ~ 'é|ß'",
        ),
        *("w ~ 'a.b'", "w ~ '^(a|b)?c'", "w ~ '[0-9]+'", "s ~ '-'", "w ~ 'a*'", "s ~* 'É'"),
        *(
            "length(s || s) = 2 * length(s)",
            "$$dollar 'quoted'$$",
            "'it''s'",
            "'back\\slash'",
            "'line\nbreak'",
        ),
        *(
            "array_to_string(string_to_array(w, '.'), '|')",
            "string_to_array(w, ' ')",
            "upper(left(w, 1))",
        ),
        *(
            "array_to_string(words, ',')",
            "array_to_string(words, ',', '?')",
            "words[1]",
            "words[9]",
        ),
    )
    # --- arrays
    yield from (
        *(
            "array[1, 2, 3]",
            "array[i4, g]",
            "array['a', s]",
            "arr[1]",
            "arr[2]",
            "arr[0]",
            "arr[-1]",
        ),
        *(
            "arr[g]",
            "array_length(arr, 1)",
            "cardinality(arr)",
            "2 = any(arr)",
            "i4 = any(array[1, 7])",
        ),
        *(
            "g <> all(arr)",
            "g = any(arr)",
            "array_length(array[1, 2], 1)",
            "array[1, 2.5]",
            "arr is null",
        ),
        *(
            "cardinality(words)",
            "array[]::int[]",
            "(array[10, 20])[2]",
            "array[n, 1]",
            "null = any(arr)",
        ),
    )
    # --- time
    fields = ("year", "quarter", "month", "week", "day", "dow", "isodow", "doy", "isoyear", "epoch")
    for field in fields:
        for column in ("d", "ts", "tz"):
            yield f"extract({field} from {column})"
        if field != "epoch":
            yield f"date_part('{field}', ts)"
    for field in ("hour", "minute", "second"):
        yield f"extract({field} from ts)"
        yield f"extract({field} from tz)"
    yield from ("date_part('hour', tz)", "date_part('minute', ts)")
    for unit in (
        "year",
        "quarter",
        "month",
        "week",
        "day",
        "hour",
        "minute",
        "second",
        "milliseconds",
    ):
        for column in ("d", "ts", "tz"):
            yield f"date_trunc('{unit}', {column})"
    for column in ("d", "ts", "tz"):
        yield f"to_char({column}, 'YYYY-MM-DD\"T\"HH24:MI:SS.US')"
        yield f"to_char({column}, 'Dy, DD Mon YYYY HH12.MI AM \"it''s\" MS')"
    yield from (
        *("d + 1", "d - 1", "1 + d", "d + g", "d - d", "d - '2000-01-01'", "d - date '2000-01-01'"),
        *("d + interval '1 day'", "d - interval '36 hours'", "ts + interval '1 day'", "ts - ts"),
        *(
            "ts - interval '1 month'",
            "ts + interval '1 month'",
            "d + interval '1 month'",
            "tz - tz",
        ),
        *(
            "d + interval '1 year 2 months 3 days'",
            "ts + interval '-1 month'",
            "tz + interval '1 month 1 hour'",
        ),
        *("date '2024-01-31' + interval '1 month'", "date '2024-03-31' - interval '1 month'"),
        *(
            "ts + iv",
            "tz - iv",
            "d + iv",
            "iv + iv",
            "iv - interval '1 day'",
            "-iv",
            "iv * 2",
            "3 * iv",
        ),
        *(
            "ts - d",
            "tz - ts",
            "interval '1 day' * g",
            "interval '1 hour' + ts",
            "interval '1 day' + d",
        ),
        *("extract(epoch from iv)", "extract(epoch from ts - d)", "ts at time zone 'UTC'"),
        *(
            "tz at time zone 'UTC'",
            "make_date(2024, 2, 29)",
            "make_date(2000 + g, 1, 1)",
            "d = d + 0",
        ),
        *(
            "d > ts",
            "tz > d",
            "date_trunc('month', d)::date",
            "extract(month from d) = 2",
            "iv < interval '1 day'",
        ),
        *(
            "d::timestamp + interval '1 second'",
            "date_trunc('day', ts) = ts::date",
            "(ts - ts) = interval '0 days'",
        ),
    )


EXPRESSIONS: tuple[str, ...] = tuple(dict.fromkeys(_expressions()))
