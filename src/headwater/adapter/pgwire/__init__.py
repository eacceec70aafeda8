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
    "Result",
    "Session",
    "TakesCopies",
    "WireServer",
]
