"""A view's first step where its inputs are large: in phases, range by range, in a task each.

    scatter ──▶ phase 0 ──▶ … ──▶ phase n ──▶ one Done, for one log entry

What the phases are is decided in ``dataflow/phases.py``; here they are run. A task has the memory
of one range (:data:`RANGE_ROWS` rows of the inputs), so that this is bounded whatever the size of
the inputs is; there are as many ranges as that needs. Tasks are jobs of their own: so many are run
at a time as the stepper says, which leaves slots free for the ticks of others, and each takes some
seconds, so that a slot is free again soon.

A task that Spark runs again writes objects of another name, and only what its last attempt hands
back is ever read or committed. So an executor that goes in the middle changes nothing. Nothing is
visible before the one entry at the end; what was put aside on the way is discarded after it, or
when the step has failed. (What a lost attempt put aside nobody knows of; the sweep finds it.)

How far it is, is known: so many tasks of so many are done.

Bound: phases read what is stored once for each key by which it is wanted, and what was put aside
once; a task reads about a range's share of it (``tests/unit/dataflow/test_ranges.py`` counts).

Kept by: this module, against an oracle in ``tests/unit/dataflow/test_ranges.py``, with planted
defects, and against recomputations in ``tests/spark/test_hydrations.py``. Relied on by: the
stepper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from headwater.base.decoding import from_msgpack
from headwater.base.ids import GlobalId
from headwater.compute.dataflow import aside
from headwater.compute.dataflow.chain import Chain
from headwater.compute.dataflow.exchange import Aside, Received, Scatter, Sliced, slices
from headwater.compute.dataflow.graph import Dataflow
from headwater.compute.dataflow.operator import update_schema
from headwater.compute.dataflow.phases import Key, Phase, exchanged, phases
from headwater.compute.dataflow.program import Program, release_memory
from headwater.compute.dataflow.task import (
    Delta,
    Done,
    Shared,
    StepTask,
    Stored,
    Updates,
    ViewTask,
)
from headwater.compute.ir import plan as plans
from headwater.compute.maintained import GroupStep, MaintainedView
from headwater.compute.step import job_group
from headwater.persist.batch import Segment
from headwater.persist.spark import run_in_tasks, spread
from headwater.persist.spark_parts import Place, Writing

RANGE_ROWS: Final = 2_000_000
"""How many rows of the inputs a range has; with up to twice as many a first step is one task."""

RANGES_MAX: Final = 256
"""More are not worth their objects: ranges are larger then."""

Progress = Callable[[int, int], None]
"""Is told how many tasks are done, of how many."""

Discard = Callable[[Iterable[str]], None]
"""Is told which objects nobody needs any more."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Into how many ranges a first step is cut, and how many of them are run at a time."""

    count: int
    rows: int
    at_once: int


