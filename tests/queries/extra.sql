-- Queries over t and u of tables.py, each with its name: what SQL can say and Catalyst rewrites.

-- union_all
SELECT a, b FROM t UNION ALL SELECT a, c FROM u

-- union_types
SELECT a, d FROM t UNION ALL SELECT k, c FROM u

-- union
SELECT a FROM t UNION SELECT a FROM u

-- union_twice
SELECT a, a FROM t UNION ALL SELECT a, k FROM u

-- intersect
SELECT a FROM t INTERSECT SELECT a FROM u

-- intersect_all
SELECT a, s FROM t INTERSECT ALL SELECT a, s FROM u

-- except
SELECT a, s FROM t EXCEPT SELECT a, s FROM u

-- except_all
SELECT a FROM t EXCEPT ALL SELECT a FROM u

-- except_all_twice
SELECT a, a AS a2 FROM t EXCEPT ALL SELECT a, k FROM u

-- not_in
SELECT * FROM t WHERE a NOT IN (SELECT a FROM u)

-- not_in_not_null
SELECT k FROM u WHERE a NOT IN (SELECT a FROM t WHERE a IS NOT NULL)

-- not_in_tuple
SELECT a, s FROM t WHERE (a, s) NOT IN (SELECT a, s FROM u)

-- not_in_correlated
SELECT a, b FROM t WHERE b NOT IN (SELECT c FROM u WHERE u.a = t.a)

-- in_tuple
SELECT a, s FROM t WHERE (a, s) IN (SELECT a, s FROM u)

-- in_or
SELECT a, b FROM t WHERE a IN (SELECT a FROM u) OR b > 5

-- not_in_or
SELECT a, b FROM t WHERE a NOT IN (SELECT a FROM u WHERE a IS NOT NULL) OR b > 5

-- exists_or
SELECT a, b FROM t WHERE a > 8 OR EXISTS (SELECT 1 FROM u WHERE u.c > t.b)

-- exists_select
SELECT a, EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AS e FROM t

-- in_select
SELECT a, a IN (SELECT a FROM u) AS e FROM t

-- exists_not
SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.c > t.b)

-- uncorrelated_exists
SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE c > 100)

-- uncorrelated_exists_not
SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE c > 100)

-- uncorrelated_exists_select
SELECT a, EXISTS (SELECT 1 FROM u WHERE c > 5) e FROM t

-- scalar_agg
SELECT a, (SELECT max(c) FROM u) m FROM t

-- scalar_limit
SELECT a, (SELECT c FROM u ORDER BY k LIMIT 1) m FROM t

-- scalar_empty
SELECT a, (SELECT c FROM u WHERE c > 1000) m FROM t

-- scalar_filter_twice
SELECT a, b FROM t WHERE b > (SELECT avg(c) FROM u) AND b < (SELECT max(c) FROM u)

-- scalar_in_agg
SELECT a, sum(b) + (SELECT max(c) FROM u) x, sum(b + (SELECT min(c) FROM u)) y FROM t GROUP BY a

-- scalar_having
SELECT a FROM t GROUP BY a HAVING count(*) > (SELECT min(k) + 2 FROM u)

-- scalar_on
SELECT t.a, u.k FROM t JOIN u ON t.a = u.a AND u.c > (SELECT min(c) FROM u)

-- scalar_on_left
SELECT t.a, u.k FROM t LEFT JOIN u ON t.a = u.a AND u.c > (SELECT avg(c) FROM u)

-- scalar_nested
SELECT a FROM t WHERE b > (SELECT avg(c) FROM u WHERE c > (SELECT min(b) FROM t))

-- scalar_correlated
SELECT a, (SELECT max(c) FROM u WHERE u.a = t.a) m FROM t

-- scalar_count_bug
SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a) n FROM t

-- scalar_count_filter
SELECT a FROM t WHERE (SELECT count(*) FROM u WHERE u.a = t.a AND u.c > 3) = 0

