"""``CREATE TABLE … AS`` and ``TRUNCATE``, as values and as they are read.

    CREATE TABLE [IF NOT EXISTS] name [(column, …)] [WITH (RETAIN HISTORY FOR '…')] AS query
        [WITH [NO] DATA]
    TRUNCATE [TABLE] name, … [RESTART IDENTITY | CONTINUE IDENTITY] [CASCADE | RESTRICT]

The first is a table with the columns of a query and its rows at one time; it does not follow the
query, as a materialized view does.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.adapter.errors import Unsupported
from headwater.adapter.sql import objects, query, statements
from headwater.adapter.sql.tokens import Cursor, Source, is_word
from headwater.adapter.sql.trees import strip_as_of, tree_of


def create_table_as(source: Source) -> statements.CreateTableAs | None:
    """Read ``CREATE TABLE … AS``; None: it is another ``CREATE TABLE``."""
    cursor = Cursor(source)
    cursor.expect("CREATE", "TABLE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.relation()
    listed = cursor.bracketed() if cursor.peek("(") else None
    retain_ms = None
    if cursor.peek("WITH", "(", "RETAIN"):
        cursor.accept("WITH")
        retain_ms = objects.retention(cursor)
    if not cursor.accept("AS"):
        return None
    columns = None
    if listed is not None:
        names = Cursor(listed)
        found = [names.name()]
        while names.accept(","):
            found.append(names.name())
        names.finish()
        columns = tuple(found)
    body, with_data = _data(cursor.rest())
    without_time, as_of = strip_as_of(body)
    if as_of is not None:
        raise Unsupported("AS OF in CREATE TABLE AS")
    select = statements.Select(body.text, None, query.tables(tree_of(without_time)))
    return statements.CreateTableAs(name, select, columns, if_not_exists, with_data, retain_ms)


def _data(source: Source) -> tuple[Source, bool]:
    """Cut a final ``WITH [NO] DATA`` off: whether there is data."""
    tokens = source.tokens
    for words, with_data in ((("WITH", "NO", "DATA"), False), (("WITH", "DATA"), True)):
        last = tokens[-len(words) :]
        if len(tokens) > len(words) and all(map(is_word, last, words)):
            return replace(source, tokens=tokens[: -len(words)]), with_data
    return source, True


def truncate(source: Source) -> statements.Statement:
    """Read ``TRUNCATE``. Nothing refers to a table, or numbers its rows: the rest says nothing."""
    cursor = Cursor(source)
    cursor.expect("TRUNCATE")
    cursor.accept("TABLE")
    names = [cursor.relation()]
    while cursor.accept(","):
        names.append(cursor.relation())
    if cursor.accept_any("RESTART", "CONTINUE"):
        cursor.expect("IDENTITY")
    cursor.accept_any("CASCADE", "RESTRICT")
    cursor.finish()
    return statements.Truncate(tuple(dict.fromkeys(names)))
