"""Memories of states: names that are as identical as keys, values that nobody changes, stamps."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import os
import struct
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headwater.base.ids import GlobalId
from headwater.compute.dataflow import memory, remembered
from headwater.compute.dataflow.memory import GROUPS_MAX, NAMED_MAX, UNKNOWN, begun, names_of

SEED = int(os.environ.get("SEED", Random().randrange(2**32)))


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"SEED={SEED}")


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [1, 2, None, -(2**63)]),
        (pa.string(), ["", "a", None]),
        (pa.binary(), [b"", b"a"]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        (pa.date32(), [2_932_897, -719_163, None]),  # The first of 10000 and the last before 1.
        (pa.timestamp("us", "UTC"), [0, 1, None]),
        (pa.decimal128(38, 2), [decimal.Decimal("1.10"), decimal.Decimal("-0.01")]),
        (pa.float64(), [0.0, math.nan, math.inf, None, 5e-324]),
        (pa.float32(), [0.5, math.nan]),
    ],
)
def test_names_are_equal_iff_keys_are(type_: pa.DataType, values: list[object]) -> None:
    twice = names_of([pa.array([*values, *values], type_)])
    assert twice is not None
    assert twice[: len(values)] == twice[len(values) :]
    assert len({*twice}) == len(values)
    apart = [pa.array(values, type_), pa.array(range(len(values)))]
    pairs = names_of(apart)
    assert pairs is not None
    assert len({*pairs}) == len(values)


def test_no_names_of_what_python_tells_apart_otherwise_or_of_too_many() -> None:
    assert names_of([pa.array([[1]], pa.list_(pa.int64()))]) is None
    assert names_of([pa.array([0], pa.time64("ns"))]) is None
    assert names_of([pa.array(range(NAMED_MAX))]) is not None
    assert names_of([pa.array(range(NAMED_MAX + 1))]) is None


def test_a_memory_says_what_was_said_last_and_the_one_before_stays() -> None:
    random = Random(SEED)
    told: dict[int, tuple[int, bool]] = {}
    kept: memory.Memory | None = None
    for _ in range(200):
        names = random.sample(range(60), random.randrange(1, 20))
        rows = [(random.randrange(1000), random.random() < 0.7) for _ in names]
        columns = {"v": np.array([value for value, _ in rows])}
        present = np.array([there for _, there in rows])
        before = kept
        known = {} if kept is None else dict(kept.places)
        kept = (
            begun(names, columns, present)
            if kept is None
            else kept.with_rows(names, columns, present)
        )
        assert kept is not None
        assert before is None or before.places == known, "nobody changes one"
        told.update(zip(names, rows, strict=True))
        places = kept.places_of(range(60)).tolist()
        for name, place in enumerate(places):
            if name not in told:
                assert place == UNKNOWN
                continue
            value, there = told[name]
            assert kept.present[place] == there
            assert kept.columns["v"][place] == value


def test_a_memory_of_too_many_groups_is_given_up() -> None:
    def rows(count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return {"v": np.arange(count)}, np.ones(count, np.bool_)

    kept: memory.Memory | None = begun(range(NAMED_MAX), *rows(NAMED_MAX))
    for first in range(NAMED_MAX, GROUPS_MAX, NAMED_MAX):
        assert kept is not None
        kept = kept.with_rows(range(first, first + NAMED_MAX), *rows(NAMED_MAX))
    assert kept is not None
    assert len(kept) == GROUPS_MAX
    assert kept.with_rows(range(5), *rows(5)) is not None, "they are known"
    assert kept.with_rows([struct], *rows(1)) is None


# ---- stamps ----------------------------------------------------------------------------------


def test_only_the_stamp_of_the_attempt_finds_its_memory() -> None:
    state, other = GlobalId(1), GlobalId(2)
    first, second = remembered.new_stamp(), remembered.new_stamp()
    one, two = (begun(["a"], {"v": np.array([n])}, np.array([True])) for n in range(2))
    remembered.leave(first, state, one, None)
    assert remembered.recall(first, state) is one
    assert remembered.recall(first, other) is None
    assert remembered.recall(None, state) is None
    assert remembered.recall(second, state) is None
    remembered.leave(second, state, two, first)
    assert remembered.recall(second, state) is two
    assert remembered.recall(first, state) is None, "the state has moved on"


def test_what_is_longest_unused_is_forgotten() -> None:
    kept = begun(["a"], {"v": pa.array([1])}, np.array([True]))
    stamp = remembered.new_stamp()
    for number in range(remembered.KEPT_MAX):
        remembered.leave(stamp, GlobalId(number), kept, None)
    assert remembered.recall(stamp, GlobalId(0)) is kept
    remembered.leave(stamp, GlobalId(remembered.KEPT_MAX), kept, None)
    assert remembered.recall(stamp, GlobalId(0)) is kept
    assert remembered.recall(stamp, GlobalId(1)) is None


def test_a_state_that_was_written_without_a_stamp_has_none() -> None:
    a, b, c, d = map(GlobalId, range(4))
    before = {a: "old a", b: "old b", c: "old c"}
    after = remembered.stamps(before, [a, b, c, d], {0: "new a", 3: "new d"}, [0, 1])
    assert after == {a: "new a", c: "old c", d: "new d"}
