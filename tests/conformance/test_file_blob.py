"""What is FileBlob's own: durability, full and closed disks, leaked files, read-only opening."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from headwater.base.errors import Determinate, Indeterminate, InvalidUsage
from headwater.persist.blob import FileBlob, open_blob
from headwater.persist.blob.file import REFUSALS, external
from headwater.persist.location import ObjectInfo

Unprivileged = Callable[[], AbstractContextManager[None]]

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="names open descriptors through /proc"
)


def record_calls(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """Record, and perform, what makes a creation durable, as paths relative to ``root``."""
    calls: list[str] = []
    real_fsync, real_link, real_unlink, real_mkdir = os.fsync, os.link, os.unlink, os.mkdir

    def name(path: str | Path) -> str:
        relative = Path(path).relative_to(root)
        return "TEMPORARY" if relative.parent.name == "~temporary" else relative.as_posix()

    def fsync(descriptor: int) -> None:
        calls.append(f"sync {name(Path(f'/proc/self/fd/{descriptor}').readlink())}")
        real_fsync(descriptor)

    def link(source: Path, target: Path) -> None:
        calls.append(f"link {name(target)}")
        real_link(source, target)

    def unlink(path: Path) -> None:
        calls.append(f"unlink {name(path)}")
        real_unlink(path)

    def mkdir(path: Path, mode: int = 0o777) -> None:
        calls.append(f"mkdir {name(path)}")
        real_mkdir(path, mode)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os, "unlink", unlink)
    monkeypatch.setattr(os, "mkdir", mkdir)
    return calls


@needs_proc
def test_order_of_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File before its name, every name before the answer."""
    blob, other = FileBlob(tmp_path), FileBlob(tmp_path)
    (tmp_path / "~temporary").mkdir()
    calls = record_calls(monkeypatch, tmp_path)

    assert blob.create("a/b/k", b"x")
    assert calls == [
        *("sync TEMPORARY", "mkdir a", "sync .", "mkdir a/b", "sync a"),
        *("link a/b/k", "unlink TEMPORARY", "sync a/b"),
    ]
    calls.clear()
    assert blob.create("a/b/l", b"x")
    assert calls == ["sync TEMPORARY", "link a/b/l", "unlink TEMPORARY", "sync a/b"]

    # What others made may not be durable yet: sync it also when nothing is to be made.
    calls.clear()
    assert not other.create("a/b/k", b"y")
    assert [call for call in calls if not call.startswith("mkdir")] == [
        *("sync TEMPORARY", "sync .", "sync a"),
        *("link a/b/k", "unlink TEMPORARY", "sync a/b"),
    ]
    calls.clear()
    assert blob.delete("a/b/k")
    assert calls == ["unlink a/b/k", "sync a/b"]
    assert not blob.delete("a/b/k")
    assert calls[2:] == ["unlink a/b/k", "sync a/b"]


@needs_proc
def test_a_new_root_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").mkdir()
    calls = record_calls(monkeypatch, tmp_path)
    FileBlob(tmp_path / "x" / "y" / "z")
    assert calls == ["sync .", "mkdir x/y", "sync x", "mkdir x/y/z", "sync x/y"]


FULL_DISK = """
import sys
from pathlib import Path
from headwater.base.errors import Determinate
from headwater.persist.blob import FileBlob

root = Path(sys.argv[1]) / "root"
blob = FileBlob(root)
if sys.argv[2] == "prepare":
    blob.create("k/small", b"kept")
    sys.exit()
try:
    blob.create("k/large", b"x" * 1_000_000)
except Determinate as error:
    assert str(root / "k/large") in str(error), error
    print(error)
assert [info.key for info in blob.list()] == ["k/small"]
assert blob.list_temporary() == ()
assert blob.get("k/small") == b"kept"
assert blob.create("k/fits", b"x" * 1_000), "the location stays usable"
"""


def test_full_disk(run_in_mount: Callable[[str, str], str]) -> None:
    assert "the disk is full; free space" in run_in_mount(FULL_DISK, "remount,rw")


READ_ONLY_DISK = """
import sys
from pathlib import Path
from headwater.base.errors import Determinate
from headwater.persist.blob import FileBlob

root = Path(sys.argv[1]) / "root"
if sys.argv[2] == "prepare":
    FileBlob(root).create("k", b"kept")
    sys.exit()
assert FileBlob(root, read_only=True).get("k") == b"kept"
blob = FileBlob(root)
for effect in (lambda: blob.create("l", b"x"), lambda: blob.delete("k")):
    try:
        effect()
    except Determinate as error:
        print(error)
assert blob.get("k") == b"kept"
"""


def test_read_only_disk(run_in_mount: Callable[[str, str], str]) -> None:
    said = run_in_mount(READ_ONLY_DISK, "remount,ro").splitlines()
    assert len(said) == 2
    assert all("the file system is read-only; remount it writable" in line for line in said)


