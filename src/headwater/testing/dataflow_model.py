"""A whole dataflow, stepped in memory: the operators as they are, edges in Python, no Spark.

    model = DataflowModel(dataflow, schemas, past, start=5, seed=7)
    model.step({"orders": [((1, "a"), 6, +1), …]}, upper=9)       # updates (row, time, diff)
    model.rows_at(7)                                               # the view at a time
    model.step(updates, upper=12, ahead={"orders": later})         # arranged before they are due

``past`` is what the relations had before the view began; the view hydrates in its first step, over
arrangements of stored collections that are older than it, and that may be *ahead* of it: they have
updates of the next step already. Between steps the model does to histories
what persist may do: it merges runs and advances times to ``upper - 1``, never further, at random.

Relied on by: tests of the lowering and of the operators together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random

import numpy as np
import pyarrow as pa

from headwater.collection.run import Run, in_order, write_run
from headwater.compute.dataflow.graph import (
    Accumulate,
    Arranged,
    Bag,
    Constant,
    Dataflow,
    DeltaJoin,
    Distinct,
    Exchanged,
    Laned,
    Operator,
    Origin,
    Output,
    Read,
    Reduce,
    Scanned,
    Semi,
    Stretches,
    Temporal,
    TopK,
    Unversion,
    Versions,
    origins,
)
from headwater.compute.dataflow.memory import Memory
from headwater.compute.dataflow.operator import Given, History, Outcome, update_schema
from headwater.compute.dataflow.ops import (
    accumulate,
    bag,
    delta_join,
    distinct,
    reduce,
    semi,
    stretches,
    temporal,
    top_k,
    unversion,
    versions,
)
from headwater.compute.ir.expression import Column
from headwater.compute.ir.node import Filter, Node, Scan, Window
from headwater.persist.consolidate import DIFF, TIME, consolidate
from headwater.testing import oracle
from headwater.testing.expressions import as_arrow, from_arrow
from headwater.testing.rig import Row, Rows, Update, updates_table

Schemas = Mapping[str, Sequence[Column]]
"""Per relation its columns; a column's name is the field's with ``_0`` behind it."""


Ruled = (
    DeltaJoin
    | Semi
    | Accumulate
    | Distinct
    | Bag
    | Reduce
    | TopK
    | Versions
    | Stretches
    | Unversion
    | Temporal
)


def stepped(operator: Ruled, given: Given) -> Outcome:
    """Return what an operator's rule answers."""
    match operator:
        case DeltaJoin():
            return delta_join.step(operator, given)
        case Semi():
            return semi.step(operator, given)
        case Accumulate():
            return accumulate.step(operator, given)
        case Distinct():
            return distinct.step(operator, given)
        case Bag():
            return bag.step(operator, given)
        case Reduce():
            return reduce.step(operator, given)
        case TopK():
            return top_k.step(operator, given)
        case Versions():
            return versions.step(operator, given)
        case Stretches():
            return stretches.step(operator, given)
        case Unversion():
            return unversion.step(operator, given)
        case Temporal():
            return temporal.step(operator, given)


class _Kept:
    """The history of an arrangement or a state."""

    def __init__(
        self, key: Sequence[str], schema: pa.Schema, random: Random, ordered: bool = False
    ) -> None:
        self.key, self.schema, self._random = tuple(key), schema, random
        self._ordered = ordered
        self._parts: list[tuple[pa.Table, Run]] = []
        self.memory: Memory | None = None
        self._forgets = Random(len(schema))  # Of its own: seeds say what histories are merged.

    def add(self, updates: pa.Table) -> None:
        if updates.num_rows:
            rows = in_order(updates, self.key) if self._ordered else updates
            self._parts.append((updates, Run.open(write_run(rows, self.key))))

    def history(self, ignore_from: int, floor: int | None = None) -> History:
        runs = [run for _, run in self._parts]
        memory = self.memory if self._forgets.random() < 0.8 else None
        return History(runs, self.key, self.schema, ignore_from, floor, memory=memory)

    def compact(self, upper: int) -> None:
        if len(self._parts) > 1 and self._random.random() < 0.4:
            merged = pa.concat_tables([table for table, _ in self._parts])
            if self._random.random() < 0.7:
                merged = _advanced(merged, upper - 1)
            self._parts = []
            self.add(consolidate(merged))


