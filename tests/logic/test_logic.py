"""SQL logic tests: several hundred statements over the wire, each with the answer it must have.

``portable`` files say what PostgreSQL says: they are run against a real PostgreSQL as well, so what
is expected of us is what it answers (``tests/integration/test_logic_postgres.py``; with
``REWRITE=1`` it writes that down). ``ours`` files have what PostgreSQL does not: times, sessions
side by side, views that are kept. Here queries are evaluated by DuckDB behind the real core and the
real wire; ``tests/spark/test_logic_spark.py`` runs the same files on Spark, and ``ours_on_spark``,
which need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.adapter.pgwire import WireServer
from headwater.base.clock import SystemClock
from headwater.testing.datadriven import collect, run_file
from headwater.testing.sql_server import SqlServer
from tests.logic.story import WireStory

pytestmark = pytest.mark.server

FOLDER = Path(__file__).parent
PORTABLE = collect(FOLDER / "portable")
ON_SPARK = collect(FOLDER / "portable_on_spark")
OURS = collect(FOLDER / "ours")


@contextmanager
def served(times_max: int | None = None) -> Iterator[WireStory]:
    with SqlServer(SystemClock()) as core, WireServer("127.0.0.1", 0, core.coordinator) as wire:
        core.timeline.start()
        where = {"host": wire.host, "port": wire.port, "user": "headwater"}
        story = WireStory(times_max=times_max, **where)
        try:
            yield story
        finally:
            story.close()


@pytest.mark.parametrize("path", [*PORTABLE, *OURS], ids=lambda path: path.stem)
def test_over_the_wire(path: Path) -> None:
    with served(times_max=6 if path.stem == "times" else None) as story:
        run_file(path, story.handle)


@pytest.mark.soak
def test_views_at_every_time() -> None:
    with served() as story:
        run_file(FOLDER / "ours" / "times.txt", story.handle)


def test_there_are_several_hundred() -> None:
    text = [path.read_text(encoding="utf-8") for path in (*PORTABLE, *ON_SPARK, *OURS)]
    assert sum(line.endswith(";") for each in text for line in each.splitlines()) > 300
