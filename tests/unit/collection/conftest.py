"""What the tests of collections share: a location in memory, and its clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.base.clock import ManualClock
from headwater.collection.collections import Collections
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.state import violations


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(5_000)


@pytest.fixture
def client(clock: ManualClock) -> Iterator[Client]:
    opened = open_location(
        blob=MemoryBlob(),
        consensus=MemoryConsensus(),
        clock=clock,
        settings=Settings(maintenance=False),
    )
    with opened as client:
        yield client
        assert list(violations(client.core.state)) == []


@pytest.fixture
def collections(client: Client) -> Collections:
    return Collections(client)
