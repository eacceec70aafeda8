"""What a source is, durably: its upstream, its outputs, and how messages become rows.

A :class:`SourceDefinition` is kept as the item ``source/<id>`` of the log and never changes, but
for whether it is paused. From it and from what is durable a process makes everything else: the
:class:`~.source.Source` that reads upstream (:func:`upstream_of`) and the
:class:`~.ingestion.Definition` of the ingestion. It names a connection by its id; what that says
(an address, a password) is asked for when it is used, and is in no definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from headwater.base.clock import Clock
from headwater.base.decoding import from_json
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.persist import evolution
from headwater.storage.dead_letters import Policy
from headwater.storage.decode import Included, What
from headwater.storage.envelope import Debezium, Envelope, Plain, Rows, Upsert
from headwater.storage.errors import TransientError
from headwater.storage.format import Bytes, Csv, Format, Json, JsonText, Text
from headwater.storage.generators.auction import Auctions
from headwater.storage.generators.counter import Counter
from headwater.storage.generators.generator import Generator, Stream
from headwater.storage.generators.key_value import KeyValue
from headwater.storage.generators.nexmark import Nexmark
from headwater.storage.generators.tpch import Tpch
from headwater.storage.inbox import Inbox
from headwater.storage.keyed_changes import Keyed
from headwater.storage.message_schema import (
    MessageSchema,
    Registries,
    changes_of,
    format_of,
    nowhere,
)
from headwater.storage.outputs import Definition, Output
from headwater.storage.registry import connected
from headwater.storage.source import HEADERS, TIMESTAMP, Reliance, Source
from headwater.storage.sources.files import Files
from headwater.storage.sources.folders import folder_of
from headwater.storage.sources.postgres import Postgres
from headwater.storage.sources.webhook import Algorithm, Body, Spelling, Webhook

PREFIX: Final = "source/"

POLL_MS: Final = 1_000
"""How often upstream is probed, where nothing says more."""
POLL_MIN_MS: Final = 50

Generators = Literal["counter", "auction", "key value", "nexmark", "tpch"]
Formats = Literal["json", "csv", "text", "bytes", "avro", "protobuf"]
Envelopes = Literal["rows", "keyed", "none", "upsert", "debezium"]

_KEY_TEXT: Final = pa.schema([pa.field("key", pa.string(), nullable=False)])
_KEY_BYTES: Final = pa.schema([pa.field("key", pa.binary(), nullable=False)])

Connections = Callable[[str], Mapping[str, Any]]
"""From the id of a connection to what it says now, secrets included."""


class Generated(msgspec.Struct, frozen=True, tag="generator"):
    """A load generator: one place every ``tick_ms``, the first ``first`` of them at once."""

    stream: Generators
    tick_ms: int = 1_000
    first: int = 0
    limit: int | None = None
    options: dict[str, int] = {}


class FromFiles(msgspec.Struct, frozen=True, tag="files"):
    """The files of a directory, or of ``s3://bucket/prefix``."""

    path: str
    kind: Literal["lines", "parquet"]
    pattern: str = "**/*"
    header: bool = False


class FromPostgres(msgspec.Struct, frozen=True, tag="postgres"):
    """Tables of a publication, through a slot of our own."""

    connection: str
    publication: str
    slot: str
    oids: dict[str, int] = {}
    """What each table was when the source was made; another of its name is another table."""


class FromKafka(msgspec.Struct, frozen=True, tag="kafka"):
    """The messages of a topic."""

    connection: str
    topic: str
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"


class FromMySql(msgspec.Struct, frozen=True, tag="mysql"):
    """Tables of a server, by its binary log."""

    connection: str
    server: str
    """Which one it was when the source was made; positions in the log of another mean nothing."""


class FromWebhook(msgspec.Struct, frozen=True, tag="webhook"):
    """What others POST; signed with a secret, which is named by its id, unless that is empty."""

    secret: str = ""
    header: str = "X-Signature-256"
    algorithm: Algorithm = "sha256"
    spelling: Spelling = "hex"
    body: Body = "message"
    bytes_max: int = 2**20
    """How large a request may be."""


KAFKA_OUTPUT: Final = "messages"
"""The one output of a topic (``sources/kafka.py``, which not everybody can import)."""

Upstream = Generated | FromFiles | FromPostgres | FromKafka | FromMySql | FromWebhook


