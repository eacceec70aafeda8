"""What a check of a location finds: something wrong, and with what.

An *error* is data that is lost, changed or not what the log says of it. A *warning* costs nothing
but room: objects nobody refers to, files left behind by a crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.base.errors import HeadwaterError
from headwater.persist.errors import Corrupt

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    severity: Severity
    what: str
    problem: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.what}: {self.problem}"


def error(what: str, problem: str) -> Finding:
    """Return a finding about lost or wrong data."""
    return Finding("error", what, problem)


def warning(what: str, problem: str) -> Finding:
    """Return a finding about wasted room."""
    return Finding("warning", what, problem)


def of(what: str, raised: Exception) -> Finding:
    """Return the finding that an exception tells of, met while looking at ``what``."""
    if isinstance(raised, Corrupt):
        return error(raised.what, raised.problem)
    if isinstance(raised, HeadwaterError):
        return error(what, str(raised))
    return error(what, f"{type(raised).__name__}: {raised}")
