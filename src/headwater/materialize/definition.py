"""What a materialization is, as our log keeps it, and as the protocol describes it.

A :class:`Definition` is durable as the item ``materialization/<name>``. With the schemas of the
collections and what a driver answered to Validate it becomes a ``MaterializationSpec``.

What a binding delivers of its collection (:func:`delivered_schema`):

    standard            all columns; a row per key
    REDUCE              the key, the REDUCE columns, and :data:`ROWS`: how many rows are in them
    DELTA UPDATES       all columns and :data:`OP`; a row per insertion or deletion
    both                the key and the REDUCE columns; a row per key and transaction
    soft deletes        :data:`OP` too, where a key can be deleted
    DOCUMENT            a column with the whole row as JSON, too

:data:`ROWS` is what tells a key whose values sum up to nothing from one that has no rows left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa

from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection.schema import type_of
from headwater.materialize.pace import Tuning
from headwater.materialize.projections import DOCUMENT, OP, as_text, collection_spec
from headwater.materialize.protocol.messages import (
    Validate,
    ValidateBinding,
    Validated,
    ValidatedBinding,
)
from headwater.materialize.protocol.specs import (
    BindingSpec,
    ConnectorType,
    FieldSelection,
    MaterializationSpec,
)
from headwater.materialize.reduction.strategy import (
    CannotRetract,
    LastWriteWins,
    Retraction,
    Strategy,
    Sum,
    name_of,
    parse,
    retraction,
    takes,
)
from headwater.materialize.selection import check_selected
from headwater.materialize.wire.protobuf import encode_value

ROWS: Final = "_headwater_rows"
"""The column of a REDUCE binding that counts the rows of its key."""

CONNECTOR: Final = "connector"
"""The driver that is somebody else's program; it is configured by its command and its own config.
"""

CONFIG: Final = "config"
"""The option that is told to a connector."""

CONNECTION: Final = "connection"
"""Where a configuration names its connection."""

SECRETS: Final = "secrets"
"""Where it names the secrets that are values of its options."""

FLOW: Final = "flow"
"""Protocol 3032023, which a connector speaks unless it is said otherwise."""

ARENA: Final = "arena"
"""The protocol of document 001."""

_VERSION_BYTES: Final = 8
_DECIMAL_DIGITS_MAX: Final = 38


class UnknownColumn(InvalidUsage):
    """A column that the collection does not have."""

    def __init__(self, binding: str, column: str, schema: pa.Schema) -> None:
        super().__init__(
            f"binding {binding!r} has no column {column!r}; its columns are {schema.names}"
        )


class DocumentTaken(InvalidUsage):
    """A column for documents that has the name of another."""

    def __init__(self, binding: str, column: str) -> None:
        super().__init__(
            f"binding {binding!r} has a column {column!r} already; call that of documents otherwise"
        )


class NothingToChoose(InvalidUsage):
    """A policy for duplicate keys where all rows of a key are delivered."""

    def __init__(self, binding: str) -> None:
        super().__init__(
            f"binding {binding!r}: with REDUCE or DELTA UPDATES all rows of a key are delivered; "
            "leave DUPLICATE_KEYS out"
        )


class CannotSum(InvalidUsage):
    """A ``sum`` of what is no number."""

    def __init__(self, binding: str, column: str, kind: object) -> None:
        super().__init__(f"binding {binding!r}: {column!r} is {kind}, and only numbers have a sum")


class CannotReduce(InvalidUsage):
    """A strategy that puts arrays or objects together, of what is neither."""

    def __init__(self, binding: str, field: pa.Field, strategy: Strategy) -> None:
        super().__init__(
            f"binding {binding!r}: {field.name!r} is {type_of(field)}, and {name_of(strategy)} "
            f"reduces {' and '.join(takes(strategy))} only; make one of it in a view, or say "
            "lastWriteWins"
        )


class Endpoint(msgspec.Struct, frozen=True):
    """Where to: the name of a driver, and its configuration.

    That of :data:`CONNECTOR` has ``command`` (a list) and perhaps ``codec``, or ``endpoint`` (an
    address of gRPC) and perhaps ``protocol``; and ``config``.
    """

    driver: str
    config: Mapping[str, Any]

    @property
    def speaks_arenas(self) -> bool:
        """Whether its connector speaks the arena protocol, which cannot delete."""
        return self.driver == CONNECTOR and self.config.get("protocol") == ARENA


class Was(msgspec.Struct, frozen=True):
    """What a binding was made of before its collection was replaced (``replaced``)."""

    collection: GlobalId
    read: str
    """The read capability on it, as text."""
    until: int
    """Checkpoints up to here are of it, later ones of the collection that took its place."""


class Binding(msgspec.Struct, frozen=True):
    """One collection delivered into one resource of the endpoint."""

    name: str
    """What the user calls the collection."""
    collection: GlobalId
    target: str
    key: tuple[str, ...]
    delta_updates: bool = False
    reduce: tuple[tuple[str, str], ...] = ()
    """Columns and the names of their strategies; empty: rows are delivered as they are."""
    append_only: bool = False
    """The user's promise that no row is ever deleted or updated, for strategies that need it."""
    document: str = ""
    """The column that has the whole row as JSON; empty: there is none."""
    duplicates: str = ""
    """Which row of a key is delivered if it has several: the name of a policy (``duplicates``);
    empty: that is an error."""
    was: tuple[Was, ...] = ()
    """Others before it, the oldest first, as long as the endpoint may have rows of them."""

    @property
    def shown(self) -> str:
        """What it is called where it is spoken of: a collection may have several."""
        return f"{self.name!r} into {self.target!r}"

    @property
    def last_write_wins(self) -> bool:
        """Whether storing a document again changes nothing."""
        strategies = self.strategies().values()
        return not self.delta_updates and all(isinstance(s, LastWriteWins) for s in strategies)

    def strategies(self) -> dict[str, Strategy]:
        """Return the strategy of each ``REDUCE`` column."""
        return {column: parse({"strategy": name}) for column, name in self.reduce}


