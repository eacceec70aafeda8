"""Envelopes of SUBSCRIBE: the updates of a key at one time, told as one change.

``UPSERT (KEY (…))``: ``mz_state`` and the key, then the other columns as they are now.

    upsert          the key has these values now            delete    it has none any more

``DEBEZIUM (KEY (…))``: the other columns twice, ``before_…`` and ``after_…``.

    insert   upsert (there is both)   delete

Where the updates of a key at one time leave more than one row, or take more than one away, the key
is no key: ``key_violation``, and no values.

A change is told by the updates of its time alone; nothing is remembered of earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headwater.adapter.errors import UnknownColumn
from headwater.adapter.sql.statements import Envelope
from headwater.persist.evolution import DIFF, TIME

STATE: Final = "mz_state"

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one key at one time."""

    time: int
    state: str
    key: Row
    before: Row | None
    after: Row | None


def fields(envelope: Envelope, data: pa.Schema, name: str) -> list[pa.Field]:
    """Return the columns after the time: state, key, values."""
    for column in envelope.key:
        if column not in data.names:
            raise UnknownColumn(column, name, data.names)
    keys = [data.field(column) for column in envelope.key]
    others = [field.with_nullable(True) for field in data if field.name not in envelope.key]
    state = pa.field(STATE, pa.string())
    if envelope.kind == "upsert":
        return [state, *keys, *others]
    before = [field.with_name(f"before_{field.name}") for field in others]
    after = [field.with_name(f"after_{field.name}") for field in others]
    return [state, *keys, *before, *after]


def told(envelope: Envelope, data: pa.Schema, updates: pa.Table) -> Iterator[Row]:
    """Yield rows ``(time, state, key …, values …)`` for updates in the order of time."""
    others = [name for name in data.names if name not in envelope.key]
    for change in _changes(envelope, others, updates):
        none = (None,) * len(others)
        after = change.after or none
        values = after if envelope.kind == "upsert" else (*(change.before or none), *after)
        yield (change.time, change.state, *change.key, *values)


def _changes(envelope: Envelope, others: Sequence[str], updates: pa.Table) -> Iterator[Change]:
    keys = zip(*(updates.column(name).to_pylist() for name in envelope.key), strict=True)
    rows = zip(*(updates.column(name).to_pylist() for name in others), strict=True)
    values = rows if others else iter([()] * updates.num_rows)
    grouped: dict[tuple[int, Row], tuple[list[Row], list[Row]]] = {}
    for time, diff, key, value in zip(
        updates.column(TIME).to_pylist(), updates.column(DIFF).to_pylist(), keys, values,
        strict=True,
    ):  # fmt: skip
        gone, came = grouped.setdefault((time, tuple(map(_same, key))), ([], []))
        (came if diff > 0 else gone).extend([(key, value)] * abs(diff))
    for (time, _), (gone, came) in grouped.items():
        key = (came or gone)[0][0]
        if len(gone) > 1 or len(came) > 1:
            yield Change(time, "key_violation", key, None, None)
            continue
        before = gone[0][1] if gone else None
        after = came[0][1] if came else None
        if after is None:
            state = "delete"
        else:
            state = "upsert" if before is not None or envelope.kind == "upsert" else "insert"
        yield Change(time, state, key, before, after)


def _same(value: Any) -> Any:
    """A value that is equal to itself, also where it is NaN."""
    return "NaN" if value != value else value
