"""Joins that several views of a step have in common: one join for all of them.

Two joins are *the same* if they join the same updates of the same stored collections along the same
paths: by equal columns, through the same shared arrangements, over the same times. Which columns
they want of what they join may differ. The *joint* join has every column that any of them wants,
under names of its own; each takes its columns out of the one answer. Of what filters will leave out
it leaves out what all of them will.

Joins of lanes are never the same: what is in a lane is its view's own. Nor are those of a view's
first step, which runs alone.

Pure. Kept by: this module. Relied on by: ``stage.py``: eight views over the same inputs should cost
little more than one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from headwater.compute.dataflow.graph import DeltaJoin, Hop, Scanned
from headwater.compute.dataflow.ops.of_use import OfUse, common, of_use_as
from headwater.compute.dataflow.task import ViewTask
from headwater.compute.dataflow.term import Input
from headwater.compute.ir.expression import Column, Field

Place = tuple[int, str]
"""A column of a join, whatever a view calls it: the number of an input, and the field of it."""


@dataclass(frozen=True, slots=True)
class Joint:
    """The join that several are one in; arrangements have the names that the first has for them."""

    join: DeltaJoin
    output: tuple[Column, ...]
    taken: tuple[tuple[str, ...], ...]
    """For each of them: which of these columns its own are, in their order."""
    asked: OfUse
    """What all of them keep of their inputs."""


def identity(join: DeltaJoin, view: ViewTask) -> Hashable | None:
    """Return what is equal for joins that are the same; ``None``: this one is like no other."""
    inputs = [origin for origin in join.inputs if isinstance(origin, Scanned)]
    if view.hydrating or len(inputs) < len(join.inputs):
        return None
    places = _places(join)
    # Updates of one collection over one interval are one object in a step (``maintained.py``).
    updates = tuple(id(view.inputs[origin.relation]) for origin in inputs)
    paths = tuple(tuple(_hop(hop, view, places) for hop in path) for path in join.paths)
    return updates, paths


def _hop(hop: Hop, view: ViewTask, places: dict[str, Place]) -> Hashable:
    probe = tuple(places[name] for name in hop.probe)
    return hop.input, view.shared[hop.arrangement], probe, hop.null_safe


def joint(joins: Sequence[DeltaJoin], wanted: Sequence[Sequence[str]]) -> Joint:
    """Return the one join of several that are the same, given the columns each of them wants."""
    named: dict[Place, Column] = {}
    for join in joins:
        for number, origin in enumerate(join.inputs):
            assert isinstance(origin, Scanned)
            for field in origin.fields:
                column = Column(f"_joint_{len(named)}", field.column.type, field.column.nullable)
                named.setdefault((number, field.field), column)
    first, places = joins[0], _places(joins[0])
    paths = tuple(
        tuple(
            Hop(
                hop.input,
                hop.arrangement,
                tuple(named[places[name]].name for name in hop.probe),
                hop.null_safe,
            )
            for hop in path
        )
        for path in first.paths
    )
    inputs = tuple(
        Scanned(origin.relation, tuple(Field(f, c) for (n, f), c in named.items() if n == number))
        for number, origin in enumerate(first.inputs)
        if isinstance(origin, Scanned)
    )
    of_each = [_places(join) for join in joins]
    taken = tuple(
        tuple(named[own[name]].name for name in names)
        for own, names in zip(of_each, wanted, strict=True)
    )
    used = {name for names in taken for name in names}
    output = tuple(column for column in named.values() if column.name in used)
    asked = common([of_use_as(join, _inputs(join, named)) for join in joins])
    return Joint(DeltaJoin(inputs, paths, first.output), output, taken, asked)


def _inputs(join: DeltaJoin, named: Mapping[Place, Column]) -> list[dict[str, Input]]:
    """Return of each input what its columns are called in the joint join."""
    found: list[dict[str, Input]] = [{} for _ in join.inputs]
    for name, place in _places(join).items():
        found[place[0]][name] = Input(named[place].name, named[place].type)
    return found


def _places(join: DeltaJoin) -> dict[str, Place]:
    return {
        field.column.name: (number, field.field)
        for number, origin in enumerate(join.inputs)
        if isinstance(origin, Scanned)
        for field in origin.fields
    }