class Decoding(msgspec.Struct, frozen=True):
    """How the records of an output become its rows."""

    envelope: Envelopes
    schema: bytes = b""
    """The columns of a row; of an upsert with a key of its own: of the value."""
    format: Formats = "json"
    key: tuple[str, ...] = ()
    key_schema: bytes = b""
    delimiter: str = ","
    policy: Literal["fail", "skip"] = "fail"
    included: tuple[tuple[What, str], ...] = ()
    """Columns of the message itself (of a topic): which, and what each is called."""
    reader: MessageSchema | None = None
    """Of Avro and Protobuf: the schema that has the columns."""
    key_format: Literal["", "json", "text", "bytes", "avro", "protobuf"] = ""
    """How the key of a message is read; empty: as JSON, by ``key_schema``."""
    key_reader: MessageSchema | None = None

    def made(self, registries: Registries = nowhere) -> Envelope | Keyed:
        """Return the envelope."""
        policy = Policy(self.policy)
        if self.envelope == "rows":
            return Rows(evolution.from_bytes(self.schema))
        if self.envelope == "keyed":
            return Keyed(evolution.from_bytes(self.schema), self.key)
        if self.envelope == "none":
            return Plain(self._format(registries), policy, included=self._included())
        if self.envelope == "debezium":
            if self.reader is not None:
                return Debezium(changes_of(self.reader, registries), policy)
            return Debezium(Json(evolution.from_bytes(self.schema)), policy)
        format_, key_format = self._format(registries), self._format_of_key(registries)
        return Upsert(format_, self.key, key_format, policy, included=self._included())

    def _included(self) -> tuple[Included, ...]:
        types: dict[str, pa.DataType] = {"partition": pa.int32(), "headers": pa.string()}
        if self.format in ("json", "csv", "text"):
            types["key"] = pa.string()
        return tuple(Included(what, name, types.get(what)) for what, name in self.included)

    def _format_of_key(self, registries: Registries) -> Format | None:
        match self.key_format:
            case "":
                return Json(evolution.from_bytes(self.key_schema)) if self.key_schema else None
            case "text":
                return Text(_KEY_TEXT)
            case "json":
                return JsonText(_KEY_TEXT)
            case "bytes":
                return Bytes(_KEY_BYTES)
            case "avro" | "protobuf":
                assert self.key_reader is not None
                return format_of(self.key_format, self.key_reader, registries, alone="key")

    def _format(self, registries: Registries) -> Format:
        match self.format:
            case "avro" | "protobuf":
                assert self.reader is not None
                return format_of(self.format, self.reader, registries, alone="data")
            case "text":
                return Text()
            case "bytes":
                return Bytes()
            case "csv":
                return Csv(evolution.from_bytes(self.schema), self.delimiter)
            case "json":
                return Json(evolution.from_bytes(self.schema)) if self.schema else JsonText()


class SourceOutput(msgspec.Struct, frozen=True):
    """One output: what upstream calls it, its collection, its rows."""

    reference: str
    collection: str
    decoding: Decoding


class SourceDefinition(msgspec.Struct, frozen=True):
    """One source. ``id`` is the one of the catalog; two with equal arguments are two."""

    id: str
    upstream: Upstream
    outputs: tuple[SourceOutput, ...]
    paused: bool = False
    """Somebody wants it to stand still, over restarts too."""

    @property
    def ingestion(self) -> Definition:
        """What the ingestion keeps."""
        return self._ingestion(nowhere)

    def ingesting(self, connections: Connections) -> Definition:
        """Return the ingestion as it is run, with all that its messages need to be read."""
        return self._ingestion(
            lambda registry: connected(_said(connections, registry, self.id), self.kind)
        )

    def _ingestion(self, registries: Registries) -> Definition:
        outputs = (
            Output(o.reference, o.collection, o.decoding.made(registries)) for o in self.outputs
        )
        return Definition(self.id, tuple(outputs))

    @property
    def poll_ms(self) -> int:
        """How often upstream is probed."""
        if isinstance(self.upstream, Generated):
            return min(POLL_MS, max(POLL_MIN_MS, self.upstream.tick_ms))
        return POLL_MS

    @property
    def reliance(self) -> Reliance:
        """What it needs upstream to keep."""
        match self.upstream:
            case Generated():
                return Reliance.NONE
            case FromFiles() | FromKafka() | FromMySql():
                return Reliance.RETAINED
            case FromPostgres() | FromWebhook():
                return Reliance.BOUNDED

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each output, where upstream has rows, by upstream's name."""
        return {o.reference: evolution.from_bytes(o.decoding.schema) for o in self.outputs}

    @property
    def included(self) -> list[str]:
        """What of a message beside key and value its outputs ask for."""
        asked = {what for o in self.outputs for what, _ in o.decoding.included}
        return sorted(asked & {TIMESTAMP, HEADERS})

    @property
    def kind(self) -> str:
        """What sort of source it is, in a word."""
        match self.upstream:
            case Generated():
                return "load-generator"
            case FromFiles():
                return "files"
            case FromPostgres():
                return "postgres"
            case FromKafka():
                return "kafka"
            case FromMySql():
                return "mysql"
            case FromWebhook():
                return "webhook"


