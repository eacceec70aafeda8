"""Splits and joins: from some key ranges of a materialization to others, in one log entry.

A materialization has as many shards as the item ``materialization-shard/<name>/shards`` says (one,
if there is none), and their ranges are :meth:`KeyRange.tiling` of that. Changing the number writes
the entries of the new ranges, removes those of the old ones, and asserts the roles of the old ones,
which were taken before: a session that was left behind cannot commit any more, here; and at an
endpoint with fences, because the new ranges raise the fences of all that they overlap.

What a new range inherits (:func:`inherited`), from all that it overlaps:

    position        theirs, which must be one: what is to be joined is drained first
    intent          none: who has begun something is not drained
    driver's state  all patches of them, merged; drivers keep what is of a range under its name
    greatest keys   the greatest of them, if each of them knows one

Invariant:      at any time the entries of a materialization are of ranges that tile all hashes.
Kept by:        :func:`reshape`, the only one that changes which ranges there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from headwater.base.errors import HeadwaterError
from headwater.materialize.key_range import KeyRange, nested
from headwater.materialize.protocol.specs import ConnectorState
from headwater.materialize.recovery import (
    PREFIX,
    RecoveryEntry,
    entry_of,
    item_key,
    take_role,
)
from headwater.materialize.reduction.merge_patch import updated_state
from headwater.persist.commands import AssertRole, Atomic, SetItem
from headwater.persist.core import Core

_SHARDS: Final = "shards"


class NotDrained(HeadwaterError):
    """Key ranges that cannot be joined, for they do not stand at one checkpoint."""

    def __init__(self, opened: KeyRange, standing: Mapping[KeyRange, RecoveryEntry]) -> None:
        stand = "; ".join(
            f"{each} at {entry.position}" + (f", owing {entry.intent}" if entry.intent else "")
            for each, entry in standing.items()
        )
        super().__init__(f"the key range {opened} cannot be made of {stand}: drain them first")


def _shards_key(name: str) -> str:
    return f"{PREFIX}{name}/{_SHARDS}"


def put_shards(name: str, shards: int) -> SetItem:
    """Return what says how many shards there are."""
    return SetItem(_shards_key(name), msgspec.json.encode(shards))


def shards_of(core: Core, name: str) -> int:
    """Return how many shards a materialization has."""
    found = core.state.items.get(_shards_key(name))
    return 1 if found is None else msgspec.json.decode(found, type=int)


def next_shards(now: int, wanted: int) -> int:
    """Return how many there can be next, on the way to what is wanted.

    An endpoint's fences know splits and joins; ranges that only overlap are neither, and are
    reached through one that is all.

    >>> next_shards(2, 4), next_shards(4, 2), next_shards(2, 3)
    (4, 2, 1)
    """
    return wanted if nested(KeyRange.tiling(now), KeyRange.tiling(wanted)) else 1


def inherited(entries: Mapping[KeyRange, RecoveryEntry], opened: KeyRange) -> RecoveryEntry:
    """Return what a new range begins with."""
    parents = {each: entry for each, entry in entries.items() if each.overlaps(opened)}
    first = next(iter(parents.values()))
    if any(e.position != first.position or e.intent is not None for e in parents.values()):
        raise NotDrained(opened, parents)
    state = b""
    for entry in parents.values():
        if entry.state_json:
            state = updated_state(state, ConnectorState(entry.state_json, merge_patch=bool(state)))
    return msgspec.structs.replace(
        first, state_json=state, max_keys=_greatest([dict(e.max_keys) for e in parents.values()])
    )


def _greatest(known: list[dict[str, bytes]]) -> tuple[tuple[str, bytes], ...]:
    by_all = set.intersection(*(set(keys) for keys in known))
    return tuple((key, max(keys[key] for keys in known)) for key in sorted(by_all))


def reshape(core: Core, name: str, shards: int) -> None:
    """Let a materialization, none of whose shards is at work, have so many of them."""
    before = KeyRange.tiling(shards_of(core, name))
    roles = [AssertRole(*take_role(core, name, each)) for each in before]
    entries = {each: entry_of(core, name, each) for each in before}
    after = {each: inherited(entries, each) for each in KeyRange.tiling(shards)}
    gone = [SetItem(item_key(name, each), None) for each in before]
    made = [
        SetItem(item_key(name, each), msgspec.json.encode(entry)) for each, entry in after.items()
    ]
    core.submit(Atomic((*roles, *gone, *made, put_shards(name, shards)))).result()
