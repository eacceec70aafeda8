"""A collection at a time as Spark's own columns: tasks read keyed runs without any Python.

A snapshot is made of parts. Those that are keyed runs, in files that this machine's tasks can open,
with every row there exactly once at ``as_of``, are read in the JVM: of each column just its Arrow
buffers, piece by piece, each verified against its sum (``java/RunBytes.java``). All other parts
together must be few rows. They are read here; what they add comes on top, and of what they take
away each row is looked up in the runs, where it is *hidden*:

    rows of the runs, without the hidden ones  +  rows of the rest  ==  the rows of the snapshot

Parts that are whole Parquet files (``columns/files.py``) are read by Spark's own reader beside
them, which cannot hide a row: what goes must be in the runs.

Equal rows are the same to every query, so any of them may be the hidden one. Where not all can be
found (a retraction of something that comes later), or a type has no columns here, there is no such
frame: whoever asks reads by ``persist/spark.py``, which reads everything.

Spark knows of these relations how large they are, and asks for the columns it needs.

Kept by: this module and ``java/``. Relied on by: ``compute/select.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.classic.dataframe import DataFrame

from headwater.collection.key_hash import key_hash
from headwater.collection.run import Run
from headwater.collection.run_layout import RunLayout
from headwater.compute.catalyst.jvm import java_object
from headwater.compute.columns.files import files_frame, path_of
from headwater.compute.columns.settled import SettledRuns
from headwater.persist.batch import Part, Segment
from headwater.persist.consolidate import consolidate
from headwater.persist.evolution import DIFF
from headwater.persist.fingerprint import fingerprints
from headwater.persist.location import Blob
from headwater.persist.multiplicity import repeat_rows
from headwater.persist.narrow import is_upgraded
from headwater.persist.pieces import SLICE_ROWS_MIN
from headwater.persist.read import EVERYTHING, Snapshot
from headwater.persist.spark import (
    DRIVER_ROWS_MAX,
    arrow_frame,
    background_slots,
    require_no_errors,
    spark_schema,
)
from headwater.persist.spark_parts import Reading, place_of

CLASSES: Final = (
    "RunSlice",
    "RunSlices",
    "RunBytes",
    "RunColumn",
    "RunReader",
    "RunReaders",
    "RunScan",
    "RunTable",
    "RunTables",
)
"""In the order in which they need each other."""

FILE_ROWS_MIN: Final = 10_000
"""A file of fewer rows is read here: Spark makes tasks of files."""

_FIXED: Final = frozenset(
    {
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
    }
)
_TEXTS: Final = frozenset({pa.string(), pa.binary()})

Longs = npt.NDArray[np.int64]


class Source(NamedTuple):
    """A run, and where it lies."""

    run: Run
    path: str
    offset: int


class Slice(NamedTuple):
    """Rows ``[start, stop)`` of the ``run``-th run, without the hidden ones."""

    run: int
    start: int
    stop: int
    hidden: list[int]


class Sides(NamedTuple):
    """A snapshot: files and runs that have every row once, and the rest, which is little."""

    files: list[tuple[Part, str]]
    sources: list[Source]
    rest: list[Part]


def java_side(session: Any) -> Any:
    """Return the object of ``RunTables.java``; compiles it if this JVM has not."""
    return java_object(session, CLASSES, __package__, shipped=True)


def columns_frame(
    session: Any, snapshot: Snapshot, settled: SettledRuns | None = None
) -> Any | None:
    """Return the rows of a snapshot, each as often as it is there; ``None``: not in this way.

    ``settled`` has, or makes, what stands for parts in which nothing can be hidden.
    """
    place = place_of(snapshot._core)
    local = session.sparkContext.master.startswith("local")
    if place is None or not local or snapshot.narrowing != EVERYTHING:
        return None
    parts = [part for part in snapshot.parts if not part.errors]
    # What is small altogether is read by whoever asks: a task costs more.
    if sum(part.rows for part in parts) <= DRIVER_ROWS_MAX:
        return None
    if not _has_columns(snapshot.schema, snapshot.schema):
        return None
    require_no_errors(snapshot)
    reading = Reading.of(place, snapshot.collection)
    found = None if settled is None else settled.serving(snapshot)
    if found is None:
        stored = _as_stored(snapshot, parts, place.blob(read_only=True))
        frame = _frame(session, snapshot, reading, stored)
        old = any(is_upgraded(part, snapshot.collection, snapshot._codec) for part in parts)
        # What an older version of the codec wrote, only the codec knows how to read.
        if frame is not None or settled is None or old:
            return frame
        found = settled.made(session, snapshot, reading)
    if found is None:
        return None
    source = Source(found.run, found.path, 0)
    return _frame(session, snapshot, reading, Sides([], [source], found.rest))


def _as_stored(snapshot: Snapshot, parts: Sequence[Part], blob: Blob) -> Sides | None:
    """Return the sides of a snapshot as its parts are; ``None`` if they have no such columns."""
    plain = [part for part in parts if _is_plain(part, snapshot)]
    paths = ((part, path_of(part, blob)) for part in plain if part.rows > FILE_ROWS_MIN)
    files = [(part, path) for part, path in paths if path is not None]
    runs = [part for part in plain if part.layout == RunLayout.name]
    rest = [part for part in parts if part not in runs and part not in [p for p, _ in files]]
    if sum(part.rows for part in rest) > DRIVER_ROWS_MAX:
        return None
    sources = opened(blob, runs, snapshot.schema)
    return None if sources is None else Sides(files, sources, rest)


def _frame(session: Any, snapshot: Snapshot, reading: Reading, sides: Sides | None) -> Any | None:
    """Return the rows of both sides; ``None`` if not all that the rest takes away can be hidden."""
    if sides is None:
        return None
    names = snapshot.schema.names
    empty = reading.schema.empty_table()
    little = consolidate(
        pa.concat_tables([empty, *map(reading.updates, sides.rest)]).select([*names, DIFF])
    )
    added = pc.greater(little.column(DIFF), 0)
    runs = [source.run for source in sides.sources]
    hidden = hidden_rows(runs, little.filter(pc.invert(added)), names)
    if hidden is None:
        return None
    frames = []
    if sides.files:
        frames.append(files_frame(session, sides.files, snapshot.schema))
    if runs:
        tasks = shares([run.rows for run in runs], hidden, background_slots(session))
        said = described(snapshot, sides.sources, tasks)
        java = java_side(session).frame(session._jsparkSession, said)
        frames.append(DataFrame(java, session))
    more = repeat_rows(little.filter(added), snapshot.name).select(names)
    if more.num_rows:
        frames.append(arrow_frame(session, more))
    return None if None in frames else reduce(DataFrame.unionAll, frames)


def _is_plain(part: Part, snapshot: Snapshot) -> bool:
    """Whether a part lies in an object, has today's columns, and every row there once."""
    diffs = part.stats.get(DIFF)
    return (
        isinstance(part.where, Segment)
        and part.window is None
        and diffs is not None
        and (diffs.lower, diffs.upper) == (1, 1)
        and part.schema == len(snapshot.collection.schemas) - 1
        and not is_upgraded(part, snapshot.collection, snapshot._codec)
    )


