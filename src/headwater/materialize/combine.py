"""Combining: from the updates of an interval to the messages of a transaction, for each binding.

    updates ─▶ documents, ordered by packed key ─▶ which keys to load ─▶ with what was loaded ─▶
    one Store per key (in delta mode: per document), ascending

Only ``REDUCE`` bindings load: what a key's row was is said by the retractions of its collection,
what its rows were reduced to is known to the endpoint alone. Such a binding loads a key at most
once, and never one above the greatest that was ever stored: it cannot be there. One in which the
last write wins in every column is none: its key has one row, and that is what is stored, whatever
is there, so that storing it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import HeadwaterError
from headwater.collection.meaning import canonical_json
from headwater.materialize.changes import (
    NotUnique,
    NullKey,
    changes,
    deltas,
    packed_keys,
    with_document,
    with_op,
)
from headwater.materialize.definition import ROWS, Binding
from headwater.materialize.documents import to_documents, to_rows
from headwater.materialize.duplicates import Duplicates, chosen_updates
from headwater.materialize.joined import joined
from headwater.materialize.key_range import KeyRange
from headwater.materialize.projections import DOCUMENT, OP, json_columns
from headwater.materialize.protocol.messages import Loaded, LoadedMany, LoadMany, StoreMany
from headwater.materialize.reduced import Reducing
from headwater.materialize.reduction.value import Json
from headwater.materialize.sorted_runs import PACKED
from headwater.persist.evolution import DIFF, TIME

_SYSTEM: Final = (TIME, DIFF)
_ROWS_FIELD: Final = pa.field(ROWS, pa.int64(), nullable=False)
_EXISTS: Final = "__exists"
_DELETE: Final = "__delete"

ANY_KEY: Final = b"\xff"
"""Greater than every packed key: nothing is known, and everything must be loaded."""


class ColumnsChanged(HeadwaterError):
    """A collection has got a column since the session began; the endpoint must get it first."""

    def __init__(self, binding: str) -> None:
        super().__init__(f"the columns of {binding!r} have changed; the session begins anew")


@dataclass(frozen=True, slots=True)
class Combined:
    """The part of one binding in a transaction, before anything was loaded."""

    binding: Bound
    stored: StoreMany | None
    """What is stored, where nothing need be loaded."""
    documents: tuple[tuple[bytes, Json], ...] = ()
    """Otherwise the documents of each key."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.documents and (self.stored is None or not self.stored.rows.num_rows)

    @property
    def max_key(self) -> bytes:
        """The greatest key that will be stored, where that is worth knowing; else empty."""
        return self.documents[-1][0] if self.documents and self.binding.loads else b""

    def load(self, max_key: bytes) -> LoadMany | None:
        """Return which keys to load, given the greatest that was ever stored."""
        if not self.binding.loads:
            return None
        keys = dict.fromkeys(key for key, _ in self.documents if key <= max_key)
        return LoadMany(self.binding.index, pa.array(keys, pa.large_binary())) if keys else None

    def stores(self, loaded: Sequence[Loaded | LoadedMany]) -> StoreMany:
        """Return what is stored, given what was loaded."""
        if self.stored is not None:
            return self.stored
        return self.reduced(by_key(self.binding.loaded_rows(loaded)))

    def reduced(self, loaded: Mapping[bytes, Json], *, drifts: bool = False) -> StoreMany:
        """Return what is stored, given the documents that were there."""
        if self.stored is not None:
            return self.stored
        return self.binding.reduced(self.documents, loaded, drifts=drifts)


