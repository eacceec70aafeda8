"""From a query to a view that can be installed: which kind it is, and what has to be created.

The incremental shape is tried first (``compute/frontend.py``). Its parser knows that one shape and
nothing else, so whatever it says against a query only means that there is no incremental rule; if
the query is right at all, Catalyst says. What Catalyst refuses is refused with its reason.

Ids are reserved here, nothing else is committed: the definition, the collections and the holds
enter the log together, by the controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection.run_layout import RunLayout
from headwater.compute import recompute
from headwater.compute import view as views
from headwater.compute.catalyst.compiler import relations_of as catalyst_relations
from headwater.compute.definition import Definition
from headwater.compute.frontend import Parsed, UnknownRelation, parse, relations_of
from headwater.compute.ir import plan as plans
from headwater.compute.recompute import RecomputedView
from headwater.compute.view import (
    Collections,
    Schemas,
    UnsupportedView,
    View,
    group_name,
    output_key,
    schemas,
)
from headwater.persist import evolution
from headwater.persist.batch import Times
from headwater.persist.commands import All, Atomic, Command, CreateOrLoad, Reserved, ReserveId
from headwater.persist.core import Core
from headwater.persist.decision import collection_named
from headwater.persist.layout import PARQUET
from headwater.persist.state import CollectionState, State

Relations = Mapping[str, str]
"""From a name in a query to the name of a collection."""


class Installation(NamedTuple):
    """A view that is not there yet, and the commands that create what it writes."""

    view: Definition
    created: tuple[Command, ...]


def installation(
    core: Core, session: Any, name: str, sql: str, relations: Relations
) -> Installation:
    """Return the view of a query, of the kind that costs least."""
    state = core.state
    known = {n.lower(): (n, collection) for n, collection in relations.items()}
    try:
        wanted = relations_of(sql)
        for relation in wanted - set(known):
            raise UnknownRelation(relation)
        inputs = {known[n][0]: collection_named(state, known[n][1]) for n in sorted(wanted)}
        parsed = parse(sql, {n: _schema(collection) for n, collection in inputs.items()})
        left, right = inputs[parsed.left], inputs[parsed.right]
        derived = schemas(parsed.query, _schema(left), _schema(right))
    except InvalidUsage as error:
        why = error.problem if isinstance(error, UnsupportedView) else str(error)
    else:
        start = _start(state, (left, right))
        ids = Collections(*_reserved(core, 4))
        view = View(
            version=views.STORED_VERSION,
            name=name,
            sql=sql,
            query=parsed.query,
            left=left.id,
            right=right.id,
            start=start,
            collections=ids,
            spark_version=str(session.version),
        )
        return Installation(view, _collections(view, parsed, derived))
    # Names of the query's own (WITH) are among those it mentions; the plan knows what it reads.
    mentioned = sorted(catalyst_relations(session, sql) & set(known))
    inputs = {known[n][0]: collection_named(state, known[n][1]) for n in mentioned}
    plan = recompute.compiled(session, sql, {n: _schema(c) for n, c in inputs.items()})
    read = {relation: inputs[relation] for relation in plan.relations}
    start = _start(state, tuple(read.values()))
    (output,) = _reserved(core, 1)
    recomputed = RecomputedView(
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
    return Installation(recomputed, (created,))


def _collections(view: View, parsed: Parsed, derived: Schemas) -> tuple[Command, ...]:
    query, ids = parsed.query, view.collections
    groups = tuple(group_name(n) for n in range(len(query.group)))
    output, run = ids.output, RunLayout.name
    creations = (
        (output, view.name, derived.output, output_key(query), PARQUET.name),
        (ids.left, f"arrange/{output}/left", derived.left, query.left_key, run),
        (ids.right, f"arrange/{output}/right", derived.right, query.right_key, run),
        (ids.accumulators, f"accumulators/{output}", derived.accumulators, groups, run),
    )
    return tuple(
        CreateOrLoad(n, evolution.to_bytes(schema), key, layout, start=view.start, id=gid)
        for gid, n, schema, key, layout in creations
    )


def _reserved(core: Core, count: int) -> list[GlobalId]:
    reserved = core.submit(Atomic((ReserveId(),) * count)).result()
    assert isinstance(reserved, All)
    return [outcome.id for outcome in reserved.outcomes if isinstance(outcome, Reserved)]


def _schema(collection: CollectionState) -> pa.Schema:
    return evolution.from_bytes(collection.schemas[-1])


def _start(state: State, inputs: Sequence[CollectionState]) -> int:
    """Return the newest time at which all inputs are readable, or the first at which they will."""
    start = 0
    uppers: Times = Frontier.closed()
    for collection in inputs:
        if collection.since.is_closed:
            raise InvalidUsage(f"collection {collection.name!r} is no longer readable")
        start = max(start, collection.since.only())
        uppers = uppers.meet(state.upper(collection))
    return start if uppers.is_closed else max(start, uppers.only() - 1)
