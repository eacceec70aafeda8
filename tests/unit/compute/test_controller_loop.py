"""The thread that steps views goes on after whatever happened, until it is told to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from headwater.base.errors import HeadwaterError
from headwater.compute import controller as module
from headwater.compute.controller import ViewController
from headwater.compute.definition import Definition
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import open_location
from headwater.persist.consensus import MemoryConsensus

WAIT_SECONDS = 20
"""How long is waited for the thread."""


@pytest.mark.parametrize(
    ("failure", "is_told"), [(KeyError("a bug"), True), (HeadwaterError("a failure"), False)]
)
def test_it_goes_on(
    failure: Exception,
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    failures, again = [failure], threading.Event()
    some: Any = (object(),)

    def run(_: Sequence[Definition]) -> tuple[str, ...]:
        if failures:
            raise failures.pop()
        again.set()
        return ()

    class Session:
        """What is asked of a session here."""

        @property
        def process(self) -> None:
            return None

    with open_location(blob=MemoryBlob(), consensus=MemoryConsensus()) as client:
        controller = ViewController(client, Session())
        monkeypatch.setattr(controller, "_ready", lambda _: some)
        monkeypatch.setattr(controller, "_run", run)
        controller.start()
        try:
            assert again.wait(WAIT_SECONDS), "the views were never stepped again"
        finally:
            controller.stop()
    told = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert bool(told) == is_told
