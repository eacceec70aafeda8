"""Sources: what they read, how far, and how that goes."""

from __future__ import annotations

from typing import Final

from headwater.adapter.system.system_view import SystemView

VIEWS: Final[tuple[SystemView, ...]] = ()
