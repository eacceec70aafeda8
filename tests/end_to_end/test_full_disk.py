"""A disk that is full: told at once, by the name that PostgreSQL has for it, while it lasts.

The disk is a real one, of a few megabytes; where it may not be mounted nothing is tried.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.adapter.pgwire import WireServer
from headwater.base.clock import SystemClock
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.blob.file import FileBlob
from headwater.persist.client import open_location
from headwater.persist.consensus.sqlite import SqliteConsensus
from headwater.server.http import health
from headwater.testing.awaited import until
from headwater.testing.sql_server import SqlServer

pytestmark = pytest.mark.server

MEBIBYTES = 16


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MEBIBYTES}m", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def served(disk: Path) -> Iterator[tuple[SqlServer, psycopg.Connection[Any]]]:
    client = open_location(
        blob=FileBlob(disk / "blob"),
        consensus=SqliteConsensus(disk / "log.db"),
        layouts=LAYOUTS,
        clock=SystemClock(),
    )
    with (
        SqlServer(SystemClock(), client=client, tick_seconds=0.2) as server,
        WireServer("127.0.0.1", 0, server.coordinator) as wire,
        psycopg.connect(
            host=wire.host, port=wire.port, user="headwater", autocommit=True
        ) as connection,
    ):
        yield server, connection


def filled(disk: Path) -> Path:
    """Leave no room; return the file that takes it."""
    filler = disk / "filler"
    for size in (1 << 16, 1 << 12, 1):
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while file.write(bytes(size)):
                pass
    return filler


def copied(connection: psycopg.Connection[Any], first: int, last: int) -> None:
    with connection.cursor().copy("COPY t FROM STDIN") as rows:
        for key in range(first, last):
            rows.write_row((key, "x" * 100))


def test_a_full_disk(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(disk) as (server, connection):
        core = server.client.core
        room = core.retries.room
        connection.execute("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        connection.execute("INSERT INTO t VALUES (1, 'a')")
        assert room.full is None
        filler = filled(disk)

        refused: list[psycopg.Error] = []
        for sql in (
            "INSERT INTO t VALUES (2, 'promised')",
            "INSERT INTO t SELECT k + 10, v FROM t",
            "UPDATE t SET v = 'b'",
            "DELETE FROM t",
            "CREATE TABLE u (k int)",
            "BEGIN; INSERT INTO t VALUES (3, 'c'); COMMIT",
        ):
            with pytest.raises(psycopg.errors.DiskFull) as told:
                connection.execute(sql.encode())
            refused.append(told.value)
        with pytest.raises(psycopg.errors.DiskFull):
            copied(connection, 1_000, 3_000)
        assert all("no space left on the disk" in str(error) for error in refused)
        assert all(error.diag.message_hint for error in refused)
        assert not any(str(disk) in str(error) for error in refused)

        # It is said wherever one looks, and once in the log.
        full = room.full
        assert full is not None
        status, body = health(None, True, full)
        assert (status, body["status"]) == (503, "disk full")
        assert core.metrics.disk_full._value.get() == 1
        ((state, why),) = connection.execute("SELECT status, detail FROM hw_status").fetchall()
        assert (state, why[:17]) == ("stalled", "The disk is full:")
        begun = [r for r in caplog.records if r.levelno == logging.ERROR]
        assert len(begun) == 1, [r.getMessage() for r in begun]
        assert str(disk) in begun[0].getMessage()

        # What is there is read; and when there is room, it goes on by itself.
        assert connection.execute("SELECT * FROM t").fetchall() == [(1, "a")]
        filler.unlink()
        copied(connection, 1_000, 3_000)
        connection.execute("INSERT INTO t VALUES (2, 'b')")
        until(lambda: server.timeline.tick() or room.full is None, "the end of the shortage")
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(2_002,)]
        assert connection.execute("SELECT status FROM hw_status").fetchall() == [("running",)]
        assert core.metrics.disk_full._value.get() == 0