def _advanced(updates: pa.Table, time: int) -> pa.Table:
    times = np.maximum(updates.column(TIME).to_numpy(), time)
    position = updates.column_names.index(TIME)
    return updates.set_column(position, updates.schema.field(TIME), pa.array(times))


class DataflowModel:
    """A dataflow with its inputs, its state and its output."""

    def __init__(
        self,
        dataflow: Dataflow,
        schemas: Schemas,
        past: Mapping[str, Sequence[Update]],
        *,
        start: int,
        seed: int = 0,
    ) -> None:
        self.dataflow, self.start, self.upper = dataflow, start, start
        self._schemas, random = schemas, Random(seed)
        self._past = {
            name: consolidate(_table(columns, past.get(name, ())))
            for name, columns in schemas.items()
        }
        self._arrangements = {
            a.name: _Kept(a.key, update_schema(a.of.columns), random) for a in dataflow.arrangements
        }
        for a in dataflow.arrangements:
            if isinstance(a.of, Scanned):
                self._arrangements[a.name].add(self._picked(a.of, self._past[a.of.relation]))
        self._states = {
            s.name: _Kept(s.key, update_schema(s.columns), random, s.ordered)
            for s in dataflow.states
        }
        self._deltas: dict[str, pa.Table] = {}
        self._lanes: dict[int, pa.Table] = {}
        self._ahead: frozenset[str] = frozenset()
        """The relations whose arrangements have the updates of the next step."""
        self.output: list[Update] = []
        self.errors = 0

    def step(
        self,
        updates: Mapping[str, Sequence[Update]],
        upper: int,
        ahead: Mapping[str, Sequence[Update]] | None = None,
    ) -> None:
        """Step over ``[self.upper, upper)`` with these updates of the relations.

        ``ahead`` are those of the next step, of relations whose arrangements have them already.
        """
        lower, hydrating = self.upper, self.upper == self.start
        self._lanes = {}
        self._deltas = {}
        for name, columns in self._schemas.items():
            fresh = consolidate(_table(columns, updates.get(name, ())))
            if name not in self._ahead:
                self._arrange_stored(name, fresh)
            if hydrating:
                fresh = pa.concat_tables([_advanced(self._past[name], lower), fresh])
            self._deltas[name] = consolidate(fresh)
        self._ahead = frozenset(ahead or ())
        for name, later in (ahead or {}).items():
            self._arrange_stored(name, consolidate(_table(self._schemas[name], later)))
        arranged: set[str] = set()
        for operator in self.dataflow.operators:
            self._operate(operator, lower, upper, hydrating, arranged)
        for kept in (*self._arrangements.values(), *self._states.values()):
            kept.compact(upper)
        self.upper = upper

    def rows_at(self, time: int) -> Rows:
        """Return the view at a time; a row may not be there less than no times."""
        rows: Rows = Counter()
        for row, at, diff in self.output:
            if at <= time:
                rows[row] += diff
        assert all(n >= 0 for n in rows.values()), f"a negative count: {rows}"
        return +rows

    # ---- operators -------------------------------------------------------------------------

    def _operate(
        self, operator: Operator, lower: int, upper: int, hydrating: bool, arranged: set[str]
    ) -> None:
        match operator:
            case Output():
                self.output.extend(_updates(self._lane(operator.lane)))
            case Read():
                self._lanes[operator.output] = self._delta(operator.of)
            case Constant():
                there: list[Update] = [((), lower, 1)] if hydrating else []
                self._lanes[operator.output] = updates_table((), there)
            case Exchanged() | Arranged():
                raise AssertionError("a phase of a first step is no view")
            case _:
                self._step(operator, lower, upper, hydrating, arranged)

    def _step(
        self, operator: Ruled, lower: int, upper: int, hydrating: bool, arranged: set[str]
    ) -> None:
        deltas = {origin: self._delta(origin) for origin in origins(operator)}
        for a in self.dataflow.arrangements:
            if isinstance(a.of, Laned) and a.of in deltas and a.name not in arranged:
                arranged.add(a.name)
                self._arrangements[a.name].add(deltas[a.of])
        floor = lower if hydrating else None
        columns = self.dataflow.lanes[operator.output].columns
        given = Given(
            lower,
            upper,
            hydrating=hydrating,
            deltas=deltas,
            arrangements={n: k.history(upper, floor) for n, k in self._arrangements.items()},
            states={n: k.history(lower) for n, k in self._states.items()},
            output=update_schema(columns),
            state_schemas={n: k.schema for n, k in self._states.items()},
        )
        outcome = stepped(operator, given)
        assert outcome.output.schema.equals(given.output), (operator, outcome.output.schema)
        _inside(outcome.output, lower, upper)
        self._lanes[operator.output] = outcome.output
        for name, updates in outcome.states.items():
            _inside(updates, lower, upper)
            self._states[name].add(updates)
            self._states[name].memory = outcome.memories.get(name)
        self.errors += outcome.errors.num_rows if outcome.errors is not None else 0

    def _delta(self, origin: Origin) -> pa.Table:
        match origin:
            case Scanned():
                return consolidate(self._picked(origin, self._deltas[origin.relation]))
            case Laned():
                return self._lane(origin.lane)

    def _picked(self, origin: Scanned, updates: pa.Table) -> pa.Table:
        arrays = [updates.column(f"{field.field}_0") for field in origin.fields]
        arrays += [updates.column(TIME), updates.column(DIFF)]
        return pa.Table.from_arrays(arrays, schema=update_schema(origin.columns))

    def _arrange_stored(self, relation: str, fresh: pa.Table) -> None:
        for a in self.dataflow.arrangements:
            if isinstance(a.of, Scanned) and a.of.relation == relation:
                self._arrangements[a.name].add(self._picked(a.of, fresh))

    # ---- edges -----------------------------------------------------------------------------

    def _lane(self, lane: int) -> pa.Table:
        if lane not in self._lanes:
            made: list[Update] = []
            for edge in self.dataflow.edges:
                if edge.target == lane:
                    made.extend(_mapped(edge.node, _updates(self._lane(edge.source))))
            table = _table(self.dataflow.lanes[lane].columns, made)
            self._lanes[lane] = consolidate(table)
        return self._lanes[lane]