-- scalar_single
SELECT b, (SELECT c FROM u WHERE u.k = t.b) x FROM t

-- correlated_nested
SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.c > (SELECT avg(c) FROM u u2 WHERE u2.s = u.s))

-- lateral
SELECT t.a, x.m FROM t, LATERAL (SELECT max(c) m FROM u WHERE u.a = t.a) x


-- lateral_rows
SELECT t.a, x.c FROM t, LATERAL (SELECT c FROM u WHERE u.a = t.a) x

-- lateral_left
SELECT t.a, x.c FROM t LEFT JOIN LATERAL (SELECT c FROM u WHERE u.a = t.a) x

-- left
SELECT t.a, u.c FROM t LEFT JOIN u ON t.a = u.a

-- right
SELECT t.a, u.c FROM t RIGHT JOIN u ON t.a = u.a AND t.b > 2

-- full
SELECT t.a, t.b, u.a, u.c FROM t FULL JOIN u ON t.a = u.a AND t.s = u.s

-- full_using
SELECT a, b, c FROM t FULL JOIN u USING (a)

-- natural
SELECT * FROM (SELECT a, s, b FROM t) NATURAL JOIN (SELECT a, s, k FROM u)

-- semi
SELECT a FROM t LEFT SEMI JOIN u ON t.a = u.a

-- anti
SELECT a FROM t LEFT ANTI JOIN u ON t.a = u.a

-- null_safe
SELECT t.b, u.c FROM t JOIN u ON t.a <=> u.a AND t.s <=> u.s

-- cross
SELECT t.a, u.k FROM t CROSS JOIN u WHERE t.b = 3

-- theta
SELECT t.a, u.k FROM t JOIN u ON t.b < u.c WHERE t.a = 3

-- theta_left
SELECT t.a, t.b, u.k FROM t LEFT JOIN u ON t.b < u.c AND u.c < 2

-- self
SELECT x.a, y.b FROM t x JOIN t y ON x.b = y.a WHERE x.d > y.d

-- self_three
SELECT x.a FROM t x, t y, u WHERE x.a = y.a AND y.b = u.c

-- cte_twice
WITH c AS (SELECT a, sum(b) n FROM t GROUP BY a) SELECT x.a, y.n FROM c x JOIN c y ON x.n = y.n

-- cte_nested
WITH c AS (SELECT a, b FROM t), d AS (SELECT a, max(b) m FROM c GROUP BY a) SELECT * FROM d WHERE m > (SELECT avg(m) FROM d)

-- expr_key
SELECT t.a, u.k FROM t JOIN u ON t.a + 1 = u.a * 2

-- coerced_key
SELECT t.a, u.k FROM t JOIN u ON CAST(t.b AS DECIMAL(10, 2)) = u.c

-- group
SELECT a, s, count(*), count(b), sum(b), avg(b), min(d), max(d) FROM t GROUP BY a, s

-- group_expr
SELECT a % 3 AS m, upper(s), count(*) FROM t GROUP BY a % 3, upper(s)

-- group_all
SELECT a, flag, sum(d) FROM t GROUP BY ALL

-- group_literal
SELECT 'x', count(*) FROM t WHERE a > 100 GROUP BY 'x'

-- global_empty
SELECT count(*), sum(b), max(s) FROM t WHERE a > 100

-- group_dup
SELECT a, a, count(*) FROM t GROUP BY a, a

-- having
SELECT a, sum(b) FROM t GROUP BY a HAVING sum(d) > 1 AND count(*) > 2

-- distinct_agg
SELECT a, count(DISTINCT s), sum(DISTINCT b), count(DISTINCT s, b) FROM t GROUP BY a

-- filter_agg
SELECT a, sum(b) FILTER (WHERE d > 0), count(*) FILTER (WHERE s = 'x') FROM t GROUP BY a

