"""Changes told by key, against a model that has every row at every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.persist.evolution import TIME
from headwater.storage.envelope import Known
from headwater.storage.errors import DefiniteError
from headwater.storage.format import Row
from headwater.storage.keyed_changes import (
    COMES,
    GOES,
    MOVES,
    Keyed,
    KeyedFolding,
    change_schema,
)

SCHEMA = pa.schema(
    [
        pa.field("v", pa.string()),
        pa.field("k", pa.int64(), nullable=False),
        pa.field("big", pa.string()),
    ]
)
ENVELOPE = Keyed(SCHEMA, ("k",))
Model = dict[int, tuple[Any, ...]]


def batch(*changes: tuple[int, int, list[int] | None, tuple[Any, ...]]) -> pa.Table:
    rows = [
        {"v": row[0], "k": row[1], "big": row[2], "__change": change, "__kept": kept, TIME: time}
        for time, change, kept, row in changes
    ]
    schema = change_schema(SCHEMA).append(pa.field(TIME, pa.int64()))
    return pa.Table.from_pylist(rows, schema=schema)


def table_of(model: Model) -> pa.Table:
    rows = [dict(zip(SCHEMA.names, row, strict=True)) for row in model.values()]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def updates(folding: KeyedFolding, before: Model) -> list[tuple[Any, ...]]:
    def lookup(keys: Sequence[Row]) -> Mapping[Row, Known]:
        return {key: Known(before[key[0]]) for key in keys if key[0] in before}

    found = folding.changes(lookup, lambda: [table_of(before)]).updates
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.mark.parametrize("seed", range(30))
def test_it_is_what_happened(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    model: Model = {k: (f"v{k}", k, f"big{k}") for k in range(5) if random.random() < 0.7}
    before, folding = dict(model), KeyedFolding(ENVELOPE, "t")
    at: dict[int, Model] = {0: dict(model)}
    for time in range(1, 6):
        for _ in range(random.randrange(5)):
            there, new = sorted(model), random.randrange(8)
            value = (f"v{random.random()}", random.choice([None, f"big{random.random()}"]))
            if random.random() < 0.05:
                model.clear()
                folding.clear(time)
            elif new not in model and random.random() < 0.4:
                model[new] = (value[0], new, value[1])
                folding.add(batch((time, COMES, None, model[new])))
            elif there and random.random() < 0.3:
                gone = random.choice(there)
                del model[gone]
                folding.add(batch((time, GOES, None, (None, gone, None))))
            elif there and random.random() < 0.5 and new not in model:
                old = random.choice(there)
                kept = [0, 2] if random.random() < 0.5 else [2]
                was = model.pop(old)
                model[new] = (was[0] if 0 in kept else value[0], new, was[2])
                sent = (None if 0 in kept else value[0], new, None)
                folding.add(batch((time, GOES, None, (None, old, None)), (time, MOVES, kept, sent)))
            elif there:
                k = random.choice(there)
                model[k] = (value[0], k, model[k][2])
                folding.add(batch((time, COMES, [2], (value[0], k, None))))
        at[time] = dict(model)
    found = updates(folding, before)
    for time, expected in at.items():
        now = dict.fromkeys(before.values(), 1)
        for *row, changed, diff in found:
            if changed <= time:
                now[tuple(row)] = now.get(tuple(row), 0) + diff
        there_now = {row: count for row, count in now.items() if count}
        assert there_now == dict.fromkeys(expected.values(), 1), f"at {time}"


def test_a_row_that_is_not_here_cannot_be_completed() -> None:
    folding = KeyedFolding(ENVELOPE, "t")
    folding.add(batch((1, COMES, [2], ("x", 7, None))))
    with pytest.raises(
        DefiniteError, match=r"of .t., with the key \(7,\), which is not here; drop"
    ):
        updates(folding, {})
