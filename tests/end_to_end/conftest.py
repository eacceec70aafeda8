"""What the end-to-end tests of the wire and of the catalog share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from headwater.adapter.pgwire import WireServer
from tests.end_to_end.client_door import Door, open_door
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


@pytest.fixture(scope="package")
def door() -> Iterator[Door]:
    """A door with a few objects behind it, for all who look at a catalog."""
    with open_door() as opened, opened.connect() as connection:
        connection.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, who text NOT NULL DEFAULT 'nobody''s',"
            " amount numeric(12,2), at timestamptz, paid boolean DEFAULT false)"
        )
        for statement in (
            "COMMENT ON TABLE orders IS 'what was ordered'",
            "COMMENT ON COLUMN orders.amount IS 'in euros'",
            "CREATE VIEW paid_orders AS SELECT id, amount FROM orders WHERE paid",
            "CREATE VIEW counts (who, n) AS SELECT who, count(*) FROM orders GROUP BY who",
            "CREATE INDEX by_who ON orders (who)",
            "CREATE MATERIALIZED VIEW kept AS SELECT max(amount) AS most FROM orders",
            "INSERT INTO orders VALUES (1, 'ada', 12.50, '2026-01-02 03:04:05+00', true)",
        ):
            connection.execute(statement)
        yield opened
