"""Whoever lost a reply asks again with the same token, and is told: done already, rows or none."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.clock import ManualClock
from headwater.base.errors import ExternalError, Indeterminate
from headwater.base.ids import BatchId, GlobalId
from headwater.base.retry import RetryPolicy
from headwater.collection.collections import Collections
from headwater.collection.commands import Description
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.commands import (
    AlreadyDone,
    Command,
    CompareAndAppend,
    Done,
    Held,
    OpenWriter,
    Outcome,
    RenewWriter,
    Seal,
    UpdateAndDowngrade,
    Write,
)
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import InvalidBounds, WriteBeforeUpper
from headwater.persist.maintenance import Maintenance
from headwater.persist.part import Pending
from headwater.persist.state import TOKENS_KEPT, violations
from headwater.testing.unreliable import InterceptedConsensus, Kind, Lossy

SCHEMA = pa.schema([pa.field("k", pa.int64())])
ONCE = RetryPolicy(first_ms=1, limit_ms=1, attempts_max=1)
"""Nothing is tried again inside, so that every lost reply is somebody's Indeterminate error."""

Answer = TypeVar("Answer")


class World:
    """Storage in memory; whoever opens it takes over, as a restarted process does."""

    def __init__(self) -> None:
        self.blob, self.log = MemoryBlob(), MemoryConsensus()

    def open(self, interceptor: Lossy | LosesReply | None = None) -> Client:
        log = self.log if interceptor is None else InterceptedConsensus(self.log, interceptor)
        return open_location(
            blob=self.blob,
            consensus=log,
            take_over=True,
            clock=ManualClock(1_000),
            settings=Settings(maintenance=False, retry=ONCE),
        )


class LosesReply:
    """While it is on, appends are performed, and nobody hears of anything any more."""

    def __init__(self) -> None:
        self.on = False

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        if not self.on or kind is Kind.EFFECT:
            answer = perform()
        if self.on:
            raise Indeterminate(f"injected: the reply was lost: {call}")
        return answer

    def may_close(self) -> bool:
        return True


def rows(keys: list[int], time: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "__time": pa.array([time] * len(keys), pa.int64()),
            "__diff": pa.array([1] * len(keys), pa.int64()),
        }
    )


def pending(keys: list[int], time: int) -> list[Pending]:
    return [Pending(rows(keys, time), 0, "parquet", (), errors=False)] if keys else []


def update(client: Client, gid: GlobalId, writer: str, token: str, to: int, *keys: int) -> Outcome:
    """Write the keys at ``to - 1``, and move the capability to ``to``."""
    return client.core.submit_parts(
        pending(list(keys), to - 1),
        lambda parts: UpdateAndDowngrade(gid, writer, BatchId(token), parts, Frontier.of(to)),
    ).result()


# ---- a reply is lost -------------------------------------------------------------------------


