"""A query in PostgreSQL's dialect → the same query in Spark's.

sqlglot writes the text; this module decides what may pass. Names are folded as PostgreSQL folds
them and then quoted, and our schema is dropped, so that Spark finds temporary views by plain
name.

The first cut of an allow-list that is to be tested against a real PostgreSQL: integer division is
the one construct known to differ silently (PostgreSQL truncates, Spark yields a double) and is
refused unless an operand is visibly not an integer.
"""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, UnsupportedError

from headwater.adapter.errors import SqlSyntaxError, Unsupported
from headwater.adapter.sql.query import folded
from headwater.adapter.sql.tokens import unqualified

_T = exp.DataType.Type
_FRACTIONAL = (_T.DECIMAL, _T.FLOAT, _T.DOUBLE)


def to_spark(sql: str) -> str:
    """``query_sql`` or ``where_sql`` of a statement, for Spark's parser."""
    try:
        tree = sqlglot.parse_one(sql, dialect="postgres")
    except ParseError as error:
        raise SqlSyntaxError(None) from error
    for division in tree.find_all(exp.Div):
        if not (_is_fractional(division.left) or _is_fractional(division.right)):
            raise Unsupported(
                "division of operands that may both be integers",
                hint="Cast one of them to numeric or double precision.",
            )
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            name = unqualified([folded(part) for part in table.parts])
            table.set("this", exp.to_identifier(name, quoted=True))
            table.set("db", None)
            table.set("catalog", None)
    for identifier in tree.find_all(exp.Identifier):
        identifier.replace(exp.to_identifier(folded(identifier), quoted=True))
    try:
        return str(tree.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE))
    except UnsupportedError as error:
        raise Unsupported("this query", detail=str(error)) from error


def _is_fractional(operand: Any) -> bool:
    operand = operand.unnest()
    if isinstance(operand, exp.Neg):
        return _is_fractional(operand.this)
    if isinstance(operand, exp.Literal):
        return not operand.is_string and not str(operand.this).isdigit()
    return isinstance(operand, exp.Cast) and operand.to.this in _FRACTIONAL
