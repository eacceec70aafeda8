"""What the shadow is to show of a catalog: in an order that can be made, under today's names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.adapter.mirrored import NAME_BYTES_MAX, catalog_key, mirrored
from headwater.adapter.shadow.objects import Column, Index, Relation
from headwater.adapter.sql.names import SYSTEM_SCHEMA
from headwater.testing.sql_server import SqlServer


@pytest.fixture
def server() -> Iterator[SqlServer]:
    with SqlServer() as opened:
        yield opened


def shown(server: SqlServer) -> dict[str, Relation]:
    """The users' relations, in order."""
    found = mirrored(server.client.core.state)
    return {
        each.name: each
        for each in found
        if isinstance(each, Relation) and each.schema != SYSTEM_SCHEMA
    }


def test_a_relation_stands_after_what_it_is_made_of(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE TABLE z (k bigint PRIMARY KEY, v text NOT NULL DEFAULT 'it''s')")
    sql("CREATE VIEW m AS SELECT k FROM z; CREATE VIEW a AS SELECT m.k FROM m, z AS other")
    sql("COMMENT ON COLUMN z.v IS 'a text'; CREATE INDEX i ON z (v)")
    found = shown(server)
    assert list(found) == ["z", "m", "a"]
    assert found["z"].primary_key == ("k",)
    assert found["z"].indexes == (Index("i", ("v",)),)
    assert found["z"].columns == (
        Column("k", "bigint", not_null=True),
        Column("v", "text", not_null=True, comment="a text", default="'it''s'"),
    )


def test_a_view_is_written_with_the_names_of_today(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE TABLE t (k bigint); CREATE VIEW v AS SELECT t.k FROM t")
    assert shown(server)["v"].definition == "SELECT t.k FROM t"
    # Another relation has the name by now; a WITH of that name is no relation.
    sql("ALTER TABLE t RENAME TO u; CREATE TABLE t (other text)")
    assert shown(server)["v"].definition == 'SELECT t.k FROM "public"."u" AS "t"'
    sql("CREATE VIEW w (n) AS WITH u AS (SELECT k FROM v) SELECT k FROM u")
    sql("ALTER VIEW v RENAME TO v2")
    assert shown(server)["w"].definition == (
        'SELECT * FROM (WITH u AS (SELECT k FROM "public"."v2" AS "v") SELECT k FROM u)'
        ' AS named("n")'
    )


def test_only_the_catalog_counts(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE TABLE t (k bigint)")
    before = catalog_key(server.client.core.state)
    sql("INSERT INTO t VALUES (1)")
    assert catalog_key(server.client.core.state) == before
    sql("COMMENT ON TABLE t IS 'else'")
    assert catalog_key(server.client.core.state) != before


def test_a_name_that_postgresql_would_cut_is_left_out(server: SqlServer) -> None:
    sql = server.session()
    sql(f"CREATE TABLE {'n' * (NAME_BYTES_MAX + 1)} (k bigint); CREATE TABLE t (k bigint)")
    assert list(shown(server)) == ["t"]


def test_of_a_source_its_outputs_are_shown_and_no_secret(server: SqlServer) -> None:
    server.session()(
        "CREATE SOURCE house FROM LOAD GENERATOR AUCTION FOR ALL TABLES; CREATE SECRET s AS 'x';"
        "CREATE CONNECTION c TO POSTGRES (HOST 'h', DATABASE 'd', USER 'u', PASSWORD SECRET s)"
    )
    assert set(shown(server)) == {"person", "auction", "bid", "house_progress"}