def mapped(node: Node, updates: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Return what an edge makes of the updates of its source; not consolidated."""
    return _table(columns, _mapped(node, _updates(updates)))


def _mapped(node: Node, updates: Iterable[Update]) -> list[Update]:
    if isinstance(node, Scan):
        return list(updates)
    (child,) = node.inputs
    if isinstance(node, Filter) and "xxhash64(" in node.condition.text:
        return []  # What is evaluated for its failures (``raw.judged``); no edge fails here.
    below = _mapped(child, updates)
    if isinstance(node, Window):
        # By version and by place in it: no row is there twice.
        times = {row: time for row, time, _ in below}
        width = len(child.columns)
        made = oracle.windowed(node, Counter(times.keys()))
        return [(row, times[row[:width]], 1) for row in made]
    return [(made, time, diff) for row, time, diff in below for made in oracle.linear(node, row)]


def _table(columns: Sequence[Column], updates: Sequence[Update]) -> pa.Table:
    plain = [(tuple(map(as_arrow, row)), time, diff) for row, time, diff in updates]
    return updates_table(columns, plain)


def _updates(table: pa.Table) -> list[Update]:
    columns = [column.to_pylist() for column in table.columns]
    return [
        (tuple(map(from_arrow, row)), time, diff) for *row, time, diff in zip(*columns, strict=True)
    ]


def _inside(updates: pa.Table, lower: int, upper: int) -> None:
    times = updates.column(TIME).to_numpy()
    assert ((lower <= times) & (times < upper)).all(), "updates outside of the step"


__all__ = ["DataflowModel", "Row", "Rows", "Schemas", "mapped", "stepped"]
