"""Keyed runs: immutable updates sorted by ``(hash of the key, time)``.

A run holds updates ``(row, time, diff)`` of one collection. Its columns are the data columns and
``__hash``, ``__time``, ``__diff`` (all three ``int64``, never NULL); its key is a list of its data
columns, and ``__hash`` is their :func:`~headwater.collection.key_hash.key_hash`. Invariant:

    rows are ordered by (__hash, __time), both signed; __hash depends on the key's values alone

so all updates of a key are neighbours, oldest first, and are found by a binary search. Two keys
may share a hash: whoever searches compares the keys again (``collection/probe.py``). An
*arrangement* is a handful of runs, one on top of the other; it denotes the sum of them. Runs of one
arrangement may overlap in hashes and in times, and need not be consolidated.

A column that was added later is missing in older runs and reads as NULL.

An *ordered* run is the same, but its key is one column of ``int64`` without NULLs, and ``__hash``
is that number (:func:`in_order`): what is near a number is near it in the run
(``collection/around.py``).

Kept by: :func:`write_run`, also where persist merges runs, as it merges all parts. Relied on by:
probes, upsert envelopes, delta rules. Format and checksums: ``collection/run_file.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.base.errors import InvalidUsage
from headwater.collection import run_file
from headwater.collection.key import key_form
from headwater.collection.key_hash import HASH, Hashes, key_hash
from headwater.collection.run_extent import Extent, is_storable
from headwater.collection.run_file import CorruptRun, RunFile
from headwater.persist.consolidate import DIFF, TIME, column_longs

Longs = npt.NDArray[np.int64]

SYSTEM_COLUMNS: Final = (HASH, TIME, DIFF)


class InvalidRun(InvalidUsage):
    """Updates that cannot be written as a keyed run."""


class RunTooLarge(InvalidUsage):
    """More bytes in one string or list column than one Arrow batch can address."""

    def __init__(self, rows: int) -> None:
        super().__init__(
            f"a keyed run of {rows} rows has a column of more than 2 GiB; cut it by hash range"
        )


def write_run(
    updates: pa.Table,
    key: Sequence[str],
    *,
    block_length: int = run_file.BLOCK_LENGTH,
    index_stride: int = run_file.INDEX_STRIDE,
) -> bytes:
    """Return the bytes of the run with these updates.

    ``updates`` has the data columns, ``__time`` and ``__diff``, in any order of rows; ``__hash``
    is computed unless it is there. Dictionary and view columns are stored as plain ones. The bytes
    are a function of the updates and their order; their length is a multiple of 64.
    ``block_length`` (what is verified at once) and ``index_stride`` (what is searched at once) are
    written into the run.
    """
    batch = _arranged(updates, key)
    return run_file.encode(
        batch,
        key=tuple(key),
        hashes=batch.column(HASH).to_numpy(),
        times=batch.column(TIME).to_numpy(),
        block_length=block_length,
        index_stride=index_stride,
    )


def in_order(updates: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return updates as an ordered run has them: with their key for its own hash."""
    (number,) = key
    field = pa.field(HASH, pa.int64(), nullable=False)
    return updates.append_column(field, updates.column(number))


def _arranged(updates: pa.Table, key: Sequence[str]) -> pa.RecordBatch:
    """Return the rows of the run with these updates."""
    combined = sort_updates(_checked(updates, key)).combine_chunks()
    batches = combined.to_batches()
    if len(batches) > 1:
        raise RunTooLarge(len(updates))
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=combined.schema)


def sort_updates(updates: pa.Table) -> pa.Table:
    """Sort by ``(__hash, __time)``, stably; the same table where it is sorted already."""
    hashes, times = column_longs(updates, HASH), column_longs(updates, TIME)
    rising = hashes[1:] > hashes[:-1]
    rising |= (hashes[1:] == hashes[:-1]) & (times[1:] >= times[:-1])
    if rising.all():
        return updates
    order = pa.array(np.lexsort((times, hashes)))
    batches = updates.combine_chunks().to_batches()
    if len(batches) > 1:  # A column has more bytes than one array can address.
        return updates.take(order)
    # Out of a batch rows are taken in half the time that a table needs.
    return pa.Table.from_batches([batches[0].take(order)])


