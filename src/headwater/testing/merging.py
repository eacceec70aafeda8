"""Merges that are not due: what a collection may look like later, when it has few updates.

Maintenance lets small batches wait for each other (``persist/trace.py``), so that in a test, whose
batches are all small, it would merge nothing, and no time would ever be advanced to since.

Relied on by: tests that a compacted collection means the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.base.ids import GlobalId
from headwater.persist.client import Client
from headwater.persist.maintenance import Maintenance


def merge_everything(client: Client, among: Iterable[GlobalId] | None = None) -> int:
    """Merge all batches of each collection into one, with its times as far as since lets them be.

    Return how many were merged; of those that nobody can read any more there is nothing left.
    """
    maintenance = Maintenance(client.core)
    merged = 0
    for gid in list(client.core.state.collections if among is None else among):
        collection = client.core.state.collections.get(gid)
        if collection is None or collection.layout not in client.core.layouts:
            continue
        if collection.since.is_closed:
            merged += maintenance.merge_one(gid)
        elif any(batch.since != collection.since for batch in collection.batches):
            merged += maintenance.merge_batches(collection, collection.batches)
    return merged
