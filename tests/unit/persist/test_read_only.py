"""Independent readers: they write nothing anywhere, and never show some of the rows.

Collection of garbage under a reader is brought about by the order of operations alone: the reader
takes its state, then the writer compacts and collects, then the reader reads.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.base.errors import Determinate, HeadwaterError
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.core import Settings
from headwater.persist.errors import (
    AsOfBeforeSince,
    Corrupt,
    DestroyedCollection,
    PartCollected,
    ReadOnly,
    UnknownCollection,
)
from headwater.persist.maintenance import Maintenance
from headwater.persist.read import Progress, Updates

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
QUIET = Settings(maintenance=False)
ROWS = 500


def updates(time: int, rows: int = ROWS) -> pa.Table:
    """Too many for the log: they become an object."""
    return pa.table(
        {
            "k": pa.array(range(rows), pa.int64()),
            "v": pa.array([f"{time} and a text of some length {n}" for n in range(rows)]),
            "__time": pa.array([time] * rows, pa.int64()),
            "__diff": pa.array([1] * rows, pa.int64()),
        },
    )


def listing(root: Path) -> dict[str, tuple[int, int, int]]:
    """Everything under a directory, and itself: size, time of change, inode."""
    found = {}
    for path in (root, *sorted(root.rglob("*"))):
        status = path.stat()
        found[str(path.relative_to(root))] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


def compact_all(writer: Client, write: WriteHandle, since: int) -> None:
    """Merge everything into one batch, delete what it replaced."""
    write.allow_compaction(since).result()
    maintenance = Maintenance(writer.core)
    while maintenance.merge_one(write.id):
        pass
    maintenance.collect()
    assert not writer.core.state.garbage


def fill(write: WriteHandle, times: int = 5) -> None:
    for time in range(times):
        write.compare_and_append(updates(time), time, time + 1).result()


# ---- writing nothing -------------------------------------------------------------------------

LIFE_OF_A_READER = """
import sys
from headwater.persist.client import open_location

with open_location(sys.argv[1], read_only=True) as client:
    reader = client.reader("t")
    snapshot, listen = reader.snapshot_and_listen(2)
    assert snapshot.to_table().num_rows == 3 * 500
    assert listen.fetch().ok.num_rows == 2 * 500
    listen.fetch()
    assert listen.fetch(timeout=0.05) is None
    client.core.refresh()
"""

CRASHING_WRITER = """
import os, sys
import pyarrow as pa
from headwater.persist.client import open_location

