"""What is known to differ from PostgreSQL, and why: one table, which the judge reads.

An entry is one construct with its types. It says how to recognize that a query has it, so that what
the entry excuses is no more than that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Difference:
    """One construct that answers otherwise than PostgreSQL."""

    construct: str
    """What a user writes, with types."""
    ours: str
    theirs: str
    reason: str
    query: re.Pattern[str]
    """Found in the text of a query that has the construct."""
    what: re.Pattern[str]
    """Found in what differs, if it is this."""


DIFFERENCES: Final[tuple[Difference, ...]] = ()


def known(sql: str, what: str) -> Difference | None:
    """Return the entry that a difference is an instance of."""
    for entry in DIFFERENCES:
        if entry.query.search(sql) and entry.what.search(what):
            return entry
    return None
