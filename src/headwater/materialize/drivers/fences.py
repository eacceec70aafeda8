"""Fences: who may commit for a key range, decided purely.

An endpoint that is authoritative keeps one row per materialization and key range: a fence and a
checkpoint. Whoever opens a range gets a fence above that of every row that overlaps it, and these
are raised or removed; every commit asserts its own number in the same transaction as the data. So
a zombie, which remembers an older one, can never commit again.

Where does a newly opened range begin? Each hash is *owned* by the narrowest row that covers it.

- If no row overlaps the range: at the very beginning, with fence 1.
- If its hashes are all owned, by rows that stand at one checkpoint: there. Opening again, a split
  and a join are all this case.
- Otherwise some keys would be delivered twice or never, and it is refused: parents that stand at
  different checkpoints must first be drained to one.

Invariant:      of all sessions that were ever opened, the one that owns a hash is the last that
                opened a range with it, and no other can commit that hash.
Kept by:        :func:`install`. Rows within the opened range are removed, or they would own its
                hashes at a checkpoint long past when it is split again; wider rows stay, for the
                siblings. The fence is above all that overlap, also those that were removed before,
                because whoever removed them was above them.
Relied on by:   drivers, which read the rows of a materialization and write what was decided in one
                transaction that excludes others.

(Flow's connectors begin a join from zero, and give a new range fence 0; document 001 says 1.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headwater.base.errors import HeadwaterError
from headwater.materialize.key_range import KeyRange


class FencedOff(HeadwaterError):
    """Another session has opened our key range, or a part of it; whatever we do is refused."""


@dataclass(frozen=True, slots=True)
class FenceRow:
    """What an endpoint keeps for a key range."""

    key_range: KeyRange
    fence: int
    checkpoint: str


class CannotJoin(HeadwaterError):
    """A key range that overlaps others in a way from which it cannot go on."""

    def __init__(self, opened: KeyRange, overlapping: Sequence[FenceRow]) -> None:
        stand = "; ".join(f"{row.key_range} at {row.checkpoint!r}" for row in overlapping)
        super().__init__(
            f"the key range {opened} cannot be opened: its keys do not stand at one checkpoint "
            f"({stand}); let these ranges finish to one checkpoint first"
        )


@dataclass(frozen=True, slots=True)
class Installed:
    """What to write; the session remembers its row."""

    row: FenceRow
    """Ours; inserted, or updated if it was there."""
    raised: tuple[FenceRow, ...]
    """Wider rows, with their fences raised."""
    removed: tuple[KeyRange, ...]
    """Ranges within ours, whose rows go."""


def install(rows: Sequence[FenceRow], opened: KeyRange, beginning: str) -> Installed:
    """Decide the fence of a range; ``rows`` are all of the materialization's."""
    overlapping = [row for row in rows if row.key_range.overlaps(opened)]
    owners = list(_owners(overlapping, opened))
    checkpoints = {owner.checkpoint for owner in owners if owner is not None}
    if overlapping and (None in owners or len(checkpoints) != 1):
        raise CannotJoin(opened, overlapping)
    fence = 1 + max((row.fence for row in overlapping), default=0)
    others = [row for row in overlapping if row.key_range != opened]
    return Installed(
        FenceRow(opened, fence, checkpoints.pop() if checkpoints else beginning),
        tuple(
            replace(row, fence=row.fence + 1) for row in others if not opened.covers(row.key_range)
        ),
        tuple(row.key_range for row in others if opened.covers(row.key_range)),
    )


def _owners(rows: Sequence[FenceRow], opened: KeyRange) -> Iterator[FenceRow | None]:
    """Yield who owns each stretch of a range; ``None`` where nobody does."""
    edges = {row.key_range.begin for row in rows} | {row.key_range.end + 1 for row in rows}
    for start in sorted({opened.begin, *filter(opened.owns, edges)}):
        covering = [row for row in rows if row.key_range.owns(start)]
        yield min(covering, key=lambda row: row.key_range.end - row.key_range.begin, default=None)
