"""A queue of messages that stays full: the sink gives up, and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headwater.pipelines import sink_kafka


class Producer:
    """Takes nothing until it was polled a few times; then has room, or tells of a failure."""

    def __init__(self, room_after: int | None, failure: KafkaError | None = None) -> None:
        self._room_after, self._failure = room_after, failure
        self._told: Callable[[Any, Any], None] = lambda *_: None
        self.polled = 0
        self.sent: list[str] = []

    def produce(self, topic: str, value: bytes, on_delivery: Any, **_: Any) -> None:
        self._told = on_delivery
        if self._room_after is None or self.polled < self._room_after:
            raise BufferError("Local: Queue full")
        self.sent.append(topic)

    def poll(self, _: float) -> None:
        self.polled += 1
        if self._failure is not None:
            self._told(self._failure, None)


def test_it_waits_for_room() -> None:
    producer = Producer(room_after=3)
    sink_kafka._produce(producer, {"value": b"x"}, "t", [])
    assert (producer.polled, producer.sent) == (3, ["t"])


def test_a_message_that_was_not_delivered_ends_it() -> None:
    producer = Producer(None, KafkaError(KafkaError._MSG_TIMED_OUT))
    with pytest.raises(KafkaException, match="timed out"):
        sink_kafka._produce(producer, {"value": b"x"}, "t", [])
    assert producer.polled == 1


def test_a_queue_that_stays_full_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_kafka, "TIMEOUT_SECONDS", -1.0)
    with pytest.raises(KafkaException, match="Queue full"):
        sink_kafka._produce(Producer(None), {"value": b"x"}, "t", [])
