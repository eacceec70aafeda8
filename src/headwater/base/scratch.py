"""Scratch: temporary files that go with their process, however it ends.

A file that nobody else has to find has no name at all (:func:`nameless`); the system removes it. A
directory has one. A process that ends removes its own; one that is killed cannot, and what it
leaves may be large: settled runs, an answer on its way, what Spark has shuffled. So the next one
removes it.

    a directory is held  <=>  its owner has an exclusive ``flock`` on it
    swept: what bears our name, is ours by its owner, and is held by nobody

The system lets go of the lock when the process ends, whatever ended it; a number of a process would
be another's in the next container that shares the directory. Somebody may sweep between our making
a directory and our holding it: then it is gone, or held by them, and we make another.

Where directories cannot be locked (some network file systems), they are not held and not swept.

Both lie where Python puts temporary files (``TMPDIR``); that should not be in memory.

Kept by: this module. Relied on by: ``compute/session.py``, which sweeps before it starts Spark;
whoever has temporary files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, Final

PREFIX: Final = "headwater-held-"
"""Not the names without ``held`` of earlier versions: one of those may live, and holds nothing."""
MAKE_ATTEMPTS_MAX: Final = 100
"""Each but the last was swept in the moment before it was held."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_EXCLUSIVE: Final = fcntl.LOCK_EX | fcntl.LOCK_NB


class Scratch:
    """A directory of this process, until it is closed or the process ends."""

    def __init__(self, what: str) -> None:
        for _ in range(MAKE_ATTEMPTS_MAX):
            self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{what}-"))
            self._held = _held(self.path)
            if self._held is not None:
                return
        raise FileExistsError(f"every directory made in {self.path.parent} was swept at once")

    def close(self) -> None:
        """Remove it, with all that is in it. Doing so again is fine."""
        held, self._held = self._held, None
        if held is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(held)


def sweep() -> tuple[Path, ...]:
    """Remove the directories of processes that have ended; return which they were.

    What cannot be removed stays, for the next one to try.
    """
    swept = []
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        try:
            directory = os.open(path, _DIRECTORY)
        except OSError:  # Another user's, or gone meanwhile.
            continue
        try:
            # As root we give some away, to the user that PostgreSQL runs as.
            if os.geteuid() in (0, os.fstat(directory).st_uid):
                fcntl.flock(directory, _EXCLUSIVE)
                shutil.rmtree(path, ignore_errors=True)
                swept.append(path)
        except OSError:  # Held; or nothing can be, here.
            continue
        finally:
            os.close(directory)
    return tuple(swept)


def nameless() -> IO[bytes]:
    """Return a new file, to be written and then mapped (:func:`path_of`)."""
    return tempfile.TemporaryFile()


def path_of(file: IO[bytes]) -> str:
    """Return a path by which this process can open a nameless file again, while it is open."""
    return f"/proc/self/fd/{file.fileno()}"


def _held(path: Path) -> int | None:
    """Hold a directory that was just made; None: somebody has swept it, or is about to."""
    try:
        directory = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(directory, _EXCLUSIVE)
    except BlockingIOError:
        os.close(directory)
        return None
    except OSError:  # Nothing can be held here: then nobody sweeps here, either.
        return directory
    if path.exists():
        return directory
    os.close(directory)
    return None
