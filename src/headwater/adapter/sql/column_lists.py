"""A list of columns with types, as in ``CREATE TABLE``, wherever else one may stand."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from headwater.adapter.errors import DuplicateColumn, SqlSyntaxError, Unsupported
from headwater.adapter.sql.forms import written_form
from headwater.adapter.sql.query import folded
from headwater.adapter.sql.tokens import Cursor, Source, split
from headwater.adapter.sql.trees import parse_tree
from headwater.adapter.sql.types import arrow_type


def columns_of(cursor: Cursor) -> pa.Schema:
    """Read ``(name type [NOT NULL], …)``."""
    (source,) = split(f"CREATE TABLE columns {_parenthesised(cursor).text}")
    tree = parse_tree(source)
    assert isinstance(tree, exp.Create)
    fields: list[pa.Field] = []
    for part in tree.this.expressions:
        if not isinstance(part, exp.ColumnDef) or part.args.get("kind") is None:
            raise SqlSyntaxError(part.name, detail="A column is a name and a type.")
        nullable = True
        for constraint in part.args.get("constraints") or ():
            if not isinstance(constraint.kind, exp.NotNullColumnConstraint):
                raise Unsupported(f"the column constraint {constraint.sql(dialect='postgres')}")
            nullable = bool(constraint.kind.args.get("allow_null"))
        name = folded(part.this)
        if any(name == field.name for field in fields):
            raise DuplicateColumn(name)
        kind = part.args["kind"]
        if (form := written_form(kind)) is not None:
            raise Unsupported(f"a column of type {form} of a source", hint="Use text.")
        fields.append(pa.field(name, arrow_type(kind), nullable))
    return pa.schema(fields)


def _parenthesised(cursor: Cursor) -> Source:
    """Pass everything up to the parenthesis that closes this one."""
    rest = cursor.rest()
    depth = 0
    for count, token in enumerate(rest.tokens, 1):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if not depth:
            cursor.skip(count)
            return Source(rest.whole, rest.tokens[:count])
    raise cursor.error()
