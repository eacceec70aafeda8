"""From a query to a view that can be installed: which kind it is, and what has to be created.

The query is compiled to a plan, or refused with its reason (``compute/query.py``). If every
operator of the plan has a delta rule (``dataflow/lower.py``) the view is maintained, else it is
recomputed. Arrangements of stored collections that another view has already are used again, as are
those that an earlier view of the same installer needs.

    new collection, named        ``create_view``: its history is kept by an owner
    new collection, unnamed      ``maintain_view``: its history is what read capabilities hold
    a collection that is there   of the caller's, or the output so far of a view that is made anew

What is made here are commands: the definition, the collections and the holds enter the log
together, by the controller. Only ids are taken, from ``reserve``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.errors import InvalidUsage
from headwater.base.ids import Epoch, GlobalId
from headwater.collection.commands import collection_name
from headwater.collection.run_layout import OrderedRunLayout, RunLayout
from headwater.collection.schema import Column, arrow_schema, telling
from headwater.collection.types import SqlType
from headwater.compute import maintained, recompute
from headwater.compute.catalyst.user_functions import is_by_row
from headwater.compute.dataflow import graph
from headwater.compute.dataflow.graph import Arrangement, Dataflow, Scanned
from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.definition import Definition, encoded, item_key
from headwater.compute.ir import expression
from headwater.compute.ir import plan as plans
from headwater.compute.maintained import MaintainedView, SharedArrangement, arrangements
from headwater.compute.query import (
    Compiled,
    Query,
    compiled,
    output_schema,
    require_fit,
    require_no_clock,
)
from headwater.compute.recompute import RecomputedView
from headwater.persist import evolution
from headwater.persist.batch import Times
from headwater.persist.commands import (
    All,
    Atomic,
    Command,
    CreateOrLoad,
    Destroy,
    DropReader,
    OpenReader,
    Reserved,
    ReserveId,
    Seal,
    SetItem,
)
from headwater.persist.core import Core
from headwater.persist.decision import collection_of
from headwater.persist.layout import PARQUET
from headwater.persist.state import CollectionState, State

ASKED: Final = "what is asked to be recomputed"
"""Why a view is recomputed whose rules are not to be used."""

BY_BATCH: Final = (
    "a function in Python that is called with many rows at a time, and may look at the rows beside "
    "its own (one of a row's values, @udf, is called for what changed only)"
)
"""Why a view is recomputed that calls one."""

ARRANGE: Final = "arrange/"
STATE: Final = "state/"
"""How the names of internal collections begin."""

Reserve = Callable[[int], list[GlobalId]]
"""Hands out ids."""


@dataclass(frozen=True, slots=True)
class Named:
    """Into a new collection of this name, laid out by a key if there is one."""

    name: str
    key: tuple[str, ...] = ()
    types: tuple[SqlType, ...] = ()
    """Of its columns, where they are more than the plan tells."""


@dataclass(frozen=True, slots=True)
class Introduced:
    """Into a new collection, called after its id."""


@dataclass(frozen=True, slots=True)
class Existing:
    """Into a collection that is there; ``given`` if it is the caller's and outlives the view."""

    collection: CollectionState
    given: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """A view that somebody wants."""

    name: str
    query: Query
    inputs: Mapping[str, CollectionState]
    """By the names that the query has for them."""
    into: Named | Introduced | Existing
    start: int | None = None
    """``None``: the newest time at which all it reads is readable."""
    rules: bool = True
    """Without them it is recomputed."""
    functions: tuple[plans.UserFunction, ...] = ()
    """Those that the text means; else what the session has under these names."""
    kept_by: Epoch | None = None
    """Our epoch, if output and states are not to be durable."""
    text: str = ""
    """Of a query that is a plan: the SQL it was compiled from, if it was."""
    apart: bool = False
    """Whether it has arrangements of its own, although others of their kind are there."""


