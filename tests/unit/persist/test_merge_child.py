"""Merges in a child process: the same as here, and nothing is lost when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.base.errors import Indeterminate
from headwater.collection.run_layout import LAYOUTS
from headwater.persist import compact
from headwater.persist.blob import FileBlob, MemoryBlob
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.core import Settings
from headwater.persist.layout import InlineLayout, Layouts
from headwater.persist.maintenance import Maintenance, leaked
from headwater.persist.merge_child import MergeChild, child_for
from headwater.testing.awaited import until

pytestmark = pytest.mark.server  # each starts an interpreter, at low priority

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("name", pa.string())])
BATCH_ROWS = 500
BATCHES = 6


def fill(write: WriteHandle) -> None:
    """Append, and retract in every second batch half of what the one before it brought."""
    for at in range(BATCHES):
        first = at // 2 * BATCH_ROWS
        rows = [
            ({"k": k, "name": f"name {k}"}, at, -1 if at % 2 else 1)
            for k in range(first, first + BATCH_ROWS // (1 + at % 2))
        ]
        write.compare_and_append(rows, at, at + 1).result()
    write.allow_compaction(BATCHES - 1).result()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    settings = Settings(maintenance=False, child_merge_rows=100)
    with open_location(tmp_path, settings=settings, layouts=LAYOUTS) as client:
        yield client


@pytest.mark.parametrize("layout", ["parquet", "run"])
def test_the_child_merges_as_we_do(client: Client, layout: str) -> None:
    write, read = client.create_or_load("t", SCHEMA, key=("k",), layout=layout)
    fill(write)
    before = read.snapshot().to_table()
    maintenance = Maintenance(client.core)
    assert maintenance.merge_batches(
        client.core.state.collections[write.id], client.core.state.collections[write.id].batches
    )
    assert maintenance._child is not None
    assert maintenance._child.pid is not None, "it was the child that merged"
    (batch,) = client.core.state.collections[write.id].batches
    assert batch.rows == before.num_rows == BATCHES // 2 * BATCH_ROWS // 2
    assert _multiset(read.snapshot().to_table()) == _multiset(before)
    maintenance.stop()


def _multiset(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_a_killed_child_is_replaced(client: Client) -> None:
    write, read = client.create_or_load("t", SCHEMA, key=("k",))
    fill(write)
    before = read.snapshot().to_table()
    maintenance = Maintenance(client.core)
    child = maintenance._child
    assert child is not None
    first = child._running().pid
    os.kill(first, signal.SIGKILL)
    collection = client.core.state.collections[write.id]
    with pytest.raises(Indeterminate, match="gone"):
        maintenance.merge_batches(collection, collection.batches)
    assert client.core.state.collections[write.id] is collection, "nothing happened"
    assert maintenance.merge_batches(collection, collection.batches)
    assert child.pid not in (None, first)
    assert _multiset(read.snapshot().to_table()) == _multiset(before)
    maintenance.stop()


def test_a_stop_does_not_wait_for_the_child(client: Client) -> None:
    write, _ = client.create_or_load("t", SCHEMA, key=("k",))
    fill(write)
    maintenance = Maintenance(client.core)
    child = maintenance._child
    assert child is not None
    os.kill(child._running().pid, signal.SIGSTOP)  # it will never answer
    collection, failed = client.core.state.collections[write.id], list[Exception]()

    def merge() -> None:
        try:
            maintenance.merge_batches(collection, collection.batches)
        except Indeterminate as error:
            failed.append(error)

    merging = threading.Thread(target=merge)
    merging.start()
    until(lambda: client.core.steps._open, "the step of the merge")
    child.stop()
    merging.join()
    assert failed
    with pytest.raises(Indeterminate, match="stopping"):
        maintenance.merge_batches(collection, collection.batches)


def test_what_a_killed_child_left_is_swept(client: Client) -> None:
    """It may have written its output, and died before it could say so."""
    write, _ = client.create_or_load("t", SCHEMA, key=("k",))
    fill(write)
    core, collection = client.core, client.core.state.collections[write.id]
    maintenance = Maintenance(core)
    assert maintenance._child is not None
    with core.step() as step:
        parts = maintenance._child.merge(
            collection, collection.batches, collection.since, step.name()
        )
    keys = {getattr(part.where, "key", "") for part in parts}
    assert not leaked(core.state, sorted(keys)), "the step may still be open, as the log knows it"
    write.seal(BATCHES + 1).result()
    assert set(leaked(core.state, sorted(keys))) == keys
    maintenance.sweep()
    assert not keys & {info.key for info in core.blob.list()}
    maintenance.stop()


def test_a_child_that_cannot_start_is_done_without(client: Client) -> None:
    write, read = client.create_or_load("t", SCHEMA, key=("k",))
    fill(write)
    before = read.snapshot().to_table()
    maintenance = Maintenance(client.core)
    maintenance._child = MergeChild(client.core.blob.url, ("no.such.module:Layout",))  # type: ignore[attr-defined]
    collection = client.core.state.collections[write.id]
    assert maintenance.merge_batches(collection, collection.batches)
    assert _multiset(read.snapshot().to_table()) == _multiset(before)
    maintenance.stop()


def test_who_can_have_a_child(tmp_path: Path) -> None:
    class Local(InlineLayout):
        name = "local"  # type: ignore[misc]

    assert child_for(MemoryBlob(), Layouts()) is None
    assert child_for(FileBlob(tmp_path), Layouts(Local())) is None
    assert child_for(FileBlob(tmp_path), Layouts(*LAYOUTS)) is not None


def test_a_large_merge_takes_passes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "PASS_ROWS_MAX", 200)
    write, read = client.create_or_load("t", SCHEMA, key=("k",))
    fill(write)
    before, upper = read.snapshot().to_table(), write.upper
    maintenance = Maintenance(client.core)
    maintenance._child = None
    collection = client.core.state.collections[write.id]
    assert maintenance.merge_batches(collection, collection.batches)
    cut = client.core.state.collections[write.id]
    (batch,) = cut.batches
    assert len(batch.parts) > 5
    assert (cut.id, cut.since, write.upper) == (collection.id, collection.since, upper)
    assert batch.rows == before.num_rows, "equal rows met in the same pass"
    assert _multiset(read.snapshot().to_table()) == _multiset(before)


def test_one_that_nobody_waits_for_any_more_ends_in_silence(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)  # As when its parent is killed while it starts.
    try:
        ended = subprocess.run(
            [sys.executable, "-m", MergeChild.__module__, FileBlob(tmp_path).url],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(theirs)
    assert (ended.returncode, ended.stderr) == (0, b"")
