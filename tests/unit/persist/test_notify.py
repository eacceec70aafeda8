"""A reader that the writer notifies, and what it does when there is nobody to notify it.

No test here measures time: where a notification must have come, polling is set so slow that the
test would run into pytest's own limit without it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from headwater.base.errors import InvalidUsage
from headwater.persist.client import Client, open_location
from headwater.persist.commands import SetItem
from headwater.persist.core import Settings
from headwater.persist.notify import ADDRESS, MAGIC, Announcement, announced
from headwater.persist.read import Updates
from headwater.persist.state import State
from headwater.testing.awaited import until

SCHEMA = pa.schema([pa.field("k", pa.int64())])
NEVER_MS = 3_600_000
WRITER = Settings(notify=True)
ONLY_NOTIFIED = Settings(poll_ms=20, notified_poll_ms=NEVER_MS)


def until_seen(client: Client, ready: Callable[[State], bool]) -> None:
    """Wait until the client has seen such a state (it looks by itself, or is notified)."""
    found = client.core.wait(lambda state: True if ready(state) else None)
    assert found


def wait_connected(reader: Client) -> None:
    until(lambda: reader.core.notified, "a connection to the writer")


def test_a_notified_reader_hears_of_every_seal(tmp_path: Path) -> None:
    with open_location(tmp_path, settings=WRITER) as writer:
        write, _ = writer.create_or_load("t", SCHEMA)
        with open_location(
            tmp_path, read_only=True, notified=True, settings=ONLY_NOTIFIED
        ) as reader:
            listen = reader.reader("t").listen(0)
            wait_connected(reader)
            write.compare_and_append([], 0, 1).result()
            for time in range(1, 20):
                write.compare_and_append([({"k": time}, time, 1)], time, time + 1).result()
                event = listen.fetch()
                while not isinstance(event, Updates):
                    event = listen.fetch()
                assert event.ok.column("k").to_pylist() == [time]


def test_without_a_writer_that_notifies_it_polls(tmp_path: Path) -> None:
    with open_location(tmp_path) as writer:
        write, _ = writer.create_or_load("t", SCHEMA)
        polling = Settings(poll_ms=5)
        with open_location(tmp_path, read_only=True, notified=True, settings=polling) as reader:
            write.compare_and_append([({"k": 1}, 0, 1)], 0, 1).result()
            assert reader.reader("t").snapshot(0).to_table().num_rows == 1
            assert not reader.core.notified


def test_a_reader_finds_the_next_writer_by_itself(tmp_path: Path) -> None:
    """The connection is lost with the writer; its successor announces another address."""
    settings = Settings(poll_ms=20, notified_poll_ms=NEVER_MS)
    with open_location(tmp_path, settings=WRITER) as writer:
        write, _ = writer.create_or_load("t", SCHEMA)
        write.compare_and_append([({"k": 1}, 0, 1)], 0, 1).result()
        reader = open_location(tmp_path, read_only=True, notified=True, settings=settings)
        wait_connected(reader)
    with reader:
        until_seen(reader, lambda state: ADDRESS not in state.items)
        until(lambda: not reader.core.notified, "the end of the connection")
        # In between it polls.
        with open_location(tmp_path) as quiet:
            write, _ = quiet.create_or_load("t", SCHEMA)
            write.compare_and_append([({"k": 2}, 1, 1)], 1, 2).result()
            assert reader.reader("t").snapshot(1).to_table().num_rows == 2
        with open_location(tmp_path, settings=WRITER) as writer:
            write, _ = writer.create_or_load("t", SCHEMA)
            wait_connected(reader)
            write.compare_and_append([({"k": 3}, 2, 1)], 2, 3).result()
            assert reader.reader("t").snapshot(2).to_table().num_rows == 3


def test_an_address_that_belongs_to_somebody_else_is_not_followed(tmp_path: Path) -> None:
    """After a crash the port may serve anything: then the reader polls."""
    with socket.create_server(("127.0.0.1", 0)) as stranger, open_location(tmp_path) as writer:
        host, port = stranger.getsockname()
        item = msgspec.json.encode(Announcement(host, port, "00" * 16))
        writer.core.submit(SetItem(ADDRESS, item)).result()
        write, _ = writer.create_or_load("t", SCHEMA)
        polling = Settings(poll_ms=5, notified_poll_ms=NEVER_MS)
        with open_location(tmp_path, read_only=True, notified=True, settings=polling) as reader:
            connection, _ = stranger.accept()
            with connection:
                connection.sendall(MAGIC + b"\1" * 16)
                assert connection.recv(1) == b""  # it hangs up
            assert not reader.core.notified
            write.compare_and_append([({"k": 1}, 0, 1)], 0, 1).result()
            assert reader.reader("t").snapshot(0).to_table().num_rows == 1


def test_garbage_in_the_announcement_is_no_announcement() -> None:
    for item in (b"", b"{}", b"\xff", b'{"host":"127.0.0.1","port":1,"token":"xyz"}'):
        state = State(items=State().items.set(ADDRESS, item))
        assert announced(state) is None


def test_the_writer_withdraws_its_address_and_closes(tmp_path: Path) -> None:
    with open_location(tmp_path, settings=WRITER) as writer:
        address = announced(writer.core.state)
        assert address is not None
        peer = socket.create_connection((address.host, address.port))
    with peer:
        received = b""
        while piece := peer.recv(4096):
            received += piece
    assert received.startswith(MAGIC + bytes.fromhex(address.token))
    assert (len(received) - len(MAGIC) - 16) % 8 == 0
    with open_location(tmp_path, read_only=True) as reader:
        assert announced(reader.core.state) is None
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((address.host, address.port))


def test_a_reader_that_does_not_read_delays_nobody(tmp_path: Path) -> None:
    with open_location(tmp_path, settings=WRITER) as writer:
        address = announced(writer.core.state)
        assert address is not None
        with socket.create_connection((address.host, address.port)) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            write, _ = writer.create_or_load("t", SCHEMA)
            futures = [write.seal(time) for time in range(1, 5_000)]
            assert all(future.result() for future in futures)


def test_only_readers_are_notified(tmp_path: Path) -> None:
    with pytest.raises(InvalidUsage, match="read_only=True"):
        open_location(tmp_path, notified=True)
    assert not list(tmp_path.iterdir())


def test_nothing_listens_unless_asked(tmp_path: Path) -> None:
    with open_location(tmp_path) as writer:
        assert ADDRESS not in writer.core.state.items
