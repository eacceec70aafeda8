"""The Spark edge: collections as DataFrames, and parts written by tasks.

    snapshot_frame   a collection at a time: each distinct row once, with its multiplicity
    rows_frame       the same, each row as often as it is there: what ad-hoc SQL wants to see
    updates_frame    the updates of an interval, with their times and diffs
    write_from_tasks the rows of a frame, written as parts by its tasks; visible by nobody's leave
    append_from_tasks  the same, then committed by the driver in one command

Large data never passes through the driver: tasks get descriptors and read or write the blob
(``persist/spark_parts.py``). What is small (:data:`DRIVER_ROWS_MAX`), or lies in a blob that only
this process can see, is read here and handed over as Arrow.

**Frames are lazy; objects are not for ever.** A snapshot pins its objects against our own garbage
collection as long as it lives: keep it until the frame has run. Otherwise a task may find an object
gone and raises ``PartCollected``; it never returns some of the rows.

A frame over a snapshot is definite, as the snapshot is: running it again gives the same rows.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.functions import lit
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headwater.algebra.frontier import Frontier
from headwater.base.errors import InvalidUsage
from headwater.base.ids import BatchId
from headwater.persist import evolution
from headwater.persist.batch import Part
from headwater.persist.client import ReadHandle, WriteHandle, new_token
from headwater.persist.commands import CompareAndAppend, Outcome
from headwater.persist.consolidate import consolidate
from headwater.persist.core import Core, Step
from headwater.persist.decision import collection_of
from headwater.persist.errors import CollectionHasErrors, SchemaMismatch
from headwater.persist.evolution import DIFF
from headwater.persist.multiplicity import repeat_rows
from headwater.persist.narrow import is_upgraded, read_rows
from headwater.persist.pieces import Piece, each_row_once, in_pieces
from headwater.persist.read import Snapshot
from headwater.persist.spark_end import or_ended
from headwater.persist.spark_parts import (
    Cut,
    Reading,
    Target,
    Writing,
    attempt_name,
    cut,
    decode_parts,
    encode_parts,
    place_of,
)
from headwater.persist.spark_size import numbers_of
from headwater.persist.state import CollectionState

DRIVER_ROWS_MAX: Final = 10_000
"""Above this, createDataFrame is slower than a task that reads the parts (latency.md, 5)."""

PARTITION_ROWS_MAX: Final = 500_000
"""Up to this, one task reads and consolidates everything, which needs no shuffle."""

BATCH_ROWS: Final = 65_536

SLOTS_LEFT_FREE: Final = 2
"""How many slots background work does not use."""

Frame = Any
Session = Any
Finish = Callable[[pa.Table], pa.Table]
_Group = TypeVar("_Group", tuple[Part, ...], tuple[Piece, ...])


class _HasRows(Protocol):
    @property
    def rows(self) -> int: ...


_Sized = TypeVar("_Sized", bound=_HasRows)


# ---- schemas ---------------------------------------------------------------------------------


def spark_schema(schema: pa.Schema) -> Any:
    """Return the Spark schema of Arrow columns; timestamps without a zone stay without one."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def wire_schema(schema: pa.Schema) -> pa.Schema:
    """Return the Arrow types in which Spark takes these columns from a task."""
    return to_arrow_schema(spark_schema(schema), timezone="UTC")


def arrow_frame(session: Session, table: pa.Table) -> Frame:
    """Return a small Arrow table as a frame."""
    return session.createDataFrame(without_gaps(table), schema=spark_schema(table.schema))


def without_gaps(table: pa.Table) -> pa.Table:
    """Return the same rows in pieces none of which is empty; nothing is copied.

    Spark's reader of Arrow takes an empty batch behind its first one for the end: what comes after
    it would be missing from the frame, and nobody would be told.

    >>> gaps = pa.table({"n": pa.chunked_array([[1], [], [2]])})
    >>> [piece.num_rows for piece in without_gaps(gaps).to_batches()]
    [1, 1]
    """
    if not table.num_rows:
        return table.schema.empty_table()  # One empty piece: PySpark does not take none at all.
    pieces = (piece for piece in table.to_batches() if piece.num_rows)
    return pa.Table.from_batches(pieces, table.schema)


def frame_rows(frame: Frame) -> pa.Table:
    """Run a frame, and return all of its rows here."""
    # PySpark runs it in a thread that serves a socket. Where planning raises one of Java's errors
    # there (rows that the driver has are computed by the planner: a stack overflow), the thread
    # ends without a word, and we would wait for ever; here it is told. The plan is kept.
    frame._jdf.queryExecution().executedPlan()
    return frame.toArrow()


