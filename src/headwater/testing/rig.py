"""A rig for one operator of a dataflow: stepped in memory, checked at every time.

    rig = Rig(operator, output=columns, arrangements=[…], states=[…], seed=7)
    rig.step({origin: [((1, "a"), 3, +1), …], …}, upper=10)      # updates (row, time, diff)
    rig.check(lambda inputs: Counter of rows)                     # at every time that is readable

``check`` asks the oracle, a function from the inputs' multisets at a time to the output's, at every
time from the start to the upper. Between steps the rig does to histories what persist may do: it
merges runs, and advances times to ``upper - 1``, never further, at random from its seed; and rows
come and go again in the deltas that the operator is given, of which nothing may be left then. What
it remembers of its states is held against them, and is given to the next step, mostly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.order import row_key
from headwater.collection.run import Run, in_order, write_run
from headwater.compute.dataflow.graph import Arrangement, Operator, Origin, State, origins
from headwater.compute.dataflow.memory import Memory, names_of
from headwater.compute.dataflow.operator import Given, History, Outcome, update_schema
from headwater.compute.dataflow.ops.exact import Exact, encoded
from headwater.compute.dataflow.ops.groups import one_array
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import TIME, consolidate

Row = tuple[Any, ...]
Update = tuple[Row, int, int]
Rows = Counter[Row]
Step = Callable[[Any, Given], Outcome]


def updates_table(columns: Sequence[Column], updates: Sequence[Update]) -> pa.Table:
    """Return updates as a table."""
    schema = update_schema(columns)
    flat = [(*row, time, diff) for row, time, diff in updates]
    arrays = [
        pa.array([row[position] for row in flat], field.type)
        for position, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return ("float", "nan" if value != value else value.hex())
    if isinstance(value, dict):
        return tuple((key, _comparable(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(map(_comparable, value))
    return value


def rows_at(table: pa.Table, time: int) -> Rows:
    """Return the multiset that the updates sum up to at a time; NaN is NaN, 0.0 is not -0.0."""
    seen = table.filter(pc.less_equal(table.column(TIME), time))
    rows: Rows = Counter()
    for *row, _, diff in zip(*(column.to_pylist() for column in seen.columns), strict=True):
        rows[tuple(map(_comparable, row))] += diff
    return Counter({row: count for row, count in rows.items() if count})


def multiset(rows: Sequence[Row] | Rows) -> Rows:
    """Return an oracle's answer in the form in which :func:`rows_at` has it."""
    given = rows.items() if isinstance(rows, Counter) else ((row, 1) for row in rows)
    counted: Rows = Counter()
    for row, count in given:
        counted[tuple(map(_comparable, row))] += count
    return Counter({row: count for row, count in counted.items() if count})


