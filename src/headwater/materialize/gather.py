"""Gathering: from the unread updates of an interval to what a transaction loads and stores.

    interval ─▶ spill, ordered by key ─▶ combined, a range of keys at a time ─▶ a run of rows
    run ─▶ keys to load;   run + what was loaded ─▶ Stores, a range of keys at a time

A transaction that is repeated (``intent``) loads the keys of bindings that load nothing otherwise:
which of its rows are there already is not known to the collection, and drivers may insert where
``exists`` is false.

All of it in *one* transaction, however large: the endpoint is the view at one time, before and
after. What does not fit into memory is on disk, three times at most: the updates, the combined rows
and what was loaded. What is small never leaves memory, and its Stores are all made before the first
is sent.

Invariant:      rows held at once follow the spill limit, not the interval; except those that a
                ``REDUCE`` folds into one key. A row that cannot be delivered (no key, two rows of
                one) is found before anything is loaded or stored.
Relied on by:   the runtime; ``combine`` is what is done to a range of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headwater.materialize.changes import owned_keys, same_as_before
from headwater.materialize.combine import ANY_KEY, Bound
from headwater.materialize.duplicates import Standing, standing
from headwater.materialize.joined import joined
from headwater.materialize.key_range import KeyRange
from headwater.materialize.loaded import LoadedRows
from headwater.materialize.protocol.messages import Loaded, LoadedMany, LoadMany, StoreMany
from headwater.materialize.sorted_runs import PACKED, Piece, RunFile, SortedRuns
from headwater.materialize.spill import Spill, pack_key

_OBJECTS: Final = 16
"""How many times the memory of a row its document takes, about."""


class Unread(Protocol):
    """The updates of a collection over a span of times, to be read; an interval is."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its updates."""
        ...

    def updates(self) -> Iterator[pa.Table]:
        """Yield the updates, piece by piece."""
        ...

    def at_end(self) -> Standing:
        """Return all that is there at its last time."""
        ...


