"""One SparkSession for all tests that need Spark; a failed task is tried again, as on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.collection.run_layout import LAYOUTS
from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.persist.client import Client, open_location
from headwater.persist.core import Settings


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    # Four slots, and two attempts of a task: a plain local master gives a task just one.
    yield open_session(SparkSettings(master="local[4,2]"))
    close_session()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A location whose merges and sweeps happen only when a test asks for them."""
    settings = Settings(maintenance=False)
    with open_location(tmp_path / "data", layouts=LAYOUTS, settings=settings) as opened:
        yield opened
