"""Where files are: a directory, or the objects under a prefix of an S3 bucket, as one port.

    list()                       every file that matches the pattern: its name and its size
    read(name, start, length)    some bytes of one; fewer only at its end
    open(name)                   the whole of it, to seek in

Names are paths below the folder, with ``/``. Those that begin with ``.`` or ``_`` are not listed.

**Written in place or whole.** A file in a directory may be half written when it is seen; an object
is there whole or not at all (``whole``), and grows by being replaced with a longer one that begins
with it. So the end of an object ends its last line, and the end of a file does not.

An object store is reached as the usual ``AWS_*`` variables say. Whatever fails is an ``OSError``,
``FileNotFoundError`` where there is no such file.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

import obstore
from obstore.exceptions import BaseError

from headwater.base.errors import InvalidUsage
from headwater.persist.blob.s3 import s3_store

EVERYTHING: Final = "**/*"
S3_SCHEME: Final = "s3://"
BUFFER_BYTES: Final = 1024 * 1024


class Folder(Protocol):
    """Files that somebody else writes."""

    @property
    def where(self) -> str:
        """Its address, for messages."""
        ...

    @property
    def whole(self) -> bool:
        """Whether a file that is seen is complete as it is."""
        ...

    def list(self) -> Iterator[tuple[str, int]]:
        """Return the name and the size of every file, in the order of their names."""
        ...

    def read(self, name: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start`` on; fewer only at the end."""
        ...

    def open(self, name: str) -> AbstractContextManager[Any]:
        """Return a file-like object, to be closed."""
        ...


def folder_of(address: str, pattern: str = EVERYTHING) -> Folder:
    """Return the folder at a path, or at ``s3://bucket/prefix``."""
    if address.startswith(S3_SCHEME):
        bucket, _, prefix = address.removeprefix(S3_SCHEME).partition("/")
        if not bucket:
            raise InvalidUsage(f"{address!r} names no bucket; write s3://bucket/prefix")
        return S3Folder(bucket, prefix, pattern)
    return Directory(Path(address), pattern)


def _hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith((".", "_"))


class Directory:
    """A directory of this machine."""

    whole: Final = False

    def __init__(self, path: Path, pattern: str = EVERYTHING) -> None:
        self._path = path
        self._pattern = pattern

    @property
    def where(self) -> str:
        """Its path."""
        return str(self._path)

    def list(self) -> Iterator[tuple[str, int]]:
        """Return every file that matches."""
        if not self._path.is_dir():
            raise OSError(f"directory {self._path} does not exist; create it, or mount it")
        for path in sorted(self._path.glob(self._pattern)):
            if not _hidden(path.name) and path.is_file():
                yield path.relative_to(self._path).as_posix(), path.stat().st_size

    def read(self, name: str, start: int, length: int) -> bytes:
        """Return some bytes of a file."""
        with self.open(name) as file:
            file.seek(start)
            found: bytes = file.read(length)
            return found

    def open(self, name: str) -> AbstractContextManager[Any]:
        """Open a file."""
        return (self._path / name).open("rb")


class S3Folder:
    """The objects under a prefix."""

    whole: Final = True

    def __init__(self, bucket: str, prefix: str, pattern: str = EVERYTHING) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._pattern = None if pattern == EVERYTHING else _translated(pattern)
        self._environment = dict(os.environ)
        self._opened: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs; the connections are its own."""
        return {**self.__dict__, "_opened": None}

    @property
    def where(self) -> str:
        """Its address."""
        return f"{S3_SCHEME}{self._bucket}/{self._prefix}"

    @property
    def _store(self) -> Any:
        if self._opened is None:
            self._opened = s3_store(self._bucket, self._environment)
        return self._opened

    def list(self) -> Iterator[tuple[str, int]]:
        """Return every object that matches."""
        try:
            found = [
                (each["path"].removeprefix(self._prefix), int(each["size"]))
                for chunk in obstore.list(self._store, self._prefix or None)
                for each in chunk
            ]
        except BaseError as error:
            raise self._failed(error) from error
        for name, size in sorted(found):
            matches = self._pattern is None or self._pattern.fullmatch(name)
            if matches and not _hidden(name) and size:
                yield name, size

    def read(self, name: str, start: int, length: int) -> bytes:
        """Return some bytes of an object."""
        try:
            path = self._prefix + name
            return bytes(obstore.get_range(self._store, path, start=start, length=length))
        except FileNotFoundError:
            raise
        except BaseError as error:
            raise self._failed(error) from error

    def open(self, name: str) -> AbstractContextManager[Any]:
        """Open an object."""
        try:
            size = int(obstore.head(self._store, self._prefix + name)["size"])
        except FileNotFoundError:
            raise
        except BaseError as error:
            raise self._failed(error) from error
        return io.BufferedReader(_Object(self, name, size), BUFFER_BYTES)

    def _failed(self, error: Exception) -> OSError:
        # obstore adds a "Debug source" that goes on for a page.
        return OSError(f"{self.where}: {str(error).partition(chr(10))[0]}")


class _Object(io.RawIOBase):
    """One object as a file to seek in; it is read in ranges."""

    def __init__(self, folder: S3Folder, name: str, size: int) -> None:
        self._folder = folder
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        found = self._folder.read(self._name, self._at, length)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


def _translated(pattern: str) -> re.Pattern[str]:
    """Return a pattern of paths as a regular expression: ``**/`` is any folders, or none."""
    pieces = re.split(r"(\*\*/|\*|\?)", pattern)
    meaning = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meaning.get(piece, re.escape(piece)) for piece in pieces))


__all__ = ["EVERYTHING", "Directory", "Folder", "S3Folder", "folder_of"]