def test_no_permission(locked_away: Path, unprivileged: Unprivileged) -> None:
    FileBlob(locked_away / "root").create("k", b"kept")
    (locked_away / "root").chmod(0o555)
    (locked_away / "root" / "~temporary").chmod(0o555)
    with unprivileged():
        blob = FileBlob(locked_away / "root")
        with pytest.raises(Determinate, match="permission denied; give this user access"):
            blob.create("l", b"x")
        with pytest.raises(Determinate, match="permission denied"):
            blob.delete("k")
        with pytest.raises(Determinate, match="permission denied"):
            FileBlob(locked_away / "elsewhere")
        assert blob.get("k") == b"kept"
        assert [info.key for info in blob.list()] == ["k"]


@pytest.mark.parametrize("number", sorted(REFUSALS))
def test_refusals_name_path_and_remedy(number: int) -> None:
    error = external(
        OSError(number, os.strerror(number)), Path("/the/path"), nothing_happened=False
    )
    assert isinstance(error, Determinate)
    assert str(error).startswith("/the/path: ")
    assert REFUSALS[number][1] in str(error)


def test_what_is_not_classified_depends_on_the_link() -> None:
    failure = OSError(errno.EIO, "I/O error")
    assert isinstance(external(failure, Path("p"), nothing_happened=False), Indeterminate)
    assert isinstance(external(failure, Path("p"), nothing_happened=True), Determinate)


@needs_proc
def test_a_failed_sync_after_the_link_is_indeterminate_and_the_retry_resolves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = FileBlob(tmp_path)
    blob.create("d/first", b"")
    real_fsync = os.fsync
    failing = True

    def fsync(descriptor: int) -> None:
        if failing and Path(f"/proc/self/fd/{descriptor}").readlink() == tmp_path / "d":
            raise OSError(errno.EIO, "Input/output error")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for _ in range(2):
        with pytest.raises(Indeterminate, match="Input/output error"):
            blob.create("d/k", b"x")
    failing = False
    assert blob.create("d/k", b"x") is False
    assert blob.get("d/k") == b"x"
    assert blob.list_temporary() == ()


def test_leaked_temporary_files_are_found_and_never_listed(tmp_path: Path) -> None:
    blob = FileBlob(tmp_path)
    blob.create("k", b"x")
    (tmp_path / "~temporary" / "0123abcd").write_bytes(b"partial")
    (tmp_path / "README").write_bytes(b"left by a stranger")
    assert [info.key for info in blob.list()] == ["k"]
    assert blob.list_temporary() == (ObjectInfo("~temporary/0123abcd", 7),)
    for wrong in ("k", "~temporary/../k", "~temporary/", "0123abcd"):
        with pytest.raises(InvalidUsage):
            blob.discard_temporary(wrong)
    blob.discard_temporary("~temporary/0123abcd")
    blob.discard_temporary("~temporary/0123abcd")
    assert blob.list_temporary() == ()
    assert blob.get("k") == b"x"


def test_discarding_the_file_under_a_creator_makes_it_fail_determinately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob, sweeper = FileBlob(tmp_path), FileBlob(tmp_path)
    real_link = os.link

    def link(source: Path, target: Path) -> None:
        for info in sweeper.list_temporary():
            sweeper.discard_temporary(info.key)
        real_link(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(Determinate):
        blob.create("k", b"x")
    assert blob.get("k") is None


def test_a_key_cannot_be_a_directory_of_another(tmp_path: Path) -> None:
    blob = FileBlob(tmp_path)
    blob.create("a/b", b"")
    with pytest.raises(InvalidUsage, match="directory of other keys"):
        blob.create("a", b"")
    with pytest.raises(InvalidUsage, match="runs through an object"):
        blob.create("a/b/c", b"")
    with pytest.raises(InvalidUsage, match="runs through an object"):
        blob.create("a/b/c/d", b"")
    assert [info.key for info in blob.list()] == ["a/b"]
    assert blob.list_temporary() == ()


def test_read_only_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(Determinate, match="no such directory"):
        FileBlob(tmp_path / "missing", read_only=True)
    (tmp_path / "root").mkdir()
    blob = FileBlob(tmp_path / "root", read_only=True)
    assert list(blob.list()) == []
    assert blob.list_temporary() == ()
    effects: list[Callable[[], object]] = [lambda: blob.create("k", b""), lambda: blob.delete("k")]
    for effect in effects:
        with pytest.raises(InvalidUsage, match="opened read-only"):
            effect()
    assert [path.name for path in tmp_path.rglob("*")] == ["root"]


def test_addresses(tmp_path: Path) -> None:
    root = tmp_path / "with space"
    open_blob(str(root)).create("k", b"x")
    assert open_blob(f"file://{tmp_path}/with%20space", read_only=True).get("k") == b"x"
    assert open_blob("memory:").get("k") is None
    for wrong in ("ftp://x/y", "s3://", "file://host/path"):
        with pytest.raises(InvalidUsage, match="no blob address"):
            open_blob(wrong)
    with pytest.raises(InvalidUsage):
        open_blob("memory:", read_only=True)
