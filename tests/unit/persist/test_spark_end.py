"""An error because a process ended is told as its end; any other stays what it is."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from headwater.adapter.mistakes import users_mistakes
from headwater.adapter.spark_lost import SparkLost
from headwater.base.errors import InvalidUsage
from headwater.persist.spark_end import SparkEnded, or_ended


@dataclass(frozen=True)
class Session:
    """What stands for a session: it has a process."""

    jvm: Any = None

    @property
    def process(self) -> Any:
        return self.jvm


def _ended(status: int) -> Any:
    process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({status})"])
    process.wait()
    return process


def test_whatever_a_caller_sees_of_a_process_that_goes() -> None:
    session = Session(_ended(3))
    for error in (EOFError(), ConnectionResetError(), RuntimeError("SparkContext was shut down")):
        with pytest.raises(SparkEnded, match="memory was used up") as told, or_ended(session):
            raise error
        assert told.value.out_of_memory
        assert told.value.__cause__ is error


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="a mistake"), or_ended(Session(_ended(1))):
        raise ValueError("a mistake")
    with pytest.raises(InvalidUsage), or_ended(Session(_ended(1))):
        raise InvalidUsage("a connection")
    with pytest.raises(EOFError), or_ended(Session(None)):
        raise EOFError


@pytest.mark.parametrize(("status", "sqlstate"), [(-9, "40001"), (3, "53200"), (52, "53200")])
def test_a_statement_may_be_tried_again(status: int, sqlstate: str) -> None:
    with pytest.raises(SparkLost) as told, users_mistakes():
        raise SparkEnded(status)
    assert told.value.sqlstate == sqlstate
    assert "again" in (told.value.hint or "")
