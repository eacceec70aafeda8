"""Opening again: after a crash, after a rollup, while the log is truncated under the reader.

A crash is a runtime that is not stopped: it stays behind as a zombie that holds the role, and the
next one takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import current_thread, main_thread

import pyarrow as pa
import pytest

from headwater.base.ids import SeqNo
from headwater.persist import log
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.location import LogEntry
from headwater.persist.maintenance import Maintenance

SCHEMA = pa.schema([pa.field("k", pa.int64())])
QUIET = Settings(maintenance=False)


class Location:
    """A location in memory, and every runtime that was ever opened on it."""

    def __init__(self) -> None:
        self.blob = MemoryBlob()
        self.consensus = MemoryConsensus()
        self._opened: list[Client] = []

    def open(self, *, read_only: bool = False) -> Client:
        client = open_location(
            blob=self.blob,
            consensus=self.consensus,
            read_only=read_only,
            take_over=not read_only,
            settings=QUIET,
        )
        self._opened.append(client)
        return client

    def close(self) -> None:
        for client in self._opened:
            client.core.stop(release=False)


@pytest.fixture
def location() -> Iterator[Location]:
    location = Location()
    yield location
    location.close()


def append(client: Client, time: int) -> None:
    write, _ = client.create_or_load("t", SCHEMA)
    write.compare_and_append([({"k": time}, time, 1)], time, time + 1).result()


def rows(client: Client) -> list[int]:
    return sorted(client.reader("t").snapshot().to_table().column("k").to_pylist())


def test_a_crash_right_after_a_rollup_loses_nothing(location: Location) -> None:
    """The entry that announces a rollup may be the head when the log was truncated up to it."""
    client = location.open()
    append(client, 0)
    Maintenance(client.core).roll_up(force=True)
    append(client, 1)
    Maintenance(client.core).roll_up(force=True)
    # No entry follows the announcement: the process is gone.
    assert rows(location.open()) == [0, 1]


def test_a_reader_finds_its_way_over_a_truncated_log(location: Location) -> None:
    client = location.open()
    append(client, 0)
    reader = location.open(read_only=True)
    for time in range(1, 4):
        append(client, time)
        Maintenance(client.core).roll_up(force=True)
        Maintenance(client.core).collect()
    reader.core.refresh()
    assert rows(reader) == [0, 1, 2, 3]


class MeanwhileConsensus(MemoryConsensus):
    """Lets something happen between two reads of the test's own thread."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Callable[[], None]] = []

    def scan(self, start: SeqNo, limit: int) -> tuple[LogEntry, ...]:
        if self.meanwhile and current_thread() is main_thread():
            self.meanwhile.pop()()
        return super().scan(start, limit)


def test_the_log_is_rolled_up_again_and_again_while_a_reader_looks(location: Location) -> None:
    location.consensus = consensus = MeanwhileConsensus()
    client = location.open()
    append(client, 0)
    behind = client.core.state
    done = [0]

    def move_on() -> None:
        done[0] += 1
        append(client, done[0])
        Maintenance(client.core).roll_up(force=True)
        Maintenance(client.core).collect()

    consensus.meanwhile = [move_on] * 5
    found = log.follow(consensus, location.blob, behind)
    assert not consensus.meanwhile
    assert found.seqno >= behind.seqno + 10
    assert log.load(consensus, location.blob).seqno == client.core.state.seqno
