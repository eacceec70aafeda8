"""Tables that change together in one location, and views over them: what the benches step.

Changes are written and sealed outside of what is measured: a step's cost begins when its inputs are
durable, and ends when its output is. Merges run beside it, as they do in a server; or *apart*,
where several worlds take turns: one would else be charged with the merges of another.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from measure import Cost, cost, percentile

from headwater.base.ids import GlobalId
from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.persist.client import open_location
from headwater.persist.core import Settings
from headwater.persist.maintenance import Maintenance
from headwater.testing.duck import difference
from headwater.testing.relation import Change, as_updates


@dataclass
class Costs:
    """What the same work took, time after time."""

    samples: list[Cost] = field(default_factory=list)

    @property
    def cpu_s(self) -> float:
        return statistics.median(sample.cpu_s for sample in self.samples)

    @property
    def mean_cpu_s(self) -> float:
        return statistics.mean(sample.cpu_s for sample in self.samples)

    @property
    def wall_s(self) -> float:
        return percentile([sample.wall_s for sample in self.samples], 0.5)

    @property
    def wall_p99_s(self) -> float:
        return percentile([sample.wall_s for sample in self.samples], 0.99)


class _Called(Maintenance):
    """The work of the background, done when it is called; nobody else asks what was touched."""

    def _touched(self) -> set[GlobalId]:
        machine = self._core.machine
        touched = machine.take_touched() if machine else None
        return set(self._core.state.collections) if touched is None else touched


class World:
    """One location: some tables, and views that are created, stepped and dropped."""

    def __init__(
        self,
        folder: Path,
        session: Any,
        tables: Mapping[str, pa.Table],
        *,
        merging_apart: bool = False,
    ) -> None:
        settings = Settings(maintenance=not merging_apart)
        self.client = open_location(folder, layouts=LAYOUTS, settings=settings)
        self._maintenance = _Called(self.client.core) if merging_apart else None
        self.controller = ViewController(self.client, session)
        self.time = 0
        self._writers = {}
        for name, rows in tables.items():
            self._writers[name], _ = self.client.create_or_load(name, rows.schema)
            self._writers[name].compare_and_append(as_updates(rows, 0, 1), 0, 1).result()

    def change(self, changes: Sequence[Change]) -> int:
        """Write changes at the next time and seal it; return how many updates they are."""
        self.time += 1
        written = self.client.atomic()
        for change in changes:
            written.write(self._writers[change.relation], change.updates(self.time))
        written.seal(tuple(self._writers.values()), self.time + 1).commit().result()
        return sum(change.rows for change in changes)

    def create(self, views: Mapping[str, str]) -> Cost:
        """Create views and hydrate them; return what that took."""
        with cost() as taken:
            for name, sql in views.items():
                self.controller.create_view(name, sql)
            self._run(set(views))
        return taken

    def strategy(self, name: str) -> str:
        """Say whether a view is maintained or recomputed."""
        return self.controller.explain(name).split(":")[0].split()[0]

    def step(self) -> Cost:
        """Take in what has been written, and measure that."""
        with cost() as taken:
            self._run({view.name for view in self.controller.views()})
        return taken

    def merge(self) -> Cost:
        """Merge, roll up and collect what steps have made due, where that is apart."""
        assert self._maintenance is not None, "it runs beside the steps"
        with cost() as taken:
            self._maintenance.once()
        return taken

    def rows_read(self) -> int:
        """How many rows of histories and states the operators read in the last step."""
        return sum(self.controller._stepper.rows_read.values())

    def drop(self, names: Sequence[str]) -> None:
        for name in names:
            assert self.controller.drop_view(name)

    def check(self, name: str, answer: pa.Table) -> None:
        """Hold a view against an answer to its query over the tables as they are now."""
        wrong = difference(self.client.reader(name).snapshot(self.time).to_table(), answer)
        assert wrong is None, f"{name}: {wrong}"

    def close(self) -> None:
        if self._maintenance is not None:
            self._maintenance.stop()
        self.client.stop()

    def _run(self, names: set[str]) -> None:
        advanced = set(self.controller.run_once())
        assert names <= advanced, (names - advanced, self.controller.failures())
