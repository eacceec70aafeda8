"""Keys that several rows have: which of them is delivered, if the user says that one may be.

    first, last     of the rows that a key has at a time, the one whose packed bytes are least,
                    or greatest

That is a collection of its own, with one row per key: ``chosen(C)``. What a binding delivers are
the updates of *that*, over an interval, given those of ``C`` and what it has of their keys at the
end:

    C before it = C at its end - the updates
    the updates of chosen(C) = chosen(C at its end) - chosen(C before it), for the keys of updates

Invariant:      the endpoint is ``chosen(C)`` at the checkpoint's time, whatever intervals lead
                there: it depends on ``C`` at that time alone. So a retraction of the row that is
                delivered brings the next one of its key, and one of any other changes nothing.
Kept by:        :func:`chosen_updates`, of which :mod:`~headwater.materialize.changes` makes changes
                as of all others: it would refuse what is not unique.
Relied on by:   ``gather``, which reads what the collection has at the end of an interval. That is a
                look through the collection in each transaction: why it must be asked for.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headwater.materialize.changes import packed_keys
from headwater.materialize.joined import joined
from headwater.materialize.projections import packable
from headwater.materialize.tuples import pack_columns
from headwater.persist.compact import advance
from headwater.persist.consolidate import consolidate
from headwater.persist.evolution import DIFF, TIME

_KEY: Final = "key"
_ROW: Final = "row"
_AT: Final = "at"
_SYSTEM: Final = (TIME, DIFF)


class Duplicates(enum.Enum):
    """What becomes of a key that several rows have."""

    ERROR = "error"
    FIRST = "first"
    LAST = "last"


class Standing(Protocol):
    """All that a collection has at a time, to be read."""

    def updates(self) -> Iterator[pa.Table]:
        """Yield it, piece by piece."""
        ...


def standing(
    binding: int,
    key: Sequence[str],
    now: Standing,
    updates: pa.Table,
    check: Callable[[], None],
) -> pa.Table:
    """Return what the collection has now, at the end of an interval, of the keys of its updates."""
    wanted = packed_keys(binding, key, updates)
    column = updates.column(key[0])
    plain = pa.types.is_integer(column.type) or pa.types.is_string(column.type)
    first = pc.unique(column) if plain else None
    found = [updates.slice(0, 0)]
    for rows in now.updates():
        check()
        # Most rows are of other keys, and to pack theirs would be most of the work.
        near = rows if first is None else rows.filter(pc.is_in(rows.column(key[0]), first))
        if near.num_rows:
            there = pc.is_in(packed_keys(binding, key, near), value_set=wanted)
            found.append(near.filter(there))
    return pa.concat_tables(found, promote_options="default")


def chosen_updates(
    binding: int,
    key: Sequence[str],
    policy: Duplicates,
    updates: pa.Table,
    upper: int,
    after: pa.Table | None,
) -> pa.Table:
    """Return the updates of the chosen rows, at ``upper``.

    ``after``: what the collection has of their keys at the end; ``None``: nothing but the updates.
    """
    net = consolidate(advance(updates, upper))
    if after is None:
        return _chosen(binding, key, policy, net, 1)
    now = consolidate(advance(after, upper))
    before = consolidate(pa.concat_tables([now, _times(net, -1)], promote_options="default"))
    both = [_chosen(binding, key, policy, before, -1), _chosen(binding, key, policy, now, 1)]
    return pa.concat_tables(both, promote_options="default")


def _times(updates: pa.Table, factor: int) -> pa.Table:
    index = updates.schema.get_field_index(DIFF)
    diffs = pc.multiply(updates.column(DIFF), pa.scalar(factor, pa.int64()))
    return updates.set_column(index, updates.schema.field(index), diffs)


def _chosen(
    binding: int, key: Sequence[str], policy: Duplicates, rows: pa.Table, diff: int
) -> pa.Table:
    """Return one row of each key, with a diff."""
    whole = rows.combine_chunks()
    columns = [packable(joined(whole[name])) for name in whole.column_names if name not in _SYSTEM]
    numbered = pa.table(
        {
            _KEY: packed_keys(binding, key, whole),
            _ROW: pack_columns(columns),
            _AT: pa.array(range(whole.num_rows), pa.int64()),
        }
    )
    order = "ascending" if policy is Duplicates.FIRST else "descending"
    ordered = numbered.sort_by([(_KEY, "ascending"), (_ROW, order)])
    best = ordered.group_by(_KEY, use_threads=False).aggregate([(_AT, "first")])
    kept = whole.take(best[f"{_AT}_first"].combine_chunks())
    index = kept.schema.get_field_index(DIFF)
    diffs = pa.repeat(pa.scalar(diff, pa.int64()), kept.num_rows)
    return kept.set_column(index, kept.schema.field(index), diffs)
