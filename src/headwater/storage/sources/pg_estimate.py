"""About how many rows tables of PostgreSQL have, without reading them.

    rows  =  pages now  x  rows in a page, as they were last counted (``ANALYZE``, ``VACUUM``)

Of a table that was never counted, or has more than doubled since, some pages are counted here
(``TABLESAMPLE``); of a small one, all. A partitioned table is its partitions.

Relied on by: the progress of a snapshot, which is shown to people; nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from psycopg import sql

PAGES_COUNTED: Final = 200

_PAGES: Final = """
SELECT leaf.oid::regclass::text, c.reltuples::float8, c.relpages::float8,
       (pg_relation_size(c.oid) / current_setting('block_size')::bigint)::float8
FROM pg_class named JOIN pg_namespace n ON n.oid = named.relnamespace
CROSS JOIN LATERAL (SELECT relid::oid AS oid FROM pg_partition_tree(named.oid) WHERE isleaf
                    UNION SELECT named.oid WHERE named.relkind <> 'p') leaf
JOIN pg_class c ON c.oid = leaf.oid
WHERE n.nspname || '.' || named.relname = ANY(%s)
"""


def rows_of(connection: Any, tables: Collection[str]) -> int:
    """Return about how many rows these tables (``schema.table``) have together."""
    found = 0.0
    for name, counted, pages_then, pages in connection.execute(_PAGES, (list(tables),)).fetchall():
        if not pages:
            continue
        if counted >= 0 and pages <= 2 * pages_then:
            found += counted / pages_then * pages
        else:
            found += _sampled(connection, name, pages)
    return round(found)


def _sampled(connection: Any, name: str, pages: float) -> float:
    share = min(100.0, 100.0 * PAGES_COUNTED / pages)
    # The name is quoted where it has to be: it came as a regclass.
    query = sql.SQL("SELECT count(*) FROM ONLY {} TABLESAMPLE SYSTEM ({})")
    rows = connection.execute(query.format(sql.SQL(name), sql.Literal(share))).fetchone()
    return float(rows[0]) * 100.0 / share
