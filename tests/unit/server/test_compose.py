"""A server that cannot start leaves nothing: no thread, no port, no lock, no JVM."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater.persist.client import open_location
from headwater.server import compose
from headwater.server.config import Address, ServerConfig
from headwater.storage.controller import Ingestions

pytestmark = pytest.mark.server


class NoSpark:
    """A session that is never asked for: what is tested here happens before."""

    closed = False

    def __init__(self, _: object) -> None:
        self.restarts = 0

    def start_no_more(self) -> None:
        """Nothing is being started."""

    def close(self) -> None:
        NoSpark.closed = True


def test_what_was_started_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "WarmingSession", NoSpark)

    def broken(_: Any) -> None:
        raise RuntimeError("the fifth part does not start")

    monkeypatch.setattr(Ingestions, "start", broken)
    before = set(threading.enumerate())
    server = compose.Server(
        ServerConfig(tmp_path / "data", port=0, console=Address("127.0.0.1", 0), tick_ms=250)
    )
    with pytest.raises(RuntimeError, match="fifth"):
        server.start()
    assert NoSpark.closed
    assert server.timeline.tick_seconds == 0.25
    left = [t.name for t in set(threading.enumerate()) - before if t.is_alive()]
    assert [name for name in left if name.startswith("headwater")] == []
    # The role was given back: anybody may take it, without a take-over.
    open_location(tmp_path / "data", reentrance_id="another").stop()
