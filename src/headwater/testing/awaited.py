"""Waiting for what another thread or process does, with a bound: what never comes is named."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

WAIT_SECONDS: Final = 60.0
"""How long is waited at the most. Nothing is said of how long it may take."""

PAUSE_SECONDS: Final = 0.001


def until(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds; if it never does, say so."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(PAUSE_SECONDS)
