"""Plans by force: what every operator of a plan means, over multisets in memory.

    rows(node, tables) -> Counter of rows      tables: per relation its fields and a Counter of rows

Written from the docstrings of ``compute/ir/node.py`` and from nothing else, without a thought for
speed: pairs of rows are compared one by one, groups are lists. Where order is open it is that of
``collection/order.py``. Rows are Python values in tuples, arrays and structs too; so there is no
NaN and no -0.0, which Python and SQL compare differently.

Relied on by: tests of whatever claims to compute the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from statistics import median
from typing import Any, Final

from headwater.collection.order import order_key, row_key
from headwater.compute.catalyst.rounding import exact_average, exact_sum
from headwater.compute.ir.expression import (
    AggregateCall,
    Column,
    Expression,
    SortKey,
    WindowCall,
)
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
    TopK,
    Union,
    Values,
    Window,
)
from headwater.testing.expressions import as_arrow, equal, evaluated, same

Row = tuple[Any, ...]
Rows = Counter[Row]

ROWS_MAX: Final = 4_000
"""More are not worth a test's time."""


class TooMany(Exception):
    """An operator yields more rows than a test has time for."""


@dataclass(frozen=True)
class Table:
    """What a relation holds."""

    fields: tuple[str, ...]
    rows: Rows


def rows(node: Node, tables: Mapping[str, Table]) -> Rows:
    """Return what an operator yields."""
    found = _rows(node, [rows(child, tables) for child in node.inputs], tables)
    if len(found) > ROWS_MAX:
        raise TooMany(type(node).__name__)
    return found


def linear(node: Node, row: Row) -> Iterator[Row]:
    """Yield what a linear operator makes of one row of its input."""
    (child,) = node.inputs
    named = _named(child, row)
    match node:
        case Filter():
            if _value(node.condition, named) is True:
                yield row
        case Project():
            yield tuple(_value(output.expression, named) for output in node.outputs)
        case Expand():
            for projection in node.projections:
                yield tuple(_value(expression, named) for expression in projection)
        case Generate():
            items = _exploded(node.generator)(named) or []
            for item in items:
                yield (*row, item)
            if node.outer and not items:
                yield (*row, None)
        case _:
            raise NotImplementedError(type(node).__name__)


def _rows(node: Node, inputs: Sequence[Rows], tables: Mapping[str, Table]) -> Rows:
    match node:
        case Scan():
            table = tables[node.relation]
            places = [table.fields.index(field.field) for field in node.fields]
            return _counted((tuple(r[p] for p in places), n) for r, n in table.rows.items())
        case Values():
            return Counter(tuple(evaluated(text)({}) for text in row) for row in node.rows)
        case Filter() | Project() | Generate() | Expand():
            return _counted((made, n) for r, n in inputs[0].items() for made in linear(node, r))
        case Join():
            return _join(node, inputs[0], inputs[1])
        case Aggregate():
            return Counter(_aggregate(node, inputs[0]))
        case Union():
            return sum(inputs, Counter())
        case Distinct():
            return Counter(dict.fromkeys(inputs[0], 1))
        case Bag():
            return _bag(node, *inputs)
        case TopK():
            ordered = _ordered(node.input, inputs[0], node.order)
            end = None if node.limit is None else node.offset + node.limit
            return Counter(ordered[node.offset : end])
        case Window():
            return Counter(windowed(node, inputs[0]))
        case _:
            raise NotImplementedError(type(node).__name__)


def _counted(pairs: Any) -> Rows:
    found: Rows = Counter()
    for row, n in pairs:
        found[row] += n
    return found


def _named(node: Node, row: Row) -> dict[str, Any]:
    return dict(zip((column.name for column in node.columns), row, strict=True))


def _value(expression: Expression, named: Mapping[str, Any]) -> Any:
    return evaluated(expression.text)(named)


def _exploded(generator: Expression) -> Callable[[Mapping[str, Any]], Any]:
    text = generator.text
    assert text.startswith("explode("), text
    return evaluated(text.removeprefix("explode(")[:-1])


# ---- joins and bags --------------------------------------------------------------------------


def _join(node: Join, left: Rows, right: Rows) -> Rows:
    if len(left) * len(right) > 50 * ROWS_MAX:
        raise TooMany("Join")
    found: Rows = Counter()
    left_matched: set[Row] = set()
    right_matched: set[Row] = set()
    for a, many in left.items():
        for b, often in right.items():
            if _matches(node, a, b):
                left_matched.add(a)
                right_matched.add(b)
                if node.kind not in ("semi", "anti"):
                    found[*a, *b] += many * often
    for a, many in left.items():
        matched = a in left_matched
        if (node.kind == "semi" and matched) or (node.kind == "anti" and not matched):
            found[a] += many
        if node.kind in ("left", "full") and not matched:
            found[*a, *[None] * len(node.right.columns)] += many
    for b, often in right.items():
        if node.kind in ("right", "full") and b not in right_matched:
            found[*[None] * len(node.left.columns), *b] += often
    return found


def _matches(node: Join, a: Row, b: Row) -> bool:
    left, right = _named(node.left, a), _named(node.right, b)
    for key in node.keys:
        x, y = _value(key.left, left), _value(key.right, right)
        match key.comparison:
            case "=" if not equal(x, y):
                return False
            case "<=>" if not same(x, y):
                return False
            case "=?" if equal(x, y) is False:
                return False
    return node.residual is None or _value(node.residual, {**left, **right}) is True


