"""The life of an id and its frontiers, as the formalism has them; transactions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.base.ids import GlobalId
from headwater.collection.capability import ReadCapability, WriteCapability, new_token
from headwater.collection.collections import (
    Bound,
    Collections,
    Description,
    Gone,
    Unassigned,
    Unbound,
)
from headwater.collection.commands import VIEW_PREFIX
from headwater.persist.client import Client, ReadHandle, open_location
from headwater.persist.commands import Advance, Atomic, RetireWriter, SetItem
from headwater.persist.errors import (
    AsOfBeforeSince,
    CompactionRegression,
    DestroyedCollection,
    IdNotReserved,
    InvalidBounds,
    InvalidCapability,
    LayoutMismatch,
    ReadOnly,
    SchemaMismatch,
    SealRegression,
    TimeOutOfBounds,
    UnknownCollection,
    UpdateBeyondUpper,
    WriteBeforeUpper,
)
from headwater.persist.maintenance import Maintenance
from headwater.persist.state import violations
from tests.unit.collection.numbered import CLOSED, DESCRIPTION, SCHEMA, at, contents, rows

# ---- the life of an id -------------------------------------------------------------------------


def test_the_life_of_an_id(client: Client, collections: Collections) -> None:
    assert collections.status(GlobalId(1)) == Unassigned()
    gid = collections.new_id()
    assert collections.status(gid) == Unbound()
    read, write = collections.create(gid, Description(SCHEMA, start=7))
    assert collections.status(gid) == Bound(at(7), at(7))
    assert (read.frontier, write.frontier) == (at(7), at(7))

    write = collections.update_and_downgrade(write, rows((1, 8)), 10)
    assert collections.status(gid) == Bound(at(7), at(10))
    read = collections.downgrade_read(read, 9)
    assert collections.status(gid) == Bound(at(9), at(10))

    collections.drop(write)
    unwriteable = collections.status(gid)
    assert isinstance(unwriteable, Bound)
    assert unwriteable == Bound(at(9), CLOSED)
    assert not unwriteable.writeable
    assert unwriteable.readable
    assert contents(collections, gid, 1_000_000) == [1]

    collections.drop(read)
    assert collections.status(gid) == Bound(CLOSED, CLOSED)
    with pytest.raises(AsOfBeforeSince, match="no longer readable"):
        ReadHandle(client.core, gid).snapshot(1_000_000)


def test_an_id_is_never_bound_again(client: Client, collections: Collections) -> None:
    gid = collections.new_id()
    read, write = collections.create(gid, DESCRIPTION)
    with pytest.raises(IdNotReserved, match="bound before"):
        collections.create(gid, DESCRIPTION)
    collections.drop(read)
    collections.drop(write)
    with pytest.raises(IdNotReserved, match="bound before"):
        collections.create(gid, DESCRIPTION)
    client.destroy(f"u{gid}")
    assert collections.status(gid) == Gone()
    with pytest.raises(DestroyedCollection):
        collections.create(gid, DESCRIPTION)
    with pytest.raises(DestroyedCollection):
        collections.acquire_capabilities(gid)
    with pytest.raises(IdNotReserved, match="never reserved"):
        collections.create(GlobalId(99), DESCRIPTION)
    assert collections.new_id() != gid


def test_a_new_collection_must_be_possible(collections: Collections) -> None:
    gid = collections.new_id()
    double = pa.schema([pa.field("k", pa.int64()), pa.field("k", pa.int64())])
    for description, problem in [
        (Description(double), SchemaMismatch),
        (Description(SCHEMA, key=("x",)), SchemaMismatch),
        (Description(SCHEMA, layout="clay"), LayoutMismatch),
        (Description(SCHEMA, start=-1), TimeOutOfBounds),
    ]:
        with pytest.raises(problem):
            collections.create(gid, description)
    assert collections.status(gid) == Unbound()


# ---- frontiers follow capabilities -------------------------------------------------------------


def test_updates_are_at_times_from_the_frontier_to_the_new_one(collections: Collections) -> None:
    gid = collections.new_id()
    _, write = collections.create(gid, DESCRIPTION)
    write = collections.update_and_downgrade(write, rows((1, 3)), 5)
    for updates, to, problem in [
        (rows(), 5, InvalidBounds),
        (rows(), 4, InvalidBounds),
        (rows((1, 4)), 8, WriteBeforeUpper),
        (rows((1, 8)), 8, UpdateBeyondUpper),
        (rows((1, 5), (1, 9)), 8, UpdateBeyondUpper),
        (rows(), -1, TimeOutOfBounds),
        ([({"x": "?"}, 6, 1)], 8, SchemaMismatch),
    ]:
        with pytest.raises(problem):
            collections.update_and_downgrade(write, updates, to)
    assert collections.status(gid) == Bound(at(0), at(5))
    # The whole future may be written at once, and then no more.
    write = collections.update_and_downgrade(write, rows((2, 5), (3, 2**40)), None)
    assert collections.status(gid) == Bound(at(0), CLOSED)
    assert contents(collections, gid, 2**40) == [1, 2, 3]
    with pytest.raises(InvalidBounds):
        collections.update_and_downgrade(write, rows((4, 2**41)), None)


def test_upper_is_the_meet_of_all_writers(collections: Collections) -> None:
    gid = collections.new_id()
    _, ahead = collections.create(gid, DESCRIPTION)
    behind = collections.clone_write(ahead)
    ahead = collections.update_and_downgrade(ahead, rows((1, 2), (2, 7)), 8)
    assert collections.status(gid) == Bound(at(0), at(0))
    behind = collections.update_and_downgrade(behind, rows((3, 1)), 5)
    assert collections.status(gid) == Bound(at(0), at(5))
    assert contents(collections, gid, 4) == [1, 3]  # What is ahead of upper is not seen,
    behind = collections.downgrade_write(behind, 6)
    assert contents(collections, gid, 5) == [1, 3]
    collections.drop(behind)
    assert collections.status(gid) == Bound(at(0), at(8))
    assert contents(collections, gid, 7) == [1, 2, 3]  # and is there once it is sealed.
    with pytest.raises(SealRegression):
        collections.downgrade_write(ahead, 7)


def test_since_is_the_meet_of_all_readers(collections: Collections) -> None:
    gid = collections.new_id()
    first, _ = collections.create(gid, DESCRIPTION)
    second = collections.clone_read(first)
    first = collections.downgrade_read(first, 30)
    assert collections.status(gid) == Bound(at(0), at(0))  # Past upper is allowed.
    second = collections.downgrade_read(second, 20)
    assert collections.status(gid) == Bound(at(20), at(0))
    with pytest.raises(CompactionRegression):
        collections.downgrade_read(first, 29)
    with pytest.raises(CompactionRegression):
        collections.acquire_read(gid, at=19)
    third = collections.acquire_read(gid)
    assert third.frontier == at(20)
    collections.drop(second)
    collections.drop(third)
    collections.drop(third)  # Its reply may have been lost.
    assert collections.status(gid) == Bound(at(30), at(0))
    collections.downgrade_read(first, None)
    assert collections.status(gid) == Bound(CLOSED, at(0))


def test_where_all_is_released_capabilities_are_empty(collections: Collections) -> None:
    gid = collections.new_id()
    for capability in collections.create(gid, DESCRIPTION):
        collections.drop(capability)
    read, write = collections.acquire_capabilities(gid)
    assert (read.frontier, write.frontier) == (CLOSED, CLOSED)
    with pytest.raises(InvalidCapability, match="frontier is empty"):
        collections.subscribe_at(read)
    with pytest.raises(InvalidBounds):
        collections.update_and_downgrade(write, [], None)
    assert collections.status(gid) == Bound(CLOSED, CLOSED)


def test_nobody_but_its_view_writes_an_output(client: Client, collections: Collections) -> None:
    gid = collections.new_id()
    _, write = collections.create(gid, DESCRIPTION)
    item = SetItem(f"{VIEW_PREFIX}{gid}", b"a view")
    client.core.submit(Atomic((RetireWriter(gid, write.holder), item))).result()
    read, nothing = collections.acquire_capabilities(gid)
    assert (read.frontier, nothing.frontier) == (at(0), CLOSED)
    with pytest.raises(InvalidCapability):
        collections.update_and_downgrade(nothing, rows((1, 0)), 1)
    collections.drop(nothing)
    assert collections.status(gid) == Bound(at(0), at(0))


def test_a_token_of_nothing_gives_no_right(collections: Collections) -> None:
    gid = collections.new_id()
    read, write = collections.create(gid, DESCRIPTION)
    forged_read = ReadCapability(gid, new_token(), at(0))
    forged_write = WriteCapability(gid, new_token(), at(0))
    # The holder, which can be seen in the log, is no token.
    seen_read = ReadCapability(gid, read.holder, at(0))
    swapped = WriteCapability(gid, read.token, at(0))
    for refused in (
        lambda: collections.subscribe_at(forged_read),
        lambda: collections.subscribe_at(seen_read),
        lambda: collections.downgrade_read(seen_read, 5),
        lambda: collections.clone_read(forged_read),
        lambda: collections.renew_read(forged_read),
        lambda: collections.update_and_downgrade(forged_write, [], 5),
        lambda: collections.update_and_downgrade(swapped, [], 5),
        lambda: collections.clone_write(forged_write),
        lambda: collections.renew_write(forged_write),
        lambda: collections.downgrade_write(swapped, 5),
    ):
        with pytest.raises(InvalidCapability, match="never existed"):
            refused()
    collections.drop(forged_read)  # Dropping nothing drops nothing.
    collections.drop(seen_read)
    assert collections.reader(read).since == at(0)
    assert collections.writer(write).frontier == at(0)
    with pytest.raises(UnknownCollection):
        collections.subscribe_at(ReadCapability(GlobalId(99), read.token, at(0)))


def test_a_capability_is_good_only_as_stated(collections: Collections) -> None:
    gid = collections.new_id()
    read, write = collections.create(gid, DESCRIPTION)
    collections.update_and_downgrade(write, rows((1, 0)), 10)
    moved = collections.downgrade_read(read, 5)
    with pytest.raises(InvalidCapability, match=r"moved from \{0\} to \{5\}"):
        collections.subscribe_at(read)
    collections.subscribe_at(moved).close()
    collections.subscribe_at(moved.at(at(8))).close()  # To state less than one has is fine.
    # A clone of an old value has the rights the system knows, not those it states.
    assert collections.clone_read(read).frontier == at(5)
    assert collections.clone_write(write).frontier == at(10)


def test_a_table_on_a_timeline_begins_there_and_is_held_by_its_writer(
    collections: Collections,
) -> None:
    collections.execute(Advance("default", 50))
    gid = collections.new_id()
    read, write = collections.create(gid, Description(SCHEMA, timeline="default"))
    assert (read.frontier, write.frontier) == (at(50), at(50))
    collections.execute(Advance("default", 60))
    assert collections.status(gid) == Bound(at(50), at(50))
    write = collections.update_and_downgrade(write, rows((1, 55)), 70)
    assert collections.status(gid) == Bound(at(50), at(70))
    collections.drop(write)  # Now it follows its timeline, which goes on.
    collections.execute(Advance("default", 80))
    assert collections.status(gid) == Bound(at(50), at(80))
    assert contents(collections, gid, 79) == [1]


def test_a_reader_cannot_command(client: Client) -> None:
    core = client.core
    with open_location(blob=core.blob, consensus=core.consensus, read_only=True) as reading:
        with pytest.raises(ReadOnly):
            Collections(reading).new_id()
        assert Collections(reading).status(GlobalId(1)) == Unassigned()


# ---- transactions and validation ---------------------------------------------------------------


def test_a_transaction_is_all_or_nothing(client: Client, collections: Collections) -> None:
    (_, a), (_, b) = (collections.create(collections.new_id(), DESCRIPTION) for _ in range(2))
    wrong = (
        collections.transaction()
        .update_and_downgrade(a, rows((1, 0)), 1)
        .update_and_downgrade(b, rows((2, 5)), 1)
    )
    for attempt in (wrong.validate, wrong.commit):
        with pytest.raises(UpdateBeyondUpper):
            attempt()
    assert collections.status(a.id) == Bound(at(0), at(0))
    right = (
        collections.transaction()
        .update_and_downgrade(a, rows((1, 0)), 1)
        .update_and_downgrade(b, rows((2, 0)), 1)
        .add(SetItem("told", b"yes"))
    )
    right.validate()
    assert collections.status(a.id) == Bound(at(0), at(0))
    right.commit()
    assert (contents(collections, a.id, 0), contents(collections, b.id, 0)) == ([1], [2])
    assert client.core.state.items["told"] == b"yes"


def test_validation_of_large_updates_writes_nothing(client: Client) -> None:
    collections = Collections(client)
    gid = collections.new_id()
    _, write = collections.create(gid, DESCRIPTION)
    count = 10_000
    numbers = pa.array(range(count), pa.int64())
    updates = pa.table({"k": numbers, "__time": numbers, "__diff": numbers})
    before = client.core.state
    with pytest.raises(UpdateBeyondUpper):
        collections.validation.update_and_downgrade(write, updates, count - 1)
    promised = collections.validation.update_and_downgrade(write, updates, count)
    assert client.core.state is before
    assert [info.key for info in client.core.blob.list()] == []
    assert collections.update_and_downgrade(write, updates, count) == promised


def test_what_validation_returns_grants_nothing(collections: Collections) -> None:
    gid = collections.validation.new_id()
    assert collections.new_id() == gid
    read, write = collections.validation.create(gid, Description(SCHEMA, start=4))
    assert (read.frontier, write.frontier) == (at(4), at(4))
    assert collections.status(gid) == Unbound()
    collections.create(gid, DESCRIPTION)
    with pytest.raises(InvalidCapability, match="never existed"):
        collections.subscribe_at(read)


# ---- what nobody can read goes -----------------------------------------------------------------


def _large(time: int) -> pa.Table:
    numbers = pa.array(range(5_000), pa.int64())
    ones = pa.array([1] * 5_000, pa.int64())
    return pa.table({"k": numbers, "__time": pa.array([time] * 5_000, pa.int64()), "__diff": ones})


def test_unreadable_data_is_dropped_and_its_objects_collected(
    client: Client, collections: Collections
) -> None:
    maintenance = Maintenance(client.core)
    kept, kept_write = collections.create(collections.new_id(), DESCRIPTION)
    collections.update_and_downgrade(kept_write, _large(0), 1)
    gid = collections.new_id()
    read, write = collections.create(gid, DESCRIPTION)
    for time in range(3):
        write = collections.update_and_downgrade(write, _large(time), time + 1)
    subscription = collections.subscribe_at(read)
    collections.drop(read)
    maintenance.once()
    assert len(list(client.core.blob.list())) == 4  # Somebody here still reads.
    subscription.close()
    maintenance.once()
    maintenance.collect()
    assert len(list(client.core.blob.list())) == 1
    # It may still be written, for nobody; that goes as well, and so does the rest at the end.
    write = collections.update_and_downgrade(write, _large(3), 4)
    maintenance.once()
    collections.drop(write)
    maintenance.once()
    maintenance.collect()
    assert len(list(client.core.blob.list())) == 1
    assert not any(batch.parts for batch in client.core.state.collections[gid].batches)
    assert contents(collections, kept.id, 0) == list(range(5_000))
    assert list(violations(client.core.state)) == []
