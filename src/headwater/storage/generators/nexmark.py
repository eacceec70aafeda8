"""NEXMark: people, auctions and bids as in the benchmark, which also change and go.

Place ``n`` is one transaction of 50 events, in the benchmark's proportion:

    1 person, 3 auctions and 46 bids come; bids go to auctions of the last ``RECENT`` places
    of place n - PERSON_AFTER:   its person may move to another city              (-, +)
    of place n - AUCTION_AFTER:  each of its auctions may change its category     (-, +)
    of place n - BID_AFTER:      each of its bids may be withdrawn (-), or get another price (-, +)
    of place n - lasting:        all that is left of it goes, if ``lasting`` is given

Upstream's NEXMark only appends; ``changes=False`` does, too. Every row, in each of its versions, is
a function of its number and the seed, so any range can be made by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.base.errors import InvalidUsage
from headwater.storage.generators.chance import Longs, below
from headwater.storage.generators.generator import with_diffs

AUCTIONS_EACH: Final = 3
BIDS_EACH: Final = 46
RECENT: Final = 4
PERSON_AFTER: Final = 7
AUCTION_AFTER: Final = 5
BID_AFTER: Final = 2
FIRST_ID: Final = 1_000
START_US: Final = 1_704_067_200_000_000
EVENT_US: Final = 100_000
"""Event time between two events: a place is five seconds."""

NAMES: Final = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah")
CITIES: Final = ("Phoenix", "San Francisco", "Boise", "Portland", "Seattle", "Cheyenne")
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple", "channel-1", "channel-2")
CATEGORIES: Final = 5
FIRST_CATEGORY: Final = 10

_KEY: Final = pa.int64()
_TEXT: Final = pa.string()
_TIME: Final = pa.timestamp("us", "UTC")


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, type_, nullable=False) for name, type_ in columns.items()])


PERSON: Final = _schema(
    id=_KEY,
    name=_TEXT,
    emailAddress=_TEXT,
    creditCard=_TEXT,
    city=_TEXT,
    state=_TEXT,
    dateTime=_TIME,
    extra=_TEXT,
)
AUCTION: Final = _schema(
    id=_KEY,
    itemName=_TEXT,
    description=_TEXT,
    initialBid=_KEY,
    reserve=_KEY,
    dateTime=_TIME,
    expires=_TIME,
    seller=_KEY,
    category=_KEY,
    extra=_TEXT,
)
BID: Final = _schema(
    auction=_KEY, bidder=_KEY, price=_KEY, channel=_TEXT, url=_TEXT, dateTime=_TIME, extra=_TEXT
)

Output = tuple[str, Longs, pa.Table]


@dataclass(frozen=True, slots=True)
class Nexmark:
    """The three streams of the benchmark, as tables that change."""

    seed: int = 0
    changes: bool = True
    lasting: int | None = None
    name: str = "nexmark"

    def __post_init__(self) -> None:
        if self.lasting is not None and self.lasting <= PERSON_AFTER:
            raise InvalidUsage(f"rows last more than {PERSON_AFTER} places, not {self.lasting}")

    @property
    def outputs(self) -> Mapping[str, pa.Schema]:
        """Three outputs."""
        return {"person": PERSON, "auction": AUCTION, "bid": BID}

    def at(self, places: Longs) -> Iterator[Output]:
        """Return what each transaction does."""
        first = False
        yield "person", places, with_diffs(self._person(places, first), 1)
        numbers = _each(places, AUCTIONS_EACH)
        yield "auction", *self._auctions(numbers // AUCTIONS_EACH, numbers, first, 1)
        numbers = _each(places, BIDS_EACH)
        yield "bid", *self._bids(numbers // BIDS_EACH, numbers, first, 1)
        if self.changes:
            yield from self._changed(places)
        if self.lasting is not None:
            yield from self._gone(places, self.lasting)

    def _changed(self, places: Longs) -> Iterator[Output]:
        now = places[places >= PERSON_AFTER]
        now = now[self._moves(now - PERSON_AFTER)]
        for later, diff in ((False, -1), (True, 1)):
            yield "person", now, with_diffs(self._person(now - PERSON_AFTER, later), diff)
        now = places[places >= AUCTION_AFTER]
        numbers = _each(now - AUCTION_AFTER, AUCTIONS_EACH)
        numbers = numbers[self._recategorised(numbers)]
        at = numbers // AUCTIONS_EACH + AUCTION_AFTER
        for later, diff in ((False, -1), (True, 1)):
            yield "auction", *self._auctions(at, numbers, later, diff)
        now = places[places >= BID_AFTER]
        numbers = _each(now - BID_AFTER, BIDS_EACH)
        fate = self._fate(numbers)
        for chosen, later, diff in ((fate <= 1, False, -1), (fate == 1, True, 1)):
            mine = numbers[chosen]
            yield "bid", *self._bids(mine // BIDS_EACH + BID_AFTER, mine, later, diff)

    def _gone(self, places: Longs, lasting: int) -> Iterator[Output]:
        now = places[places >= lasting]
        old = now - lasting
        moved = self._moves(old) & self.changes
        for later in (False, True):
            mine = moved == later
            yield "person", now[mine], with_diffs(self._person(old[mine], later), -1)
        numbers = _each(old, AUCTIONS_EACH)
        changed = self._recategorised(numbers) & self.changes
        for later in (False, True):
            mine = numbers[changed == later]
            yield "auction", *self._auctions(mine // AUCTIONS_EACH + lasting, mine, later, -1)
        numbers = _each(old, BIDS_EACH)
        fate = self._fate(numbers) if self.changes else np.full(len(numbers), 2)
        for later, left in ((False, fate > 1), (True, fate == 1)):
            mine = numbers[left]
            yield "bid", *self._bids(mine // BIDS_EACH + lasting, mine, later, -1)

    # ---- who changes -------------------------------------------------------------------------

    def _moves(self, people: Longs) -> Any:
        return self._drawn(1, people, 5) == 0

    def _recategorised(self, auctions: Longs) -> Any:
        return self._drawn(2, auctions, 3) == 0

    def _fate(self, bids: Longs) -> Longs:
        """0: withdrawn. 1: gets another price. Else: stays."""
        return self._drawn(3, bids, 20)

    # ---- rows --------------------------------------------------------------------------------

    def _person(self, numbers: Longs, moved: bool) -> pa.Table:
        names = self._drawn(4, numbers, len(NAMES)).tolist()
        homes = (self._drawn(5, numbers, len(CITIES)) + int(moved)) % len(CITIES)
        cards = self._drawn(6, numbers, 10**16).tolist()
        ids = numbers + FIRST_ID
        columns = [
            pa.array(ids),
            pa.array([NAMES[n] for n in names], _TEXT),
            pa.array(
                [f"{NAMES[n]}{i}@example.com" for n, i in zip(names, ids, strict=True)], _TEXT
            ),
            pa.array([f"{card:016}" for card in cards], _TEXT),
            pa.array([CITIES[n] for n in homes], _TEXT),
            pa.array([STATES[n] for n in homes], _TEXT),
            _moments(numbers * (1 + AUCTIONS_EACH + BIDS_EACH)),
            self._extra(numbers),
        ]
        return pa.Table.from_arrays(columns, schema=PERSON)

    def _auctions(
        self, at: Longs, numbers: Longs, changed: bool, diff: int
    ) -> tuple[Longs, pa.Table]:
        places = numbers // AUCTIONS_EACH
        start = self._drawn(7, numbers, 10_000) + 1
        events = places * (1 + AUCTIONS_EACH + BIDS_EACH) + 1 + numbers % AUCTIONS_EACH
        columns = [
            pa.array(numbers + FIRST_ID),
            pa.array([f"item {n}" for n in self._drawn(8, numbers, 1_000)], _TEXT),
            pa.array([f"description {n}" for n in self._drawn(9, numbers, 1_000)], _TEXT),
            pa.array(start),
            pa.array(start + self._drawn(10, numbers, 10_000)),
            _moments(events),
            _moments(events + 100 + self._drawn(11, numbers, 400)),
            pa.array(self._person_of(places, 12, numbers)),
            pa.array(
                (self._drawn(13, numbers, CATEGORIES) + int(changed)) % CATEGORIES + FIRST_CATEGORY
            ),
            self._extra(numbers),
        ]
        return at, with_diffs(pa.Table.from_arrays(columns, schema=AUCTION), diff)

    def _bids(self, at: Longs, numbers: Longs, repriced: bool, diff: int) -> tuple[Longs, pa.Table]:
        places = numbers // BIDS_EACH
        recent = np.maximum(0, places - self._drawn(14, numbers, RECENT))
        auctions = recent * AUCTIONS_EACH + self._drawn(15, numbers, AUCTIONS_EACH)
        prices = self._drawn(16, numbers, 100_000) + 1 + (7 if repriced else 0)
        channels = self._drawn(17, numbers, len(CHANNELS)).tolist()
        events = places * (1 + AUCTIONS_EACH + BIDS_EACH) + 1 + AUCTIONS_EACH
        columns = [
            pa.array(auctions + FIRST_ID),
            pa.array(self._person_of(places, 18, numbers)),
            pa.array(prices),
            pa.array([CHANNELS[n] for n in channels], _TEXT),
            pa.array([f"https://www.nexmark.com/item.htm?query={n}" for n in channels], _TEXT),
            _moments(events + numbers % BIDS_EACH),
            self._extra(numbers),
        ]
        return at, with_diffs(pa.Table.from_arrays(columns, schema=BID), diff)

    def _person_of(self, places: Longs, stream: int, numbers: Longs) -> Longs:
        """Return somebody who came in the last few places."""
        people = np.maximum(0, places - self._drawn(stream, numbers, RECENT))
        return np.asarray(people + FIRST_ID, np.int64)

    def _extra(self, numbers: Longs) -> pa.Array:
        return pa.array([f"{word:x}" for word in self._drawn(19, numbers, 2**40)], _TEXT)

    def _drawn(self, stream: int, places: Longs, bound: int) -> Longs:
        return below(self.seed, stream, places, bound)


def _each(places: Longs, count: int) -> Longs:
    """Return the numbers of the rows of each place."""
    return (places[:, None] * count + np.arange(count)).reshape(-1)


def _moments(events: Longs) -> pa.Array:
    return pa.array(START_US + events * EVENT_US, pa.int64()).cast(_TIME)
