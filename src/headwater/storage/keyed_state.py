"""The state of what is told by key: its own output, asked by keys at a time.

    rows(as_of, keys)  =  what the output has for each key at ``as_of``, from the durable collection
    errors(as_of)      =  the keys that have an error then, and which

The output is a collection of keyed runs: a large part is probed where it lies, a small one (inline
in the log) is arranged in memory first. Nothing of it is kept between ranges but open runs, which
are immutable, so there is no state that could differ from the collection.

Relies on: the ingestion, which holds its outputs readable at the time before their upper.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
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
from headwater.persist.state import CollectionState
from headwater.storage.dead_letters import CONDITION
from headwater.storage.errors import BrokenOutput

RUNS_OPEN_MAX: Final = 256


@dataclass(slots=True)
class KeyedState:
    """Looks keys up in one output."""

    core: Core
    read: ReadHandle
    key: tuple[str, ...]
    _runs: OrderedDict[Any, Run] = field(default_factory=OrderedDict)

    def errors(self, as_of: int) -> Mapping[str, str]:
        """Return the errors that keys have at ``as_of``, by the text of the key."""
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
        return self._rows(None if as_of is None else self.read.snapshot(as_of), keys, written)

    def _rows(
        self, snapshot: Snapshot | None, keys: Sequence[pa.Array], written: Sequence[Part] = ()
    ) -> pa.Table:
        collection = collection_of(self.core.state, self.read.id)
        stored: dict[str, Any] = {
            "null_safe": True,
            "schema": evolution.with_system_columns(collection.schemas[-1]),
        }
        found = [probe(self._opened(collection, written), keys, **stored)]
        if snapshot is not None:
            runs = self._opened(snapshot.collection, snapshot.parts)
            found.append(probe(runs, keys, at=snapshot.as_of, **stored))
        rows = consolidate(pa.concat_tables(found).drop_columns([TIME]))
        places, diffs = (rows.column(name).to_numpy() for name in (PROBE_INDEX, DIFF))
        asked, counts = np.unique(places, return_counts=True)
        broken = [*places[diffs != 1], *asked[counts > 1]]
        if broken:
            key = tuple([column[int(broken[0])].as_py() for column in keys])
            raise BrokenOutput(collection.name, key)
        return rows

    def _opened(self, collection: CollectionState, parts: Sequence[Part]) -> list[Run]:
        return [self._run(collection, part) for part in parts if not part.errors]

    def _run(self, collection: CollectionState, part: Part) -> Run:
        where = part.where
        if isinstance(where, Inline):
            return self._arranged(collection, part)
        plain = part.layout == RunLayout.name and (part.window is None or part.window[0] == 0)
        known = (where.key, where.offset, None if plain else part.window, part.schema)
        run = self._runs.get(known)
        if run is None:
            run = self._mapped(where) if plain else self._arranged(collection, part)
            self._runs[known] = run
            if len(self._runs) > RUNS_OPEN_MAX:
                self._runs.popitem(last=False)
        return run

    def _mapped(self, where: Segment) -> Run:
        path = self.core.blob.local_path(where.key)
        if path is not None:
            return Run.open(path, where.offset, where.length)
        data = self.core.fetch(where)
        assert data is not None, "the snapshot pins its parts"
        return Run.open(data if isinstance(data, pa.Buffer) else pa.py_buffer(data))

    def _arranged(self, collection: CollectionState, part: Part) -> Run:
        rows = read_part(part, collection, fetch=self.core.fetch, layouts=self.core.layouts)
        return Run.open(write_run(rows, self.key))