def opened(blob: Blob, parts: Sequence[Part], schema: pa.Schema) -> list[Source] | None:
    """Return the runs of parts; ``None`` if some have not such columns, or are no files here."""
    found = []
    for part in parts:
        where = part.where
        assert isinstance(where, Segment), "a plain part is a segment"
        path = blob.local_path(where.key)
        try:
            run = None if path is None else Run.open(path, where.offset, where.length)
        except FileNotFoundError:
            return None
        if run is None or run.rows != part.rows or not _has_columns(run.schema, schema):
            return None
        found.append(Source(run, str(path), where.offset))
    return found


def _has_columns(stored: pa.Schema, wanted: pa.Schema) -> bool:
    for field in wanted:
        known = field.type in _FIXED | _TEXTS or pa.types.is_decimal128(field.type)
        if (
            not known
            or field.name not in stored.names
            or stored.field(field.name).type != field.type
        ):
            return False
    return True


# ---- what is taken away ----------------------------------------------------------------------


def hidden_rows(runs: Sequence[Run], gone: pa.Table, names: list[str]) -> list[Longs] | None:
    """Return of each run the rows that are taken away; ``None`` if they are not all there.

    ``gone`` has each such row once, with how often (negative) as ``__diff``.
    """
    if not gone.num_rows:
        return [np.empty(0, np.int64) for _ in runs]
    missing = -gone.column(DIFF).to_numpy()
    marks = fingerprints(gone, names)
    hidden, taken = [], [gone]
    for run in runs:
        rows, owners = _met(run, key_hash([gone.column(name) for name in run.key]))
        met = pa.table(run.take(rows, names), gone.schema.remove(len(names)))
        same = np.flatnonzero(fingerprints(met, names) == marks[owners])
        rows, owners = rows[same], owners[same]
        # The how many-th of its owner each is: owners come one after the other.
        rank = np.arange(len(owners)) - np.searchsorted(owners, owners)
        kept = rank < missing[owners]
        missing = missing - np.bincount(owners[kept], minlength=len(missing))
        hidden.append(np.sort(rows[kept]))
        chosen = met.take(pa.array(same[kept]))
        taken.append(chosen.append_column(gone.schema.field(DIFF), _ones(len(chosen))))
    # Equal fingerprints are a hint: what was chosen must be just what is gone.
    return None if consolidate(pa.concat_tables(taken)).num_rows else hidden


