"""A project of pipelines and a location, in the Spark of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import api
from headwater.adapter import catalog, replacement
from headwater.api import Database
from headwater.pipelines import spec
from headwater.pipelines.plan import Selection
from headwater.pipelines.run import Pipeline

SPEC = """
name: shop
storage: kept
database: sales
configuration: {shop.least: "2"}
libraries:
  - glob: {include: definitions/**}
"""


class World:
    """A project and a location, in the Spark of all tests."""

    def __init__(self, root: Path, database: Database) -> None:
        self.root = root
        self.database = database

    def write(self, name: str, text: str) -> None:
        write(self.root / name, text)

    def loaded(self) -> Pipeline:
        file = self.root / "spark-pipeline.yml"
        pipeline = Pipeline(spec.load(file), self.database, self.database.engine.spark)
        pipeline.load()
        return pipeline

    def check(self, selection: Selection | None = None) -> dict[str, str]:
        made = self.loaded().decisions(selection or Selection())
        return {each.name: each.action for each in made}

    def run(self, selection: Selection | None = None) -> dict[str, Any]:
        done = self.loaded().run(selection or Selection())
        return {
            each.decision.name: (each.decision.action, each.rows)
            if each.rows is not None
            else each.decision.action
            for each in done
        }

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(self.database.relation(name).fetchall(), key=in_order)

    def collections(self) -> dict[str, str]:
        state = self.database.state()
        return {each.name: each.collection for each in catalog.objects(state)}


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def in_order(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in row]


@pytest.fixture
def world(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    # What is replaced goes at once; nobody else reads it.
    monkeypatch.setattr(replacement, "GRACE_SECONDS", 0.0)
    with api.open(tmp_path / "data", writable=True, spark=spark, timeout_s=0) as database:
        yield World(tmp_path / "project", database)
