"""What the demo defines, measures and checks: through SQL, as any client could.

    auction_house ──▶ person, auction, bid ──▶ bids_by_category ─┐
                                         ├──▶ highest_bids ──────┼──▶ delivery (PostgreSQL)
                                         └──▶ bids_per_minute ───┘

**Freshness** of a view at a moment is how long ago its newest complete time is, by the clock; it is
sampled while the demo runs. **Exact** means: at one time ``t``, read ``AS OF t``, the maintained
view equals its query run from scratch; and what the endpoint holds is the view at the time up to
which it was delivered.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from headwater.console.answers import readable
from headwater.console.changes import ChangeStream
from headwater.console.model import Picture
from headwater.console.sight import Sight
from headwater.materialize.status import Status

SOURCE: Final = "auction_house"
TABLES: Final = ("person", "auction", "bid")
DELIVERY: Final = "delivery"
CHECKS_MAX: Final = 50

KEYS: Final = {
    "bids_by_category": "category",
    "highest_bids": "auction, place",
    "bids_per_minute": "minute",
}

QUERIES: Final = {
    "bids_by_category": (
        "SELECT a.category, count(*) AS bids, sum(b.amount) AS total, max(b.amount) AS highest\n"
        "FROM bid b JOIN auction a ON a.id = b.auction GROUP BY a.category"
    ),
    "highest_bids": (
        "SELECT auction, place, bidder, amount FROM (\n"
        "  SELECT auction, bidder, amount,\n"
        "         row_number() OVER (PARTITION BY auction ORDER BY amount DESC, id) AS place\n"
        "  FROM bid) ranked\n"
        "WHERE place <= 3"
    ),
    "bids_per_minute": (
        "SELECT date_trunc('minute', at) AS minute, count(*) AS bids, avg(amount) AS mean\n"
        "FROM bid GROUP BY date_trunc('minute', at)"
    ),
}
"""A join with an aggregate, a top-k per group, and a window of event time."""

Rows = list[tuple[Any, ...]]


def definitions(ticks_per_second: int, endpoint: str) -> list[str]:
    """Return the statements that make the demo, in order."""
    interval = max(1, 1000 // ticks_per_second)
    bindings = ", ".join(f'{name} AS "public.{name}" KEY ({key})' for name, key in KEYS.items())
    generator = f"LOAD GENERATOR AUCTION (TICK INTERVAL '{interval}ms')"
    where = f"POSTGRES (DSN '{endpoint}', SCHEMA 'public')"
    return [
        f"CREATE SOURCE {SOURCE} FROM {generator} FOR ALL TABLES",
        *(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in QUERIES.items()),
        f"CREATE MATERIALIZATION {DELIVERY} INTO {where} ({bindings})",
    ]


@dataclass(slots=True)
class Measured:
    """What was seen while the demo ran."""

    streams_in: list[ChangeStream] = field(default_factory=list)
    streams_out: list[ChangeStream] = field(default_factory=list)
    freshness_ms: list[int] = field(default_factory=list)

    def watch(self, sight: Sight) -> None:
        """Count the updates of tables and views from now on."""
        self.streams_in = [ChangeStream(sight, name) for name in TABLES]
        self.streams_out = [ChangeStream(sight, name) for name in QUERIES]

    def sample(self, picture: Picture) -> None:
        """Take the freshness of every view."""
        now = picture.upper + picture.clock_behind_ms
        for name in QUERIES:
            node = picture.node(name)
            if node is not None and node.upper is not None:
                self.freshness_ms.append(max(0, now - (node.upper - 1)))

    @property
    def rows_in(self) -> int:
        """Updates of the source's tables."""
        return sum(stream.total for stream in self.streams_in)

    @property
    def updates_out(self) -> int:
        """Updates of the views."""
        return sum(stream.total for stream in self.streams_out)

    def close(self) -> None:
        """Stop counting."""
        for stream in (*self.streams_in, *self.streams_out):
            stream.close()


def percentile(values: Sequence[int], part: float) -> int:
    """Return the value below which this part of the values is; 0 of none.

    >>> percentile([5, 1, 3], 0.5), percentile([], 0.99), percentile(range(100), 0.99)
    (3, 0, 99)
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0


def rows(connection: psycopg.Connection[Any], sql: str) -> Rows:
    """Return the rows of a statement of ours, sorted."""
    cursor = connection.execute(sql.encode())
    return sorted(cursor.fetchall(), key=repr) if cursor.description is not None else []


def recomputed_equal(connection: psycopg.Connection[Any], sight: Sight, name: str) -> int | None:
    """Compare a view with its query at one time; the rows compared, None: they differ."""
    for _ in range(CHECKS_MAX):
        # A time at which all of it can be read: a view that is far behind has to catch up first.
        common = readable(sight.seen().state, (name, *TABLES))
        if common is not None:
            break
        time.sleep(1.0)
    else:
        return None
    as_of = common[1]
    kept = rows(connection, f"SELECT * FROM {name} AS OF {as_of}")  # noqa: S608 - our own names
    anew = rows(connection, f"{QUERIES[name]} AS OF {as_of}")
    return len(kept) if kept == anew else None


def delivered_equal(
    connection: psycopg.Connection[Any], endpoint: str, sight: Sight, name: str
) -> int | None:
    """Compare what the endpoint holds with the view; the rows compared, None: they differ.

    The endpoint moves on: it is compared at a moment in which it did not move meanwhile.
    """
    columns = ", ".join(_columns(connection, name))
    with psycopg.connect(endpoint, autocommit=True) as there:
        for _ in range(CHECKS_MAX):
            before = delivery(sight)
            found = rows(there, f"SELECT {columns} FROM public.{name}")  # noqa: S608
            after = delivery(sight)
            if before is None or before != after or before.reached is None:
                continue
            text = f"SELECT {columns} FROM {name} AS OF {before.reached - 1}"  # noqa: S608
            return len(found) if found == rows(connection, text) else None
    return None


def _columns(connection: psycopg.Connection[Any], name: str) -> list[str]:
    return [row[0] for row in connection.execute(f"SHOW COLUMNS FROM {name}".encode()).fetchall()]


def delivery(sight: Sight) -> Status | None:
    """Return how the delivery is."""
    node = sight.picture().node(DELIVERY)
    return None if node is None else node.delivery
