"""Places that cannot be written: full, read-only, not there. Nothing committed is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.base.errors import Determinate, ExternalError
from headwater.persist.client import open_location
from headwater.persist.commands import Done
from headwater.persist.errors import ReadOnly
from tests.unit.persist.filled_place import NOISE, SCHEMA, check_usable, fill, start


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
