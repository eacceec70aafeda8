"""Numbers in a collection, as they are written and as they are read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.collection.collections import Collections, Description
from headwater.persist.batch import Times
from headwater.persist.read import Updates

SCHEMA = pa.schema([pa.field("k", pa.int64())])
DESCRIPTION = Description(SCHEMA)
CLOSED: Times = Frontier.closed()


def at(time: int) -> Times:
    return Frontier.of(time)


def contents(collections: Collections, gid: GlobalId, time: int) -> list[int]:
    """Return the rows at a time, through a subscription of its own."""
    read = collections.acquire_read(gid, at=time)
    event = collections.subscribe_at(read).fetch(timeout=0)
    collections.drop(read)
    if not isinstance(event, Updates):
        return []
    return sorted(row["k"] for row in event.ok.to_pylist() for _ in range(row["__diff"]))


def rows(*updates: tuple[int, int]) -> list[tuple[dict[str, Any], int, int]]:
    return [({"k": k}, time, 1) for k, time in updates]