def _checked(updates: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the updates with plain columns and a hash, or say why they cannot be a run."""
    names = updates.column_names
    if len(set(names)) != len(names):
        raise InvalidRun(f"a keyed run has each column once, not {names}")
    for name in (TIME, DIFF, *((HASH,) if HASH in names else ())):
        if name not in names or updates[name].type != pa.int64() or updates[name].null_count:
            raise InvalidRun(f"a keyed run needs a column {name} of int64 without NULLs")
    if not key or not set(key) <= set(names) - set(SYSTEM_COLUMNS):
        raise InvalidRun(f"the key {list(key)} must name data columns of {names}")
    for position, stored in enumerate(updates.schema):
        plain = plain_type(stored.type)
        if not is_storable(plain):
            raise InvalidRun(
                f"column {stored.name} of type {stored.type} cannot be stored in a run"
            )
        if plain != stored.type:
            column = updates[stored.name].cast(plain)
            updates = updates.set_column(position, stored.with_type(plain), column)
    for name in key:
        key_form(updates[name].type)
    if HASH not in names:
        hashes = pa.array(key_hash([updates[name] for name in key]))
        updates = updates.append_column(pa.field(HASH, pa.int64(), nullable=False), hashes)
    return updates


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type as which a column is stored: no dictionaries, no views."""
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    return type_


class Areas(NamedTuple):
    """Where in its segment a run has what; ``piece_length`` is 0 where its pieces have no sums."""

    arrow_length: int
    piece_length: int
    sums: int
    """Where the sums of the whole pieces begin, 32 bits each."""
    columns: dict[str, tuple[int | None, ...]]
    """The buffers of each column, as Arrow orders them."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """An opened run. Nothing it returns is unverified; a flipped bit raises ``CorruptRun``.

    Opening costs the footer, and the rows only of a short run, all of which is verified then. What
    was verified stays so for this object, so keep a run open over many probes. Threads may share
    it.
    """

    _file: RunFile
    _batch: pa.RecordBatch
    _extents: dict[tuple[str, ...], Extent] = field(default_factory=dict, repr=False)
    """Those of the columns that were read so far, together."""

    @classmethod
    def open(
        cls, source: str | Path | bytes | pa.Buffer, offset: int = 0, length: int | None = None
    ) -> Run:
        """Open the segment ``[offset, offset + length)`` of a file (memory-mapped) or of bytes."""
        if isinstance(source, str | Path):
            name = f"{source}@{offset}"
            segment = _mapped(Path(source), name, offset, length)
        else:
            name = f"in memory@{offset}"
            whole = pa.py_buffer(source) if isinstance(source, bytes) else source
            segment = _cut(whole, name, offset, length)
        opened = run_file.decode(segment, name)
        return cls(opened, opened.batch())

    @classmethod
    def of(cls, updates: pa.Table, key: Sequence[str]) -> Run:
        """Return the run of updates that stay in memory, which needs no bytes and no checksums.

        To everybody who probes it, it is the run that :func:`write_run` would write of them.
        """
        batch = _arranged(updates, key)
        hashes, times = batch.column(HASH).to_numpy(), batch.column(TIME).to_numpy()
        return cls(run_file.unwritten(key=tuple(key), hashes=hashes, times=times), batch)

    @property
    def name(self) -> str:
        """Where it was opened, for messages."""
        return self._file.name

    @property
    def rows(self) -> int:
        """How many updates there are."""
        return self._file.head.rows

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's columns."""
        return self._file.head.key

    @property
    def schema(self) -> pa.Schema:
        """All columns, with the system columns."""
        return self._batch.schema

    @property
    def arrow_bytes(self) -> int:
        """How many bytes the rows occupy in its segment."""
        return self._file.head.arrow_length

    @property
    def verified_bytes(self) -> int:
        """How many bytes were verified so far, that is: read at least once."""
        return self._file.verified_bytes

    @property
    def hash_range(self) -> tuple[int, int] | None:
        """The first and the last hash, both included; ``None`` of an empty run."""
        head = self._file.head
        return (head.first_hash, head.last_hash) if head.rows else None

    @property
    def min_time(self) -> int | None:
        """The earliest time of an update; ``None`` of an empty run."""
        return self._file.head.min_time if self.rows else None

    @property
    def max_time(self) -> int | None:
        """The latest time of an update; ``None`` of an empty run."""
        return self._file.head.max_time if self.rows else None

    def areas(self) -> Areas:
        """Return where everything lies, for a reader that verifies the pieces it reads."""
        file, arrow = self._file, self._file.arrow
        tail = len(file.sums) * file.head.piece_length
        if 0 < tail < file.head.arrow_length:
            # It has no piece of its own: whoever reads pieces cannot verify it.
            file.verify(np.array([tail]), np.array([file.head.arrow_length]))
        return Areas(
            arrow_length=file.head.arrow_length,
            piece_length=file.head.piece_length,
            sums=int(file.sums.__array_interface__["data"][0]) - arrow.address,
            columns={
                name: tuple(
                    None if buffer is None else buffer.address - arrow.address
                    for buffer in column.buffers()
                )
                for name, column in zip(self._batch.schema.names, self._batch.columns, strict=True)
            },
        )

    def verify_all(self) -> None:
        """Verify every byte of the run."""
        self._file.verify_all()

    def table(self) -> pa.Table:
        """Return all rows, verified and zero-copy, in the run's order."""
        self.verify_all()
        return pa.Table.from_batches([self._batch])

    def slice(self, start: int, stop: int) -> pa.Table:
        """Return the rows ``[start, stop)``, verifying (and reading) only them."""
        start, stop = max(0, start), min(stop, self.rows)
        if start < stop:
            self._verify(self._batch.schema.names, np.array([start]), np.array([stop]))
        return pa.Table.from_batches([self._batch.slice(start, max(0, stop - start))])

    def take(self, rows: Longs, columns: Sequence[str]) -> list[Any]:
        """Return these rows of these columns, one array each, verifying only them."""
        wanted = self._batch.select(list(columns))
        self._verify(columns, *_stretches(rows))
        taken: list[Any] = wanted.take(pa.array(rows)).columns
        return taken

    def longs(self, rows: Longs, column: str) -> Longs:
        """Return these rows of a system column as numbers."""
        self._verify([column], *_stretches(rows))
        return self._numbers(column)[rows]

    def equal_range(self, hashes: Hashes) -> tuple[Longs, Longs]:
        """Return, for each hash, the range ``[left, right)`` of the rows that have it.

        The sparse index of the footer narrows each search to two strides of rows; only these
        windows are verified and read. Where that would be most of the column anyway (many hashes,
        a small run), all of it is searched at once, which is quicker.
        """
        if self.rows == 0 or not len(hashes):
            nowhere = np.zeros(len(hashes), np.int64)
            return nowhere, nowhere
        if self._file.whole:
            stored = self._numbers(HASH)
            return np.searchsorted(stored, hashes, "left"), np.searchsorted(stored, hashes, "right")
        if (hashes[1:] >= hashes[:-1]).all():
            return self._sorted_range(hashes)
        # In the order of the run, neighbours are read from the same pages one after the other.
        order = np.argsort(hashes)
        left, right = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
        left[order], right[order] = self._sorted_range(hashes[order])
        return left, right

    def _sorted_range(self, hashes: Hashes) -> tuple[Longs, Longs]:
        width = 2 * self._file.head.index_stride
        if len(hashes) * width >= self.rows:
            stored = self._numbers(HASH)
            self._verify([HASH], np.array([0]), np.array([self.rows]))
            return np.searchsorted(stored, hashes, "left"), np.searchsorted(stored, hashes, "right")
        low, found = self._windows(hashes, "left")
        wanted = hashes[:, np.newaxis]
        left: Longs = low + np.count_nonzero(found < wanted, axis=1)
        right: Longs = low + np.count_nonzero(found <= wanted, axis=1)
        beyond = np.flatnonzero((right == low + width) & (right > left))
        if len(beyond):  # Many rows have the hash, or they begin at the end of a window.
            low, found = self._windows(hashes[beyond], "right")
            right[beyond] = low + np.count_nonzero(found <= wanted[beyond], axis=1)
        return left, right

    def _windows(self, hashes: Hashes, side: Any) -> tuple[Longs, Longs]:
        """Return for each hash a window of the hash column: where it begins, and what is in it.

        The first row behind all that are less (or, by ``right``, not greater) is within a stride
        of the last entry of the index that is so; a window is two of them, so that mostly it has
        the other end of the hash as well. There are fewer places in all than rows in the run.
        """
        stride = self._file.head.index_stride
        entry = np.searchsorted(self._file.index, hashes, side)
        low: Longs = np.clip((entry - 1) * stride, 0, self.rows - 2 * stride)
        self._verify([HASH], low, low + 2 * stride)
        # As ``sliding_window_view``, which takes longer than all the rest for a few hashes.
        shape, strides = (self.rows - 2 * stride + 1, 2 * stride), (8, 8)
        windows: Longs = np.ndarray(shape, np.int64, self._numbers(HASH), strides=strides)
        return low, windows[low]

    def _numbers(self, column: str) -> Longs:
        numbers: Longs = self._batch.column(column).to_numpy()
        return numbers

    def _verify(self, columns: Sequence[str], starts: Longs, stops: Longs) -> None:
        if self._file.whole:
            return
        names = tuple(columns)
        extent = self._extents.get(names)
        if extent is None:
            arrays = [self._batch.column(name) for name in names]
            extent = self._extents[names] = Extent(arrays, self._file.arrow.address)
        extent.verify(starts, stops, self._file.verify)


def _stretches(rows: Longs) -> tuple[Longs, Longs]:
    """Return rows that follow each other as ranges ``[start, stop)``."""
    if len(rows) < 2:
        return rows, rows + 1
    breaks = np.flatnonzero(rows[1:] != rows[:-1] + 1)
    return rows[np.append(0, breaks + 1)], rows[np.append(breaks, len(rows) - 1)] + 1


def _mapped(path: Path, name: str, offset: int, length: int | None) -> pa.Buffer:
    size = path.stat().st_size
    stop = size if length is None else offset + length
    if not 0 <= offset < stop <= size:
        raise CorruptRun(name, "segment", f"it ends at {stop}, the file at {size}: it was cut")
    mapped = pa.memory_map(str(path), "r")
    mapped.seek(offset)
    return mapped.read_buffer(stop - offset)


def _cut(whole: pa.Buffer, name: str, offset: int, length: int | None) -> pa.Buffer:
    stop = whole.size if length is None else offset + length
    if not 0 <= offset <= stop <= whole.size:
        raise CorruptRun(name, "segment", f"it ends at {stop}, the bytes at {whole.size}")
    return whole.slice(offset, stop - offset)
