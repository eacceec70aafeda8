"""Whatever dies, the endpoint is the view at its checkpoint; run against the real ones.

The n-th message is the last before the process dies, for every n, which includes every moment
between the endpoint's commit and Acknowledge. The judge reads the endpoint itself: the rows of each
key range are the view at the time of the range's checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest

from headwater.materialize.changes import changes
from headwater.materialize.checkpoint import Position, from_checkpoint, from_text
from headwater.materialize.delivery import Delivery, Transaction
from headwater.materialize.drivers.sql import Fenced
from headwater.materialize.key_range import KeyRange, key_hash
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.transport.in_process import InProcess, Watch
from headwater.materialize.tuples import pack
from tests.integration import driven
from tests.integration.driven import FULL, SCHEMA, Row, opened, spec_of, updates_of
from tests.integration.materialize_places import NAME, Memory, Place

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("sqlite_without_fsync")]

place = driven.place
TIMES = 6
KEYS = range(4)
HASHES = {key: key_hash(pack((key,))) for key in KEYS}


class Crash(Exception):
    """The process is gone."""


class Source:
    """A collection with a history: at most one row per key at every time."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.updates: list[tuple[Row, int, int]] = []
        rows: dict[int, Row] = {}
        for time in range(TIMES):
            for key in random.sample(KEYS, random.randint(1, 3)):
                if key in rows:
                    self.updates.append((rows.pop(key), time, -1))
                if random.random() < 0.7:
                    rows[key] = (key, f"at {time}", random.randint(0, 9))
                    self.updates.append((rows[key], time, 1))

    def table(self, lower: int, upper: int) -> pa.Table:
        return updates_of(SCHEMA, *(u for u in self.updates if lower <= u[1] < upper))

    def view(self, upper: int, keys: set[int]) -> list[Row]:
        counts: Counter[Row] = Counter()
        for row, time, diff in self.updates:
            if time < upper and row[0] in keys:
                counts[row] += diff
        return sorted(row for row, count in counts.items() if count)


def _deliver(delivery: Delivery, source: Source, key_range: KeyRange, upper: int) -> None:
    lower = 0 if delivery.position is None else delivery.position.time
    store = changes(0, ["k"], source.table(lower, upper), upper, key_range)
    delivery.transact(Transaction.of([store], Position(upper)))


def _judge(place: Place, source: Source) -> None:
    rows = place.select(SCHEMA.names, "target")
    owned: set[int] = set()
    for key_range, _, text in place.fences():
        position = from_checkpoint(from_text(text), NAME)
        # A wider row owns what no narrower row does.
        mine = {key for key, found in HASHES.items() if key_range.owns(found)} - owned
        owned |= mine
        expected = source.view(0 if position is None else position.time, mine)
        assert sorted(row for row in rows if row[0] in mine) == expected


def _failing_at(event: int) -> tuple[Watch, Iterator[int]]:
    count = iter(range(1_000_000))

    def watch(_: m.Message) -> None:
        if next(count) == event:
            raise Crash

    return watch, count


def _all_of_it(place: Place, spec: MaterializationSpec, source: Source, watch: Watch) -> None:
    for _ in range(3):
        driver = place.make()
        try:
            delivery = Delivery(InProcess(driver, watch), spec, "v1", FULL, Memory(), source=NAME)
            start = 0 if delivery.position is None else delivery.position.time
            for upper in range(start + 2, TIMES + 1, 2):
                _deliver(delivery, source, FULL, upper)
            delivery.end()
            return
        except Crash:
            driver.close()
            _judge(place, source)
    raise AssertionError("it crashed more than once")


def test_killed_at_the_nth_message(place: Place) -> None:
    source, spec = Source(3), spec_of(place)
    event, done = 0, False
    while not done:
        place.begin_anew("target")
        watch, count = _failing_at(event)
        _all_of_it(place, spec, source, watch)
        _judge(place, source)
        assert place.select(["k"], "target"), "there is something to judge"
        done, event = next(count) <= event, event + 1
    assert event > 20


def test_a_zombie_changes_nothing(place: Place) -> None:
    source, spec = Source(5), spec_of(place)
    zombie = opened(place, spec)
    _deliver(zombie, source, FULL, 2)
    owner = opened(place, spec)
    assert owner.position == Position(2)
    _deliver(owner, source, FULL, 4)
    with pytest.raises(Fenced):
        _deliver(zombie, source, FULL, 3)
    _judge(place, source)
    _deliver(owner, source, FULL, TIMES)
    _judge(place, source)
    assert [fence for _, fence, _ in place.fences()] == [2]


def test_a_split_and_a_join(place: Place) -> None:
    source, spec = Source(8), spec_of(place)
    parent = opened(place, spec)
    _deliver(parent, source, FULL, 2)
    halves = {half: opened(place, spec, half) for half in FULL.split()}
    with pytest.raises(Fenced):
        _deliver(parent, source, FULL, 3)
    for half, delivery in halves.items():
        assert delivery.position == Position(2)
        _deliver(delivery, source, half, 4)
        _judge(place, source)
    joined = opened(place, spec)
    assert joined.position == Position(4)
    for half, delivery in halves.items():
        with pytest.raises(Fenced):
            _deliver(delivery, source, half, 5)
    _deliver(joined, source, FULL, TIMES)
    _judge(place, source)
