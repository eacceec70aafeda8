"""PostgreSQL's wire protocol at the door: one server, and the port to what is behind it."""

from __future__ import annotations

from headwater.adapter.pgwire.backend import (
    Backend,
    Cancels,
    Column,
    CopyIn,
    CopyOut,
    Describes,
    Description,
    Groups,
    Passed,
    Result,
    Session,
    TakesCopies,
)
from headwater.adapter.pgwire.refusals import Cancelled
from headwater.adapter.pgwire.server import Limits, NotLoopback, WireServer

__all__ = [
    "Backend",
    "Cancelled",
    "Cancels",
    "Column",
    "CopyIn",
    "CopyOut",
    "Describes",
    "Description",
    "Groups",
    "Limits",
    "NotLoopback",
    "Passed",
    "Result",
    "Session",
    "TakesCopies",
    "WireServer",
]