-- variance
SELECT s, stddev(b), variance(f), var_pop(b), stddev_pop(d), skewness(b), kurtosis(f), corr(b, f), covar_pop(b, f), covar_samp(b,f) FROM t GROUP BY s

-- regr
SELECT s, regr_count(b, f), regr_slope(b, f), regr_intercept(b,f), regr_r2(b,f), regr_sxx(b,f), regr_syy(b,f), regr_sxy(b,f), regr_avgx(b,f), regr_avgy(b,f) FROM t GROUP BY s

-- float_sum
SELECT a, sum(f), avg(f), sum(DISTINCT f), avg(b), avg(a), avg(d) FROM t GROUP BY a

-- bool_agg
SELECT a, bool_and(flag), bool_or(flag), every(b > 0), count_if(b > 3) FROM t GROUP BY a

-- percentile
SELECT a, percentile(b, 0.5), median(b), percentile_cont(0.25) WITHIN GROUP (ORDER BY b), percentile_disc(0.5) WITHIN GROUP (ORDER BY b DESC) FROM t GROUP BY a

-- bit
SELECT a, bit_and(b), bit_or(b), bit_xor(b) FROM t GROUP BY a

-- approx
SELECT a, approx_count_distinct(s) FROM t GROUP BY a

-- collect_sorted
SELECT a, sort_array(collect_list(b)), sort_array(collect_set(s)), size(collect_list(s)) FROM t GROUP BY a

-- max_by
SELECT s, max_by(k, k), min_by(c, k) FROM u GROUP BY s

-- first_unique
SELECT k, first(c), last(c), any_value(s), first(c, true), last(s, true), first_value(c) FROM u GROUP BY k

-- mode
SELECT k, mode(c) FROM u GROUP BY k

-- listagg
SELECT s, listagg(k, ',') WITHIN GROUP (ORDER BY k DESC) FROM u GROUP BY s

-- listagg_distinct
SELECT s, listagg(DISTINCT s, ',') FROM u GROUP BY s

-- rollup
SELECT a, s, sum(b), grouping(a), grouping_id(a, s) FROM t GROUP BY ROLLUP (a, s)

-- cube
SELECT a, flag, count(*) FROM t GROUP BY CUBE (a, flag)

-- grouping_sets
SELECT a, s, max(d) FROM t GROUP BY GROUPING SETS ((a), (s), ())

-- pivot
SELECT * FROM (SELECT a, s, b FROM t) PIVOT (sum(b) FOR s IN ('x', 'y', 'it''s' AS its))

-- pivot_two
SELECT * FROM (SELECT a, s, b, d FROM t) PIVOT (sum(b) AS sb, max(d) AS md FOR s IN ('x', 'y'))

-- pivot_tuple
SELECT * FROM (SELECT a, s, flag, b FROM t) PIVOT (count(b) FOR (s, flag) IN (('x', true), ('y', false)))

-- pivot_text
SELECT * FROM (SELECT a, s, day FROM t) PIVOT (max(day) FOR s IN ('x', 'y'))

-- unpivot
SELECT * FROM (SELECT k, c, CAST(a AS BIGINT) a FROM u) UNPIVOT (v FOR n IN (c, a))

-- unpivot_nulls
SELECT * FROM (SELECT k, c, CAST(a AS BIGINT) a FROM u) UNPIVOT INCLUDE NULLS (v FOR n IN (c, a))

-- explode
SELECT a, x FROM t LATERAL VIEW explode(xs) e AS x

-- explode_outer
SELECT a, x FROM t LATERAL VIEW OUTER explode(xs) e AS x

-- explode_select
SELECT a, explode(xs) FROM t

-- posexplode
SELECT a, posexplode(xs) FROM t

-- explode_outer_select
SELECT b, posexplode_outer(xs) AS (p, x) FROM t

-- inline
SELECT a, inline(array(o, o)) FROM t

-- stack
SELECT k, stack(2, a, 'a', k, 'k') AS (v, n) FROM u