class Installation(NamedTuple):
    """A view that is not there yet, and the commands that make it."""

    view: Definition
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class _Parts:
    """What all kinds of views are stored with."""

    wanted: Wanted
    query: Compiled
    read: Mapping[str, CollectionState]
    start: int

    @property
    def given(self) -> bool:
        return isinstance(self.wanted.into, Existing) and self.wanted.into.given

    @property
    def relations(self) -> dict[str, GlobalId]:
        return {relation: collection.id for relation, collection in self.read.items()}

    def output(self, fresh: Iterator[GlobalId]) -> GlobalId:
        into = self.wanted.into
        return into.collection.id if isinstance(into, Existing) else next(fresh)

    def created(self, output: GlobalId) -> Iterator[Command]:
        into = self.wanted.into
        if not isinstance(into, Existing):
            name = into.name if isinstance(into, Named) else collection_name(output)
            key, types = (into.key, into.types) if isinstance(into, Named) else ((), ())
            yield CreateOrLoad(
                name,
                evolution.to_bytes(telling(output_schema(self.query.plan), types)),
                key,
                RunLayout.name if key else PARQUET.name,
                start=self.start,
                owner=isinstance(into, Named),
                id=output,
                volatile=self.wanted.kept_by is not None,
            )


def strategy(plan: plans.Plan) -> Dataflow | str:
    """Return how a view of a plan is kept; a text: it is recomputed, and this is why."""
    by_batch = [function.name for function in plan.functions if not is_by_row(function)]
    if by_batch:
        return f"{', '.join(f'{name}()' for name in by_batch)}: {BY_BATCH}"
    flow = lowered(plan.root)
    if isinstance(flow, NoRule):
        return plans.as_named(f"{flow.kind}: {flow.reason}", plan.functions)
    return flow


class Installer:
    """Makes views from one state; they share the arrangements that it adds."""

    def __init__(self, state: State, session: Any, reserve: Reserve) -> None:
        self._state = state
        self._session = session
        self._reserve = reserve
        self._made: dict[Identity, SharedArrangement] = {}

    @property
    def spark_version(self) -> str:
        """Of the Spark that it compiles with."""
        return str(self._session.version)

    def install(self, wanted: Wanted) -> Installation:
        """Return the view, of the kind that costs least."""
        schemas = {name: _schema(collection) for name, collection in wanted.inputs.items()}
        query = compiled(self._session, wanted.query, schemas, wanted.functions)
        if wanted.text:
            query = query._replace(sql=wanted.text)
        if isinstance(wanted.into, Existing):
            into = wanted.into.collection
            require_fit(into.name, _schema(into), query.plan)
        read = {relation: wanted.inputs[relation] for relation in query.plan.relations}
        if not wanted.rules:
            return self._recomputed(wanted, query, read, ASKED)
        flow = strategy(query.plan)
        if isinstance(flow, str):
            return self._recomputed(wanted, query, read, flow)
        return self._maintained(wanted, query, read, flow)

    def _recomputed(
        self,
        wanted: Wanted,
        query: Compiled,
        read: Mapping[str, CollectionState],
        why: str,
    ) -> Installation:
        require_no_clock(query.plan, why)
        start = wanted.start
        if start is None:
            start = _newest(self._state, tuple(read.values()))
        parts = _Parts(wanted, query, read, start)
        fresh = iter(self._reserve(not isinstance(wanted.into, Existing)))
        view = RecomputedView(
            version=recompute.STORED_VERSION,
            name=wanted.name,
            sql=query.sql,
            plan=plans.encoded(query.plan),
            relations=parts.relations,
            start=start,
            output=parts.output(fresh),
            why=why,
            spark_version=query.plan.spark_version,
            given=parts.given,
            kept_by=wanted.kept_by,
        )
        created = parts.created(view.output)
        return Installation(view, (*created, *_stored(view, view.inputs)))

    def _maintained(
        self,
        wanted: Wanted,
        query: Compiled,
        read: Mapping[str, CollectionState],
        flow: Dataflow,
    ) -> Installation:
        shared, start = self._arranged(flow, read, wanted)
        parts = _Parts(wanted, query, read, start)
        missing = [key for key, arrangement in shared.items() if arrangement is None]
        private = [a for a in flow.arrangements if not isinstance(a.of, Scanned)]
        own = [*(a.name for a in private), *(s.name for s in flow.states)]
        new = not isinstance(wanted.into, Existing)
        fresh = iter(self._reserve(new + len(missing) + len(own)))
        output = parts.output(fresh)
        for relation, key in missing:
            made = SharedArrangement(maintained.STORED_VERSION, relation, key, next(fresh), start)
            self._made[relation, key] = shared[relation, key] = made
        named: dict[str, GlobalId] = {}
        for arrangement in flow.arrangements:
            if isinstance(arrangement.of, Scanned):
                found = shared[_identity(arrangement, read)]
                assert found is not None
                named[arrangement.name] = found.id
        view = MaintainedView(
            version=maintained.STORED_VERSION,
            name=wanted.name,
            sql=query.sql,
            plan=plans.encoded(query.plan),
            dataflow=graph.encoded(flow),
            relations=parts.relations,
            arrangements=named,
            stored={name: next(fresh) for name in own},
            start=start,
            output=output,
            shown=tuple(column.name for column in query.plan.outputs),
            spark_version=query.plan.spark_version,
            given=parts.given,
            kept_by=wanted.kept_by,
        )
        commands: list[Command] = [
            *parts.created(output),
            *(_collection(view, a.name, a.of.columns, a.key) for a in private),
            *(_collection(view, s.name, s.columns, s.key, s.ordered) for s in flow.states),
        ]
        for identity in missing:
            commands += _shared(self._state, self._made[identity])
        return Installation(view, (*commands, *_stored(view, (*view.inputs, *view.shared))))

    def _arranged(
        self, flow: Dataflow, read: Mapping[str, CollectionState], view: Wanted
    ) -> tuple[dict[Identity, SharedArrangement | None], int]:
        """Return which arrangements are there for a view, and where it starts.

        Where it may choose, it starts where what is there can be read; where it may not, it uses
        what can be read at its start.
        """
        wanted, start = _wanted(flow, read), view.start
        known = {} if view.apart else arrangements(self._state)
        found = {i: self._existing(known, i, fields, start) for i, fields in wanted.items()}
        if start is None:
            state = self._state
            used = [state.collections.get(a.id) for a in found.values() if a is not None]
            also = [collection for collection in used if collection is not None]
            start = _newest(state, tuple(read.values()), also)
        return found, start

    def _existing(
        self,
        known: Mapping[GlobalId, SharedArrangement],
        identity: Identity,
        fields: set[str],
        start: int | None,
    ) -> SharedArrangement | None:
        for arrangement in known.values():
            if (arrangement.relation, arrangement.key) == identity:
                collection = collection_of(self._state, arrangement.id)
                since = collection.since
                readable = not since.is_closed and (start is None or since <= Frontier.of(start))
                # One that is older than a column of its collection does not have it.
                if readable and fields <= set(_schema(collection).names):
                    return arrangement
        made = self._made.get(identity)
        return made if made is not None and (start is None or made.start <= start) else None


