"""One SparkSession for all tests that need Spark; a failed task is tried again, as on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaPackage, JVMView

from headwater.collection.run_layout import LAYOUTS
from headwater.compute import class_archive
from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.persist.client import Client, open_location
from headwater.persist.core import Settings

ROOM = "-Xms1g -Xmn640m -XX:MetaspaceSize=256m"
"""One JVM runs hundreds of tests. In a gigabyte that grows as it is used, a tenth of its processor
time was garbage collection, and more with every test."""

EXTRA = (
    # The steps of sixty views are compiled once, not anew for each step after a hundred others.
    ("spark.sql.codegen.cache.maxEntries", "1000"),
    # What a page that nobody looks at would say of a plan.
    ("spark.sql.ui.explainMode", "simple"),
)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    settings = SparkSettings(
        # Four slots, and two attempts of a task: a plain local master gives a task just one.
        master="local[4,2]",
        driver_memory="2g",
        extra=EXTRA,
        java_options=f"{class_archive.options(class_archive.path())} {ROOM}",
    )
    with pytest.MonkeyPatch.context() as patched:
        for kind in (JVMView, JavaPackage):
            patched.setattr(kind, "__getattr__", _once(kind.__getattr__))
        yield open_session(settings)
        close_session()


def _once(ask: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Ask Java once what a name is: whether ``py4j`` is a class it looks up in every jar it has.

    PySpark asks that for each type that an exception might have.
    """

    def asked(of: Any, name: str) -> Any:
        found = ask(of, name)
        vars(of)[name] = found  # What an object has it is not asked for.
        return found

    return asked


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A location whose merges and sweeps happen only when a test asks for them."""
    settings = Settings(maintenance=False)
    with open_location(tmp_path / "data", layouts=LAYOUTS, settings=settings) as opened:
        yield opened