-- map_explode
SELECT k, explode(map('c', c, 'k', CAST(k AS BIGINT))) FROM u

-- json_tuple
SELECT k, json_tuple(concat('{"p":', k, '}'), 'p', 'q') FROM u

-- lateral_explode
SELECT t.a, x FROM t, LATERAL explode(xs) AS e(x)

-- generator_agg
SELECT explode(collect_list(k)) FROM u

-- range
SELECT id, k FROM range(3, 9, 2) JOIN u ON id = k

-- range_empty
SELECT id FROM range(0)

-- values
SELECT * FROM VALUES (1, 'a', NULL), (2, NULL, DATE'2024-01-01') AS v(x, y, z)

-- values_types
SELECT * FROM VALUES (1Y, 2S, 3L, 1.5BD, 2.5D, 'it''s', X'00ff', TIMESTAMP'2024-01-01 00:00:00', INTERVAL '1' DAY, array(1, NULL), map('a', 1), named_struct('p', 1, 'q', 'z'), CAST('NaN' AS DOUBLE), true, TIMESTAMP_NTZ'2024-01-01 00:00:00', 1.5F)

-- values_join
SELECT t.a, y FROM t JOIN VALUES (1, 'one'), (2, 'two') AS v(x, y) ON t.a = v.x

-- constant
SELECT 1 + 1 AS two, 'x' AS s

-- constant_from
SELECT 1 FROM t

-- count_only
SELECT count(*) FROM t, u WHERE t.a = u.a

-- cross_count
SELECT count(*) FROM t CROSS JOIN u

-- distinct
SELECT DISTINCT a, s FROM t

-- distinct_none
SELECT DISTINCT 1 FROM t

-- dedup_order
SELECT DISTINCT a FROM t ORDER BY a

-- order_hidden
SELECT k FROM u ORDER BY c, k

-- limit_hidden
SELECT a FROM u ORDER BY k DESC LIMIT 5

-- limit_offset
SELECT k FROM u ORDER BY k LIMIT 5 OFFSET 3

-- offset_only
SELECT k FROM u ORDER BY k OFFSET 25

-- limit_zero
SELECT k FROM u LIMIT 0

-- limit_nested
SELECT max(k) FROM (SELECT k FROM u ORDER BY k LIMIT 4)

-- limit_join
SELECT t.a, x.k FROM t JOIN (SELECT a, k FROM u ORDER BY k LIMIT 10) x ON t.a = x.a

-- row_number
SELECT k, row_number() OVER (PARTITION BY a ORDER BY k) r FROM u

-- ranks
SELECT k, rank() OVER w, dense_rank() OVER w, percent_rank() OVER w, cume_dist() OVER w FROM u WINDOW w AS (PARTITION BY s ORDER BY a)

-- ntile
SELECT k, ntile(3) OVER (ORDER BY k) FROM u

-- lag
SELECT k, lag(c) OVER w, lead(c, 2) OVER w, lag(c, 1, -1L) OVER w FROM u WINDOW w AS (PARTITION BY s ORDER BY k)

-- lag_ignore
SELECT k, lag(c) IGNORE NULLS OVER w, lead(c, 2) IGNORE NULLS OVER w, nth_value(c, 2) IGNORE NULLS OVER w, first_value(c) IGNORE NULLS OVER w, last_value(c) IGNORE NULLS OVER w FROM u WINDOW w AS (PARTITION BY s ORDER BY k)

-- lag_respect
SELECT k, lag(c) RESPECT NULLS OVER (ORDER BY k) FROM u

-- win_rows
SELECT k, sum(c) OVER (PARTITION BY s ORDER BY k ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING), avg(c) OVER (PARTITION BY s ORDER BY k ROWS UNBOUNDED PRECEDING) FROM u

-- win_range
SELECT k, sum(c) OVER (PARTITION BY s ORDER BY a), count(*) OVER (PARTITION BY s ORDER BY k RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) FROM u