class Definition(msgspec.Struct, frozen=True):
    """A materialization."""

    name: str
    incarnation: str
    """Tells it from one of the same name that was dropped before."""
    endpoint: Endpoint
    bindings: tuple[Binding, ...]
    reads: tuple[str, ...]
    """The read capabilities, as text, one per binding."""
    hard_delete: bool = True
    """Whether a deleted key's row goes, or stays and is marked."""
    paused: bool = False
    """Whether it rests, at the checkpoint that it has, until it is resumed."""
    backfill: int = 0
    """How often everything was to be delivered anew."""
    shards: int = 1
    """How many shards are wanted; how many there are is in the log (``splits``)."""

    tuning: Tuning = Tuning()
    """How large and how frequent its transactions are."""

    @property
    def source(self) -> str:
        """The name under which endpoints keep its checkpoint."""
        version = f".v{self.backfill}" if self.backfill else ""
        return f"{self.name}/{self.incarnation}{version}"


def delivered_schema(binding: Binding, schema: pa.Schema, *, hard_delete: bool) -> pa.Schema:
    """Return the columns that a binding delivers; raise if it asks for what cannot be."""
    for column in (*binding.key, *(column for column, _ in binding.reduce)):
        if column not in schema.names:
            raise UnknownColumn(binding.name, column, schema)
    if binding.duplicates and (binding.reduce or binding.delta_updates):
        raise NothingToChoose(binding.name)
    # JSON has no order that endpoints agree upon; its canonical text has.
    fields = [as_text(field) if field.name in binding.key else field for field in schema]
    if binding.reduce:
        strategies = binding.strategies()
        fields = [as_text(schema.field(column)) for column in binding.key]
        for column, strategy in strategies.items():
            if retraction(strategy) is Retraction.REFUSED and not binding.append_only:
                raise CannotRetract(column, strategy)
            fields.append(_reduced_field(binding, schema.field(column), strategy))
        if not binding.delta_updates:
            fields.append(pa.field(ROWS, pa.int64(), nullable=False))
    if (binding.delta_updates and not binding.reduce) or (
        not binding.delta_updates and not hard_delete
    ):
        fields.append(pa.field(OP, pa.string(), nullable=False))
    if binding.document:
        if binding.document in (*schema.names, *(field.name for field in fields)):
            raise DocumentTaken(binding.name, binding.document)
        fields.append(pa.field(binding.document, pa.string(), False, DOCUMENT))
    return pa.schema(fields)