def commands(write: WriteHandle, with_rows: bool) -> list[tuple[str, Callable[..., Command]]]:
    """Return every command that has a token."""
    gid, token = write.id, BatchId("again")
    upper = Frontier.of(5)
    found: list[tuple[str, Callable[..., Command]]] = [
        ("update", lambda parts: UpdateAndDowngrade(gid, "w", token, parts, upper)),
        ("append", lambda parts: CompareAndAppend(gid, token, Frontier.of(0), upper, parts)),
    ]
    if with_rows:
        found.append(("write", lambda parts: Write(gid, token, parts)))
    return found


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("rolled_up", [False, True])
@pytest.mark.parametrize(
    ("kind", "keys"),
    [("update", []), ("update", [7]), ("append", []), ("append", [7]), ("write", [7])],
)
def test_the_retry_of_what_was_committed_is_done_already(
    kind: str, keys: list[int], rolled_up: bool, restarted: bool
) -> None:
    world, replies = World(), LosesReply()
    client = world.open(replies)
    write, _ = client.create_or_load("t", SCHEMA)
    command = dict(commands(write, bool(keys)))[kind]
    if kind == "update":
        client.core.submit(OpenWriter(write.id, "w", "test")).result()
    replies.on = True
    with pytest.raises(Indeterminate):
        client.core.submit_parts(pending(keys, 4), command).result()
    replies.on = False
    if restarted:
        client.core.stop(release=False)
        client = world.open()
    if rolled_up:
        Maintenance(client.core).roll_up(force=True)
        client.core.stop(release=False)
        client = world.open()
    head = world.log.head()
    outcome = client.core.submit_parts(pending(keys, 4), command).result()
    assert outcome == AlreadyDone()
    assert world.log.head() == head
    if kind == "write":
        client.core.submit(Seal((write.id,), Frontier.of(5))).result()
        assert client.core.submit_parts(pending(keys, 4), command).result() == AlreadyDone()
    read = client.reader("t")
    assert read.upper == Frontier.of(5)
    assert read.snapshot(4).to_table().column("k").to_pylist() == keys
    client.stop()


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(60))
def test_writers_that_insist_come_through_once(seed: int) -> None:
    """Two capabilities, each with updates of 0 to 2 rows, over a log that loses what it can."""
    print("seed", seed)
    random = Random(seed)
    lossy = Lossy(Random(seed), rate=0.0)
    client = World().open(lossy)
    write, read = client.create_or_load("t", SCHEMA)
    frontiers = {"one": 0, "two": 0}
    for writer in frontiers:
        client.core.submit(OpenWriter(write.id, writer, "test")).result()
    lossy.rate = 0.6
    expected: list[int] = []
    for number in range(12):
        writer = random.choice(list(frontiers))
        to = frontiers[writer] + random.randint(1, 3)
        keys = list(range(number * 10, number * 10 + random.randint(0, 2)))
        while True:
            try:
                outcome = update(client, write.id, writer, f"u{number}", to, *keys)
                break
            except ExternalError:
                continue
        assert outcome in (Held(Frontier.of(to)), AlreadyDone())
        frontiers[writer] = to
        expected += keys
    lossy.rate = 0.0
    assert list(violations(client.core.state)) == []
    assert read.upper == Frontier.of(min(frontiers.values()))
    for writer in frontiers:
        update(client, write.id, writer, f"last of {writer}", 100)
    found = sorted(read.snapshot(99).to_table().column("k").to_pylist())
    assert found == sorted(expected)
    client.stop()


def test_the_commands_of_the_formalism_take_the_token() -> None:
    replies = LosesReply()
    client = World().open(replies)
    collections = Collections(client)
    gid = collections.new_id()
    _, write = collections.create(gid, Description(SCHEMA))
    token = BatchId("once")
    replies.on = True
    with pytest.raises(Indeterminate):
        collections.update_and_downgrade(write, [], 5, token=token)
    replies.on = False
    moved = collections.update_and_downgrade(write, [], 5, token=token)
    assert moved.frontier == Frontier.of(5)
    with pytest.raises(InvalidBounds):
        collections.update_and_downgrade(write, [], 5)
    client.stop()


# ---- how long a token is remembered ----------------------------------------------------------


def test_the_newest_update_of_a_capability_is_remembered_while_it_lives() -> None:
    with World().open() as client:
        write, read = client.create_or_load("t", SCHEMA)
        for writer in ("slow", "busy"):
            client.core.submit(OpenWriter(write.id, writer, "test", lease_ms=60_000)).result()
        update(client, write.id, "slow", "first", 2)
        update(client, write.id, "slow", "second", 3)
        for number in range(TOKENS_KEPT + 6):
            update(client, write.id, "busy", f"b{number}", number + 1, number)
        client.core.submit(RenewWriter(write.id, "slow")).result()
        assert len(client.core.state.collections[write.id].tokens) == TOKENS_KEPT
        assert update(client, write.id, "slow", "second", 3) == AlreadyDone()
        # An older one is forgotten, and refused: the frontier has passed it.
        with pytest.raises(InvalidBounds):
            update(client, write.id, "slow", "first", 2)
        assert update(client, write.id, "slow", "third", 4) == Held(Frontier.of(4))
        assert read.upper == Frontier.of(4)


def test_an_unsealed_write_is_remembered_until_it_is_sealed() -> None:
    with World().open() as client:
        write, read = client.create_or_load("t", SCHEMA)
        old = BatchId("old")
        assert write.write(rows([1], 9), token=old).result() == Done()
        for number in range(TOKENS_KEPT + 1):
            write.write(rows([number], 20)).result()
        assert write.write(rows([1], 9), token=old).result() == AlreadyDone()
        write.seal(10).result()
        # Forgotten, and refused: the upper has passed it.
        with pytest.raises(WriteBeforeUpper):
            write.write(rows([1], 9), token=old).result()
        assert read.snapshot(9).to_table().column("k").to_pylist() == [1]
