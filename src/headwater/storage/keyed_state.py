"""The state of what is told by key: its own output, asked by keys at a time.

    rows(as_of, keys)  =  what the output has for each key at ``as_of``, from the durable collection
    errors(as_of)      =  the keys that have an error then, and which

The output is a collection of keyed runs: a large part is probed where it lies, a small one (inline
in the log) is arranged in memory first. Nothing of it is kept between ranges but open runs, which
are immutable, so there is no state that could differ from the collection.

A task asks the same of a :class:`Before`: the output at a time, by reference. Whoever hands it out
holds the snapshot it is made of until the tasks are done, so that no part is collected under them.

Relies on: the ingestion, which holds its outputs readable at the time before their upper.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.collection.probe import PROBE_INDEX, probe
from headwater.collection.run import Run, write_run
from headwater.collection.run_layout import RunLayout
from headwater.persist import evolution
from headwater.persist.batch import Inline, Part, Segment
from headwater.persist.client import ReadHandle
from headwater.persist.consolidate import consolidate
from headwater.persist.core import Core
from headwater.persist.decision import collection_of
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.part import read_part
from headwater.persist.read import Snapshot
from headwater.persist.spark_parts import Place, Reading
from headwater.persist.state import CollectionState
from headwater.storage.dead_letters import CONDITION
from headwater.storage.errors import BrokenOutput
from headwater.storage.mapped_run import mapped_from

RUNS_OPEN_MAX: Final = 256


@dataclass(slots=True)
class Runs:
    """Opens the parts of an output as runs, and keeps them open; in whichever process."""

    key: tuple[str, ...]
    map: Callable[[Segment], Run]
    """Open a segment that is a run."""
    updates: Callable[[CollectionState, Part], pa.Table]
    """Read a part that is none."""
    _open: OrderedDict[Any, Run] = field(default_factory=OrderedDict)

    def of(self, collection: CollectionState, parts: Sequence[Part]) -> list[Run]:
        """Return the runs of the rows among ``parts``."""
        return [self._run(collection, part) for part in parts if not part.errors]

    def _run(self, collection: CollectionState, part: Part) -> Run:
        where = part.where
        if isinstance(where, Inline):
            return self._arranged(collection, part)
        plain = part.layout == RunLayout.name and (part.window is None or part.window[0] == 0)
        known = (where.key, where.offset, None if plain else part.window, part.schema)
        run = self._open.get(known)
        if run is None:
            run = self.map(where) if plain else self._arranged(collection, part)
            self._open[known] = run
            if len(self._open) > RUNS_OPEN_MAX:
                self._open.popitem(last=False)
        return run

    def _arranged(self, collection: CollectionState, part: Part) -> Run:
        return Run.open(write_run(self.updates(collection, part), self.key))


@dataclass(frozen=True, slots=True)
class Before:
    """An output at a time (``None``: it never had anything), by reference: a value that travels."""

    reading: Reading
    parts: tuple[Part, ...]
    as_of: int | None

    def asked(self) -> Callable[[Sequence[pa.Array]], pa.Table]:
        """Return what gives the rows of keys, one at most of each, with ``PROBE_INDEX``."""
        reading, collection = self.reading, self.reading.collection
        blob = reading.place.blob(read_only=True)
        runs = Runs(
            collection.key,
            lambda where: mapped_from(blob, where),
            lambda _, part: reading.updates(part),
        )

        def rows_of(keys: Sequence[pa.Array]) -> pa.Table:
            there = runs.of(collection, self.parts)
            return _one_each(collection, keys, [_probed(collection, there, keys, self.as_of)])

        return rows_of


@dataclass(slots=True)
class KeyedState:
    """Looks keys up in one output."""

    core: Core
    read: ReadHandle
    key: tuple[str, ...]
    _runs: Runs = field(init=False)

    def __post_init__(self) -> None:
        self._runs = Runs(self.key, self._mapped, self._updates)

    def errors(self, as_of: int | None) -> Mapping[str, str]:
        """Return the errors that keys have at ``as_of``, by the text of the key."""
        if as_of is None:
            return {}
        # Few: each is a record that could not be decoded and was not replaced since.
        return {
            error["context"]: error["message"]
            for error in self.read.snapshot(as_of).errors().to_pylist()
            if error["condition"] == CONDITION and error["context"] is not None
        }

    def rows(
        self, as_of: int | None, written: Sequence[Part], keys: Sequence[pa.Array]
    ) -> pa.Table:
        """Return the rows of keys at ``as_of`` (None: there were none) and with what was written
        since: one at most of each, with ``PROBE_INDEX``."""
        collection = collection_of(self.core.state, self.read.id)
        found = [_probed(collection, self._runs.of(collection, written), keys, None)]
        if as_of is not None:
            snapshot = self.read.snapshot(as_of)
            runs = self._runs.of(snapshot.collection, snapshot.parts)
            found.append(_probed(collection, runs, keys, as_of))
        return _one_each(collection, keys, found)

    def before(self, place: Place, as_of: int | None) -> tuple[Before, Snapshot | None]:
        """Return the output for tasks, and what to hold until they are done."""
        if as_of is None:
            collection = collection_of(self.core.state, self.read.id)
            return Before(Reading.of(place, collection), (), None), None
        snapshot = self.read.snapshot(as_of)
        rows = tuple(part for part in snapshot.parts if not part.errors)
        return Before(Reading.of(place, snapshot.collection), rows, as_of), snapshot

    def _mapped(self, where: Segment) -> Run:
        path = self.core.blob.local_path(where.key)
        if path is not None:
            return Run.open(path, where.offset, where.length)
        data = self.core.fetch(where)
        assert data is not None, "the snapshot pins its parts"
        return Run.open(data if isinstance(data, pa.Buffer) else pa.py_buffer(data))

    def _updates(self, collection: CollectionState, part: Part) -> pa.Table:
        return read_part(part, collection, fetch=self.core.fetch, layouts=self.core.layouts)


def _probed(
    collection: CollectionState, runs: Sequence[Run], keys: Sequence[pa.Array], at: int | None
) -> pa.Table:
    schema = evolution.with_system_columns(collection.schemas[-1])
    return probe(runs, keys, at=at, null_safe=True, schema=schema)


def _one_each(
    collection: CollectionState, keys: Sequence[pa.Array], found: Sequence[pa.Table]
) -> pa.Table:
    """Add up what was found; refuse an output in which a key has more than one row."""
    rows = consolidate(pa.concat_tables(found).drop_columns([TIME]))
    places, diffs = (rows.column(name).to_numpy() for name in (PROBE_INDEX, DIFF))
    asked, counts = np.unique(places, return_counts=True)
    broken = [*places[diffs != 1], *asked[counts > 1]]
    if broken:
        key = tuple([column[int(broken[0])].as_py() for column in keys])
        raise BrokenOutput(collection.name, key)
    return rows
