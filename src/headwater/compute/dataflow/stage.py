"""One Python stage of a step: the operators of one level, of all views, one after the other.

    rows of lanes in ──▶ operators ──▶ rows of lanes out, parts written, a note

A stage reads the deltas of stored collections by itself (from their parts, not from a lane), opens
the histories its operators probe, and writes what they change as **one object** (``written.py``;
what is large, several). The first stage
also writes what shared arrangements got since their own upper. An arrangement of a lane is written
by the first operator that probes it; every later one sees the same rows, from the lane. Joins that
several views have in common are run as one (``joint.py``).

No Spark is imported here: :func:`run` is a function from record batches to record batches.
Kept by: this module, against a whole recomputation in the tests. Relied on by: ``program.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from headwater.base.ids import GlobalId
from headwater.collection.run import Run
from headwater.compute.arrangement import RunsWhenProbed, open_runs
from headwater.compute.dataflow import aside, joint, remembered
from headwater.compute.dataflow.chain import Chain, Placed
from headwater.compute.dataflow.exchange import Aside, cut_by_range
from headwater.compute.dataflow.graph import (
    Arranged,
    Arrangement,
    Constant,
    DeltaJoin,
    Exchanged,
    Laned,
    Operator,
    Origin,
    Output,
    Read,
    Scanned,
    Sink,
    State,
    Temporal,
    origins,
    used_names,
)
from headwater.compute.dataflow.lanes import (
    FAILED,
    NOTE,
    contents,
    failure_payload,
    payloads,
    split_failures,
)
from headwater.compute.dataflow.operator import Given, History, Outcome, update_schema
from headwater.compute.dataflow.ops import delta_join
from headwater.compute.dataflow.phases import is_alone
from headwater.compute.dataflow.renamed import RenamedHistory, named
from headwater.compute.dataflow.task import (
    Delta,
    Note,
    RaisedError,
    Shared,
    StepTask,
    Stored,
    ViewTask,
    encode_note,
)
from headwater.compute.dataflow.written import Written
from headwater.persist.consolidate import DIFF, TIME, consolidate

Rule = Callable[[Any, Given], Outcome]

RULES: Final[Mapping[str, str]] = {
    "DeltaJoin": "delta_join",
    "Semi": "semi",
    "Accumulate": "accumulate",
    "Distinct": "distinct",
    "Bag": "bag",
    "Reduce": "reduce",
    "TopK": "top_k",
    "Versions": "versions",
    "Stretches": "stretches",
    "Unversion": "unversion",
    "Temporal": "temporal",
}
"""The module in ``ops`` whose ``step`` is the rule of an operator."""


def rule_of(operator: Operator) -> Rule:
    """Return the delta rule of an operator."""
    return _rule(RULES[type(operator).__name__])


@lru_cache
def _rule(name: str) -> Rule:
    rule: Rule = import_module(f"headwater.compute.dataflow.ops.{name}").step
    return rule


def run(
    chain: Chain, level: int, task: StepTask, batches: Iterable[pa.RecordBatch], attempt: str
) -> Iterator[pa.RecordBatch]:
    """Run the stage of this level; yield what goes on to the next one."""
    leaving = chain.leaving(level)
    if level:
        given = chain.entering(level).unpack(batches)
    else:
        # Only the one row that makes a task of it; but a worker whose input was not read to its end
        # is thrown away by Spark, and with it every run it has open.
        deque(batches, 0)
        given = {}
    found, failures = split_failures(given)
    notes = contents(found.pop(NOTE, None))
    failures += contents(found.pop(FAILED, None))
    stage = _Stage(chain, level, task, Written(task.writing, f"{attempt}.{level}"))
    for lane, updates in found.items():
        stage.lanes.setdefault(lane, []).append(updates)
    note = stage.noted()
    if note is not None:
        notes.append(encode_note(note))
    failures += stage.failures
    going: dict[int, pa.Table] = {NOTE: payloads(notes), FAILED: payloads(failures)}
    for lane in sorted(leaving.lanes.keys() & stage.lanes.keys()):
        going[lane] = stage.lane(lane)
    yield from leaving.batches(going)


@dataclass
class _Stage:
    chain: Chain
    level: int
    task: StepTask
    written: Written
    lanes: dict[int, list[pa.Table]] = field(default_factory=dict)
    errors: list[RaisedError] = field(default_factory=list)
    rows_read: dict[str, int] = field(default_factory=dict)
    scheduled: dict[int, int] = field(default_factory=dict)
    aside: dict[int, list[Aside]] = field(default_factory=dict)
    failures: list[bytes] = field(default_factory=list)
    """Payloads of the rows on which an edge of the stage failed."""
    stamp: str = field(default_factory=remembered.new_stamp)
    stamped: dict[int, str] = field(default_factory=dict)
    """The states of which this process remembers something, by number."""
    _whole: dict[int, pa.Table] = field(default_factory=dict)
    _read: dict[int, pa.Table] = field(default_factory=dict)
    _shared: dict[GlobalId, Sequence[Run]] = field(default_factory=dict)
    _fresh: dict[GlobalId, pa.Table] = field(default_factory=dict)
    _consolidated: set[int] = field(default_factory=set)
    """Lanes whose updates are known to be; the others may be, or not."""
    _joined: set[int] = field(default_factory=set)
    """Operators that were run already, as one with others."""

    def noted(self) -> Note | None:
        """Run all operators and write everything; return the note that says what, if there is any.

        A first step may take long, and gives way to the steps beside it.
        """
        try:
            if not any(view is not None and view.hydrating for view in self.task.views):
                self._run()
                return self._note()
            with aside.threads(1) as thread:
                thread.submit(self._run).result()
                return thread.submit(self._note).result()
        finally:
            self.written.close()

    def _run(self) -> None:
        if self.level == 0:
            for gid, shared in self.task.shared.items():
                self._advance(gid, shared)
            self._join_jointly()
        for number, placed in enumerate(self.chain.operators):
            view = self.task.views[placed.view]
            if placed.level != self.level or view is None or number in self._joined:
                continue
            if view.range == 0 or not is_alone(placed.operator):
                self._operate(number, placed, view)

    # ---- operators -----------------------------------------------------------------------------

    def _operate(self, number: int, placed: Placed, view: ViewTask) -> None:
        operator = placed.operator
        match operator:
            case Output():
                self._output(view, self._number(placed.view, operator.lane))
            case Read():
                delta = self._delta(placed.view, operator.of, view)
                self._emit(placed.view, operator.output, delta)
                self.rows_read[f"{placed.view}/{number}"] = delta.num_rows
            case Constant():
                if view.hydrating:
                    arrays = [pa.array([view.lower]), pa.array([1])]
                    row = pa.table(arrays, schema=update_schema(()))
                    self._emit(placed.view, operator.output, row)
            case Exchanged():
                self._put_aside(placed.view, operator, view)
            case Arranged():
                if isinstance(operator.of, Laned):  # Else it is written already, as shared.
                    arrangement = self.chain.flows[placed.view].arrangement(operator.arrangement)
                    self._history(placed, arrangement, view)
            case _:
                self._step(number, placed, view)

    def _step(self, number: int, placed: Placed, view: ViewTask) -> None:
        operator = placed.operator
        assert not isinstance(operator, Sink | Read | Constant)
        flow = self.chain.flows[placed.view]
        names = used_names(operator)
        used = [arrangement for arrangement in flow.arrangements if arrangement.name in names]
        # What is arranged is consolidated for that; it may be a small part of what came in.
        arranged = {each.of for each in used if each.name not in view.arranged}
        deltas = {
            o: self.lane(self._number(placed.view, o.lane))
            if isinstance(o, Laned) and o in arranged
            else self._delta(placed.view, o, view)
            for o in origins(operator)
        }
        quiet = not view.hydrating and not any(delta.num_rows for delta in deltas.values())
        if quiet and not isinstance(operator, Temporal):
            return
        arrangements, states, schemas = {}, {}, {}
        for arrangement in used:
            arrangements[arrangement.name] = self._history(placed, arrangement, view)
        for state in flow.states:
            if state.name in names:
                schemas[state.name] = update_schema(state.columns)
                states[state.name] = self._state(state, view)
        given = Given(
            view.lower,
            view.upper,
            view.hydrating,
            deltas,
            arrangements,
            states,
            self.chain.schemas[self._number(placed.view, operator.output)],
            schemas,
        )
        outcome = rule_of(operator)(operator, given)
        self._emit(placed.view, operator.output, outcome.output, outcome.consolidated)
        for name, updates in outcome.states.items():
            self._keep(view.stored[name], updates)
        for name, memory in outcome.memories.items() if not view.hydrating else ():
            stored = view.stored[name]
            remembered.leave(self.stamp, stored.id, memory, stored.stamp)
            self.stamped[int(stored.id)] = self.stamp
        if outcome.errors is not None:
            self._raise(placed.view, outcome.errors)
        if outcome.scheduled is not None:
            known = self.scheduled.get(placed.view, outcome.scheduled)
            self.scheduled[placed.view] = min(known, outcome.scheduled)
        histories = (*arrangements.values(), *states.values())
        read = sum(d.num_rows for d in deltas.values()) + sum(h.rows_read for h in histories)
        self.rows_read[f"{placed.view}/{number}"] = read

    def _join_jointly(self) -> None:
        """Run the joins that several views have in common."""
        same: dict[Hashable, list[int]] = {}
        for number, placed in enumerate(self.chain.operators):
            view = self.task.views[placed.view]
            if isinstance(placed.operator, DeltaJoin) and view is not None:
                identity = joint.identity(placed.operator, view)
                if identity is not None:
                    same.setdefault(identity, []).append(number)
        for numbers in same.values():
            if len(numbers) > 1:
                self._join_as_one(numbers)
                self._joined.update(numbers)

    def _join_as_one(self, numbers: Sequence[int]) -> None:
        members = [self.chain.operators[number] for number in numbers]
        joins = [m.operator for m in members if isinstance(m.operator, DeltaJoin)]
        wanted = [
            self.chain.lanes[self._number(member.view, join.output)].names
            for member, join in zip(members, joins, strict=True)
        ]
        one = joint.joint(joins, wanted)
        view = self.task.views[members[0].view]
        assert view is not None
        deltas = {o: self._delta(members[0].view, o, view) for o in one.join.inputs}
        if not any(delta.num_rows for delta in deltas.values()):
            return
        arrangements = {}
        for hop in (hop for path in one.join.paths for hop in path):
            origin = one.join.inputs[hop.input]
            assert isinstance(origin, Scanned)
            gid = view.shared[hop.arrangement]
            arrangements[hop.arrangement] = self._shared_history(gid, origin, (), view)
        given = Given(
            view.lower, view.upper, False, deltas, arrangements, {}, update_schema(one.output)
        )
        # One chunk each: every view would join them for itself.
        found = delta_join.step(one.join, given, one.asked).output.combine_chunks()
        for member, join, taken in zip(members, joins, one.taken, strict=True):
            schema = self.chain.schemas[self._number(member.view, join.output)]
            columns = [found.column(name) for name in (*taken, TIME, DIFF)]
            self._emit(member.view, join.output, pa.Table.from_arrays(columns, schema=schema))
        read = sum(d.num_rows for d in deltas.values())
        read += sum(history.rows_read for history in arrangements.values())
        self.rows_read[f"{members[0].view}/{numbers[0]}"] = read

    def _output(self, view: ViewTask, lane: int) -> None:
        updates = self._raw_lane(lane)
        fields = [field.with_nullable(True) for field in view.output.schema]
        schema = pa.schema([*fields, pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64())])
        columns = [updates.column(name) for name in (*view.shown, TIME, DIFF)]
        shown = pa.Table.from_arrays(columns, names=schema.names)
        shown = shown if shown.schema == schema else shown.cast(schema)
        known = lane in self._consolidated and {*self.chain.lanes[lane].names} <= {*view.shown}
        self.written.add(view.output_id, view.output, shown if known else consolidate(shown))

    def _put_aside(self, view: int, operator: Exchanged, task: ViewTask) -> None:
        updates = self._raw_lane(self._number(view, operator.lane))
        if operator.key is None:
            pieces = [(task.range, updates)] if updates.num_rows else []
        else:
            pieces = list(cut_by_range(updates, operator.key, task.ranges))
        self.aside.setdefault(operator.number, []).extend(self.written.put_aside(pieces))

    def _raise(self, view: int, errors: pa.Table) -> None:
        for row in errors.to_pylist():
            self.errors.append(
                RaisedError(
                    view,
                    row["condition"],
                    row["message"],
                    row["context"],
                    row[TIME],
                    row[DIFF],
                )
            )

    # ---- lanes ---------------------------------------------------------------------------------

    def lane(self, number: int) -> pa.Table:
        """Return all that a lane has in this step, consolidated: what is kept, or leaves."""
        known = self._whole.get(number)
        if known is None:
            known = self._raw_lane(number)
            known = known if number in self._consolidated else consolidate(known)
            self._whole[number] = known
        return known

    def _raw_lane(self, number: int) -> pa.Table:
        tables = self.lanes.get(number, ())
        if len(tables) == 1:
            return tables[0]
        return pa.concat_tables([self.chain.schemas[number].empty_table(), *tables])

    def _number(self, view: int, lane: int) -> int:
        return self.chain.bases[view] + lane

    def _emit(self, view: int, lane: int, updates: pa.Table, consolidated: bool = False) -> None:
        source = self._number(view, lane)
        self._put(source, updates, consolidated)
        for number in self.chain.in_stage.get(source, ()) if updates.num_rows else ():
            carried = self.chain.edges[number]
            told_apart = {*self.chain.lanes[source].names} <= {*(carried.picked or ())}
            moved = self._moved(number, updates)
            self._put(carried.edge.target, moved, consolidated and told_apart)

    def _put(self, lane: int, updates: pa.Table, consolidated: bool) -> None:
        if updates.num_rows:
            tables = self.lanes.setdefault(lane, [])
            tables.append(updates)
            if consolidated and len(tables) == 1:
                self._consolidated.add(lane)
            else:
                self._consolidated.discard(lane)

    def _moved(self, number: int, updates: pa.Table) -> pa.Table:
        """Return what an edge of the stage makes of updates; those it fails on are noted."""
        carried = self.chain.edges[number]
        schema = self.chain.schemas[carried.edge.target]
        if carried.picked is not None:
            columns = [updates.column(name) for name in (*carried.picked, TIME, DIFF)]
            return pa.Table.from_arrays(columns, schema=schema)
        assert carried.native is not None, "else it is the passage's"
        moved, failed = carried.native.moved(updates, schema)
        if failed.num_rows:
            self.failures.append(failure_payload(number, consolidate(failed)))
        return moved

    def _delta(self, view: int, origin: Origin, task: ViewTask) -> pa.Table:
        if isinstance(origin, Laned):
            return self._raw_lane(self._number(view, origin.lane))
        return named(origin, self._updates(task.inputs[origin.relation]))

    def _updates(self, updates: Delta) -> pa.Table:
        known = self._read.get(id(updates))
        if known is None:
            known = self._read[id(updates)] = updates.table()
        return known

    # ---- histories -----------------------------------------------------------------------------

    def _state(self, state: State, view: ViewTask) -> History:
        stored = view.stored[state.name]
        runs = RunsWhenProbed(lambda: open_runs(stored.reading, stored.parts))
        memory = remembered.recall(stored.stamp, stored.id)
        return History(runs, state.key, update_schema(state.columns), view.lower, memory=memory)

    def _history(self, placed: Placed, arrangement: Arrangement, view: ViewTask) -> History:
        if isinstance(arrangement.of, Scanned):
            gid = view.shared[arrangement.name]
            return self._shared_history(gid, arrangement.of, arrangement.key, view)
        stored = view.stored[arrangement.name]
        key, schema = arrangement.key, update_schema(arrangement.of.columns)
        if arrangement.name in view.arranged:
            complete = RunsWhenProbed(lambda: open_runs(stored.reading, stored.parts))
            return History(complete, key, schema, view.upper)
        delta = self.lane(self._number(placed.view, arrangement.of.lane))
        if delta.num_rows and self._first_to_probe(placed, arrangement):
            self._keep(stored, delta)

        def opened() -> tuple[Run, ...]:
            # What is large is written by then, from here or from an earlier operator of this stage.
            known = self.written.already(stored.id)
            fresh = open_runs(stored.reading, known)
            if delta.num_rows and not fresh:
                fresh = (Run.of(delta, key),)
            return open_runs(stored.reading, stored.parts) + fresh

        return History(RunsWhenProbed(opened), key, schema, view.upper)

    def _first_to_probe(self, placed: Placed, arrangement: Arrangement) -> bool:
        for other in self.chain.operators:
            if other.view == placed.view and arrangement.name in used_names(other.operator):
                return other is placed
        raise AssertionError("the operator itself probes it")

    def _shared_history(
        self, gid: GlobalId, origin: Scanned, key: tuple[str, ...], view: ViewTask
    ) -> History:
        shared = self.task.shared[gid]
        fields = {field.column.name: field.field for field in origin.fields}
        runs = self._shared_runs(gid, shared)
        floor = view.lower if view.hydrating else None
        schema = update_schema(origin.columns)
        return RenamedHistory(runs, key, schema, view.upper, floor, fields=fields)

    def _shared_runs(self, gid: GlobalId, shared: Shared) -> Sequence[Run]:
        def opened() -> tuple[Run, ...]:
            stored = shared.stored
            runs = open_runs(stored.reading, stored.parts)
            known = self.written.already(gid)
            if known:
                runs += open_runs(stored.reading, known)
            elif shared.since is not None:
                fresh = self._since(gid, shared)
                if fresh.num_rows:
                    runs = (*runs, Run.of(fresh, stored.target.key))
            return runs

        return self._shared.setdefault(gid, RunsWhenProbed(opened))

    def _since(self, gid: GlobalId, shared: Shared) -> pa.Table:
        known = self._fresh.get(gid)
        if known is None:
            assert shared.since is not None
            names = [*shared.stored.target.schema.names, TIME, DIFF]
            known = consolidate(self._updates(shared.since).select(names))
            self._fresh[gid] = known
        return known

    # ---- what is written -----------------------------------------------------------------------

    def _advance(self, gid: GlobalId, shared: Shared) -> None:
        if shared.since is not None and shared.advanced:
            self.written.add(gid, shared.stored.target, self._since(gid, shared))

    def _keep(self, stored: Stored, updates: pa.Table) -> None:
        self.written.add(stored.id, stored.target, updates)

    def _note(self) -> Note | None:
        parts = self.written.finished()
        if not parts and not self.errors and not self.rows_read and not self.aside:
            return None
        return Note(parts, self.errors, self.rows_read, self.scheduled, self.aside, self.stamped)
