"""How a materialization is, at a moment: what its owner, the system views and the metrics show.

Kept by: the thread of each shard, which replaces its status as a whole. Relied on by: everybody
who looks; a status is a value, and looking holds nothing up.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.Enum):
    """How a materialization is."""

    STARTING = "starting"
    RUNNING = "running"
    STALLED = "stalled"
    FENCED = "fenced"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Status:
    """What can be said of a materialization at a moment."""

    state: State = State.STARTING
    error: str = ""
    """Why it is stalled or fenced; else empty."""
    checkpoint: int | None = None
    """Everything before it was committed."""
    reached: int | None = None
    """The endpoint is the view of every time from the checkpoint to just before this one."""
    transactions: int = 0
    rows_loaded: int = 0
    rows_stored: int = 0
    rows_deleted: int = 0
    shards: int = 1
    runs_in: str = ""
    """Where the session of a shard is carried: ``thread`` or ``task``; empty: there is none."""
    aligned: bool = False
    """Whether all shards stand at one checkpoint."""
    ranges: tuple[tuple[str, Status], ...] = ()
    """Of the whole: each key range, and how its shard is."""
