"""Rows by primary key, without a Spark job.

    lookup(snapshot, keys) = { (i, row, diff) : row in the snapshot, key(row) = keys[i] }

A table with a primary key is a collection of layout ``run``: its large parts are keyed runs, which
are probed where they lie (``collection/probe.py``); its small ones are inline in the log and are
kept here by the hash of their keys. So the cost follows the keys that are asked for and the number
of parts (which merges bound), never the rows of the table. A large part in another layout is
arranged in memory, once.

What is kept is a cache of immutable parts: a lookup uses exactly the parts of its snapshot,
whatever else is kept, and adds those that are missing. Safe to call from several threads.

Relied on by: uniqueness of primary keys (``adapter/group_commit.py``), point reads and writes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.collection.key import keys_equal
from headwater.collection.key_hash import key_hash
from headwater.collection.probe import PROBE_INDEX, probe
from headwater.collection.run import Run, write_run
from headwater.collection.run_layout import RunLayout
from headwater.persist import evolution
from headwater.persist.batch import Inline, Part, Segment
from headwater.persist.consolidate import column_longs, consolidate
from headwater.persist.core import Core
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.part import PartMissing, read_part
from headwater.persist.read import Snapshot
from headwater.persist.state import CollectionState

RUNS_OPEN_MAX: Final = 512
SMALL_PARTS_SLACK: Final = 256
"""How many small parts may be kept beyond those that some table still has."""

FEW_KEYS: Final = 1_024
"""Up to so many keys are looked for one by one in the parts that have any of them."""

OFTEN: Final = 4
"""From so many questions about one snapshot on, what all its keys are is worth knowing."""

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Small:
    """An inline part: its rows, and where each hash is among them."""

    where: Inline
    rows: pa.Table
    times: Longs
    hashes: Longs
    places: dict[int, list[int]]


class KeyedReads:
    """Looks keys up in the tables of one location."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._runs: OrderedDict[object, Run] = OrderedDict()
        self._small: dict[int, _Small] = {}
        """By the identity of the part's bytes, which it keeps alive."""

    def lookup(self, snapshot: Snapshot, keys: Sequence[Any]) -> pa.Table:
        """Return ``__probe_index``, the data columns and ``__diff`` of what the keys have.

        ``keys``: one array for each key column of the collection, in its order and of its type.
        """
        collection = snapshot.collection
        hashes = key_hash(keys)
        order = np.argsort(hashes)
        schema = evolution.with_system_columns(collection.schemas[-1])
        small, runs = self.opened(snapshot)
        if len(hashes) <= FEW_KEYS:
            # Most parts have none of the keys: those of new rows are in no part at all.
            asked = set(hashes.tolist())
            small = [each for each in small if not each[1].places.keys().isdisjoint(asked)]
        found = [probe(runs, keys, at=snapshot.as_of, hashes=hashes, schema=schema)]
        found += [
            rows
            for part, index in small
            for rows in _in_small(part, index, collection.key, keys, hashes, order, snapshot.as_of)
        ]
        plain = found[0].schema
        rows = pa.concat_tables([table.cast(plain) for table in found]).drop_columns([TIME])
        return consolidate(rows)

    def opened(self, snapshot: Snapshot) -> tuple[list[tuple[Part, _Small]], list[Run]]:
        """Return the parts of a snapshot, ready to be looked into."""
        collection = snapshot.collection
        small: list[tuple[Part, _Small]] = []
        runs: list[Run] = []
        with self._lock:
            for part in snapshot.parts:
                if part.errors:
                    continue
                if isinstance(part.where, Inline):
                    small.append((part, self._small_of(collection, part)))
                else:
                    runs.append(self._run_of(collection, part))
            self._forget()
        return small, runs

    def _small_of(self, collection: CollectionState, part: Part) -> _Small:
        assert isinstance(part.where, Inline)
        kept = self._small.get(id(part.where))
        if kept is None:
            whole = msgspec.structs.replace(part, window=None)
            rows = self._read(collection, whole)
            places: defaultdict[int, list[int]] = defaultdict(list)
            hashes = key_hash([rows.column(name) for name in collection.key])
            for place, value in enumerate(hashes.tolist()):
                places[value].append(place)
            kept = _Small(part.where, rows, column_longs(rows, TIME), hashes, dict(places))
            self._small[id(part.where)] = kept
        return kept

    def _forget(self) -> None:
        """Drop small parts that no table has any more, once they are many."""
        if len(self._small) <= SMALL_PARTS_SLACK:
            return
        alive = {
            id(part.where)
            for collection in self._core.state.collections.values()
            if collection.layout == RunLayout.name
            for part in collection.parts()
        }
        if len(self._small) > 2 * len(alive) + SMALL_PARTS_SLACK:
            self._small = {key: kept for key, kept in self._small.items() if key in alive}

    def _run_of(self, collection: CollectionState, part: Part) -> Run:
        where = part.where
        assert isinstance(where, Segment)
        # Through a window times are cut, which a probe does by itself for the upper end alone.
        plain = part.layout == RunLayout.name and (part.window is None or part.window[0] == 0)
        known = (where.key, where.offset, None if plain else part.window, part.schema)
        run = self._runs.get(known)
        if run is None:
            run = self._mapped(where) if plain else None
            if run is None:
                rows = self._read(collection, part)
                run = Run.open(write_run(rows, collection.key))
            self._runs[known] = run
            if len(self._runs) > RUNS_OPEN_MAX:
                self._runs.popitem(last=False)
        self._runs.move_to_end(known)
        return run

    def _mapped(self, where: Segment) -> Run:
        path = self._core.blob.local_path(where.key)
        if path is not None:
            return Run.open(path, where.offset, where.length)
        data = self._core.fetch(where)
        if data is None:
            raise PartMissing(where.key)
        return Run.open(data if isinstance(data, pa.Buffer) else pa.py_buffer(data))

    def _read(self, collection: CollectionState, part: Part) -> pa.Table:
        core = self._core
        return read_part(part, collection, fetch=core.fetch, layouts=core.layouts)


