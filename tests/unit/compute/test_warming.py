"""A JVM that is of no use any more is followed by another."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from headwater.compute import warming
from headwater.compute.session import SparkSettings
from headwater.compute.warming import SparkUnavailable, WarmingSession

WAITING = (sys.executable, "-c", "import sys; sys.stdin.read()")


@dataclass
class Spark:
    """What stands for a session: a process, and a context that may be stopped in it."""

    jvm: subprocess.Popen[bytes] = field(
        default_factory=lambda: subprocess.Popen(WAITING, stdin=-1)
    )
    stopped: bool = False
    version: str = "0"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.jvm

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
        return self

    _jsc = sparkContext

    def sc(self) -> Any:
        return self

    def isStopped(self) -> bool:  # noqa: N802 - Spark's name
        return self.stopped


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Spark]]:
    """Sessions, in the order in which they were opened."""
    every: list[Spark] = []

    def opened(_: SparkSettings) -> Spark:
        every.append(Spark())
        return every[-1]

    monkeypatch.setattr(warming, "open_session", opened)
    monkeypatch.setattr(warming, "forget_session", lambda: None)
    monkeypatch.setattr(warming, "close_session", lambda: None)
    monkeypatch.setattr(warming, "CONTEXT_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(warming, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(warming, "PAUSE_SECONDS_MAX", 0.0)
    yield every
    for one in every:
        one.process.communicate()


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


def test_one_whose_context_was_stopped(started: list[Spark]) -> None:
    session = WarmingSession(SparkSettings())
    first = session.session()
    first.stopped = True
    eventually(lambda: len(started) == 2)
    assert first.process.poll() is not None, "nobody could use it again"
    assert session.session() is started[1]
    assert session.restarts == 1
    session.close()


def test_one_that_ends_by_itself_says_how(
    started: list[Spark], caplog: pytest.LogCaptureFixture
) -> None:
    session = WarmingSession(SparkSettings())
    session.session().process.kill()
    eventually(lambda: len(started) == 2)
    (told,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert told.__dict__["event"]["why"] == "killed by SIGKILL"
    session.close()


def test_what_java_says_of_a_failed_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Event()

    class OfJava(Exception):
        """As Py4J's: its words are asked of the JVM."""

        def __str__(self) -> str:
            if gone.is_set():
                raise ConnectionRefusedError
            return "no such master"

    def refused(_: SparkSettings) -> Spark:
        raise OfJava

    monkeypatch.setattr(warming, "open_session", refused)
    monkeypatch.setattr(warming, "forget_session", gone.set)
    monkeypatch.setattr(warming, "close_session", lambda: None)
    session = WarmingSession(SparkSettings())
    with pytest.raises(SparkUnavailable, match="no such master"):
        session.session()
    session.close()
