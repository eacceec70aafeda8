"""What the golden bytes of persist's format 1 say, as values.

``persist_v1.json`` has the bytes of one entry for every kind of change, and of a rollup;
``persist_v1_location.tar.gz`` is a whole location. Both were written by the first version of this
format, which nobody writes any more, and stay as they are: whatever is changed later must read
them.
"""

from __future__ import annotations

import json
from pathlib import Path

import immutables
from msgspec.structs import replace

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId, Epoch, GlobalId, RoleName, SeqNo
from headwater.persist.batch import Batch, ColumnStats, Inline, Part, Segment, Times, Unsealed
from headwater.persist.changes import (
    Appended,
    Change,
    Codec,
    Collected,
    CollectionCreated,
    CollectionDestroyed,
    Entry,
    IdReserved,
    ItemSet,
    Merged,
    Reader,
    ReaderSet,
    Role,
    RoleSet,
    RolledUp,
    SchemaAdded,
    Sealed,
    SinceMoved,
    TimelineAdvanced,
    Writer,
    WriterSet,
    Written,
)
from headwater.persist.state import CollectionState, Rollup, State, Timeline
from headwater.persist.unsealed import UnsealedWrites

PATH = Path(__file__).with_name("persist_v1.json")
LOCATION = Path(__file__).with_name("persist_v1_location.tar.gz")

ORDERS = GlobalId(7)
CLOSED: Times = Frontier.closed()
SERVER = RoleName("server")

INLINE = Part(
    where=Inline(b"\x00\xffrows"),
    layout="inline",
    schema=0,
    errors=False,
    rows=3,
    diff_sum=-1,
    time_min=5,
    time_max=2**62,
)
IN_BLOB = Part(
    where=Segment("part/server/3-12-ab", 64, 1000, 2**64 - 1),
    layout="parquet",
    schema=1,
    errors=True,
    rows=1_000_000,
    diff_sum=2**40,
    time_min=0,
    time_max=9,
    window=(2, 9),
    stats={
        "k": ColumnStats(-3, 2**63 - 1, 0),
        "price": ColumnStats(-0.5, None, 2),
        "name": ColumnStats("a", "żółw", 1),
    },
    consolidated=True,
)
COLLECTION = CollectionState(
    id=ORDERS,
    name="orders",
    schemas=(b"schema 0", b"schema 1"),
    key=("k",),
    layout="parquet",
    codecs=(Codec("arrow", 1), Codec("arrow", 2)),
    own_upper=Frontier.of(10),
    since=Frontier.of(4),
    timeline="main",
    batches=(
        Batch(2, Frontier.of(0), Frontier.of(4), Frontier.of(4), ()),
        Batch(3, Frontier.of(4), Frontier.of(10), Frontier.of(0), (IN_BLOB,)),
    ),
    unsealed=UnsealedWrites([Unsealed(BatchId("w1"), (replace(INLINE, time_min=10),))]),
    next_batch=4,
    tokens=("w0", "w1"),
    readers={"owner": Reader(Frontier.of(4), "owner"), "r": Reader(CLOSED, "view", 100, 1_600)},
    writers={"w": Writer(Frontier.of(10), "ingest", 100, 1_700)},
)
STATE = State(
    seqno=SeqNo(41),
    clock_ms=1_500,
    next_id=9,
    reserved=frozenset({GlobalId(8)}),
    roles=immutables.Map({SERVER: Role(Epoch(3), True, "pid 1 on host", "catalog-1", "nonce", 12)}),
    timelines=immutables.Map({"main": Timeline(12, frozenset({ORDERS}))}),
    collections=immutables.Map({ORDERS: COLLECTION}),
    graveyard=immutables.Map({"old": GlobalId(2)}),
    items=immutables.Map({"catalog/1": b"\x00value"}),
    rollups=(Rollup(SeqNo(20), "rollup/20"), Rollup(SeqNo(40), "rollup/40")),
    garbage=immutables.Map({"part/server/1-1-x": SeqNo(17)}),
    names=immutables.Map({"orders": ORDERS}),
    references=immutables.Map({"part/server/3-12-ab": 1}),
)

CHANGES: dict[str, tuple[Change, ...]] = {
    "id": (IdReserved(ORDERS),),
    "create": (
        CollectionCreated(
            id=ORDERS,
            name="orders",
            schema=b"schema 0",
            key=("k", "l"),
            layout="parquet",
            codec=Codec("arrow", 1),
            start=Frontier.of(3),
            timeline="main",
            owner=True,
        ),
        CollectionCreated(
            id=GlobalId(8),
            name="żółw",
            schema=b"",
            key=(),
            layout="run",
            codec=Codec("money", 2),
            start=Frontier.of(0),
            timeline=None,
            owner=False,
        ),
    ),
    "destroy": (CollectionDestroyed(ORDERS),),
    "schema": (SchemaAdded(ORDERS, b"schema 1", Codec("arrow", 2)),),
    "write": (Written(ORDERS, Unsealed(BatchId("w1"), (INLINE, IN_BLOB))),),
    "seal": (Sealed(ORDERS, Frontier.of(10)), Sealed(ORDERS, CLOSED)),
    "append": (Appended(ORDERS, BatchId("c1"), Frontier.of(10), (IN_BLOB,)),),
    "since": (SinceMoved(ORDERS, Frontier.of(4)), SinceMoved(ORDERS, CLOSED)),
    "reader": (
        ReaderSet(ORDERS, "r", Reader(Frontier.of(4), "view", 100, 1_600)),
        ReaderSet(ORDERS, "r", None),
    ),
    "writer": (
        WriterSet(ORDERS, "w", Writer(Frontier.of(10), "ingest", 100, 1_700)),
        WriterSet(ORDERS, "w", None),
    ),
    "merge": (Merged(ORDERS, (1, 2), Frontier.of(4), (INLINE,)),),
    "advance": (TimelineAdvanced("main", 12),),
    "role": (RoleSet(SERVER, Role(Epoch(3), held=True, holder="pid 1", reentrance_id="c")),),
    "item": (ItemSet("catalog/1", b"\x00value"), ItemSet("catalog/1", None)),
    "rollup": (RolledUp(SeqNo(40), "rollup/40"),),
    "gc": (Collected(("part/server/1-1-x", "rollup/20")),),
}


def entry(changes: tuple[Change, ...]) -> Entry:
    """Return the entry that carries the changes."""
    return Entry(
        seqno=SeqNo(42),
        nonce="nonce",
        role=SERVER,
        epoch=Epoch(3),
        clock_ms=1_700_000_000_000,
        rollup=SeqNo(-1),
        closed_step=13,
        changes=changes,
    )


def load() -> dict[str, list[str]]:
    """Return the stored bytes in hexadecimal, oldest first, by what they are."""
    stored: dict[str, list[str]] = json.loads(PATH.read_text())
    return stored