Identity = tuple[GlobalId, tuple[str, ...]]


def _identity(arrangement: Arrangement, read: Mapping[str, CollectionState]) -> Identity:
    origin = arrangement.of
    assert isinstance(origin, Scanned)
    fields = {field.column.name: field.field for field in origin.fields}
    return read[origin.relation].id, tuple(fields[column] for column in arrangement.key)


def _wanted(flow: Dataflow, read: Mapping[str, CollectionState]) -> dict[Identity, set[str]]:
    """Return the shared arrangements that a dataflow needs, with the fields it reads there."""
    wanted: dict[Identity, set[str]] = {}
    for arrangement in flow.arrangements:
        if isinstance(arrangement.of, Scanned):
            fields = wanted.setdefault(_identity(arrangement, read), set())
            fields.update(field.field for field in arrangement.of.fields)
    return wanted


def _shared(state: State, arrangement: SharedArrangement) -> Iterator[Command]:
    relation = collection_of(state, arrangement.relation)
    name = f"{ARRANGE}{relation.id}/{arrangement.id}"
    schema = evolution.to_bytes(_nullable(_schema(relation)))
    yield CreateOrLoad(
        name,
        schema,
        arrangement.key,
        RunLayout.name,
        start=arrangement.start,
        owner=False,
        id=arrangement.id,
    )
    yield SetItem(arrangement.reader_id, msgspec.msgpack.encode(arrangement))
    held = Frontier.of(arrangement.start)
    yield OpenReader(relation.id, arrangement.reader_id, f"arrangement {name}", held)


