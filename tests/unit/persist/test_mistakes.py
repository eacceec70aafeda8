"""Mistakes of the caller: each is named by its own error, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.clock import ManualClock
from headwater.base.errors import HeadwaterError
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client
from headwater.persist.commands import Advance, AllowCompaction, DowngradeReader, OpenReader
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.errors import (
    AsOfBeforeSince,
    ClosedCollection,
    CompactionRegression,
    DestroyedCollection,
    DuplicateCollection,
    IncompatibleSchema,
    InvalidBounds,
    InvalidCapability,
    LayoutMismatch,
    SchemaMismatch,
    SealRegression,
    TimelineRegression,
    TimeOutOfBounds,
    UnknownCollection,
    UnknownTimeline,
    UpdateBeyondUpper,
    WriteBeforeUpper,
)
from tests.unit.persist.filled_place import FIRST, SCHEMA, check_usable, fill, orders, start


def updates(schema: pa.Schema = SCHEMA, **columns: list[Any]) -> pa.Table:
    system = [pa.field("__time", pa.int64()), pa.field("__diff", pa.int64())]
    return pa.table(columns, schema=pa.schema([*schema, *system]))


@dataclass(frozen=True)
class Mistake:
    """What is asked, and what must be said about it."""

    name: str
    ask: Callable[[Client], object]
    error: type[HeadwaterError]
    says: str


def write(rows: Any) -> Callable[[Client], object]:
    return lambda client: orders(client).write(rows).result()


def snapshot(as_of: int) -> Callable[[Client], object]:
    return lambda client: client.reader("orders").snapshot(as_of, 0)


def expired(client: Client) -> object:
    gid, core = client.reader("orders").id, client.core
    core.submit(OpenReader(gid, "r", "test", lease_ms=10)).result()
    assert isinstance(core.clock, ManualClock)
    core.clock.set(1_010)
    return core.submit(DowngradeReader(gid, "r", Frontier.of(4))).result()


def evolve(*fields: pa.Field, **options: Any) -> Callable[[Client], object]:
    chosen = {"key": ("k",), **options}
    return lambda client: client.create_or_load("orders", pa.schema(fields), **chosen)


MISTAKES = [
    Mistake(
        "a write before the seal",
        write([({"k": 3}, 4, 1)]),
        WriteBeforeUpper,
        "'orders' at time 4 is before its sealed frontier {5}; write at",
    ),
    Mistake(
        "a write of which only one row is before the seal",
        write([({"k": 3}, 9, 1), ({"k": 3}, 0, 1)]),
        WriteBeforeUpper,
        "at time 0 is before",
    ),
    Mistake(
        "an append beyond its own upper",
        lambda c: orders(c).compare_and_append([({"k": 3}, 7, 1)], 5, 7).result(),
        UpdateBeyondUpper,
        "at time 7 is not before the batch's upper {7}; raise",
    ),
    Mistake(
        "an inverted interval",
        lambda c: orders(c).compare_and_append([], 5, 5).result(),
        InvalidBounds,
        "[{5}, {5}) is empty or inverted; give",
    ),
    Mistake(
        "a seal that moves back", lambda c: orders(c).seal(4).result(), SealRegression, "later"
    ),
    Mistake(
        "compaction that moves back",
        lambda c: orders(c).allow_compaction(2).result(),
        CompactionRegression,
        "to {2}: it is at {3} already",
    ),
    Mistake(
        "a negative time", write([({"k": 3}, -1, 1)]), TimeOutOfBounds, "time -1 is outside [0"
    ),
    Mistake(
        "a time beyond bounds", write([({"k": 3}, 2**63 - 1, 1)]), TimeOutOfBounds, "milliseconds"
    ),
    Mistake("a time beyond 64 bits", write([({"k": 3}, 2**70, 1)]), TimeOutOfBounds, str(2**70)),
    Mistake(
        "a negative time in columns",
        write(updates(k=[3], v=[None], __time=[-7], __diff=[1])),
        TimeOutOfBounds,
        "time -7",
    ),
    Mistake(
        "a seal beyond bounds",
        lambda c: orders(c).seal(2**63 - 1).result(),
        TimeOutOfBounds,
        "seal",
    ),
    Mistake("a read beyond bounds", snapshot(2**63 - 1), TimeOutOfBounds, "reading collection"),
    Mistake("a read before all time", snapshot(-1), TimeOutOfBounds, "-1"),
    Mistake(
        "an as_of before since",
        snapshot(2),
        AsOfBeforeSince,
        "'orders' is not readable at time 2: its history before {3} has been compacted; read at 3",
    ),
    Mistake(
        "listening before since",
        lambda c: c.reader("orders").listen(2),
        AsOfBeforeSince,
        "read at 3 or later",
    ),
    Mistake(
        "a column too few",
        write(updates(pa.schema([SCHEMA.field("k")]), k=[1], __time=[5], __diff=[1])),
        SchemaMismatch,
        "columns are ['k', '__time', '__diff'], not ['k', 'v', '__time', '__diff']",
    ),
    Mistake(
        "a column of another type",
        write(
            updates(
                pa.schema([pa.field("k", pa.int32()), SCHEMA.field("v")]),
                k=[1],
                v=["a"],
                __time=[5],
                __diff=[1],
            )
        ),
        SchemaMismatch,
        "'orders' does not match: column 'k' has type int32, not int64",
    ),
    Mistake(
        "a NULL where there must be none",
        write([({"v": "x"}, 5, 1)]),
        SchemaMismatch,
        "column 'k' is NOT NULL and has NULLs",
    ),
    Mistake(
        "a column that does not exist",
        write([({"k": 1, "typo": 2}, 5, 1)]),
        SchemaMismatch,
        "'orders' does not match: there is no column 'typo'",
    ),
    Mistake("a value of another type", write([({"k": "one"}, 5, 1)]), SchemaMismatch, "'orders'"),
    Mistake("a value too large", write([({"k": 2**70}, 5, 1)]), SchemaMismatch, "'orders'"),
    Mistake("a diff that is no number", write([({"k": 2}, 5, "x")]), SchemaMismatch, "'orders'"),
    Mistake(
        "a column dropped", evolve(SCHEMA.field("k")), IncompatibleSchema, "a column was dropped"
    ),
    Mistake(
        "a column added that is not nullable",
        evolve(*SCHEMA, pa.field("w", pa.int64(), nullable=False)),
        IncompatibleSchema,
        "only nullable columns may be added",
    ),
    Mistake("another key", evolve(*SCHEMA, key=("v",)), LayoutMismatch, "keyed by ['k'], not"),
    Mistake("another layout", evolve(*SCHEMA, layout="nope"), LayoutMismatch, "not known here"),
    Mistake(
        "a reserved column",
        lambda c: c.create_or_load("new", pa.schema([pa.field("__diff", pa.int64())])),
        SchemaMismatch,
        "'__diff' is reserved; choose another",
    ),
    Mistake(
        "neither schema nor codec", lambda c: c.create_or_load("new"), SchemaMismatch, "neither"
    ),
    Mistake(
        "an unknown name",
        lambda c: c.reader("nobody"),
        UnknownCollection,
        "there is no collection 'nobody'; create it",
    ),
    Mistake(
        "destroying an unknown name", lambda c: c.destroy("nobody"), UnknownCollection, "nobody"
    ),
    Mistake(
        "a destroyed name",
        lambda c: c.reader("gone"),
        DestroyedCollection,
        "'gone' was destroyed, and names are never reused; choose another",
    ),
    Mistake(
        "creating a destroyed name",
        lambda c: c.create_or_load("gone", SCHEMA),
        DestroyedCollection,
        "never reused",
    ),
    Mistake(
        "a write to a closed collection",
        lambda c: c.create_or_load("closed", SCHEMA)[0].write([FIRST]).result(),
        ClosedCollection,
        "'closed' is closed",
    ),
    Mistake(
        "an unknown timeline",
        lambda c: c.create_or_load("new", SCHEMA, timeline="nowhere"),
        UnknownTimeline,
        "'nowhere'; advance it once",
    ),
    Mistake(
        "a timeline that moves back",
        lambda c: c.core.submit(Advance("main", 9)).result(),
        TimelineRegression,
        "is at 10 already and never goes back to 9",
    ),
    Mistake("an expired capability", expired, InvalidCapability, "lease of 10 ms has expired; acq"),
    Mistake(
        "one collection twice",
        lambda c: c.core.submit(
            AllowCompaction(((orders(c).id, Frontier.of(4)), (orders(c).id, Frontier.of(5))))
        ).result(),
        DuplicateCollection,
        "named twice in one request",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_named_and_changes_nothing(mistake: Mistake) -> None:
    place = (MemoryBlob(), MemoryConsensus())
    fill(place)
    with start(place) as client:
        orders(client)
        with pytest.raises(mistake.error) as raised:
            mistake.ask(client)
        assert type(raised.value) is mistake.error
        assert mistake.says in str(raised.value)
    check_usable(place)