-- win_range_interval
SELECT b, count(*) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 10 SECONDS PRECEDING AND CURRENT ROW) n FROM t

-- win_whole
SELECT k, sum(c) OVER (PARTITION BY s), max(c) OVER () FROM u

-- win_first
SELECT k, first_value(c) OVER w, last_value(c) OVER w, nth_value(c, 2) OVER w FROM u WINDOW w AS (PARTITION BY s ORDER BY k)

-- win_collect
SELECT k, collect_list(c) OVER (PARTITION BY s ORDER BY k) FROM u

-- win_filter
SELECT k, sum(c) FILTER (WHERE c > 3) OVER (PARTITION BY s) FROM u

-- win_agg
SELECT s, sum(c), rank() OVER (ORDER BY sum(c) DESC) FROM u GROUP BY s

-- win_expr
SELECT k, c - avg(c) OVER (PARTITION BY upper(s)) FROM u

-- win_float
SELECT b, sum(f) OVER (PARTITION BY a), avg(f) OVER (PARTITION BY s) FROM t

-- qualify
SELECT k FROM u QUALIFY row_number() OVER (PARTITION BY s ORDER BY k DESC) <= 2

-- tumble
SELECT window.start, window.end, count(*) FROM t GROUP BY window(ts, '10 seconds')

-- hop
SELECT window, a, count(*) FROM t GROUP BY window(ts, '10 seconds', '4 seconds', '1 second'), a

-- tumble_ntz
SELECT window(CAST(ts AS TIMESTAMP_NTZ), '7 seconds').start, b FROM t

-- session
SELECT a, session_window.start, session_window.end, count(*), sum(b) FROM t GROUP BY a, session_window(ts, '5 seconds')

-- session_global
SELECT session_window, count(*) n, min(b) FROM t GROUP BY session_window(ts, '3 seconds')

-- session_edge
SELECT session_window.start AS st, session_window.end AS en, count(*) FROM (SELECT timestamp_seconds(k * 5) AS ts FROM u) GROUP BY session_window(ts, '5 seconds')

-- session_gap_expr
SELECT session_window.start, session_window.end, count(*) FROM t GROUP BY session_window(ts, CASE WHEN a > 5 THEN '2 seconds' ELSE '4 seconds' END)

-- session_having
SELECT s, count(*) n FROM t GROUP BY s, session_window(ts, '6 seconds') HAVING count(*) > 1

-- session_distinct
SELECT s, count(DISTINCT a) n FROM t GROUP BY s, session_window(ts, '6 seconds')

-- strings
SELECT substring(s, 1, 1), upper(s), s || '!', concat_ws('-', s, s), replace(s, 'x', 'z'), trim(s), lpad(s, 5, '*'), length(s), s LIKE 'i%', s RLIKE '^x', split(s, 't'), initcap(s), s LIKE '%\\_%' FROM t

-- like_any
SELECT s LIKE ANY ('x%', 'y'), s LIKE ALL ('%x', 'x%'), s NOT LIKE ANY ('x', 'z'), s NOT LIKE ALL ('x%', 'y') FROM t

-- quotes
SELECT s FROM t WHERE s = 'it''s' OR s = 'Q\\n' OR s = "x"

-- ilike
SELECT s ILIKE 'X' FROM t

-- dates
SELECT day + INTERVAL 1 DAY, day - 3, date_add(day, 2), day - DATE'2024-02-28', extract(YEAR FROM day), month(day), date_trunc('month', ts), trunc(day, 'MM'), last_day(day), to_date('2024-01-02'), date_format(day, 'yyyy'), datediff(day, DATE'2024-01-01'), add_months(day, 1) FROM t

-- timestamps
SELECT ts + INTERVAL 1 HOUR, ts - INTERVAL '1' DAY, extract(SECOND FROM ts), hour(ts), unix_timestamp(ts), CAST(ts AS DATE), ts - TIMESTAMP'2024-01-01 00:00:00', date_part('minute', ts), to_timestamp('2024-01-01 00:00:00'), make_date(2024, a + 1, 1) FROM t

