"""Native edges: those whose filters and projections a stage computes by itself, on Arrow's columns.

    rows of native(edge)(updates)  ==  rows of its passage (``passage.py``), its failures included

An edge that needs the JVM is a pass over every row there, and a Python process more behind it: some
20 ms of a step in which nothing is computed. Most filters and sums need neither. An edge is native
if all its expressions are terms (``term.py``); that is known when views are planned.

As in a passage, a projection is computed where it is used: what a filter leaves out does not fail,
and a row that fails, fails as a whole. Where Arrow says that some row does, the rows are halved
until it is known which; Spark is asked for the reason, with the same text, by the driver.

A single condition (:func:`condition_term`) can be asked of rows anywhere (:func:`where`).

Kept by: this module, against Spark in ``tests/spark/test_native.py``. Relied on by: ``chain.py``,
``stage.py``; ``ops/of_use.py``, by which joins leave out soon what a filter would
leave out later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.compute.dataflow.edge import Edge
from headwater.compute.dataflow.term import (
    BOOLEAN,
    DEPTH_MAX,
    Input,
    NotNative,
    Term,
    Values,
    levels,
    may_fail,
)
from headwater.compute.dataflow.term_text import term_of
from headwater.compute.ir.expression import Expression
from headwater.compute.ir.node import Filter, Project
from headwater.persist.consolidate import DIFF, TIME

PARTS_MAX: Final = 500
"""Of how many parts a term may be: projections that mention each other often are the JVM's."""


@dataclass(frozen=True, slots=True)
class Native:
    """What an edge keeps and shows, in terms of its source's columns."""

    kept: tuple[Term, ...]
    """Conditions, each of the rows that the ones before it kept."""
    shown: tuple[Term, ...]

    def moved(self, updates: pa.Table, schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
        """Return the target's updates, and those of the source on which the edge fails."""
        good = list(_pieces(self, updates, schema))
        tables = [piece for piece, _ in good if piece is not None]
        failed = [rows for piece, rows in good if piece is None]
        none = updates.slice(0, 0)
        return pa.concat_tables([schema.empty_table(), *tables]), pa.concat_tables([none, *failed])

    def _computed(self, updates: pa.Table, schema: pa.Schema) -> pa.Table:
        for condition in self.kept:
            updates = updates.filter(Values(updates).column(condition))
        values = Values(updates)
        columns = [values.column(term) for term in self.shown]
        return pa.Table.from_arrays(
            [*columns, updates.column(TIME), updates.column(DIFF)], schema=schema
        )


def _pieces(
    native: Native, updates: pa.Table, schema: pa.Schema
) -> Iterator[tuple[pa.Table | None, pa.Table]]:
    """Yield pieces of the updates with what they become; ``None``: they all fail."""
    try:
        yield native._computed(updates, schema), updates
    except pa.ArrowInvalid:
        if not any(map(may_fail, (*native.kept, *native.shown))):
            raise
        if updates.num_rows == 1:
            yield None, updates
            return
        half = updates.num_rows // 2
        yield from _pieces(native, updates.slice(0, half), schema)
        yield from _pieces(native, updates.slice(half), schema)


def native(edge: Edge) -> Native | None:
    """Return how a stage computes an edge; ``None``: it cannot."""
    *chain, scan = edge.chain()
    names: dict[str, Term] = {c.name: Input(c.name, c.type) for c in scan.columns}
    kept: list[Term] = []
    try:
        for step in reversed(chain):
            if isinstance(step, Filter):
                condition = term_of(step.condition, names)
                if condition.type != BOOLEAN:
                    return None
                if _is_large(condition):
                    return None
                kept.append(condition)
            elif isinstance(step, Project):
                names = {o.name: term_of(o.expression, names) for o in step.outputs}
                if any(_is_large(term) for term in names.values()):
                    return None
            else:
                return None
    except NotNative:
        return None
    return Native(tuple(kept), tuple(names[column.name] for column in edge.node.columns))


def condition_term(of: Expression, names: Mapping[str, Input]) -> Term | None:
    """Return the term of a condition that cannot fail, where these stand for its columns."""
    try:
        found = term_of(of, names)
    except NotNative:
        return None
    return None if found.type != BOOLEAN or may_fail(found) or _is_large(found) else found


def where(rows: pa.Table, conditions: Iterable[Term]) -> npt.NDArray[np.bool_]:
    """Return on which rows all conditions are true."""
    values, true = Values(rows), np.ones(rows.num_rows, np.bool_)
    for term in conditions:
        true &= np.asarray(pc.fill_null(values.column(term), False), dtype=np.bool_)
    return true


def _is_large(term: Term) -> bool:
    return any(
        number >= PARTS_MAX or depth > DEPTH_MAX
        for number, (_, depth) in enumerate(levels(term), start=1)
    )