def _collection(
    view: MaintainedView,
    name: str,
    columns: Iterable[expression.Column],
    key: tuple[str, ...],
    ordered: bool = False,
) -> Command:
    schema = arrow_schema(Column(c.name, c.sql_type, True) for c in columns)
    return CreateOrLoad(
        # With its id: a view that is made anew has new states, and names are never used again.
        f"{STATE}{view.output}/{name}/{view.stored[name]}",
        evolution.to_bytes(schema),
        key,
        OrderedRunLayout.name if ordered else RunLayout.name,
        start=view.start,
        id=view.stored[name],
        volatile=view.kept_by is not None,
    )


def _stored(view: Definition, collections: Iterable[GlobalId]) -> Iterator[Command]:
    """Yield the view's holds, and the view itself."""
    for gid in collections:
        yield OpenReader(gid, view.reader_id, f"view {view.name}", Frontier.of(view.start))
    yield SetItem(item_key(view.id), encoded(view))


def reserving(core: Core) -> Reserve:
    """Return what takes ids from the log."""

    def reserve(count: int) -> list[GlobalId]:
        if not count:
            return []
        reserved = core.submit(Atomic((ReserveId(),) * count)).result()
        assert isinstance(reserved, All)
        return [outcome.id for outcome in reserved.outcomes if isinstance(outcome, Reserved)]

    return reserve


def is_internal(name: str) -> bool:
    """Whether a collection is an arrangement or a state, which no query means."""
    return name.startswith((ARRANGE, STATE))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema], schema.metadata)


def _schema(collection: CollectionState) -> pa.Schema:
    return evolution.from_bytes(collection.schemas[-1])


def _newest(
    state: State, inputs: Sequence[CollectionState], also: Sequence[CollectionState] = ()
) -> int:
    """Return the newest time at which all inputs are readable, or the first at which they will."""
    start = 0
    uppers: Times = Frontier.closed()
    for collection in (*inputs, *also):
        if collection.since.is_closed:
            raise InvalidUsage(
                f"collection {collection.name!r} is no longer readable: everybody who held its "
                f"history has let it go; make it anew under another name"
            )
        start = max(start, collection.since.only())
    for collection in inputs:
        uppers = uppers.meet(state.upper(collection))
    return start if uppers.is_closed else max(start, uppers.only() - 1)


# ---- removing ----------------------------------------------------------------------------------


def removal(state: State, view: Definition, others: Iterable[Definition]) -> Iterator[Command]:
    """Yield what removes a view, and the shared arrangements that nobody uses after it.

    A collection that the caller gave stays, and is closed: nobody writes to it any more.
    """
    yield SetItem(item_key(view.id), None)
    shared = _shared_by(view)
    for gid in (*view.inputs, *shared):
        if gid in state.collections:
            yield DropReader(gid, view.reader_id)
    for gid in view.owned:
        if gid in state.collections:
            yield Destroy(state.collections[gid].name)
    if view.given and view.id in state.collections:
        yield Seal((view.id,), Frontier.closed())
    yield from _unshared(state, shared, others)


def replacement(
    state: State, old: Definition, new: Definition, others: Iterable[Definition]
) -> Iterator[Command]:
    """Yield what removes of a view that which the same view, made anew, does not use."""
    shared = _shared_by(old)
    for gid in set(old.inputs) | set(shared):
        if gid not in new.inputs and gid not in _shared_by(new):
            yield DropReader(gid, old.reader_id)
    for gid in old.owned:
        if gid != old.id:
            yield Destroy(state.collections[gid].name)
    yield from _unshared(state, shared, (*others, new))


def _shared_by(view: Definition) -> tuple[GlobalId, ...]:
    return view.shared if isinstance(view, MaintainedView) else ()


def _unshared(
    state: State, shared: Iterable[GlobalId], others: Iterable[Definition]
) -> Iterator[Command]:
    used = {gid for view in others for gid in _shared_by(view)}
    known = arrangements(state)
    for gid in sorted(set(shared) - used):
        arrangement = known[gid]
        yield SetItem(arrangement.reader_id, None)
        if arrangement.relation in state.collections:
            yield DropReader(arrangement.relation, arrangement.reader_id)
        yield Destroy(state.collections[gid].name)
