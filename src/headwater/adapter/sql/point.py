"""Which queries ask for rows by whole keys, and nothing else.

    SELECT {* | column [AS name], …} FROM t
        WHERE k1 {= literal | IN (literal, …)} [AND k2 {= literal | IN (literal, …)} …]

They are answered from keyed runs: that of a primary key, or an index. Everything else, and every
literal whose comparison with its column needs a cast that could change the answer, is left to who
evaluates queries in general: :func:`point_read` then returns None, and never guesses.

Of a prepared query the *shape* is found once, with its parameters in it: what is asked for then
depends on their values alone, which are judged as the literals they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.forms import form_of, written_form
from headwater.adapter.sql.names import bare
from headwater.adapter.sql.query import folded
from headwater.adapter.sql.statements import Given, Value
from headwater.adapter.sql.text import from_text
from headwater.adapter.sql.tokens import tree_if_read
from headwater.adapter.sql.types import arrow_type
from headwater.adapter.sql.values import assign, evaluate
from headwater.collection.schema import TYPE

KEYS_MAX: Final = 256
"""How many keys one query may ask for; of more, whoever evaluates it makes less work."""


@dataclass(frozen=True, slots=True)
class PointRead:
    """The columns wanted, each with the name it gets, of the rows with these keys, each once."""

    columns: tuple[tuple[str, str], ...]
    keys: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class _Parameter:
    """Stands where a value will be given, numbered from 0."""

    number: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """A point read, but for the values of its parameters."""

    columns: tuple[tuple[str, str], ...]
    fields: tuple[pa.Field, ...]
    asked: tuple[tuple[Value | _Parameter, ...], ...]
    """For each column of the key the values that it may have."""

    def filled(self, values: Sequence[Value]) -> PointRead | None:
        keys: list[list[Value]] = []
        for field, asked in zip(self.fields, self.asked, strict=True):
            found = [
                _same(values[each.number], field) if isinstance(each, _Parameter) else each
                for each in asked
            ]
            if any(value is None for value in found):
                return None
            keys.append(list(dict.fromkeys(found)))
        if prod(map(len, keys)) > KEYS_MAX:
            return None
        return PointRead(self.columns, tuple(product(*keys)))


def point_read(
    query_sql: str, table: str, schema: pa.Schema, key: Sequence[str], given: Given | None = None
) -> PointRead | None:
    """Return a query over ``table`` as a point read, if it is one."""
    if not key:
        return None
    if given is not None and all(isinstance(value, str | int) for value in given.values):
        shape = _known_shape(given.text, table, schema, tuple(key))
        if shape is not None:
            return shape.filled(given.values)
    shape = _shape(query_sql, table, schema, key)
    return None if shape is None else shape.filled(())


def _shape(sql: str, table: str, schema: pa.Schema, key: Sequence[str]) -> _Shape | None:
    tree = tree_if_read(sql)
    if not isinstance(tree, exp.Select):
        return None
    parts = {part for part, value in tree.args.items() if value}
    if not parts <= {"expressions", "from_", "where"} or "where" not in parts:
        return None
    read = tree.args.get("from_")
    source = None if read is None else read.this
    if not isinstance(source, exp.Table) or {
        part for part, value in source.args.items() if value
    } - {"this", "db", "catalog", "alias"}:
        return None
    alias = source.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return None
    known = folded(alias.this) if alias is not None else bare(table)
    columns = _columns(tree.expressions, known, schema)
    asked = _keys(tree.args["where"].this, known, schema, key)
    if columns is None or asked is None:
        return None
    fields = tuple(schema.field(name) for name in key)
    return _Shape(columns, fields, tuple(asked[name] for name in key))


_known_shape = lru_cache(maxsize=1024)(_shape)


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


def _keys(
    condition: Any, table: str, schema: pa.Schema, key: Sequence[str]
) -> dict[str, tuple[Value | _Parameter, ...]] | None:
    found: dict[str, tuple[Value | _Parameter, ...]] = {}
    for each in condition.flatten() if isinstance(condition, exp.And) else (condition,):
        asked = _asked(each)
        if asked is None:
            return None
        column, literals = asked
        name = _column(column, table, schema)
        if name is None or name in found or name not in key:
            return None
        field = schema.field(name)
        if TYPE in (field.metadata or {}) and form_of(field) is None:
            return None  # Of a type whose equality is not that of its Arrow values.
        values = tuple(_exact(literal, field) for literal in literals)
        if any(value is None for value in values):
            return None
        found[name] = values
    return found if len(found) == len(key) else None


def _asked(condition: Any) -> tuple[Any, Sequence[Any]] | None:
    """Return the column and the values of ``column = value`` or ``column IN (values)``."""
    if isinstance(condition, exp.Paren):
        return _asked(condition.this)
    if isinstance(condition, exp.EQ):
        left, right = condition.left, condition.right
        return (left, (right,)) if isinstance(left, exp.Column) else (right, (left,))
    if isinstance(condition, exp.In) and not {
        part for part, value in condition.args.items() if value
    } - {"this", "expressions"}:
        return condition.this, condition.expressions
    return None


def _exact(tree: Any, field: pa.Field) -> Value | _Parameter:
    """The literal as a value of the column's type; None where that could change the answer."""
    tree = tree.unnest()
    if isinstance(tree, exp.Parameter):
        return _Parameter(int(tree.this.name) - 1)
    try:
        if isinstance(tree, exp.Cast) and not isinstance(tree, exp.TryCast):
            same = arrow_type(tree.to) == field.type and written_form(tree.to) == form_of(field)
            value = evaluate(tree) if same else None
            return _same(value, field) if isinstance(value, Decimal) else value
        if not isinstance(tree, exp.Literal | exp.Boolean | exp.Neg):
            return None
        return _same(evaluate(tree), field)
    except AdapterError:
        return None  # Whoever evaluates it says what is wrong with it.


def _same(value: Value, field: pa.Field) -> Value:
    """The value as one of the column's type; None where the two are not equal, or not compared."""
    type_ = field.type
    if isinstance(value, str):
        same = True  # Of unknown type, so of the column's.
        if pa.types.is_decimal(type_):
            try:
                value = from_text(value, type_)  # … but no cast of it rounds.
            except AdapterError:
                return None
    elif isinstance(value, bool) or pa.types.is_boolean(type_):
        same = isinstance(value, bool) and pa.types.is_boolean(type_)
    else:
        same = isinstance(value, int) and pa.types.is_integer(type_)
        same = same or (isinstance(value, int | Decimal) and pa.types.is_decimal(type_))
    if not same:
        return None
    try:
        stored = assign(value, type_, form_of(field))
    except AdapterError:
        return None
    return stored if isinstance(value, str) or stored == value else None