def ranges_for(rows: int, range_rows: int, at_once: int) -> Ranges | None:
    """Return the ranges of a first step that takes so many rows in; ``None``: it is one task."""
    if rows <= 2 * range_rows:
        return None
    count = min(RANGES_MAX, -(-rows // range_rows))
    return Ranges(count, -(-rows // count), at_once)


Work = Callable[[str], bytes]
"""What one task does, given the name of its attempt."""


class Tasks(Protocol):
    """Where tasks are run."""

    def together(self, work: Sequence[Work]) -> list[bytes]:
        """Run each in a task, all at once; return their answers."""

    def program(self, flow: Dataflow) -> Callable[[StepTask], Done]:
        """Return how a phase is run, as one task."""


@dataclass(frozen=True, slots=True)
class SparkTasks:
    """Tasks of Spark's, in jobs that are a view's."""

    session: Any
    view: MaintainedView

    def together(self, work: Sequence[Work]) -> list[bytes]:
        """Run each in a task of one job."""
        work = [partial(_give_way, one) for one in work]
        with job_group(self.session, self.view.reader_id, self._description):
            return run_in_tasks(self.session, work)

    def program(self, flow: Dataflow) -> Callable[[StepTask], Done]:
        """Plan a phase, to be run as a job for each range."""
        functions = plans.decoded(self.view.plan).functions
        program = Program(self.session, Chain((flow,)), (self.view.id,), [functions])
        group, description = self.view.reader_id, self._description
        return lambda task: program.run(task, group, description)

    @property
    def _description(self) -> str:
        return f"first step of {self.view.name}"


def hydrated(
    tasks: Tasks,
    group: GroupStep,
    place: Place,
    writing: Writing,
    ranges: Ranges,
    progress: Progress,
    discard: Discard,
) -> Done | None:
    """Run the first step of the one view of a group; ``None`` if it cannot be run by ranges."""
    (step,) = group.views
    base = group.task(place, writing, (step.view.id,))
    new = {arrangement.id for arrangement in group.advanced()}
    fresh = {gid for gid, shared in base.shared.items() if gid in new and shared.since is not None}
    names = {name for name, gid in step.view.arrangements.items() if gid in fresh}
    found = phases(step.view.flow, names)
    if found is None:
        return None
    hydration = _Hydration(tasks, base, found, frozenset(fresh), ranges, progress)
    try:
        return hydration.run()
    finally:
        discard(hydration.put_aside)


@dataclass
class _Hydration:
    tasks: Tasks
    base: StepTask
    phases: Sequence[Phase]
    fresh: frozenset[GlobalId]
    """The shared arrangements that are written."""
    ranges: Ranges
    progress: Progress
    done: Done = field(default_factory=Done)
    put_aside: set[str] = field(default_factory=set)
    """The objects of what was put aside."""
    _scattered: dict[tuple[int, Key], list[Received]] = field(default_factory=dict)
    """By updates and key: those of each range."""
    _finished: int = 0
    _expected: int = 0

    def run(self) -> Done:
        scatters = self._scatters()
        busy = [phase for phase in self.phases if phase.flow is not None]
        self._expected = sum(map(len, scatters.values())) + len(busy) * self.ranges.count
        self._scatter(scatters)
        for phase in busy:
            self._run(phase)
        return self.done

    @property
    def _view(self) -> ViewTask:
        (view,) = self.base.views
        assert view is not None
        return view

    # ---- what is stored, by ranges -------------------------------------------------------------

    def _scatters(self) -> dict[tuple[int, Key], list[Scatter]]:
        """Return the tasks that bring stored updates to the ranges of a key."""
        found: dict[tuple[int, Key], list[Scatter]] = {}
        for updates, key in self._wanted():
            if (id(updates), key) not in found:
                pieces = slices(updates.cut, self.ranges.rows)
                count = -(-updates.cut.rows // self.ranges.rows)
                found[id(updates), key] = [
                    Scatter(
                        Sliced(updates.reading, updates.cut, group),
                        key,
                        self.ranges.count,
                        self.base.writing,
                    )
                    for group in spread(pieces, count)
                ]
        return found

    def _wanted(self) -> Iterable[tuple[Updates, tuple[str, ...]]]:
        for phase in self.phases:
            for relation, key in phase.relations.items():
                if key is not None:
                    yield _whole(self._view.inputs[relation]), key
        for gid in self.fresh:
            shared = self.base.shared[gid]
            yield _whole(shared.since), shared.stored.target.key

    def _scatter(self, scatters: Mapping[tuple[int, Key], list[Scatter]]) -> None:
        every = [(which, task) for which, tasks in scatters.items() for task in tasks]
        work = [task for _, task in every]
        put: dict[tuple[int, Key], list[Aside]] = {which: [] for which in scatters}
        for first in range(0, len(work), self.ranges.at_once):
            some = work[first : first + self.ranges.at_once]
            answers = self.tasks.together(some)
            for (which, _), answer in zip(every[first:], answers, strict=False):
                put[which] += self._noted(from_msgpack(answer, list[Aside]))
            self._told(len(some))
        for which, found in put.items():
            reading = scatters[which][0].updates.reading if scatters[which] else None
            if reading is not None:
                self._scattered[which] = [
                    Received(reading.place, reading.schema, segments)
                    for segments in _by_range(found, self.ranges.count)
                ]

    # ---- a phase -------------------------------------------------------------------------------

    def _run(self, phase: Phase) -> None:
        assert phase.flow is not None
        run = self.tasks.program(phase.flow)
        tasks = self._tasks(phase)
        self._told(self.ranges.count - len(tasks))
        with ThreadPoolExecutor(self.ranges.at_once, "headwater-range") as pool:
            running = [pool.submit(run, task) for task in tasks]
            try:
                for one in as_completed(running):
                    for found in one.result().aside.values():
                        self._noted(found)
                    self._told(1)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        for one in running:  # In the order of the ranges: what is written is so, too.
            self.done.add(one.result())

    def _tasks(self, phase: Phase) -> list[StepTask]:
        aside = {
            one.number: _by_range(self.done.aside.get(one.number, ()), self.ranges.count)
            for one in phase.received
        }
        sliced = {
            relation: self._sliced(_whole(self._view.inputs[relation]))
            for relation, key in phase.relations.items()
            if key is None
        }
        found = []
        for number in range(self.ranges.count):
            inputs: dict[str, Delta] = {
                relation: self._of_range(_whole(self._view.inputs[relation]), key, number)
                for relation, key in phase.relations.items()
                if key is not None
            }
            inputs |= {relation: every[number] for relation, every in sliced.items()}
            for one in phase.received:
                schema = update_schema(one.lane.columns)
                segments = aside[one.number][number]
                inputs[exchanged(one.number)] = Received(self.base.writing.place, schema, segments)
            shared = {
                gid: self._shared(gid, known, phase, number)
                for gid, known in self.base.shared.items()
            }
            written = [one.since for gid, one in shared.items() if gid in self.fresh]
            if number == 0 or not all(map(_is_empty, (*inputs.values(), *written))):
                view = replace(
                    self._view,
                    inputs=inputs,
                    stored={n: self._written(one) for n, one in self._view.stored.items()},
                    range=number,
                    ranges=self.ranges.count,
                    arranged=phase.arranged,
                )
                found.append(StepTask((view,), shared, self.base.writing))
        return found

    def _sliced(self, updates: Updates) -> list[Sliced]:
        groups = spread(slices(updates.cut, self.ranges.rows), self.ranges.count)
        groups += [()] * (self.ranges.count - len(groups))
        return [Sliced(updates.reading, updates.cut, group) for group in groups]

    def _of_range(self, updates: Updates, key: Key, number: int) -> Received:
        known = self._scattered.get((id(updates), key))
        if known is None:  # There are no updates.
            return Received(updates.reading.place, updates.reading.schema, ())
        return known[number]

    def _shared(self, gid: GlobalId, known: Shared, phase: Phase, number: int) -> Shared:
        if gid not in self.fresh:
            return known
        if phase.writes:
            since = self._of_range(_whole(known.since), known.stored.target.key, number)
            return Shared(known.stored, since, advanced=True)
        return Shared(self._written(known.stored), None, advanced=False)

    def _written(self, stored: Stored) -> Stored:
        """Return a collection with what earlier phases have written of it."""
        return replace(stored, parts=(*stored.parts, *self.done.parts.get(stored.id, ())))

    def _noted(self, found: list[Aside]) -> list[Aside]:
        self.put_aside.update(one.where.key for one in found)
        return found

    def _told(self, tasks: int) -> None:
        self._finished += tasks
        self.progress(self._finished, self._expected)


def _give_way(work: Work, attempt: str) -> bytes:
    """Do it in a thread that asks for less than its share while others want the processor."""
    with aside.threads(1) as thread:
        answer = thread.submit(work, attempt).result()
    release_memory()
    return answer


def _whole(updates: Delta | None) -> Updates:
    assert isinstance(updates, Updates), "before it is cut by ranges"
    return updates


def _is_empty(updates: Delta | None) -> bool:
    match updates:
        case Received():
            return not updates.segments
        case Sliced():
            return not updates.slices
        case _:
            return updates is None


def _by_range(found: Iterable[Aside], count: int) -> list[tuple[Segment, ...]]:
    every: list[list[Segment]] = [[] for _ in range(count)]
    for one in found:
        every[one.range].append(one.where)
    return [tuple(segments) for segments in every]
