"""The first snapshot of a materialization, in transactions that fit into memory.

The inputs are read part by part, binding after binding, and spilled ordered by key (``spill``).
Each transaction delivers a range of keys of one binding, and with it whatever is left of the
bindings before; its position says how far it got, so that a crash costs no more than the
transaction in hand:

    Position(c, ((state key, greatest key that is delivered), …))    until the last: Position(c)

A binding that is not named has nothing delivered yet; one that is done has :data:`ANY_KEY`. All
that is delivered is of the view at ``c - 1``, also after a crash, because that is held. A small
snapshot is one transaction, and nothing is spilled.

Where a part ends depends on limits and on how the inputs are stored. One that must be repeated as
it was (``intent``) is therefore cut out by its positions, and then they go on as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import ANY_KEY
from headwater.materialize.gather import owned
from headwater.materialize.key_range import KeyRange
from headwater.materialize.spill import SPILL_BYTES, Spill, pack_key


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one transaction delivers of the snapshot."""

    position: Position
    updates: MutableMapping[int, pa.Table]
    """By number of the binding. Who has combined some takes them out, so that they are not held."""

    @property
    def is_last(self) -> bool:
        """Whether the snapshot is whole with it."""
        return not self.position.snapshot


class Readable(Protocol):
    """An input at a time, to be read; a snapshot is."""

    def updates(self) -> Iterator[pa.Table]:
        """Yield its rows as updates at that time, piece by piece."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """A binding's part of the snapshot."""

    state_key: str
    key: tuple[str, ...]
    snapshot: Readable


def chunks(
    parts: Sequence[Part],
    time: int,
    begun: Mapping[str, bytes],
    key_range: KeyRange,
    limit_bytes: int = SPILL_BYTES,
    check: Callable[[], None] = lambda: None,
    owed: Position | None = None,
) -> Iterator[Chunk]:
    """Yield the rest of a shard's snapshot as of ``time - 1``.

    ``check`` may raise, to break it off. ``owed``: where the next one leads to, if it was begun.
    """
    done = dict(begun)
    if owed is not None:
        repeated = _leading_to(owed, parts, done, key_range, check)
        yield repeated
        if repeated.is_last:
            return
        done = dict(owed.snapshot)
    waiting: dict[int, pa.Table] = {}
    for index, part in enumerate(parts):
        after = done.get(part.state_key, b"")
        if after == ANY_KEY:
            continue
        held = sum(table.nbytes for table in waiting.values())
        spill = Spill(part.key, max(limit_bytes - held, limit_bytes // 2))
        for updates in part.snapshot.updates():
            check()
            spill.add(owned(updates, part.key, key_range))
        for piece in spill.pieces(after):
            waiting[index] = piece.updates
            last = piece.last
            del piece
            if last is not None:
                done[part.state_key] = last
                yield Chunk(Position(time, tuple(sorted(done.items()))), waiting)
                waiting = {}
        done[part.state_key] = ANY_KEY
        # What is left of it goes with the next binding, unless that would be too much at once.
        full = 2 * sum(table.nbytes for table in waiting.values()) >= limit_bytes
        if full and index + 1 < len(parts):
            yield Chunk(Position(time, tuple(sorted(done.items()))), waiting)
            waiting = {}
    yield Chunk(Position(time), waiting)


def _leading_to(
    position: Position,
    parts: Sequence[Part],
    done: Mapping[str, bytes],
    key_range: KeyRange,
    check: Callable[[], None],
) -> Chunk:
    """Return what leads to a position; it was held in memory when it was begun, too."""
    wanted = dict(position.snapshot)
    updates: dict[int, pa.Table] = {}
    for index, part in enumerate(parts):
        after = done.get(part.state_key, b"")
        through = wanted.get(part.state_key, b"") if wanted else ANY_KEY
        if through <= after:
            continue
        found = []
        for piece in part.snapshot.updates():
            check()
            found.append(_between(owned(piece, part.key, key_range), part.key, after, through))
        if any(table.num_rows for table in found):
            updates[index] = pa.concat_tables(found, promote_options="default")
    return Chunk(position, updates)


def _between(updates: pa.Table, key: Sequence[str], after: bytes, through: bytes) -> pa.Table:
    packed = pack_key(updates, key)
    above = pc.greater(packed, pa.scalar(after, packed.type))
    return updates.filter(pc.and_(above, pc.less_equal(packed, pa.scalar(through, packed.type))))
