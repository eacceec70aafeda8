"""Sources in the catalog: what ``CREATE SOURCE`` makes, and what it may be called.

A source is one object; what it keeps are others that come and go with it (``Object.of``):

- its outputs. A source of one output *is* that relation, unless ``FOR TABLES`` gives it a name of
  its own; with several each is a *subsource*;
- ``<name>_progress``: how far upstream it is, the remap collection;
- ``<name>_errors``: records that could not be decoded, where anything is decoded.

All of them are relations that a client reads and nobody but the source writes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import psycopg
import pyarrow as pa

from headwater.adapter import (
    alterations,
    catalog,
    creating,
    message_schemas,
    mysql_sources,
    namespaces,
    webhooks,
)
from headwater.adapter.change import Change, Effect
from headwater.adapter.connections import Connections, connection
from headwater.adapter.errors import DuplicateRelation, InvalidDefinition, WrongKind
from headwater.adapter.object_errors import ConnectionFailed, PartOfSource
from headwater.adapter.sql import names
from headwater.adapter.sql.options import duration, number, refuse_others, text
from headwater.adapter.sql.source_statements import (
    Connected,
    CreateSource,
    Encoding,
    Files,
    LoadGenerator,
    TableReference,
    TurnSource,
    Webhook,
)
from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.persist import evolution
from headwater.persist.commands import Command
from headwater.persist.state import State
from headwater.storage.controller import Ingestions
from headwater.storage.definition import (
    KAFKA_OUTPUT,
    OPTIONS,
    PREFIX,
    Decoding,
    FromFiles,
    FromKafka,
    FromPostgres,
    Generated,
    SourceDefinition,
    SourceOutput,
    Upstream,
    decoded,
    generated_outputs,
)
from headwater.storage.sources.files import OUTPUT as FILES_OUTPUT
from headwater.storage.sources.pg_types import Unreadable
from headwater.storage.sources.postgres import (
    discover,
    obstacles,
    table_keys,
    table_oids,
)
from headwater.storage.sources.webhook import OUTPUT as WEBHOOK_OUTPUT

PROGRESS: Final = "progress"
ERRORS: Final = "errors"


@dataclass(frozen=True, slots=True)
class Described:
    """What a statement says, looked up: where it reads, and what comes of it by upstream's name."""

    upstream: Upstream
    outputs: Mapping[str, Decoding]
    uses: tuple[str, ...] = ()
    """The id of the connection or the secret that it uses."""


def create(
    state: State,
    statement: CreateSource,
    sql: str,
    new_id: Callable[[], GlobalId],
    ingestions: Ingestions,
    reached: Connections,
) -> Change:
    """Plan a source; what it reads is asked for its tables, where it has any."""
    tag = "CREATE SOURCE"
    called = namespaces.placed(state, statement.name)
    if statement.if_not_exists and catalog.called(state, called) is not None:
        return Change(tag)
    catalog.refuse_duplicate(state, called)
    gid = new_id()
    oid = f"u{gid}"
    described = _described(state, statement, oid, reached)
    ids: dict[str, GlobalId] = {}
    retain_ms = alterations.retained(statement.retain_ms)
    chosen = _chosen(statement, described.outputs)
    outputs: list[SourceOutput] = []
    parts: list[catalog.Object] = []
    source_is_relation = chosen is None
    for table in chosen or (TableReference(next(iter(described.outputs)), called),):
        number_ = gid if source_is_relation else new_id()
        collection = f"u{number_}"
        ids[collection] = number_
        outputs.append(
            SourceOutput(table.reference, collection, described.outputs[table.reference])
        )
        if not source_is_relation:
            name = _beside(called, table.name)
            _refuse_taken(state, name, called, {part.name for part in parts})
            text = _part_sql(name, called, table.reference)
            parts.append(_part(name, text, collection, {called: oid}, collection, retain_ms))
    definition = SourceDefinition(oid, described.upstream, tuple(outputs))
    kept = definition.ingestion
    taken = {called, *(part.name for part in parts)}
    beside = [(PROGRESS, kept.remap), (ERRORS, kept.dead_letters)]
    for what, collection in beside:
        ids[collection] = new_id()
        if what == ERRORS and all(o.decoding.envelope in ("rows", "keyed") for o in outputs):
            continue
        name = _free(state, called, what, taken)
        text = _part_sql(name, called, what)
        part_id = f"u{ids[collection]}"
        parts.append(_part(name, text, collection, {called: oid}, part_id, retain_ms))
    source = catalog.Object(
        called,
        "source",
        sql,
        oid if source_is_relation else "",
        described.uses,
        oid,
        retain_ms=retain_ms,
        bindings=creating.bindings(state, sql),
    )
    named = tuple(catalog.put(each) for each in (source, *parts))

    def make(also: tuple[Command, ...]) -> None:
        ingestions.create(definition, ids, also)

    return Change(tag, named, (Effect(f'creating source "{called}"', make),))