-- interval_months
SELECT day + INTERVAL 2 MONTHS, ts + INTERVAL '1-2' YEAR TO MONTH, timestampadd(HOUR, a, ts), timestampdiff(MINUTE, TIMESTAMP'2024-01-01 00:00:00', ts) FROM t

-- case
SELECT CASE a WHEN 1 THEN 'one' WHEN 2 THEN 'two' END, CASE WHEN b > 3 THEN d ELSE 0 END, if(flag, a, b), coalesce(a, b, 0), nvl(s, 'n'), nvl2(s, 1, 2), nullif(a, 3), ifnull(a, 1), greatest(a, b), least(a, b) FROM t

-- casts
SELECT CAST(a AS STRING), CAST(d AS INT), TRY_CAST(s AS INT), CAST(b AS DECIMAL(20, 3)), CAST(f AS FLOAT), b::double, CAST(day AS TIMESTAMP), CAST(a AS SMALLINT), CAST(flag AS INT) FROM t

-- arith
SELECT a + b, a - b, a * d, d / 3, b / 2, b DIV 2, b % 3, -a, abs(b), round(d, 1), ceil(d), floor(f), pmod(b, 3), try_divide(a, 0), d * d, bround(d, 0), sqrt(abs(b)), a | 2, a & 3, a ^ 1, ~a, shiftleft(a, 2) FROM t

-- bool
SELECT a IS NULL, a IS NOT NULL, NOT flag, flag AND a > 1, flag OR b > 1, a <=> b, a BETWEEN 1 AND 3, a IN (1, 2, NULL), a NOT IN (1, 2), flag IS TRUE, flag IS UNKNOWN, a IS DISTINCT FROM b FROM t

-- struct
SELECT o.p, o.q, named_struct('x', a, 'y', s).y, struct(a, b), o FROM t

-- struct_key
SELECT x.o.p, count(*) FROM t x JOIN t y ON x.o = y.o GROUP BY x.o.p

-- arrays
SELECT xs[0], size(xs), array(a, b), array_contains(xs, 'x'), element_at(array(1, 2), 1), array_distinct(xs), sort_array(xs), slice(xs, 1, 1), flatten(array(xs, xs)), array_join(xs, ','), sequence(1, 3), array_sort(xs), try_element_at(xs, 5) FROM t WHERE size(xs) > 0

-- maps
SELECT map('a', a)['a'], map_keys(map('x', b)), map_from_arrays(array('p'), array(a)), element_at(map('k', s), 'k'), map_entries(map('k', s)), transform_values(map('k', b), (k, v) -> v + 1), map_filter(map('k', b), (k, v) -> v > 2) FROM t

-- lambdas
SELECT transform(xs, x -> upper(x)), filter(xs, x -> x IS NOT NULL), transform(xs, (x, i) -> concat(x, i)), aggregate(array(a, 2), 0, (acc, x) -> acc + x), exists(xs, x -> x = 'y'), forall(xs, x -> x = 'y'), zip_with(xs, xs, (x, y) -> concat(x, y)), transform(array(array(a, b)), z -> transform(z, w -> w + a)), array_sort(xs, (l, r) -> CASE WHEN l > r THEN -1 WHEN l < r THEN 1 ELSE 0 END), reduce(array(1, 2), 0, (acc, x) -> acc + x, acc -> acc * 10) FROM t

-- json
SELECT from_json('{"p": 1}', 'p INT, q STRING'), to_json(named_struct('p', a)), get_json_object('{"p": 7}', '$.p'), from_json('{"d": "01/02/2024"}', 'd DATE', map('dateFormat', 'dd/MM/yyyy')), to_json(named_struct('d', day), map('dateFormat', 'dd/MM/yyyy')), schema_of_json('{"a": 1}'), from_csv('1,2', 'a INT, b INT') FROM t

