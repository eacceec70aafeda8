"""What a pipeline sends to a real broker, once, and what it takes from it, between positions."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pytest

from headwater.compute.declared.feeds import Feed, feed_of
from headwater.pipelines.feeds import FeedFailed, reading
from headwater.pipelines.sink_kafka import write_messages
from headwater.testing.kafka import Broker
from tests.integration.kafka_world import World

pytestmark = pytest.mark.server

# ---- messages that a pipeline sends ------------------------------------------------------------


def test_a_batch_of_a_sink_is_sent_once(broker: Broker) -> None:
    world = World(broker, partitions=1)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": world.topic}

    def send(number: int, *values: str) -> None:
        header = [{"key": "h", "value": b"x"}]
        rows = pa.table(
            {
                "key": pa.array(["k"] * len(values)),
                "value": pa.array(values),
                "headers": pa.array([header] * len(values)),
            }
        )
        write_messages("s", options, rows, "token", number)

    send(1, "a", "b")
    send(1, "a", "b")
    # One that died in the middle: what it began is ended by the next, and never seen.
    died = broker.producer(transactional_id="headwater-token")
    died.init_transactions()
    died.begin_transaction()
    died.produce(world.topic, b"lost")
    died.flush()
    send(2, "c")
    send(1, "a", "b")
    world.plain.produce(world.topic, b"end")
    world.plain.flush()
    assert _committed(broker, world.topic) == [b"a", b"b", b"c", b"end"]


# ---- messages that a pipeline takes ------------------------------------------------------------


def test_a_flow_takes_the_messages_between_two_positions(broker: Broker) -> None:
    world = World(broker, partitions=2)

    def feed(**options: str) -> Feed:
        there = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": world.topic}
        found = feed_of("kafka", {**there, **options})
        assert found is not None
        return found

    world.plain.produce(world.topic, b"a", key=b"k", partition=0, timestamp=5, headers={"h": b"x"})
    world.plain.flush()
    with reading(feed()) as stream:
        assert stream.now(stream.first()) == stream.first(), "as in Spark, the first takes nothing"
    with reading(feed(startingOffsets="earliest", includeHeaders="true")) as stream:
        begin = stream.first()
        until = stream.now(begin)
        (row,) = stream.rows(begin, until).to_pylist()
        assert row == {
            "key": b"k",
            "value": b"a",
            "topic": world.topic,
            "partition": 0,
            "offset": 0,
            "timestamp": datetime.fromtimestamp(0.005, UTC),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"x"}],
        }
        assert stream.now(until) == until
        world.plain.produce(world.topic, b"b", partition=1)
        world.plain.flush()
        later = stream.now(until)
        assert stream.rows(until, later).column("value").to_pylist() == [b"b"]
    offsets = msgspec.json.encode({world.topic: {"0": -1, "1": -2}}).decode()
    with reading(feed(startingOffsets=offsets)) as stream:
        begin = stream.first()
        assert stream.rows(begin, later).column("value").to_pylist() == [b"b"]
    broker.delete_topic(world.topic)
    broker.create_topic(world.topic, 2)
    with reading(feed()) as stream, pytest.raises(FeedFailed, match="--full-refresh"):
        stream.now(later)
    jaas = feed(**{"kafka.sasl.jaas.config": "…"})
    with reading(jaas) as stream, pytest.raises(FeedFailed, match="JAAS"):
        stream.first()


def _committed(broker: Broker, topic: str) -> list[bytes]:
    """What a reader of committed messages sees, up to the one that says end."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader-of-{topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + 120
    try:
        while b"end" not in found:
            assert time.monotonic() < deadline, found
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(message.value())
    finally:
        consumer.close()
    return found
