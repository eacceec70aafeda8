"""PostgreSQL's wire protocol at the door. Nothing outside this package knows pg-mimic."""

from __future__ import annotations

from headwater.adapter.pgwire.backend import Backend, Column, Result, Session
from headwater.adapter.pgwire.server import WireServer

__all__ = ["Backend", "Column", "Result", "Session", "WireServer"]
