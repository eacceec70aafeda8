"""What the end-to-end tests of the wire share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from headwater.adapter.pgwire import WireServer
from tests.end_to_end.memory_backend import Memory


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing went wrong that only the log was told."""
    yield
    wrong = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not [record.getMessage() for record in wrong]


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def wire(memory: Memory) -> Iterator[WireServer]:
    """A server of its own for every test; when it has stopped, nothing is left open."""
    with WireServer("127.0.0.1", 0, memory) as running:
        yield running
        memory.release.set()
    assert memory.sessions_open == 0
    assert memory.streams_open == 0
    assert memory.copies_open == 0
