"""AUCTION: people, auctions and bids, where auctions change and end, and bids are withdrawn.

Place ``n`` is one transaction: everything it does has one place and so one time.

    person n        comes                                       every ``PEOPLE_EVERY``-th place
    auction n       comes, of a person that is there already
    bids of n       ``bids`` of them come, on auctions that are still there
    auction n - lasting // 2     gets another category           (-, +)
    one bid of place n - 1       is withdrawn, at one place in three
    auction n - lasting          ends: it and its bids go

So the size of what is there is bounded by ``lasting``, for ever; every row is a function of its
number and the seed. Ids: a bid is ``place * bids + k``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.storage.generators.chance import Longs, below
from headwater.storage.generators.generator import with_diffs

PEOPLE_EVERY: Final = 4
CATEGORIES: Final = 10
NAMES: Final = ("Ada", "Ben", "Cleo", "Dora", "Emil", "Fay", "Gil", "Hana")
ITEMS: Final = ("lamp", "chair", "clock", "map", "vase", "radio", "globe", "trunk")
START_US: Final = 1_704_067_200_000_000
"""2024-01-01; a place is a second of event time."""

_ID: Final = pa.int64()
_TIME: Final = pa.timestamp("us", "UTC")


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, type_, nullable=False) for name, type_ in columns.items()])


PERSON: Final = _schema(id=_ID, name=pa.string(), joined=_TIME)
AUCTION: Final = _schema(id=_ID, seller=_ID, item=pa.string(), category=_ID, ends=_TIME)
BID: Final = _schema(id=_ID, auction=_ID, bidder=_ID, amount=_ID, at=_TIME)


@dataclass(frozen=True, slots=True)
class Auctions:
    """Auctions that come, change and end."""

    seed: int = 0
    bids: int = 4
    lasting: int = 100
    name: str = "auction"

    def __post_init__(self) -> None:
        if self.lasting < 2 or self.bids < 1:
            raise ValueError("an auction lasts two places at least, and has a bid")

    @property
    def outputs(self) -> Mapping[str, pa.Schema]:
        """Three outputs."""
        return {"person": PERSON, "auction": AUCTION, "bid": BID}

    def at(self, places: Longs) -> Iterator[tuple[str, Longs, pa.Table]]:
        """Return what each transaction does."""
        people = places[places % PEOPLE_EVERY == 0]
        yield "person", people, with_diffs(self._people(people // PEOPLE_EVERY), 1)
        yield from self._auctions_at(places)
        yield from self._bids_at(places)

    def _auctions_at(self, places: Longs) -> Iterator[tuple[str, Longs, pa.Table]]:
        half = self.lasting // 2
        yield "auction", places, with_diffs(self._auction(places, changed=False), 1)
        changing = places[places >= half]
        for changed, diff in ((False, -1), (True, 1)):
            yield "auction", changing, with_diffs(self._auction(changing - half, changed), diff)
        ending = places[places >= self.lasting]
        gone = self._auction(ending - self.lasting, changed=True)
        yield "auction", ending, with_diffs(gone, -1)

    def _bids_at(self, places: Longs) -> Iterator[tuple[str, Longs, pa.Table]]:
        numbers = self._numbers(places)
        yield "bid", np.repeat(places, self.bids), with_diffs(self._bid(numbers), 1)
        drawing = places[(places >= 1) & self._withdraws(places)]
        first = (drawing - 1) * self.bids
        yield "bid", drawing, with_diffs(self._bid(first), -1)
        # With its auction a bid goes, if it was not withdrawn before. A bid is on an auction of
        # its own place, so the bids of an auction are those of its place.
        ending = places[places >= self.lasting]
        gone = self._numbers(ending - self.lasting)
        at = np.repeat(ending, self.bids)
        first_ones = gone % self.bids == 0
        withdrawn = first_ones & self._withdraws(gone // self.bids + 1)
        yield "bid", at[~withdrawn], with_diffs(self._bid(gone[~withdrawn]), -1)

    def _numbers(self, places: Longs) -> Longs:
        return (places[:, None] * self.bids + np.arange(self.bids)).reshape(-1)

    def _withdraws(self, places: Longs) -> Any:
        """Whether the first bid of the place before is withdrawn at this one."""
        return below(self.seed, 1, places, 3) == 0

    def _people(self, ids: Longs) -> pa.Table:
        names = [
            f"{NAMES[n]} {i}" for n, i in zip(self._drawn(2, ids, len(NAMES)), ids, strict=True)
        ]
        joined = _times(ids * PEOPLE_EVERY)
        return pa.Table.from_arrays(
            [pa.array(ids), pa.array(names, pa.string()), joined], schema=PERSON
        )

    def _auction(self, ids: Longs, changed: bool) -> pa.Table:
        there = ids // PEOPLE_EVERY + 1
        sellers = self._drawn(3, ids, 2**62) % there
        items = [ITEMS[n] for n in self._drawn(4, ids, len(ITEMS))]
        categories = (self._drawn(5, ids, CATEGORIES) + int(changed)) % CATEGORIES
        columns = [
            pa.array(ids),
            pa.array(sellers),
            pa.array(items, pa.string()),
            pa.array(categories),
            _times(ids + self.lasting),
        ]
        return pa.Table.from_arrays(columns, schema=AUCTION)

    def _bid(self, numbers: Longs) -> pa.Table:
        places = numbers // self.bids
        columns = [
            pa.array(numbers),
            pa.array(places),
            pa.array(self._drawn(6, numbers, 2**62) % (places // PEOPLE_EVERY + 1)),
            pa.array(self._drawn(7, numbers, 10_000) + 1),
            _times(places),
        ]
        return pa.Table.from_arrays(columns, schema=BID)

    def _drawn(self, stream: int, places: Longs, bound: int) -> Longs:
        return below(self.seed, stream, places, bound)


def _times(seconds: Longs) -> pa.Array:
    return pa.array(START_US + seconds * 1_000_000, pa.int64()).cast(_TIME)
