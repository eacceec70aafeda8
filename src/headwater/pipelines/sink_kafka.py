"""A sink into Kafka: rows as messages, one transaction per batch.

Columns are Spark's: ``value``, and if they are there ``key``, ``topic``, ``partition`` and
``headers``; texts are UTF-8. Options are ``topic`` and ``kafka.…``, settings of librdkafka.

The transaction commits, with the messages, an offset of a group of our own: the number of the
batch (``_group``). So whether a batch is there is asked of the broker, and it is sent once,
whoever dies when. Readers see that with ``isolation.level=read_committed``, their default in
librdkafka. The transactional id is the sink's: who is late is fenced by the broker.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headwater.compute.declared.written import NotWritten

TIMEOUT_SECONDS: Final = 60.0
POLL_EVERY: Final = 1_000
_PREFIX: Final = "kafka."
COLUMNS: Final = ("key", "value", "topic", "partition", "headers")


def write_messages(
    sink: str, options: Mapping[str, str], rows: pa.Table, token: str, number: int
) -> None:
    """Send these rows as one batch, unless it is there."""
    given = {
        key.removeprefix(_PREFIX): value
        for key, value in options.items()
        if key.startswith(_PREFIX)
    }
    messages = rows.to_pylist()
    topic = options.get("topic")
    named = {topic} if topic else {message["topic"] for message in messages}
    if None in named:
        raise NotWritten(sink, "a message has no topic; have its column topic filled")
    # Of several topics one has the offset: of the same batch always the same.
    mark = TopicPartition(min(named), 0, number)
    try:
        _send(given, messages, topic, mark, token)
    except KafkaException as error:
        raise NotWritten(sink, error.args[0].str() or str(error)) from error


def _send(
    given: dict[str, str],
    messages: list[dict[str, Any]],
    topic: str | None,
    mark: TopicPartition,
    token: str,
) -> None:
    group = {"group.id": f"headwater-{token}", "enable.auto.commit": "false"}
    # First, because it ends what an earlier process left open and fences it.
    producer = Producer({**given, "transactional.id": f"headwater-{token}"})
    producer.init_transactions(TIMEOUT_SECONDS)
    consumer = Consumer({**given, **group})
    try:
        asked = [TopicPartition(mark.topic, mark.partition)]
        (committed,) = consumer.committed(asked, TIMEOUT_SECONDS)
        if committed.error is not None:
            raise KafkaException(committed.error)
        if committed.offset >= mark.offset:
            return
        failed: list[Any] = []
        producer.begin_transaction()
        for count, message in enumerate(messages):
            _produce(producer, message, topic, failed)
            if count % POLL_EVERY == 0:
                producer.poll(0)
        producer.send_offsets_to_transaction(
            [mark], consumer.consumer_group_metadata(), TIMEOUT_SECONDS
        )
        producer.commit_transaction(TIMEOUT_SECONDS)
        if failed:
            raise KafkaException(failed[0])
    finally:
        consumer.close()


def _produce(
    producer: Any, message: Mapping[str, Any], topic: str | None, failed: list[Any]
) -> None:
    """Put a message into the producer's queue; waits for room as long as others are delivered."""
    more = {} if message.get("partition") is None else {"partition": message["partition"]}
    headers = message.get("headers")
    if headers:
        more["headers"] = [(header["key"], header["value"]) for header in headers]

    def told(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            producer.produce(
                topic or message["topic"],
                message["value"],
                key=message.get("key"),
                on_delivery=told,
                **more,
            )
        except BufferError as full:
            producer.poll(1.0)
            if failed:
                raise KafkaException(failed[0]) from full
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from full
        else:
            return
