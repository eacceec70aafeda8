"""From a query to a view that can be installed: which kind it is, and what has to be created.

Catalyst compiles the query to a plan, or refuses it with its reason. If every operator of the plan
has a delta rule (``dataflow/lower.py``) the view is maintained, else it is recomputed. Arrangements
of stored collections that another view has already are used again.

Ids are reserved here, nothing else is committed: the definition, the collections and the holds
enter the log together, by the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection.run_layout import RunLayout
from headwater.collection.schema import Column, arrow_schema
from headwater.compute import maintained, recompute
from headwater.compute.catalyst.compiler import relations_of
from headwater.compute.dataflow import graph
from headwater.compute.dataflow.graph import Arrangement, Dataflow, Scanned
from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.definition import Definition
from headwater.compute.ir import expression
from headwater.compute.ir import plan as plans
from headwater.compute.ir.plan import Plan
from headwater.compute.maintained import MaintainedView, SharedArrangement, arrangements
from headwater.compute.recompute import RecomputedView
from headwater.persist import evolution
from headwater.persist.batch import Times
from headwater.persist.commands import (
    All,
    Atomic,
    Command,
    CreateOrLoad,
    OpenReader,
    Reserved,
    ReserveId,
    SetItem,
)
from headwater.persist.core import Core
from headwater.persist.decision import collection_named, collection_of
from headwater.persist.layout import PARQUET
from headwater.persist.state import CollectionState, State

Relations = Mapping[str, str]
"""From a name in a query to the name of a collection."""


class Installation(NamedTuple):
    """A view that is not there yet, and the commands that create what it writes and holds."""

    view: Definition
    created: tuple[Command, ...]


def installation(
    core: Core, session: Any, name: str, sql: str, relations: Relations, *, rules: bool = True
) -> Installation:
    """Return the view of a query, of the kind that costs least; without ``rules`` recomputed."""
    state = core.state
    known = {n.lower(): (n, collection) for n, collection in relations.items()}
    # Names of the query's own (WITH) are among those it mentions; the plan knows what it reads.
    mentioned = sorted(relations_of(session, sql) & set(known))
    inputs = {known[n][0]: collection_named(state, known[n][1]) for n in mentioned}
    plan = recompute.compiled(session, sql, {n: _schema(c) for n, c in inputs.items()})
    read = {relation: inputs[relation] for relation in plan.relations}
    if not rules:
        return _recomputed(core, name, sql, plan, read, "what is asked to be recomputed")
    flow = lowered(plan.root)
    if isinstance(flow, NoRule):
        return _recomputed(core, name, sql, plan, read, f"{flow.kind}: {flow.reason}")
    return _maintained(core, name, sql, plan, read, flow)


# ---- recomputed ------------------------------------------------------------------------------


def _recomputed(
    core: Core, name: str, sql: str, plan: Plan, read: Mapping[str, CollectionState], why: str
) -> Installation:
    start = _start(core.state, tuple(read.values()))
    (output,) = _reserved(core, 1)
    view = RecomputedView(
        version=recompute.STORED_VERSION,
        name=name,
        sql=sql,
        plan=plans.encoded(plan),
        relations={relation: collection.id for relation, collection in read.items()},
        start=start,
        output=output,
        why=why,
        spark_version=plan.spark_version,
    )
    schema = evolution.to_bytes(recompute.output_schema(plan))
    created = CreateOrLoad(name, schema, (), PARQUET.name, start=start, id=output)
    return Installation(view, (created, *_holds(view, view.inputs)))


# ---- maintained ------------------------------------------------------------------------------


def _maintained(
    core: Core,
    name: str,
    sql: str,
    plan: Plan,
    read: Mapping[str, CollectionState],
    flow: Dataflow,
) -> Installation:
    state = core.state
    wanted = _wanted(flow, read)
    used = {key: _existing(state, key, fields) for key, fields in wanted.items()}
    reused = [collection_of(state, a.id) for a in used.values() if a is not None]
    start = _start(state, tuple(read.values()), reused)
    missing = [key for key, arrangement in used.items() if arrangement is None]
    private = [a for a in flow.arrangements if not isinstance(a.of, Scanned)]
    output, *ids = _reserved(core, 1 + len(missing) + len(private) + len(flow.states))
    fresh = iter(ids)
    made = {
        (relation, key): SharedArrangement(
            maintained.STORED_VERSION, relation, key, next(fresh), start
        )
        for relation, key in missing
    }
    shared = {key: made.get(key) or arrangement for key, arrangement in used.items()}
    names = [*(a.name for a in private), *(s.name for s in flow.states)]
    stored = {own: next(fresh) for own in names}
    named: dict[str, GlobalId] = {}
    for arrangement in flow.arrangements:
        if isinstance(arrangement.of, Scanned):
            found = shared[_identity(arrangement, read)]
            assert found is not None
            named[arrangement.name] = found.id
    view = MaintainedView(
        version=maintained.STORED_VERSION,
        name=name,
        sql=sql,
        plan=plans.encoded(plan),
        dataflow=graph.encoded(flow),
        relations={relation: collection.id for relation, collection in read.items()},
        arrangements=named,
        stored=stored,
        start=start,
        output=output,
        shown=tuple(column.name for column in plan.outputs),
        spark_version=plan.spark_version,
    )
    schema = evolution.to_bytes(recompute.output_schema(plan))
    created: list[Command] = [
        CreateOrLoad(name, schema, (), PARQUET.name, start=start, id=output),
        *(_collection(view, a.name, a.of.columns, a.key) for a in private),
        *(_collection(view, s.name, s.columns, s.key) for s in flow.states),
    ]
    for added in made.values():
        created += _shared(state, added)
    return Installation(view, (*created, *_holds(view, (*view.inputs, *view.shared))))


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


def _existing(state: State, identity: Identity, fields: set[str]) -> SharedArrangement | None:
    for arrangement in arrangements(state).values():
        if (arrangement.relation, arrangement.key) == identity:
            have = _schema(collection_of(state, arrangement.id)).names
            # One that is older than a column of its collection does not have it.
            if fields <= set(have):
                return arrangement
    return None


def _shared(state: State, arrangement: SharedArrangement) -> Iterator[Command]:
    relation = collection_of(state, arrangement.relation)
    name = f"arrange/{relation.id}/{arrangement.id}"
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
    view: MaintainedView, name: str, columns: Iterable[expression.Column], key: tuple[str, ...]
) -> Command:
    schema = arrow_schema(Column(c.name, c.sql_type, True) for c in columns)
    return CreateOrLoad(
        f"state/{view.output}/{name}",
        evolution.to_bytes(schema),
        key,
        RunLayout.name,
        start=view.start,
        id=view.stored[name],
    )


def _holds(view: Definition, collections: Iterable[GlobalId]) -> Iterator[Command]:
    for gid in collections:
        yield OpenReader(gid, view.reader_id, f"view {view.name}", Frontier.of(view.start))


def _reserved(core: Core, count: int) -> list[GlobalId]:
    reserved = core.submit(Atomic((ReserveId(),) * count)).result()
    assert isinstance(reserved, All)
    return [outcome.id for outcome in reserved.outcomes if isinstance(outcome, Reserved)]


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema], schema.metadata)


def _schema(collection: CollectionState) -> pa.Schema:
    return evolution.from_bytes(collection.schemas[-1])


def _start(
    state: State, inputs: Sequence[CollectionState], also: Sequence[CollectionState] = ()
) -> int:
    """Return the newest time at which all inputs are readable, or the first at which they will."""
    start = 0
    uppers: Times = Frontier.closed()
    for collection in (*inputs, *also):
        if collection.since.is_closed:
            raise InvalidUsage(f"collection {collection.name!r} is no longer readable")
        start = max(start, collection.since.only())
    for collection in inputs:
        uppers = uppers.meet(state.upper(collection))
    return start if uppers.is_closed else max(start, uppers.only() - 1)
