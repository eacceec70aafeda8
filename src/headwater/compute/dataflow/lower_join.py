"""The rule of inner joins: a tree of them is one delta join over all its inputs.

    (A ⋈ B) ⋈ C   with filters and projections in between   =   steps of ⋈(A, B, C)

so no intermediate result is kept. An input is read *raw* (``raw.py``) where its keys are columns of
a stored collection; otherwise it is a lane that has its keys as columns, with an arrangement that
belongs to the view. Filters, computed columns and residual conditions are steps after the join, in
the order in which the plan has them: what a filter protects (``x <> 0`` below ``1 / x``) stays
protected. An equality between two plain columns in a filter is a key where there is no other. What
keys some path does not look up by is checked before all of that.

A filter of one lane is put below its arrangement, which then keeps only what can join, if neither
it nor anything before it can fail: no error comes or goes by that. (What is read raw is arranged
for all views, and filtered by each; where a stage can compute the filter, before rows are looked up
that it would leave out.) Not, if the step would then have a passage more.

Inputs that no equality relates are brought together by a column that is the same in all rows;
inequalities between columns of theirs keep most pairs from being made (``ops/within.py``).

What is not taken into the one join and becomes an input of its own: a join that two operators read,
one whose names are also used elsewhere in the tree (names are distinct where they are visible, not
below), a side whose key is computed from several inputs, and one whose filters, computations or
keys may fail on a row (``ir/fallible.py``): what they fail on is an error of the view, as it is of
the plan: on just the rows of that side, also if these join nothing further. Which those are is
found by trying.

Kept by: this module, against an oracle (``tests/unit/dataflow/test_random_plans.py``).
Relied on by: ``lower.py``, ``lower_match.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.collection.key import key_form
from headwater.compute.dataflow.flow import (
    ONE,
    Context,
    Flow,
    Piece,
    columns_of,
    computed,
    filtered,
    is_key,
)
from headwater.compute.dataflow.graph import DeltaJoin, Hop, Origin, Scanned, Within
from headwater.compute.dataflow.hops import Equality, Lookup, Routes, Strength, components, routes
from headwater.compute.dataflow.leaf import Leaf
from headwater.compute.dataflow.needs import names
from headwater.compute.dataflow.ops.of_use import askable
from headwater.compute.dataflow.ops.within import both_ways, is_comparable
from headwater.compute.dataflow.raw import (
    Compute,
    Keep,
    Step,
    judged,
    live_before,
    raw,
    stepped,
    uncast,
)
from headwater.compute.ir.conjuncts import conjunction, conjuncts
from headwater.compute.ir.expression import BOOLEAN, NAME, Column, Expression, JoinKey, Named
from headwater.compute.ir.fallible import may_fail
from headwater.compute.ir.in_turn import plainly
from headwater.compute.ir.node import Filter, Join, Node, Project

_EQUAL: Final = re.compile(rf"\(({NAME.pattern}) (=|<=>) ({NAME.pattern})\)")


def is_join(context: Context, node: Node) -> bool:
    """Whether it is an inner join, or filters of one that nobody else reads."""
    while isinstance(node, Filter) and not context.is_shared(node.input):
        node = node.input
    return isinstance(node, Join) and node.kind == "inner"


def joined(context: Context, node: Node, wanted: Sequence[str], *, flat: bool = True) -> Flow:
    """Return the rows of an inner join or of filters of one; not ``flat``: its sides are inputs."""
    apart = node.inputs if not flat else ()
    shape = _Shape(opaque=set(map(id, apart)), narrows=flat and context.narrows)
    while True:
        try:
            tree = _Tree(context, shape)
            tree.top(node)
            tree.relate()
            break
        except _Otherwise as other:
            other.note(shape)
    return tree.lowered(wanted)


# ---- what is tried ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Shape:
    """Which operators are inputs of their own, and which inputs are lanes; by identity."""

    opaque: set[int] = field(default_factory=set)
    laned: set[int] = field(default_factory=set)
    narrows: bool = True
    """Whether lanes may be filtered: not where others read the same ones, arranged as they are."""


class _Otherwise(Exception):
    """Raised when a shape does not do; every time one more operator is set apart, so it ends."""

    def __init__(self, opaque: Sequence[Node] = (), laned: Sequence[Node] = ()) -> None:
        super().__init__()
        self.opaque, self.laned = opaque, laned

    def note(self, shape: _Shape) -> None:
        new = {id(n) for n in self.opaque} - shape.opaque
        other = {id(n) for n in self.laned} - shape.laned
        assert new or other, "the same shape would be tried again"
        shape.opaque |= new
        shape.laned |= other


@dataclass(slots=True)
class _Part:
    """A subtree: the names that it uses, and the inputs' columns behind those it shows."""

    node: Node
    names: frozenset[str]
    plain: dict[str, tuple[int, str]]
    types: dict[str, str]
    leaves: list[int]


