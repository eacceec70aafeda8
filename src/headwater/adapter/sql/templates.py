"""A prepared statement, parsed once: where among the values of an INSERT its parameters stand.

A client that inserts row after row binds one prepared statement again and again; to parse it each
time was most of what a row cost. Where every parameter stands alone as a value of VALUES, only the
values change, so the statement is the one that was parsed with others in their places. Everything
else (a parameter in a cast, in RETURNING, in ON CONFLICT) is parsed anew: :func:`places` is None.

Of a query the evaluator gets the text with the values in it. What is known of it besides, which
relations it reads, does not depend on them: :func:`is_steady`.

The portals of the wire rely on :func:`filled` being what the parser makes of the statement with
the values' literals in it; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from headwater.adapter.errors import SqlSyntaxError
from headwater.adapter.sql.statements import Insert, Select, Value
from headwater.adapter.sql.tokens import Cursor, Source
from headwater.adapter.sql.trees import parse_tree, strip_as_of


def is_steady(source: Source, statement: object) -> bool:
    """Whether a query reads the same whatever plain values its parameters have."""
    if not isinstance(statement, Select) or statement.dialect != "postgres" or statement.locks:
        return False  # The clause of a row lock is no part of the query.
    return not any(Cursor(source, index).peek("AS", "OF") for index in range(len(source.tokens)))


Places = tuple[tuple[int | None, ...], ...]
"""For each row and column the number of the parameter there, from 0; None where there is none."""


def places(source: Source) -> Places | None:
    """Where the parameters of an INSERT stand; None if one is anywhere but alone as a value."""
    try:
        tree = parse_tree(strip_as_of(source)[0])
    except SqlSyntaxError:
        return None  # AS OF $1, say: it is a statement only with its values in it.
    if not isinstance(tree, exp.Insert) or not isinstance(tree.expression, exp.Values):
        return None
    found = tuple(
        tuple(_number(value) for value in row.expressions) for row in tree.expression.expressions
    )
    alone = sum(number is not None for row in found for number in row)
    return found if alone == len(list(tree.find_all(exp.Parameter))) else None


def _number(value: exp.Expression) -> int | None:
    return int(value.this.name) - 1 if isinstance(value, exp.Parameter) else None


def filled(parsed: Insert, where: Places, values: Sequence[Value]) -> Insert:
    """The statement with these values for its parameters."""
    rows = tuple(
        tuple(
            old if number is None else values[number]
            for old, number in zip(row, numbers, strict=True)
        )
        for row, numbers in zip(parsed.rows, where, strict=True)
    )
    return replace(parsed, rows=rows)
