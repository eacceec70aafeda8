"""Sources in the catalog: what ``CREATE SOURCE`` makes, and what it may be called.

A source is one object; what it keeps are others that come and go with it (``Object.of``):

- its outputs. A source of one output *is* that relation, unless ``FOR TABLES`` gives it a name of
  its own; with several each is a *subsource*;
- ``<name>_progress``: how far upstream it is, the remap collection;
- ``<name>_errors``: records that could not be decoded, where anything is decoded.

All of them are relations that a client reads and nobody but the source writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.adapter import alterations, catalog
from headwater.adapter.change import Change
from headwater.adapter.errors import DuplicateRelation, InvalidDefinition
from headwater.adapter.object_errors import PartOfSource
from headwater.adapter.sql.options import duration, number, refuse_others
from headwater.adapter.sql.source_statements import CreateSource, LoadGenerator, TableReference
from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.persist.commands import Command
from headwater.persist.state import State
from headwater.storage.controller import Ingestions
from headwater.storage.definition import (
    OPTIONS,
    PREFIX,
    Decoding,
    Generated,
    SourceDefinition,
    SourceOutput,
    Upstream,
    decoded,
    generated_outputs,
)

PROGRESS: Final = "progress"
ERRORS: Final = "errors"


@dataclass(frozen=True, slots=True)
class Described:
    """What a statement says, looked up: where it reads, and what comes of it by upstream's name."""

    upstream: Upstream
    outputs: Mapping[str, Decoding]


def create(
    state: State,
    statement: CreateSource,
    sql: str,
    new_id: Callable[[], GlobalId],
    ingestions: Ingestions,
) -> Change:
    """Plan a source."""
    tag = "CREATE SOURCE"
    if statement.if_not_exists and catalog.find(state, statement.name) is not None:
        return Change(tag)
    catalog.refuse_duplicate(state, statement.name)
    described = _described(statement)
    gid = new_id()
    oid = f"u{gid}"
    ids: dict[str, GlobalId] = {}
    retain_ms = alterations.retained(statement.retain_ms)
    chosen = _chosen(statement, described.outputs)
    outputs, parts = [], []
    source_is_relation = chosen is None
    for table in chosen or (TableReference(next(iter(described.outputs)), statement.name),):
        number_ = gid if source_is_relation else new_id()
        collection = f"u{number_}"
        ids[collection] = number_
        outputs.append(
            SourceOutput(table.reference, collection, described.outputs[table.reference])
        )
        if not source_is_relation:
            _refuse_taken(state, table.name, statement.name)
            text = _part_sql(table.name, statement.name, table.reference)
            parts.append(_part(table.name, text, collection, oid, collection, retain_ms))
    definition = SourceDefinition(oid, described.upstream, tuple(outputs))
    kept = definition.ingestion
    taken = {statement.name, *(part.name for part in parts)}
    beside = [(PROGRESS, kept.remap), (ERRORS, kept.dead_letters)]
    for what, collection in beside:
        ids[collection] = new_id()
        if what == ERRORS and all(o.decoding.envelope == "rows" for o in outputs):
            continue
        name = _free(state, f"{statement.name}_{what}", taken)
        text = _part_sql(name, statement.name, what)
        parts.append(_part(name, text, collection, oid, f"u{ids[collection]}", retain_ms))
    source = catalog.Object(
        statement.name,
        "source",
        sql,
        oid if source_is_relation else "",
        id=oid,
        retain_ms=retain_ms,
    )
    named = tuple(catalog.put(each) for each in (source, *parts))

    def make(also: tuple[Command, ...]) -> None:
        ingestions.create(definition, ids, also)

    return Change(tag, named, (make,))


def _part(
    name: str, sql: str, collection: str, of: str, oid: str, retain_ms: int
) -> catalog.Object:
    return catalog.Object(name, "source", sql, collection, (of,), oid, retain_ms=retain_ms, of=of)


def _part_sql(name: str, source: str, reference: str) -> str:
    named, of, from_ = (each.replace('"', '""') for each in (name, source, reference))
    return f'CREATE SUBSOURCE "{named}" OF SOURCE "{of}" (REFERENCE "{from_}")'


def _refuse_taken(state: State, name: str, source: str) -> None:
    if name == source or catalog.find(state, name) is not None:
        raise DuplicateRelation(name, hint=f'Call it otherwise: FOR TABLES ("{name}" AS …).')
    catalog.refuse_duplicate(state, name)


def _free(state: State, name: str, taken: set[str]) -> str:
    """Return a name that nothing has: this, or with a number behind it."""
    found, number_ = name, 0
    while found in taken or catalog.find(state, found) is not None:
        number_ += 1
        found = f"{name}{number_}"
    taken.add(found)
    return found


def _chosen(
    statement: CreateSource, outputs: Mapping[str, Decoding]
) -> Sequence[TableReference] | None:
    """Return which outputs are wanted, and what they are called; None: the source is its own."""
    if statement.tables:
        for table in statement.tables:
            if table.reference not in outputs:
                there = ", ".join(outputs)
                raise InvalidDefinition(
                    f'there is no table "{table.reference}" upstream', hint=f"There are {there}."
                )
        return statement.tables
    if statement.tables is None and len(outputs) == 1:
        return None
    return [TableReference(each, each.rpartition(".")[2]) for each in outputs]


def _described(statement: CreateSource) -> Described:
    match statement.upstream:
        case LoadGenerator():
            return _generator(statement.upstream)


def _generator(generator: LoadGenerator) -> Described:
    given, kind = generator.options, generator.kind
    takes = OPTIONS[kind]
    what = f"LOAD GENERATOR {kind.upper()}"
    refuse_others(what, given, ("tick interval", "up to", *takes))
    tick_ms = duration("tick interval", given.get("tick interval", "1s"))
    limit = number("up to", given["up to"]) if "up to" in given else None
    options = {takes[name]: number(name, given[name]) for name in takes if name in given}
    first = options.get("keys", 100) if kind == "key value" else 0
    upstream = Generated(kind, tick_ms, first, limit, options)
    try:
        return Described(upstream, generated_outputs(kind, options))
    except InvalidUsage as error:
        raise InvalidDefinition(str(error)) from error


# ---- what others ask -----------------------------------------------------------------------------


def kind(state: State, each: catalog.Object) -> str:
    """Return what sort of source an object is, as SHOW SOURCES says it."""
    if each.of:
        parent = catalog.by_id(state, each.of)
        kept = definition_of(state, parent.id).ingestion
        return (
            "progress"
            if each.collection == kept.remap
            else ("errors" if each.collection == kept.dead_letters else "subsource")
        )
    return definition_of(state, each.id).kind


def definition_of(state: State, oid: str) -> SourceDefinition:
    """Return the definition of a source."""
    return decoded(state.items[PREFIX + oid])


def refuse_part(state: State, each: catalog.Object) -> None:
    """Refuse to drop what a source keeps, alone."""
    if each.of:
        raise PartOfSource(each.name, catalog.by_id(state, each.of).name)
