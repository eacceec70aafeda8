"""One collection: its frontiers, its batches, who holds it, and how each change moves it.

Values and pure transitions; ``persist/state.py`` applies them to the whole location, and lists the
invariants. The transitions are total: a change was decided against the state just before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.persist.batch import MINIMUM, TIME_LIMIT, Batch, Part, Times, Unsealed
from headwater.persist.changes import (
    Appended,
    Change,
    Codec,
    CollectionDestroyed,
    Merged,
    Reader,
    ReaderSet,
    SchemaAdded,
    Sealed,
    SinceMoved,
    Writer,
    WriterSet,
    Written,
)
from headwater.persist.unsealed import UnsealedWrites

OWNER: Final = "owner"
"""The reader that ``allow_compaction`` moves."""

TOKENS_KEPT: Final = 64
"""How many tokens a collection remembers, to answer a late retry with "already": the newest of all
that wrote to it or moved its upper, with rows or without. Besides, a write is remembered while it
is unsealed, and the newest update of a write capability while that lives. Whatever comes later than
that is refused, because the upper has passed it: forgetting a token never doubles a write."""

replace = msgspec.structs.replace


class CollectionState(msgspec.Struct, frozen=True):
    """One collection: its frontiers, its batches, and who holds it."""

    id: GlobalId
    name: str
    schemas: tuple[bytes, ...]
    key: tuple[str, ...]
    layout: str
    codecs: tuple[Codec, ...]
    """Who wrote the parts of each version of the schema; as many as there are schemas."""
    own_upper: Times
    since: Times
    timeline: str | None = None
    batches: tuple[Batch, ...] = ()
    unsealed: UnsealedWrites = UnsealedWrites()
    next_batch: int = 0
    tokens: tuple[str, ...] = ()
    readers: dict[str, Reader] = {}
    writers: dict[str, Writer] = {}
    volatile_from: Times | None = None
    """Where it began, if what it holds is known to this process alone (``persist/volatile.py``)."""

    @property
    def codec(self) -> Codec:
        """The codec that writes now."""
        return self.codecs[-1]

    def remembers(self, token: str) -> bool:
        """Whether a write with this token is known to be durable; see ``TOKENS_KEPT``."""
        return token in self.tokens or token in self.unsealed

    def newest_of(self, version: int) -> int:
        """Return the newest version of the schema that the same codec wrote as this one."""
        codec = self.codecs[version]
        return max(v for v, other in enumerate(self.codecs) if other == codec)

    def parts(self) -> Iterator[Part]:
        """Return every part, sealed and not."""
        for batch in self.batches:
            yield from batch.parts
        for unsealed in self.unsealed:
            yield from unsealed.parts


def bound(frontier: Times) -> int:
    """Return the frontier as an exclusive integer bound."""
    return TIME_LIMIT if frontier.is_closed else frontier.only()


def seal(
    collection: CollectionState, upper: Times, parts: tuple[Part, ...] = ()
) -> CollectionState:
    """Make a batch of ``parts`` and the unsealed updates before ``upper``; move the upper."""
    limit = bound(upper)
    if limit <= collection.unsealed.time_min:
        return replace(_append(collection, parts, upper), own_upper=upper)
    taken: list[Part] = list(parts)
    kept: list[Unsealed] = []
    for unsealed in collection.unsealed:
        rest: list[Part] = []
        for part in unsealed.parts:
            before, after = part.through(MINIMUM, limit), part.through(limit, TIME_LIMIT)
            if before is not None:
                taken.append(before)
            if after is not None:
                rest.append(after)
        if rest:
            kept.append(Unsealed(unsealed.token, tuple(rest)))
    appended = _append(collection, tuple(taken), upper)
    return replace(appended, own_upper=upper, unsealed=UnsealedWrites(kept))


def _append(collection: CollectionState, parts: tuple[Part, ...], upper: Times) -> CollectionState:
    """Add a batch that reaches from the last batch to ``upper``; an empty one is not kept."""
    if not parts:
        return collection
    lower = collection.batches[-1].upper if collection.batches else Frontier.of(MINIMUM)
    batch = Batch(collection.next_batch, lower, upper, Frontier.of(MINIMUM), parts)
    return replace(
        collection,
        batches=(*collection.batches, batch),
        next_batch=collection.next_batch + 1,
    )


def _remember(collection: CollectionState, token: str) -> tuple[str, ...]:
    if token in collection.tokens:
        return collection.tokens  # An update with rows says it twice: who moved, what was written.
    return (*collection.tokens, token)[-TOKENS_KEPT:]


def _merge(collection: CollectionState, change: Merged) -> CollectionState:
    numbers = [batch.no for batch in collection.batches]
    first = numbers.index(change.inputs[0])
    last = first + len(change.inputs)
    assert tuple(numbers[first:last]) == change.inputs, "merged batches are adjacent"
    old = collection.batches[first:last]
    merged = Batch(collection.next_batch, old[0].lower, old[-1].upper, change.since, change.parts)
    return replace(
        collection,
        batches=(*collection.batches[:first], merged, *collection.batches[last:]),
        next_batch=collection.next_batch + 1,
    )


def _set_writer(collection: CollectionState, change: WriterSet, upper: Times) -> CollectionState:
    old = collection.writers.get(change.writer_id)
    writers = {k: v for k, v in collection.writers.items() if k != change.writer_id}
    tokens = collection.tokens
    if change.writer is not None:
        writers[change.writer_id] = change.writer
        token = change.writer.last_update
        if token is not None and (old is None or old.last_update != token):
            tokens = _remember(collection, token)
    return replace(collection, own_upper=upper, writers=writers, tokens=tokens)


def changed(collection: CollectionState, change: Change, upper: Times) -> CollectionState | None:
    """Return the collection, whose upper is ``upper``, after the change; ``None`` if it is gone."""
    match change:
        case CollectionDestroyed():
            return None
        case SchemaAdded():
            return replace(
                collection,
                schemas=(*collection.schemas, change.schema),
                codecs=(*collection.codecs, change.codec),
            )
        case Written():
            return replace(
                collection,
                own_upper=upper,
                unsealed=collection.unsealed.add(change.unsealed),
                tokens=_remember(collection, change.unsealed.token),
            )
        case Sealed():
            return seal(collection, change.upper)
        case Appended():
            appended = seal(collection, change.upper, change.parts)
            return replace(appended, tokens=_remember(collection, change.token))
        case SinceMoved():
            return replace(collection, since=change.since)
        case ReaderSet():
            readers = {k: v for k, v in collection.readers.items() if k != change.reader_id}
            if change.reader is not None:
                readers[change.reader_id] = change.reader
            return replace(collection, readers=readers)
        case WriterSet():
            return _set_writer(collection, change, upper)
        case Merged():
            return _merge(collection, change)
        case _:
            raise AssertionError(f"{type(change).__name__} is not a change of a collection")