-- hash
SELECT hash(a, s), xxhash64(a), md5(s), sha2(s, 256), crc32(s), base64(CAST(s AS BINARY)), hex(a) FROM t

-- regexp
SELECT regexp_replace(s, '[xy]', '-'), regexp_extract(s, '(.)', 1), regexp_like(s, 'x'), regexp_count(s, 'x'), translate(s, 'xy', 'ab') FROM t

-- pipe
FROM t |> WHERE a > 3 |> AGGREGATE sum(b) AS n GROUP BY s |> ORDER BY n

-- format
SELECT format_number(d, 1), format_string('%s-%d', s, a), to_char(d, '999.99'), to_number('12', '99') FROM t

-- view_columns
SELECT x.* FROM (SELECT a AS `A b`, b AS `c.d` FROM t) x WHERE x.`A b` > 2

-- keywords
SELECT a AS `select`, b AS `from`, s AS current_date FROM t WHERE a > 1

-- alias_chain
SELECT substring(z, 1, 2) FROM (SELECT upper(y) z FROM (SELECT s || 'q' AS y FROM t)) WHERE substring(z, 1, 1) = 'X'

-- nested_replace
SELECT nvl(w, 'none'), w FROM (SELECT nvl(q, 'a') AS w FROM (SELECT nullif(s, 'x') AS q FROM t)) WHERE nvl(w, 'a') <> 'y'

-- push_agg
SELECT * FROM (SELECT a, sum(b) n FROM t GROUP BY a) WHERE a > 3 AND n > 2

-- push_window
SELECT * FROM (SELECT s, k, row_number() OVER (PARTITION BY s ORDER BY k) r FROM u) WHERE s = 'x' AND r <= 2

-- push_union
SELECT * FROM (SELECT a, 1 AS z FROM t UNION ALL SELECT a, 2 FROM u) WHERE a > 3 AND z = 2

-- or_common
SELECT t.a FROM t, u WHERE (t.a = u.a AND t.b = 1) OR (t.a = u.a AND u.c = 2)

-- hint
SELECT /*+ BROADCAST(u) */ t.a FROM t JOIN u ON t.a = u.a

-- sumwide
SELECT sum(b * 1000000000000), try_sum(b), sum(a), sum(d) FROM t

-- agg_of_agg
SELECT max(n), count(*) FROM (SELECT count(*) n FROM t GROUP BY a, s)

-- try_functions
SELECT try_add(a, 2147483647), try_to_number('x', '99'), try_avg(a) FROM t GROUP BY a

-- parameterless
SELECT pi(), e(), current_timezone(), typeof(a) FROM t

-- count_star_distinct
SELECT count(DISTINCT *) FROM u

-- group_nested
SELECT o, count(*) FROM t GROUP BY o

-- group_struct
SELECT struct(a, s) AS g, sum(b) FROM t GROUP BY struct(a, s)

-- correlated_not_equal
SELECT a, b FROM t WHERE b > (SELECT avg(c) FROM u WHERE u.a < t.a)

-- correlated_in
SELECT a FROM t WHERE a IN (SELECT a FROM u WHERE u.c = t.b)

-- exists_agg
SELECT a FROM t WHERE EXISTS (SELECT max(c) FROM u WHERE u.a = t.a GROUP BY s HAVING max(c) > 3)

-- bool_subquery
SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a) > 1 AND EXISTS (SELECT 1 FROM u WHERE c = t.b) FROM t

-- lateral_top
SELECT t.a, x.c FROM t, LATERAL (SELECT c FROM u WHERE u.a = t.a ORDER BY k LIMIT 1) x

-- lateral_top_two
SELECT t.a, x.c FROM t, LATERAL (SELECT c FROM u WHERE u.a = t.a ORDER BY k DESC LIMIT 2) x

