"""Statements of every kind, to be put together wrongly: the reference's examples and more."""

from __future__ import annotations

from typing import Final

from headwater.adapter.reference import SECTIONS

_ELSEWHERE: Final = ("KAFKA", "POSTGRES", "MYSQL", "REDIS", "REGISTRY", "INTO ", "VALIDATE", "FILE")
"""What would be asked of others, and waited for."""

_TABLE: Final = (
    "CREATE TABLE t (k bigint PRIMARY KEY, v text, n numeric(12,2), d date, at timestamptz, "
    "f double precision, b boolean, u uuid, j jsonb, y bytea)"
)
_ROWS: Final = (
    "INSERT INTO t VALUES (1, 'a', 1.50, '2026-01-02', '2026-01-02 03:04:05+00', 0.5, true, "
    """'00000000-0000-0000-0000-000000000001', '{"a": 1}', '\\x00ff'), """
    "(2, NULL, NULL, NULL, NULL, 'NaN', false, NULL, NULL, NULL)"
)
SETUP: Final = (
    "DROP TABLE IF EXISTS made CASCADE",
    "DROP VIEW IF EXISTS made CASCADE",
    "DROP MATERIALIZED VIEW IF EXISTS made CASCADE",
    "DROP TABLE IF EXISTS t CASCADE",
    _TABLE,
    _ROWS,
    "CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS c, sum(n) AS s FROM t GROUP BY v",
    "CREATE VIEW p AS SELECT k, v FROM t WHERE b",
    "CREATE INDEX p_k ON p (k)",
)

_MORE: Final = (
    "SELECT * FROM t",
    "SELECT k, v, n FROM t WHERE k = 1",
    "SELECT v FROM t WHERE k IN (1, 2) AND v LIKE 'a%' ORDER BY k DESC NULLS LAST LIMIT 3 OFFSET 1",
    "SELECT v, count(*), sum(n), avg(f), max(d) FROM t GROUP BY v HAVING count(*) > 0",
    "SELECT a.k, b.v FROM t AS a LEFT JOIN t AS b ON a.k = b.k + 1 WHERE b.k IS NULL",
    "SELECT * FROM t NATURAL JOIN p",
    "SELECT k FROM t UNION ALL SELECT c FROM m EXCEPT SELECT 1",
    "SELECT row_number() OVER (PARTITION BY v ORDER BY k ROWS 2 PRECEDING) FROM t",
    "SELECT CASE WHEN b THEN 'x' ELSE v END, coalesce(v, 'none'), nullif(k, 1) FROM t",
    "SELECT n::int, k::text, '2026-01-01'::date + 1, d - INTERVAL '1 day', f * 2, -k FROM t",
    "SELECT date_trunc('day', at), extract(year FROM d), to_char(at, 'YYYY-MM-DD') FROM t",
    "SELECT upper(v) || lower(v), substring(v from 1 for 2), length(v), round(n, 1) FROM t",
    "SELECT array_agg(k), string_agg(v, ','), bool_and(b), count(DISTINCT v) FROM t",
    "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS x (i, s) WHERE EXISTS (SELECT * FROM t)",
    "WITH w AS (SELECT k FROM t), x AS (SELECT max(k) AS k FROM w) SELECT * FROM w NATURAL JOIN x",
    "SELECT 1 WHERE NOT EXISTS (SELECT * FROM t)",
    "SELECT (SELECT max(k) FROM t), ARRAY[1, 2], ROW(1, 'a')",
    "SELECT $1::int + 1, $2::text",
    "INSERT INTO t (k, v) VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
    "INSERT INTO t (k, v) SELECT k + 10, v FROM t RETURNING k, v",
    "INSERT INTO t (k, n, d, f, b) VALUES (9, 1.5, DATE '2026-01-01', 1e3, false) RETURNING *",
    "UPDATE t SET v = 'z', n = n + 1 WHERE k = 1 RETURNING *",
    "DELETE FROM t WHERE k > 100 RETURNING k",
    "SELECT version(), current_user, current_setting('search_path'), pg_backend_pid()",
    "SELECT relname, relkind FROM pg_catalog.pg_class WHERE relname = 't'",
    "SELECT column_name FROM information_schema.columns WHERE table_name = 't'",
    "SELECT 't'::regclass, pg_get_viewdef('p'::regclass), format_type(23, -1)",
    "SELECT name, kind FROM hw_catalog.hw_objects",
    "SELECT * FROM t AS OF 1",
    "SELECT count(*) FROM t AS OF AT LEAST 1",
    "COPY t (k, v) FROM STDIN",
    "COPY t FROM STDIN (FORMAT csv, HEADER, NULL 'x', FORCE_NULL (v))",
    "COPY t FROM STDIN (FORMAT binary)",
    "COPY (SELECT k, v FROM t) TO STDOUT (FORMAT csv, QUOTE '\"', FORCE_QUOTE *)",
    "COPY t TO STDOUT WITH BINARY",
    "DECLARE c CURSOR WITH HOLD FOR SELECT k FROM t",
    "FETCH 2 FROM c",
    "MOVE ALL FROM c",
    "CLOSE c",
    "PREPARE p (bigint) AS SELECT v FROM t WHERE k = $1",
    "EXECUTE p (1 + 1)",
    "EXECUTE p (1)",
    "DEALLOCATE ALL",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "BEGIN; INSERT INTO t (k) VALUES (77); SELECT 1; ROLLBACK",
    "SUBSCRIBE t WITH (PROGRESS, SNAPSHOT) UP TO 1",
    "SUBSCRIBE (SELECT v FROM t) ENVELOPE UPSERT (KEY (v)) UP TO 1",
    "SHOW ALL",
    "SET search_path TO public, other",
    "SET dialect = spark",
    "SET dialect = postgres",
    "SET transaction_isolation = 'bounded staleness 1s'",
    "SELECT explode(array(1, 2)), named_struct('a', 1)",
    "CREATE TABLE made (a int DEFAULT 1 NOT NULL, b varchar(3), c numeric, PRIMARY KEY (a))",
    "CREATE MATERIALIZED VIEW made AS SELECT k FROM t WHERE v IS NOT NULL",
    "ALTER TABLE t RENAME TO made",
    "COMMENT ON COLUMN t.v IS 'a text'",
    "TRUNCATE t",
    "DROP TABLE made CASCADE",
)

CORPUS: Final = tuple(
    dict.fromkeys(
        (
            *_MORE,
            *(
                example
                for entries in SECTIONS.values()
                for entry in entries
                for example in entry.examples
                if not any(word in example.upper() for word in _ELSEWHERE)
            ),
        )
    )
)
