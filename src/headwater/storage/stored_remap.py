"""Remap as it is durable: read back from its collection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.persist.client import ReadHandle
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.read import Updates
from headwater.storage.remap import Remap


def read_remap(read: ReadHandle, birth: int = 0) -> Remap:
    """Return the bindings that a remap collection has, from its since on."""
    upper, since = read.upper.only(), read.since.only()
    if upper == birth:
        return Remap.empty(birth)
    return Remap.read(_updates(read, since, upper), since, upper, birth)


def _updates(read: ReadHandle, since: int, upper: int) -> Iterator[dict[str, Any]]:
    listen = read.listen(since)  # First: its hold covers the snapshot.
    try:
        for row in read.snapshot(since).to_table().to_pylist():
            yield {**row, TIME: since, DIFF: row[DIFF]}
        while listen.frontier.only() < upper:
            event = listen.fetch(timeout=0)
            assert event is not None, "what is sealed can be listened to"
            if isinstance(event, Updates):
                yield from event.ok.to_pylist()
    finally:
        listen.close()
