"""The first rows of partitions, against a brute-force oracle at every time."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.collection.order import order_key
from headwater.compute.dataflow.graph import Arrangement, Laned, Sort, State, TopK
from headwater.compute.dataflow.ops import top_k
from headwater.compute.dataflow.ops.kept import KIND, PARTIAL
from headwater.compute.dataflow.ops.top_k import top_k_state
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import TIME, consolidate
from headwater.testing.rig import Rig, Row, check_at, contents, multiset, rows_at
from tests.seeds import seeds
from tests.unit.dataflow.rigged_story import story

COLUMNS = (
    Column("one_0", "int", False),
    Column("g_1", "string", True),
    Column("h_2", "double", True),
    Column("i_3", "int", True),
    Column("d_4", "decimal(38,4)", True),
    Column("s_5", "string", True),
    Column("t_6", "timestamp", True),
    Column("a_7", "array<int>", True),
)
TYPES = {column.name: column.sql_type.arrow for column in COLUMNS}
POOL: dict[str, Sequence[Any]] = {
    "one_0": [1],
    "g_1": ["a", "b", None],
    "h_2": [0.0, -0.0, math.nan, -1.5, None],
    "i_3": [None, 0, 1, 2, 3, 4, 5],
    "d_4": [None, Decimal("-0.5000"), Decimal("7.0000")],
    "s_5": [None, "", "z", "aa"],
    "t_6": [None, dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)],
    "a_7": [None, [], [1]],
}


class Case:
    """An operator in its rig, and all that was written into it."""

    def __init__(
        self,
        names: Sequence[str],
        partition: Sequence[str],
        order: Sequence[Sort],
        limit: int | None,
        offset: int = 0,
        *,
        number: bool = False,
        state: bool = False,
        seed: int = 0,
    ) -> None:
        columns = tuple(column for column in COLUMNS if column.name in {*names, "one_0"})
        # The constant is no column of the plan's operator.
        self.names = [column.name for column in columns if column.name != "one_0"]
        self.input = Laned(0, columns)
        self.key = tuple(partition) or ("one_0",)

        def operator(kept: str | None) -> TopK:
            return TopK(
                self.input,
                tuple(partition),
                tuple(order),
                tuple(self.names),
                limit,
                offset,
                "rows",
                1,
                "n_9" if number else None,
                kept,
            )

        kept = top_k_state(columns, operator(None)) if state else None
        self.op = operator("first" if kept else None)
        shown = [column for column in columns if column.name != "one_0"]
        self.rig = Rig(
            self.op,
            top_k.step,
            output=[*shown, *([Column("n_9", "int", False)] if number else [])],
            arrangements=[Arrangement("rows", self.input, self.key)],
            states=[State("first", kept, self.key)] if kept else [],
            seed=seed,
        )
        self.log: list[tuple[dict[str, Any], int, int]] = []

    def step(self, updates: Sequence[tuple[dict[str, Any], int, int]], upper: int) -> None:
        self.log += updates
        rows = [((1, *(row.get(n) for n in self.names)), t, d) for row, t, d in updates]
        self.rig.step({self.input: rows}, upper)

    def check(self) -> None:
        """Hold the output against the oracle at every time."""
        columns = {name: TYPES[name] for name in self.names}
        for time, there in enumerate(contents(self.log, columns, self.rig.upper)):
            check_at(self.rig.output, time, multiset(self._first(there)))

    def _first(self, rows: Sequence[dict[str, Any]]) -> list[Row]:
        """Return the answer over rows in canonical order."""
        for key in reversed(self.op.order):
            # Stable sorts, the last key first; NULLs have a place of their own.
            known = [row for row in rows if row[key.column] is not None]
            nulls = [row for row in rows if row[key.column] is None]
            known.sort(key=lambda row: _order(key.column, row[key.column]), reverse=False)
            if key.descending:
                known = _descending(known, key.column)
            rows = [*nulls, *known] if key.nulls_first else [*known, *nulls]
        parts: dict[tuple[bytes, ...], list[dict[str, Any]]] = {}
        for row in rows:
            parts.setdefault(tuple(_order(n, row[n]) for n in self.op.partition), []).append(row)
        answer: list[Row] = []
        for part in parts.values():
            end = None if self.op.limit is None else self.op.offset + self.op.limit
            for place, row in list(enumerate(part, 1))[self.op.offset : end]:
                answer.append((*row.values(), *((place,) if self.op.number else ())))
        return answer


def _order(name: str, value: Any) -> bytes:
    value = value + 0.0 if isinstance(value, float) else value
    return order_key(value, TYPES[name])


def _descending(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Reverse the order of different values, not that of ties."""
    return sorted(
        rows, key=lambda row: bytes(255 - byte for byte in _order(name, row[name])) + b"\xff" * 8
    )


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("seed", seeds(15, 300))
def test_first_rows_are_what_all_rows_say(
    seed: int, state: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    print("seed", seed)
    random = Random(seed)
    # Little is kept, so that it runs out often.
    monkeypatch.setattr(top_k, "SLACK", random.choice([0, 1, 16]))
    names = random.sample(list(POOL)[1:], random.randint(2, 5))
    flat = [name for name in names if name != "a_7"]
    case = Case(
        names,
        random.sample([n for n in flat if n in ("g_1", "h_2")], random.randint(0, 1))
        if {"g_1", "h_2"} & set(flat)
        else (),
        [
            Sort(name, random.random() < 0.5, random.random() < 0.5)
            for name in random.sample(flat, random.randint(0, min(2, len(flat))))
        ],
        None if not state and random.random() < 0.2 else random.choice([0, 1, 2, 4]),
        random.choice([0, 0, 1, 3]),
        number=random.random() < 0.4,
        state=state,
        seed=seed,
    )
    assert (case.op.state is not None) == state
    story(case, POOL, random, steps=4)


def test_duplicates_occupy_several_places() -> None:
    case = Case(["i_3"], (), [Sort("i_3")], 3, 1, number=True)
    case.step([({"i_3": 1}, 0, 3), ({"i_3": 2}, 1, 2), ({"i_3": 1}, 2, -1)], 3)
    case.check()
    assert rows_at(case.rig.output, 2) == multiset([(1, 2), (2, 3), (2, 4)])


@pytest.mark.parametrize("state", [False, True])
def test_a_row_that_goes_before_it_comes_is_not_there(state: bool) -> None:
    case = Case(["i_3"], (), [Sort("i_3")], 2, state=state)
    case.step([({"i_3": 2}, 0, 1), ({"i_3": 3}, 0, 1), ({"i_3": 1}, 0, -1)], 1)
    case.step([({"i_3": 4}, 1, 1)], 2)
    case.step([({"i_3": 1}, 2, 1)], 3)
    case.step([({"i_3": 1}, 3, 1)], 4)
    case.check()
    assert rows_at(case.rig.output, 3) == multiset([(1,), (2,)])


def test_what_is_owed_behind_the_kept_rows_is_not_taken_for_their_end() -> None:
    """Left out are as many that are there as are owed, so counts say that nothing is left out."""
    case = Case(["i_3"], (), [Sort("i_3")], 1, state=True)
    case.step([({"i_3": n}, 0, 1) for n in range(40)], 1)
    kept = 2 + top_k.SLACK
    owed = range(100, 100 + 40 - kept)
    case.step([({"i_3": n}, 1, -1) for n in owed], 2)
    case.step([({"i_3": n}, 2, -1) for n in range(kept)], 3)
    case.step([({"i_3": n}, 3, 1) for n in owed], 4)
    assert rows_at(case.rig.output, 3) == multiset([(kept,)])
    case.step([({"i_3": n}, 4, -1) for n in range(kept, 40)], 5)
    assert rows_at(case.rig.output, 4) == multiset([])


def test_a_state_without_marks_says_by_its_total_that_there_are_others() -> None:
    """As an older program wrote it: 40 rows, the first of them kept, and no mark."""
    case = Case(["i_3"], (), [Sort("i_3")], 1, state=True)
    case.step([({"i_3": n}, 0, 1) for n in range(40)], 1)
    histories = case.rig._histories["first"]
    marked = [pc.equal(table.column(KIND), PARTIAL) for table in histories]
    assert any(pc.any(mark).as_py() for mark in marked)
    case.rig._histories["first"] = [
        table.filter(pc.invert(mark)) for table, mark in zip(histories, marked, strict=True)
    ]
    gone = [({"i_3": n}, 1, -1) for n in range(2 + top_k.SLACK)]
    case.step([*gone, ({"i_3": 100}, 1, 1)], 2)
    case.check()


def test_nothing_is_kept_of_a_partition_that_is_gone() -> None:
    case = Case(["i_3"], (), [Sort("i_3")], 1, state=True)
    case.step([({"i_3": n}, 0, 1) for n in range(100)], 1)
    case.step([({"i_3": n}, 1, -1) for n in range(100)], 2)
    state = pa.concat_tables(case.rig._histories["first"])
    assert not consolidate(state.drop_columns([TIME])).num_rows


# ---- bounds ----------------------------------------------------------------------------------


def _rows_read(size: int, change: Sequence[tuple[int, int]], *, state: bool) -> int:
    """Return how many rows a step of LIMIT 10 reads, of so many rows; ``change`` by value."""
    case = Case(["i_3"], (), [Sort("i_3")], 10, state=state)
    case.step([({"i_3": n}, 0, 1) for n in range(size)], 1)
    case.step([({"i_3": n}, 1, diff) for n, diff in change], 2)
    return case.rig.rows_read


def test_a_change_costs_the_change() -> None:
    change = [(-1, 1), (5, 1), (150, 1), (200, -1), (3, -1), (4, -1)]
    small, large = (_rows_read(size, change, state=True) for size in (300, 3000))
    assert small == large < 150
    assert _rows_read(300, change, state=False) == 306


def test_a_partition_is_read_again_when_its_first_rows_are_gone() -> None:
    kept = [(n, -1) for n in range(20)]
    too_many = [(n, -1) for n in range(60)]
    assert _rows_read(1000, kept, state=True) < 150
    assert 1000 < _rows_read(1000, too_many, state=True) < 1300
