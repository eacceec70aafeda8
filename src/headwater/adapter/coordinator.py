"""The coordinator: every statement, in the order of the timeline.

A :class:`Coordinator` is the wire's backend; it opens sessions (``adapter/session.py``), which keep
transactions. It owns what they share: who answers reads (``adapter/reads.py``), who plans writes
(``adapter/writes.py``) and commits them (``adapter/group_commit.py``), and who defines objects
(``adapter/definitions.py``).

``translate`` turns a query of the client's dialect into Spark's, given the columns of the relations
that it reads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.adapter import catalog, replacement, subscribe, subscriptions, writes
from headwater.adapter import reads as reading
from headwater.adapter.calculations import Calculations
from headwater.adapter.catalog import Sources
from headwater.adapter.catalog_queries import CatalogQueries, CatalogUnavailable, passed
from headwater.adapter.clients import Clients
from headwater.adapter.column_rules import column_rules
from headwater.adapter.connections import Connections
from headwater.adapter.definitions import Definitions
from headwater.adapter.describing import returned_columns
from headwater.adapter.dialect import to_spark
from headwater.adapter.errors import (
    AdapterError,
    SystemRelation,
    Unsupported,
    WrongKind,
)
from headwater.adapter.explaining import explained_query
from headwater.adapter.given import GivenRows
from headwater.adapter.group_commit import GroupCommit
from headwater.adapter.holds import Holds, retained
from headwater.adapter.keyed_reads import PROBE_INDEX, KeyedReads
from headwater.adapter.limit import Limit
from headwater.adapter.matching import matched
from headwater.adapter.materializations import validated
from headwater.adapter.object_errors import (
    CollectionFailed,
    ReadOnlyRelation,
    ReplacedMeanwhile,
    SubscribedDropped,
)
from headwater.adapter.outside import Outside
from headwater.adapter.pgwire.backend import Column, Result
from headwater.adapter.ports import Evaluator, Translate
from headwater.adapter.reads import Reads
from headwater.adapter.session import ClientSession
from headwater.adapter.shadow.numbers import SESSION
from headwater.adapter.shows import ShowsObjects, shown
from headwater.adapter.sql import dml
from headwater.adapter.sql.forms import name_of
from headwater.adapter.sql.materialization_statements import CreateMaterialization
from headwater.adapter.sql.statements import (
    Computed,
    CreateMaterializedView,
    Delete,
    Insert,
    OnConflict,
    Select,
    SelectCatalog,
    Statement,
    Subscribe,
    Update,
)
from headwater.adapter.subscribe import Ends
from headwater.adapter.system import Seen, shadowed
from headwater.adapter.timeline import DEFAULT, Timeline
from headwater.adapter.transients import Followed, Transients
from headwater.adapter.vault import Vault, default_key_file
from headwater.adapter.writes import Planned, Target
from headwater.algebra.frontier import Frontier
from headwater.collection.schema import type_of
from headwater.collection.subscription import Subscription
from headwater.materialize.controller import Materializations
from headwater.persist import evolution
from headwater.persist.client import Client
from headwater.persist.decision import collection_of
from headwater.persist.read import Event
from headwater.persist.state import State
from headwater.storage.controller import Ingestions

if TYPE_CHECKING:
    from headwater.adapter.overlay import Overlay
    from headwater.base.ids import GlobalId

LOG: Final = logging.getLogger(__name__)

LABEL_MAX: Final = 200
"""Characters of a query that stand for it where others see it."""


class Coordinator:
    """What the sessions of one location share."""

    def __init__(
        self,
        client: Client,
        timeline: Timeline,
        views: Evaluator,
        materializations: Materializations,
        translate: Translate = to_spark,
        *,
        ingestions: Ingestions | None = None,
        catalog_queries: CatalogQueries | None = None,
        vault: Vault | None = None,
    ) -> None:
        self._core = client.core
        self._views = views
        self.timeline = timeline
        self.catalog_queries = catalog_queries
        self.calculations = Calculations(catalog_queries)
        self.holds = Holds()
        keyed = KeyedReads(client.core)
        self.clients = Clients()
        self._materializations = materializations
        self.reads = Reads(client, timeline, views, keyed, self.holds, translate, self.seen)
        self.commits = GroupCommit(client, timeline, keyed)
        self.ingestions = ingestions or Ingestions(client, timeline, client.core.clock)
        self.connections = Connections(client.core, vault or Vault.of_file(default_key_file()))
        self.ingestions.connections = self.connections
        materializations.disclose = self.connections.disclosed
        outside = Outside(self.ingestions, self.connections)
        self.definitions = Definitions(
            client, views, materializations, self.commits, translate, outside
        )
        self._transients = Transients(client, views)
        if client.core.machine is not None:
            self._transients.sweep()
        timeline.also = lambda state, upper: retained(state, upper, self.holds.least())

    def open_session(self) -> ClientSession:
        """Return a session for a new connection."""
        return ClientSession(self)

    def now_ms(self) -> int:
        """Return what the clock says."""
        return self._core.clock.now_ms()

    def seen(self) -> Seen:
        """Return this moment, for the system views."""
        state = self._core.state
        running = self._materializations.get
        return Seen(
            core=self._core,
            state=state,
            now_ms=self.now_ms(),
            oracle_upper=state.timelines[DEFAULT].upper,
            failures=self._views.failures(),
            hydrating=self._views.hydrating(),
            deliveries=lambda oid: None if (found := running(oid)) is None else found.status,
            sources={each.id: each for each in self.ingestions.statuses()},
            sessions=self.clients.sessions(),
            subscriptions=self.clients.subscriptions(),
        )

    def cancel_jobs(self, group: str) -> None:
        """End what is computed for a statement."""
        self._views.cancel(group)

    def wake(self) -> None:
        """Let whoever waits look whether it was cancelled."""
        self._core.wake()
        self.commits.turns.wake()

    def await_time(self, time: int, seconds: float) -> None:
        """Wait until the timeline has come to a time, or for so long."""
        self._core.wait(lambda state: state.timelines[DEFAULT].upper >= time or None, seconds)

    def ask_catalog(self, statement: SelectCatalog, state: State) -> Result:
        """Answer a question about the catalog of ``state``."""
        if self.catalog_queries is None:
            raise Unsupported("a query about the catalog", detail="There is no shadow PostgreSQL.")
        settings = {f"{SESSION}{name}": value for name, value in statement.variables}
        return self.catalog_queries.run(statement.query_sql, state, settings)

    def introspect(self, statement: Select, sources: Sources, state: State) -> Result:
        """Answer a query that reads system views alone."""
        if self.catalog_queries is not None and statement.dialect == "postgres":
            local = self.reads.local(sources)
            settings = dict(shadowed.setting(name, rows) for name, rows in local.items())
            try:
                return self.catalog_queries.run(statement.query_sql, state, settings)
            except CatalogUnavailable as error:
                LOG.warning("a system view is read without the shadow PostgreSQL: %s", error)
        time = self.timeline.upper - 1
        rows = self.reads.rows(statement.query_sql, sources, time, statement.dialect)
        return Result.of_table(rows)

    def columns(self, statement: Statement, state: State) -> tuple[Column, ...] | None:
        """Return the columns of the rows that a statement would answer with, if they are known."""
        match statement:
            case Select():
                sources = self.reads.sources(statement.tables, state=state)
                if sources.system:
                    asked = self.catalog_queries
                    if asked is None or sources.collections or statement.dialect != "postgres":
                        return None
                    analysis = asked.analyse(statement.query_sql, (), state)
                    return tuple(map(passed, analysis.columns))
                schema = self.reads.describe(statement, sources, state)
                return tuple(map(Column.of_field, schema))
            case Insert() | Update() | Delete() if statement.returning is not None:
                target = self.target(statement.table, state)
                writes.check_returning(statement.returning, target)
                return returned_columns(statement.returning, target.schema)
            case _:
                return None

    def refreshed(self, name: str) -> Sources:
        """Return what a REFRESH waits for."""
        found = catalog.named(self._core.state, name)
        if found.kind != "materialized view":
            raise WrongKind(name, "materialized view", found.kind)
        return self.reads.sources((name,))

    def show(self, statement: ShowsObjects) -> pa.Table:
        """Return what a SHOW about objects shows."""
        return shown(self._core.state, statement)

    def explain_query(self, planned: reading.Planned) -> list[str]:
        """Say how a query is answered."""
        return list(explained_query(self._core.state, planned, self.reads, self._views))

    def explain(self, name: str, kind: str) -> str:
        """Say how a materialized view or an index is kept."""
        found = catalog.named(self._core.state, name)
        if found.kind != kind:
            raise WrongKind(name, kind, found.kind)
        text = self._views.explain(found.collection)
        return text.replace(f"view {found.collection!r} ", f"view {found.name!r} ")

    def explain_replacement(self, statement: CreateMaterializedView) -> list[str]:
        """Say what a replacement would compute anew; nothing is made."""
        state = self._core.state
        found = catalog.named(state, statement.name)
        sources = catalog.sources(state, statement.tables)
        text = self.reads.text(statement.query_sql, sources, statement.dialect)
        how = self._views.explain_query(text, relations=sources.relations)
        lines = list(replacement.explained(state, found, statement.tables))
        columns = self._views.describe(text, relations=sources.relations)
        refused = replacement.refusals(state, found, columns, self._materializations)
        return [*refused, *lines, "by:", *(f"  {line}" for line in how.splitlines())]

    def validated(self, statement: CreateMaterialization) -> pa.Table:
        """Return what a materialization would be; nothing is changed, here or there."""
        return validated(self._core.state, statement, self._materializations)

    def resumed(self, statement: Subscribe) -> Subscribe:
        """Return what a subscription by name stands for now."""
        return subscriptions.resumed(self._core.state, statement) if statement.named else statement

    def followed(self, statement: Subscribe) -> Followed:
        """Return what a subscription follows."""
        state, name = self._core.state, statement.name
        at = None if statement.as_of is None else statement.as_of.time
        if statement.query is None:
            found = self.reads.sources((name,), at)
            if found.system:
                raise SystemRelation(name)
            named = catalog.ids(state, (name,))
            if not found.views:
                (gid,) = found.collections
                begins = found.begins.get(gid, 0)
                return Followed(
                    subscriptions.read_at(state, found, gid, at),
                    name,
                    gid,
                    begins=begins,
                    named=named,
                )
            query = f"SELECT * FROM {catalog.quoted(name)}"  # noqa: S608 - quoted
            sources = catalog.sources(state, (name,))
            types = tuple(map(type_of, sources.schemas[name]))
            return Followed(sources, name, None, sources.text(query), types=types, named=named)
        # Of the views themselves, not of their indexes, which may be dropped meanwhile.
        sources = catalog.sources(state, statement.query.tables)
        asked = statement.query
        text, types = self.reads.translated(asked.query_sql, sources, asked.dialect)
        named = catalog.ids(state, asked.tables)
        return Followed(sources, name[:LABEL_MAX], None, text, types=types, named=named)

    def subscribe(
        self,
        statement: Subscribe,
        followed: Followed,
        as_of: int,
        limit: Limit,
        session: int,
        named: str | None,
    ) -> Result:
        """Return a subscription, which goes on while it is iterated."""
        gid, ended = followed.collection, subscribe.nothing
        if gid is None:
            gid, ended = self._transients.keep(followed, as_of)
        follower = self.clients.subscribed(session, followed.label, named, as_of, ended)
        ends, begins = self._ends(followed), followed.begins
        try:
            schema = subscribe.columns(self._core, gid, statement)
            batches = subscribe.follow(
                self._core, gid, statement, as_of, self.holds, limit, follower, ends, begins
            )
        except BaseException:
            follower.end()
            raise
        return Result("SUBSCRIBE", tuple(map(Column.of_field, schema)), batches)

    def _ends(self, followed: Followed) -> Ends:
        """Return who says why a subscription ends: it stands still, or its query means another."""

        def ends(subscription: Subscription, event: Event | None) -> AdapterError | None:
            state = self._core.state
            gone = catalog.missing(state, followed.named)
            if gone is not None:
                return SubscribedDropped(gone)
            if followed.collection is None:
                replaced = replacement.replaced_since(state, followed.sources.collections)
                if replaced is not None and not _is_before(event, replaced[1]):
                    why = "What is kept for a query is made of the rows that it had before."
                    return ReplacedMeanwhile(*replaced, why)
            if event is not None or subscription.is_led_over(state):
                return None
            failed = self._views.failures().get(subscription.id)
            return None if failed is None else CollectionFailed(followed.label, failed)

        return ends

    # ---- writing -----------------------------------------------------------------------------

    def target(self, name: str, state: State | None = None) -> Target:
        """Return the table that a statement writes, by the catalog of ``state``."""
        state = state or self._core.state
        found = catalog.named(state, name)
        if found.kind != "table":
            raise ReadOnlyRelation(found.kind, name)
        gid = state.names[found.collection]
        collection = collection_of(state, gid)
        schema = evolution.from_bytes(collection.schemas[-1])
        rules = column_rules(found.sql)
        return Target(gid, name, schema, collection.key, rules, self.calculations)

    def is_stored(self, gid: GlobalId) -> bool:
        """Whether there is a collection already, not only in a transaction that creates it."""
        return gid in self._core.state.collections

    def read_by(
        self,
        statement: Insert | Update | Delete,
        target: Target,
        state: State | None = None,
        at: int | None = None,
        written: Mapping[GlobalId, Overlay] = reading.NOTHING,
    ) -> Sources | None:
        """Return what a statement reads before it writes; None: it writes blindly.

        ``at``: when it reads, if that is known; ``written``: by its own transaction, before.
        """
        if isinstance(statement, Insert):
            conflict = statement.on_conflict
            own = (target.name,) if conflict is not None and conflict.assignments else ()
            query = () if statement.query is None else statement.query.tables
            blind = statement.query is None and not own
            names = (*query, *own)
            return None if blind else self.reads.sources(names, at, state, written)
        return self.reads.sources((target.name, *statement.tables), at, state, written)

    def plan(
        self,
        statement: Insert | Update | Delete,
        target: Target,
        sources: Sources | None,
        time: int | None,
        state: State | None = None,
    ) -> Planned:
        """Return what a statement writes, given what it read at ``time``, by names of ``state``."""
        writes.check_returning(statement.returning, target)
        if isinstance(statement, Insert):
            return self._plan_insert(statement, target, sources, time)
        assert sources is not None
        assert time is not None
        state = state or self._core.state
        rows = matched(self.reads, state, statement, target, sources, time)
        if isinstance(statement, Update):
            return writes.update(statement, target, rows)
        return writes.delete(statement, target, rows)

    def _plan_insert(
        self, statement: Insert, target: Target, sources: Sources | None, time: int | None
    ) -> Planned:
        given: pa.Table | GivenRows
        if statement.query is None:
            given = writes.given_rows(statement, target)
        else:
            assert sources is not None
            assert time is not None
            query = statement.query
            selected = self.reads.rows(query.query_sql, sources, time, query.dialect)
            given = writes.selected_rows(statement, target, selected)
        conflict = statement.on_conflict
        if conflict is None or not conflict.assignments:
            return writes.insert(statement, target, given)
        rows = given.table if isinstance(given, GivenRows) else given
        writes.check_conflict_key(conflict, target)
        assert sources is not None
        assert time is not None
        keys = list(zip(*(rows.column(name).to_pylist() for name in target.key), strict=True))
        existing = self.reads.by_key(target, keys, time, sources.written)
        computed = None
        if any(isinstance(each.value, Computed) for each in conflict.assignments):
            computed = self._computed(conflict, target, rows, existing, sources, time)
        return writes.upsert(statement, target, rows, existing, computed)

    def _computed(
        self,
        conflict: OnConflict,
        target: Target,
        rows: pa.Table,
        existing: pa.Table,
        sources: Sources,
        time: int,
    ) -> pa.Table:
        """Evaluate the expressions of ON CONFLICT for the rows that are there already."""
        columns = [(field.name, name_of(field)) for field in target.schema]
        places = existing.column(PROBE_INDEX).to_pylist()
        given = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        met = [(given[place], place) for place in places] or [((None,) * len(columns), -1)]
        query = dml.conflicting(target.name, target.key, columns, met, conflict.assignments)
        return self.reads.rows(query, sources, time)


__all__ = ["ClientSession", "Coordinator"]


def _is_before(event: Event | None, time: int) -> bool:
    return event is not None and event.upper <= Frontier.of(time)
