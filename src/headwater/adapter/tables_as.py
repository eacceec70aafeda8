"""``CREATE TABLE … AS``: the table that a query's columns make. Pure.

It becomes the text of an ordinary ``CREATE TABLE``, which is kept as what made it, and an
``INSERT`` of the query: both in one transaction, the client's or one of its own.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.adapter.errors import SqlSyntaxError
from headwater.adapter.shadow.objects import Column
from headwater.adapter.sql.names import quoted, quoted_name
from headwater.adapter.sql.parse import parse
from headwater.adapter.sql.statements import CreateTable, CreateTableAs, Insert


def definition(
    statement: CreateTableAs, name: str, schema: pa.Schema
) -> tuple[CreateTable, str, Insert]:
    """Return the table called ``name``, its text, and what fills it."""
    columns = list(map(Column.stored, schema))
    given = statement.columns or ()
    if len(given) > len(columns):
        raise SqlSyntaxError(None, detail="CREATE TABLE AS specifies too many column names.")
    names = (*given, *(column.name for column in columns[len(given) :]))
    listed = ", ".join(
        f"{quoted(called)} {column.type}" for called, column in zip(names, columns, strict=True)
    )
    retained = ""
    if statement.retain_ms is not None:
        retained = f" WITH (RETAIN HISTORY FOR '{statement.retain_ms}ms')"
    text = f"CREATE TABLE {quoted_name(name)} ({listed}){retained}"
    (create,) = parse(text)
    assert isinstance(create, CreateTable)
    return create, text, Insert(name, None, (), statement.query)