def turn(state: State, statement: TurnSource, ingestions: Ingestions) -> Change:
    """Plan that a source stands still, or goes on: also one that stalled or failed."""
    found = catalog.named(state, statement.name)
    if found.kind != "source":
        raise WrongKind(statement.name, "source", found.kind)
    refuse_part(state, found)
    turned = ingestions.pause if statement.action == "pause" else ingestions.resume
    what = f'{statement.action} of source "{found.name}"'
    return Change("ALTER SOURCE", (), (Effect(what, lambda also: turned(found.id, also)),))


def _part(
    name: str, sql: str, collection: str, source: dict[str, str], oid: str, retain_ms: int
) -> catalog.Object:
    """Return what a source keeps; ``source``: its name and its id."""
    (of,) = source.values()
    return catalog.Object(
        name, "source", sql, collection, (of,), oid, retain_ms=retain_ms, of=of, bindings=source
    )


def _part_sql(name: str, source: str, reference: str) -> str:
    named, of = names.quoted_name(name), names.quoted_name(source)
    return f"CREATE SUBSOURCE {named} OF SOURCE {of} (REFERENCE {names.quoted(reference)})"


def _beside(source: str, name: str) -> str:
    """What is kept by a source is called in its schema."""
    own = names.schema_of(source)
    wanted, alone = names.parts(name)
    if wanted not in (None, own):
        raise InvalidDefinition(
            f'what source "{source}" keeps is in its schema, "{own}"', hint=f'Call it "{alone}".'
        )
    return names.full(own, alone)


def _refuse_taken(state: State, name: str, source: str, others: set[str]) -> None:
    if name == source or name in others or catalog.called(state, name) is not None:
        raise DuplicateRelation(name, hint=f'Call it otherwise: FOR TABLES ("{name}" AS …).')
    catalog.refuse_duplicate(state, name)


def _free(state: State, source: str, what: str, taken: set[str]) -> str:
    """Return a name that nothing has: ``source_what``, or with a number behind it."""
    schema, name = names.schema_of(source), f"{names.bare(source)}_{what}"
    found, number_ = names.full(schema, name), 0
    while found in taken or catalog.called(state, found) is not None:
        number_ += 1
        found = names.full(schema, f"{name}{number_}")
    taken.add(found)
    return found


def _chosen(
    statement: CreateSource, outputs: Mapping[str, Decoding]
) -> Sequence[TableReference] | None:
    """Return which outputs are wanted, and what they are called; None: the source is its own."""
    if statement.schemas:
        for schema in statement.schemas:
            if not any(each.partition(".")[0] == schema for each in outputs):
                raise InvalidDefinition(f'there is no schema "{schema}" with tables upstream')
        outputs = {e: d for e, d in outputs.items() if e.partition(".")[0] in statement.schemas}
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
    return [TableReference(each, names.written((each.rpartition(".")[2],))) for each in outputs]


def _described(state: State, statement: CreateSource, oid: str, reached: Connections) -> Described:
    upstream = statement.upstream
    match upstream:
        case LoadGenerator():
            return _generator(upstream)
        case Files():
            return _files(state, upstream, statement, reached)
        case Webhook():
            webhook = webhooks.described(state, upstream)
            outputs = {WEBHOOK_OUTPUT: _decoding(state, statement, reached)}
            return Described(webhook, outputs, (webhook.secret,) if webhook.secret else ())
        case Connected("kafka"):
            used = connection(state, upstream.connection, "kafka").id
            refuse_others("a source of KAFKA", upstream.options, ("topic", "isolation level"))
            topic = text("topic", upstream.options, "a source of KAFKA")
            isolation = str(upstream.options.get("isolation level", "read_committed")).lower()
            if isolation not in {"read_committed", "read_uncommitted"}:
                raise InvalidDefinition("ISOLATION LEVEL is read_committed or read_uncommitted")
            decoding = _decoding(state, statement, reached, topic)
            read = FromKafka(used, topic, cast("Any", isolation))
            return Described(
                read, {KAFKA_OUTPUT: decoding}, (used, *message_schemas.uses(decoding))
            )
        case Connected("mysql"):
            used = connection(state, upstream.connection, "mysql").id
            read_, tables = mysql_sources.described(statement, used, reached)
            return Described(read_, tables, (used,))
        case _:
            return _postgres(state, upstream, statement.tables, oid, reached)