class _Tree:
    """One attempt to see a tree of joins as one join."""

    def __init__(self, context: Context, shape: _Shape) -> None:
        self._context, self._shape = context, shape
        self._leaves: list[Leaf] = []
        self._steps: list[tuple[Step, int | None]] = []
        """Each with the equality that makes it unnecessary, if there is one."""
        self._equalities: list[Equality] = []

    # ---- flattening ------------------------------------------------------------------------

    def top(self, node: Node) -> _Part:
        match node:
            case Filter():
                part = self.top(node.input)
                self._filter(part.plain, node.condition)
                return part
            case Join():
                return self._join(node)
            case _:
                raise AssertionError(node)

    def _join(self, join: Join) -> _Part:
        left, right = self._part(join.left), self._part(join.right)
        self._set_apart(left, right)
        for key in join.keys:
            self._key(left, right, key)
        if join.residual is not None:
            self._filter({**left.plain, **right.plain}, join.residual)
        return _Part(
            join,
            left.names | right.names,
            {**left.plain, **right.plain},
            {**left.types, **right.types},
            [*left.leaves, *right.leaves],
        )

    def _part(self, node: Node) -> _Part:
        if not self._is_taken_in(node):
            return self._leaf(node)
        match node:
            case Join():
                part = self._join(node)
                if node.residual is not None:
                    self._require_safe(part, node, (node.residual,))
                return part
            case Filter():
                part = self._part(node.input)
                self._require_safe(part, node, (node.condition,))
                self._filter(part.plain, node.condition)
                part.node = node
                return part
            case Project():
                part = self._part(node.input)
                self._require_safe(part, node, [output.expression for output in node.outputs])
                return self._project(part, node)
            case _:
                raise AssertionError(node)

    def _require_safe(self, part: _Part, node: Node, done: Sequence[Expression]) -> None:
        """Set apart what may fail on rows of a join: of those that join nothing further, too."""
        if any(may_fail(expression, part.types) for expression in done):
            raise _Otherwise(opaque=[node])

    def _is_taken_in(self, node: Node) -> bool:
        """Whether it is a join, or filters and projections of one, that can be part of this one."""
        while id(node) not in self._shape.opaque and not self._context.is_shared(node):
            match node:
                case Join():
                    return node.kind == "inner"
                case Filter() | Project():
                    node = node.input
                case _:
                    return False
        return False

    def _leaf(self, node: Node) -> _Part:
        stored = None if id(node) in self._shape.laned else raw(node)
        number = len(self._leaves)
        self._leaves.append(Leaf(node, stored))
        shown = {column.name: column.type for column in node.columns}
        if stored is None:
            plain = {name: (number, name) for name in shown}
            return _Part(node, frozenset(shown), plain, shown, [number])
        self._steps.extend((step, None) for step in stored.steps)
        plain = {name: (number, column) for name, column in stored.plain.items()}
        return _Part(node, stored.names, plain, shown, [number])

    def _project(self, part: _Part, node: Project) -> _Part:
        used = set(part.names)
        plain: dict[str, tuple[int, str]] = {}
        for output in node.outputs:
            source = uncast(output.expression, part.types)
            if source in part.plain:
                plain[output.name] = part.plain[source]
            if output.expression.text == output.name:
                continue
            if output.name in used:
                raise _Otherwise(opaque=[node])
            used.add(output.name)
            self._steps.append((Compute(output), None))
        types = {column.name: column.type for column in node.columns}
        return _Part(node, frozenset(used), plain, types, part.leaves)

    def _set_apart(self, left: _Part, right: _Part) -> None:
        """Retry if the two sides use a name twice: as inputs of their own they do not."""
        if not left.names & right.names:
            return
        parts = [p for p in (right, left) if not self._is_set_apart(p)]
        raise _Otherwise(
            opaque=[p.node for p in parts[:1]],
            laned=[p.node for p in parts[:1]],
        )

    def _is_set_apart(self, part: _Part) -> bool:
        return {id(part.node)} <= self._shape.opaque & self._shape.laned

    # ---- equalities ------------------------------------------------------------------------

    def _filter(self, plain: dict[str, tuple[int, str]], condition: Expression) -> None:
        found = _EQUAL.fullmatch(condition.text)
        number = None
        if found is not None:
            left, right = plain.get(found[1]), plain.get(found[3])
            if left is not None and right is not None:
                number = self._equal(left, right, found[2] == "<=>", "filter")
        self._steps.append((Keep(condition), number))

    def _key(self, left: _Part, right: _Part, key: JoinKey) -> None:
        check = Expression(
            key.text,
            BOOLEAN,
            True,
            tuple(sorted({*key.left.columns, *key.right.columns})),
        )
        sides = (self._resolved(left, key.left), self._resolved(right, key.right))
        number = self._equal(*sides, key.comparison == "<=>", "key")
        self._steps.append((Keep(check), number))

    def _resolved(self, part: _Part, key: Expression) -> tuple[int, str]:
        """Return the column of an input that a key is; retry if it is none yet."""
        source = uncast(key, part.types)
        if source in part.plain:
            return part.plain[source]
        if len(part.leaves) > 1:
            # It is asked of the rows of the join, not of those of an input that join nothing.
            self._require_safe(part, part.node, (key,))
            owner = {part.plain[name][0] for name in key.columns if name in part.plain}
            shown = all(
                part.plain.get(name) == (number, name) for name in key.columns for number in owner
            )
            if len(owner) != 1 or not shown:
                raise _Otherwise(opaque=[part.node])
            (number,) = owner
        else:
            (number,) = part.leaves
        leaf = self._leaves[number]
        if leaf.raw is not None:
            raise _Otherwise(laned=[leaf.node])
        if key.text not in leaf.keys:
            leaf.keys[key.text] = Named(self._context.build.fresh("key"), key)
        return number, leaf.keys[key.text].name

    def _equal(
        self, left: tuple[int, str], right: tuple[int, str], null_safe: bool, strength: Strength
    ) -> int | None:
        """Return the number of a new equality; ``None`` if nothing can be looked up by it."""
        if left[0] == right[0]:
            return None
        types = [Column("_c_0", self._leaves[i].type_of(name), True) for i, name in (left, right)]
        if not all(map(is_key, types)):
            return None
        if len({key_form(column.sql_type.arrow) for column in types}) > 1:
            return None
        self._equalities.append(Equality(left, right, null_safe, strength))
        return len(self._equalities) - 1

    def relate(self) -> None:
        """Relate what no equality does by a constant."""
        groups = components(len(self._leaves), self._equalities)
        if len(groups) == 1:
            return
        ends: list[tuple[int, str]] = []
        for group in groups:
            number = next((i for i in group if self._leaves[i].raw is None), group[0])
            leaf = self._leaves[number]
            if leaf.raw is not None:
                raise _Otherwise(laned=[leaf.node])
            leaf.one = Named(self._context.build.fresh("one"), ONE)
            ends.append((number, leaf.one.name))
        self._equalities.extend(Equality(ends[0], end, strength="constant") for end in ends[1:])

    # ---- the operator ----------------------------------------------------------------------

    def lowered(self, wanted: Sequence[str]) -> Flow:
        build = self._context.build
        plain = self._conditions([step for step, number in self._steps if number is None])
        narrowed = frozenset(askable(plain, [leaf.columns for leaf in self._leaves]).values())
        orders = [leaf.key_order() for leaf in self._leaves]
        found = routes(orders, self._equalities, narrowed)
        steps = self._checked_first(found)
        if self._shape.narrows:
            steps = self._narrowed(steps)
        live = live_before(steps, wanted)
        keys = {name for path in found.paths for hop in path for name in (*hop.key, *hop.probe)}
        inputs = tuple(self._origin(leaf, live | keys) for leaf in self._leaves)
        columns = [column for origin in inputs for column in origin.columns if column.name in live]
        compared = self._comparisons(steps)
        paths = tuple(
            tuple(
                self._hop(inputs[lookup.input], lookup, compared, {number, *_inputs(path[:place])})
                for place, lookup in enumerate(path)
            )
            for number, path in enumerate(found.paths)
        )
        output = build.lane(columns)
        kept = askable(self._conditions(steps), [origin.columns for origin in inputs])
        build.add(DeltaJoin(inputs, paths, output, tuple(kept)))
        rows = stepped(build.flow_of(output), steps, wanted)
        return (*rows, *self._judged(columns_of(rows), steps, wanted))

    def _checked_first(self, found: Routes) -> list[Step]:
        """Return the steps, first those that check what not every path enforces.

        So what may fail does on the same pairs whichever input changes, and its errors cancel.
        """
        checks = [step for step, number in self._steps if number in found.unenforced]
        needed = {name for check in checks for name in live_before([check], ())}
        before: list[Step] = []
        for step, _ in reversed(self._steps):
            # Columns under other names or in wider types, which nothing fails on.
            if isinstance(step, Compute) and step.output.name in needed:
                needed.update(step.output.expression.columns)
                before.insert(0, step)
        first = [*before, *checks]
        return [*first, *(s for s, number in self._steps if number is None and s not in first)]

    def _narrowed(self, steps: Sequence[Step]) -> list[Step]:
        """Put filters of one lane below it; return the steps that are left."""
        safe = self._safe(steps)
        left = [one for step in steps[:safe] for one in self._left_of(step)]
        return [*left, *steps[safe:]]

    def _safe(self, steps: Sequence[Step]) -> int:
        """Return how many of the steps come before the first that may fail."""
        types = {name: type_ for name, (_, type_) in self._columns().items()}
        for number, step in enumerate(steps):
            match step:
                case Keep(condition) if not may_fail(condition, types):
                    pass
                case Compute(output) if not may_fail(output.expression, types):
                    types[output.name] = output.expression.type
                case _:
                    return number
        return len(steps)

    def _columns(self) -> dict[str, tuple[int, str]]:
        """Return of each column of an input the number of that, and its type."""
        found: dict[str, tuple[int, str]] = {}
        for number, leaf in enumerate(self._leaves):
            found.update((column.name, (number, column.type)) for column in leaf.columns)
        return found

    def _comparisons(self, steps: Sequence[Step]) -> list[tuple[int, Within, int]]:
        """Return what must be less or greater than what, both ways, with their inputs.

        A pair that a safe condition turns away need not be made for what comes after it to fail on.
        """
        columns, found = self._columns(), list[tuple[int, Within, int]]()
        for part in self._conditions(steps):
            for one in both_ways(part.text):
                if one.probed in columns and one.found in columns:
                    (a, a_type), (b, b_type) = columns[one.probed], columns[one.found]
                    if a != b and is_comparable(a_type, b_type):
                        found.append((a, one, b))
        return found

    def _conditions(self, steps: Sequence[Step]) -> list[Expression]:
        """Return what is asked of all rows before anything that may fail."""
        safe = (step for step in steps[: self._safe(steps)] if isinstance(step, Keep))
        return [plainly(part) for step in safe for part in conjuncts(step.condition)]

    def _left_of(self, step: Step) -> Sequence[Step]:
        """Return what is left of a step to be done after the join."""
        if not isinstance(step, Keep):
            return (step,)
        parts = conjuncts(step.condition)
        after = [part for part in parts if not self._is_put_below(part)]
        if len(after) == len(parts):
            return (step,)
        return (Keep(conjunction(after)),) if after else ()

    def _is_put_below(self, condition: Expression) -> bool:
        if not condition.columns:
            return False
        for leaf in self._leaves:
            mine = leaf.raw is None and set(condition.columns) <= set(names(leaf.node))
            if mine and not leaf.key_may_fail():
                leaf.kept.append(condition)
                return True
        return False

    def _judged(
        self, shown: Sequence[Column], steps: Sequence[Step], wanted: Sequence[str]
    ) -> Flow:
        """Return the failures of what is to be done to single inputs, on rows without a partner."""
        pieces: list[Piece] = []
        for leaf in self._leaves:
            if leaf.raw is not None and leaf.raw.steps:
                own = set(leaf.raw.steps)
                others = [step for step in steps if step not in own]
                used = live_before(others, wanted)
                pieces.extend(judged(self._context.build, leaf.raw, shown, used))
        return tuple(pieces)

    def _origin(self, leaf: Leaf, carried: frozenset[str]) -> Origin:
        if leaf.raw is not None:
            fields = tuple(f for f in leaf.raw.scan.fields if f.column.name in carried)
            return Scanned(leaf.raw.scan.relation, fields)
        flow = self._context.flow(leaf.node)
        for condition in leaf.kept:
            flow = filtered(flow, condition)
        flow = computed(flow, tuple(leaf.computed()))
        return self._context.build.origin(flow)

    def _hop(
        self,
        origin: Origin,
        lookup: Lookup,
        compared: Sequence[tuple[int, Within, int]],
        known: set[int],
    ) -> Hop:
        name = self._context.build.arrangement(origin, lookup.key)
        one = self._leaves[lookup.input].one
        within: tuple[Within, ...] = ()
        if one is not None and lookup.key == (one.name,):
            within = tuple(w for a, w, b in compared if a in known and b == lookup.input)
        return Hop(lookup.input, name, lookup.probe, lookup.null_safe, within)


def _inputs(path: Sequence[Lookup]) -> list[int]:
    return [lookup.input for lookup in path]
