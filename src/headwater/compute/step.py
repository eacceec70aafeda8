"""What all steps of views have in common, whatever keeps the view.

    lower = the upper of the view's output,  upper = the meet of its inputs' uppers

A step covers ``[lower, upper)`` and is committed by one log entry, which also moves the view's
holds: what it reads stays readable from ``upper - 1`` on. So progress is what the log says it is: a
step that failed, or whose process died, changed nothing, and the next one begins from the same
``lower``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headwater.algebra.frontier import Frontier
from headwater.base.errors import HeadwaterError
from headwater.base.ids import BatchId, Epoch, GlobalId
from headwater.persist.batch import Times
from headwater.persist.state import CollectionState, State, bound

CAUSED_BY: Final = "Caused by: "


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
    def kept_by(self) -> Epoch | None:
        """The epoch of the process that keeps its output; ``None`` if the log does."""

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


def held(view: Fed, output: CollectionState, interval: Interval) -> Times:
    """Return from when on a view's inputs must be readable after a step (pure).

    A durable output is there up to ``upper``, and what was before is never computed again. One that
    is not durable is computed again, from the first time at which anybody may read it.
    """
    if view.kept_by is None or output.since.is_closed:
        return interval.hold
    return interval.hold.meet(output.since)


def token(collection: GlobalId, interval: Interval) -> BatchId:
    """Return the name of an append of a step.

    It has lower *and* upper: with ``lower`` alone, a retry that reaches further than the committed
    attempt would pass for already done, and would move the holds past what was computed.
    """
    return BatchId(f"step/{collection}/{bound(interval.lower)}/{bound(interval.upper)}")


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
    """Return the sentence that says what went wrong, out of a Python or a Java traceback.

    >>> last_line(Exception("Aborted\\n\\tat a.B(B.java:1)\\nCaused by: no memory\\n\\t... 4 more"))
    'no memory'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("SQLSTATE:", "at ", "... "))]
    ours = [line for line in lines if line.startswith("headwater.")]
    causes = [line for line in lines if line.startswith(CAUSED_BY)]
    if ours or causes:
        return ours[0] if ours else causes[-1].removeprefix(CAUSED_BY)
    return lines[-1].removeprefix(": ") if lines else type(error).__name__
