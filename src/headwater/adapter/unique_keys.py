"""Primary keys at the statement: what of them can be known before the transaction commits.

    present(k)  =  rows with key k that are stored  +  those that the transaction has added itself

A statement that leaves two rows of one key is refused (23505), as in PostgreSQL. What is stored is
what was there at the transaction's time; a transaction that has none yet looks at what this
process knew when it first asked, and chooses its time only where that seems to refuse it. So an
INSERT of new rows reads nothing that others could overtake. Whether the keys are still free is
asked again by the group commit, of which this is no part: the first to commit has them.

What a client was told of a key that is not free (an error after which it goes back to a savepoint,
a row that ``ON CONFLICT DO NOTHING`` left out) is *met*: the transaction rests on it, and commits
only if there are as many rows of that key still.

Kept by: this module. Relied on by: :mod:`.open_transaction`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.adapter.errors import UniqueViolation
from headwater.adapter.group_commit import MetKeys, TableWrite
from headwater.adapter.key_counts import keys_of
from headwater.adapter.overlay import SMALL_ROWS, Overlay

Stored = Callable[[pa.Table], list[int]]
"""How many rows are stored of each of some keys."""


@dataclass(frozen=True, slots=True)
class Looks:
    """Where a transaction looks keys up that are stored; of a table of its own nothing is."""

    known: Stored
    """As far as this process knows; at the transaction's time, if it has one."""
    settled: Stored
    """At the transaction's time, which is chosen if it has none."""


def checked(write: TableWrite, own: Overlay | None, looks: Looks | None) -> MetKeys | None:
    """Return which key a write would have twice, so that it is to be refused; None: no one."""
    grown, counts = _grown(write)
    if not grown.num_rows:
        return None
    present = [0] * len(counts) if own is None else own.counts(grown)
    total = [before + more for before, more in zip(present, counts, strict=True)]
    if max(total) > 1:
        raise UniqueViolation(write.name, write.key)
    # Where the transaction has taken a row away itself, there is one that is stored, and no more.
    asked = grown.filter(pa.array([each > 0 for each in total]))
    if looks is None or not asked.num_rows or not any(looks.known(asked)):
        return None
    found = looks.settled(asked)
    taken = [place for place, count in enumerate(found) if count > 0]
    if not taken:
        return None  # It was written since: the commit will say so, if it stays.
    kept = asked.take(pa.array(taken, pa.int64()))
    return MetKeys(write.id, write.name, kept, tuple(found[place] for place in taken))


def without_existing(
    write: TableWrite, own: Overlay | None, looks: Looks | None
) -> tuple[TableWrite, MetKeys | None]:
    """Return what ``ON CONFLICT DO NOTHING`` writes: the first row of each key that is free."""
    places: dict[object, int] = {}
    for place, key in enumerate(keys_of(write.rows, write.key)):
        places.setdefault(key, place)
    first = pa.array(places.values(), pa.int64())
    keys = write.rows.select(list(write.key)).take(first)
    mine = [0] * keys.num_rows if own is None else own.counts(keys)
    stored = [0] * keys.num_rows if looks is None else looks.settled(keys)
    free = [a + b == 0 for a, b in zip(mine, stored, strict=True)]
    rows = write.rows.take(first.filter(pa.array(free, pa.bool_())))
    kept = replace(write, given=rows, diffs=[1] * rows.num_rows, skip_existing=False)
    met = MetKeys(write.id, write.name, keys, tuple(stored)) if looks is not None else None
    return kept, met


def _grown(write: TableWrite) -> tuple[pa.Table, list[int]]:
    """Return the keys of which a write adds more rows than it takes away, and by how many."""
    keys = write.rows.select(list(write.key))
    if write.num_rows > SMALL_ROWS and min(write.diffs) > 0:
        grouped = keys.group_by(list(write.key)).aggregate([([], "count_all")])
        counts = grouped.column("count_all").to_pylist()
        return grouped.select(list(write.key)).cast(keys.schema), counts
    net: Counter[object] = Counter()
    places: dict[object, int] = {}
    for place, (key, diff) in enumerate(zip(keys_of(keys, write.key), write.diffs, strict=True)):
        net[key] += diff
        places.setdefault(key, place)
    more = {key: count for key, count in net.items() if count > 0}
    kept = keys.take(pa.array([places[key] for key in more], pa.int64()))
    return kept, list(more.values())
