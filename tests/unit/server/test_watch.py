"""Who tells the log what is not well goes on after a look that failed."""

from __future__ import annotations

import logging
import threading

import pytest

from headwater.console.model import Picture
from headwater.server.watch import Watch

NOTHING = Picture((), (), (), 0, 0, 0)
WAIT_SECONDS = 20
"""How long is waited for the thread."""


def test_it_looks_again_after_a_look_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    failures, again = [KeyError("a bug")], threading.Event()

    def picture() -> Picture:
        if failures:
            raise failures.pop()
        again.set()
        return NOTHING

    watch = Watch(picture, seconds=0.01)
    watch.start()
    try:
        assert again.wait(WAIT_SECONDS), "nobody looks any more"
    finally:
        watch.stop()
    assert [each.levelno for each in caplog.records] == [logging.ERROR]
