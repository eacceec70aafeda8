"""What an operator of a dataflow is given in a step, and what it answers.

    step(op, given) -> Outcome        one such function per operator, in a module of its own (ops/)

A step covers the times ``[lower, upper)``. Of each origin the operator gets its *delta*, the
updates of these times; of each arrangement its *history*, which can be probed at any time below
``upper`` and contains the delta as well; of each of its own states the history before the step. It
answers with the updates of its output, and of its states, at times in ``[lower, upper)``. For every
``t`` in there

    output up to t  =  operator(inputs up to t)        as multisets

and that is all an operator has to keep; that it reads no more than its bound is counted
(:attr:`History.rows_read`). Operators are pure: no Spark, no files, no clock.

A *hydrating* step is the first of a view: the inputs' whole past is in its delta, at ``lower``. A
shared arrangement may be older than the view; its past counts as being at ``lower`` too.

Deltas and outputs need not be consolidated: who has to tell rows apart does it for the columns it
looks at, which are often fewer. States are: they are kept.

Columns have the types of ``collection/types.py``; the order of rows is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.around import Around, around, between
from headwater.collection.probe import Kept, probe
from headwater.collection.run import Run
from headwater.compute.dataflow.graph import Origin
from headwater.compute.dataflow.memory import Memory
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME

Longs = npt.NDArray[np.int64]


def update_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the columns of updates of rows with these columns; all data may be NULL in transit."""
    return _update_schema(tuple(columns))


@lru_cache(maxsize=4096)
def _update_schema(columns: tuple[Column, ...]) -> pa.Schema:
    data = [pa.field(column.name, column.sql_type.arrow) for column in columns]
    return pa.schema([*data, pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64())])


@dataclass(slots=True)
class History:
    """An arrangement, or a state, as it is in a step: everything before the step's upper.

    ``floor``: the past before it counts as being at it (a hydrating view over an older
    arrangement). ``ignore_from``: later updates are not the step's business.
    """

    runs: Sequence[Run]
    key: tuple[str, ...]
    schema: pa.Schema
    """The columns of its updates, without ``__hash``."""
    ignore_from: int | None = None
    floor: int | None = None
    rows_read: int = 0
    memory: Memory | None = None
    """Of a state: rows of it that need not be looked up."""

    def probe(
        self,
        keys: Sequence[Any],
        *,
        at: int | Longs | None = None,
        strict: bool = False,
        null_safe: bool | Sequence[bool] = False,
        columns: Sequence[str] | None = None,
        kept: Kept | None = None,
    ) -> pa.Table:
        """Return the updates of each key at its time; see ``collection/probe.py``.

        The result has ``__probe_index``, then ``columns`` (all, if not given, with ``__time`` and
        ``__diff``), and is not consolidated.
        """
        floor = self.floor
        if floor is not None and at is not None and strict:
            # What is before the floor is at the floor, so nothing is before a time at the floor.
            times = np.broadcast_to(np.asarray(at, np.int64), (len(keys[0]),))
            at = np.where(times <= floor, np.iinfo(np.int64).min, times)

        def asked(rows: pa.Table) -> npt.NDArray[np.bool_]:
            assert kept is not None
            passes = kept.passes(rows)
            self.rows_read += rows.num_rows - int(passes.sum())
            return passes

        found = probe(
            self.runs,
            keys,
            at=at,
            strict=strict,
            ignore_from=self.ignore_from,
            null_safe=null_safe,
            columns=columns,
            schema=self.schema,
            kept=None if kept is None else kept._replace(passes=asked),
        )
        self.rows_read += found.num_rows
        if floor is not None and TIME in found.column_names:
            position = found.column_names.index(TIME)
            found = found.set_column(
                position,
                TIME,
                pc.max_element_wise(found.column(TIME), pa.scalar(floor, pa.int64())),
            )
        return found

    def around(self, places: Longs, margins: Longs, columns: Sequence[str]) -> Around:
        """Return what is around places of an ordered state; see ``collection/around.py``."""
        found = around(self.runs, places, margins, columns, self.schema, self.ignore_from)
        self.rows_read += found.rows.num_rows
        return found

    def between(self, least: Longs, most: Longs, columns: Sequence[str]) -> pa.Table:
        """Return what is between numbers of an ordered state; see ``collection/around.py``."""
        found = between(self.runs, least, most, columns, self.schema, self.ignore_from)
        self.rows_read += found.num_rows
        return found

    def under(self, key: Any, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all updates of one key, run by run, in memory one run at a time."""
        for run in self.runs:
            alone = replace(self, runs=(run,), rows_read=0)
            found = alone.probe([key], columns=columns)
            self.rows_read += alone.rows_read
            yield found


@dataclass(frozen=True, slots=True)
class Given:
    """Everything an operator sees in a step."""

    lower: int
    upper: int
    hydrating: bool
    deltas: Mapping[Origin, pa.Table]
    """Per origin of the operator, under the names the operator knows."""
    arrangements: Mapping[str, History]
    """By name: the past and the delta."""
    states: Mapping[str, History]
    """By name: before the step."""
    output: pa.Schema
    """What the output's updates must look like."""
    state_schemas: Mapping[str, pa.Schema] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step of an operator changes."""

    output: pa.Table
    states: Mapping[str, pa.Table] = field(default_factory=dict)
    """By name, consolidated."""
    errors: pa.Table | None = None
    """Updates of ``persist/evolution.py``'s ERROR_SCHEMA: causes that come and go."""
    scheduled: int | None = None
    """The operator has output at no time from the step's upper on and before this one, unless its
    inputs change; ``None``: at no time at all."""
    consolidated: bool = False
    """Whether the output is known to be."""
    memories: Mapping[str, Memory] = field(default_factory=dict)
    """Of a state by name: rows of it after the step, for the next one."""
