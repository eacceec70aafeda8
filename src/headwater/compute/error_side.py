"""Errors as data: what a step changes in the error sides of its views.

    a view's errors  =  those of its inputs  +  those of its own rows

Both come as updates, with the times and rows that cause them, so that an error goes when its cause
does. A view that was made anew begins by taking back what it had (``renew.py``).

Kept by: this module. Relied on by: ``stepper.py``, which commits it with the rows of the step.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.base.ids import GlobalId
from headwater.compute import renew
from headwater.compute.dataflow.task import Done
from headwater.compute.maintained import GroupStep, ViewStep
from headwater.persist import evolution
from headwater.persist.batch import Part
from headwater.persist.consolidate import consolidate
from headwater.persist.core import Step
from headwater.persist.decision import collection_of
from headwater.persist.evolution import DIFF, ERROR_SCHEMA, TIME
from headwater.persist.part import Pending
from headwater.persist.spark_parts import Place, Reading, Target


def written(
    place: Place, step: Step, group: GroupStep, done: Done
) -> dict[GlobalId, Sequence[Part]]:
    """Write what changes in each view's error side."""
    changed: dict[GlobalId, Sequence[Part]] = {}
    for number, view_step in enumerate(group.views):
        updates = _updates(place, number, view_step, group, done)
        if updates is not None and updates.num_rows:
            target = Target.of(collection_of(group.state, view_step.view.id))
            pending = Pending(
                updates, target.version, target.layout, target.key, True, consolidated=True
            )
            changed[view_step.view.id] = step.write([pending])
    return changed


def _updates(
    place: Place, number: int, step: ViewStep, group: GroupStep, done: Done
) -> pa.Table | None:
    schema = evolution.updates_schema(ERROR_SCHEMA)
    tables = list(renew.negated(place, group.state, step, errors=True))
    for relation, cut in step.errors.items():
        if cut.parts:
            collection = collection_of(group.state, step.view.relations[relation])
            found = cut.read(Reading.of(place, collection))
            tables += [table.select(schema.names).cast(schema) for table in found]
    own = [
        {
            "condition": error.condition,
            "message": error.message,
            "context": error.context,
            TIME: error.time,
            DIFF: error.diff,
        }
        for error in done.errors
        if error.view == number
    ]
    if own:
        tables.append(pa.Table.from_pylist(own, schema=schema))
    return consolidate(pa.concat_tables(tables)) if tables else None
