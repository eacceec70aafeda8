"""Where a materialization into Kafka stands: the last record of a topic of its own.

    headwater.progress.<materialization>     one partition, compacted; value {"checkpoint": "…"}

The record is written in the transaction that has the rows, so one is visible exactly if the other
is. The topic is written by one transactional id alone, and read after the id was taken over, when
no transaction of it is open any more: what is read is the last commit, whoever made it.

Relied on by: ``kafka``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater.base.decoding import from_json

TIMEOUT_SECONDS: Final = 60.0
_FIRST_LOOK: Final = 16
"""A record and the marks of its transaction, with some to spare; then further and further back."""
_PAUSE_SECONDS: Final = 0.05
_LEADERLESS: Final = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
)
_NAME_MAX: Final = 180
_DIGEST_BYTES: Final = 4


class Progress(msgspec.Struct, frozen=True):
    """What a record of the topic holds."""

    checkpoint: str


def progress_topic(materialization: str) -> str:
    """Return the topic of a materialization, in the letters that Kafka has.

    >>> progress_topic("orders")
    'headwater.progress.orders'
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", materialization)[:_NAME_MAX]
    if plain == materialization:
        return f"headwater.progress.{plain}"
    # Two names may be alike in these letters.
    digest = blake2b(materialization.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"headwater.progress.{plain}-{digest}"


def last_checkpoint(options: Mapping[str, Any], topic: str) -> str | None:
    """Return the checkpoint that was committed last; ``None``: none ever was."""
    own = {
        "group.id": topic,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 20,  # There is nothing to wait for: what is not there is not.
    }
    consumer = Consumer({**options, **own})
    try:
        low, high = _bounds(consumer, TopicPartition(topic, 0))
        look, start = _FIRST_LOOK, high
        while start > low:
            start = max(low, high - look)
            value = _last_value(consumer, TopicPartition(topic, 0, start))
            if value is not None:
                return from_json(value, Progress).checkpoint
            look *= _FIRST_LOOK
        return None
    finally:
        consumer.close()


def _bounds(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Return where a partition begins and ends, for readers of what is committed."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, TIMEOUT_SECONDS)
        except KafkaException as failure:
            # A topic that was just made is known before its leader is.
            if failure.args[0].code() not in _LEADERLESS or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return low, high


def _last_value(consumer: Consumer, start: TopicPartition) -> bytes | None:
    """Return the value of the last record from a place on."""
    consumer.assign([start])
    found: bytes | None = None
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found = message.value()
        elif error.code() == KafkaError._PARTITION_EOF:
            return found
        else:
            raise KafkaException(error)
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"topic {start.topic} was not read"))
