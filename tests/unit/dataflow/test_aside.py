"""Threads that give way, also in a process that does so already."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from headwater.compute.dataflow import aside

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a thread has a priority on Linux")


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_thread_gives_way() -> None:
    with aside.threads(1) as threads:
        assert threads.submit(_niceness).result() >= aside.NICENESS


def test_one_that_gives_way_already_asks_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: int) -> None:
        raise PermissionError("only root may")

    monkeypatch.setattr(os, "getpriority", lambda *_: 15)
    monkeypatch.setattr(os, "setpriority", refused)
    with aside.threads(1) as threads:
        assert threads.submit(lambda: "done").result() == "done"
