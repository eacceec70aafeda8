"""``EXPLAIN`` of a query: how it is answered, from what, and by which operators.

    EXPLAIN [PLAN FOR] query           EXPLAIN [MATERIALIZED] VIEW name           EXPLAIN INDEX name

A query is answered in one of three ways, which the first line says: keys are looked up, the shadow
PostgreSQL evaluates it over system views, or Spark runs it over snapshots. Of the last the text
that Spark gets is shown, and the operators by which a view of the query would be kept: the same
plan answers both. Everything shown is what is decided when the query runs, not a description of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.adapter import catalog
from headwater.adapter.indexes import Probe
from headwater.adapter.ports import Evaluator
from headwater.adapter.reads import Planned, Reads
from headwater.base.errors import HeadwaterError
from headwater.persist.state import State


def explained_query(
    state: State, planned: Planned, reads: Reads, evaluator: Evaluator
) -> Iterator[str]:
    """Yield the lines of EXPLAIN."""
    sources = planned.sources
    if planned.probe is not None:
        yield _probed(state, planned.probe)
        yield from _relations(state, planned)
        return
    if sources.system and not sources.collections:
        yield "answered by: PostgreSQL's evaluator, over rows of this moment; no Spark job"
        yield f"reads: {', '.join(sources.system)}"
        return
    dialect = planned.statement.dialect
    text = reads.text(planned.statement.query_sql, sources, dialect)
    yield "answered by: Spark, over snapshots at one time"
    yield from _relations(state, planned)
    if sources.system:
        yield f"reads: {', '.join(sources.system)}, of this moment"
    yield f"dialect: {dialect}"
    yield f"Spark SQL: {_plainly(state, text, sources.relations)}"
    if sources.system:
        return
    yield "operators, as a view of it keeps them:"
    try:
        operators = evaluator.explain_query(text, relations=sources.relations)
    except HeadwaterError as error:
        yield f"  none: it cannot be kept in a view: {error}"
        return
    for line in operators.splitlines():
        yield f"  {_plainly(state, line, sources.relations)}"


def _probed(state: State, probe: Probe) -> str:
    key = state.collections[probe.keyed].key
    keys = f"{len(probe.point.keys)} key{'s' * (len(probe.point.keys) != 1)}"
    where = "primary key" if probe.index is None else f'index "{probe.index}"'
    tail = ""
    if probe.base is not None:
        tail = ", and what the relation has since in its newest updates"
    return (
        f'answered by: looking up {keys} in the {where} of "{probe.relation}" '
        f"({', '.join(key)}){tail}; no Spark job"
    )


def _relations(state: State, planned: Planned) -> Iterator[str]:
    indexes = planned.sources.indexes
    for gid, name in planned.sources.collections.items():
        found = catalog.called(state, name)
        kind = "relation" if found is None else found.kind
        by = f', kept by index "{indexes[name]}"' if name in indexes else ""
        collection = state.collections[gid]
        updates = sum(part.rows for part in collection.parts())
        yield f'reads: {kind} "{name}"{by}, stored as {updates:,} updates'


def _plainly(state: State, text: str, relations: dict[str, str]) -> str:
    """Return a text with the names that users gave, where a view's own inputs have other ones."""
    names = {each.collection: each.name for each in catalog.objects(state) if each.collection}
    for inner, collection in relations.items():
        if inner.startswith("__") and collection in names:
            text = text.replace(inner, names[collection])
    return text
