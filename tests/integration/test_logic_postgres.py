"""What logic tests (``tests/logic``) expect of us in common with PostgreSQL, it answers itself."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headwater.testing.datadriven import collect, run_file
from tests.integration.shared_location import Postgres
from tests.logic.story import WireStory

pytestmark = pytest.mark.server

LOGIC = Path(__file__).resolve().parents[1] / "logic"
PATHS = [
    path
    for folder in ("portable", "portable_on_spark", "portable_with_shadow")
    for path in collect(LOGIC / folder)
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_postgres_says_so(postgres: Postgres, path: Path) -> None:
    # A database of its own, by byte order, as ours is.
    name = f"logic_{path.stem}"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 LC_COLLATE 'C'")
    story = WireStory(conninfo=postgres.dsn, dbname=name)
    try:
        run_file(path, story.handle)
    finally:
        story.close()
