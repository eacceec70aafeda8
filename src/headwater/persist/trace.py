"""Which batches of a collection to merge next (pure).

Rule: the sizes of batches fall at least by half from each one to the next newer. Where a newer
batch has grown to more than half of its elder, the two are merged; a run of such neighbours is
merged at once. So n appended batches leave O(log n), and every update is rewritten O(log n) times.

Small ones wait for each other: what a merge of up to a few thousand updates costs is the merge, not
the updates. So the rule asks for four batches, or for more updates than that.

Where merges lag behind, more small batches wait before large newer ones than one merge can take.
They are merged among themselves first: the large ones would be rewritten for every handful of them.

A single batch is rewritten when that will shrink it to less than half: since has passed its whole
interval, so that all its times fall together, and its diffs sum to less than half the number of its
updates, so that most of them cancel. Afterwards its own since is past its upper, and it is never
rewritten for this reason again: a since that moves with every tick costs nothing. Nor is one whose
updates are at one time already, and consolidated: no time falls together with another, so nothing
cancels. Such are most batches that a step writes, and all that a merge up to their last time left.

Where since is the empty frontier nobody will ever read the collection, so all that is left of it
is merged at once, into nothing: its objects are garbage then.
"""

from __future__ import annotations

from typing import Final

from headwater.persist.batch import Batch, Inline, Times
from headwater.persist.state import CollectionState

FLOOR_ROWS: Final = 64
"""Batches smaller than this count as this: tiny ones are merged by count, not by size."""

FAN_IN_MAX: Final = 64

MERGE_AT_LEAST: Final = 4
"""Wait for a few small batches, so that one merge pays for several commits."""

SMALL_ROWS: Final = 4_096
"""As long as they are no more updates than this together."""


def next_merge(collection: CollectionState, since: Times | None = None) -> tuple[Batch, ...]:
    """Return adjacent batches to merge, oldest first; empty if all is well.

    ``since`` is how far a merge may advance times now: the collection's, unless somebody in this
    process still reads before it. To rewrite a batch for a since that the merge cannot reach would
    leave it as it was, due again, for ever.
    """
    since = collection.since if since is None else since
    batches = collection.batches
    if since.is_closed:
        return batches if has_parts(collection) else ()
    weights = [max(FLOOR_ROWS, batch.rows) for batch in batches]
    for end in range(len(batches), 1, -1):
        total = weights[end - 1]
        start = end - 1
        # Reach back as long as what has been gathered outweighs half of the next elder.
        while start > 0 and end - start < FAN_IN_MAX and 2 * total > weights[start - 1]:
            start -= 1
            total += weights[start]
        if end - start == FAN_IN_MAX and _is_top_heavy(weights[start:end], total):
            continue
        if end - start > 1 and (end - start >= MERGE_AT_LEAST or total > SMALL_ROWS):
            return batches[start:end]
    for batch in batches:
        if _shrinks(batch, since):
            return (batch,)
    return ()


def _is_top_heavy(window: list[int], total: int) -> bool:
    """Whether the newer half is more than twice as heavy as the elder."""
    return 3 * sum(window[: len(window) // 2]) < total


def _shrinks(batch: Batch, since: Times) -> bool:
    if batch.rows <= FLOOR_ROWS or not batch.upper <= since or batch.upper <= batch.since:
        return False
    left = sum(abs(part.diff_sum) for part in batch.parts)
    return 2 * left < batch.rows and not _is_at_one_time(batch)


def _is_at_one_time(batch: Batch) -> bool:
    """Whether it is one part, consolidated, of one time; of several parts each may cancel another.

    What a window hides is still stored, and a rewrite leaves it out.
    """
    if len(batch.parts) != 1:
        return False
    (part,) = batch.parts
    return part.consolidated and part.time_min == part.time_max and part.window is None


def has_parts(collection: CollectionState) -> bool:
    """Whether anything sealed is left of the collection."""
    return any(batch.parts for batch in collection.batches)


def inline_bytes(collection: CollectionState) -> int:
    """Return how many bytes of the collection live in the log."""
    return sum(part.size_bytes for part in collection.parts() if isinstance(part.where, Inline))
