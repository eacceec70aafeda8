"""Which queries ask for rows by their whole primary key, and nothing else.

    SELECT {* | column [AS name], …} FROM t WHERE k1 = literal [AND k2 = literal …]

They are answered from keyed runs. Everything else, and every literal whose comparison with its
column needs a cast that could change the answer, is left to who evaluates queries in general:
:func:`point_read` and :func:`point_key` then return None, and never guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.query import folded
from headwater.adapter.sql.statements import Value
from headwater.adapter.sql.types import arrow_type
from headwater.adapter.sql.values import assign, evaluate


@dataclass(frozen=True, slots=True)
class PointRead:
    """The columns wanted, each with the name it gets, of the row with this key."""

    columns: tuple[tuple[str, str], ...]
    key: tuple[Value, ...]


def point_read(
    query_sql: str, table: str, schema: pa.Schema, key: Sequence[str]
) -> PointRead | None:
    """Return a query over ``table`` as a point read, if it is one."""
    if not key:
        return None
    tree = sqlglot.parse_one(query_sql, dialect="postgres")
    if not isinstance(tree, exp.Select):
        return None
    parts = {part for part, value in tree.args.items() if value}
    if not parts <= {"expressions", "from_", "where"} or "where" not in parts:
        return None
    source = tree.args["from_"].this
    if not isinstance(source, exp.Table) or {
        part for part, value in source.args.items() if value
    } - {"this", "db", "catalog", "alias"}:
        return None
    alias = source.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return None
    known = folded(alias.this) if alias is not None else table
    columns = _columns(tree.expressions, known, schema)
    values = _key(tree.args["where"].this, known, schema, key)
    return None if columns is None or values is None else PointRead(columns, values)


def point_key(
    where_sql: str | None, table: str, schema: pa.Schema, key: Sequence[str]
) -> tuple[Value, ...] | None:
    """Return the key that a condition asks for, if it asks for one and nothing else."""
    if where_sql is None or not key:
        return None
    return _key(sqlglot.parse_one(where_sql, dialect="postgres"), table, schema, key)


def _columns(
    expressions: Sequence[Any], table: str, schema: pa.Schema
) -> tuple[tuple[str, str], ...] | None:
    found: list[tuple[str, str]] = []
    for each in expressions:
        column = each.unalias()
        if isinstance(column, exp.Star) and not any(column.args.values()):
            found.extend((name, name) for name in schema.names)
            continue
        name = _column(column, table, schema)
        if name is None:
            return None
        alias = each.args.get("alias") if isinstance(each, exp.Alias) else None
        found.append((name, folded(alias) if alias is not None else name))
    return tuple(found)


def _column(tree: Any, table: str, schema: pa.Schema) -> str | None:
    if not isinstance(tree, exp.Column) or not isinstance(tree.this, exp.Identifier):
        return None
    if tree.args.get("db") is not None or tree.args.get("catalog") is not None:
        return None
    qualifier = tree.args.get("table")
    if qualifier is not None and folded(qualifier) != table:
        return None
    name = folded(tree.this)
    return name if name in schema.names else None


def _key(
    condition: Any, table: str, schema: pa.Schema, key: Sequence[str]
) -> tuple[Value, ...] | None:
    found: dict[str, Value] = {}
    for each in condition.flatten() if isinstance(condition, exp.And) else (condition,):
        if not isinstance(each, exp.EQ):
            return None
        left, right = each.left, each.right
        if not isinstance(left, exp.Column):
            left, right = right, left
        name = _column(left, table, schema)
        if name is None or name in found or name not in key:
            return None
        value = _exact(right, schema.field(name).type)
        if value is None:
            return None
        found[name] = value
    return tuple(found[name] for name in key) if len(found) == len(key) else None


def _exact(tree: Any, type_: pa.DataType) -> Value:
    """The literal as a value of the column's type; None where that could change the answer."""
    tree = tree.unnest()
    try:
        if isinstance(tree, exp.Cast) and not isinstance(tree, exp.TryCast):
            return evaluate(tree) if arrow_type(tree.to) == type_ else None
        if not isinstance(tree, exp.Literal | exp.Boolean | exp.Neg):
            return None
        value = evaluate(tree)
        if isinstance(value, str):
            same = True  # Of unknown type, so of the column's.
        elif isinstance(value, bool) or pa.types.is_boolean(type_):
            same = isinstance(value, bool) and pa.types.is_boolean(type_)
        else:
            same = isinstance(value, int) and pa.types.is_integer(type_)
            same = same or (isinstance(value, int | Decimal) and pa.types.is_decimal(type_))
        if not same:
            return None
        stored = assign(value, type_)
    except AdapterError:
        return None  # Whoever evaluates it says what is wrong with it.
    return stored if isinstance(value, str) or stored == value else None
