"""A view over a location of its own, hydrated by ranges in this process, and stepped on.

What stands between a plan and its rows is all as it is on Spark, but for the tasks
(``testing/stages.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from headwater.collection.run_layout import LAYOUTS
from headwater.compute import maintained
from headwater.compute.dataflow.chain import Chain
from headwater.compute.dataflow.task import Done
from headwater.compute.hydration import Ranges, hydrated, ranges_for
from headwater.compute.install import Installer, Named, Wanted, reserving
from headwater.compute.ir.node import Node
from headwater.compute.maintained import GroupStep, MaintainedView
from headwater.persist.client import Client, open_location
from headwater.persist.commands import All, Atomic
from headwater.persist.consolidate import DIFF, TIME
from headwater.persist.core import Settings
from headwater.persist.decision import collection_named, collection_of
from headwater.persist.spark import writing
from headwater.persist.spark_parts import Reading, cut, place_of
from headwater.persist.state import bound
from headwater.testing.expressions import from_arrow
from headwater.testing.random_views import planned
from headwater.testing.rig import Row, Rows, Update
from headwater.testing.stages import Stages, TasksHere


@dataclass(frozen=True)
class NoSpark:
    """As much of a session as a view that is given as a plan is installed with."""

    version: str = pyspark.__version__


def opened(folder: Path) -> Client:
    return open_location(folder, layouts=LAYOUTS, settings=Settings(maintenance=False))


@dataclass
class RangedView:
    """A view that is created at once; the first of its steps is run by ranges."""

    client: Client
    plan: Node
    relations: Mapping[str, str]
    """The collections, by the names the plan has for them."""
    range_rows: int
    tasks: TasksHere = field(default_factory=TasksHere)
    ranges: Ranges | None = None
    """Those of the first step, if it had any."""
    errors: list[tuple[int, int]] = field(default_factory=list)
    """Times and diffs."""
    name: str = "view"

    def __post_init__(self) -> None:
        core, session = self.client.core, NoSpark()
        inputs = {n: collection_named(core.state, name) for n, name in self.relations.items()}
        wanted = Wanted(self.name, planned(session, self.plan), inputs, Named(self.name))
        view, made = Installer(core.state, session, reserving(core)).install(wanted)
        assert isinstance(view, MaintainedView)
        core.submit(Atomic(made)).result()
        self.view = view

    def step(self) -> None:
        """Step until the inputs' uppers."""
        core = self.client.core
        state, place = core.state, place_of(core)
        assert place is not None
        found = maintained.plan_view(state, self.view)
        assert found is not None
        group = maintained.plan_group(state, [found])
        with core.step() as step:
            into = writing(core, step)
            ranges = ranges_for(found.rows, self.range_rows, 1) if found.hydrating else None
            done = None
            if ranges is not None:
                done = hydrated(
                    self.tasks, group, place, into, ranges, lambda *_: None, step.discard
                )
                self.ranges = ranges if done is not None else None
            if done is None:
                task = group.task(place, into, (self.view.id,))
                done = Stages(Chain((self.view.flow,)).prepared()).run(task)
            self._commit(group, done)

    def _commit(self, group: GroupStep, done: Done) -> None:
        made = maintained.commands(group, done, {})
        assert isinstance(self.client.core.submit(Atomic(made)).result(), All)
        self.errors += [(error.time, error.diff) for error in done.errors]

    @property
    def upper(self) -> int:
        state = self.client.core.state
        return bound(state.upper(collection_of(state, self.view.id)))

    def rows_at(self, time: int) -> Rows:
        """Return what it holds; a row that is there less than no times is not left out."""
        rows: Rows = Counter()
        for row, at, diff in self._updates():
            if at <= time:
                rows[row] += diff
        return Counter({row: n for row, n in rows.items() if n})

    def errors_at(self, time: int) -> int:
        return sum(diff for at, diff in self.errors if at <= time)

    def _updates(self) -> Iterable[Update]:
        core = self.client.core
        collection, place = collection_of(core.state, self.view.id), place_of(core)
        assert place is not None
        ok, _ = cut(collection, self.view.start, self.upper, hydrating=True)
        for table in ok.read(Reading.of(place, collection)):
            yield from updates_of(table)


def updates_of(table: pa.Table) -> Iterable[Update]:
    names = [name for name in table.column_names if name not in (TIME, DIFF)]
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in (*names, TIME, DIFF)]
    for *row, time, diff in zip(*columns, strict=True):
        yield tuple(map(from_arrow, row)), time, diff


def as_row(row: Row, names: Iterable[str]) -> dict[str, Any]:
    return dict(zip(names, row, strict=True))