class Run:
    """The combined rows of one binding in a transaction."""

    def __init__(self, bound: Bound, runs: Sequence[pa.Table], limit_bytes: int) -> None:
        """Have rows in one or several runs; all those of a key are in one."""
        self.bound = bound
        self._tables = tuple(runs)
        self._runs = SortedRuns(runs, limit_bytes)
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        """How much of it is in memory."""
        self.asks = bound.loads
        """Whether keys are loaded: to reduce into their rows, or to learn which are there."""
        self.drifts = False
        """Whether what is loaded may hold some of it already, from an attempt that failed."""

    @classmethod
    def held(cls, bound: Bound, ordered: pa.Table, limit_bytes: int) -> Run:
        """Return a run of rows that are in memory."""
        run = cls(bound, (ordered,), max(limit_bytes, ordered.nbytes))
        run.held_bytes = ordered.nbytes
        return run

    def on_disk(self) -> Run:
        """Return the same run, out of memory."""
        with RunFile() as file:
            for piece in self._runs.pieces():
                file.write(piece.rows)
            return Run(self.bound, (file.mapped(),), self._limit_bytes)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self._runs.rows

    @property
    def max_key(self) -> bytes:
        """The greatest key that will be stored, where that is worth knowing; else empty."""
        return b"" if self.empty or not self.bound.loads else self._runs.greatest

    def _pieces(self) -> Iterator[Piece]:
        """Yield ranges of keys; small ones, where rows become objects."""
        if not self.asks and not self.bound.reduces:
            return self._runs.pieces()
        return SortedRuns(self._tables, self._limit_bytes // _OBJECTS).pieces()

    def loads(self, max_key: bytes) -> Iterator[LoadMany]:
        """Yield which keys to load, ascending, given the greatest that was ever stored."""
        if not self.asks:
            return
        for piece in self._pieces():
            keys = joined(piece.rows[PACKED])
            keys = keys.filter(pa.array(~same_as_before(keys)))
            keys = keys.filter(pc.less_equal(keys, pa.scalar(max_key, keys.type)))
            if len(keys):
                yield LoadMany(self.bound.index, keys)

    def stores(self, loaded: LoadedRows) -> Iterator[StoreMany]:
        """Yield what is stored, ascending."""
        after = b""
        for piece in self._pieces():
            found = loaded.between(after, piece.last) if self.asks else {}
            store = self.bound.piece(piece.rows).reduced(found, drifts=self.drifts)
            yield store if self.bound.loads or not self.asks else _as_found(store, found)
            after = piece.last or after


def _as_found(store: StoreMany, found: Collection[bytes]) -> StoreMany:
    """Return stores that say of each key what is there; what is gone need not go again."""
    there = [key in found for key in store.keys_packed.to_pylist()]
    exists = pa.array(there, pa.bool_())
    kept = pc.or_(exists, pc.invert(store.delete))
    return StoreMany(
        store.binding,
        store.keys_packed.filter(kept),
        store.rows.filter(kept),
        exists.filter(kept),
        store.delete.filter(kept),
    )


def gather(
    bound: Bound,
    interval: Unread,
    upper: int,
    key_range: KeyRange,
    limit_bytes: int,
    check: Callable[[], None] = lambda: None,
) -> Run:
    """Combine what an interval has of a shard's keys; ``check`` may raise, to break it off."""
    bound.check_columns(interval.schema.names)
    spill = Spill(bound.binding.key, limit_bytes)
    for updates in interval.updates():
        check()
        spill.add(owned(updates, bound.binding.key, key_range))
    pieces = spill.pieces()
    first = next(pieces, None)
    if first is None:
        return Run(bound, (), limit_bytes)

    def ordered(updates: pa.Table) -> pa.Table:
        there = None
        if bound.chooses and updates.num_rows:
            there = standing(bound.index, bound.binding.key, interval.at_end(), updates, check)
        return bound.ordered(updates, upper, KeyRange.full(), there)

    combined = ordered(first.updates)
    if first.last is None:
        return Run.held(bound, combined, limit_bytes)
    with RunFile() as file:
        file.write(combined)
        for piece in pieces:
            check()
            file.write(ordered(piece.updates))
        return Run(bound, (file.mapped(),), limit_bytes)


def owned(updates: pa.Table, key: Sequence[str], key_range: KeyRange) -> pa.Table:
    """Return the updates of a shard's keys."""
    if key_range == KeyRange.full() or not updates.num_rows:
        return updates
    return updates.filter(owned_keys(pack_key(updates, key), key_range))


class Outgoing:
    """One transaction on its way: its runs, what was loaded for them, and how many rows moved."""

    def __init__(
        self,
        makes: Iterable[Callable[[int], Run]],
        limit_bytes: int,
        *,
        repeated: bool = False,
        drifts: bool = False,
    ) -> None:
        """Have each run made, with what others leave of the limit; never less than half of it.

        ``repeated``: rows may be there that the collection knows nothing of, and the reverse.
        ``drifts``: that may have been so before.
        """
        self.runs: list[Run] = []
        held = 0
        for make in makes:
            run = make(max(limit_bytes - held, limit_bytes // 2))
            if held and held + run.held_bytes > limit_bytes and not run.empty:
                run = run.on_disk()
            held += run.held_bytes
            run.asks = run.bound.loads or (repeated and not run.bound.binding.delta_updates)
            run.drifts = drifts
            self.runs.append(run)
        self._small = all(run.held_bytes or run.empty for run in self.runs)
        each = limit_bytes // max(2, sum(run.asks for run in self.runs))
        self._loaded = {run.bound.index: LoadedRows(run.bound, each) for run in self.runs}
        self.stored = self.deleted = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return all(run.empty for run in self.runs)

    @property
    def max_keys(self) -> tuple[tuple[str, bytes], ...]:
        """By state key, the greatest key that will be stored."""
        return tuple((run.bound.state_key, run.max_key) for run in self.runs if run.max_key)

    def loads(self, max_key: Callable[[str], bytes]) -> Iterator[LoadMany]:
        """Yield which keys to load, given the greatest that was ever stored of each binding."""
        return chain.from_iterable(
            run.loads(max_key(run.bound.state_key) if run.bound.loads else ANY_KEY)
            for run in self.runs
        )

    def keep(self, message: Loaded | LoadedMany) -> None:
        """Take what was loaded."""
        self._loaded[message.binding].add(message)

    @property
    def loaded(self) -> int:
        """How many rows were loaded."""
        return sum(rows.count for rows in self._loaded.values())

    def stores(self, _: Mapping[int, object]) -> Iterable[StoreMany]:
        """Return what is stored, ascending by binding and key."""
        stores = self._stores()
        # What cannot be stored is told before anything is; where that is possible.
        return list(stores) if self._small else stores

    def _stores(self) -> Iterator[StoreMany]:
        for run in self.runs:
            for store in run.stores(self._loaded[run.bound.index]):
                gone = store.delete.sum().as_py() or 0
                self.deleted += gone
                self.stored += store.rows.num_rows - gone
                yield store
