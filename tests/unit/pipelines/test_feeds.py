"""Streams from outside that are read by position: what a reader says, and numbers by the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.base.clock import ManualClock
from headwater.compute.declared.feeds import Feed, feed_of
from headwater.compute.ir.refusal import Refused
from headwater.pipelines.feeds import reading

BROKER = {"kafka.bootstrap.servers": "there:9092", "subscribe": "orders"}


def test_what_is_read_is_known_by_format_and_options() -> None:
    one = feed_of("kafka", {**BROKER, "includeHeaders": True})
    assert one == feed_of("KAFKA", {**BROKER, "INCLUDEHEADERS": "true", "maxOffsetsPerTrigger": 9})
    assert one is not None
    assert one.client == {"bootstrap.servers": "there:9092"}
    assert one.schema.names[-2:] == ["timestampType", "headers"]
    moved = {"kafka.bootstrap.servers": "elsewhere:9092", "startingOffsets": "earliest"}
    found = feed_of("kafka", {**BROKER, **moved, "includeHeaders": "true"})
    assert found is not None
    assert found.name == one.name, "it goes on where it was"
    other = feed_of("kafka", BROKER)
    assert other is not None
    assert other.name != one.name
    assert other.schema.names == one.schema.names[:-1]
    assert feed_of("csv", {"header": True}) is None


@pytest.mark.parametrize(
    ("form", "options", "told"),
    [
        ("kafka", {"subscribe": "orders"}, "kafka.bootstrap.servers"),
        ("kafka", {"kafka.bootstrap.servers": "there:9092", "subscribePattern": "o.*"}, "pattern"),
        ("kafka", {**BROKER, "startingOffsets": "yesterday"}, "earliest, latest, or offsets"),
        ("rate", {"rowsPerSecond": 0}, "a whole number from 1 on"),
        ("rate", {"rampUpTime": "5s"}, "take rampUpTime out"),
    ],
)
def test_what_cannot_be_kept_is_refused(form: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused, match=told):
        feed_of(form, options)


def test_numbers_come_by_the_clock_and_each_has_its_time_for_ever() -> None:
    clock = ManualClock(1_000_000)
    with reading(Feed("rate", {"rowspersecond": "3"}), clock) as numbers:
        first = numbers.first()
        assert numbers.now(first) == first, "the first run takes nothing"
        clock.set(1_002_999)
        until = numbers.now(first)
        rows = numbers.rows(first, until).to_pylist()
        clock.set(1_000_500)  # Set back: nothing is taken back.
        assert numbers.now(until) == until
        clock.set(1_003_000)
        last = numbers.now(until)
        pieces = rows + numbers.rows(until, last).to_pylist()
        assert pieces == numbers.rows(first, last).to_pylist()
    assert [row["value"] for row in pieces] == list(range(9))
    assert pieces[4]["timestamp"] == datetime.fromtimestamp(1_001.333333, UTC)