def batches_of(table: pa.Table, wire: pa.Schema) -> Iterator[pa.RecordBatch]:
    yield from table.cast(wire).to_batches(max_chunksize=BATCH_ROWS)


# ---- a collection at a time ------------------------------------------------------------------


def snapshot_frame(session: Session, snapshot: Snapshot) -> Frame:
    """Return data columns and ``__diff``: each distinct row once, none with diff 0."""
    schema = pa.schema([*_columns(snapshot), pa.field(DIFF, pa.int64(), nullable=False)])
    return _frame(session, snapshot, schema, lambda multiset: multiset)


def rows_frame(
    session: Session, snapshot: Snapshot, columns: Container[str] | None = None
) -> Frame:
    """Return data columns, each row as often as its multiplicity says.

    ``columns`` are those that somebody will look at (``None``: all): of the others every value is
    NULL, and no task sends them.
    """
    name = snapshot.name
    fields = _columns(snapshot)
    seen = [field for field in fields if columns is None or field.name in columns]
    # Rows of no columns cannot be counted.
    schema = pa.schema(seen or fields[:1])

    def finish(multiset: pa.Table) -> pa.Table:
        return repeat_rows(multiset, name).select(schema.names)

    frame = _rows_in_pieces(session, snapshot, schema, finish)
    if frame is None:
        frame = _frame(session, snapshot, schema, finish)
    return frame if len(schema) == len(fields) else _with_nulls(frame, fields, schema)


def _with_nulls(frame: Frame, fields: Sequence[pa.Field], sent: pa.Schema) -> Frame:
    types = {field.name: field.dataType for field in spark_schema(pa.schema(fields)).fields}
    return frame.select(
        *(
            frame[_quoted(field.name)]
            if field.name in sent.names
            else lit(None).cast(types[field.name]).alias(field.name)
            for field in fields
        )
    )


def _rows_in_pieces(
    session: Session, snapshot: Snapshot, schema: pa.Schema, finish: Finish
) -> Frame | None:
    """Return the rows of a large snapshot, equal ones not brought together, if that is right."""
    parts = tuple(part for part in snapshot.parts if not part.errors)
    place = place_of(snapshot._core)
    whole = snapshot.narrowing.columns is None
    if place is None or not whole or sum(part.rows for part in parts) <= DRIVER_ROWS_MAX:
        return None
    if any(is_upgraded(part, snapshot.collection, snapshot._codec) for part in parts):
        return None
    require_no_errors(snapshot)
    read = _SnapshotReader(snapshot, Reading.of(place, snapshot.collection))
    found = in_pieces(
        snapshot.collection,
        parts,
        read,
        read.empty,
        rest_rows_max=DRIVER_ROWS_MAX,
        tasks=background_slots(session),
    )
    if found is None:
        return None
    frame = _read_in_tasks(
        session,
        spread(found.pieces, background_slots(session)),
        lambda group: (finish(found.rows(piece, read)) for piece in group),
        schema,
    )
    more = finish(found.more)
    return frame.unionAll(arrow_frame(session, more)) if more.num_rows else frame


def _columns(snapshot: Snapshot) -> list[pa.Field]:
    return list(snapshot.narrowing.schema(snapshot.schema))


def _frame(session: Session, snapshot: Snapshot, schema: pa.Schema, finish: Finish) -> Frame:
    """Read, consolidate, finish: on the driver, in one task, or in many with an exchange."""
    require_no_errors(snapshot)
    parts = tuple(part for part in snapshot.parts if not part.errors)
    place = place_of(snapshot._core)
    rows = sum(part.rows for part in parts)
    # What an older version of the codec wrote is brought up to date here: tasks have no codec.
    old = any(is_upgraded(part, snapshot.collection, snapshot._codec) for part in parts)
    if place is None or old or rows <= DRIVER_ROWS_MAX:
        return arrow_frame(session, finish(snapshot.to_table()).select(schema.names))
    wire = wire_schema(schema)
    read = _SnapshotReader(snapshot, Reading.of(place, snapshot.collection))
    if rows <= PARTITION_ROWS_MAX:
        return _read_in_tasks(
            session,
            [parts],
            lambda group: iter([finish(consolidate(_concat(map(read, group), read.empty)))]),
            schema,
        )
    groups = spread(parts, background_slots(session))
    if snapshot.narrowing.columns is None and each_row_once(snapshot.collection, parts):
        return _read_in_tasks(
            session, groups, lambda group: (finish(read(p)) for p in group), schema
        )
    updates = pa.schema([*_columns(snapshot), pa.field(DIFF, pa.int64(), nullable=False)])
    scattered = _read_in_tasks(session, groups, lambda group: map(read, group), updates)
    empty = updates.empty_table()

    def combine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (pa.Table.from_batches([batch]).cast(updates) for batch in batches)
        yield from batches_of(finish(consolidate(_concat(tables, empty))), wire)

    return _exchanged(scattered, updates).mapInArrow(combine, spark_schema(schema))