def _met(run: Run, hashes: Longs) -> tuple[Longs, Longs]:
    """Return the rows with one of the hashes, and the place of the hash of each, rising."""
    left, right = run.equal_range(hashes)
    counts = right - left
    owners = np.repeat(np.arange(len(hashes)), counts)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(left, counts) + within, owners


def _ones(count: int) -> pa.Array:
    return pa.array(np.ones(count, np.int64))


# ---- what tasks read -------------------------------------------------------------------------


def shares(rows: Sequence[int], hidden: Sequence[Longs], tasks: int) -> list[list[Slice]]:
    """Return for each task what it reads: about the same number of rows, none too few."""
    share = max(SLICE_ROWS_MIN, -(-sum(rows) // tasks))
    found: list[list[Slice]] = []
    room = 0
    for run, (count, gone) in enumerate(zip(rows, hidden, strict=True)):
        start = 0
        while start < count:
            if room == 0:
                found.append([])
                room = share
            stop = min(count, start + room)
            first, end = np.searchsorted(gone, (start, stop))
            found[-1].append(Slice(run, start, stop, gone[first:end].tolist()))
            room -= stop - start
            start = stop
    return found


def described(snapshot: Snapshot, sources: Sequence[Source], tasks: list[list[Slice]]) -> str:
    """Return the text of which ``RunTables.java`` makes a frame."""
    names = snapshot.schema.names
    return json.dumps(
        {
            "name": snapshot.name,
            "schema": spark_schema(snapshot.schema).jsonValue(),
            "rows": sum(source.run.rows for source in sources),
            "runs": [_run(source, names) for source in sources],
            "tasks": [[each._asdict() for each in slices] for slices in tasks],
        }
    )


def _run(source: Source, names: Sequence[str]) -> dict[str, object]:
    areas = source.run.areas()
    return {
        "path": source.path,
        "arrow": source.offset,
        "arrow_length": areas.arrow_length,
        "piece_length": areas.piece_length,
        "sums": source.offset + areas.sums,
        "columns": [_buffers(areas.columns[name]) for name in names],
    }


def _buffers(found: Sequence[int | None]) -> list[int]:
    """Return where validity, values and characters begin; -1: there are none."""
    validity, values, chars = (*found, None)[:3]
    assert values is not None, "a column has values"
    if len(found) == 3 and chars is None:
        chars = values  # All are empty: whatever is read of it has no bytes.
    return [-1 if each is None else each for each in (validity, values, chars)]
