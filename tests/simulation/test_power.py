"""Power fails at any moment: the order of syncs under a blob of files.

What the kernel was told (open, write, sync, link, …) is recorded and replayed on a model of a disk
with a write cache, where only this is certain after a power failure:

- a file's content, as of its last sync; what was written later may be there or not;
- a name, as of the last sync of its directory; a later one may be there or not.

So at *every* moment the object's name, whether certain or not, must lead to synced content, and
when ``create`` has returned, the name must be certain, and so must those of its directories.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.persist.blob import directory, file
from headwater.persist.blob.file import FileBlob

DATA = b"content" * 100
Patch = pytest.MonkeyPatch


class Disk:
    """What would be left of a directory if the power failed now."""

    def __init__(self, root: Path, patch: Patch) -> None:
        self._root = root
        self._contents: dict[int, bytearray] = {}
        self._synced: dict[int, bytes] = {}
        self._names: dict[Path, int] = {}
        self._certain: set[Path] = {root}
        self._paths: dict[int, Path] = {}
        self.watched: tuple[Path, bytes] | None = None
        self.torn: list[str] = []
        for name in ("open", "write", "fsync", "link", "unlink", "mkdir", "close"):
            patch.setattr(os, name, self._recorded(name, getattr(os, name)))

    def is_certain(self, path: Path) -> bool:
        """Whether the name and all directories above it survive."""
        below = [path, *path.parents]
        return all(p in self._certain for p in below[: below.index(self._root)])

    def _recorded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        note = getattr(self, f"_note_{name}")

        def recorded(*args: Any, **named: Any) -> Any:
            answer = call(*args, **named)
            if name == "close":
                note(answer, args[0])
            elif name in {"write", "fsync"}:
                if args[0] in self._paths:
                    note(answer, *args)
            elif str(args[-1 if name == "link" else 0]).startswith(str(self._root)):
                note(answer, *args)
            self._look(name)
            return answer

        return recorded

    def _look(self, after: str) -> None:
        if self.watched is not None:
            path, data = self.watched
            inode = self._names.get(path)
            if inode is not None and self._synced.get(inode) != data:
                self.torn.append(f"after {after}: the name is there, and its content may not be")

    def _note_open(self, descriptor: int, path: Any, flags: int, *_: Any) -> None:
        where = Path(path)
        self._paths[descriptor] = where
        if flags & os.O_CREAT:
            inode = self._names[where] = len(self._contents) + 1
            self._contents[inode] = bytearray()

    def _note_write(self, written: int, descriptor: int, data: Any) -> None:
        self._contents[self._names[self._paths[descriptor]]] += bytes(data)[:written]

    def _note_fsync(self, _: None, descriptor: int) -> None:
        path = self._paths[descriptor]
        inode = self._names.get(path)
        if inode is not None and inode in self._contents:
            self._synced[inode] = bytes(self._contents[inode])
            return
        for name in [*self._names, *self._certain]:
            if name.parent == path:
                if name in self._names:
                    self._certain.add(name)
                else:
                    self._certain.discard(name)

    def _note_link(self, _: None, source: Any, target: Any) -> None:
        self._names[Path(target)] = self._names[Path(source)]

    def _note_unlink(self, _: None, path: Any, *__: Any) -> None:
        self._names.pop(Path(path), None)

    def _note_mkdir(self, _: None, path: Any, *__: Any) -> None:
        self._names[Path(path)] = -1

    def _note_close(self, _: None, descriptor: int) -> None:
        self._paths.pop(descriptor, None)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: Patch) -> Disk:
    """The disk under ``tmp_path``, which is there already."""
    return Disk(tmp_path, monkeypatch)


def create(disk: Disk, root: Path, key: str) -> list[str]:
    """Create an object on a new blob, and return what a power failure could do to it."""
    blob = FileBlob(root / "blob")
    disk.watched = (root / "blob" / key, DATA)
    assert blob.create(key, DATA)
    if not disk.is_certain(root / "blob" / key):
        disk.torn.append("after create: the name may not be there")
    return disk.torn


KEY = "part/server/1-2-abc"


def test_an_object_is_whole_or_absent_and_stays(disk: Disk, tmp_path: Path) -> None:
    assert not create(disk, tmp_path, KEY)


def test_a_name_that_is_taken_is_certain_too(disk: Disk, tmp_path: Path) -> None:
    """Its creator may have died before the sync; who is told "exists" may rely on it."""
    create(disk, tmp_path, KEY)
    path = tmp_path / "blob" / KEY
    disk._certain.discard(path)
    assert not FileBlob(tmp_path / "blob").create(KEY, DATA)
    assert disk.is_certain(path)


def test_content_that_is_not_synced_is_found(
    disk: Disk, tmp_path: Path, monkeypatch: Patch
) -> None:
    sync = os.fsync

    def only_directories(descriptor: int) -> None:
        path = disk._paths.get(descriptor)
        if path is None or path.is_dir():
            sync(descriptor)

    monkeypatch.setattr(os, "fsync", only_directories)
    assert create(disk, tmp_path, KEY)


def test_content_that_is_synced_after_it_has_its_name_is_found(
    disk: Disk, tmp_path: Path, monkeypatch: Patch
) -> None:
    link, unsynced = file._link, list[Path]()

    def late(source: Path, target: Path) -> bool:
        linked = link(source, target)
        descriptor = os.open(source, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        return linked

    sync = os.fsync

    def not_the_first(descriptor: int) -> None:
        path = disk._paths.get(descriptor)
        if path is not None and path.parent.name == file.TEMPORARY and path not in unsynced:
            unsynced.append(path)
            return
        sync(descriptor)

    monkeypatch.setattr(file, "_link", late)
    monkeypatch.setattr(os, "fsync", not_the_first)
    assert create(disk, tmp_path, KEY)


@pytest.mark.parametrize("module", [file, directory])
def test_names_that_are_not_synced_are_found(
    disk: Disk, tmp_path: Path, monkeypatch: Patch, module: object
) -> None:
    """The object's own name (in ``file``), and those of its directories (in ``directory``)."""
    monkeypatch.setattr(module, "sync_directory", lambda _: None)
    assert create(disk, tmp_path, KEY)