-- scalar_top
SELECT a, (SELECT c FROM u WHERE u.a = t.a ORDER BY k DESC LIMIT 1) x FROM t

-- in_top
SELECT a FROM t WHERE b IN (SELECT c FROM u ORDER BY k LIMIT 6)

-- nonansi_case
SELECT A, B FROM T WHERE S = 'x'

-- bag_order
SELECT a FROM (SELECT a, b FROM t EXCEPT ALL SELECT a, c FROM u) WHERE a > 2

-- variant_get
SELECT a, variant_get(parse_json(concat('{"a": ', a, ', "b": "', s, '"}')), '$.a', 'int') x, try_variant_get(parse_json(concat('["', s, '"]')), '$[0]', 'bigint') y FROM t WHERE variant_get(parse_json(concat('[', a, ']')), '$[0]', 'bigint') > 1

-- replaced_in_cte_twice
WITH c AS (SELECT a, nullif(s, 'x') AS q, date_part('year', ts) AS y FROM t) SELECT l.a, l.q, r.y FROM c l JOIN c r ON l.q = r.q AND l.a = r.a

-- replaced_groups_in_cte_twice
WITH c AS (SELECT left(p, 1) AS p, count(*) AS n FROM (SELECT s AS p FROM t) GROUP BY left(p, 1)) SELECT l.p, r.n FROM c l JOIN c r ON l.n = r.n

-- replaced_in_cte_and_exists
WITH c AS (SELECT a, nvl(s, 'n') AS q FROM t) SELECT l.a FROM c l WHERE EXISTS (SELECT 1 FROM c WHERE c.q > l.q)

-- replaced_in_lateral
SELECT t.a, x.m FROM t, LATERAL (SELECT nullif(u.s, t.s) AS m FROM u WHERE u.a = t.a) x

-- casts_to_parts
SELECT a, cast(array() AS array<int>) e, cast(array(a, b) AS array<string>) x, try_cast(xs AS array<int>) y, cast(o AS struct<i: bigint, j: string>) z, cast(map(s, a) AS map<string, double>) m FROM t WHERE s IS NOT NULL

-- casts_by_spark
SELECT coalesce(array(a), array(b)) x, coalesce(xs, array()) y, cast(o AS struct<i: bigint, j: string>).i + 1 z FROM t

-- arrays_zip
SELECT arrays_zip(xs, array(a, b)) z, transform(arrays_zip(xs, array(a, b)), v -> v.xs) x, size(arrays_zip(array(a))) n FROM t

-- shifts
SELECT b >> 1 x, b >>> 1 y, a << 2 z FROM t WHERE b >> 1 > 0

-- csv_and_xml
SELECT to_csv(struct(a, ts), map('timestampFormat', 'yyyy')) c, to_xml(struct(a, s), map('rowTag', 'r')) x, from_xml(concat('<p><a>', a, '</a></p>'), 'a INT') y FROM t

-- tried_times
SELECT try_to_time(concat(a, ':10:20')) x, try_to_time(s, 'HH') y, try_make_timestamp_ntz(day, time'10:20:30') z FROM t

-- collated_as_ever
SELECT s COLLATE UTF8_BINARY c, count(*) n FROM t GROUP BY 1

-- modes_by_an_order
SELECT s, mode(a, true) x, mode() WITHIN GROUP (ORDER BY a) y, mode() WITHIN GROUP (ORDER BY a DESC) z, mode() WITHIN GROUP (ORDER BY a DESC) FILTER (WHERE b > 0) w FROM t GROUP BY s

-- approximate_to
SELECT s, approx_count_distinct(a, 0.1) x, approx_count_distinct(a, 0.1) FILTER (WHERE b > 0) y, approx_count_distinct(b) z FROM t GROUP BY s

-- most_by
SELECT s, max_by(b, b, 2) x, min_by(b, b, 3) FILTER (WHERE a > 2) y FROM t GROUP BY s
