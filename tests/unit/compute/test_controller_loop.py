"""The thread that steps views goes on after whatever happened, until it is told to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headwater.base.errors import HeadwaterError
from headwater.compute import controller as module
from headwater.compute.controller import ViewController
from headwater.compute.definition import Definition
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import open_location
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.spark_end import OUT_OF_MEMORY, SparkEnded

WAIT_SECONDS = 20
"""How long is waited for the thread."""


class Session:
    """What is asked of a session here."""

    @property
    def process(self) -> None:
        return None


def test_who_takes_all_memory_is_told_what_to_do_and_is_tried_less_often() -> None:
    with open_location(blob=MemoryBlob(), consensus=MemoryConsensus()) as client:
        write, _ = client.create_or_load("v", pa.schema([("x", pa.int64())]))
        controller = ViewController(client, Session())
        view: Any = SimpleNamespace(id=write.id, name="v")
        waits: dict[HeadwaterError, int] = {}
        for error in (HeadwaterError("a failure"), SparkEnded(OUT_OF_MEMORY[0])):
            controller._recovered(view)
            controller._stall(view, error)
            stalled = controller._stalled[write.id]
            waits[error] = stalled.retry_at_ms - client.core.clock.now_ms()
        assert "--spark-memory-mib" in stalled.error
    few, many = waits.values()
    assert few <= module.RETRY_MS_MAX < many <= module.DEAR_RETRY_MS_MAX


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
