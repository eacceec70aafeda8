"""Exact ranges of a topic's partitions, from one consumer that stays where it is.

    read({p: [lower, upper), ...})  ->  the messages at those offsets, batch by batch

**Offsets have gaps**: the markers of transactions, what was aborted, what a compaction removed. So
the end of a range is not the message before it. A partition is *reached* up to an offset when that
is behind a message that came, or when the broker says that this is its end (an event of the
consumer, ``enable.partition.eof``); the range is complete when it is reached, whatever came.

The consumer is not asked to go back between ranges: what it fetched beyond the end of one is the
beginning of the next. A partition that runs far ahead while others are not done is paused; to pause
each that is done would cost the next range a round of fetches. A range that begins elsewhere is
assigned afresh.

Invariant of a :class:`_Lane`: every message in ``[given, reached)`` that the broker shows is in
``ahead``, in order, and nothing else is. Kept by: this module. Relied on by: ``sources/kafka.py``,
whose reads are definite because of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

FETCHED_AT_ONCE: Final = 10_000
MESSAGES_AT_ONCE: Final = 50_000
BYTES_AT_ONCE: Final = 16 * 1024 * 1024
WAIT_S: Final = 1.0
SILENT_WAITS_MAX: Final = 10
"""After so many seconds without a message, an end or an error, the broker counts as away."""


class Silent(Exception):
    """Nothing came for a long time."""


class Refused(Exception):
    """The broker, or the client, says that a partition cannot be read."""

    def __init__(self, partition: int, error: KafkaError) -> None:
        super().__init__(error.str())
        self.partition = partition
        self.error = error


@dataclass(slots=True)
class _Lane:
    """Where the consumer is in one partition."""

    given: int
    reached: int
    ahead: list[Message] = field(default_factory=list)
    paused: bool = False


@dataclass(slots=True)
class _Batch:
    """Messages that wait to be handed over."""

    found: dict[int, list[Message]] = field(default_factory=dict)
    count: int = 0
    size: int = 0

    def add(self, partition: int, messages: list[Message]) -> None:
        if messages:
            self.found.setdefault(partition, []).extend(messages)
            self.count += len(messages)
            self.size += sum(map(len, messages))

    @property
    def full(self) -> bool:
        return self.count >= MESSAGES_AT_ONCE or self.size >= BYTES_AT_ONCE


class Ranges:
    """Reads ranges of one topic through a consumer of its own, configured by the source."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._lanes: dict[int, _Lane] = {}

    def read(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Mapping[int, list[Message]]]:
        """Return the messages of each range, in the order of their offsets."""
        batch, open_ = _Batch(), dict[int, int]()
        for partition, (lower, upper) in ranges.items():
            lane = self._at(partition, lower)
            batch.add(partition, self._taken(lane, upper))
            if lane.reached < upper:
                open_[partition] = upper
                self._resume(partition, lane)
        while open_:
            if batch.full:
                yield batch.found
                batch = _Batch()
            for partition, messages in self._fetched().items():
                lane = self._lanes[partition]
                lane.ahead += messages
                target = open_.get(partition)
                if target is None:  # Its range is done, or is still to come.
                    if len(lane.ahead) >= MESSAGES_AT_ONCE:
                        self._pause(partition, lane)
                    continue
                batch.add(partition, self._taken(lane, target))
                if lane.reached >= target:
                    del open_[partition]
        if batch.count:
            yield batch.found

    def _at(self, partition: int, lower: int) -> _Lane:
        """Return the lane of a partition, at ``lower``."""
        lane = self._lanes.get(partition)
        if lane is not None and lane.given == lower:
            return lane
        if lane is not None:
            self._resume(partition, lane)  # A pause would outlive the assignment.
            self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])
        else:  # It may be newer than what the client knows of the topic.
            self._consumer.list_topics(self._topic, timeout=WAIT_S * SILENT_WAITS_MAX)
        start = TopicPartition(self._topic, partition, lower or OFFSET_BEGINNING)
        self._consumer.incremental_assign([start])
        lane = self._lanes[partition] = _Lane(lower, lower)
        return lane

    @staticmethod
    def _taken(lane: _Lane, upper: int) -> list[Message]:
        """Take what a lane has before ``upper``."""
        ahead = lane.ahead
        if ahead and _offset(ahead[-1]) >= upper:
            cut = next(n for n, message in enumerate(ahead) if _offset(message) >= upper)
            taken, lane.ahead = ahead[:cut], ahead[cut:]
        else:
            taken, lane.ahead = ahead, []
        lane.given = max(lane.given, min(upper, lane.reached))
        return taken

    def _fetched(self) -> Mapping[int, list[Message]]:
        """Wait for something, and take all that is there; note how far each partition is."""
        first: Message | None = None
        for _ in range(SILENT_WAITS_MAX):
            first = self._consumer.poll(WAIT_S)
            if first is not None:
                break
        if first is None:
            raise Silent
        # To ask for many with a time to wait would wait for all of them, also at the end.
        rest = self._consumer.consume(FETCHED_AT_ONCE, 0)
        found: dict[int, list[Message]] = {}
        for message in (first, *rest):
            partition, error = _partition(message), message.error()
            lane = self._lanes.get(partition)
            if error is None and lane is not None:
                found.setdefault(partition, []).append(message)
                lane.reached = _offset(message) + 1
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                if lane is not None:
                    lane.reached = max(lane.reached, _offset(message))
                    found.setdefault(partition, [])
            elif error is not None:
                raise Refused(partition, error)
        return found

    def _pause(self, partition: int, lane: _Lane) -> None:
        if not lane.paused:
            self._consumer.pause([TopicPartition(self._topic, partition)])
            lane.paused = True

    def _resume(self, partition: int, lane: _Lane) -> None:
        if lane.paused:
            self._consumer.resume([TopicPartition(self._topic, partition)])
            lane.paused = False


def _offset(message: Message) -> int:
    return int(message.offset())


def _partition(message: Message) -> int:
    partition = message.partition()
    return -1 if partition is None else int(partition)
