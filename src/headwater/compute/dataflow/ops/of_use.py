"""Which rows of its inputs are of no use to a join: those that a filter leaves out after it.

    of_use(rows of an input)  ⊇  the rows of it that are part of what the filters after it leave

A join reads stored collections as they are (``raw.py``), and filters come after it. Asked before it
they keep it from looking up, and from pairing, what they would leave out: a condition of columns of
one input that cannot fail, with nothing before it that can, and that a stage can compute
(``native.py``). Nothing depends on it but the cost: the filters are evaluated after it as well.

Pure. Kept by: ``tests/unit/dataflow/test_of_use.py``. Relied on by: ``lower_join.py``,
``delta_join.py``, ``joint.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from headwater.collection.probe import Kept
from headwater.compute.dataflow.graph import DeltaJoin
from headwater.compute.dataflow.native import condition_term, where
from headwater.compute.dataflow.term import Input, Term, levels
from headwater.compute.ir.expression import Column, Expression

KNOWN_MAX: Final = 1024
"""Of how many joins a process remembers the conditions as terms."""

OfUse = Mapping[int, Sequence[Term]]
"""By input: what must be true of its rows."""


def askable(
    conditions: Iterable[Expression], columns: Sequence[Iterable[Column]]
) -> dict[Expression, int]:
    """Return which of these conditions, none of which can fail, a stage can ask of which input."""
    names = [_named(own) for own in columns]
    asked = ((one, _asked(one, names)) for one in conditions)
    return {one: found[0] for one, found in asked if found is not None}


@lru_cache(maxsize=KNOWN_MAX)
def of_use(join: DeltaJoin) -> OfUse:
    """Return the conditions of a join as terms."""
    return of_use_as(join, [_named(origin.columns) for origin in join.inputs])


def of_use_as(join: DeltaJoin, names: Sequence[Mapping[str, Input]]) -> OfUse:
    """Return the same under other names for the columns of its inputs."""
    found: dict[int, list[Term]] = {}
    for one in join.kept:
        asked = _asked(one, names)
        if asked is not None:
            number, term = asked
            found.setdefault(number, []).append(term)
    return found


def common(several: Sequence[OfUse]) -> OfUse:
    """Return what all of them say."""
    first, *others = several
    return {
        number: [term for term in terms if all(term in other.get(number, ()) for other in others)]
        for number, terms in first.items()
    }


def kept_rows(rows: pa.Table, terms: Sequence[Term]) -> pa.Table:
    """Return the rows of an input for which this is true."""
    return rows.filter(pa.array(where(rows, terms))) if terms and rows.num_rows else rows


def asked_of(terms: Sequence[Term]) -> Kept | None:
    """Return the same for a probe: where it would pair many rows, it asks first."""
    if not terms:
        return None
    parts = (part for term in terms for part, _ in levels(term))
    columns = dict.fromkeys(part.name for part in parts if isinstance(part, Input))
    return Kept(tuple(columns), lambda rows: where(rows, terms))


def _named(columns: Iterable[Column]) -> Mapping[str, Input]:
    return {column.name: Input(column.name, column.type) for column in columns}


def _asked(one: Expression, names: Sequence[Mapping[str, Input]]) -> tuple[int, Term] | None:
    """Return the input that a condition is about, and its term."""
    for number, own in enumerate(names):
        if one.columns and own.keys() >= set(one.columns):
            term = condition_term(one, own)
            return None if term is None else (number, term)
    return None
