"""Primary keys: how many rows each has, with what a group of writes has done so far.

After each write every key that it touches has at most one row; a write that would leave two is
refused as a whole, and has then done nothing. ``ON CONFLICT DO NOTHING`` leaves out what is there.
A transaction that was told of keys rests on how many rows they had.

Counts before the group come from whoever commits it (``adapter/group_commit.py``). Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headwater.adapter.errors import (
    AdapterError,
    SerializationFailure,
    UniqueViolation,
    UnknownRelation,
)
from headwater.base.ids import GlobalId
from headwater.persist.state import State

if TYPE_CHECKING:
    from headwater.adapter.group_commit import Write

Key = tuple[object, ...]

Admitted = tuple[pa.Table, Sequence[int]]
"""Rows that are written, and the diff of each."""

_NAN: Final = object()
"""Stands for NaN in a key: SQL has it equal to itself."""


@dataclass(slots=True)
class KeyCounts:
    """How many rows each key of a table has, with what the group has written so far."""

    by_key: dict[Key, int] = field(default_factory=lambda: defaultdict(int))


def keys_of(rows: pa.Table, key: Sequence[str]) -> list[Key]:
    """Return the keys of rows as values that are equal in Python when they are in SQL."""
    columns = []
    for name in key:
        values = rows.column(name).to_pylist()
        if pa.types.is_floating(rows.schema.field(name).type):
            values = [_NAN if value != value else value for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


def admit(
    state: State, write: Write, present: Mapping[GlobalId, KeyCounts]
) -> tuple[Admitted, ...]:
    """Return the updates to be written, or refuse the write as a whole; counts what it does."""
    _check_met(write, present)
    done: list[tuple[KeyCounts, Key, int]] = []
    found: list[Admitted] = []
    try:
        for table in write.tables:
            if table.id not in state.collections:
                raise UnknownRelation(table.name)
            counts = present.get(table.id)
            rows, diffs = table.rows, list(table.diffs)
            if counts is not None:
                keys = keys_of(rows, table.key)
                if table.skip_existing:
                    rows, diffs, keys = _absent(rows, diffs, keys, counts)
                for key, diff in zip(keys, diffs, strict=True):
                    counts.by_key[key] += diff
                    done.append((counts, key, diff))
                if any(counts.by_key[key] > 1 for key in keys):
                    raise UniqueViolation(table.name, table.key)
            found.append((rows, diffs))
    except AdapterError:
        for counts, key, diff in done:
            counts.by_key[key] -= diff
        raise
    return tuple(found)


def _check_met(write: Write, present: Mapping[GlobalId, KeyCounts]) -> None:
    """Refuse a write that rests on keys which have come, or gone, since it was told of them."""
    for met in write.met:
        counts = present.get(met.id)
        keys = keys_of(met.keys, met.keys.schema.names)
        if counts is None or any(
            counts.by_key[key] != count for key, count in zip(keys, met.counts, strict=True)
        ):
            raise SerializationFailure(met.name)


def _absent(
    rows: pa.Table, diffs: list[int], keys: list[Key], counts: KeyCounts
) -> tuple[pa.Table, list[int], list[Key]]:
    """Keep the first row of each key that is not there yet."""
    kept: list[int] = []
    taken: set[Key] = set()
    for place, key in enumerate(keys):
        if not counts.by_key[key] and key not in taken:
            kept.append(place)
            taken.add(key)
    left: Any = rows.take(pa.array(kept, pa.int64()))
    return left, [diffs[place] for place in kept], [keys[place] for place in kept]
