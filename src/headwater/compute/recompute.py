"""Views that are recomputed: any deterministic query, by running the whole of it again.

For each distinct time ``t`` at which an input has updates in the step's ``[lower, upper)``, in
order:

    output at t  -  output before t  =  plan(inputs at t)  -  plan(inputs before t)

A query without a clock says the same between two input times, so these are all the times at which
its answer can change, and the output is exact at every time in between. The first step also asks at
``start``, where a query may have rows although no input has any. What was before is the output
itself, summed up from its durable parts, never something remembered: a step that is done again, by
this process or by the next one, begins from what is committed.

The price is the whole query per input time, and the answer passes through the driver; operators
with a rule of their own replace this one by one. What cannot be kept so is refused: a query over
the current time changes while no input does.

**Errors.** Where an input has errors there is no answer: the output's error side then has one row,
the least of the inputs' errors, and its rows stay what they were. It is gone when they are. So it
is where the query itself fails on the data (a division by zero, malformed JSON, ``raise_error``: by
their SQLSTATE, or by where they were raised, ``catalyst/blame.py``; a recursion that does not end,
because rows lead in a circle; a row of an input that is there fewer than zero times, because it
went before it came); one of the errors Spark met is shown.
A function of the user's that raises an error of values is such a failure too
(``catalyst/user_functions.py``). Any other failure stalls the view with Spark's message.

Stored as the item ``view/<id>``, the plan in its own encoding. A plan of another version of Spark,
or of other settings, is not run (``Plan.require``): the view is made anew (``compute/renew.py``).

Kept by: this module. Relied on by: ``compute/recomputer.py``, which runs the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headwater.algebra.frontier import Frontier
from headwater.base.errors import HeadwaterError
from headwater.compute.answer import is_small, rows_of
from headwater.compute.catalyst import blame, user_functions
from headwater.compute.catalyst.called import RAISE_INSTEAD
from headwater.compute.catalyst.query_session import query_session
from headwater.compute.catalyst.render import execute
from headwater.compute.catalyst.try_eval import plain
from headwater.compute.catalyst.user_functions import Raised
from headwater.compute.ir.plan import Plan, decoded
from headwater.compute.ir.refusal import OtherMeaning
from headwater.compute.select import condition_of, spark_message
from headwater.compute.step import Interval, StepFailed, due, held, job_group, token
from headwater.compute.stored_view import StoredView
from headwater.compute.too_deep import cause_of
from headwater.persist import evolution
from headwater.persist.batch import Part, Times
from headwater.persist.commands import Command, CompareAndAppend, DowngradeReader
from headwater.persist.consolidate import DIFF, TIME, column_longs, consolidate
from headwater.persist.core import Core
from headwater.persist.decision import collection_of
from headwater.persist.evolution import ERROR_SCHEMA
from headwater.persist.multiplicity import NegativeMultiplicity
from headwater.persist.narrow import read_rows
from headwater.persist.part import PART_ROWS_TARGET, Pending
from headwater.persist.read import Snapshot, take_snapshot
from headwater.persist.spark import rows_frame
from headwater.persist.spark_end import or_ended
from headwater.persist.spark_parts import Target, cut
from headwater.persist.state import CollectionState, State, bound

STORED_VERSION: Final = 2
"""Programs that know only version 1 know only the other kind of view, and refuse this one."""


DATA_EXCEPTIONS: Final = ("22", "21000", "23505", "P0001")
"""How SQLSTATE begins where the data is to blame, not the query.

