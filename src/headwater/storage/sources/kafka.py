"""Kafka: the messages of one topic, through confluent-kafka (the extra ``kafka``).

A partition of the topic is a partition here, named by its number, and its offsets are Kafka's. One
row more of every frontier is the topic itself (``topic <id>``, at 1): the id that the cluster gave
this topic and no other. So it is bound in remap from the first probe on, and a topic that was
deleted and made again, with however much in it, is told from the one we have read.

**Probe.** Partitions as they are now (new ones begin at 0), and of each the *last stable offset*:
with ``read_committed`` nothing beyond the first open transaction, so that what a probe reports can
be read, and never changes. With ``read_uncommitted`` it is the high watermark.

**Read** gives exactly the messages in a range (``sources/kafka_ranges.py``), which may be fewer
than its offsets: markers, aborted messages and what a compaction has removed leave gaps. Before it
is done it asks the topic's id again. Of a range from 0 on it gives what the topic still retains:
that is the snapshot.

**Commit** commits the offsets of the consumer group, for tools that show lag, and for nothing else.
A restart asks our own frontiers; a failed commit is not even a status.

Reliance *retained upstream*: the topic keeps messages by its own retention, which must be longer
than this source is ever away. Offsets that were deleted before they were ingested, and a topic made
again, are definite errors; a broker that is away, wrong credentials, and a topic that does not
exist (yet) are status.

**From options.** ``Kafka(options, topic)`` with ``options`` as librdkafka names them, of which
``bootstrap.servers`` is needed: ``security.protocol``, ``sasl.*``, ``ssl.*`` belong to a connection
and its secrets. Of the source: ``topic``, ``group`` (``headwater-`` and the source's name, unless
it is said), ``isolation``, ``start`` (a first offset for some partitions), ``include`` (which of
``timestamp`` and ``headers`` a message carries, for the columns of ``storage/decode.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from headwater.base.errors import InvalidUsage
from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.generators.generator import placed
from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.source import HEADERS, MESSAGE, TIMESTAMP, Piece, Records, Reliance
from headwater.storage.sources.kafka_ranges import Ranges, Refused, Silent

OUTPUT: Final = "messages"
"""The one output of such a source."""

TOPIC: Final = "topic "
"""What the name of the row for the topic itself begins with; partitions are numbers."""

TIMESTAMP_TYPE: Final = "timestamp type"
"""Who stamped a message: 0 its producer, 1 the broker, -1 nobody; where it is asked for."""

REQUEST_TIMEOUT_S: Final = 10.0
PIECE_MESSAGES: Final = 200_000

Isolation = Literal["read_committed", "read_uncommitted"]

_CONSUMER: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # Never elsewhere than where we said.
    "queued.max.messages.kbytes": 32 * 1024,
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "fetch.wait.max.ms": 100,
    "check.crcs": True,
}
_CLIENT: Final[Mapping[str, Any]] = {
    "client.id": "headwater",
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "log_level": 0,  # What matters is told by error_cb, and becomes the source's status.
}
_GONE: Final = {
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTO_OFFSET_RESET,
}
_UNKNOWN: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_AWAY: Final = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


class Kafka:
    """The messages of a topic."""

    reliance: Final = Reliance.RETAINED

    def __init__(
        self,
        options: Mapping[str, str],
        topic: str,
        *,
        group: str | None = None,
        isolation: Isolation = "read_committed",
        start: Mapping[int, int] | None = None,
        include: Sequence[str] = (),
        name: str = "kafka",
    ) -> None:
        if "bootstrap.servers" not in options:
            raise InvalidUsage("a Kafka source needs 'bootstrap.servers', the address of a broker")
        unknown = set(include) - {TIMESTAMP, TIMESTAMP_TYPE, HEADERS}
        if unknown:
            raise InvalidUsage(f"a message carries {TIMESTAMP} and {HEADERS}, not {unknown}")
        self.name = name
        self._options = dict(options)
        self._topic = topic
        self._group = group or f"headwater-{name}"
        self._isolation = isolation
        self._start = dict(start or {})
        self._include = tuple(include)
        self._known = NOTHING
        self._told = NOTHING
        self._admin: AdminClient | None = None
        self._consumer: Consumer | None = None
        self._ranges: Ranges | None = None
        self._last_error = ""

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to read the same; clients are its own."""
        closed = {"_admin": None, "_consumer": None, "_ranges": None, "_last_error": ""}
        return {**self.__dict__, **closed}

    # ---- clients -----------------------------------------------------------------------------

    def _admins(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({**_CLIENT, **self._options, "error_cb": self._note})
        return self._admin

    def _consuming(self) -> Consumer:
        if self._consumer is None:
            own = {"group.id": self._group, "isolation.level": self._isolation}
            self._consumer = Consumer(
                {**_CLIENT, **_CONSUMER, **self._options, **own, "error_cb": self._note}
            )
        return self._consumer

    def _note(self, error: KafkaError) -> None:
        # That all brokers are down says less than why one of them is.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._last_error:
            self._last_error = error.str()

    def _asked(self, future: Future[Any]) -> Any:
        """Return an answer; a failure is transient, and says what the client has seen."""
        assert self._admin is not None
        try:
            while True:
                try:
                    return future.result(timeout=0.05)
                except TimeoutError:
                    self._admin.poll(0)  # Serves error_cb: why there is no answer.
        except KafkaException as failure:
            raise self._failed(failure.args[0]) from failure

    def _failed(self, error: KafkaError) -> TransientError:
        if error.code() in _UNKNOWN:
            why = (
                f"topic {self._topic!r} does not exist; create it, or, if it was deleted, "
                "drop the source"
            )
            return TransientError(self.name, why)
        if error.code() in _AWAY:
            where = self._options["bootstrap.servers"]
            why = f"no broker answers at {where}: {self._last_error or error.str()}"
            return TransientError(self.name, why)
        return TransientError(self.name, error.str())

    def close(self) -> None:
        """Close the clients; what they fetched ahead is fetched again."""
        if self._consumer is not None:
            self._consumer.close()
        self._admin = self._consumer = self._ranges = None

    # ---- probing -----------------------------------------------------------------------------

    def probe(self) -> Offsets:
        """Return the last stable offset of each partition, and the topic's id."""
        identity, partitions = self._described()
        stable = (
            IsolationLevel.READ_COMMITTED
            if self._isolation == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        ends = self._offsets(partitions, OffsetSpec.latest(), isolation_level=stable)
        found = {str(partition): offset for partition, offset in ends.items()}
        self._known = self._known.join(Offsets({**found, identity: 1}))
        return Offsets({**found, identity: 1})

    def _described(self) -> tuple[str, list[int]]:
        """Return the topic's row of a frontier, and its partitions; raise if it is another."""
        answers = self._admins().describe_topics(
            TopicCollection([self._topic]), request_timeout=REQUEST_TIMEOUT_S
        )
        described = self._asked(answers[self._topic])
        identity = f"{TOPIC}{described.topic_id}"
        for known in self._known:
            if known.startswith(TOPIC) and known != identity:
                raise self._recreated(f"was {known!r} and is {identity!r} now")
        partitions = [int(partition.id) for partition in described.partitions]
        return identity, partitions

    def _recreated(self, why: str) -> DefiniteError:
        return DefiniteError(
            self.name,
            f"topic {self._topic!r} {why}: it was deleted and made again",
            "drop the source and create it again",
        )

    # ---- reading -----------------------------------------------------------------------------

    def read(self, lower: Offsets, upper: Offsets) -> Iterator[Records]:
        """Return the messages of a range, batch by batch."""
        ranges = dict(self._wanted(lower, upper))
        if not ranges:
            return
        if self._ranges is None:
            self._ranges = Ranges(self._consuming(), self._topic)
        try:
            for found in self._ranges.read(ranges):
                yield Records(OUTPUT, self._table(found))
        except Silent as silence:
            why = f"topic {self._topic!r} does not answer ({self._last_error or 'no error'})"
            raise TransientError(self.name, why) from silence
        except Refused as refusal:
            raise self._refused(refusal, lower) from refusal
        except KafkaException as failure:
            raise self._failed(failure.args[0]) from failure
        self._described()

    def pieces(self, lower: Offsets, upper: Offsets) -> list[Piece]:
        """Return every partition's range, cut where it is long."""
        found = []
        wanted = dict(self._wanted(lower, upper))
        begins = self._begins([partition for partition, (first, _) in wanted.items() if not first])
        for number, (first, last) in wanted.items():
            partition, at = str(number), first
            while at < last:
                # What a topic has lost before it was ever read is of no piece but the first.
                end = min(last, max(at, begins.get(number, 0)) + PIECE_MESSAGES)
                piece = (Offsets({partition: at}), Offsets({partition: end}))
                found.append(Piece(*piece, end - max(at, begins.get(number, 0))))
                at = end
        return found

    def estimate(self, upper: Offsets) -> int:
        """Return how many offsets the topic retains before ``upper``."""
        return sum(piece.messages for piece in self.pieces(NOTHING, upper))

    def _begins(self, partitions: Sequence[int]) -> dict[int, int]:
        return self._offsets(partitions, OffsetSpec.earliest()) if partitions else {}

    def _offsets(self, partitions: Sequence[int], which: Any, **how: Any) -> dict[int, int]:
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        answers = self._admins().list_offsets(
            dict.fromkeys(places, which), request_timeout=REQUEST_TIMEOUT_S, **how
        )
        found = {p.partition: int(self._asked(f).offset) for p, f in answers.items()}
        for partition, offset in found.items():
            if offset < 0:  # A broker that has just come back answers so, and without an error.
                why = f"partition {partition} of topic {self._topic!r} has no offsets yet"
                raise TransientError(self.name, why)
        return found

    def _wanted(self, lower: Offsets, upper: Offsets) -> Iterator[tuple[int, tuple[int, int]]]:
        for partition, last in upper.items():
            if not partition.startswith(TOPIC):
                number = int(partition)
                first = max(lower[partition], self._start.get(number, 0))
                if first < last:
                    yield number, (first, last)

    def _refused(self, refusal: Refused, lower: Offsets) -> Exception:
        partition = str(refusal.partition)
        if refusal.error.code() not in _GONE:
            return self._failed(refusal.error)
        self._described()  # A topic made again is the better explanation.
        if not lower[partition]:
            return TransientError(
                self.name, f"partition {partition} lost its first messages while it was read"
            )
        return DefiniteError(
            self.name,
            f"messages of topic {self._topic!r}, partition {partition}, from offset "
            f"{lower[partition]} on were deleted before they were ingested ({refusal})",
            "give the topic a longer retention than this source is ever away; "
            "then drop the source and create it again",
        )

    def _table(self, found: Mapping[int, list[Message]]) -> pa.Table:
        tables = []
        for partition, messages in found.items():
            offsets = np.fromiter((m.offset() for m in messages), np.int64, len(messages))
            columns = [
                pa.array([m.key() for m in messages], pa.binary()),
                pa.array([m.value() for m in messages], pa.binary()),
            ]
            payload = pa.Table.from_arrays(columns, schema=MESSAGE)
            if TIMESTAMP in self._include:
                stamps = pa.array([m.timestamp()[1] for m in messages], pa.timestamp("ms", "UTC"))
                payload = payload.append_column(TIMESTAMP, stamps.cast(pa.timestamp("us", "UTC")))
            if TIMESTAMP_TYPE in self._include:
                types = [m.timestamp()[0] - 1 for m in messages]  # As Kafka's own clients count.
                payload = payload.append_column(TIMESTAMP_TYPE, pa.array(types, pa.int32()))
            if HEADERS in self._include:
                payload = payload.append_column(HEADERS, _headers(messages))
            tables.append(placed(str(partition), offsets, payload))
        return pa.concat_tables(tables)

    # ---- committing --------------------------------------------------------------------------

    def commit(self, offsets: Offsets) -> None:
        """Commit the group's offsets, in the background, where they have moved."""
        self._known = self._known.join(offsets)
        moved = [
            TopicPartition(self._topic, int(partition), offset)
            for partition, offset in offsets.items()
            if not partition.startswith(TOPIC) and offset > self._told[partition]
        ]
        if moved:
            self._told = self._told.join(offsets)
            self._consuming().commit(offsets=moved, asynchronous=True)


def _headers(messages: Sequence[Message]) -> pa.Array:
    type_ = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = [
        [{"key": key, "value": value} for key, value in message.headers() or ()]
        for message in messages
    ]
    return pa.array(rows, type_)


__all__ = ["OUTPUT", "TOPIC", "Isolation", "Kafka"]
