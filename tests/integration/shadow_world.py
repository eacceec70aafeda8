"""What a shadow mirrors in the tests, and what it shows of it."""

from __future__ import annotations

from headwater.adapter.shadow.objects import Column, Index, Mirrored, Relation, Schema
from headwater.adapter.shadow.shadow import Shadow

T = Relation(
    "public",
    "t",
    "table",
    (
        Column("a", "integer", not_null=True, comment="the key"),
        Column("b", "text"),
        Column("n", "numeric(12,2)"),
        Column("at", "timestamp with time zone"),
    ),
    primary_key=("a",),
    unique_keys=(("b", "n"),),
    indexes=(Index("t_b", ("b",)),),
    comment="it's a table",
)
V = Relation(
    "public",
    "v",
    "view",
    (Column("a", "integer"), Column("b", "text")),
    definition="SELECT a, b FROM t",
)
M = Relation(
    "public",
    "m",
    "materialized view",
    (Column("b", "text"), Column("c", "bigint")),
    definition="SELECT b, count(*) AS c FROM v GROUP BY b",
    indexes=(Index("m_b", ("b",), unique=True),),
)
SPARK = Relation(
    "sales", "Odd Name", "view", (Column("x", "bigint"),), definition="SELECT mz_now()"
)
OBJECTS: tuple[Mirrored, ...] = (Schema("public"), Schema("sales", "of sales"), T, V, M, SPARK)


USERS = "select rolname from pg_roles where rolname !~ '^pg_' order by 1"


def rows(shadow: Shadow, sql: str, *parameters: str | None) -> list[tuple[str | None, ...]]:
    return list(shadow.run_catalog_query(sql, parameters).rows)


def oid(shadow: Shadow, name: str) -> str | None:
    return rows(shadow, "select to_regclass($1)::oid::text", name)[0][0]