Values; a subquery of one row that has two; a key that a map would have twice; ``raise_error`` and
``assert_true``, by which queries of PostgreSQL's dialect fail as well.
"""

NEGATIVE: Final = "NEGATIVE_MULTIPLICITY"
"""The condition of the error that a view has where a row of an input went before it came."""

ENDLESS: Final = frozenset({"RECURSION_LEVEL_LIMIT_EXCEEDED", "RECURSION_ROW_LIMIT_EXCEEDED"})
"""Conditions of a recursion that goes further than it may: how far it goes, the rows say."""


class RecomputedView(StoredView, frozen=True, kw_only=True, tag_field="kind", tag="recomputed"):
    """A view that is computed anew, and diffed."""

    why: str
    """What in the query has no incremental rule yet."""


_plan = lru_cache(maxsize=256)(decoded)


# ---- steps -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recomputation:
    """A step before it runs: from one state, so that all of it agrees."""

    view: RecomputedView
    interval: Interval
    inputs: tuple[CollectionState, ...]
    output: CollectionState

    @property
    def hold(self) -> Times:
        """From when on its inputs must be readable after it."""
        return held(self.view, self.output, self.interval)

    def until(self, time: int) -> Recomputation:
        """Return the step that ends before ``time``."""
        return replace(self, interval=Interval(self.interval.lower, Frontier.of(time)))

    @property
    def hydrating(self) -> bool:
        """Whether this is the view's first step."""
        return self.interval.lower == Frontier.of(self.view.start)

    def is_empty(self) -> bool:
        """Whether nothing can have changed; a first step has its answer at ``start`` to give."""
        return not self.hydrating and next(self._delta(), None) is None

    def pinned(self) -> Iterator[Part]:
        """Return the parts read as such; snapshots keep theirs by themselves."""
        for _, part in self._delta():
            yield part
        yield from self._written()

    def times(self, core: Core) -> list[int]:
        """Return the times at which the answer may change, in order."""
        lower = bound(self.interval.lower)
        found = {lower} if self.hydrating else set()
        for collection, part in self._delta():
            if part.window is None and part.time_min == part.time_max:
                found.add(max(part.time_min, lower))
            elif part.time_max > lower:
                times = column_longs(read_rows(core, collection, part, None), TIME)
                found.update(max(int(time), lower) for time in set(times.tolist()))
            else:
                found.add(lower)
        return sorted(found)

    def before(self, core: Core) -> tuple[pa.Table, pa.Table]:
        """Return both sides of the output before ``lower``: all of it, whatever its since is."""
        parts = tuple(self._written())
        return Snapshot(core, self.output, bound(self.interval.lower), parts).sides()

    def _written(self) -> Iterator[Part]:
        for batch in self.output.batches:
            yield from batch.parts

    def _delta(self) -> Iterator[tuple[CollectionState, Part]]:
        lower, upper = bound(self.interval.lower), bound(self.interval.upper)
        for collection in self.inputs:
            for side in cut(collection, lower, upper, hydrating=self.hydrating):
                for part in side.parts:
                    yield collection, part


def plan_step(state: State, view: RecomputedView) -> Recomputation | None:
    """Return the next step of a view; ``None`` if there is nothing to do (pure)."""
    interval = due(state, view)
    if interval is None:
        return None
    inputs = tuple(collection_of(state, gid) for gid in view.inputs)
    return Recomputation(view, interval, inputs, collection_of(state, view.id))


def commands(planned: Recomputation, parts: tuple[Part, ...]) -> tuple[Command, ...]:
    """Return what the driver commits for a step (pure)."""
    view, interval = planned.view, planned.interval
    name = token(view.id, interval)
    return (
        CompareAndAppend(view.id, name, interval.lower, interval.upper, parts),
        *(DowngradeReader(gid, view.reader_id, planned.hold) for gid in view.inputs),
    )


GoOn = Callable[[], bool]
"""Whether a step goes on at its next time, or ends before it."""


class Changes(NamedTuple):
    """What a step found."""

    step: Recomputation
    """As far as it came."""
    pending: list[Pending]
    """What changed, ready to be written."""


def run(core: Core, session: Any, planned: Recomputation, go_on: GoOn) -> Changes:
    """Ask the query at each time of the step, at the first one in any case."""
    view = planned.view
    try:
        with (
            or_ended(session),
            job_group(session, view.reader_id, f"step of view {view.name}"),
        ):
            return _run(core, session, planned, go_on)
    except OtherMeaning as error:
        raise StepFailed(view.name, f"{error}; drop the view and create it again") from error
    except HeadwaterError:
        raise
    except PySparkException as error:
        found = _raised(error)
        if found is None:
            raise StepFailed(view.name, spark_message(error)) from error
        hint = RAISE_INSTEAD if _plan(view.plan).functions else ""
        raise StepFailed(view.name, f"{_by(view)} raised {found.text}{hint}") from error
    except Exception as error:  # whatever Spark's gateway or Arrow raises
        raise StepFailed(view.name, cause_of(error)) from error


