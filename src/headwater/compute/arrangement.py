"""Arrangements as a task meets them: descriptors become runs that can be probed.

A part of layout ``run`` is mapped where it lies (or fetched once, where the blob is remote) and is
verified block by block as probes touch it; a part in another layout (small ones are one record
batch, inline in the log or a segment) is read whole and arranged in memory. Inline parts are
arranged together, up to :data:`TOGETHER` as one run: each run that is probed costs as much as some
hundred rows more in another. Opened runs are kept by the worker process over many steps, since
neither objects nor the bytes of an inline part ever change; how many is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

import pyarrow as pa

from headwater.collection.key_hash import HASH, key_hash
from headwater.collection.run import Run, in_order, sort_updates
from headwater.collection.run_layout import RUNS, OrderedRunLayout
from headwater.persist.batch import Inline, Part, Segment
from headwater.persist.blob import open_blob
from headwater.persist.errors import Corrupt, PartCollected
from headwater.persist.layout import INLINE
from headwater.persist.part import PART_ROWS_TARGET
from headwater.persist.spark_parts import Reading, Target

RUNS_OPEN_MAX: Final = 512
INLINE_PARTS_MAX: Final = 1024
"""At 8 KiB each, some megabytes."""
ARRANGED_MAX: Final = 256
"""Of runs that were arranged here; brief parts are 128 KiB at most, so they are some megabytes."""
TOGETHER: Final = 8
"""Of so many inline parts a run is made; the oldest stay together, so that it is made once."""


class RunsWhenProbed(Sequence[Run]):
    """Runs that are opened, or waited for, when they are first looked at; most are not probed."""

    def __init__(self, opened: Callable[[], Sequence[Run]]) -> None:
        self._open = opened

    @cached_property
    def _runs(self) -> Sequence[Run]:
        return self._open()

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, place: Any) -> Any:
        return self._runs[place]


def open_runs(reading: Reading, parts: Sequence[Part]) -> tuple[Run, ...]:
    """Return the runs of an arrangement: which rows are in which, and their order, says nothing."""
    inline = [part for part in parts if _is_inline(part)]
    runs = [_open(reading, part) for part in parts if not _is_inline(part)]
    groups = (inline[at : at + TOGETHER] for at in range(0, len(inline), TOGETHER))
    return (*runs, *(_arranged(reading, group) for group in groups))


def _is_inline(part: Part) -> bool:
    return isinstance(part.where, Inline) and part.window is None


def _open(reading: Reading, part: Part) -> Run:
    where = part.where
    if part.window is None and part.layout == INLINE.name and isinstance(where, Segment):
        known = (reading.place.url, where.key, where.offset, *_columns(reading, part))
        return _kept(known, lambda: reading.updates(part), reading)
    if part.layout not in RUNS or part.window is not None or not isinstance(where, Segment):
        return _made(reading.updates(part), reading)
    run = _open_segment(reading.place.url, where.key, where.offset, where.length)
    if run is None:
        raise PartCollected(reading.collection.name, where.key)
    if run.rows != part.rows:
        what = f"object {where.key} at {where.offset}"
        raise Corrupt(what, f"it has {run.rows} rows, not {part.rows}")
    return run


_arranged_runs: Final[OrderedDict[tuple[object, ...], Run]] = OrderedDict()
_inline_parts: Final[OrderedDict[tuple[object, ...], pa.Table]] = OrderedDict()


def _arranged(reading: Reading, parts: Sequence[Part]) -> Run:
    """Return the run of inline parts: the same bytes of the same columns are the same run."""
    known = tuple(_identity(reading, part) for part in parts)
    return _kept(
        known, lambda: pa.concat_tables([_decoded(reading, part) for part in parts]), reading
    )


def _kept(known: tuple[object, ...], updates: Callable[[], pa.Table], reading: Reading) -> Run:
    """Return the run of updates that are known by this."""
    run = _arranged_runs.get(known)
    if run is None:
        run = _arranged_runs[known] = _made(updates(), reading)
        if len(_arranged_runs) > ARRANGED_MAX:
            _arranged_runs.popitem(last=False)
    return run


def _made(updates: pa.Table, reading: Reading) -> Run:
    collection = reading.collection
    if collection.layout == OrderedRunLayout.name:
        updates = in_order(updates, collection.key)
    return Run.of(updates, collection.key)


def _decoded(reading: Reading, part: Part) -> pa.Table:
    known = _identity(reading, part)
    updates = _inline_parts.get(known)
    if updates is None:
        updates = reading.updates(part)
        _inline_parts[known] = updates
        if len(_inline_parts) > INLINE_PARTS_MAX:
            _inline_parts.popitem(last=False)
    return updates


def _identity(reading: Reading, part: Part) -> tuple[object, ...]:
    assert isinstance(part.where, Inline), "of an inline part"
    return (part.where.data, *_columns(reading, part))


def _columns(reading: Reading, part: Part) -> tuple[object, ...]:
    """Return what says which columns a part is read in, and by which it is arranged."""
    collection = reading.collection
    return (
        part.layout,
        part.schema,
        part.errors,
        *collection.schemas,
        collection.key,
        collection.layout,
    )


@lru_cache(maxsize=RUNS_OPEN_MAX)
def _open_segment(url: str, key: str, offset: int, length: int) -> Run | None:
    blob = open_blob(url, read_only=True)
    path = blob.local_path(key)
    if path is not None:
        try:
            return Run.open(path, offset, length)
        except FileNotFoundError:
            return None
    data = blob.get_range(key, offset, length)
    return None if data is None else Run.open(data)


def hash_ranges(updates: pa.Table, target: Target) -> Iterator[pa.Table]:
    """Yield updates in pieces fit for one part each; a piece is a range of what runs sort by."""
    if updates.num_rows <= PART_ROWS_TARGET:
        if updates.num_rows:
            yield updates
        return
    if target.layout == OrderedRunLayout.name:
        sorted_by = in_order(updates, target.key)
    else:
        hashes = pa.array(key_hash([updates.column(name) for name in target.key]))
        sorted_by = updates.append_column(HASH, hashes)
    ordered = sort_updates(sorted_by).drop_columns([HASH])
    for start in range(0, ordered.num_rows, PART_ROWS_TARGET):
        yield ordered.slice(start, PART_ROWS_TARGET)
