"""``CREATE INDEX``, as PostgreSQL and Materialize write it.

    CREATE INDEX [[IF NOT EXISTS] name] [IN CLUSTER name] ON relation [USING method] (column, …)
        [WITH (RETAIN HISTORY FOR 'duration')]

There is one cluster and one kind of index, so what is said about them changes nothing. An index is
of columns; what an index could be besides (unique, partial, of expressions) is refused.
"""

from __future__ import annotations

from headwater.adapter.errors import DuplicateColumn, Unsupported
from headwater.adapter.sql import objects, statements
from headwater.adapter.sql.tokens import Cursor, Source


def create_index(source: Source) -> statements.Statement:
    """Read ``CREATE INDEX``."""
    cursor = Cursor(source)
    cursor.expect("CREATE")
    if cursor.accept("UNIQUE"):
        raise Unsupported("a unique index", hint="Give the table a primary key.")
    cursor.expect("INDEX")
    if cursor.peek("CONCURRENTLY"):
        cursor.expect("CONCURRENTLY")  # Every index is made so.
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = None if cursor.peek("ON") or cursor.peek("IN", "CLUSTER") else cursor.relation()
    if cursor.accept("IN", "CLUSTER"):
        cursor.identifier()
    cursor.expect("ON")
    cursor.accept("ONLY")
    on = cursor.relation()
    if cursor.accept("USING"):
        cursor.identifier()
    cursor.expect("(")
    columns = [_column(cursor)]
    while cursor.accept(","):
        columns.append(_column(cursor))
    cursor.expect(")")
    for place, column in enumerate(columns):
        if column in columns[:place]:
            raise DuplicateColumn(column)
    retain_ms = objects.retention(cursor) if cursor.accept("WITH") else None
    if cursor.peek("WHERE"):
        raise Unsupported("a partial index", hint="Index a view that has the condition.")
    if cursor.peek("INCLUDE"):
        raise Unsupported("INCLUDE of an index", detail="An index has every column already.")
    cursor.finish()
    return statements.CreateIndex(name, on, tuple(columns), if_not_exists, retain_ms)


def _column(cursor: Cursor) -> str:
    if cursor.peek("("):
        raise _of_an_expression()
    name = cursor.identifier()
    if cursor.peek("("):
        raise _of_an_expression()
    # An order would be of use to nobody: rows are found by whole keys.
    cursor.accept_any("ASC", "DESC")
    if cursor.accept("NULLS"):
        cursor.accept_any("FIRST", "LAST")
    return name


def _of_an_expression() -> Unsupported:
    return Unsupported(
        "an index of an expression", hint="Index a view that has the expression as a column."
    )
