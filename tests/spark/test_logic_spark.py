"""Logic tests (``tests/logic``) over the wire, evaluated and kept by Spark: a part of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from headwater.adapter.coordinator import Coordinator
from headwater.adapter.pgwire import WireServer
from headwater.adapter.timeline import Timeline
from headwater.base.clock import SystemClock
from headwater.compute.controller import ViewController
from headwater.materialize.controller import Materializations
from headwater.persist.client import Client
from headwater.testing.datadriven import collect, run_file
from tests.logic.story import WireStory

pytestmark = pytest.mark.spark

LOGIC = Path(__file__).resolve().parents[1] / "logic"
EVERY_TIME = [*collect(LOGIC / "portable_on_spark"), *collect(LOGIC / "ours_on_spark")]
SOAKED = [path for path in collect(LOGIC) if path not in EVERY_TIME]


@pytest.fixture
def server(client: Client, spark: Any) -> Iterator[WireServer]:
    timeline = Timeline(client, SystemClock())
    views, materializations = ViewController(client, spark), Materializations(client)
    coordinator = Coordinator(client, timeline, views, materializations)
    views.start()
    timeline.start()
    with WireServer("127.0.0.1", 0, coordinator) as wire:
        yield wire
    views.stop()
    timeline.stop()


@pytest.fixture
def story(server: WireServer) -> Iterator[WireStory]:
    opened = WireStory(host=server.host, port=server.port, user="headwater", times_max=3)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "path",
    [*EVERY_TIME, *(pytest.param(path, marks=pytest.mark.soak) for path in SOAKED)],
    ids=lambda path: path.stem,
)
def test_on_spark(story: WireStory, path: Path) -> None:
    run_file(path, story.handle)
    if path.stem in ("first", "times"):
        assert story.checked >= 4


def test_drivers_say_how_many_rows(server: WireServer) -> None:
    """Parameters of LIMIT and OFFSET, in text, in binary, and as SQLAlchemy casts them."""
    address = f"postgresql://headwater@{server.host}:{server.port}/headwater"
    table = sa.table("t", sa.column("id"))
    some = sa.select(table.c.id).order_by(table.c.id)
    within = sa.select(sa.func.max(some.limit(3).subquery().c.id))
    with psycopg.connect(address, autocommit=True) as connection:

        def asked(query: str, values: Any) -> list[int]:
            return [row[0] for row in connection.execute(query.encode(), values)]

        dialect: Any = postgresql.psycopg.dialect
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1), (2), (3), (4)")
        for form in ("%s", "%t", "%b", "%b::integer", "CAST(%t AS bigint)", "(%b)"):
            query = f"SELECT id FROM t ORDER BY id LIMIT {form} OFFSET {form}"
            assert asked(query, (2, 1)) == [2, 3], form
            assert asked(query, (None, 3)) == [4], form
        for wanted, rows in (
            (some.limit(2).offset(1), [2, 3]),
            (some.offset(3).fetch(2), [4]),
            (within, [3]),
        ):
            written = wanted.compile(dialect=dialect())
            assert asked(str(written), written.params) == rows, str(written)
        with pytest.raises(psycopg.errors.InvalidRowCountInLimitClause):
            asked("SELECT id FROM t LIMIT %s::integer", (-1,))
        with pytest.raises(psycopg.errors.InvalidRowCountInResultOffsetClause):
            asked("SELECT id FROM t OFFSET %s::integer", (-1,))
