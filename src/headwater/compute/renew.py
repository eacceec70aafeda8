"""Making a view anew under another meaning, and going on in the same output.

A stored plan holds under one version of Spark and one set of settings. Where it no longer holds,
the view's text is compiled again, its states are created anew, and it hydrates at the upper ``u``
that its output has by then:

    before u    what was readable stays as it was, for ever
    at u        + the new answer over the inputs at u   - all that the output held before u
    after u     the new answer, by deltas

So readers see one collection without a gap, and states of the old meaning are never mixed with the
new. If both meanings agree, as they mostly do, nothing is written at ``u``: only differences are
(:func:`corrected`). The inputs are there: the old view held them at ``u - 1``. Shared arrangements
hold rows as they were stored, which no version of Spark has a say in, and are used again.

What cannot be made anew stalls and says why: code is not stored, only its plan; and columns of
other types do not fit the output.

**A view that fails for long** keeps what it shares with others from being merged, and they pay for
that with every probe. So it is made anew as it is, with arrangements of its own (:func:`apart`),
and hydrates at its upper once it can be stepped; what it lacks is in its inputs, which it holds.

**An output that is not durable** is empty when its location is opened again: the process that kept
it is gone (``Definition.kept_by`` is not our epoch). The view is made anew as it is
(:func:`again`), with new states, and hydrates at the first time at which its output may be read.
Its inputs are there, because they are held from then on (``step.held``); so it says at every such
time what it said before, and whoever held the output reads on.

Kept by: this module. Relied on by: the controller, before it steps a view, and the stepper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from headwater.base.ids import Epoch
from headwater.compute.dataflow.task import Done
from headwater.compute.definition import Definition
from headwater.compute.install import (
    ASKED,
    Existing,
    Installation,
    Installer,
    Wanted,
    replacement,
)
from headwater.compute.ir import plan as plans
from headwater.compute.ir.refusal import OtherMeaning
from headwater.compute.maintained import GroupStep, ViewStep
from headwater.compute.recompute import RecomputedView
from headwater.compute.session import MEANING
from headwater.compute.step import Interval, StepFailed, token
from headwater.persist.commands import CompareAndAppend
from headwater.persist.consolidate import DIFF, TIME, column_longs, consolidate
from headwater.persist.core import Step
from headwater.persist.decision import collection_of
from headwater.persist.errors import Stopped
from headwater.persist.part import PART_ROWS_TARGET
from headwater.persist.spark_parts import Place, Reading, Target
from headwater.persist.state import State, bound

REMEDY = "drop the view and create it again"


@lru_cache(maxsize=4096)
def outdated(plan: bytes, spark_version: str) -> str | None:
    """Return why a stored plan does not hold under this version and our settings, if so."""
    try:
        plans.decoded(plan).require(spark_version, MEANING)
    except OtherMeaning as error:
        return str(error)
    return None


def renewed(
    state: State, installer: Installer, view: Definition, why: str, others: Iterable[Definition]
) -> Installation:
    """Return the view as it is under today's meaning, and the commands that replace it."""
    if not view.sql:
        raise StepFailed(view.name, f"{why}, and the code it was made of is not stored; {REMEDY}")
    start = state.upper(collection_of(state, view.id)).only()
    made, commands = _installed(installer, _wanted(state, view, start), why)
    return Installation(made, (*commands, *replacement(state, view, made, others)))


def again(
    state: State, installer: Installer, view: Definition, epoch: Epoch, others: Iterable[Definition]
) -> Installation:
    """Return a view whose output went with its process, and the commands that begin it again."""
    output = collection_of(state, view.id)
    upper, since = state.upper(output), output.since
    wanted = replace(_wanted(state, view, since.only()), kept_by=epoch)
    plan = plans.decoded(view.plan)
    if outdated(view.plan, installer.spark_version) is None or not view.sql:
        # The columns of that day, whatever its inputs have got since.
        wanted = replace(wanted, query=plan, text=view.sql)
    made, commands = _installed(installer, wanted, "its output was not durable")
    name = token(view.id, Interval(upper, since))
    begun = (CompareAndAppend(view.id, name, upper, since, ()),) if upper < since else ()
    return Installation(made, (*commands, *begun, *replacement(state, view, made, others)))


def apart(
    state: State, installer: Installer, view: Definition, others: Iterable[Definition]
) -> Installation:
    """Return a view that shares nothing any more, and the commands that replace it."""
    start = state.upper(collection_of(state, view.id)).only()
    plan = plans.decoded(view.plan)
    wanted = replace(_wanted(state, view, start), query=plan, text=view.sql, apart=True)
    made, commands = _installed(installer, wanted, "it keeps others from merging what they share")
    return Installation(made, (*commands, *replacement(state, view, made, others)))


def _wanted(state: State, view: Definition, start: int) -> Wanted:
    return Wanted(
        view.name,
        view.sql,
        {relation: collection_of(state, gid) for relation, gid in view.relations.items()},
        Existing(collection_of(state, view.id), view.given),
        start=start,
        rules=not (isinstance(view, RecomputedView) and view.why == ASKED),
        # Not what the session calls by these names today.
        functions=plans.decoded(view.plan).functions,
        kept_by=view.kept_by,
    )


def _installed(installer: Installer, wanted: Wanted, why: str) -> Installation:
    try:
        return installer.install(wanted)
    except Stopped:
        raise
    except Exception as error:  # whatever Spark's gateway raises: it must not end the stepping
        raise StepFailed(
            wanted.name, f"{why}, and it cannot be made anew: {error}; {REMEDY}"
        ) from error


# ---- the first step after it -------------------------------------------------------------------


def corrected(place: Place, step: Step, group: GroupStep, done: Done) -> Done:
    """Return what a step did, with the outputs of hydrating views as differences to what was."""
    parts = dict(done.parts)
    for view_step in group.views:
        before = list(negated(place, group.state, view_step, errors=False))
        if before:
            output = collection_of(group.state, view_step.view.id)
            reading, target = Reading.of(place, output), Target.of(output)
            answer = [reading.updates(part) for part in parts.get(output.id, ())]
            changes = consolidate(pa.concat_tables([*answer, *before]))
            offsets = range(0, changes.num_rows, PART_ROWS_TARGET)
            pieces = (changes.slice(offset, PART_ROWS_TARGET) for offset in offsets)
            pending = [target.pending(piece, consolidated=True) for piece in pieces]
            parts[output.id] = list(step.write(pending)) if pending else []
    return replace(done, parts=parts)


def negated(place: Place, state: State, step: ViewStep, *, errors: bool) -> Iterator[pa.Table]:
    """Yield the updates that take away, at the step's lower, what the output holds before it.

    There are some only in the first step of a view that was made anew.
    """
    if not step.hydrating:
        return
    output = collection_of(state, step.view.id)
    reading = Reading.of(place, output)
    for batch in output.batches:
        for part in batch.parts:
            if part.errors is errors:
                yield _negated(reading.updates(part), bound(step.interval.lower))


def _negated(updates: pa.Table, time: int) -> pa.Table:
    times = pa.array(np.full(updates.num_rows, time, np.int64))
    diffs = pa.array(-column_longs(updates, DIFF))
    for name, column in ((TIME, times), (DIFF, diffs)):
        index = updates.schema.get_field_index(name)
        updates = updates.set_column(index, updates.schema.field(index), column)
    return updates