def encoded(definition: SourceDefinition) -> bytes:
    """Return the durable form."""
    return msgspec.json.encode(definition)


def decoded(value: bytes) -> SourceDefinition:
    """Return a definition from its durable form."""
    return from_json(value, SourceDefinition)


# ---- generators ----------------------------------------------------------------------------------

OPTIONS: Final[Mapping[Generators, Mapping[str, str]]] = {
    "counter": {"max cardinality": "keep"},
    "auction": {"seed": "seed", "bids": "bids", "lasting": "lasting"},
    "key value": {
        "keys": "keys",
        "seed": "seed",
        "value size": "value_bytes",
        "deletes": "deletes",
    },
    "nexmark": {"seed": "seed", "lasting": "lasting"},
    "tpch": {"orders": "orders", "refresh": "refresh", "seed": "seed"},
}
"""The options of each generator beside TICK INTERVAL and UP TO, with the argument each gives."""

_KEY: Final = pa.schema([pa.field("key", pa.int64(), nullable=False)])
_VALUE: Final = pa.schema([pa.field("value", pa.string()), pa.field("place", pa.int64())])


def stream_of(kind: Generators, given: Mapping[str, int]) -> Stream:
    """Return a generator's stream; refuse options that it cannot have."""
    options: dict[str, Any] = dict(given)
    try:
        match kind:
            case "counter":
                return Counter(**options)
            case "auction":
                return Auctions(**options)
            case "key value":
                return KeyValue(**{"keys": 100, **options})
            case "nexmark":
                return Nexmark(**options)
            case "tpch":
                return Tpch(**options)
    except (TypeError, ValueError) as error:
        raise InvalidUsage(f"load generator {kind.upper()}: {error}") from error


def generated_outputs(kind: Generators, options: Mapping[str, int]) -> dict[str, Decoding]:
    """Return the outputs of a generator, by its own names, and how each becomes rows."""
    if kind == "key value":
        value, key = evolution.to_bytes(_VALUE), evolution.to_bytes(_KEY)
        return {"key_value": Decoding("upsert", value, key=("key",), key_schema=key)}
    outputs = stream_of(kind, options).outputs
    return {name: Decoding("rows", evolution.to_bytes(s)) for name, s in outputs.items()}


# ---- what reads upstream -------------------------------------------------------------------------


def upstream_of(
    definition: SourceDefinition,
    clock: Clock,
    connections: Connections,
    inboxes: Callable[[str], Inbox],
) -> Source:
    """Return what reads the upstream of a source; connects to nothing yet."""
    upstream = definition.upstream
    match upstream:
        case Generated():
            return Generator(
                stream_of(upstream.stream, upstream.options),
                clock,
                per_second=1_000 / upstream.tick_ms,
                limit=upstream.limit,
                first=upstream.first,
            )
        case FromFiles():
            schema = None
            if upstream.kind == "parquet":
                schema = evolution.from_bytes(definition.outputs[0].decoding.schema)
            folder = folder_of(upstream.path, upstream.pattern)
            return Files(folder, upstream.kind, header=upstream.header, schema=schema)
        case FromKafka():
            from headwater.storage.sources.kafka import Kafka

            return Kafka(
                _said(connections, upstream.connection, definition.id),
                upstream.topic,
                group=f"headwater-{definition.id}",
                isolation=upstream.isolation,
                include=definition.included,
            )
        case FromWebhook():
            return Webhook(inboxes(definition.id), include=definition.included)
        case FromMySql():
            from headwater.storage.sources.mysql import MySql

            said = _said(connections, upstream.connection, definition.id)
            return MySql(said, definition.schemas, server=upstream.server)
        case FromPostgres():
            tables = definition.schemas
            dsn = str(_said(connections, upstream.connection, definition.id)["dsn"])
            keys = {o.reference: o.decoding.key for o in definition.outputs if o.decoding.key}
            return Postgres(
                dsn, upstream.publication, upstream.slot, tables, oids=upstream.oids, keys=keys
            )


def _said(connections: Connections, connection: str, source: str) -> Mapping[str, Any]:
    """Return what a connection says; what is wrong with it may be mended while we wait."""
    try:
        return connections(connection)
    except HeadwaterError as error:
        raise TransientError(source, str(error)) from error
