"""The end of a runtime: what was submitted finishes, nothing new is taken, nothing is lost.

None of it is needed for safety, so the last tests do not stop at all.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.persist.client import Client, open_location
from headwater.persist.commands import Done, Outcome
from headwater.persist.core import THREADS, Core
from headwater.persist.errors import AlreadyLocked, Stopped

SCHEMA = pa.schema([pa.field("k", pa.int64())])
ROWS = 5_000


def updates(time: int, rows: int = ROWS) -> pa.Table:
    """Enough rows for an object in blob: such a write is prepared in the background."""
    return pa.table(
        {
            "k": pa.array(range(rows), pa.int64()),
            "__time": pa.array([time] * rows, pa.int64()),
            "__diff": pa.array([1] * rows, pa.int64()),
        }
    )


def await_the_end(core: Core) -> None:
    """Wait until the runtime has stopped and its own threads are gone."""
    while not core.stopped or any(
        thread.name == f"{THREADS}stop" for thread in threading.enumerate()
    ):
        threading.Event().wait(0.001)


def test_pending_futures_finish_and_new_calls_are_refused(tmp_path: Path) -> None:
    client = open_location(tmp_path)
    write, read = client.create_or_load("t", SCHEMA)
    pending = [write.write(updates(time)) for time in range(20)]
    sealed = write.seal(20)
    client.stop()

    assert [future.result(timeout=0) for future in (*pending, sealed)] == [Done()] * 21
    for call in (
        lambda: write.write(updates(20)),
        lambda: write.write([({"k": 1}, 20, 1)]),
        lambda: write.seal(21),
        lambda: write.allow_compaction(3),
        lambda: client.create_or_load("u", SCHEMA),
        lambda: client.destroy("t"),
        lambda: client.atomic().seal([write], 21).commit(),
        lambda: read.snapshot(100),
        lambda: read.listen(19).fetch(),
    ):
        with pytest.raises(Stopped, match="open the location again"):
            call()
    client.stop()  # again: nothing happens

    with open_location(tmp_path) as again:
        assert again.reader("t").snapshot(19).to_table().num_rows == ROWS


def test_whoever_waits_is_told(tmp_path: Path) -> None:
    client = open_location(tmp_path)
    _, read = client.create_or_load("t", SCHEMA)
    told: Future[BaseException | None] = Future()

    def wait() -> None:
        try:
            read.snapshot(5)
        except Stopped as stopped:
            told.set_result(stopped)

    waiter = threading.Thread(target=wait)
    waiter.start()
    client.stop()
    waiter.join()
    assert isinstance(told.result(timeout=0), Stopped)


def test_the_last_clone_to_go_stops_the_runtime(tmp_path: Path) -> None:
    first = open_location(tmp_path)
    write, _ = first.create_or_load("t", SCHEMA)
    clone = first.clone()
    del first
    gc.collect()
    pending = write.write(updates(0))
    del clone
    gc.collect()

    with pytest.raises(Stopped):
        write.seal(1)
    assert pending.result(timeout=0) == Done()
    open_location(tmp_path).stop()  # the role is free


def test_a_dropped_reader_stops_too(tmp_path: Path) -> None:
    open_location(tmp_path).stop()
    reader = open_location(tmp_path, read_only=True)
    core = reader.core
    del reader
    gc.collect()
    assert core.stopped


@pytest.mark.parametrize("how", ["drop", "stop"])
def test_a_callback_may_end_the_runtime(tmp_path: Path, how: str) -> None:
    """It runs in the committing thread, which the end of the runtime waits for."""
    held: list[Client] = [open_location(tmp_path)]
    core = held[0].core
    write, _ = held[0].create_or_load("t", SCHEMA)

    def end(_: Future[Outcome]) -> None:
        if how == "stop":
            held[0].stop()
        held.clear()
        gc.collect()

    first = write.write([({"k": 1}, 0, 1)])
    first.add_done_callback(end)
    assert first.result() == Done()
    await_the_end(core)
    with pytest.raises(Stopped):
        write.seal(1)
    with open_location(tmp_path) as again:
        write, read = again.create_or_load("t", SCHEMA)
        write.seal(1).result()
        assert read.snapshot(0).to_table().to_pylist() == [{"k": 1, "__diff": 1}]


PROGRAM = """
import os, sys
import pyarrow as pa
from headwater.persist.client import open_location

client = open_location(sys.argv[1], reentrance_id="r")
write, read = client.create_or_load("t", pa.schema([pa.field("k", pa.int64())]))
for time in range(10):
    write.compare_and_append([({"k": time}, time, 1)], time, time + 1).result()
if sys.argv[2] == "vanish":
    os._exit(0)
"""


@pytest.mark.server  # It starts processes of ours.
@pytest.mark.parametrize("how", ["vanish", "exit"])
def test_without_any_stop_nothing_is_lost(tmp_path: Path, how: str) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), how], check=True)
    if how == "vanish":
        with pytest.raises(AlreadyLocked, match="pid"):
            open_location(tmp_path)
    reentrance_id = "r" if how == "vanish" else ""
    with open_location(tmp_path, reentrance_id=reentrance_id) as client:
        found = client.reader("t").snapshot(9).to_table()
        assert sorted(found.column("k").to_pylist()) == list(range(10))