def require_no_errors(snapshot: Snapshot) -> None:
    """Refuse a collection with errors: it has no rows to show."""
    errors = snapshot.errors()
    if errors.num_rows:
        messages = tuple(errors.column("message").to_pylist())
        raise CollectionHasErrors(snapshot.name, snapshot.as_of, messages)


class _SnapshotReader:
    """Reads one part of a snapshot in a task: its rows, filtered, without times."""

    def __init__(self, snapshot: Snapshot, reading: Reading) -> None:
        self._reading = reading
        self._narrowing = snapshot.narrowing
        self._names = [*(field.name for field in _columns(snapshot)), DIFF]
        self.empty = reading.schema.empty_table().select(self._names)

    def __call__(self, part: Part) -> pa.Table:
        return self._narrowing.rows(self._reading.updates(part)).select(self._names)


def _concat(tables: Any, empty: pa.Table) -> pa.Table:
    return pa.concat_tables([empty, *tables])


def _exchanged(frame: Frame, schema: pa.Schema) -> Frame:
    """Bring identical rows together. Maps have no hash in Spark; equal rows agree in the rest."""
    names = [f.name for f in schema if f.name != DIFF and not _has_map(f.type)]
    if not names:
        return frame.coalesce(1)
    return frame.repartition(*(frame[_quoted(name)] for name in names))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _has_map(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return True
    return any(_has_map(type_.field(n).type) for n in range(type_.num_fields))


def spread(parts: Sequence[_Sized], count: int) -> list[tuple[_Sized, ...]]:
    """Return at most ``count`` groups of parts of about the same size, the largest first."""
    groups: list[list[_Sized]] = [[] for _ in range(max(1, min(count, len(parts))))]
    sizes = [0] * len(groups)
    for part in sorted(parts, key=lambda part: -part.rows):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(part)
        sizes[smallest] += part.rows
    return [tuple(group) for group in groups]


def slots(session: Session) -> int:
    """Return how many tasks run at a time."""
    return int(session.sparkContext.defaultParallelism)


def background_slots(session: Session) -> int:
    """Return how many tasks background work has at a time."""
    return max(1, slots(session) - SLOTS_LEFT_FREE)


def _read_in_tasks(
    session: Session,
    groups: Sequence[_Group],
    tables: Callable[[_Group], Iterator[pa.Table]],
    schema: pa.Schema,
) -> Frame:
    """Return a frame with one partition per group, read where its task runs."""
    wire, names, groups = wire_schema(schema), schema.names, tuple(groups)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in tables(groups[number]):
                    yield from batches_of(table.select(names), wire)

    return numbers_of(session, groups).mapInArrow(read, spark_schema(schema))


# ---- updates over an interval ----------------------------------------------------------------


def updates_frame(session: Session, read: ReadHandle, lower: int, upper: int) -> Frame:
    """Return the updates at times in ``[lower, upper)`` with ``__time`` and ``__diff``.

    The interval must be sealed and its history readable from ``lower - 1`` on. The updates of one
    part are consolidated if they were written so; across parts they are not.
    """
    core = read._core
    state = core.state
    collection = collection_of(state, read.id)
    if state.upper(collection).allows(upper - 1):
        raise InvalidUsage(
            f"collection {collection.name!r} is not sealed to {upper} yet, "
            f"but to {state.upper(collection)}; wait for it"
        )
    ok, errors = cut(collection, lower, upper)
    refuse_errors(core, collection, errors)
    schema = evolution.with_system_columns(collection.schemas[-1])
    place = place_of(core)
    if place is None or ok.rows <= DRIVER_ROWS_MAX:
        return arrow_frame(session, _read_here(core, collection, ok, schema))
    reading = Reading.of(place, collection)
    groups = spread(ok.parts, background_slots(session))
    return _read_in_tasks(session, groups, lambda group: map(reading.updates, group), schema)


def _read_here(core: Core, collection: CollectionState, wanted: Cut, schema: pa.Schema) -> pa.Table:
    # Times are their own: a snapshot would advance them.
    parts = (read_rows(core, collection, part, None) for part in wanted.parts)
    return pa.concat_tables([schema.empty_table(), *parts])


def refuse_errors(core: Core, collection: CollectionState, errors: Cut) -> None:
    if errors.parts:
        found = Snapshot(core, collection, errors.upper - 1, errors.parts).errors()
        if found.num_rows:
            messages = tuple(found.column("message").to_pylist())
            raise CollectionHasErrors(collection.name, errors.upper - 1, messages)


# ---- parts written by tasks ------------------------------------------------------------------


def writing(core: Core, step: Step) -> Writing:
    """Return what a task needs to write under ``step``; a new job of it gets new names."""
    place = place_of(core)
    if place is None:
        raise InvalidUsage(
            "Spark tasks cannot reach the blob of this location, which is in this process's "
            "memory; open the location in a directory or in an object store"
        )
    return Writing(place, step.name(secrets.token_hex(4)))


def this_attempt() -> str:
    """Return the name of the task attempt in which this is called."""
    context = TaskContext.get()
    assert context is not None, "only a task has an attempt"
    return attempt_name(
        context.stageId(), context.partitionId(), context.attemptNumber(), context.taskAttemptId()
    )


def run_in_tasks(session: Session, work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
    """Run each in a task of one job, given the name of its attempt; return what they returned.

    A task may be run twice, or its answer lost: what it writes has the attempt in its name.
    """
    work = tuple(work)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                answer = work[number](f"{this_attempt()}.{number}")
                columns = [pa.array([number], pa.int64()), pa.array([answer], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, names=["number", "answer"])

    numbers = session.range(0, len(work), 1, len(work))
    answers = numbers.mapInArrow(run, "number bigint, answer binary").collect()
    found = {row[0]: bytes(row[1]) for row in answers}
    return [found[number] for number in range(len(work))]


def run_in_background(session: Session, work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
    """Do the same in several jobs that leave some slots free, so that a tick finds one."""
    found: list[bytes] = []
    with or_ended(session):
        some = background_slots(session)
        for first in range(0, len(work), some):
            found += run_in_tasks(session, work[first : first + some])
    return found


def written_parts(frame: Frame, objects: Writing, target: Target) -> Frame:
    """Return the frame of :data:`DESCRIPTORS` whose tasks write the rows of ``frame`` when run.

    Each run of it writes again, under new names; only what one run returned belongs together.
    """
    expected = evolution.updates_schema(target.schema).names
    if set(frame.columns) != set(expected):
        raise SchemaMismatch(target.name, f"columns are {frame.columns}, not {expected}")

    def write_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = this_attempt()
        for number, pending in enumerate(target.pieces(batches)):
            parts = objects.write([pending], f"{attempt}.{number}")
            yield pa.RecordBatch.from_arrays([pa.array([encode_parts(parts)])], names=["parts"])

    return frame.mapInArrow(write_partition, DESCRIPTORS)


def write_from_tasks(frame: Frame, step: Step, write: WriteHandle) -> tuple[Part, ...]:
    """Run ``frame`` (updates of the collection) and write each task's rows as parts.

    Nothing is visible yet: put the parts into a command while ``step`` is open. Only descriptors of
    attempts that Spark took as the task's result come back.
    """
    core = write._core
    target = Target.of(collection_of(core.state, write.id))
    if place_of(core) is None:
        pieces = target.pieces(frame_rows(frame).to_batches())
        return step.write(list(pieces))
    return collect_parts(written_parts(frame, writing(core, step), target))


DESCRIPTORS: Final = "parts binary"
"""The schema of a frame whose rows are descriptors of written parts."""


def collect_parts(frame: Frame) -> tuple[Part, ...]:
    """Run a frame of :data:`DESCRIPTORS` and return all parts, in the order of partitions."""
    return tuple(part for row in frame.collect() for part in decode_parts(bytes(row[0])))


def append_from_tasks(
    frame: Frame, write: WriteHandle, lower: int, upper: int, *, token: BatchId | None = None
) -> Outcome:
    """Run ``frame`` and append its updates to ``[lower, upper)`` iff the upper is ``lower``."""
    core = write._core
    with core.step() as step:
        parts = write_from_tasks(frame, step, write)
        command = CompareAndAppend(
            write.id, token or new_token(), Frontier.of(lower), Frontier.of(upper), parts
        )
        return core.submit(command).result()


__all__ = [
    "DESCRIPTORS",
    "append_from_tasks",
    "arrow_frame",
    "collect_parts",
    "frame_rows",
    "repeat_rows",
    "rows_frame",
    "run_in_background",
    "run_in_tasks",
    "slots",
    "snapshot_frame",
    "spark_schema",
    "this_attempt",
    "updates_frame",
    "without_gaps",
    "write_from_tasks",
    "writing",
    "written_parts",
]
