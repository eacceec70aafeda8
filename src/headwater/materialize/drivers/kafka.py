"""Kafka as a driver of the protocol: the endpoint is authoritative, by its own transactions.

A binding goes into a topic, a row as a message: key and value are JSON, the key an object of the
key columns. Without more the topic is a changelog by key, as compacted topics are: a row that came
or changed is its newest message, one that went a message without a value. With ``DELTA UPDATES``
every row that came or went is a message, marked in ``_meta/op``.

A transaction of ours is one of Kafka's: its messages, and the checkpoint as a record of the
progress topic (``kafka_progress``). Acknowledged is said as soon as it is committed. Readers with
``isolation.level=read_committed`` see each transaction whole and once. Delivery is exactly once.

Invariant:      the last visible record of the progress topic is the checkpoint of the visible
                messages. There is one transactional id per materialization; Open takes it over,
                which ends what an earlier session left open and fences it; then it asks where that
                stood. So there is one shard.

A topic cannot be asked for the row of a key: ``REDUCE`` is served with ``DELTA UPDATES`` only.
Topics that are not there are made; those by key are compacted, and nothing of them is ever too old.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import msgspec
from confluent_kafka import (
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from headwater.base.errors import Determinate, Indeterminate, InvalidUsage
from headwater.materialize.checkpoint import from_text, to_text
from headwater.materialize.definition import ROWS
from headwater.materialize.documents import to_documents
from headwater.materialize.drivers.columns import Column, columns_of, constraints, json_fields
from headwater.materialize.drivers.fences import FencedOff
from headwater.materialize.drivers.kafka_progress import (
    TIMEOUT_SECONDS,
    Progress,
    last_checkpoint,
    progress_topic,
)
from headwater.materialize.drivers.responder import NotServed, specified
from headwater.materialize.drivers.sql import HARD_DELETE_SCHEMA, backfilled
from headwater.materialize.key_range import KeyHash, KeyRange
from headwater.materialize.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Applied,
    Apply,
    Flush,
    Flushed,
    Load,
    LoadMany,
    Open,
    Opened,
    Request,
    Response,
    Spec,
    StartCommit,
    StartedCommit,
    Store,
    StoreMany,
    Validate,
    Validated,
    ValidatedBinding,
)
from headwater.materialize.protocol.specs import (
    EXPLICIT_ZERO,
    BindingSpec,
    Checkpoint,
    CollectionSpec,
    MaterializationSpec,
)

COMMIT_ATTEMPTS_MAX: Final = 5
_TRANSACTION_MS: Final = 300_000
_POLL_EVERY: Final = 1_000
_LOOK_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.2
_QUEUE_SECONDS: Final = 120.0
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_CLIENT: Final[Mapping[str, Any]] = {
    "client.id": "headwater",
    "log_level": 0,  # What matters is raised, and becomes the materialization's status.
}
_PRODUCER: Final[Mapping[str, Any]] = {
    "partitioner": "murmur2_random",  # Where Kafka's own producers put the same key.
    "compression.type": "lz4",
    "queue.buffering.max.kbytes": 32 * 1024,
    "transaction.timeout.ms": _TRANSACTION_MS,
}
_BY_KEY: Final[Mapping[str, str]] = {
    # Only what may be deleted from can be emptied for a backfill.
    "cleanup.policy": "compact,delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)


class Fenced(FencedOff):
    """Another session has taken over our transactional id."""

    def __init__(self, materialization: str) -> None:
        super().__init__(
            f"materialization {materialization!r} was opened by another session, which has its "
            "transactional id now; nothing of ours is visible"
        )


class KafkaDriver:
    """A driver for the topics of one cluster."""

    documentation_url: ClassVar[str] = "https://kafka.apache.org/documentation"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {
            "broker": {"type": "string", "title": "host:port of a broker, or several"},
            "bootstrap.servers": {"type": "string", "title": "The same, as librdkafka names it"},
            "sasl.password": {"type": "string", "title": "Password", "secret": True},
            "hardDelete": HARD_DELETE_SCHEMA,
        },
    }
    resource_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["topic"],
        "properties": {
            "topic": {"type": "string", "title": "Topic", "x-collection-name": True},
            "delta_updates": {"type": "boolean", "x-delta-updates": True},
        },
    }

    def __init__(self) -> None:
        self._materialization = MaterializationSpec()
        self._columns: tuple[tuple[Column, ...], ...] = ()
        self._options: dict[str, Any] = {}
        self._hard_delete = True
        self._producer: Producer | None = None
        self._in_transaction = False

    def respond(self, request: Request) -> Iterator[Response]:
        """Act upon a request; yield the responses to it."""
        match request:
            case Spec():
                yield specified(self)
            case Validate():
                yield self._validated(request)
            case Apply():
                yield self._applied(request)
            case Open():
                yield Opened(self._opened(request))
                # Whatever was committed is visible, and there is nothing else to apply.
                yield Acknowledged()
            case Acknowledge():
                return
            case Flush():
                yield Flushed()
            case StoreMany():
                self._store(request)
            case StartCommit():
                self._commit(request.runtime_checkpoint or Checkpoint())
                yield StartedCommit()
                yield Acknowledged()
            case Load() | LoadMany() | Store():
                raise NotServed(request)

    def close(self) -> None:
        """Send nothing more; a transaction that is open is ended by whoever opens next."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def _connect(self, config_json: bytes) -> None:
        config = msgspec.json.decode(config_json)
        options = {name: value for name, value in config.items() if "." in name}
        if "broker" in config:
            options["bootstrap.servers"] = config["broker"]
        if "bootstrap.servers" not in options:
            raise InvalidUsage("KAFKA needs the option BROKER: host:port of a broker")
        self._options = {**_CLIENT, **options}
        self._hard_delete = bool(config.get("hardDelete", True))

    @contextmanager
    def _failing(self, what: str, *, perhaps: bool = False) -> Iterator[None]:
        """Tell what Kafka refused; ``perhaps``: it may have happened."""
        try:
            yield
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() in _FENCED:
                raise Fenced(self._materialization.name) from failure
            where = self._options["bootstrap.servers"]
            told = f"{what} Kafka at {where}: {error.str()}"
            raise (Indeterminate if perhaps else Determinate)(told) from failure

    # Spec, Validate, Apply.

    def _validated(self, request: Validate) -> Validated:
        self._connect(request.config_json)
        there = self._topics()
        bindings = []
        for binding in request.bindings:
            resource = msgspec.json.decode(binding.resource_config_json)
            topic, delta = resource["topic"], bool(resource.get("delta_updates", False))
            if not _TOPIC.match(topic) or topic in (".", ".."):
                raise InvalidUsage(f"{topic!r} is no topic: use letters, digits and . _ -")
            collection = binding.collection or CollectionSpec()
            if not delta and any(p.field == ROWS for p in collection.projections):
                raise InvalidUsage(
                    f"a topic cannot be asked for the row of a key, which REDUCE into {topic!r} "
                    "needs: reduce in a view, or add DELTA UPDATES"
                )
            bindings.append(
                ValidatedBinding(
                    constraints=tuple(constraints(collection, {}, lambda _, __: True, delta=delta)),
                    resource_path=(topic,),
                    delta_updates=delta,
                    holds_data=topic in there and self._holds_data(topic, there[topic]),
                )
            )
        return Validated(tuple(bindings))

    def _topics(self) -> Mapping[str, int]:
        """Return how many partitions each topic has."""
        noted: list[KafkaError] = []
        admin = AdminClient({**self._options, "error_cb": noted.append})
        deadline = time.monotonic() + TIMEOUT_SECONDS
        with self._failing("cannot ask for the topics of"):
            while True:
                try:
                    found = admin.list_topics(timeout=_LOOK_SECONDS).topics
                except KafkaException as failure:
                    admin.poll(0)  # Serves error_cb: why there is no answer.
                    down = any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in noted)
                    if down or time.monotonic() > deadline:
                        # That all brokers are down says less than why one of them is.
                        raise KafkaException((noted or failure.args)[0]) from failure
                else:
                    return {name: len(topic.partitions) for name, topic in found.items()}

    def _offsets(self, topic: str, partitions: int, spec: OffsetSpec) -> list[int]:
        asked = {TopicPartition(topic, number): spec for number in range(partitions)}
        with self._failing(f"cannot ask for the offsets of topic {topic!r} of"):
            admin = AdminClient(self._options)  # It must outlive what it was asked.
            answers = admin.list_offsets(asked, request_timeout=TIMEOUT_SECONDS)
            return [answers[place].result().offset for place in asked]

    def _holds_data(self, topic: str, partitions: int) -> bool:
        begins, ends = (
            self._offsets(topic, partitions, spec)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        return begins != ends

    def _applied(self, request: Apply) -> Applied:
        assert request.materialization is not None
        self._materialization = request.materialization
        self._connect(request.materialization.config_json)
        there, done = self._topics(), []
        progress = progress_topic(request.materialization.name)
        if progress not in there:
            done.append(f"create topic {progress}")
            if not request.dry_run:
                self._create(NewTopic(progress, 1, config={"cleanup.policy": "compact"}))
        elif there[progress] != 1:
            raise InvalidUsage(
                f"topic {progress!r} keeps our checkpoints and must have one partition"
            )
        emptied = [path[-1] for path in backfilled(request) if path[-1] in there]
        done += [f"empty topic {topic}" for topic in emptied]
        if emptied and not request.dry_run:
            self._empty({topic: there[topic] for topic in emptied})
        for binding in request.materialization.bindings:
            topic = binding.resource_path[-1]
            if topic not in there:
                done.append(f"create topic {topic}")
                if not request.dry_run:
                    by_key = {} if binding.delta_updates else dict(_BY_KEY)
                    self._create(NewTopic(topic, -1, config=by_key))
        return Applied(";\n".join(done))

    def _create(self, topic: NewTopic) -> None:
        admin, deadline = AdminClient(self._options), time.monotonic() + TIMEOUT_SECONDS
        with self._failing(f"cannot create topic {topic.topic!r} of"):
            while True:
                try:
                    admin.create_topics([topic])[topic.topic].result()
                except KafkaException as failure:
                    code = failure.args[0].code()
                    if code == KafkaError.TOPIC_ALREADY_EXISTS:
                        return
                    # So a cluster says it, too, that has no broker to spare for a moment.
                    passing = code == KafkaError.INVALID_REPLICATION_FACTOR
                    if not passing or time.monotonic() > deadline:
                        raise
                    time.sleep(_PAUSE_SECONDS)
                else:
                    return

    def _empty(self, topics: Mapping[str, int]) -> None:
        # With the messages goes the right of whoever delivered them to add others.
        self._take_over()
        for topic, partitions in topics.items():
            ends = self._offsets(topic, partitions, OffsetSpec.latest())
            places = [TopicPartition(topic, number, end) for number, end in enumerate(ends)]
            with self._failing(f"cannot empty topic {topic!r} of"):
                admin = AdminClient(self._options)
                for answer in admin.delete_records(places).values():
                    try:
                        answer.result()
                    except KafkaException as failure:
                        if failure.args[0].code() != KafkaError.POLICY_VIOLATION:
                            raise
                        raise Determinate(
                            f"topic {topic!r} cannot be emptied, because it is only compacted: "
                            "let its cleanup.policy be 'compact,delete', or delete the topic"
                        ) from failure

    # Transactions.

    def _take_over(self) -> Producer:
        """Become the holder of the transactional id: nothing of another session comes any more."""
        self.close()
        own = {"transactional.id": f"headwater.{self._materialization.name}"}
        with self._failing("cannot begin transactions in"):
            self._producer = Producer({**_PRODUCER, **self._options, **own})
            self._producer.init_transactions(TIMEOUT_SECONDS)
        return self._producer

    def _opened(self, request: Open) -> Checkpoint:
        assert request.materialization is not None
        assert request.range is not None
        opened = KeyRange(KeyHash(request.range.key_begin), KeyHash(request.range.key_end))
        if opened != KeyRange.full():
            raise InvalidUsage("a materialization into KAFKA has one shard")
        self._materialization = request.materialization
        self._columns = tuple(map(columns_of, request.materialization.bindings))
        self._connect(request.materialization.config_json)
        self._take_over()
        with self._failing("cannot read the last checkpoint from"):
            text = last_checkpoint(self._options, progress_topic(request.materialization.name))
        return EXPLICIT_ZERO if text is None else from_text(text)

    def _begun(self) -> Producer:
        assert self._producer is not None
        if not self._in_transaction:
            self._producer.begin_transaction()
            self._in_transaction = True
        return self._producer

    def _store(self, request: StoreMany) -> None:
        binding = self._materialization.bindings[request.binding]
        columns = self._columns[request.binding]
        gone = [False] * request.rows.num_rows
        if self._hard_delete and not binding.delta_updates:
            gone = request.delete.to_pylist()
        rows = request.rows.select([column.name for column in columns])
        documents = to_documents(rows, json_fields(columns))
        keys = [column.name for column in columns if column.key]
        with self._failing(f"cannot write to topic {binding.resource_path[-1]!r} of"):
            producer = self._begun()
            for number, (document, goes) in enumerate(zip(documents, gone, strict=True)):
                value = None if goes else msgspec.json.encode(document)
                self._produce(producer, binding, _key(document, keys), value)
                if number % _POLL_EVERY == 0:
                    producer.poll(0)

    def _produce(
        self, producer: Producer, binding: BindingSpec, key: bytes, value: bytes | None
    ) -> None:
        deadline = time.monotonic() + _QUEUE_SECONDS
        while True:
            try:
                producer.produce(binding.resource_path[-1], value, key=key)
            except BufferError as full:
                if time.monotonic() > deadline:
                    where = self._options["bootstrap.servers"]
                    raise Determinate(f"Kafka at {where} takes no more messages") from full
                producer.poll(0.1)
            else:
                return

    def _commit(self, checkpoint: Checkpoint) -> None:
        progress = progress_topic(self._materialization.name)
        name = self._materialization.name.encode()
        with self._failing("cannot write the checkpoint to"):
            producer = self._begun()
            value = msgspec.json.encode(Progress(to_text(checkpoint)))
            producer.produce(progress, value, key=name, partition=0)
        with self._failing("cannot commit to", perhaps=True):
            for attempt in range(COMMIT_ATTEMPTS_MAX):
                try:
                    # What could not be sent is told here, and the whole transaction with it.
                    producer.commit_transaction(TIMEOUT_SECONDS)
                    break
                except KafkaException as failure:
                    last = attempt + 1 == COMMIT_ATTEMPTS_MAX
                    if last or not failure.args[0].retriable():
                        raise
        self._in_transaction = False


def _key(document: Mapping[str, Any], keys: Sequence[str]) -> bytes:
    return msgspec.json.encode({name: document[name] for name in keys})
