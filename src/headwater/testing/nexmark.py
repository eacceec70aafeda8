"""NEXMark-like events by numpy: people, auctions and bids, which also change and go.

    stream = Auctions(seed=1)
    stream.batch(events=1_000)            # [Change(relation, gone, come), …], all at one time

Of 50 events one is a person, three are auctions and 46 are bids, as in NEXMark; half of the bids go
to the newest few auctions and half of the auctions belong to the newest few people, so there is
skew. Event time advances by ``gap_ms`` per event, with a jitter, so events come a little late; an
auction lasts as long as about ``auctions_open`` others take to come. Prices are spread evenly over
their logarithm.

Upstream NEXMark only appends; here ``churn`` of a batch's events besides are changes of what is
there: a third each of auctions that are changed (another category, another end), of bids that are
withdrawn, and of bids with another price; and some people move. The same seed gives the same
stream.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.testing.relation import Change, Relation, chosen, numbered, replaced

TIMESTAMP: Final = pa.timestamp("us", "UTC")
KEY: Final = pa.int64()
TEXT: Final = pa.string()
Ints = npt.NDArray[np.int64]


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, type_) for name, type_ in columns.items()])


SCHEMAS: Final[dict[str, pa.Schema]] = {
    "person": _schema(
        id=KEY,
        name=TEXT,
        emailAddress=TEXT,
        creditCard=TEXT,
        city=TEXT,
        state=TEXT,
        dateTime=TIMESTAMP,
        extra=TEXT,
    ),
    "auction": _schema(
        id=KEY,
        itemName=TEXT,
        description=TEXT,
        initialBid=KEY,
        reserve=KEY,
        dateTime=TIMESTAMP,
        expires=TIMESTAMP,
        seller=KEY,
        category=KEY,
        extra=TEXT,
    ),
    "bid": _schema(
        auction=KEY,
        bidder=KEY,
        price=KEY,
        channel=TEXT,
        url=TEXT,
        dateTime=TIMESTAMP,
        extra=TEXT,
    ),
    "side_input": _schema(key=KEY, value=TEXT),
}

FIRST_ID: Final = 1_100
"""Soon one that query 2 selects comes."""
FIRST_MOMENT_US: Final = 1_794_729_570_000_000
"""2026-11-15 07:59:30 UTC: just before an hour at which query 14 says something else."""
CATEGORIES: Final = (10, 14)
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = ("Phoenix", "San Francisco", "Boise", "Portland", "Seattle", "Cheyenne")
NAMES: Final = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
)
CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple", "channel-1", "channel-2")
FOLDERS: Final = ("item", "home", "search", "list")
EXTRAS: Final = tuple("".join(c * n for c in "abc") + str(n) for n in range(1, 20))
OF_50: Final = (1, 3, 46)


class Auctions:
    """The stream: what is there now, and one batch of changes after the other."""

    def __init__(
        self, seed: int, *, gap_ms: float = 10.0, auctions_open: int = 100, churn: float = 0.1
    ) -> None:
        self._random = np.random.default_rng(seed)
        self._gap_us = gap_ms * 1_000
        self._open = auctions_open
        self._churn = churn
        self._events = 0
        self._people = 0
        self._auctions = 0
        rows = {name: schema.empty_table() for name, schema in SCHEMAS.items()}
        keys = np.arange(200)
        rows["side_input"] = pa.table(
            [keys + FIRST_ID, numbered("value-", keys)], schema=SCHEMAS["side_input"]
        )
        self.relations = {name: Relation(name, table) for name, table in rows.items()}

    def tables(self) -> dict[str, pa.Table]:
        """Return all relations as they are now."""
        return {name: relation.rows() for name, relation in self.relations.items()}

    def batch(self, events: int, churn: float | None = None) -> list[Change]:
        """Let that many events come, and change some of what was there before."""
        changes = self._changed(int(events * (self._churn if churn is None else churn)))
        moments = self._moments(events)
        kinds = (self._events + np.arange(events)) % sum(OF_50)
        self._events += events
        people = self._person(moments[kinds < OF_50[0]])
        auctions = self._auction(moments[(kinds >= OF_50[0]) & (kinds < OF_50[0] + OF_50[1])])
        bids = self._bid(moments[kinds >= OF_50[0] + OF_50[1]])
        nothing = np.empty(0, np.int64)
        for name, come in (("person", people), ("auction", auctions), ("bid", bids)):
            if come.num_rows:
                changes.append(self.relations[name].change(nothing, [come]))
        return _merged(changes)

    # ---- changes -------------------------------------------------------------------------------

    def _changed(self, count: int) -> list[Change]:
        random, relations = self._random, self.relations
        if count < 4 or not relations["bid"].count:
            return []
        auctions, bids, people = relations["auction"], relations["bid"], relations["person"]
        third = max(1, count // 3)
        of_bids = random.permutation(bids.pick(random, 2 * third))
        changed = auctions.pick(random, third)
        moved = people.pick(random, max(1, third // 4))
        return [
            auctions.change(changed, [self._auction_again(auctions.take(changed))]),
            bids.change(of_bids[:third]),
            bids.change(of_bids[third:], [self._bid_again(bids.take(of_bids[third:]))]),
            people.change(moved, [self._person_again(people.take(moved))]),
        ]

    def _auction_again(self, rows: pa.Table) -> pa.Table:
        some = rows.num_rows
        began = rows.column("dateTime").cast(pa.int64()).to_numpy()
        return replaced(
            rows, {"category": self._categories(some), "expires": _times(began + self._last(some))}
        )

    def _bid_again(self, rows: pa.Table) -> pa.Table:
        return replaced(rows, {"price": self._prices(rows.num_rows)})

    def _person_again(self, rows: pa.Table) -> pa.Table:
        place = self._below(len(STATES), rows.num_rows)
        return replaced(rows, {"city": chosen(CITIES, place), "state": chosen(STATES, place)})

    # ---- events --------------------------------------------------------------------------------

    def _person(self, moments: Ints) -> pa.Table:
        some = moments.size
        ids = FIRST_ID + self._people + np.arange(some)
        self._people += some
        place = self._below(len(STATES), some)
        columns = [
            ids,
            chosen(NAMES, self._below(len(NAMES), some)),
            numbered("mail-", ids),
            numbered("card-", self._below(10_000, some), 4),
            chosen(CITIES, place),
            chosen(STATES, place),
            _times(moments),
            self._extra(some),
        ]
        return pa.table(columns, schema=SCHEMAS["person"])

    def _auction(self, moments: Ints) -> pa.Table:
        some = moments.size
        ids = FIRST_ID + self._auctions + np.arange(some)
        self._auctions += some
        first = self._prices(some)
        columns = [
            ids,
            numbered("item-", self._below(1_000, some), 3),
            self._extra(some),
            first,
            first + self._prices(some),
            _times(moments),
            _times(moments + self._last(some)),
            self._recent(self._people, 10, some),
            self._categories(some),
            self._extra(some),
        ]
        return pa.table(columns, schema=SCHEMAS["auction"])

    def _bid(self, moments: Ints) -> pa.Table:
        some = moments.size
        folders = [chosen(FOLDERS, self._below(len(FOLDERS), some)) for _ in range(3)]
        path = pc.binary_join_element_wise("https://www.nexmark.com", *folders, "/")
        query = chosen(("", "?query=1&channel_id=7", "?query=1&channel_id=9"), self._below(3, some))
        columns = [
            self._recent(self._auctions, 4, some),
            self._recent(self._people, 10, some),
            self._prices(some),
            chosen(CHANNELS, self._below(len(CHANNELS), some)),
            pc.binary_join_element_wise(path, query, ""),
            _times(moments),
            self._extra(some),
        ]
        return pa.table(columns, schema=SCHEMAS["bid"])

    # ---- values --------------------------------------------------------------------------------

    def _below(self, bound: int, count: int) -> Ints:
        return self._random.integers(0, max(1, bound), count)

    def _recent(self, known: int, hot: int, count: int) -> Ints:
        """Return ids, half of them among the newest few, the others among all that may be open."""
        newest = known - 1 - self._below(min(hot, known), count)
        others = known - 1 - self._below(min(10 * self._open, known), count)
        return FIRST_ID + np.where(self._random.random(count) < 0.5, newest, others)

    def _categories(self, count: int) -> Ints:
        return CATEGORIES[0] + self._below(CATEGORIES[1] - CATEGORIES[0] + 1, count)

    def _last(self, count: int) -> Ints:
        """Return how long auctions last, in microseconds."""
        return 1 + self._below(int(2 * self._open * 50 / 3 * self._gap_us), count)

    def _prices(self, count: int) -> Ints:
        return (10 ** (self._random.random(count) * 6) * 100).astype(np.int64)

    def _extra(self, count: int) -> pa.Array:
        return chosen(EXTRAS, self._below(len(EXTRAS), count))

    def _moments(self, count: int) -> Ints:
        """Return event times in microseconds, whole milliseconds, a little out of order."""
        events = self._events + np.arange(count)
        jitter = self._below(int(20 * self._gap_us), count)
        late = (events * self._gap_us).astype(np.int64) + jitter
        found: Ints = FIRST_MOMENT_US + late // 1_000 * 1_000
        return found


def _times(microseconds: Any) -> pa.Array:
    return pa.array(np.asarray(microseconds), pa.timestamp("us")).cast(TIMESTAMP)


def _merged(changes: list[Change]) -> list[Change]:
    """Return at most one change of each relation, in the order of their names."""
    found = []
    for name in sorted({change.relation for change in changes}):
        of_it = [change for change in changes if change.relation == name]
        gone = pa.concat_tables([change.gone for change in of_it])
        come = pa.concat_tables([change.come for change in of_it])
        found.append(Change(name, gone, come))
    return found
