"""Bad input: each mistake and each fault has its own error, and costs nothing that was committed.

Whatever a case does, afterwards what was committed reads the same, the location takes writes, and
opening it again shows both. Mistakes of the caller are played in memory, faults on real files.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.clock import ManualClock
from headwater.base.errors import Determinate, ExternalError, HeadwaterError
from headwater.base.ids import RoleName
from headwater.base.retry import RetryPolicy
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.commands import Advance, AllowCompaction, Done, DowngradeReader, OpenReader
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import (
    AlreadyLocked,
    AsOfBeforeSince,
    ClosedCollection,
    CompactionRegression,
    Corrupt,
    DestroyedCollection,
    DuplicateCollection,
    Fenced,
    IncompatibleSchema,
    InvalidBounds,
    InvalidCapability,
    LayoutMismatch,
    ReadOnly,
    SchemaMismatch,
    SealRegression,
    Stopped,
    TimelineRegression,
    TimeOutOfBounds,
    UnknownCollection,
    UnknownTimeline,
    UpdateBeyondUpper,
    WriteBeforeUpper,
)
from headwater.persist.interval import Interval
from headwater.persist.maintenance import Maintenance
from headwater.persist.read import Snapshot
from headwater.persist.source import persisted_source

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
SETTINGS = Settings(maintenance=False, retry=RetryPolicy(attempts_max=2))
NOISE = "".join(chr(code) for code in Random(7).choices(range(33, 126), k=40_000))
"""Too large for the log, and not to be compressed."""

Row = tuple[dict[str, Any], int, int]
FIRST: Row = ({"k": 1, "v": "inline"}, 1, 1)
LARGE: Row = ({"k": 2, "v": NOISE}, 4, 1)


def updates(schema: pa.Schema = SCHEMA, **columns: list[Any]) -> pa.Table:
    system = [pa.field("__time", pa.int64()), pa.field("__diff", pa.int64())]
    return pa.table(columns, schema=pa.schema([*schema, *system]))


Place = Path | tuple[MemoryBlob, MemoryConsensus]


def start(place: Place, **options: Any) -> Client:
    if isinstance(place, Path):
        where: dict[str, Any] = {"location": place}
    else:
        where = {"blob": place[0], "consensus": place[1]}
    return open_location(**where, clock=ManualClock(1_000), settings=SETTINGS, **options)


def fill(place: Place) -> None:
    """Commit two rows: one in the log, one in blob; compacted to 3, sealed to 5."""
    with start(place) as client:
        write, _ = client.create_or_load("orders", SCHEMA, key=("k",))
        write.compare_and_append([FIRST], 0, 3).result()
        write.compare_and_append([LARGE], 3, 5).result()
        write.allow_compaction(3).result()
        client.create_or_load("gone", SCHEMA)
        client.destroy("gone")
        closed, _ = client.create_or_load("closed", SCHEMA)
        closed.seal(None).result()
        client.core.submit(Advance("main", 10)).result()


def keys(snapshot: Snapshot) -> set[int]:
    return set(snapshot.to_table().column("k").to_pylist())


def check_usable(place: Place) -> None:
    """What was committed is there, and the location goes on."""
    with start(place, take_over=True) as client:
        write, read = client.create_or_load("orders", SCHEMA, key=("k",))
        upper = read.upper.only()
        assert keys(read.snapshot(4)) == {1, 2}
        assert write.compare_and_append([({"k": 9}, upper, 1)], upper, upper + 1).result() == Done()
        assert keys(read.snapshot(upper)) >= {1, 2, 9}
    with start(place, read_only=True) as client:
        assert keys(client.reader("orders").snapshot(upper)) >= {1, 2, 9}


# ---- mistakes of the caller ------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """What is asked, and what must be said about it."""

    name: str
    ask: Callable[[Client], object]
    error: type[HeadwaterError]
    says: str


def orders(client: Client) -> Any:
    return client.create_or_load("orders", SCHEMA, key=("k",))[0]


def write(rows: Any) -> Callable[[Client], object]:
    return lambda client: orders(client).write(rows).result()


def snapshot(as_of: int) -> Callable[[Client], object]:
    return lambda client: client.reader("orders").snapshot(as_of, 0)


def expired(client: Client) -> object:
    gid, core = client.reader("orders").id, client.core
    core.submit(OpenReader(gid, "r", "test", lease_ms=10)).result()
    assert isinstance(core.clock, ManualClock)
    core.clock.set(1_010)
    return core.submit(DowngradeReader(gid, "r", Frontier.of(4))).result()


def evolve(*fields: pa.Field, **options: Any) -> Callable[[Client], object]:
    chosen = {"key": ("k",), **options}
    return lambda client: client.create_or_load("orders", pa.schema(fields), **chosen)


MISTAKES = [
    Mistake(
        "a write before the seal",
        write([({"k": 3}, 4, 1)]),
        WriteBeforeUpper,
        "'orders' at time 4 is before its sealed frontier {5}; write at",
    ),
    Mistake(
        "a write of which only one row is before the seal",
        write([({"k": 3}, 9, 1), ({"k": 3}, 0, 1)]),
        WriteBeforeUpper,
        "at time 0 is before",
    ),
    Mistake(
        "an append beyond its own upper",
        lambda c: orders(c).compare_and_append([({"k": 3}, 7, 1)], 5, 7).result(),
        UpdateBeyondUpper,
        "at time 7 is not before the batch's upper {7}; raise",
    ),
    Mistake(
        "an inverted interval",
        lambda c: orders(c).compare_and_append([], 5, 5).result(),
        InvalidBounds,
        "[{5}, {5}) is empty or inverted; give",
    ),
    Mistake(
        "a seal that moves back", lambda c: orders(c).seal(4).result(), SealRegression, "later"
    ),
    Mistake(
        "compaction that moves back",
        lambda c: orders(c).allow_compaction(2).result(),
        CompactionRegression,
        "to {2}: it is at {3} already",
    ),
    Mistake(
        "a negative time", write([({"k": 3}, -1, 1)]), TimeOutOfBounds, "time -1 is outside [0"
    ),
    Mistake(
        "a time beyond bounds", write([({"k": 3}, 2**63 - 1, 1)]), TimeOutOfBounds, "milliseconds"
    ),
    Mistake("a time beyond 64 bits", write([({"k": 3}, 2**70, 1)]), TimeOutOfBounds, str(2**70)),
    Mistake(
        "a negative time in columns",
        write(updates(k=[3], v=[None], __time=[-7], __diff=[1])),
        TimeOutOfBounds,
        "time -7",
    ),
    Mistake(
        "a seal beyond bounds",
        lambda c: orders(c).seal(2**63 - 1).result(),
        TimeOutOfBounds,
        "seal",
    ),
    Mistake("a read beyond bounds", snapshot(2**63 - 1), TimeOutOfBounds, "reading collection"),
    Mistake("a read before all time", snapshot(-1), TimeOutOfBounds, "-1"),
    Mistake(
        "an as_of before since",
        snapshot(2),
        AsOfBeforeSince,
        "'orders' is not readable at time 2: its history before {3} has been compacted; read at 3",
    ),
    Mistake(
        "listening before since",
        lambda c: c.reader("orders").listen(2),
        AsOfBeforeSince,
        "read at 3 or later",
    ),
    Mistake(
        "a column too few",
        write(updates(pa.schema([SCHEMA.field("k")]), k=[1], __time=[5], __diff=[1])),
        SchemaMismatch,
        "columns are ['k', '__time', '__diff'], not ['k', 'v', '__time', '__diff']",
    ),
    Mistake(
        "a column of another type",
        write(
            updates(
                pa.schema([pa.field("k", pa.int32()), SCHEMA.field("v")]),
                k=[1],
                v=["a"],
                __time=[5],
                __diff=[1],
            )
        ),
        SchemaMismatch,
        "'orders' does not match: column 'k' has type int32, not int64",
    ),
    Mistake(
        "a NULL where there must be none",
        write([({"v": "x"}, 5, 1)]),
        SchemaMismatch,
        "column 'k' is NOT NULL and has NULLs",
    ),
    Mistake(
        "a column that does not exist",
        write([({"k": 1, "typo": 2}, 5, 1)]),
        SchemaMismatch,
        "'orders' does not match: there is no column 'typo'",
    ),
    Mistake("a value of another type", write([({"k": "one"}, 5, 1)]), SchemaMismatch, "'orders'"),
    Mistake("a value too large", write([({"k": 2**70}, 5, 1)]), SchemaMismatch, "'orders'"),
    Mistake("a diff that is no number", write([({"k": 2}, 5, "x")]), SchemaMismatch, "'orders'"),
    Mistake(
        "a column dropped", evolve(SCHEMA.field("k")), IncompatibleSchema, "a column was dropped"
    ),
    Mistake(
        "a column added that is not nullable",
        evolve(*SCHEMA, pa.field("w", pa.int64(), nullable=False)),
        IncompatibleSchema,
        "only nullable columns may be added",
    ),
    Mistake("another key", evolve(*SCHEMA, key=("v",)), LayoutMismatch, "keyed by ['k'], not"),
    Mistake("another layout", evolve(*SCHEMA, layout="nope"), LayoutMismatch, "not known here"),
    Mistake(
        "a reserved column",
        lambda c: c.create_or_load("new", pa.schema([pa.field("__diff", pa.int64())])),
        SchemaMismatch,
        "'__diff' is reserved; choose another",
    ),
    Mistake(
        "neither schema nor codec", lambda c: c.create_or_load("new"), SchemaMismatch, "neither"
    ),
    Mistake(
        "an unknown name",
        lambda c: c.reader("nobody"),
        UnknownCollection,
        "there is no collection 'nobody'; create it",
    ),
    Mistake(
        "destroying an unknown name", lambda c: c.destroy("nobody"), UnknownCollection, "nobody"
    ),
    Mistake(
        "a destroyed name",
        lambda c: c.reader("gone"),
        DestroyedCollection,
        "'gone' was destroyed, and names are never reused; choose another",
    ),
    Mistake(
        "creating a destroyed name",
        lambda c: c.create_or_load("gone", SCHEMA),
        DestroyedCollection,
        "never reused",
    ),
    Mistake(
        "a write to a closed collection",
        lambda c: c.create_or_load("closed", SCHEMA)[0].write([FIRST]).result(),
        ClosedCollection,
        "'closed' is closed",
    ),
    Mistake(
        "an unknown timeline",
        lambda c: c.create_or_load("new", SCHEMA, timeline="nowhere"),
        UnknownTimeline,
        "'nowhere'; advance it once",
    ),
    Mistake(
        "a timeline that moves back",
        lambda c: c.core.submit(Advance("main", 9)).result(),
        TimelineRegression,
        "is at 10 already and never goes back to 9",
    ),
    Mistake("an expired capability", expired, InvalidCapability, "lease of 10 ms has expired; acq"),
    Mistake(
        "one collection twice",
        lambda c: c.core.submit(
            AllowCompaction(((orders(c).id, Frontier.of(4)), (orders(c).id, Frontier.of(5))))
        ).result(),
        DuplicateCollection,
        "named twice in one request",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_named_and_changes_nothing(mistake: Mistake) -> None:
    place = (MemoryBlob(), MemoryConsensus())
    fill(place)
    with start(place) as client:
        orders(client)
        with pytest.raises(mistake.error) as raised:
            mistake.ask(client)
        assert type(raised.value) is mistake.error
        assert mistake.says in str(raised.value)
    check_usable(place)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "location")
    return tmp_path / "location"


# ---- two owners, and nobody ------------------------------------------------------------------


def test_the_second_owner_is_told_who_the_first_is(root: Path) -> None:
    with start(root, holder="pid 1 on host-a") as client:
        with pytest.raises(AlreadyLocked, match="'server' is held by pid 1 on host-a") as raised:
            start(root)
        assert "reentrance id" in str(raised.value)
        assert "take_over" in str(raised.value)
        assert orders(client).write([({"k": 3}, 5, 1)]).result() == Done()
    check_usable(root)


def test_a_fenced_owner_is_told_by_whom(root: Path) -> None:
    old = start(root)
    write = orders(old)
    with start(root, take_over=True, holder="pid 2 on host-b"):
        with pytest.raises(Fenced, match="was taken over by pid 2 on host-b: epoch 3 fences our"):
            write.write([({"k": 3}, 5, 1)]).result()
        with pytest.raises(Fenced):
            write.seal(9)
    old.stop()
    check_usable(root)


def test_another_role_is_not_the_owner(root: Path) -> None:
    with start(root), start(root, role=RoleName("ingest/7")) as other:
        assert orders(other).write([({"k": 3}, 5, 1)]).result() == Done()
    check_usable(root)


def test_after_the_end_every_call_says_so(root: Path) -> None:
    client = start(root)
    write, read = client.create_or_load("orders", SCHEMA, key=("k",))
    client.stop()
    for ask in (
        lambda: write.write([FIRST]),
        lambda: write.seal(9),
        lambda: client.destroy("orders"),
        lambda: read.snapshot(9, 0),
    ):
        with pytest.raises(Stopped, match="open the location again"):
            ask()
    check_usable(root)


# ---- damaged objects -------------------------------------------------------------------------


def part_object(root: Path) -> Path:
    (found,) = (root / "blob" / "part").rglob("*-*-*")
    return found


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(bytes(data))


def test_a_corrupted_object_is_named_wherever_it_is_damaged(root: Path) -> None:
    path = part_object(root)
    whole = path.read_bytes()
    key = path.relative_to(root / "blob").as_posix()
    with start(root) as client:
        for position in range(0, len(whole), len(whole) // 50):
            flip(path, position)
            with pytest.raises(Corrupt, match=f"object {key} .*checksum.*restore it"):
                client.reader("orders").snapshot(4).to_table()
            path.write_bytes(whole)
        # At a time that does not need it the collection is fine all along.
        path.unlink()
        assert client.reader("orders").snapshot(3).to_table().num_rows == 1
        path.write_bytes(whole)
    check_usable(root)


def test_a_truncated_object_is_named(root: Path) -> None:
    path = part_object(root)
    whole = path.read_bytes()
    with start(root) as client:
        for length in (0, 1, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            with pytest.raises(Corrupt, match=f"it has {length} bytes, not {len(whole)}"):
                client.reader("orders").snapshot(4).to_table()
        path.write_bytes(whole)
    check_usable(root)


@pytest.mark.parametrize("damage", ["page", "end"])
def test_a_damaged_log_file_is_named(root: Path, damage: str) -> None:
    path = root / "log.db"
    whole = path.read_bytes()
    page = int.from_bytes(whole[16:18], "big")
    flipped = bytes(byte ^ 0xFF for byte in whole[page : page + 64])
    path.write_bytes(
        whole[: page + 9] if damage == "end" else whole[:page] + flipped + whole[page + 64 :]
    )
    for read_only in (True, False):
        with pytest.raises(Corrupt, match=r"log .*log\.db is corrupted: .*; restore it"):
            start(root, read_only=read_only)
    path.write_bytes(whole)
    check_usable(root)


def objects(root: Path) -> set[str]:
    return {str(path) for path in (root / "blob").rglob("*") if path.is_file()}


def test_another_log_beside_the_objects_is_refused_and_sweeps_nothing(root: Path) -> None:
    """A log that was deleted, or a wrong address: to an empty log every object is garbage."""
    before = objects(root)
    with pytest.raises(Corrupt, match="the log is corrupted: it is empty, but there are objects"):
        start(root, consensus=MemoryConsensus())
    (root / "log.db").rename(root / "elsewhere")
    for _ in range(2):
        with pytest.raises(Corrupt, match="is it the log of this location"):
            start(root, take_over=True)
    assert objects(root) == before
    (root / "elsewhere").replace(root / "log.db")
    check_usable(root)


def test_a_log_that_has_lost_its_newest_entries_is_refused(root: Path) -> None:
    """An old copy of it, say: entries written now would contradict a rollup that is there."""
    old = (root / "log.db").read_bytes()
    with start(root) as client:
        Maintenance(client.core).roll_up(force=True)
    new = (root / "log.db").read_bytes()
    (root / "log.db").write_bytes(old)
    before = objects(root)
    with pytest.raises(Corrupt, match=r"it ends at entry \d+, but there is rollup/0+\d+ "):
        start(root)
    assert objects(root) == before
    (root / "log.db").write_bytes(new)
    check_usable(root)


def ways_to_read(client: Client) -> Iterator[Callable[[], object]]:
    """Yield every way to the row that is in blob."""
    orders = client.reader("orders")
    yield orders.snapshot(4).to_table
    yield orders.snapshot(4).split(2)[1].to_table
    yield lambda: list(orders.snapshot(4).updates())
    yield orders.listen(3).fetch
    yield lambda: list(persisted_source(orders, 4))
    yield lambda: list(Interval(client.core, orders.id, 4, 5).updates())


def test_a_missing_object_is_no_empty_answer(root: Path) -> None:
    path = part_object(root)
    whole = path.read_bytes()
    path.unlink()
    for read_only in (True, False):
        with start(root, read_only=read_only) as client:
            for read in ways_to_read(client):
                with pytest.raises(Corrupt, match="the log refers to it and it is not there"):
                    read()
    path.write_bytes(whole)
    check_usable(root)


# ---- the disk --------------------------------------------------------------------------------


class Disk:
    """A small file system of its own, where we may mount one; else one that we only pretend."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._monkeypatch = monkeypatch
        root.mkdir()
        options = ["-t", "tmpfs", "-o", "size=1m", "headwater-test", str(root)]
        self.real = self._mount(*options)

    @staticmethod
    def _mount(*options: str) -> bool:
        with suppress(OSError):
            done = subprocess.run(["mount", *options], capture_output=True, check=False)
            return done.returncode == 0
        return False

    def fill(self) -> None:
        if not self.real:
            self._monkeypatch.setattr(os, "write", self._no_space)
            return
        with suppress(OSError), (self.root / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(b"x" * 4096)

    @staticmethod
    def _no_space(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    def free(self) -> None:
        self._monkeypatch.undo()
        (self.root / "ballast").unlink(missing_ok=True)

    def make_read_only(self, read_only: bool) -> None:
        assert self._mount("-o", f"remount,{'ro' if read_only else 'rw'}", str(self.root))

    def close(self) -> None:
        if self.real:
            subprocess.run(["umount", "-l", str(self.root)], check=True)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk", monkeypatch)
    yield disk
    disk.close()


def again_and_again(call: Callable[[], object]) -> None:
    """Until it fails: the last page of the log may still have room for a few entries."""
    for _ in range(200):
        call()


def test_a_full_disk_refuses_and_loses_nothing(disk: Disk) -> None:
    fill(disk.root)
    with start(disk.root) as client:
        write, read = client.create_or_load("orders", SCHEMA, key=("k",))
        disk.fill()
        large = [({"k": 3, "v": NOISE[::-1]}, 5, 1)]
        with pytest.raises(Determinate, match="the disk is full; free space"):
            write.write(large).result()
        assert read.snapshot(4).to_table().num_rows == 2
        if disk.real:
            # The log cannot grow either; some of these may still fit into its last page.
            small = [({"k": 3, "v": NOISE[:3_000]}, 5, 0)]
            with pytest.raises(Determinate, match="full"):
                again_and_again(lambda: write.write(small).result())
        disk.free()
        assert write.write(large).result() == Done()
        write.seal(6).result()
        assert read.snapshot(5).to_table().num_rows == 3
    with start(disk.root) as client:
        assert client.reader("orders").snapshot(5).to_table().num_rows == 3


def test_a_full_disk_at_opening(disk: Disk) -> None:
    fill(disk.root)
    if not disk.real:
        return  # Only a real one refuses SQLite, too.
    disk.fill()
    with pytest.raises(ExternalError, match="free space"):
        again_and_again(lambda: start(disk.root, take_over=True).core.stop(release=False))
    with start(disk.root, read_only=True) as client:
        assert client.reader("orders").snapshot(4).to_table().num_rows == 2
    disk.free()
    check_usable(disk.root)


def test_a_read_only_location(root: Path) -> None:
    with start(root, read_only=True) as client:
        assert client.reader("orders").snapshot(4).to_table().num_rows == 2
        for ask in (
            lambda: client.create_or_load("orders", SCHEMA, key=("k",)),
            lambda: client.destroy("orders"),
            lambda: client.atomic().commit(),
        ):
            with pytest.raises(ReadOnly, match="open it with read_only=False"):
                ask()
    check_usable(root)


def test_a_read_only_file_system(disk: Disk) -> None:
    fill(disk.root)
    if not disk.real:
        return  # Permissions do not stop root, so there is nothing else to try.
    disk.make_read_only(True)
    with pytest.raises(Determinate, match="open read-only"):
        start(disk.root)
    with start(disk.root, read_only=True) as client:
        assert client.reader("orders").snapshot(4).to_table().num_rows == 2
    disk.make_read_only(False)
    check_usable(disk.root)


def test_a_location_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Determinate, match="check the location's path"):
        open_location(tmp_path / "nowhere", read_only=True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(Determinate):
        open_location(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "not a directory"
