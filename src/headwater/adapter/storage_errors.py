"""What clients are told when the disk refuses, not the statement.

As :mod:`headwater.adapter.errors` says it: the statement changed nothing.
"""

from __future__ import annotations

import errno
from typing import Final

from headwater.adapter.errors import AdapterError
from headwater.persist.errors import DiskFull

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class NoRoom(AdapterError):
    """There is no room on a disk. Which directory it is stands in the server's log."""

    condition = "DISK_FULL"
    sqlstate = "53100"

    def __init__(self, place: str, remedy: str) -> None:
        super().__init__(
            f"could not write {place}: no space left on the disk",
            detail="Nothing of the statement was written.",
            hint=remedy,
        )


def no_room(error: DiskFull) -> NoRoom:
    """Return what a client is told of a write of the location that found no room."""
    return NoRoom(
        error.place,
        "Free space on the server's disk, or move the location to a larger one; the server's log "
        "names the directory. It goes on by itself when there is room.",
    )


def no_room_for_files() -> NoRoom:
    """Return what a client is told where a temporary file found no room."""
    return NoRoom(
        "a temporary file",
        "Free space where the server keeps temporary files (TMPDIR), or ask for less at once.",
    )
