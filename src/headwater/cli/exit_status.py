"""The exit statuses of ``headwater``; scripts rely on them, so they never change their meaning."""

from __future__ import annotations

from enum import IntEnum

from headwater.base.errors import HeadwaterError
from headwater.persist.errors import AlreadyLocked, Fenced, NewerFormat
from headwater.server.config import InvalidConfiguration
from headwater.server.preflight import CannotStart


class ExitStatus(IntEnum):
    """What a command says when it ends. 2 is also what a mistake on the command line gives."""

    OK = 0
    FINDINGS = 1
    """fsck found errors."""
    CANNOT_OPEN = 2
    """The location is missing, is no location, is of a newer format, or cannot be reached; or what
    was given cannot work on this machine (a used port, no Java)."""
    FENCED = 3
    """Another process took the location over; do not restart this one."""
    LOCKED = 4
    """Another process holds the location."""
    FAILED = 5
    """Any other error of ours."""


def of(error: HeadwaterError) -> ExitStatus:
    """Return the status for an error that ended a command."""
    match error:
        case CannotOpen() | CannotAsk() | NewerFormat() | CannotStart() | InvalidConfiguration():
            return ExitStatus.CANNOT_OPEN
        case Fenced():
            return ExitStatus.FENCED
        case AlreadyLocked():
            return ExitStatus.LOCKED
        case _:
            return ExitStatus.FAILED


class CannotAsk(HeadwaterError):
    """Statements that cannot be read, or a server for them that cannot be reached."""


class CannotOpen(HeadwaterError):
    """A location that a command cannot look at, and why."""

    def __init__(self, why: str) -> None:
        super().__init__(f"cannot open the location: {why}")
