"""Steps: a view advances from ``lower`` to ``upper`` in one Spark job and one log entry.

    lower = the upper of the view's output,  upper = the meet of its inputs' uppers

All that the view writes (output, accumulators, both arrangements) has the upper ``lower`` before
the entry and ``upper`` after it, and the entry moves the view's holds: inputs, arrangements and
accumulators stay readable from ``upper - 1`` on, never only from ``upper`` (``compute/join.py``
says why). So progress is what the log says it is: a step that failed, or whose process died,
changed nothing, and the next one begins from the same ``lower``.

The token of a step's appends names view, lower *and* upper. With the view and ``lower`` alone, a
retry that reaches further than the committed attempt would pass for already done, and would move
the holds past what was computed.

The first step of a view *hydrates* it: its delta is the snapshot at the view's start, then what
came after. A step without any update starts no Spark job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.errors import HeadwaterError
from headwater.base.ids import BatchId, GlobalId
from headwater.compute import step_task
from headwater.compute.step_task import StepInput, StepParts, StepTask, Stored
from headwater.compute.view import Side, View
from headwater.persist.batch import Part, Times
from headwater.persist.commands import (
    AllowCompaction,
    Command,
    CompareAndAppend,
    DowngradeReader,
)
from headwater.persist.core import Core, Step
from headwater.persist.decision import collection_of
from headwater.persist.spark import DESCRIPTORS, this_attempt, writing
from headwater.persist.spark_parts import Place, Reading, Target, cut
from headwater.persist.state import CollectionState, State, bound


class StepFailed(HeadwaterError):
    """A step of a view failed; nothing of it is visible, and it will be tried again."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"view {name!r} could not be stepped: {cause}")
        self.name, self.cause = name, cause


@dataclass(frozen=True, slots=True)
class Interval:
    """The times a step covers, ``[lower, upper)``."""

    lower: Times
    upper: Times

    @property
    def hold(self) -> Times:
        """The time from which the view must still be able to read after the step."""
        return self.upper if self.upper.is_closed else Frontier.of(self.upper.only() - 1)


class Fed(Protocol):
    """A view of any kind: an output that follows inputs."""

    @property
    def id(self) -> GlobalId:
        """The output."""

    @property
    def inputs(self) -> tuple[GlobalId, ...]:
        """What it reads."""


def due(state: State, view: Fed) -> Interval | None:
    """Return what the view can advance over; ``None`` if its inputs have not moved (pure)."""
    output = state.collections.get(view.id)
    inputs = [state.collections.get(gid) for gid in view.inputs]
    if output is None or any(collection is None for collection in inputs):
        return None
    lower = state.upper(output)
    upper: Times = Frontier.closed()
    for collection in inputs:
        assert collection is not None
        upper = upper.meet(state.upper(collection))
    return Interval(lower, upper) if lower < upper else None


@dataclass(frozen=True, slots=True)
class Planned:
    """A step before it runs: from one state, so that all of it agrees."""

    view: View
    interval: Interval
    left: CollectionState
    right: CollectionState
    internal: dict[str, CollectionState]

    @property
    def hydrating(self) -> bool:
        """Whether this is the view's first step."""
        return self.interval.lower == Frontier.of(self.view.start)

    def is_empty(self) -> bool:
        """Whether no input has an update in the interval."""
        return not any(
            side.parts for input_ in (self.left, self.right) for side in self._cut(input_)
        )

    def pinned(self) -> Iterator[Part]:
        """Return every part the task reads, to be kept from garbage collection meanwhile."""
        for input_ in (self.left, self.right):
            for side in self._cut(input_):
                yield from side.parts
        for collection in self.internal.values():
            yield from collection.parts()

    def task(self, place: Place, step: Step, core: Core) -> StepTask:
        """Return the step as a task."""
        accumulators = self._stored(place, "accumulators")
        return StepTask(
            query=self.view.query,
            left=self._input(place, "left", self.left),
            right=self._input(place, "right", self.right),
            accumulators=accumulators,
            output=Target.of(self.internal["output"]),
            upper=bound(self.interval.upper),
            writing=writing(core, step),
        )

    def _cut(self, collection: CollectionState) -> Any:
        lower, upper = bound(self.interval.lower), bound(self.interval.upper)
        return cut(collection, lower, upper, hydrating=self.hydrating)

    def _input(self, place: Place, side: Side, collection: CollectionState) -> StepInput:
        delta, errors = self._cut(collection)
        reading = Reading.of(place, collection)
        return StepInput(reading, delta, errors, self._stored(place, side))

    def _stored(self, place: Place, name: str) -> Stored:
        collection = self.internal[name]
        parts = tuple(part for batch in collection.batches for part in batch.parts)
        return Stored(Reading.of(place, collection), parts, Target.of(collection))


def plan(state: State, view: View) -> Planned | None:
    """Return the next step of a view; ``None`` if there is nothing to do (pure)."""
    interval = due(state, view)
    if interval is None:
        return None
    ids = view.collections
    named: dict[str, GlobalId] = {
        "output": ids.output,
        "left": ids.left,
        "right": ids.right,
        "accumulators": ids.accumulators,
    }
    return Planned(
        view,
        interval,
        collection_of(state, view.left),
        collection_of(state, view.right),
        {name: collection_of(state, gid) for name, gid in named.items()},
    )


def token(view: GlobalId, interval: Interval) -> BatchId:
    """Return the name of the appends of a step; see the module's docstring."""
    return BatchId(f"step/{view}/{bound(interval.lower)}/{bound(interval.upper)}")


def commands(planned: Planned, parts: StepParts) -> tuple[Command, ...]:
    """Return what the driver commits for a step (pure)."""
    view, interval = planned.view, planned.interval
    ids, hold = view.collections, interval.hold
    name = token(view.id, interval)
    written = (
        (ids.output, parts.output),
        (ids.left, parts.left),
        (ids.right, parts.right),
        (ids.accumulators, parts.accumulators),
    )
    return (
        *(CompareAndAppend(gid, name, interval.lower, interval.upper, p) for gid, p in written),
        *(DowngradeReader(gid, view.reader_id, hold) for gid in view.inputs),
        AllowCompaction(tuple((gid, hold) for gid in (ids.left, ids.right, ids.accumulators))),
    )


def run_on_spark(session: Any, view: View, task: StepTask) -> StepParts:
    """Run the task of a step as one Spark job of one partition."""

    def body(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(batch.num_rows):
                encoded = step_task.run_encoded(task, this_attempt())
                yield pa.RecordBatch.from_arrays([pa.array([encoded])], names=["parts"])

    try:
        # Built anew for each step: a planned frame that is run again may return old data.
        frame = session.range(0, 1, 1, 1).mapInArrow(body, DESCRIPTORS)
        with job_group(session, view.reader_id, f"step of view {view.name}"):
            (row,) = frame.collect()
    except Exception as error:  # whatever Spark, its JVM or a task of ours raises
        raise StepFailed(view.name, last_line(error)) from error
    return step_task.decode(bytes(row[0]))


@contextmanager
def job_group(session: Any, group: str, description: str) -> Iterator[None]:
    """Name the Spark jobs started by this thread inside the block."""
    context = session.sparkContext
    context.setJobGroup(group, description)
    try:
        yield
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)


def last_line(error: BaseException) -> str:
    """Return the sentence at the end of a Python worker's traceback."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("headwater.")]
    return (ours or lines or [type(error).__name__])[-1 if not ours else 0].strip()
