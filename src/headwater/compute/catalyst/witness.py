"""Which rows of a plan Spark has to be asked about once more, for their failures alone.

    a plan fails on some inputs  ==  some expression fails on a row that gets to it *in the plan*

Spark, given the text of a whole plan, evaluates what it needs: not a side of a join whose other
side has no rows, not what a row without a partner would have shown, not a second pair where a semi
join has found one. What it leaves out depends on sizes and settings, and so would the error of a
query. A maintained view evaluates all of it (``dataflow/raw.py``), and so says the plan.

So where something below a join may fail there is a *witness* beside the query: a SELECT over the
same rows that asks for all that may fail and has no rows, in one UNION ALL with the answer.

- :class:`Side`: every row of one side of a join, with all columns and its keys.
- :class:`Pairs`: the pairs whose keys match, with the residual, of a join that may not look at all
  of them.

The rest of a plan, above its last joins, is evaluated by the query itself. Nothing is asked twice
where nothing can fail (``ir/fallible.py``), which is most plans.

Pure. Kept by: this module. Relied on by: ``render.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from headwater.compute.ir.expression import AggregateCall, Column, Expression, WindowCall
from headwater.compute.ir.fallible import may_fail
from headwater.compute.ir.node import (
    Aggregate,
    Bag,
    Distinct,
    Expand,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    TemporalFilter,
    Text,
    TopK,
    Union,
    Values,
    Window,
    walk,
)

_NEVER_FAIL: Final = re.compile(
    "any|any_value|bool_and|bool_or|collect_list|collect_set|count|count_if|cume_dist|dense_rank|"
    "every|first|first_value|lag|last|last_value|lead|max|max_by|min|min_by|mode|ntile|"
    "percent_rank|rank|row_number|some"
)
"""Calls that fail on no rows, if their arguments do not."""
_SUMS: Final = frozenset({"sum", "avg", "mean"})
_SUMMED: Final = re.compile(
    r"tinyint|smallint|int|float|double|decimal\((?:1?[0-9]|2[0-8]),\s*[0-9]+\)"
)
"""Types of which no sum is too large."""
_EXPLODED: Final = re.compile(r"(?:pos)?explode(?:_outer)?\((.*)\)")


@dataclass(frozen=True, slots=True)
class Side:
    """All rows of an operator below a join."""

    node: Node
    keys: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    """All pairs of a join whose keys match."""

    join: Join
    residual: Expression


def witnesses(root: Node) -> list[Side | Pairs]:
    """Return what has to be asked besides the plan itself, each once."""
    found: dict[Side | Pairs, None] = {}
    for node in walk(root):
        if isinstance(node, Join):
            found.update(dict.fromkeys(_of_join(node)))
    return list(found)


def may_fail_at_joins(root: Node) -> bool:
    """Whether a plan has a join, and something that may fail on a row."""
    nodes = list(walk(root))
    return any(isinstance(node, Join) for node in nodes) and any(map(_fails, nodes))


def _of_join(join: Join) -> Iterator[Side | Pairs]:
    sides = (
        (join.left, tuple(key.left for key in join.keys)),
        (join.right, tuple(key.right for key in join.keys)),
    )
    for node, keys in sides:
        asked = tuple(key for key in keys if _any((key,), node))
        if asked or any(map(_fails, _region(node))):
            yield Side(node, asked)
    residual = join.residual
    if residual is not None and join.kind != "inner" and _residual_fails(join):
        yield Pairs(join, residual)


def _region(node: Node) -> Iterator[Node]:
    """Yield the operators of a side down to the next joins, whose sides are asked as well."""
    yield node
    if not isinstance(node, Join):
        for below in node.inputs:
            yield from _region(below)


def _fails(node: Node) -> bool:
    """Whether an operator may fail by itself."""
    match node:
        case Scan() | Values() | Distinct() | Union() | Bag():
            return False
        case Filter():
            return _any((node.condition,), node.input)
        case TemporalFilter():
            return _any((bound for bound in (node.since, node.until) if bound), node.input)
        case Project():
            return _any((output.expression for output in node.outputs), node.input)
        case Join():
            keys = any(
                _any((k.left,), node.left) or _any((k.right,), node.right) for k in node.keys
            )
            return keys or _residual_fails(node)
        case Aggregate():
            return any(_call_fails(call, node.input) for call in node.calls)
        case Window():
            ordered = (*node.partition, *(key.expression for key in node.order))
            return _any(ordered, node.input) or any(_call_fails(c, node.input) for c in node.calls)
        case TopK():
            return _any((key.expression for key in node.order), node.input)
        case Generate():
            return _generator_fails(node)
        case Expand():
            return _any((e for row in node.projections for e in row), node.input)
        case Text():
            return True


def _any(expressions: Iterable[Expression], *inputs: Node) -> bool:
    types = {column.name: column.type for node in inputs for column in node.columns}
    return any(may_fail(expression, types) for expression in expressions)


def _residual_fails(join: Join) -> bool:
    return join.residual is not None and _any((join.residual,), join.left, join.right)


def _call_fails(call: AggregateCall | WindowCall, below: Node) -> bool:
    asked = (*call.arguments, *(() if call.filter is None else (call.filter,)))
    if _any(asked, below):
        return True
    if call.function in _SUMS:
        return _SUMMED.fullmatch(call.arguments[0].type) is None
    return _NEVER_FAIL.fullmatch(call.function) is None


def _generator_fails(node: Generate) -> bool:
    found = _EXPLODED.fullmatch(node.generator.text)
    if found is None:
        return True
    items = Expression(found[1], node.generator.type, True, node.generator.columns)
    return _any((items,), node.input)


def never(names: Iterable[Column], expressions: Iterable[Expression]) -> str:
    """Return a condition that is never true and evaluates all of these, for every row below it.

    Not deterministic, so no optimiser moves it below a join, or others below it.
    """
    asked = [_hashable(column.name, column.type) for column in names]
    asked += [_hashable(each.text, each.type) for each in expressions]
    return f"(xxhash64({', '.join(['rand(0)', *asked])}) > 9223372036854775807L)"


def _hashable(text: str, type_: str) -> str:
    # A map has no hash, nor a variant, nor what is always NULL.
    plain = not any(kind in type_ for kind in ("map<", "variant", "void"))
    return text if plain else f"CAST({text} AS STRING)"
