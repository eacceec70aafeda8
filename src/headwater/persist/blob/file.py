"""Objects as files under one local directory.

**Create** is: write a temporary file, sync it, *link* it to its name (a hard link fails if the
name exists: exclusive), remove the temporary name, sync the directory. Hence, wherever the power
fails, the name either does not exist or has the whole content, and when ``create`` returned, it
exists. A create that finds the name taken syncs the directory too, before it says so: its caller
may take "exists" for "is durable" (the retry of its own unresolved attempt does).

**Temporary files** live in one directory whose name no key can have (``~``), so ``list`` never
meets them. A crash may leak one; ``list_temporary`` finds those, ``discard_temporary`` removes
them. To discard one that is still being written harms nobody: its creator's link fails, and it
reports that nothing happened.

**A failure before the link is Determinate whatever its cause,** because nothing is visible under
the key; a failure after it is Indeterminate; in between the errno decides (:data:`REFUSALS`).

Two limits of file systems show through. A key cannot be a directory of another key (``a`` and
``a/b``): the second one is refused. And hard links are needed, which FAT and some network
mounts lack. All processes must be on one machine or on a file system with POSIX semantics.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from headwater.base.errors import Determinate, ExternalError, Indeterminate, InvalidUsage
from headwater.persist.blob.directory import DurableDirectories, sync_directory
from headwater.persist.blob.key import check_key, check_prefix, check_range
from headwater.persist.errors import DiskFull
from headwater.persist.location import ObjectInfo

TEMPORARY: Final = "~temporary"
PLACE: Final = "the location's objects"

# errno → (what is wrong, what to do). With these the kernel says it did nothing.
REFUSALS: Final = {
    errno.EFBIG: ("the file would exceed the size limit", "raise the limit (ulimit -f)"),
    errno.EROFS: ("the file system is read-only", "remount it writable, or open read-only"),
    errno.EACCES: ("permission denied", "give this user access to it, or open read-only"),
    errno.EPERM: ("not permitted", "use a file system with hard links, owned by this user"),
    errno.ENOTSUP: ("not supported", "use a file system with hard links"),
    errno.EXDEV: ("another file system is mounted inside the location", "unmount it"),
    errno.EMFILE: ("too many open files", "raise the limit (ulimit -n)"),
    errno.ENFILE: ("too many open files on this machine", "raise the limit (fs.file-max)"),
}

# A key that runs through an object (`a/b` where `a` is one) or names a directory has no object.
_NO_OBJECT: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def external(cause: OSError, path: Path, *, nothing_happened: bool) -> ExternalError:
    """Sort an error of the operating system by whether its effect may have happened."""
    if cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(PLACE, str(path), quota=cause.errno == errno.EDQUOT)
    refusal = REFUSALS.get(cause.errno or 0)
    if refusal is not None:
        what, remedy = refusal
        return Determinate(f"{path}: {what}; {remedy}")
    kind = Determinate if nothing_happened else Indeterminate
    return kind(f"{path}: {cause.strerror or cause}")


class FileBlob:
    """Objects under ``root``; made durably if absent, unless ``read_only``."""

    def __init__(self, root: Path, read_only: bool = False) -> None:
        self._root = root.absolute()
        self._temporary = self._root / TEMPORARY
        self._read_only = read_only
        self._directories = DurableDirectories(self._root)
        if read_only:
            if not self._root.is_dir():
                raise Determinate(f"{self._root}: no such directory; check the location's path")
            return
        try:
            self._directories.ensure(self._root)
        except OSError as cause:
            raise external(cause, self._root, nothing_happened=True) from cause

    @property
    def url(self) -> str:
        """The address under which another process opens the same objects."""
        return self._root.as_uri()

    def get(self, key: str) -> bytes | None:
        """Return the whole object, or ``None`` where there is none."""
        path = self._path(key)
        try:
            return path.read_bytes()
        except _NO_OBJECT:
            return None
        except OSError as cause:
            raise external(cause, path, nothing_happened=False) from cause

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Return ``length`` bytes from ``offset`` (fewer only at the end of the object)."""
        check_range(offset, length)
        path = self._path(key)
        try:
            with path.open("rb", buffering=0) as file:
                # Bounded by the size first: a read allocates all it is asked for.
                rest = os.fstat(file.fileno()).st_size - offset
                if rest <= 0:
                    return b""
                file.seek(offset)
                return _read_fully(file.fileno(), min(length, rest))
        except _NO_OBJECT:
            return None
        except OSError as cause:
            raise external(cause, path, nothing_happened=False) from cause

    def create(self, key: str, data: bytes) -> bool:
        """Create the object exclusively and durably; ``False`` if the key exists already."""
        path = self._path(key)
        self._check_writable()
        temporary = self._temporary / uuid4().hex
        try:
            self._write_temporary(temporary, data)
            self._directories.ensure(path.parent)
        except (NotADirectoryError, FileExistsError) as cause:
            _discard(temporary)
            raise InvalidUsage(f"{key!r} runs through an object; choose another key") from cause
        except OSError as cause:
            _discard(temporary)
            raise external(cause, path, nothing_happened=True) from cause

        try:
            created = _link(temporary, path)
        except FileNotFoundError as cause:  # somebody discarded our temporary file
            raise external(cause, temporary, nothing_happened=True) from cause
        except OSError as cause:
            raise external(cause, path, nothing_happened=False) from cause
        finally:
            _discard(temporary)
        if not created and path.is_dir():
            raise InvalidUsage(f"{key!r} is a directory of other keys; choose another key")

        self._sync(path.parent)
        return created

    def delete(self, key: str) -> bool:
        """Delete the object durably; ``False`` where there was none."""
        path = self._path(key)
        self._check_writable()
        try:
            if path.is_dir():  # unlinking one is an error, and which one depends on the system
                return False
            path.unlink()
        except _NO_OBJECT:
            if not path.parent.is_dir():
                return False
            existed = False
        except OSError as cause:
            raise external(cause, path, nothing_happened=False) from cause
        else:
            existed = True
        self._sync(path.parent)  # also for "was not there": it may be our own unresolved attempt
        return existed

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List the objects whose key begins with ``prefix``, in key order."""
        check_prefix(prefix)
        directory, _, name_start = prefix.rpartition("/")
        return self._walk(f"{directory}/" if directory else "", name_start)

    def list_temporary(self) -> tuple[ObjectInfo, ...]:
        """List files whose creation did not end: leaked by a crash, or under way right now."""
        if not self._temporary.is_dir():
            return ()
        found: list[ObjectInfo] = []
        for path in sorted(self._temporary.iterdir()):
            with suppress(FileNotFoundError):
                found.append(ObjectInfo(f"{TEMPORARY}/{path.name}", path.stat().st_size))
        return tuple(found)

    def discard_temporary(self, name: str) -> None:
        """Remove a file that ``list_temporary`` named; it is fine if it is gone."""
        self._check_writable()
        directory, _, leaf = name.partition("/")
        if directory != TEMPORARY or not leaf.isalnum():
            raise InvalidUsage(f"{name!r} is not the name of a temporary file")
        path = self._temporary / leaf
        try:
            path.unlink(missing_ok=True)
        except OSError as cause:
            raise external(cause, path, nothing_happened=False) from cause

    def local_path(self, key: str) -> Path | None:
        """Return the object's file, if it exists."""
        path = self._path(key)
        try:
            return path if path.is_file() else None
        except OSError as cause:
            raise external(cause, path, nothing_happened=False) from cause

    def close(self) -> None:
        """Do nothing: no descriptor stays open between calls."""

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._root / key

    def _check_writable(self) -> None:
        if self._read_only:
            raise InvalidUsage(f"{self._root} was opened read-only; open it for writing")

    def _write_temporary(self, temporary: Path, data: bytes) -> None:
        """Write and sync. The temporary's *name* need not be durable, so nothing else is synced."""
        try:
            descriptor = _open_new(temporary)
        except FileNotFoundError:  # the first create here, or the directory was tidied away
            temporary.parent.mkdir(exist_ok=True)
            descriptor = _open_new(temporary)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _sync(self, directory: Path) -> None:
        try:
            sync_directory(directory)
        except OSError as cause:
            # Even a refusal comes too late here: the name is visible already.
            raise Indeterminate(f"{directory}: {cause.strerror or cause}") from cause

    def _walk(self, directory: str, name_start: str) -> Iterator[ObjectInfo]:
        """Depth first. A directory sorts as its name plus ``/``, which makes it key order."""
        path = self._root / directory
        try:
            with os.scandir(path) as entries:
                found = [
                    (f"{entry.name}/" if entry.is_dir() else entry.name, entry)
                    for entry in entries
                    if entry.name.startswith(name_start) and _is_component(entry.name)
                ]
            found.sort(key=lambda named: named[0])
        except _NO_OBJECT:
            return
        except OSError as cause:
            raise external(cause, path, nothing_happened=False) from cause

        for name, entry in found:
            if name.endswith("/"):
                yield from self._walk(f"{directory}{name}", "")
            else:
                try:
                    size = entry.stat().st_size
                except FileNotFoundError:  # deleted since the directory was read
                    continue
                except OSError as cause:
                    raise external(cause, path, nothing_happened=False) from cause
                yield ObjectInfo(f"{directory}{name}", size)


def _is_component(name: str) -> bool:
    """Tell our objects and directories from temporary files and what strangers left here."""
    try:
        check_key(name)
    except InvalidUsage:
        return False
    return True


def _open_new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    return True


def _discard(temporary: Path) -> None:
    """Remove our temporary name; where that fails, ``list_temporary`` still shows it."""
    with suppress(OSError):
        temporary.unlink()


def _read_fully(descriptor: int, length: int) -> bytes:
    """Read ``length`` bytes; one ``read`` may stop short (at 2 GiB, or at a signal)."""
    pieces: list[bytes] = []
    while length > 0:
        piece = os.read(descriptor, length)
        if not piece:
            break
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
