"""What the end-to-end tests of the wire share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.adapter.pgwire import WireServer
from tests.end_to_end.memory_backend import Memory


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
