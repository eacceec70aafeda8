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
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headwater.adapter import acting, catalog
from headwater.adapter.catalog import Sources, Ways
from headwater.adapter.errors import TimestampNotReadable
from headwater.adapter.holds import Holds
from headwater.adapter.indexes import Indexes, Probe, merged, tail, tail_is_short
from headwater.adapter.keyed_reads import PROBE_INDEX, KeyedReads, Present
from headwater.adapter.limit import Limit
from headwater.adapter.mistakes import in_error
from headwater.adapter.object_errors import CollectionFailed
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
from headwater.persist.consolidate import consolidate
from headwater.persist.decision import collection_of
from headwater.persist.errors import AsOfBeforeSince, CollectionHasErrors
from headwater.persist.evolution import DIFF
from headwater.persist.multiplicity import repeat_rows
from headwater.persist.read import Snapshot, check_readable
from headwater.persist.state import State, bound

if TYPE_CHECKING:
    from headwater.adapter.overlay import Overlay
    from headwater.adapter.writes import Target

NOTHING: Final[Mapping[GlobalId, Overlay]] = MappingProxyType({})
"""What is written by who is in no transaction."""

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
        self,
        names: Sequence[str],
        at: int | None = None,
        state: State | None = None,
        written: Mapping[GlobalId, Overlay] = NOTHING,
        *,
        indexed: bool = True,
    ) -> Sources:
        """Return what the names of a query mean in ``state``; ``at``: its time, if it is known.

        ``written``: what the transaction that reads has written itself. A view of that is computed.
        ``indexed``: an index may stand for a plain view.
        """
        state, failures = state or self._core.state, self._evaluator.failures
        stored = self._core.state.collections

        def standing(view: catalog.Object) -> catalog.Object | None:
            if not indexed or not self._indexes.of(state, view):
                return None
            if catalog.rests_on(state, view, written):
                return None
            found = self._indexes.usable(state, view, at, failures())
            return found[0].object if found else None

        def afresh(view: catalog.Object) -> bool:
            if state.names.get(view.collection) not in stored:
                return True
            return bool(written) and catalog.rests_on(state, view, written)

        system = tuple(name for name in names if name.startswith(SYSTEM_PREFIX))
        wanted = [name for name in names if name not in system]
        found = catalog.sources(state, wanted, Ways(standing, afresh))
        found.system = system
        found.schemas.update((name, system_view(name).schema) for name in system)
        for gid in [gid for gid in found.collections if gid not in stored]:
            # Nobody else can have written it, so there is nothing to be overtaken in.
            created = state.collections[gid]
            found.created[created.name] = evolution.from_bytes(created.schemas[-1])
            del found.collections[gid]
            found.tables.pop(gid, None)
        found.written = written
        if found.indexes:
            found.unindexed = partial(self.sources, names, at, state, written, indexed=False)
        return found

    def planned(
        self,
        statement: Select,
        at: int | None,
        state: State | None = None,
        written: Mapping[GlobalId, Overlay] = NOTHING,
    ) -> Planned:
        """Return what a query reads, and the probe that answers it, if one does."""
        state = state or self._core.state
        sources = self.sources(statement.tables, at, state, written)
        probe = None
        # Literals of Spark's dialect are Spark's to read.
        if len(statement.tables) == 1 and not sources.system and statement.dialect == "postgres":
            probe = self._probe(statement, sources, at, state)
        if probe is not None and probe.waited in self._core.state.collections:
            sources.collections = {probe.waited: probe.relation}
        return Planned(statement, sources, probe)

    def _probe(
        self, statement: Select, sources: Sources, at: int | None, state: State
    ) -> Probe | None:
        """Return how a query is answered by looking keys up, if it asks for nothing else."""
        (name,) = statement.tables
        on = catalog.named(state, name)
        schema = sources.schemas[name]
        table = state.names.get(on.collection) if on.kind == "table" else None
        if on.kind in ("table", "source"):  # Of a source: what upserts, by its key.
            gid = state.names[on.collection]
            key = state.collections[gid].key
            point = point_read(statement.query_sql, name, schema, key, statement.given)
            if point is not None:
                return Probe(gid, point, schema, name, key=key, table=table)
        if not self._indexes.of(state, on):
            return None
        if table is None and catalog.rests_on(state, on, sources.written):
            return None
        for index in self._indexes.usable(state, on, at, self._evaluator.failures()):
            key = index.collection.key
            point = point_read(statement.query_sql, name, schema, key, statement.given)
            if point is not None:
                base = state.names.get(on.collection)
                short = base is not None and tail_is_short(state, index, state.collections[base])
                keyed, tail_of = index.collection.id, base if short else None
                known = index.object.name
                return Probe(keyed, point, schema, name, known, tail_of, key, table)
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
        try:
            with evaluating() as group:
                found = self._evaluator.select(
                    text,
                    time,
                    relations={
                        name: collection
                        for name, collection in sources.relations.items()
                        if collection not in sources.created
                    },
                    local={**self.local(sources), **_created(sources)},
                    tentative={
                        collection_of(self._core.state, gid).name: overlay.updates
                        for gid, overlay in sources.written.items()
                        if gid in sources.collections
                    },
                    group=group,
                )
                known = found.schema
                told = telling(known, types)
                return found if told is known else found.cast(told)
        except CollectionHasErrors as error:
            if sources.unindexed is not None:
                # An index has all that its view shows, and so errors that this query has not.
                return self.rows(query_sql, sources.unindexed(), time, dialect)
            state = self._core.state
            names = {state.collections[gid].name: n for gid, n in sources.collections.items()}
            raise in_error(names.get(error.name, error.name), error.errors[0]) from error

    def local(self, sources: Sources) -> dict[str, pa.Table]:
        """Return the rows of the system views that are read, all of one moment."""
        if not sources.system:
            return {}
        seen = self._seen()
        return {name: system_view(name).table(seen) for name in sources.system}

    def describe(
        self, statement: Select, sources: Sources, state: State | None = None
    ) -> pa.Schema:
        """Return the columns of a query's rows over ``state``, without reading any."""
        text, types = self.translated(statement.query_sql, sources, statement.dialect)
        relations = sources.relations
        return telling(self._evaluator.describe(text, relations=relations, state=state), types)

    def select(self, planned: Planned, time: int) -> pa.Table:
        """Answer a query at ``time``, which is held and complete."""
        statement, sources = planned.statement, planned.sources
        if planned.probe is not None:
            try:
                return self._probed(planned.probe, sources, time)
            except CollectionFailed:
                if sources.unindexed is None:
                    raise
                sources = sources.unindexed()
        return self.rows(statement.query_sql, sources, time, statement.dialect)

    def looked_up(
        self, statement: Select, sources: Sources, time: int, state: State
    ) -> pa.Table | None:
        """Answer a query by a probe of what is complete at ``time``; None: it takes more."""
        probe = self._probe(statement, sources, time, state)
        if probe is None:
            return None
        now = self._core.state
        waited = now.collections.get(probe.waited)
        if waited is not None and now.upper(waited).allows(time):
            return None
        return self._probed(probe, sources, time)

    def _probed(self, probe: Probe, sources: Sources, time: int) -> pa.Table:
        """Return the rows of a probe at ``time``, at which what it waits for is complete."""
        keys = _arrays(probe.schema, probe.key, probe.point.keys)
        for attempt in range(CHOICES_MAX):
            try:
                found = self._newest(probe, keys, time)
                break
            except AsOfBeforeSince:
                # The index moved on meanwhile, and its history with it: it is looked at again.
                if attempt + 1 == CHOICES_MAX:
                    raise
        own = None if probe.table is None else sources.written.get(probe.table)
        if own is not None:
            more = own.with_keys(keys) if probe.index is None else own.with_values(probe.key, keys)
            found = _added(found, more, [*probe.schema.names, DIFF], probe.schema)
        counts = found.column(DIFF).to_numpy()
        if len(counts) and counts.max() > 1:
            found = found.take(pa.array(np.repeat(np.arange(counts.size), counts)))
        columns = [found.column(column) for column, _ in probe.point.columns]
        fields = [
            probe.schema.field(column).with_name(name) for column, name in probe.point.columns
        ]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _newest(self, probe: Probe, keys: Sequence[Any], time: int) -> pa.Table:
        """Look keys up; where an index is behind, add what its collection has since."""
        state = self._core.state
        if probe.keyed not in state.collections:
            return _added(None, None, [*probe.schema.names, DIFF], probe.schema)
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
        newer = tail(self._core, base.collection, upper.only(), time, probe.key, keys)
        return merged(indexed, newer, probe.schema.names)

    def by_key(
        self,
        table: Target,
        keys: Sequence[Sequence[Value]],
        time: int,
        written: Mapping[GlobalId, Overlay],
    ) -> pa.Table:
        """Return the rows of a table that have these keys, and ``__probe_index``: which."""
        arrays = _arrays(table.schema, table.key, keys)
        names = [PROBE_INDEX, *table.schema.names, DIFF]
        found = None
        if table.id in self._core.state.collections:
            found = self._keyed.lookup(ReadHandle(self._core, table.id).snapshot(time), arrays)
        own = written.get(table.id)
        if found is None or own is not None:
            more = own.with_keys(arrays) if own is not None else None
            return _added(found, more, names, table.schema)
        return found.select(names)

    def present(self, gid: GlobalId, time: int | None) -> Present:
        """Return what tells how many rows keys of a table have: at ``time``, or now, as we know."""
        if time is None:
            state = self._core.state
            time = bound(state.upper(collection_of(state, gid))) - 1
        return Present(self._keyed, ReadHandle(self._core, gid).snapshot(time))


def _created(sources: Sources) -> dict[str, pa.Table]:
    """Return the rows of tables that the transaction has created itself, by their names."""
    by_name = {f"u{gid}": own for gid, own in sources.written.items()}
    found = {}
    for name, collection in sources.relations.items():
        if collection in sources.created:
            own, schema = by_name.get(collection), sources.created[collection]
            rows = schema.empty_table()
            if own is not None:
                rows = repeat_rows(own.updates, name).cast(schema)
            found[name] = rows
    return found


def _added(
    stored: pa.Table | None, own: pa.Table | None, names: list[str], schema: pa.Schema
) -> pa.Table:
    """Return what a transaction finds by key: what is stored, and what it has written itself."""
    tables = [table.select(names) for table in (stored, own) if table is not None]
    if not tables:
        system = {name: pa.field(name, pa.int64(), nullable=False) for name in (PROBE_INDEX, DIFF)}
        return pa.schema([system.get(n) or schema.field(n) for n in names]).empty_table()
    return consolidate(pa.concat_tables([table.cast(tables[0].schema) for table in tables]))


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
