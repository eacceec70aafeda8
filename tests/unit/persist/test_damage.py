"""Damage to the files of a location: it is named, and never answered from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.persist.client import Client
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.errors import Corrupt
from headwater.persist.interval import Interval
from headwater.persist.maintenance import Maintenance
from headwater.persist.source import persisted_source
from tests.unit.persist.filled_place import check_usable, start


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
