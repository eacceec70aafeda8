"""Directories that survive a power failure.

A name in a directory is durable only after that directory was synced, and so is the directory's
own name in *its* parent. ``DurableDirectories`` remembers which directories under one root **this
process** has made durable. It syncs the parent also of a directory that exists already: another
process may have made it a moment ago and not yet synced it, and what we put inside must not be
lost with it.

Directories are never removed: removing an empty one would race with a creation inside it.

Relied on by: ``FileBlob`` for objects, ``SqliteConsensus`` for the database file.
"""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(path: Path) -> None:
    """Make the names in ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DurableDirectories:
    """Makes directories under ``root`` (and ``root``), each name durable, each only once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # Only ever grows, and adding twice is harmless, so threads need no lock here.
        self._durable: set[Path] = set()

    def ensure(self, path: Path) -> None:
        """Make ``path``, which is ``root`` or under it, exist durably."""
        if path in self._durable:
            return
        if path == self._root:
            self._ensure_root(path)
        else:
            self.ensure(path.parent)
            path.mkdir(exist_ok=True)
            sync_directory(path.parent)
        self._durable.add(path)

    def _ensure_root(self, path: Path) -> None:
        """Make what is missing of the path to the root; what is there is the operator's."""
        if path.is_dir():
            try:
                sync_directory(path.parent)
            except PermissionError:
                # A parent we may not open was made by somebody else, long before us.
                return
        else:
            self._ensure_root(path.parent)
            path.mkdir(exist_ok=True)
            sync_directory(path.parent)