def _reduced_field(binding: Binding, field: pa.Field, strategy: Strategy) -> pa.Field:
    if isinstance(strategy, LastWriteWins):
        return field
    kind = field.type
    if not isinstance(strategy, Sum):
        if takes(strategy) and _nested(kind) not in takes(strategy):
            raise CannotReduce(binding.name, field, strategy)
        return field.with_nullable(True)
    if pa.types.is_integer(kind):
        return pa.field(field.name, pa.int64(), nullable=False)
    if pa.types.is_floating(kind):
        return pa.field(field.name, pa.float64(), nullable=False)
    if pa.types.is_decimal(kind):
        summed = pa.decimal128(_DECIMAL_DIGITS_MAX, kind.scale)
        return pa.field(field.name, summed, nullable=False)
    raise CannotSum(binding.name, field.name, kind)


def _nested(kind: pa.DataType) -> str:
    """Return what values are in a document, of those that others are in; else nothing."""
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return "structs"
    return "arrays" if pa.types.is_list(kind) or pa.types.is_large_list(kind) else ""


def state_key(resource_path: Sequence[str], backfill: int = 0) -> str:
    """Return the name under which a binding's progress is kept.

    >>> state_key(("public", "by k"))
    'public%2Fby%20k.v0'
    """
    return quote("/".join(resource_path), safe="+=").replace("~", "%7E") + f".v{backfill}"


def to_validate(
    definition: Definition,
    resources: Sequence[Mapping[str, Any]],
    delivered: Sequence[pa.Schema],
    last: MaterializationSpec | None = None,
    last_version: str = "",
) -> Validate:
    """Return the question whether a driver can do what is wished for."""
    if definition.endpoint.driver == CONNECTOR and any(b.document for b in definition.bindings):
        raise InvalidUsage("a binding into CONNECTOR has no column for documents: it is given them")
    return Validate(
        definition.name,
        ConnectorType.LOCAL,
        config_json(definition),
        tuple(
            ValidateBinding(
                resource_config_json=msgspec.json.encode(resource, order="deterministic"),
                collection=collection_spec(binding.name, schema, binding.key),
                backfill=definition.backfill,
                group_by=binding.key,
            )
            for binding, resource, schema in zip(
                definition.bindings, resources, delivered, strict=True
            )
        ),
        last,
        last_version,
    )


def to_spec(definition: Definition, asked: Validate, validated: Validated) -> MaterializationSpec:
    """Return the materialization with what a driver answered; raise if it cannot be."""
    bindings = []
    for binding, wish, answer in zip(
        definition.bindings, asked.bindings, validated.bindings, strict=True
    ):
        assert wish.collection is not None
        fields = tuple(projection.field for projection in wish.collection.projections)
        check_selected(binding.name, fields, answer)
        _check_mode(binding, answer)
        kept = state_key(answer.resource_path, definition.backfill)
        bindings.append(
            BindingSpec(
                resource_config_json=wish.resource_config_json,
                resource_path=answer.resource_path,
                collection=wish.collection,
                field_selection=FieldSelection(
                    keys=binding.key,
                    values=tuple(sorted(set(fields) - set(binding.key))),
                ),
                delta_updates=binding.delta_updates or answer.delta_updates,
                journal_read_suffix=f"materialize/{definition.name}/{kept}",
                backfill=definition.backfill,
                state_key=kept,
            )
        )
    return MaterializationSpec(
        name=definition.name,
        connector_type=ConnectorType.LOCAL,
        config_json=config_json(definition),
        bindings=tuple(bindings),
    )


def version_of(spec: MaterializationSpec) -> str:
    """Return a version that changes with the spec."""
    return blake2b(encode_value(spec), digest_size=_VERSION_BYTES).hexdigest()


def config_json(definition: Definition) -> bytes:
    """Return the endpoint's configuration, as the driver reads it."""
    given = definition.endpoint.config
    if definition.endpoint.driver == CONNECTOR:
        hidden = {SECRETS: given[SECRETS]} if SECRETS in given else None
        return msgspec.json.encode(hidden or given.get(CONFIG, {}), order="deterministic")
    config = {**given, "hardDelete": definition.hard_delete}
    return msgspec.json.encode(config, order="deterministic")


def _check_mode(binding: Binding, answer: ValidatedBinding) -> None:
    if answer.delta_updates and not binding.delta_updates:
        raise InvalidUsage(
            f"binding {binding.name!r}: the endpoint takes only delta updates; say DELTA UPDATES"
        )
    if binding.delta_updates and not answer.delta_updates:
        raise InvalidUsage(f"binding {binding.name!r}: the endpoint takes no delta updates")
