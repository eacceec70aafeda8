"""Defects planted in first steps by ranges: each is caught by the oracle, on plans fine without.

The plans are those of ``test_ranges.py``, by their seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.compute.dataflow import exchange, stage
from headwater.compute.dataflow.phases import Phase, _Planning
from headwater.compute.dataflow.task import Done, Note, StepTask
from headwater.compute.hydration import _Hydration
from tests.unit.dataflow import test_ranges

Plant = Callable[[pytest.MonkeyPatch], None]
Pieces = Iterator[tuple[int, pa.Table]]


def _tasks(monkeypatch: pytest.MonkeyPatch, changed: Callable[[list[StepTask]], Any]) -> None:
    real = _Hydration._tasks
    monkeypatch.setattr(_Hydration, "_tasks", lambda self, phase: changed(real(self, phase)))


def _cut(monkeypatch: pytest.MonkeyPatch, cut: Callable[..., Pieces]) -> None:
    for module in (exchange, stage):
        monkeypatch.setattr(module, "cut_by_range", cut)


def _a_range_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last range that has rows is not run."""
    _tasks(monkeypatch, lambda tasks: tasks[: max(1, len(tasks) - 1)])


def _a_range_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last range that has rows is run, and committed, twice."""
    _tasks(monkeypatch, lambda tasks: [*tasks, tasks[-1]])


def _a_boundary_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key of a range is in the one before it, too."""

    def cut(updates: pa.Table, key: Sequence[str], ranges: int) -> Pieces:
        for number, piece in real(updates, key, ranges):
            yield number, piece
            if number:
                yield number - 1, piece.slice(0, 1)

    real = exchange.cut_by_range
    _cut(monkeypatch, cut)


def _a_stale_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """A phase sees what was put aside before the phase before it."""

    def stale(self: _Hydration, phase: Phase) -> list[StepTask]:
        seen = {number: list(put) for number, put in self.done.aside.items()}
        self.done.aside, then = told.pop() if told else {}, self.done.aside
        told.append(seen)
        try:
            return real(self, phase)
        finally:
            self.done.aside = then

    told: list[Any] = []
    real = _Hydration._tasks
    monkeypatch.setattr(_Hydration, "_tasks", stale)


def _scattered_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose key is NULL are in any range, as if NULL had no hash."""

    def cut(updates: pa.Table, key: Sequence[str], ranges: int) -> Pieces:
        nulls = [pc.is_null(updates.column(name)) for name in key]
        if not nulls:
            yield from real(updates, key, ranges)
            return
        null = nulls[0]
        for more in nulls[1:]:
            null = pc.or_(null, more)
        yield from real(updates.filter(pc.invert(null)), key, ranges)
        unknown = updates.filter(null)
        for row in range(unknown.num_rows):
            yield row % ranges, unknown.slice(row, 1)

    real = exchange.cut_by_range
    _cut(monkeypatch, cut)


def _other_ranges_when_scattered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is cut in other ranges than what comes up on the way."""

    def cut(updates: pa.Table, key: Sequence[str], ranges: int) -> Pieces:
        for number, piece in real(updates, key, ranges):
            yield (number + 1) % ranges, piece

    real = exchange.cut_by_range
    monkeypatch.setattr(exchange, "cut_by_range", cut)


def _edges_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of edges that are the same only one is in a phase."""

    def edges_to(self: _Planning, lane: int, number: int) -> list[int]:
        found = real(self, lane, number)
        return list({self.flow.edges[place]: place for place in found}.values())

    real = _Planning._edges_to
    monkeypatch.setattr(_Planning, "_edges_to", edges_to)


def _alone_in_every_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has rows to show although nothing came in shows them in every range that is run."""
    monkeypatch.setattr(stage, "is_alone", lambda operator: False)


PLANTED: dict[Plant, int] = {
    _a_range_lost: 1,
    _a_range_twice: 1,
    _a_boundary_in_both: 6,
    _a_stale_exchange: 1,
    _scattered_nulls: 12,
    _other_ranges_when_scattered: 11,
    _edges_once: 76,
    _alone_in_every_range: 14,
}
"""Each defect with the seed of a plan that it is seen in."""


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.strip("_"))
def test_a_defect_is_caught(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    seed = PLANTED[plant]
    assert test_ranges.check(seed) == "checked"
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=rf"seed {seed}, time \d+"):
        test_ranges.check(seed)


def test_a_lost_error_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the ranges that raise errors the last one's are lost."""

    def add(self: Done, note: Note | Done) -> None:
        before = list(self.errors)
        real(self, note)
        if isinstance(note, Done) and note.errors and before:
            self.errors = before

    test_ranges.test_an_error_is_there_as_long_as_its_row()
    real = Done.add
    monkeypatch.setattr(Done, "add", add)
    with pytest.raises(AssertionError):
        test_ranges.test_an_error_is_there_as_long_as_its_row()
