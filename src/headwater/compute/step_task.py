"""What one task does in a step of a view: read the deltas, join, accumulate, write one object.

    deltas ─▶ join with the arrangements ─▶ accumulate ─▶ parts of output, accumulators,
                                                          and of both arrangements

The task gets descriptors (:class:`StepTask`) and returns descriptors (:class:`StepParts`). It
commits nothing: until the driver has, its object is one that nobody refers to.

Errors are forwarded as data: the output's error side changes by what changes in the inputs'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.compute.accumulate import accumulate
from headwater.compute.arrangement import hash_ranges, open_runs
from headwater.compute.join import Arranged, changed_pairs
from headwater.compute.view import JoinSumView
from headwater.persist import evolution
from headwater.persist.batch import Part
from headwater.persist.consolidate import DIFF, TIME, consolidate
from headwater.persist.evolution import ERROR_SCHEMA
from headwater.persist.part import Pending
from headwater.persist.spark_parts import Cut, Reading, Target, Writing


@dataclass(frozen=True, slots=True)
class Stored:
    """An internal collection of the view: its parts before the step, and where to add."""

    reading: Reading
    parts: tuple[Part, ...]
    target: Target


@dataclass(frozen=True, slots=True)
class StepInput:
    """One side of the join: the input's updates in the step, and its arrangement before it."""

    reading: Reading
    delta: Cut
    errors: Cut
    arrangement: Stored


@dataclass(frozen=True, slots=True)
class StepTask:
    """Everything a task needs to know; all of it travels with the task."""

    query: JoinSumView
    left: StepInput
    right: StepInput
    accumulators: Stored
    output: Target
    upper: int
    writing: Writing


class StepParts(msgspec.Struct, frozen=True):
    """The parts a step wrote, by collection."""

    output: tuple[Part, ...] = ()
    left: tuple[Part, ...] = ()
    right: tuple[Part, ...] = ()
    accumulators: tuple[Part, ...] = ()


def run(task: StepTask, attempt: str) -> StepParts:
    """Compute the step and write what changed, as one object of this attempt."""
    query = task.query
    left, right = _arranged(task.left), _arranged(task.right)
    joined = changed_pairs(query, left, right, upper=task.upper)
    changes = accumulate(
        query,
        joined,
        open_runs(task.accumulators.reading, task.accumulators.parts),
        accumulators=task.accumulators.reading.schema,
        output=evolution.updates_schema(task.output.schema),
    )
    pending: dict[str, list[Pending]] = {
        "output": [*_pending(task.output, changes.output), *_errors(task)],
        "left": list(_pending(task.left.arrangement.target, left.delta)),
        "right": list(_pending(task.right.arrangement.target, right.delta)),
        "accumulators": list(_pending(task.accumulators.target, changes.accumulators)),
    }
    written = iter(task.writing.write([p for group in pending.values() for p in group], attempt))
    return StepParts(
        **{name: tuple(next(written) for _ in group) for name, group in pending.items()}
    )


def run_encoded(task: StepTask, attempt: str) -> bytes:
    """Run the step and return its :class:`StepParts` as bytes."""
    return msgspec.msgpack.encode(run(task, attempt))


def decode(data: bytes) -> StepParts:
    """Read what a task returned."""
    return msgspec.msgpack.decode(data, type=StepParts)


def _arranged(side: StepInput) -> Arranged:
    target = side.arrangement.target
    names = [*target.schema.names, TIME, DIFF]
    schema = evolution.updates_schema(target.schema)
    tables = [updates.select(names).cast(schema) for updates in side.delta.read(side.reading)]
    delta = pa.concat_tables([schema.empty_table(), *tables])
    for name in target.key:
        if delta.column(name).null_count:
            delta = delta.filter(pc.is_valid(delta.column(name)))
    runs = open_runs(side.arrangement.reading, side.arrangement.parts)
    return Arranged(runs, consolidate(delta))


def _pending(target: Target, updates: pa.Table) -> Iterator[Pending]:
    if target.key:
        for piece in hash_ranges(updates, target.key):
            yield target.pending(piece, consolidated=True)
    elif updates.num_rows:
        yield target.pending(updates, consolidated=True)


def _errors(task: StepTask) -> Iterator[Pending]:
    schema = evolution.updates_schema(ERROR_SCHEMA)
    tables = [t for side in (task.left, task.right) for t in side.errors.read(side.reading)]
    errors = consolidate(pa.concat_tables([schema.empty_table(), *tables]))
    if errors.num_rows:
        output = task.output
        yield Pending(errors, output.version, output.layout, output.key, True, consolidated=True)