class Present:
    """How many rows keys have in one snapshot, for who asks again and again for few of them."""

    def __init__(self, keyed: KeyedReads, snapshot: Snapshot) -> None:
        self._keyed, self._snapshot = keyed, snapshot
        self._asked = 0
        self._few: frozenset[int] | None = None
        """The hashes of all keys in small parts."""
        self._runs: list[Run] = []

    def counts(self, keys: pa.Table) -> list[int]:
        """Return how many rows each of these keys has."""
        arrays = [column.combine_chunks() for column in keys.columns]
        self._asked += 1
        if self._asked == OFTEN:
            small, self._runs = self._keyed.opened(self._snapshot)
            self._few = frozenset().union(*(each.places for _, each in small))
        hashes = key_hash(arrays)
        if self._few is None or not self._few.isdisjoint(hashes.tolist()):
            found = self._keyed.lookup(self._snapshot, arrays)
        elif self._runs:
            at = self._snapshot.as_of
            found = probe(self._runs, arrays, at=at, hashes=hashes, columns=[DIFF])
        else:
            return [0] * keys.num_rows
        counts = np.zeros(keys.num_rows, np.int64)
        if found.num_rows:
            np.add.at(counts, found.column(PROBE_INDEX).to_numpy(), found.column(DIFF).to_numpy())
        return [int(count) for count in counts]


def _in_small(
    part: Part,
    index: _Small,
    key: Sequence[str],
    keys: Sequence[Any],
    hashes: Longs,
    order: Longs,
    as_of: int,
) -> list[pa.Table]:
    indices, places = _candidates(index, hashes, order)
    if not len(indices):
        return []
    low, high = part.window or (0, as_of + 1)
    times = index.times[places]
    seen = (times >= low) & (times < min(high, as_of + 1))
    indices, places = indices[seen], places[seen]
    rows = index.rows.take(pa.array(places))
    stored = [rows.column(name).combine_chunks() for name in key]
    probed_keys = [column.take(pa.array(indices)) for column in keys]
    equal = keys_equal(stored, probed_keys)
    rows = rows.filter(pa.array(equal))
    field = pa.field(PROBE_INDEX, pa.int64())
    return [rows.add_column(0, field, pa.array(indices[equal]))]


def _candidates(index: _Small, hashes: Longs, order: Longs) -> tuple[Longs, Longs]:
    """Return every (probed key, row of the part) with the same hash."""
    if len(hashes) <= FEW_KEYS:
        pairs = [
            (probed, place)
            for probed, value in enumerate(hashes.tolist())
            for place in index.places.get(value, ())
        ]
        found = np.array(pairs, np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]
    # The part is searched for among the keys: it is the smaller of the two.
    ordered = hashes[order]
    left = np.searchsorted(ordered, index.hashes, "left")
    counts = np.searchsorted(ordered, index.hashes, "right") - left
    places = np.repeat(np.arange(len(counts)), counts)
    shift = left - (np.cumsum(counts) - counts)
    return order[np.repeat(shift, counts) + np.arange(len(places))], places


__all__ = ["DIFF", "PROBE_INDEX", "KeyedReads"]
