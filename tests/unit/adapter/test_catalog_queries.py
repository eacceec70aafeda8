"""A server without its shadow: questions about the catalog are refused, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.adapter import catalog_queries
from headwater.adapter.catalog_queries import CatalogUnavailable
from headwater.adapter.shadow.shadow import Shadow
from headwater.testing.sql_server import SqlServer


class Broken(Shadow):
    """One that never starts, and counts how often it was asked to."""

    tries = 0

    def __init__(self, directory: Path, users: object) -> None:
        del directory, users

    def start(self) -> bool:
        type(self).tries += 1
        raise OSError("no such program")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SqlServer]:
    monkeypatch.setattr(catalog_queries, "Shadow", Broken)
    monkeypatch.setattr(Broken, "tries", 0)
    with SqlServer(shadow=tmp_path / "shadow") as opened:
        yield opened


def test_questions_about_the_catalog_say_why_they_are_refused(server: SqlServer) -> None:
    sql = server.session()
    for _ in range(2):
        with pytest.raises(CatalogUnavailable) as refused:
            sql("SELECT relname FROM pg_class")
        assert "no such program" in str(refused.value.detail)
    assert Broken.tries == 1, "whoever asks soon after is told at once"


def test_everything_else_works(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE TABLE t (k bigint PRIMARY KEY)")
    assert sql.session.describe("SELECT * FROM t WHERE k = $1", (0,)) is None
    sql("INSERT INTO t VALUES (1)")
    assert sql("SELECT k FROM t") == [(1,)]