@dataclass(frozen=True, slots=True)
class Bound:
    """One binding, with all that combining needs to know of it."""

    index: int
    binding: Binding
    state_key: str
    delivered: pa.Schema
    columns: tuple[str, ...] = ()
    """Those of the collection, as they were when the session began; empty: not checked."""
    _reducing: Reducing | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.binding.reduce and not self.binding.last_write_wins:
            reducing = Reducing(self.index, self.binding, self._plain)
            object.__setattr__(self, "_reducing", reducing)

    @property
    def _plain(self) -> pa.Schema:
        """What is delivered, without the column that repeats it."""
        return pa.schema([f for f in self.delivered if f.metadata != DOCUMENT])

    @property
    def loads(self) -> bool:
        """Whether keys are loaded before they are stored."""
        return self._reducing is not None and not self.binding.delta_updates

    @property
    def reduces(self) -> bool:
        """Whether rows become documents, each of which is some objects."""
        return self._reducing is not None

    def combined(self, updates: pa.Table, upper: int, key_range: KeyRange) -> Combined:
        """Combine the updates before ``upper``."""
        return self.piece(self.ordered(updates, upper, key_range))

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise if a collection's updates have got other columns than when the session began.

        Those of one that it has taken the place of may lack some.
        """
        if self.columns and not set(columns[: -len(_SYSTEM)]) <= set(self.columns):
            raise ColumnsChanged(self.binding.name)

    def _widened(self, updates: pa.Table) -> pa.Table:
        """Return updates with NULL in columns that their collection did not have yet."""
        there = set(updates.column_names)
        lacking = [f for f in self.delivered if f.name in self.columns and f.name not in there]
        for column in lacking:
            nulls = pa.nulls(updates.num_rows, column.type)
            updates = updates.append_column(column.with_nullable(True), nulls)
        if not lacking:
            return updates
        return updates.select([n for n in (*self.columns, *_SYSTEM) if n in updates.column_names])

    @property
    def chooses(self) -> bool:
        """Whether of several rows of a key one is delivered."""
        return bool(self.binding.duplicates)

    def ordered(
        self,
        updates: pa.Table,
        upper: int,
        key_range: KeyRange,
        standing: pa.Table | None = None,
    ) -> pa.Table:
        """Combine the updates before ``upper`` to rows ordered by packed key: a run.

        All updates of a key must be among them. ``standing``, where one of several rows is chosen:
        what their keys have at the end; ``None``: nothing but the updates.
        """
        self.check_columns(updates.column_names)
        standing = None if standing is None else self._widened(standing)
        try:
            return self._ordered(self._widened(updates), upper, key_range, standing)
        except (NotUnique, NullKey) as error:
            raise error.of(self.binding.shown) from None

    def _ordered(
        self, updates: pa.Table, upper: int, key_range: KeyRange, standing: pa.Table | None
    ) -> pa.Table:
        if self._reducing is not None:
            return self._reducing.ordered(updates, upper, key_range)
        if self.chooses:
            policy = Duplicates(self.binding.duplicates)
            given = (self.index, self.binding.key, policy, updates, upper, standing)
            updates = chosen_updates(*given)
        if self.binding.reduce:
            selected = [*self.binding.key, *(column for column, _ in self.binding.reduce)]
            updates = updates.select([*selected, *_SYSTEM])
        combine = deltas if self.binding.delta_updates else changes
        store = combine(self.index, self.binding.key, updates, upper, key_range)
        rows = store.rows
        if self.binding.reduce:
            rows = rows.append_column(_ROWS_FIELD, pc.if_else(store.delete, 0, 1))
        rows = rows.append_column(PACKED, store.keys_packed)
        return rows.append_column(_EXISTS, store.exists).append_column(_DELETE, store.delete)

    def piece(self, ordered: pa.Table) -> Combined:
        """Return combined rows, all those of each key, as a transaction needs them."""
        if self._reducing is not None:
            return Combined(self, None, tuple(self._reducing.documents(ordered)))
        packed, exists, delete = (joined(ordered[name]) for name in (PACKED, _EXISTS, _DELETE))
        rows = ordered.drop_columns([PACKED, _EXISTS, _DELETE])
        return Combined(self, self._marked(StoreMany(self.index, packed, rows, exists, delete)))

    def reduced(
        self,
        documents: Sequence[tuple[bytes, Json]],
        loaded: Mapping[bytes, Json],
        *,
        drifts: bool = False,
    ) -> StoreMany:
        """Reduce documents into what was loaded of their keys."""
        assert self._reducing is not None
        return self._marked(self._reducing.stores(documents, loaded, drifts=drifts))

    def _marked(self, store: StoreMany) -> StoreMany:
        """Say what became of each row, where that is delivered and was not said yet."""
        named = OP in self.delivered.names and OP not in store.rows.column_names
        marked = with_op(store) if named else store
        document = self.binding.document
        if not document:
            return marked
        return with_document(marked, self.delivered.field(document), json_columns(self._plain))

    def loaded_rows(self, loaded: Sequence[Loaded | LoadedMany]) -> pa.Table:
        """Return what was loaded as rows of our own columns, with their packed keys."""
        schema = pa.schema([f for f in self._plain if f.name != OP])
        if not self.loads:
            schema = pa.schema([schema.field(name) for name in self.binding.key])
        json = json_columns(schema)
        documents: list[Json] = []
        for message in loaded:
            match message:
                case Loaded():
                    documents.append(_told(message.doc_json, json))
                case LoadedMany():
                    documents += to_documents(message.rows.select(schema.names))
        for document in documents:
            for name in json:
                if document.get(name) is not None:  # By whomever it was written, or spelled.
                    document[name] = canonical_json(document[name])
        nested = [f.name for f in schema if pa.types.is_nested(f.type)]
        for document in documents:
            for name in nested:
                if isinstance(document.get(name), str):  # Kept as text, where there is no JSON.
                    document[name] = msgspec.json.decode(document[name])
        # There and back: the values are those of our own columns, whatever the endpoint's types.
        rows = to_rows(documents, schema)
        return rows.append_column(PACKED, packed_keys(self.index, self.binding.key, rows))


def _told(document: bytes, json: Collection[str]) -> Json:
    """Return a document that an endpoint told; of columns that are JSON, its text."""
    values = msgspec.json.decode(document)
    if json:
        texts = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
        values |= {n: bytes(texts[n]).decode() for n in json if values.get(n) is not None}
    return values


def by_key(rows: pa.Table) -> Mapping[bytes, Json]:
    """Return rows that were loaded as documents, by their packed keys."""
    documents = to_documents(rows.drop_columns([PACKED]))
    return dict(zip(rows[PACKED].to_pylist(), documents, strict=True))
