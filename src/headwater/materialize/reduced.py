"""REDUCE bindings: the rows of a key become one document, by the strategies of its columns.

Each update of the interval is a document: the key, the REDUCE columns, and a 1 or -1 that counts
rows. A ``sum`` column holds diff times value, so that a retraction takes its row out again; what
cannot be taken out (``Retraction.REPLACED``) is in the document only where the row comes. Documents
of a key are reduced in the order of their times, at one time what goes before what comes, then by
packed bytes, into what was loaded:

    stored = loaded ∘ document₁ ∘ document₂ ∘ …        a key with no rows left is deleted

A snapshot is at one time, so what is delivered first is in the order of packed bytes.

In delta mode nothing is loaded: documents are combined among themselves, and there is no counter.

A column with ``lastWriteWins`` has a meaning only where its key has one row, so a key that has more
is refused, by name. So is one that would have fewer rows than none: somebody else changed it. Where
a failed attempt may have been counted already (*drifts*: at least once, with a sum) neither can be
told from a repetition; the counter is then kept within what is possible, instead of stalling.

Retractions under a strategy that cannot absorb them are refused at Validate, unless the user
promised that there are none; then they are refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import HeadwaterError
from headwater.materialize.changes import NotUnique, owned_keys, packed_keys
from headwater.materialize.definition import ROWS, Binding
from headwater.materialize.documents import to_documents, to_rows
from headwater.materialize.joined import joined
from headwater.materialize.key_range import KeyRange
from headwater.materialize.projections import OP, packable
from headwater.materialize.protocol.messages import StoreMany
from headwater.materialize.reduction.reduce import Strategies, combine, reduce_all
from headwater.materialize.reduction.strategy import (
    CannotRetract,
    LastWriteWins,
    Merge,
    Retraction,
    Strategy,
    Sum,
    retraction,
)
from headwater.materialize.reduction.value import ABSENT, Json, below
from headwater.materialize.sorted_runs import PACKED
from headwater.materialize.tuples import pack_columns, unpack
from headwater.persist.compact import advance
from headwater.persist.consolidate import consolidate
from headwater.persist.evolution import DIFF, TIME

_KEY: Final = 0
_TEXT: Final = "__text"


class FewerThanNone(HeadwaterError):
    """More rows of a key are gone than were ever there."""

    def __init__(self, binding: str, packed: bytes, rows: int) -> None:
        super().__init__(
            f"binding {binding!r}: the key {unpack(packed)} would have {rows} rows; somebody else "
            "changed its row in the endpoint"
        )


class Reducing:
    """One REDUCE binding: how its updates become documents, and these one row per key."""

    def __init__(self, index: int, binding: Binding, delivered: pa.Schema) -> None:
        self._index = index
        self._binding = binding
        self._delivered = delivered
        self._columns = binding.strategies()
        counted: dict[str, Strategy] = {} if binding.delta_updates else {below("", ROWS): Sum()}
        self._strategies: Strategies = {
            "": Merge(),
            **{below("", column): strategy for column, strategy in self._columns.items()},
            **counted,
        }
        self._ordered = any(not isinstance(s, Sum) for s in self._columns.values())
        self._single = any(isinstance(s, LastWriteWins) for s in self._columns.values())

    def ordered(self, updates: pa.Table, upper: int, key_range: KeyRange) -> pa.Table:
        """Return the net updates of an interval with their packed keys, in order."""
        selected = [*self._binding.key, *self._columns]
        # Sums do not depend on times, and what came and went within the interval vanishes.
        moved = updates if self._ordered else advance(updates, upper)
        net = consolidate(moved.select([*selected, TIME, DIFF])).combine_chunks()
        packed = packed_keys(self._index, self._binding.key, net)
        if key_range != KeyRange.full():
            owned = owned_keys(packed, key_range)
            net, packed = net.filter(owned), packed.filter(owned)
        by = {
            PACKED: packed,
            TIME: net.column(TIME),
            DIFF: pc.sign(net.column(DIFF)),
            _TEXT: pack_columns([packable(column) for column in _arrays(net.select(selected))]),
        }
        order = pc.sort_indices(pa.table(by), [(name, "ascending") for name in by])
        ordered = net.append_column(PACKED, packed).take(order)
        self._check_retractions(ordered)
        return ordered

    def _check_retractions(self, ordered: pa.Table) -> None:
        for column, strategy in self._columns.items():
            if retraction(strategy) is Retraction.REFUSED:
                gone = ordered.filter(pc.less(ordered[DIFF], 0))
                if gone.num_rows:
                    packed = gone[PACKED][0].as_py()
                    raise CannotRetract(f"{column} of the key {unpack(packed)}", strategy)

    def documents(self, ordered: pa.Table) -> list[tuple[bytes, Json]]:
        """Return the documents of ordered updates with their packed keys."""
        rows = to_documents(ordered.select([*self._binding.key, *self._columns]))
        keys, diffs = (ordered.column(name).to_pylist() for name in (PACKED, DIFF))
        return [
            (key, document)
            for key, diff, row in zip(keys, diffs, rows, strict=True)
            for document in self._documents_of(row, diff)
        ]

    def _documents_of(self, row: dict[str, Json], diff: int) -> list[Json]:
        document: dict[str, Json] = {column: row[column] for column in self._binding.key}
        times = 1
        for column, strategy in self._columns.items():
            if isinstance(strategy, Sum):
                document[column] = _times(row[column], diff)
            elif diff > 0:
                document[column] = row[column]
                times = diff
        if times > 1:
            # A strategy may tell how often a row was there; the sums must not count it again.
            return [d for _ in range(times) for d in self._documents_of(row, 1)]
        if not self._binding.delta_updates:
            document[ROWS] = diff
        return [document]

    def stores(
        self,
        documents: Sequence[tuple[bytes, Json]],
        loaded: Mapping[bytes, Json],
        *,
        drifts: bool = False,
    ) -> StoreMany:
        """Return what is stored, given what was loaded; ``drifts``: it may be counted in there."""
        kept: list[tuple[bytes, Json, bool, bool]] = []
        for packed, group in groupby(documents, key=lambda document: document[_KEY]):
            updates = [document for _, document in group]
            if self._binding.delta_updates:
                combined = combine(updates, lambda _: self._strategies)
                kept += [(packed, document, False, False) for document in combined]
                continue
            base = loaded.get(packed, ABSENT)
            reduced = reduce_all(base, updates, lambda _: self._strategies).document
            if drifts:
                reduced = {**reduced, ROWS: self._possible(reduced[ROWS], updates)}
            self._check_rows(packed, reduced[ROWS])
            gone, there = reduced[ROWS] == 0, base is not ABSENT
            if (gone and not there) or reduced == base:
                continue
            kept.append((packed, reduced, there, gone))
        return StoreMany(
            self._index,
            pa.array([packed for packed, _, _, _ in kept], pa.large_binary()),
            to_rows([document for _, document, _, _ in kept], _without_op(self._delivered)),
            exists=pa.array([there for _, _, there, _ in kept], pa.bool_()),
            delete=pa.array([gone for _, _, _, gone in kept], pa.bool_()),
        )

    def _possible(self, rows: int, updates: Sequence[Json]) -> int:
        """Return how many rows a key may have, where some may have been counted before."""
        most = max(1, sum(update[ROWS] for update in updates)) if self._single else rows
        return max(0, min(rows, most))

    def _check_rows(self, packed: bytes, rows: int) -> None:
        if rows < 0:
            raise FewerThanNone(self._binding.name, packed, rows)
        if self._single and rows > 1:
            raise NotUnique(self._binding.shown, self._binding.key, packed)


def _times(value: Json, diff: int) -> Json:
    """Return a number, or a text that holds one, so often; NULL adds nothing."""
    if value is None:
        return 0
    return str(Decimal(value) * diff) if isinstance(value, str) else value * diff


def _arrays(rows: pa.Table) -> list[Any]:
    return [joined(column) for column in rows.columns]


def _without_op(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != OP])
