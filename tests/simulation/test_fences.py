"""Two owners of one location: what the one that lost may say, and must not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from headwater.base.clock import ManualClock
from headwater.base.errors import Indeterminate
from headwater.base.ids import BatchId
from headwater.base.retry import RetryPolicy
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.commands import SetItem
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import Fenced
from headwater.persist.location import Blob, Consensus
from headwater.persist.maintenance import Maintenance
from headwater.testing.unreliable import LostReply

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False)])
TOKEN = BatchId("token")


class Location:
    """Memory ports that several clients share."""

    def __init__(self) -> None:
        self.blob, self.log = MemoryBlob(), MemoryConsensus()
        self._clients: list[Client] = []

    def open(self, *, consensus: Consensus | None = None, blob: Blob | None = None) -> Client:
        client = open_location(
            blob=blob or self.blob,
            consensus=consensus or self.log,
            take_over=True,
            clock=ManualClock(),
            settings=Settings(
                maintenance=False, retry=RetryPolicy(first_ms=1, limit_ms=1, attempts_max=5)
            ),
        )
        self._clients.append(client)
        return client

    def stop(self) -> None:
        for client in self._clients:
            client.stop()


@pytest.fixture
def location() -> Iterator[Location]:
    made = Location()
    yield made
    made.stop()


def ask_again(client: Client, handle: WriteHandle) -> list[Callable[[], object]]:
    """Return requests that change nothing, because they are so already."""
    return [
        lambda: handle.seal(5).result(),
        lambda: handle.allow_compaction(2).result(),
        lambda: handle.write([({"k": 1}, 5, 1)], token=TOKEN).result(),
        lambda: client.core.submit(SetItem("checkpoint", b"old")).result(),
        lambda: client.create_or_load("c", SCHEMA),
    ]


@pytest.mark.parametrize("request_no", range(5))
def test_a_fenced_owner_is_not_told_that_something_is_so_already(
    location: Location, request_no: int
) -> None:
    """The successor may have changed it since: ``SetItem`` back to the old value is the worst."""
    old = location.open()
    handle, _ = old.create_or_load("c", SCHEMA)
    handle.write([({"k": 1}, 5, 1)], token=TOKEN).result()
    handle.seal(5).result()
    handle.allow_compaction(2).result()
    old.core.submit(SetItem("checkpoint", b"old")).result()
    new = location.open()
    new.core.submit(SetItem("checkpoint", b"new")).result()
    with pytest.raises(Fenced):
        ask_again(old, handle)[request_no]()


@pytest.mark.parametrize("truncates", [False, True])
def test_a_write_whose_traces_a_successor_truncated_away_is_indeterminate(
    location: Location, truncates: bool
) -> None:
    """It committed, its reply was lost, and the entry is gone when its writer looks for it.

    ``Fenced`` would say that it did not happen; nobody can say that.
    """

    def take_over() -> None:
        successor = location.open()
        if truncates:
            Maintenance(successor.core).roll_up(force=True)

    lost = LostReply(take_over)
    old = location.open(consensus=lost.consensus(location.log))
    handle, _ = old.create_or_load("c", SCHEMA)
    lost.armed = True
    answer = handle.write([({"k": 1}, 0, 1)])
    if truncates:
        with pytest.raises(Indeterminate):
            answer.result()
    else:
        answer.result()  # its entry is still there to be found
    with pytest.raises(Fenced):
        handle.seal(1).result()
    successor = location.open()
    found, reader = successor.create_or_load("c", SCHEMA)
    found.seal(1).result()
    assert reader.snapshot(0).to_table().to_pylist() == [{"k": 1, "__diff": 1}]
