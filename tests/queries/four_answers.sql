-- Queries that some way of asking answered wrongly once, made small. Each is asked four ways again
-- over the tables of headwater.testing.answers.world (tests/spark/test_four_answers.py).

-- An aggregate of which nothing is used was as many rows as its input has.
SELECT count(*) FROM (SELECT count(*) FROM t) AS q1;
SELECT q1.k FROM t AS q1, (SELECT sum(x) FROM t) AS q2;
SELECT 1 FROM (SELECT max(k) FROM u WHERE k > 50) AS q1 UNION ALL SELECT 2 FROM (SELECT count(*) FROM v) AS q2;
WITH w1 AS (SELECT max(k) AS c1 FROM u) SELECT 'row' FROM w1;

-- How string_agg orders stood inside the guard of its FILTER.
SELECT string_agg(h, ',' ORDER BY h) FILTER (WHERE y IN (-1, 2)) AS c1 FROM u GROUP BY k;

-- Beside calls that Spark takes apart, string_agg lost its order.
SELECT string_agg(g, ',' ORDER BY g) AS c1, string_agg(DISTINCT g, '-' ORDER BY g) AS c2, count(DISTINCT b) FILTER (WHERE k IN (1, 2)) AS c3, count(DISTINCT x) AS c4 FROM t GROUP BY f;

-- A FILTER that is false whatever the row is made a window function of a constant.
SELECT count(*) FILTER (WHERE CASE WHEN true THEN false ELSE true END) AS c1, string_agg(h, ',' ORDER BY h) AS c2 FROM u GROUP BY GROUPING SETS ((k), (k, y), ());

-- Digits: averages and quotients had nine and six of them.
SELECT avg(id) AS c1, avg(k) AS c2, avg(z) AS c3 FROM v GROUP BY s;
SELECT avg(z) OVER (ORDER BY id) AS c1 FROM v;
SELECT sum(n) / sum(z) AS c1 FROM t JOIN v ON t.k = v.id HAVING sum(z) <> 0;

-- Comparisons of numerics rounded the finer side.
SELECT k, sum(x) AS c1 FROM t GROUP BY k HAVING sum(x) > 2.5;
SELECT q1.c1, q2.n FROM (SELECT sum(x) AS c1 FROM t GROUP BY g) AS q1 JOIN t AS q2 ON q1.c1 = q2.n;
SELECT count(*) FROM v WHERE z = 1.5000000004;

-- A set over no rows, texts as values, errors in PostgreSQL's words.
SELECT count(*) AS c1 FROM u WHERE k > 99 GROUP BY GROUPING SETS ((), ());
SELECT cast(g AS int) AS c1 FROM t;
SELECT cast(g AS boolean) AS c1 FROM t WHERE g IN ('7', '');
SELECT substr(h, 1, y) AS c1 FROM u;
SELECT least(k, NULL) / x AS c1 FROM t;

-- EXISTS as an operand stood without brackets, which Spark does not read.
SELECT k AS c1 FROM u WHERE (EXISTS (SELECT 1 FROM t)) IS NOT UNKNOWN;
SELECT k AS c1 FROM u WHERE nullif((EXISTS (SELECT 1 FROM t WHERE t.k = u.k)), true) IS NULL;
SELECT k AS c1 FROM u WHERE (EXISTS (SELECT 1 FROM v)) IN (true, NULL);
