"""From updates to changes: the same, in whatever order the updates come."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from headwater.base.ids import GlobalId
from headwater.materialize.changes import NotUnique, NullKey, changes
from headwater.materialize.combine import Bound
from headwater.materialize.definition import Binding
from headwater.materialize.key_range import KeyRange
from headwater.materialize.tuples import pack
from headwater.persist.evolution import updates_schema

FULL = KeyRange.full()
Update = tuple[str, int, str, int, int]
SCHEMA = updates_schema(pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.string())]))


def _table(updates: list[Update]) -> pa.Table:
    return pa.table([[u[at] for u in updates] for at in range(5)], schema=SCHEMA)


def _stored(key: list[str], updates: list[Update]) -> list[tuple[Any, ...]]:
    store = changes(0, key, _table(updates), 10, FULL)
    flags = zip(store.exists.to_pylist(), store.delete.to_pylist(), strict=True)
    rows = zip(store.rows.to_pylist(), flags, strict=True)
    return [(row["k"], row["n"], row["v"], *flag) for row, flag in rows]


@pytest.mark.parametrize("key", [["k"], ["n"], ["n", "k"], ["k", "n"]])
def test_rows_in_the_order_of_their_key_are_what_others_are(key: list[str]) -> None:
    """The short way, for keys that ascend, is that of all others."""
    updates = [(f"{n:03}", n - 20, "v", n % 3, 1 if n % 5 else -1) for n in range(40)]
    shuffled = random.Random(1).sample(updates, len(updates))
    assert _stored(key, updates) == _stored(key, shuffled)
    assert len(_stored(key, updates)) == len(updates)


def test_an_update_of_nothing_is_none() -> None:
    ascending: list[Update] = [("a", 1, "v", 1, 1), ("b", 1, "v", 1, 0), ("c", 1, "v", 1, -1)]
    assert _stored(["k"], ascending) == [
        ("a", 1, "v", False, False),
        ("c", 1, "v", True, True),
    ]


def test_a_row_that_is_there_twice_is_refused_though_its_key_is_seen_once() -> None:
    with pytest.raises(NotUnique, match="'a'"):
        _stored(["k"], [("a", 1, "v", 1, 2), ("b", 1, "v", 1, 1)])


def test_integers_are_ordered_as_their_packed_bytes_are() -> None:
    """Of each key what went and what came, in any order: one upsert, ascending."""
    seed = 11
    random_ = random.Random(seed)
    keys = random_.sample([*range(-300, 300), -(2**63), 2**63 - 1, 2**32, -(2**32)], 200)
    pairs = [("s", key, what, 1, diff) for key in keys for what, diff in (("old", -1), ("new", 1))]
    store = changes(0, ["n"], _table(random_.sample(pairs, len(pairs))), 10, FULL)
    packed = store.keys_packed.to_pylist()
    assert packed == sorted(pack((key,)) for key in keys), seed
    assert store.rows["n"].to_pylist() == sorted(keys), seed
    assert set(store.rows["v"].to_pylist()) == {"new"}
    assert store.exists.to_pylist() == [True] * len(keys)
    assert store.delete.to_pylist() == [False] * len(keys)


def test_who_cannot_be_delivered_is_called_by_name() -> None:
    binding = Binding("orders", GlobalId(1), "public.orders", ("k",))
    bound = Bound(0, binding, "x", pa.schema(list(SCHEMA)[:3]))
    twice: list[Update] = [("a", 1, "v", 1, 1), ("a", 2, "w", 1, 1)]
    with pytest.raises(NotUnique, match=r"binding 'orders' into 'public\.orders': .* \('a',\)"):
        bound.combined(_table(twice), 10, FULL)
    none: list[Any] = [(None, 1, "v", 1, 1)]
    with pytest.raises(NullKey, match=r"binding 'orders' into 'public\.orders': .* 'k'"):
        bound.combined(_table(none), 10, FULL)