def _run(core: Core, session: Any, planned: Recomputation, go_on: GoOn) -> Changes:
    target = Target.of(planned.output)
    query = _Query(core, session, planned.view, target.schema)
    rows, errors = planned.before(core)
    row_changes: list[pa.Table] = []
    error_changes: list[pa.Table] = []
    for number, time in enumerate(planned.times(core)):
        if number and not go_on():
            # Between two input times the answer stays, so up to this one it is known.
            planned = planned.until(time)
            break
        answer = query.at(time)
        if answer.rows is not None:
            row_changes.append(_changes(rows, answer.rows, time))
            rows = answer.rows
        error_changes.append(_changes(errors, answer.errors, time))
        errors = answer.errors
    pending = [target.pending(piece, consolidated=True) for piece in _pieces(row_changes)]
    pending += [
        Pending(piece, target.version, target.layout, target.key, True, consolidated=True)
        for piece in _pieces(error_changes)
    ]
    return Changes(planned, pending)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a query says at a time, as multisets; no rows where an input has errors."""

    rows: pa.Table | None
    errors: pa.Table


class _Query:
    """The query of one step, in a session of its own."""

    def __init__(self, core: Core, session: Any, view: RecomputedView, schema: pa.Schema) -> None:
        self._core = core
        self._session = query_session(session)
        self._relations = view.relations
        self._schema = schema
        self._plan = _plan(view.plan)

    def at(self, time: int) -> _Answer:
        # Kept until the query has run: they keep what it reads from being collected.
        snapshots: dict[str, Snapshot] = {}
        for name, gid in self._relations.items():
            snapshot = take_snapshot(self._core, gid, time)
            assert snapshot is not None, "waits for as long as it takes"
            snapshots[name] = snapshot
        found = [snapshot.errors().drop_columns([DIFF]) for snapshot in snapshots.values()]
        errors = _least(pa.concat_tables([ERROR_SCHEMA.empty_table(), *found]))
        if errors.num_rows:
            return _Answer(None, errors)
        try:
            # Built anew for each time: a planned frame that is run again may return old data.
            frames = {n: rows_frame(self._session, snapshot) for n, snapshot in snapshots.items()}
            frame = execute(self._session, self._plan, frames)
            answer = rows_of(self._session, frame, small=is_small(self._plan, snapshots))
        except NegativeMultiplicity as error:
            return _failing(NEGATIVE, str(error))
        except PySparkException as error:
            negative = _negative(error)
            if negative is not None:
                return _failing(NEGATIVE, negative)
            message = _of_data(error, self._plan)
            if message is not None:
                return _failing(error.getCondition(), message)
            return self._evaluated(error)
        except Py4JJavaError as error:
            known = condition_of(error)
            if known is not None and known[0] in ENDLESS:
                return _failing(known[0], plain(known[1]))
            return self._evaluated(error)
        return _Answer(_multiset(answer.rename_columns(self._schema.names), self._schema), errors)

    def _evaluated(self, error: Exception) -> _Answer:
        """Return the failure of an expression; raises any other."""
        found = blame.of_values(self._session, error)
        if found is None:
            raise error
        return _failing(found.condition, found.message)


def _failing(condition: str | None, message: str) -> _Answer:
    row = {"condition": condition, "message": message}
    return _Answer(None, _multiset(pa.Table.from_pylist([row], ERROR_SCHEMA), ERROR_SCHEMA))


def _of_data(error: PySparkException, plan: Plan) -> str | None:
    """Return what to say of a failure if the data is to blame for it."""
    if (error.getSqlState() or "").startswith(DATA_EXCEPTIONS):
        return plain(str(error.getMessage()))
    found = _raised(error) if plan.functions else None
    return f"{found.text} (in {_names(plan)})" if found is not None and found.of_row else None


def _negative(error: PySparkException) -> str | None:
    """Return what a task says of an input that has a row fewer than zero times."""
    found = _raised(error)
    kind, _, message = found.text.partition(": ") if found is not None else ("", "", "")
    return message if kind.split(".")[-1] == NegativeMultiplicity.__name__ else None


def _raised(error: PySparkException) -> Raised | None:
    if error.getCondition() != user_functions.CONDITION:
        return None
    return user_functions.raised((error.getMessageParameters() or {}).get("traceback", ""))


def _by(view: RecomputedView) -> str:
    return _names(_plan(view.plan)) or "a task"


def _names(plan: Plan) -> str:
    return " or ".join(f"{function.name}()" for function in plan.functions)


def _least(errors: pa.Table) -> pa.Table:
    order = [(name, "ascending") for name in ERROR_SCHEMA.names]
    return _multiset(errors.sort_by(order).slice(0, 1), ERROR_SCHEMA)


def _multiset(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return each distinct row once, with its multiplicity."""
    ones = pa.array(np.ones(rows.num_rows, np.int64))
    return consolidate(rows.cast(schema).append_column(DIFF, ones))


def _changes(before: pa.Table, after: pa.Table, time: int) -> pa.Table:
    """Return the updates at ``time`` that turn one multiset into the other."""
    data = pa.schema([field for field in after.schema if field.name != DIFF])
    schema = evolution.updates_schema(data)
    signed = [_at(after, time, 1, schema), _at(before, time, -1, schema)]
    return consolidate(pa.concat_tables(signed))


def _at(multiset: pa.Table, time: int, sign: int, schema: pa.Schema) -> pa.Table:
    diffs = pa.array(column_longs(multiset, DIFF) * sign)
    times = pa.array(np.full(multiset.num_rows, time, np.int64))
    columns = [*(multiset.column(name) for name in schema.names[:-2]), times, diffs]
    return pa.table(columns, names=schema.names).cast(schema)


def _pieces(changes: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """Return all changes in parts of a good size; each time's are consolidated already."""
    if changes:
        whole = pa.concat_tables(changes)
        for offset in range(0, whole.num_rows, PART_ROWS_TARGET):
            yield whole.slice(offset, PART_ROWS_TARGET)