def _bag(node: Bag, left: Rows, right: Rows) -> Rows:
    return left & right if node.kind == "intersect" else left - right


# ---- groups ----------------------------------------------------------------------------------


def _aggregate(node: Aggregate, rows: Rows) -> Iterator[Row]:
    places = [_place(node.input.columns, name) for name in node.groups]
    groups: dict[Row, list[Row]] = {} if node.groups else {(): []}
    for row, n in rows.items():
        groups.setdefault(tuple(row[p] for p in places), []).extend([row] * n)
    types = [column.sql_type.arrow for column in node.input.columns]
    for shown, members in groups.items():
        ordered = sorted(members, key=lambda row: row_key(as_arrow(row), types))
        named = [_named(node.input, row) for row in ordered]
        yield (*shown, *(_call(call, named) for call in node.calls))


def _place(columns: Sequence[Column], name: str) -> int:
    return next(i for i, column in enumerate(columns) if column.name == name)


def _call(call: AggregateCall | WindowCall, members: Sequence[Mapping[str, Any]]) -> Any:
    if call.filter is not None:
        members = [row for row in members if _value(call.filter, row) is True]
    values = [tuple(_value(a, row) for a in call.arguments) for row in members]
    if call.function == "first":
        return values[0][0] if values else None
    if call.function == "last":
        return values[-1][0] if values else None
    known = [value for value in values if None not in value]
    if isinstance(call, AggregateCall) and call.distinct:
        known = list(dict.fromkeys(known))
    if call.function == "count":
        return len(known)
    ones = [value[0] for value in known]
    if call.function == "collect_list":
        return tuple(ones)
    if not ones:
        return None
    floating = any(isinstance(value, float) for value in ones)
    match call.function:
        case "sum":
            return exact_sum(ones) if floating else sum(ones)
        case "avg":
            return exact_average(ones) if floating else float(sum(ones)) / len(ones)
        case "min" | "max":
            return min(ones) if call.function == "min" else max(ones)
        case "bit_and":
            return reduce(and_, ones)
        case "median":
            return float(median(ones))
        case "bool_or":
            return any(ones)
        case "bool_and":
            return all(ones)
        case other:
            raise NotImplementedError(other)


# ---- order -----------------------------------------------------------------------------------


def _ordered(node: Node, rows: Rows, order: Sequence[SortKey]) -> list[Row]:
    types = [column.sql_type.arrow for column in node.columns]
    ordered = sorted(rows.elements(), key=lambda row: row_key(as_arrow(row), types))
    for key in reversed(order):
        type_ = Column("_c_0", key.expression.type, True).sql_type.arrow
        values = {id(row): _value(key.expression, _named(node, row)) for row in ordered}
        # Stable, and not turned round: ties keep their order also where it is descending.
        present = [row for row in ordered if values[id(row)] is not None]
        absent = [row for row in ordered if values[id(row)] is None]
        distinct = sorted({order_key(values[id(row)], type_) for row in present})
        ranks = {bytes_: rank for rank, bytes_ in enumerate(distinct)}
        sign = -1 if key.descending else 1
        present.sort(key=lambda row: sign * ranks[order_key(values[id(row)], type_)])
        ordered = absent + present if key.nulls_first else present + absent
    return ordered


# ---- windows ---------------------------------------------------------------------------------

_FRAME: Final = re.compile(
    r"(ROWS|RANGE) BETWEEN (UNBOUNDED|\d+|CURRENT) (?:PRECEDING|ROW) "
    r"AND (UNBOUNDED|\d+|CURRENT) (?:FOLLOWING|ROW)"
)


def windowed(node: Window, rows: Rows) -> Iterator[Row]:
    """Yield each row with what the window's calls say of it."""
    partitions: dict[Row, list[Row]] = {}
    for row in _ordered(node.input, rows, node.order):
        named = _named(node.input, row)
        of = tuple(_value(e, named) for e in node.partition)
        partitions.setdefault(of, []).append(row)
    for members in partitions.values():
        named_members = [_named(node.input, row) for row in members]
        keys = [tuple(_value(k.expression, n) for k in node.order) for n in named_members]
        for at, row in enumerate(members):
            yield (*row, *(_over(call, at, named_members, keys) for call in node.calls))


def _over(
    call: WindowCall, at: int, members: Sequence[Mapping[str, Any]], keys: Sequence[Row]
) -> Any:
    match call.function:
        case "row_number":
            return at + 1
        case "rank":
            return keys.index(keys[at]) + 1
        case "dense_rank":
            return len(set(keys[: at + 1]))
        case "lag" | "lead":
            value, offset, default = call.arguments
            step = _value(offset, {}) * (-1 if call.function == "lag" else 1)
            if 0 <= at + step < len(members):
                return _value(value, members[at + step])
            return _value(default, members[at])
        case _:
            first, end = _frame(call.frame, at, keys)
            return _call(call, members[first:end])


def _frame(text: str, at: int, keys: Sequence[Row]) -> tuple[int, int]:
    found = _FRAME.fullmatch(text)
    assert found is not None, text
    kind, before, after = found.groups()
    peers = [n for n, key in enumerate(keys) if key == keys[at]] if kind == "RANGE" else [at]
    starts = {"UNBOUNDED": 0, "CURRENT": peers[0]}
    ends = {"UNBOUNDED": len(keys), "CURRENT": peers[-1] + 1}
    first = starts[before] if before in starts else max(0, at - int(before))
    end = ends[after] if after in ends else min(len(keys), at + int(after) + 1)
    return first, end