def contents(
    log: Sequence[tuple[dict[str, Any], int, int]], columns: Mapping[str, Any], upper: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a log of updates in canonical order, at each time below ``upper``."""
    types = list(columns.values())
    keyed = [
        (row_key([row.get(name) for name in columns], types), row, time, diff)
        for row, time, diff in log
    ]
    rows = {key: row for key, row, _, _ in keyed}
    for time in range(upper):
        counts: Counter[bytes] = Counter()
        for key, _, at, diff in keyed:
            counts[key] += diff if at <= time else 0
        yield [rows[key] for key in sorted(counts) for _ in range(counts[key])]


def check_memory(memory: Memory, state: pa.Table, key: Sequence[str]) -> None:
    """Hold what is remembered of a state against the updates of all its past."""
    rows = consolidate(state.drop_columns([TIME]).append_column(TIME, pa.array([0] * len(state))))
    names = names_of([one_array(rows.column(name)) for name in key], most=len(rows))
    assert names is not None, f"a memory of groups by {rows.select(key).schema}"
    found = dict(zip(names, rows.to_pylist(), strict=True))
    assert len(found) == len(names), f"two rows of a group: {names}"
    for name, place in memory.places.items():
        there = _stored_row(memory, place, rows.schema)
        kept = found.get(name)
        wanted = kept and {column: kept[column] for column in there}
        remembered = there if memory.present[place] else None
        assert remembered == wanted, f"of {name} there is {wanted}, and remembered {remembered}"


def _stored_row(memory: Memory, place: int, schema: pa.Schema) -> dict[str, Any]:
    """Return a row as it is stored, of the numbers that are remembered of it."""
    row: dict[str, Any] = {}
    for name, numbers in memory.columns.items():
        if name not in schema.names:
            continue  # The exponents of another one.
        row[name] = int(numbers[place])
        if pa.types.is_binary(schema.field(name).type):
            exponents = memory.columns.get(f"{name}.exponents")
            exponent = 0 if exponents is None else int(exponents[place])
            digits = np.array([row[name]], object)
            number = encoded(Exact(digits, exponent), fractional=exponents is not None)
            row[name] = number[0].as_py()
    return row


def check_at(output: pa.Table, time: int, expected: Rows) -> None:
    """Hold an output at a time against an oracle's answer."""
    found = rows_at(output, time)
    assert found == expected, f"at {time}: missing {expected - found}, too many {found - expected}"


class Rig:
    """An operator with its histories."""

    def __init__(
        self,
        operator: Operator,
        step: Step,
        *,
        output: Sequence[Column],
        arrangements: Sequence[Arrangement] = (),
        states: Sequence[State] = (),
        start: int = 0,
        seed: int = 0,
    ) -> None:
        self.operator, self._step = operator, step
        self.output_columns = tuple(output)
        self.arrangements, self.states = tuple(arrangements), tuple(states)
        self.start = self.upper = start
        self.remembers = 0.8
        """How likely the operator is given memories; 0: it has to look everything up."""
        self.random = Random(seed)
        self.inputs = {o: [updates_table(o.columns, ())] for o in origins(operator)}
        self.output = update_schema(self.output_columns).empty_table()
        self.errors: list[pa.Table] = []
        self.rows_read = 0
        self._histories: dict[str, list[pa.Table]] = {
            **{a.name: [] for a in self.arrangements},
            **{s.name: [] for s in self.states},
        }
        self._memories: dict[str, Memory] = {}
        self._forgets = Random(seed)

    def step(self, updates: Mapping[Origin, Sequence[Update]], upper: int) -> Outcome:
        """Step over ``[self.upper, upper)`` with these updates; the output comes consolidated."""
        lower = self.upper
        deltas = {}
        for origin in self.inputs:
            table = updates_table(origin.columns, updates.get(origin, ()))
            times = table.column(TIME).to_numpy()
            assert ((lower <= times) & (times < upper)).all(), "updates outside of the step"
            deltas[origin] = consolidate(table)
        arranged: dict[str, History] = {}
        for a in self.arrangements:
            schema = update_schema(a.of.columns)
            self._histories[a.name].append(deltas[a.of])
            arranged[a.name] = History(self._runs(a.name, a.key), a.key, schema, upper)
        states = {
            s.name: History(
                self._runs(s.name, s.key, s.ordered),
                s.key,
                update_schema(s.columns),
                lower,
                memory=self._recalled(s.name),
            )
            for s in self.states
        }
        # Where nothing changes in the end, rows of the past may come and go.
        still = not any(map(len, deltas.values()))
        restless = {o: pa.concat_tables(self.inputs[o]) if still else d for o, d in deltas.items()}
        given = Given(
            lower,
            upper,
            hydrating=lower == self.start,
            deltas={o: self._untidy(d, restless[o], lower, upper) for o, d in deltas.items()},
            arrangements=arranged,
            states=states,
            output=update_schema(self.output_columns),
            state_schemas={s.name: update_schema(s.columns) for s in self.states},
        )
        outcome = self._step(self.operator, given)
        self._take(outcome, given)
        self.rows_read = sum(h.rows_read for h in (*arranged.values(), *states.values()))
        for origin, delta in deltas.items():
            self.inputs[origin].append(delta)
        self.upper = upper
        self._compact()
        return replace(outcome, output=consolidate(outcome.output))

    def _untidy(self, delta: pa.Table, pool: pa.Table, lower: int, upper: int) -> pa.Table:
        """Return a delta that amounts to the same: rows come and go again, at times of the step."""
        count = self.random.randrange(4) if len(pool) else 0
        rows = [self.random.randrange(len(pool)) for _ in range(count)]
        picked = pool.take(pa.array(rows, pa.int64()))
        times = pa.array([self.random.randrange(lower, upper) for _ in range(count)], pa.int64())
        pieces = [delta]
        for diff in (1, -1):
            columns = [*picked.columns[:-2], times, pa.array([diff] * count, pa.int64())]
            pieces.append(pa.Table.from_arrays(columns, schema=delta.schema))
        self.random.shuffle(pieces)
        return pa.concat_tables(pieces)

    def _take(self, outcome: Outcome, given: Given) -> None:
        _fits("the output", outcome.output, given.output, given)
        if outcome.consolidated:
            assert consolidate(outcome.output) is outcome.output, "it is not consolidated"
        for name, table in outcome.states.items():
            assert name in given.state_schemas, f"{name} is no state of the operator"
            _fits(name, table, given.state_schemas[name], given)
            self._histories[name].append(consolidate(table))
        for state in self.states:
            memory = outcome.memories.get(state.name)
            if memory is not None:
                check_memory(memory, pa.concat_tables(self._histories[state.name]), state.key)
                self._memories[state.name] = memory
            elif state.name in outcome.states:
                self._memories.pop(state.name, None)
        self.output = pa.concat_tables([self.output, outcome.output])
        if outcome.errors is not None:
            self.errors.append(outcome.errors)

    def check(self, oracle: Callable[[Mapping[Origin, Rows]], Rows | Sequence[Row]]) -> None:
        """Hold the output against the oracle at every time so far."""
        inputs = {origin: pa.concat_tables(tables) for origin, tables in self.inputs.items()}
        for time in range(self.start, self.upper):
            given = {origin: _raw_rows(table, time) for origin, table in inputs.items()}
            expected, found = multiset(oracle(given)), rows_at(self.output, time)
            assert found == expected, (
                f"at time {time}: missing {expected - found}, too many {found - expected}"
            )

    def _recalled(self, state: str) -> Memory | None:
        """Return what the step before left of a state, if no other process steps this time."""
        same = self._forgets.random() < self.remembers
        return self._memories.get(state) if same else None

    def _runs(self, name: str, key: Sequence[str], ordered: bool = False) -> list[Run]:
        tables = [table for table in self._histories[name] if table.num_rows]
        if ordered:
            tables = [in_order(table, key) for table in tables]
        return [Run.open(write_run(table, key)) for table in tables]

    def _compact(self) -> None:
        for name, tables in self._histories.items():
            if len(tables) > 1 and self.random.random() < 0.4:
                merged = pa.concat_tables(tables)
                if self.random.random() < 0.7:
                    hold = max(self.upper - 1, 0)
                    times = np.maximum(merged.column(TIME).to_numpy(), hold)
                    position = merged.column_names.index(TIME)
                    merged = merged.set_column(position, merged.schema.field(TIME), pa.array(times))
                self._histories[name] = [consolidate(merged)]


def _fits(what: str, table: pa.Table, schema: pa.Schema, given: Given) -> None:
    assert table.schema.equals(schema), f"{what}: {table.schema} is not {schema}"
    times = table.column(TIME).to_numpy()
    inside = (given.lower <= times) & (times < given.upper)
    assert inside.all(), f"{what} has updates outside of the step"


def _raw_rows(table: pa.Table, time: int) -> Rows:
    seen = table.filter(pc.less_equal(table.column(TIME), time))
    rows: Rows = Counter()
    for *row, _, diff in zip(*(column.to_pylist() for column in seen.columns), strict=True):
        rows[tuple(map(_hashable, row))] += diff
    return Counter({row: count for row, count in rows.items() if count})


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value.items())
    return tuple(value) if isinstance(value, list) else value