def _postgres(
    state: State,
    upstream: Connected,
    wanted: Sequence[TableReference] | None,
    oid: str,
    reached: Connections,
) -> Described:
    used = connection(state, upstream.connection, "postgres").id
    refuse_others("a source of POSTGRES", upstream.options, ("publication", "slot"))
    publication = text("publication", upstream.options, "a source of POSTGRES")
    # Of this source alone: a name that is used again would find another's slot.
    slot = str(upstream.options.get("slot") or f"headwater_{oid}_{secrets.token_hex(4)}")
    dsn = str(reached(used)["dsn"])
    try:
        tables = discover(dsn, publication)
        named = [table.reference for table in wanted or () if table.reference in tables]
        wrong = obstacles(dsn, publication, named or tables)
        oids, keys = table_oids(dsn, publication), table_keys(dsn, publication)
    except (psycopg.Error, Unreadable) as error:
        raise ConnectionFailed(
            f'connection "{upstream.connection}"', str(error).strip(), "postgres"
        ) from error
    if not tables:
        raise InvalidDefinition(
            f'publication "{publication}" has no tables, or does not exist',
            hint=f"Upstream: CREATE PUBLICATION {publication} FOR TABLE …",
        )
    if wrong:
        raise InvalidDefinition("upstream cannot be followed yet", hint="; ".join(wrong) + ".")
    outputs = {
        name: Decoding(
            "keyed" if name in keys else "rows", evolution.to_bytes(s), key=keys.get(name, ())
        )
        for name, s in tables.items()
    }
    return Described(FromPostgres(used, publication, slot, oids), outputs, (used,))


def _files(state: State, files: Files, statement: CreateSource, reached: Connections) -> Described:
    what = "a source of FILES"
    refuse_others(what, files.options, ("path", "pattern"))
    path = text("path", files.options, what)
    pattern = str(files.options.get("pattern", "**/*"))
    encoding = statement.encoding
    assert encoding is not None, "the parser asks for it"
    if encoding.format == "parquet":
        assert statement.columns is not None, "the parser asks for them"
        upstream = FromFiles(path, "parquet", pattern)
        rows = Decoding("rows", evolution.to_bytes(statement.columns))
        return Described(upstream, {FILES_OUTPUT: rows})
    upstream = FromFiles(path, "lines", pattern, encoding.header)
    return Described(upstream, {FILES_OUTPUT: _decoding(state, statement, reached)})


def _decoding(
    state: State, statement: CreateSource, reached: Connections, topic: str = ""
) -> Decoding:
    """Return how messages become rows; those of a ``topic`` have keys of their own."""
    encoding, columns = statement.encoding, statement.columns
    assert encoding is not None, "the parser asks for it"
    if encoding.format == "parquet":
        raise InvalidDefinition("FORMAT PARQUET is of files")
    try:
        if encoding.schema is None and encoding.key_format is None:
            decoding = _by_columns(encoding, columns, keyed=bool(topic))
        else:
            decoding = message_schemas.decoding(state, encoding, columns, topic, reached)
        names = decoding.made().schema.names
    except InvalidUsage as error:
        raise InvalidDefinition(str(error)) from error
    if len(set(names)) < len(names):
        raise InvalidDefinition("two columns have one name", hint="INCLUDE … AS another name.")
    return decoding


def _by_columns(encoding: Encoding, columns: pa.Schema | None, *, keyed: bool) -> Decoding:
    """Return how messages become the columns of the statement; a key of their own is JSON."""
    assert encoding.format != "parquet", "refused before"
    for name in encoding.key:
        if columns is None or name not in columns.names:
            raise InvalidDefinition(f'the key column "{name}" is not among the columns')
    schema, key_schema = b"" if columns is None else evolution.to_bytes(columns), b""
    if encoding.envelope == "upsert" and keyed:
        assert columns is not None
        fields = [columns.field(name).with_nullable(False) for name in encoding.key]
        key_schema = evolution.to_bytes(pa.schema(fields))
        schema = evolution.to_bytes(pa.schema([f for f in columns if f.name not in encoding.key]))
    elif encoding.envelope == "upsert":
        assert columns is not None
        fields = [f.with_nullable(f.nullable and f.name not in encoding.key) for f in columns]
        schema = evolution.to_bytes(pa.schema(fields))
    return Decoding(
        encoding.envelope,
        schema,
        encoding.format,
        encoding.key,
        key_schema,
        encoding.delimiter,
        encoding.on_error,
        encoding.included,
    )


def _generator(generator: LoadGenerator) -> Described:
    given, kind = generator.options, generator.kind
    takes = OPTIONS[kind]
    what = f"LOAD GENERATOR {kind.upper()}"
    refuse_others(what, given, ("tick interval", "up to", *takes))
    tick_ms = duration("tick interval", given.get("tick interval", "1s"))
    limit = number("up to", given["up to"]) if "up to" in given else None
    options = {takes[name]: number(name, given[name]) for name in takes if name in given}
    # What is there before anything changes: all keys once, or the load.
    first = {"key value": options.get("keys", 100), "tpch": 1}.get(kind, 0)
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
    """Refuse to drop or turn what a source keeps, alone."""
    if each.of:
        raise PartOfSource(each.name, catalog.by_id(state, each.of).name)