writer = open_location(sys.argv[1])
schema = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
write, _ = writer.create_or_load("t", schema)
write.seal(9).result()
os._exit(0)
"""


def live(program: str, location: Path) -> None:
    subprocess.run([sys.executable, "-c", program, str(location)], check=True)


@pytest.mark.server  # It starts processes of ours.
def test_a_readers_life_changes_no_file(tmp_path: Path) -> None:
    """Beside a writer, after it closed, after it crashed: -wal and -shm included."""
    with open_location(tmp_path, settings=QUIET) as writer:
        write, _ = writer.create_or_load("t", SCHEMA)
        fill(write)
        assert (tmp_path / "log.db-wal").exists()
        before = listing(tmp_path)
        live(LIFE_OF_A_READER, tmp_path)
        assert listing(tmp_path) == before

    assert not (tmp_path / "log.db-wal").exists()
    before = listing(tmp_path)
    live(LIFE_OF_A_READER, tmp_path)
    assert listing(tmp_path) == before

    live(CRASHING_WRITER, tmp_path)
    assert (tmp_path / "log.db-wal").exists()
    before = listing(tmp_path)
    live(LIFE_OF_A_READER.replace("listen.fetch(timeout=0.05) is None", "True"), tmp_path)
    assert listing(tmp_path) == before


@pytest.mark.server  # It starts processes of ours.
def test_a_reader_of_a_crashed_location_does_not_stand_in_the_next_writers_way(
    tmp_path: Path,
) -> None:
    """All connections of one process share the -shm file, as the first of them opened it."""
    open_location(tmp_path).stop()
    live(CRASHING_WRITER, tmp_path)
    with open_location(tmp_path, read_only=True) as reader:
        assert reader.reader("t").upper.only() == 9
        with open_location(tmp_path, take_over=True) as writer:
            write, _ = writer.create_or_load("t", SCHEMA)
            write.seal(10).result()
            assert reader.core.refresh().seqno == writer.core.state.seqno


def test_a_missing_location_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(Determinate, match="no such"):
        open_location(tmp_path / "absent", read_only=True)
    (tmp_path / "blob").mkdir()
    with pytest.raises(Determinate, match="no such log"):
        open_location(tmp_path, read_only=True)
    assert [path.name for path in tmp_path.iterdir()] == ["blob"]
    assert not list((tmp_path / "blob").iterdir())


def test_every_change_is_refused(tmp_path: Path) -> None:
    with open_location(tmp_path, settings=QUIET) as writer:
        writer.create_or_load("t", SCHEMA)
    before = listing(tmp_path)
    with open_location(tmp_path, read_only=True) as reader:
        write = WriteHandle(reader.core, reader.reader("t").id)
        for call in (
            lambda: reader.create_or_load("u", SCHEMA),
            lambda: reader.destroy("t"),
            lambda: write.write(updates(0)),
            lambda: write.write([({"k": 1, "v": None}, 0, 1)]),
            lambda: write.seal(1),
            lambda: write.allow_compaction(1),
            lambda: write.compare_and_append([], 0, 1),
        ):
            with pytest.raises(ReadOnly, match="read_only=False"):
                call()
    assert listing(tmp_path) == before


# ---- seeing what is there --------------------------------------------------------------------


def test_a_reader_sees_what_came_after_it(tmp_path: Path) -> None:
    with open_location(tmp_path) as writer, open_location(tmp_path, read_only=True) as reader:
        with pytest.raises(UnknownCollection):
            reader.reader("t")
        write, _ = writer.create_or_load("t", SCHEMA)
        read = reader.reader("t")
        for time in range(3):
            write.compare_and_append(updates(time, 1), time, time + 1).result()
            assert read.snapshot().as_of == time
            assert read.snapshot().to_table().num_rows == time + 1
        writer.destroy("t")
        with pytest.raises(DestroyedCollection):
            reader.reader("t")


def test_a_reader_follows_over_rollups_and_truncation(tmp_path: Path) -> None:
    """The entries it would read next are gone: it takes the rollup that allowed it."""
    with open_location(tmp_path, settings=QUIET) as writer:
        write, _ = writer.create_or_load("t", SCHEMA)
        with open_location(tmp_path, read_only=True) as reader:
            maintenance = Maintenance(writer.core)
            for round_ in range(4):
                fill_from = 3 * round_
                for time in range(fill_from, fill_from + 3):
                    write.compare_and_append(updates(time, 1), time, time + 1).result()
                maintenance.roll_up(force=True)
                maintenance.collect()
                assert reader.core.refresh() == writer.core.state
            assert reader.reader("t").snapshot().to_table().num_rows == 12


@pytest.mark.parametrize("keep", [0, 1, 0.4, 0.6, -1])
def test_a_cut_object_is_a_named_error(tmp_path: Path, keep: float) -> None:
    """One object with a segment of each collection: whichever is hit says so, and no more."""
    with open_location(tmp_path, settings=QUIET) as writer:
        handles = [writer.create_or_load(name, SCHEMA)[0] for name in ("first", "second")]
        both = writer.atomic()
        for write in handles:
            both.compare_and_append(write, updates(0), 0, 1)
        both.commit().result()
    (path,) = (path for path in (tmp_path / "blob" / "part").rglob("*") if path.is_file())
    data = path.read_bytes()
    cut = round(keep * len(data)) if 0 < keep < 1 else int(keep)
    path.write_bytes(data[:cut])
    with open_location(tmp_path, read_only=True) as reader:
        with pytest.raises(Corrupt, match=r"bytes, not \d+; restore it"):
            reader.reader("second").snapshot(0).to_table()
        if keep in (0.6, -1):
            assert reader.reader("first").snapshot(0).to_table().num_rows == ROWS


# ---- collected under it ----------------------------------------------------------------------


@pytest.fixture
def writer(tmp_path: Path) -> Client:
    return open_location(tmp_path, settings=QUIET)


def test_a_snapshot_whose_parts_were_merged_away_is_read_from_the_merge(
    writer: Client, tmp_path: Path
) -> None:
    write, read = writer.create_or_load("t", SCHEMA)
    fill(write)
    expected = read.snapshot(4).to_table()
    with open_location(tmp_path, read_only=True) as reader:
        snapshot = reader.reader("t").snapshot(4)
        compact_all(writer, write, since=0)
        found = snapshot.to_table()
        assert found.num_rows == 5 * ROWS
        assert sorted(found.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)
    writer.stop()


def test_a_snapshot_before_the_new_since_is_a_named_error(writer: Client, tmp_path: Path) -> None:
    write, _ = writer.create_or_load("t", SCHEMA)
    fill(write)
    with open_location(tmp_path, read_only=True) as reader:
        snapshot = reader.reader("t").snapshot(1)
        compact_all(writer, write, since=4)
        with pytest.raises(AsOfBeforeSince, match="read at 4 or later"):
            snapshot.to_table()
    writer.stop()


def test_part_by_part_it_is_a_named_error(writer: Client, tmp_path: Path) -> None:
    """What was handed out already cannot be taken back."""
    write, _ = writer.create_or_load("t", SCHEMA)
    fill(write)
    with open_location(tmp_path, read_only=True) as reader:
        pieces = reader.reader("t").snapshot(4).updates()
        assert next(pieces).num_rows == ROWS
        compact_all(writer, write, since=0)
        with pytest.raises(PartCollected, match="hold a read capability"):
            next(pieces)
    writer.stop()


def test_a_piece_of_a_split_snapshot_is_never_the_whole(writer: Client, tmp_path: Path) -> None:
    write, _ = writer.create_or_load("t", SCHEMA)
    fill(write)
    with open_location(tmp_path, read_only=True) as reader:
        first, second = reader.reader("t").snapshot(4).split(2)
        rows = first.to_table().num_rows
        assert 0 < rows < 5 * ROWS
        compact_all(writer, write, since=0)
        with pytest.raises(PartCollected):
            second.to_table()
    writer.stop()


def test_a_destroyed_collection_is_a_named_error(writer: Client, tmp_path: Path) -> None:
    write, _ = writer.create_or_load("t", SCHEMA)
    fill(write)
    with open_location(tmp_path, read_only=True) as reader:
        snapshot = reader.reader("t").snapshot(4)
        writer.destroy("t")
        Maintenance(writer.core).collect()
        with pytest.raises(HeadwaterError, match=r"destroyed|no collection"):
            snapshot.to_table()
    writer.stop()


def test_a_listener_continues_over_a_merge_or_says_that_it_cannot(
    writer: Client, tmp_path: Path
) -> None:
    write, _ = writer.create_or_load("t", SCHEMA)
    fill(write)
    with open_location(tmp_path, read_only=True) as reader:
        continuing, lost = reader.reader("t").listen(1), reader.reader("t").listen(1)
        reader.core.refresh()
        compact_all(writer, write, since=1)
        event = continuing.fetch()
        assert isinstance(event, Updates)
        assert sorted(set(event.ok.column("__time").to_pylist())) == [2, 3, 4]
        assert event.ok.num_rows == 3 * ROWS
        assert isinstance(continuing.fetch(), Progress)
        fill_up = [write.compare_and_append(updates(t), t, t + 1) for t in range(5, 10)]
        assert all(future.result() for future in fill_up)
        compact_all(writer, write, since=8)
        reader.core.refresh()
        with pytest.raises(AsOfBeforeSince, match="read at 8 or later"):
            lost.fetch()
    writer.stop()
