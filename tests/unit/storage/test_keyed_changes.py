"""Changes told by key, against a model that has every row at every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.probe import PROBE_INDEX
from headwater.persist.evolution import TIME
from headwater.storage.envelope import Changes
from headwater.storage.errors import DefiniteError
from headwater.storage.keyed_changes import (
    COMES,
    GOES,
    MOVES,
    Keyed,
    KeyedFolding,
    change_schema,
)
from headwater.storage.keyed_range import KeyedRange

SCHEMA = pa.schema(
    [
        pa.field("v", pa.string()),
        pa.field("k", pa.int64(), nullable=False),
        pa.field("big", pa.string()),
    ]
)
ENVELOPE = Keyed(SCHEMA, ("k",))
Model = dict[int, tuple[Any, ...]]
FOR_EVER = 2**62


def batch(*changes: tuple[int, int, list[int] | None, tuple[Any, ...]]) -> pa.Table:
    rows = [
        {"v": row[0], "k": row[1], "big": row[2], "__change": change, "__kept": kept, TIME: time}
        for time, change, kept, row in changes
    ]
    schema = change_schema(SCHEMA).append(pa.field(TIME, pa.int64()))
    return pa.Table.from_pylist(rows, schema=schema)


class Output:
    """Rows at times, as they are written; asked for the rows of keys."""

    def __init__(self, before: Model) -> None:
        self.updates: list[tuple[Any, ...]] = [(*row, 0, 1) for row in before.values()]

    def at(self, time: int) -> Model:
        found = Counter[tuple[Any, ...]]()
        for *row, changed, diff in self.updates:
            if changed <= time:
                found[tuple(row)] += diff
        assert set(found.values()) <= {0, 1}, "one row of each key"
        return {row[1]: row for row, count in found.items() if count}

    def rows_of(self, keys: Sequence[pa.Array]) -> pa.Table:
        now, (asked,) = self.at(FOR_EVER), keys
        there = [n for n, key in enumerate(asked.to_pylist()) if key in now]
        rows = [dict(zip(SCHEMA.names, now[asked[n].as_py()], strict=True)) for n in there]
        found = pa.Table.from_pylist(rows, schema=SCHEMA)
        return found.append_column(PROBE_INDEX, pa.array(there, pa.int64()))

    def write(self, changes: Iterable[Changes]) -> None:
        for each in changes:
            self.updates += [tuple(row.values()) for row in each.updates.to_pylist()]


@pytest.mark.parametrize("at_once", [1, 7, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_happened(seed: int, at_once: int) -> None:
    """Whatever is folded together; at one time and at many, with and without what they lack."""
    print(f"seed {seed}")
    random = Random(seed)
    model: Model = {k: (f"v{k}", k, f"big{k}") for k in range(5) if random.random() < 0.7}
    output = Output(model)
    told = KeyedRange(ENVELOPE, "t", output.rows_of, at_once)
    at: dict[int, Model] = {0: dict(model)}
    whole, times = seed % 2 == 0, 2 if seed % 3 else 6

    def add(*changes: tuple[int, int, list[int] | None, tuple[Any, ...]]) -> None:
        output.write(told.add(batch(*changes)))

    for time in range(1, times):
        for _ in range(random.randrange(12)):
            there, new = sorted(model), random.randrange(8)
            value = (f"v{random.randrange(3)}", random.choice([None, "big"]))
            if new not in model and random.random() < 0.4:
                model[new] = (value[0], new, value[1])
                add((time, COMES, None, model[new]))
            elif there and random.random() < 0.3:
                gone = random.choice(there)
                del model[gone]
                add((time, GOES, None, (None, gone, None)))
            elif whole and there:
                k = random.choice(there)
                model[k] = (value[0], k, value[1])
                add((time, COMES, None, model[k]))
            elif there and random.random() < 0.5 and new not in model:
                old = random.choice(there)
                kept = [0, 2] if random.random() < 0.5 else [2]
                was = model.pop(old)
                model[new] = (was[0] if 0 in kept else value[0], new, was[2])
                sent = (None if 0 in kept else value[0], new, None)
                add((time, GOES, None, (None, old, None)), (time, MOVES, kept, sent))
            elif there:
                k = random.choice(there)
                model[k] = (value[0], k, model[k][2])
                add((time, COMES, [2], (value[0], k, None)))
        at[time] = dict(model)
    output.write(told.rest())
    for time, expected in at.items():
        assert output.at(time) == expected, f"at {time}"


def test_a_row_that_is_not_here_cannot_be_completed() -> None:
    folding = KeyedFolding(ENVELOPE, "t")
    folding.add(batch((1, COMES, [2], ("x", 7, None))))
    with pytest.raises(
        DefiniteError, match=r"of .t., with the key \(7,\), which is not here; drop"
    ):
        folding.changes(lambda _: {})
