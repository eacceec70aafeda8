"""Reads: at which time, when everything is complete there, and by whom they are answered.

A read goes through four steps: its time is chosen (``adapter/timestamps.py``), history is held
there (``adapter/holds.py``), every collection is waited for, and the query is answered: by probing
keyed runs where it asks for whole keys of a primary key or an index (``adapter/indexes.py``), else
by the evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.adapter import acting, catalog
from headwater.adapter.catalog import Sources, created_here
from headwater.adapter.errors import TimestampNotReadable
from headwater.adapter.holds import Holds
from headwater.adapter.indexes import Indexes, Probe, merged, tail, tail_is_short
from headwater.adapter.keyed_reads import PROBE_INDEX, KeyedReads
from headwater.adapter.limit import Limit
from headwater.adapter.mistakes import in_error
from headwater.adapter.ports import Evaluator, Translate
from headwater.adapter.running import evaluating
from headwater.adapter.sql.names import SYSTEM_PREFIX
from headwater.adapter.sql.point import point_read
from headwater.adapter.sql.statements import AsOf, Dialect, Select, Value
from headwater.adapter.standstill import STALLED_SECONDS, stalled, standstill
from headwater.adapter.system import Seen, system_view
from headwater.adapter.timeline import Timeline
from headwater.adapter.timestamps import Bound, Choice, Input, Isolation, asks_oracle, choose
from headwater.base.ids import GlobalId
from headwater.collection.schema import telling
from headwater.collection.types import SqlType
from headwater.persist import evolution
from headwater.persist.client import Client, ReadHandle
from headwater.persist.decision import collection_of
from headwater.persist.errors import AsOfBeforeSince, CollectionHasErrors
from headwater.persist.evolution import DIFF
from headwater.persist.read import Snapshot, check_readable
from headwater.persist.state import State

CHOICES_MAX: Final = 4
"""How often a time is chosen anew when history moved on between the choice and the hold."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A query, what it reads, and the probe that answers it, if one does."""

    statement: Select
    sources: Sources
    probe: Probe | None


