"""What a step says to its tasks, and what they say back: descriptors only, never rows.

A :class:`StepTask` names, for each view of the step, the interval it covers, the updates of its
inputs in it, and the parts of its arrangements and states before it. A *shared* arrangement has an
upper of its own: what its collection got since is read from the collection (``since``), and is
written by the step as the arrangement's own advance.

It travels as a local property of the Spark job, because the plan, and the Python functions in it,
are the same for every step. A :class:`Note` is what a stage hands back: the parts it wrote, by
collection, and errors; notes pass every later stage unchanged.

No Spark is imported here. Kept by: ``program.py`` (driver), ``stage.py`` (tasks).
"""

from __future__ import annotations

import base64
import pickle
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa

from headwater.base.decoding import from_msgpack
from headwater.base.ids import GlobalId
from headwater.compute.dataflow.exchange import Aside, Received, Sliced
from headwater.persist.batch import Part
from headwater.persist.spark_parts import Cut, Reading, Target, Writing


@dataclass(frozen=True, slots=True)
class Updates:
    """The updates of a stored collection over an interval."""

    reading: Reading
    cut: Cut

    def table(self) -> pa.Table:
        """Read them: all columns, under their own names; not consolidated."""
        found = list(self.cut.read(self.reading))
        return pa.concat_tables([self.reading.schema.empty_table(), *found])


Delta = Updates | Sliced | Received
"""What a task takes in: all of it, or some of it as one task of several (``phases.py``)."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An internal collection: its parts before the step, and where to add."""

    id: GlobalId
    reading: Reading
    parts: tuple[Part, ...]
    target: Target
    stamp: str | None = None
    """Of a state: that of the memory which the step before left of it (``remembered.py``)."""


@dataclass(frozen=True, slots=True)
class Shared:
    """An arrangement of a stored collection, and what the collection got since its upper."""

    stored: Stored
    since: Delta | None
    """``None``: it is as far as its collection."""
    advanced: bool
    """Whether this step writes it; else another one does, or will."""


@dataclass(frozen=True, slots=True)
class ViewTask:
    """One view in a step."""

    lower: int
    upper: int
    hydrating: bool
    inputs: Mapping[str, Delta]
    """By relation of the plan."""
    shared: Mapping[str, GlobalId]
    """By name of an arrangement of the dataflow over a stored collection."""
    stored: Mapping[str, Stored]
    """By name of the view's own arrangements and states."""
    output_id: GlobalId
    output: Target
    shown: tuple[str, ...]
    """For each column of the output, the lane's column it is."""
    range: int = 0
    """Of a phase of a large first step: which range of keys this is."""
    ranges: int = 1
    """And of how many."""
    arranged: frozenset[str] = frozenset()
    """The private arrangements that earlier phases have written as wholes."""


@dataclass(frozen=True, slots=True)
class StepTask:
    """A step."""

    views: tuple[ViewTask | None, ...]
    """One for each view of the program; ``None``: it has nothing to do."""
    shared: Mapping[GlobalId, Shared]
    writing: Writing

    def encoded(self) -> str:
        """Return it as the text of a property."""
        return base64.b64encode(zlib.compress(pickle.dumps(self, 5), 1)).decode("ascii")

    @staticmethod
    def decoded(text: str) -> StepTask:
        """Read it from the text of a property; ours, from our own driver."""
        task = pickle.loads(zlib.decompress(base64.b64decode(text)))  # noqa: S301
        assert isinstance(task, StepTask)
        return task


class RaisedError(msgspec.Struct, frozen=True):
    """An error as data: it comes (+) or goes (-) at a time."""

    view: int
    condition: str
    message: str
    context: str | None
    time: int
    diff: int


class Note(msgspec.Struct, frozen=True):
    """What a stage did."""

    parts: dict[int, list[Part]] = {}
    """By the number of a collection."""
    errors: list[RaisedError] = []
    rows_read: dict[str, int] = {}
    """By ``view/operator``: rows of deltas and rows found by probes."""
    scheduled: dict[int, int] = {}
    """By view: the time before which none of its operators has output unless inputs change."""
    aside: dict[int, list[Aside]] = {}
    """By exchange: what was put aside for later phases."""
    stamps: dict[int, str] = {}
    """By the number of a state: under which stamp a worker remembers it."""


@dataclass(slots=True)
class Done:
    """What all stages of a step did."""

    parts: dict[int, list[Part]] = field(default_factory=dict)
    errors: list[RaisedError] = field(default_factory=list)
    rows_read: dict[str, int] = field(default_factory=dict)
    scheduled: dict[int, int] = field(default_factory=dict)
    aside: dict[int, list[Aside]] = field(default_factory=dict)
    stamps: dict[int, str] = field(default_factory=dict)

    def add(self, note: Note | Done) -> None:
        """Take in what a stage did, or all stages of another task."""
        for collection, parts in note.parts.items():
            self.parts.setdefault(collection, []).extend(parts)
        self.errors.extend(note.errors)
        for operator, rows in note.rows_read.items():
            self.rows_read[operator] = self.rows_read.get(operator, 0) + rows
        for view, time in note.scheduled.items():
            self.scheduled[view] = min(time, self.scheduled.get(view, time))
        for exchange, aside in note.aside.items():
            self.aside.setdefault(exchange, []).extend(aside)
        self.stamps.update(note.stamps)

    def renumbered(self, numbers: Mapping[int, int]) -> Done:
        """Return it with the views of a program numbered as those of its step."""
        errors = [msgspec.structs.replace(e, view=numbers[e.view]) for e in self.errors]
        scheduled = {numbers[view]: time for view, time in self.scheduled.items()}
        return replace(self, errors=errors, scheduled=scheduled)


def encode_note(note: Note) -> bytes:
    """Return a note as a payload."""
    return msgspec.msgpack.encode(note)


def decode_note(data: bytes) -> Note:
    """Read a note."""
    return from_msgpack(data, Note)
