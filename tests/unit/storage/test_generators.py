"""What generators make is a collection: nothing goes that was not there, and sizes stay bounded."""

from __future__ import annotations

from collections import Counter as Counted
from typing import Any

import numpy as np
import pytest

from headwater.base.errors import InvalidUsage
from headwater.persist.evolution import DIFF
from headwater.storage.generators.auction import Auctions
from headwater.storage.generators.chance import below, words
from headwater.storage.generators.counter import Counter
from headwater.storage.generators.generator import Stream
from headwater.storage.generators.key_value import KeyValue
from headwater.storage.generators.nexmark import Nexmark
from headwater.storage.generators.tpch import Tpch

TYPED: list[Stream] = [
    Counter(),
    Counter(keep=3),
    Auctions(seed=1, lasting=5),
    Nexmark(seed=1),
    Nexmark(seed=2, lasting=9),
    Nexmark(seed=2, changes=False, lasting=9),
]
PLACES = 40
GOLDEN = ["63fc5ad5ecb4a581", "a258e07d68d4306a", "9144542ea006685d"]

Contents = dict[str, Counted[tuple[Any, ...]]]


def by_place(stream: Stream, places: int) -> list[list[tuple[str, tuple[Any, ...], int]]]:
    """Return what each place does: output, row, diff."""
    found: list[list[tuple[str, tuple[Any, ...], int]]] = [[] for _ in range(places)]
    for output, at, payload in stream.at(np.arange(places, dtype=np.int64)):
        assert payload.schema.names == [*stream.outputs[output].names, DIFF]
        for place, row in zip(at.tolist(), payload.to_pylist(), strict=True):
            diff = row.pop(DIFF)
            found[place].append((output, tuple(row.values()), diff))
    return found


@pytest.mark.parametrize("stream", TYPED, ids=repr)
def test_nothing_goes_that_is_not_there(stream: Stream) -> None:
    contents: Contents = {output: Counted() for output in stream.outputs}
    for place, changes in enumerate(by_place(stream, PLACES)):
        for output, row, diff in changes:
            contents[output][row] += diff
        for output, counted in contents.items():
            assert min(counted.values(), default=0) >= 0, f"{output} at {place}"
            contents[output] = +counted


@pytest.mark.parametrize("stream", [s for s in TYPED if getattr(s, "lasting", None)], ids=repr)
def test_what_lasts_is_bounded(stream: Stream) -> None:
    sizes: dict[str, set[int]] = {}
    contents: Contents = {output: Counted() for output in stream.outputs}
    for place, changes in enumerate(by_place(stream, PLACES)):
        for output, row, diff in changes:
            contents[output][row] += diff
        if place >= PLACES // 2:
            for output, counted in contents.items():
                sizes.setdefault(output, set()).add(sum(counted.values()))
    for output, seen in sizes.items():
        if output != "person" or isinstance(stream, Nexmark):
            assert max(seen) <= min(seen) + 46, f"{output}: {sorted(seen)}"


def test_bids_are_on_auctions_that_came_and_by_people_who_did() -> None:
    stream = Nexmark(seed=4)
    tables: dict[str, list[dict[str, Any]]] = {output: [] for output in stream.outputs}
    for output, _, payload in stream.at(np.arange(20, dtype=np.int64)):
        tables[output] += payload.to_pylist()
    people, auctions = ({row["id"] for row in tables[name]} for name in ("person", "auction"))
    assert {row["auction"] for row in tables["bid"]} <= auctions
    assert {row["bidder"] for row in tables["bid"]} <= people
    assert {row["seller"] for row in tables["auction"]} <= people
    assert {row[DIFF] for row in tables["bid"]} == {-1, 1}


def test_a_bound_too_short_is_refused() -> None:
    with pytest.raises(InvalidUsage, match="rows last more than 7 places"):
        Nexmark(lasting=7)


def test_tpch_refreshes_keep_their_references_and_their_number() -> None:
    stream = Tpch(orders=70, refresh=7, seed=5)
    there: dict[str, dict[str, dict[str, Any]]] = {output: {} for output in stream.outputs}
    for place in range(14):  # More than all that were loaded.
        for output, at, payload in stream.at(np.array([place], np.int64)):
            assert set(at.tolist()) <= {place}
            assert payload.schema.names == [*stream.outputs[output].names, DIFF]
            for row in payload.to_pylist():
                diff, rows = row.pop(DIFF), there[output]
                if diff == 1:
                    assert rows.setdefault(str(row), row) is row, "no row comes twice"
                else:
                    assert rows.pop(str(row)) == row, "only what is there can go"
        assert len(there["orders"]) == 70
    tables = {output: list(rows.values()) for output, rows in there.items()}
    orders = {row["o_orderkey"]: row for row in tables["orders"]}
    assert len(orders) == 70
    suppliers = {(row["ps_partkey"], row["ps_suppkey"]) for row in tables["partsupp"]}
    assert len(suppliers) == len(tables["partsupp"]) == 4 * len(tables["part"])
    charged: dict[int, Any] = dict.fromkeys(orders, 0)
    for line in tables["lineitem"]:
        assert (line["l_partkey"], line["l_suppkey"]) in suppliers
        assert line["l_shipdate"] > orders[line["l_orderkey"]]["o_orderdate"]
        factor = (1 - line["l_discount"]) * (1 + line["l_tax"])
        cents = int(line["l_extendedprice"] * factor * 100)
        charged[line["l_orderkey"]] += cents
    assert {key: int(row["o_totalprice"] * 100) for key, row in orders.items()} == charged
    customers = {row["c_custkey"] for row in tables["customer"]}
    assert {row["o_custkey"] for row in tables["orders"]} <= customers
    assert all(row["o_custkey"] % 3 for row in tables["orders"])


def test_the_first_messages_are_a_snapshot_of_all_keys() -> None:
    stream = KeyValue(keys=10, seed=3, deletes=4, value_bytes=40)
    ((_, _, payload),) = stream.at(np.arange(60, dtype=np.int64))
    keys, values = (payload.column(name).to_pylist() for name in ("key", "value"))
    assert keys[:10] == [b'{"key": %d}' % n for n in range(10)]
    assert None not in values[:10]
    assert None in values[10:]
    assert set(keys) == set(keys[:10])


def test_chance_is_the_same_for_ever() -> None:
    """Golden: a generator that is resumed by another version makes the same data."""
    places = np.array([0, 1, 2**62], np.int64)
    assert [f"{word:016x}" for word in words(7, 3, places)] == GOLDEN
    assert set(below(1, 1, np.arange(1000, dtype=np.int64), 10).tolist()) == set(range(10))