class Reads:
    """Chooses times and answers queries for one location."""

    def __init__(
        self,
        client: Client,
        timeline: Timeline,
        evaluator: Evaluator,
        keyed: KeyedReads,
        holds: Holds,
        translate: Translate,
        seen: Callable[[], Seen],
    ) -> None:
        self._core = client.core
        self._timeline = timeline
        self._evaluator = evaluator
        self._keyed = keyed
        self._holds = holds
        self._translate = translate
        self._seen = seen
        self._indexes = Indexes()

    def sources(
        self, names: Sequence[str], at: int | None = None, state: State | None = None
    ) -> Sources:
        """Return what the names of a query mean in ``state``; ``at``: its time, if it is known."""
        state, failures = state or self._core.state, self._evaluator.failures

        def standing(view: catalog.Object) -> catalog.Object | None:
            if not self._indexes.of(state, view):
                return None
            found = self._indexes.usable(state, view, at, failures())
            return found[0].object if found else None

        system = tuple(name for name in names if name.startswith(SYSTEM_PREFIX))
        found = catalog.sources(state, [n for n in names if n not in system], standing)
        found.system = system
        found.schemas.update((name, system_view(name).schema) for name in system)
        stored = self._core.state.collections
        for gid, name in found.collections.items():
            if gid not in stored:
                raise created_here(name)
        return found

    def planned(self, statement: Select, at: int | None, state: State | None = None) -> Planned:
        """Return what a query reads, and the probe that answers it, if one does."""
        state = state or self._core.state
        sources = self.sources(statement.tables, at, state)
        probe = None
        # Literals of Spark's dialect are Spark's to read.
        if len(statement.tables) == 1 and not sources.system and statement.dialect == "postgres":
            probe = self._probe(statement, sources, at, state)
        if probe is not None:
            sources.collections = {probe.waited: probe.relation}
        return Planned(statement, sources, probe)

    def _probe(
        self, statement: Select, sources: Sources, at: int | None, state: State
    ) -> Probe | None:
        """Return how a query is answered by looking keys up, if it asks for nothing else."""
        (name,) = statement.tables
        on = catalog.named(state, name)
        schema = sources.schemas[name]
        if on.kind in ("table", "source"):  # Of a source: what upserts, by its key.
            gid = state.names[on.collection]
            key = state.collections[gid].key
            point = point_read(statement.query_sql, name, schema, key, statement.given)
            if point is not None:
                return Probe(gid, point, schema, name)
        if not self._indexes.of(state, on):
            return None
        for index in self._indexes.usable(state, on, at, self._evaluator.failures()):
            key = index.collection.key
            point = point_read(statement.query_sql, name, schema, key, statement.given)
            if point is not None:
                base = state.names.get(on.collection)
                short = base is not None and tail_is_short(state, index, state.collections[base])
                keyed = index.collection.id
                return Probe(keyed, point, schema, name, index.object.name, base if short else None)
        return None

    def choose(self, sources: Sources, isolation: Isolation, as_of: AsOf | None) -> Choice:
        """Choose the time of a read."""
        oracle = self._timeline.read_time() if asks_oracle(isolation, as_of) else None
        # Frontiers are looked at after the oracle: they have then what it has.
        state = self._core.state
        return choose(_inputs(state, sources), isolation, as_of, oracle)

    def at(self, sources: Sources, isolation: Isolation, time: int) -> Choice:
        """Return the choice of a transaction that reads at ``time`` already."""
        state = self._core.state
        inputs = _inputs(state, sources)
        return Choice(time, Bound(time, "the transaction's time"), None, isolation, inputs)

    def check_begun(self, sources: Sources, time: int) -> None:
        """Refuse to read at a time what was something else then."""
        for gid, begins in sources.begins.items():
            if gid in sources.collections and time < begins:
                raise TimestampNotReadable(sources.collections[gid], time, begins)

    @contextmanager
    def chosen(
        self, sources: Sources, isolation: Isolation, as_of: AsOf | None, limit: Limit
    ) -> Iterator[int]:
        """Choose a time and hold it, with everything complete there."""
        for attempt in range(CHOICES_MAX):
            with self._holds.at(self._timeline.upper - 1):
                time = self.choose(sources, isolation, as_of).time
                self._holds.acquire(time)
            try:
                try:
                    self.wait(time, sources.collections, limit)
                except TimestampNotReadable:
                    if as_of is not None or attempt + 1 == CHOICES_MAX:
                        raise
                    continue
                yield time
                return
            finally:
                self._holds.release(time)

    def wait(self, time: int, collections: Mapping[GlobalId, str], limit: Limit) -> None:
        """Wait until every collection is complete at ``time``."""
        for gid, name in collections.items():
            try:
                self._wait(time, gid, name, limit)
            except AsOfBeforeSince as error:
                since = 0 if error.since.is_closed else error.since.only()
                raise TimestampNotReadable(name, time, since) from error

    def _wait(self, time: int, gid: GlobalId, name: str, limit: Limit) -> None:
        def ready(state: State) -> bool | None:
            collection = collection_of(state, gid)
            check_readable(collection.name, collection, time)
            return None if state.upper(collection).allows(time) else True

        since: float | None = None
        while not self._core.wait(ready, limit.rest_s()):
            seen, now = self._seen(), monotonic()
            failing = stalled(seen, gid, time)
            since = None if failing is None else now if since is None else since
            if limit.is_over():
                why = "" if failing is None else f"; {failing.primary}: {failing.detail}"
                raise limit.error(f'"{name}" to be complete at time {time}{why}')
            if (failed := standstill(seen, gid, time)) is not None:
                raise failed
            if failing is not None and since is not None and now - since >= STALLED_SECONDS:
                raise failing

    def text(self, query_sql: str, sources: Sources, dialect: Dialect = "postgres") -> str:
        """Return a query as the evaluator takes it, with its views in front."""
        return self.translated(query_sql, sources, dialect)[0]

    def translated(
        self, query_sql: str, sources: Sources, dialect: Dialect
    ) -> tuple[str, tuple[SqlType, ...]]:
        """Return the same, and the types of its columns where the dialect says them."""
        if dialect == "spark":
            return sources.text(query_sql), ()
        found = self._translate(acting.said(query_sql), sources.schemas)
        return sources.text(found.text), found.types

    def rows(
        self, query_sql: str, sources: Sources, time: int, dialect: Dialect = "postgres"
    ) -> pa.Table:
        """Evaluate a query in the client's dialect at ``time``."""
        text, types = self.translated(query_sql, sources, dialect)
        local = self.local(sources)
        try:
            with evaluating() as group:
                found = self._evaluator.select(
                    text, time, relations=sources.relations, local=local, group=group
                )
                known = found.schema
                told = telling(known, types)
                return found if told is known else found.cast(told)
        except CollectionHasErrors as error:
            state = self._core.state
            names = {state.collections[gid].name: n for gid, n in sources.collections.items()}
            raise in_error(names.get(error.name, error.name), error.errors[0]) from error

    def local(self, sources: Sources) -> dict[str, pa.Table]:
        """Return the rows of the system views that are read, all of one moment."""
        if not sources.system:
            return {}
        seen = self._seen()
        return {name: system_view(name).table(seen) for name in sources.system}

    def describe(self, statement: Select, sources: Sources) -> pa.Schema:
        """Return the columns of a query's rows, without reading any."""
        text, types = self.translated(statement.query_sql, sources, statement.dialect)
        return telling(self._evaluator.describe(text, relations=sources.relations), types)

    def select(self, planned: Planned, time: int) -> pa.Table:
        """Answer a query at ``time``, which is held and complete."""
        if planned.probe is not None:
            return self._probed(planned.probe, time)
        statement = planned.statement
        return self.rows(statement.query_sql, planned.sources, time, statement.dialect)

    def looked_up(self, statement: Select, sources: Sources, time: int) -> pa.Table | None:
        """Answer a query by a probe of what is complete at ``time``; None: it takes more."""
        state = self._core.state
        probe = self._probe(statement, sources, time, state)
        if probe is None or state.upper(collection_of(state, probe.waited)).allows(time):
            return None
        return self._probed(probe, time)

    def _probed(self, probe: Probe, time: int) -> pa.Table:
        """Return the rows of a probe at ``time``, at which what it waits for is complete."""
        key = collection_of(self._core.state, probe.keyed).key
        keys = _arrays(probe.schema, key, probe.point.keys)
        for attempt in range(CHOICES_MAX):
            try:
                found = self._newest(probe, key, keys, time)
                break
            except AsOfBeforeSince:
                # The index moved on meanwhile, and its history with it: it is looked at again.
                if attempt + 1 == CHOICES_MAX:
                    raise
        counts = found.column(DIFF).to_numpy()
        if len(counts) and counts.max() > 1:
            found = found.take(pa.array(np.repeat(np.arange(counts.size), counts)))
        columns = [found.column(column) for column, _ in probe.point.columns]
        fields = [
            probe.schema.field(column).with_name(name) for column, name in probe.point.columns
        ]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _newest(self, probe: Probe, key: Sequence[str], keys: Sequence[Any], time: int) -> pa.Table:
        """Look keys up; where an index is behind, add what its collection has since."""
        state = self._core.state
        upper = state.upper(collection_of(state, probe.keyed))
        if probe.base is None or not upper.allows(time):
            snapshot = ReadHandle(self._core, probe.keyed).snapshot(time)
            _refuse_errors(snapshot, probe.relation)
            return self._keyed.lookup(snapshot, keys)
        base = ReadHandle(self._core, probe.base).snapshot(time)  # Pins the parts of the tail.
        _refuse_errors(base, probe.relation)
        indexed = self._keyed.lookup(
            ReadHandle(self._core, probe.keyed).snapshot(upper.only() - 1), keys
        )
        newer = tail(self._core, base.collection, upper.only(), time, key, keys)
        return merged(indexed, newer, probe.schema.names)

    def by_key(self, gid: GlobalId, time: int, keys: Sequence[Sequence[Value]]) -> pa.Table:
        """Return the rows of a table that have these keys, and ``__probe_index``: which."""
        collection = collection_of(self._core.state, gid)
        schema = evolution.from_bytes(collection.schemas[-1])
        arrays = _arrays(schema, collection.key, keys)
        snapshot = ReadHandle(self._core, gid).snapshot(time)
        found = self._keyed.lookup(snapshot, arrays)
        return found.select([PROBE_INDEX, *schema.names, DIFF])


def _arrays(schema: pa.Schema, key: Sequence[str], keys: Sequence[Sequence[Value]]) -> list[Any]:
    return [
        pa.array([each[place] for each in keys], schema.field(name).type)
        for place, name in enumerate(key)
    ]


def _refuse_errors(snapshot: Snapshot, name: str) -> None:
    """Refuse to read what has errors, as a read of all of it would."""
    if any(part.errors for part in snapshot.parts):
        errors = snapshot.errors()
        if errors.num_rows:
            raise in_error(name, str(errors.column("message")[0]))


def _inputs(state: State, sources: Sources) -> tuple[Input, ...]:
    return tuple(
        _input(state, gid, name, sources.begins.get(gid, 0))
        for gid, name in sources.collections.items()
    )


def _input(state: State, gid: GlobalId, name: str, begins: int) -> Input:
    collection = collection_of(state, gid)
    upper = state.upper(collection)
    return Input(
        name,
        None if collection.since.is_closed else max(collection.since.only(), begins),
        None if upper.is_closed else upper.only(),
    )
