"""Sums, differences and products of integers, computed here: ``SET amount = amount - 10``. Pure.

An UPDATE by key finds its few rows without a Spark job; to compute their new values it would need
one, for an addition. Of integers there is nothing to differ in: PostgreSQL computes in the wider
type of the two operands, a literal being an ``integer`` if it fits, and what does not fit the
result's type is refused. Everything else is left to who evaluates expressions in general:
:func:`integers` then returns None, and never guesses.

>>> schema = pa.schema([("n", pa.int32()), ("big", pa.int64())])
>>> found = integers("n * 2 + big", "t", schema)
>>> found(pa.table({"n": [1, None], "big": [10, 1]}, schema=schema)).to_pylist()
[12, None]
>>> integers("n / 2", "t", schema) is None
True
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from headwater.adapter.errors import OutOfRange
from headwater.adapter.sql.names import bare
from headwater.adapter.sql.query import folded
from headwater.adapter.sql.tokens import tree_if_read
from headwater.adapter.sql.types import wire_type
from headwater.collection.schema import TYPE

_OPERATIONS: Final[dict[Any, Callable[[int, int], int]]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}
_TYPES: Final = (pa.int16(), pa.int32(), pa.int64())

Row = dict[str, int | None]


@dataclass(frozen=True, slots=True)
class _Integer:
    """An expression: its type, what it reads, and its value of a row."""

    type: pa.DataType
    reads: frozenset[str]
    value: Callable[[Row], int | None]


def integers(sql: str, table: str, schema: pa.Schema) -> Callable[[pa.Table], Any] | None:
    """Return how an expression over the rows of a table is computed, if it is one of integers."""
    tree = tree_if_read(sql)
    found = None if tree is None else _integer(tree, bare(table), schema)
    if found is None:
        return None

    def computed(rows: pa.Table) -> Any:
        columns = {name: rows.column(name).to_pylist() for name in found.reads}
        each: Iterable[Row] = (
            {name: values[place] for name, values in columns.items()}
            for place in range(rows.num_rows)
        )
        return pa.chunked_array([pa.array([found.value(row) for row in each], found.type)])

    return computed


def _integer(tree: Any, table: str, schema: pa.Schema) -> _Integer | None:
    tree = tree.unnest()
    if isinstance(tree, exp.Literal | exp.Neg):
        return _literal(tree)
    if isinstance(tree, exp.Column):
        return _column(tree, table, schema)
    compute = _OPERATIONS.get(type(tree))
    if compute is None:
        return None
    left, right = (_integer(side, table, schema) for side in (tree.left, tree.right))
    if left is None or right is None:
        return None
    type_ = max(left.type, right.type, key=lambda each: each.bit_width)
    bound = 1 << (type_.bit_width - 1)

    def value(row: Row) -> int | None:
        a, b = left.value(row), right.value(row)
        if a is None or b is None:
            return None
        result = compute(a, b)
        if not -bound <= result < bound:
            raise OutOfRange(wire_type(type_).name, result)
        return result

    return _Integer(type_, left.reads | right.reads, value)


def _literal(tree: Any) -> _Integer | None:
    digits = tree.this if isinstance(tree, exp.Neg) else tree
    written = str(digits.this) if isinstance(digits, exp.Literal) and not digits.is_string else ""
    if not written.isascii() or not written.isdigit() or len(written) > 19:
        return None
    number = -int(written) if isinstance(tree, exp.Neg) else int(written)
    for type_ in _TYPES[1:]:
        bound = 1 << (type_.bit_width - 1)
        if -bound <= number < bound:
            return _Integer(type_, frozenset(), lambda _: number)
    return None


def _column(tree: Any, table: str, schema: pa.Schema) -> _Integer | None:
    qualifier = tree.args.get("table")
    if tree.args.get("db") is not None or not isinstance(tree.this, exp.Identifier):
        return None
    name = folded(tree.this)
    if (qualifier is not None and folded(qualifier) != table) or name not in schema.names:
        return None
    field = schema.field(name)
    if field.type not in _TYPES or TYPE in (field.metadata or {}):
        return None
    return _Integer(field.type, frozenset((name,)), lambda row: row[name])
