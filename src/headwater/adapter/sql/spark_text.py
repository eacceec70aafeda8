"""Queries in Spark's own dialect: taken as they are, after ``SET dialect = spark``.

Only what we must know of a query is read: which relations it reads (by sqlglot's Spark dialect),
and an ``AS OF`` behind it, which is ours. The text goes to Spark unchanged. Names without quotes
are in lower case, as everywhere here; Spark does not tell cases apart.

What holds a query is read from Spark's tokens too (CREATE VIEW, EXPLAIN, SUBSCRIBE, INSERT of a
query); every other statement is the same in both dialects and is read as PostgreSQL's.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Final

from sqlglot import Token, TokenType, exp
from sqlglot.dialects import Spark

from headwater.adapter.errors import Unsupported
from headwater.adapter.sql import query, statements
from headwater.adapter.sql.names import written
from headwater.adapter.sql.tokens import Cursor, Source, split
from headwater.adapter.sql.trees import read_by, strip_as_of, written_at

QUERY_WORDS: Final = (("SELECT",), ("WITH",), ("VALUES",), ("FROM",), ("(",))

HOLDERS: Final = (
    ("EXPLAIN",),
    ("SUBSCRIBE",),
    ("CREATE", "VIEW"),
    ("CREATE", "OR", "REPLACE", "VIEW"),
    ("CREATE", "MATERIALIZED", "VIEW"),
    ("CREATE", "OR", "REPLACE", "MATERIALIZED", "VIEW"),
)
"""Statements that have a query inside, read with the tokens of its dialect."""


def is_query(source: Source) -> bool:
    """Whether a statement is a query."""
    cursor = Cursor(source)
    return any(cursor.peek(*words) for words in QUERY_WORDS)


def holds_query(source: Source) -> bool:
    """Whether a statement is a query, or has one inside that is in Spark's dialect."""
    cursor = Cursor(source)
    return is_query(source) or any(cursor.peek(*words) for words in HOLDERS)


def select(source: Source) -> statements.Select:
    """Read a query."""
    source, as_of = strip_as_of(source)
    return statements.Select(source.text, as_of, tables(source), "spark")


def insert(source: Source) -> statements.Insert | None:
    """Read ``INSERT INTO table [(columns)] query [AS OF time]``; None if it has no query."""
    cursor = Cursor(source)
    if not cursor.accept("INSERT", "INTO"):
        return None
    table = cursor.relation()
    columns = None
    if cursor.peek("(") and not any(cursor.peek("(", *words) for words in QUERY_WORDS):
        columns = cursor.names()
    if cursor.peek("VALUES") or not any(cursor.peek(*words) for words in QUERY_WORDS):
        return None
    selected = select(cursor.rest())
    as_of = None if selected.as_of is None else written_at(selected.as_of)
    return statements.Insert(table, columns, (), replace(selected, as_of=None), as_of=as_of)


def tables(source: Source) -> tuple[str, ...]:
    """Return the relations that a query reads."""
    tree = tree_of(source)
    query.check(tree)
    if not isinstance(tree, exp.Query):
        return ()
    defined = {with_.alias.lower() for with_ in tree.find_all(exp.CTE)}
    found: dict[str, None] = {}
    for table in tree.find_all(exp.Table):
        if not table.name or not isinstance(table.this, exp.Identifier):
            continue  # A function that returns rows.
        if table.args.get("db") is not None:
            raise Unsupported(
                f'the qualified name "{table.sql(dialect="spark")}" in Spark\'s dialect',
                hint="Write the relation's name alone.",
            )
        if table.name.lower() not in defined:
            found.setdefault(written((query.folded(table.this),)))
    return tuple(found)


def place_of(text: str, name: str) -> int | None:
    """Return where a query reads a relation, in characters from 1; ``None`` if it does not.

    >>> place_of("SELECT k FROM t JOIN `K` ON k = k", "k")
    22
    """
    (source,) = split(text, "spark")
    for table in tree_of(source).find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and table.name.lower() == name.lower():
            return int(table.this.meta["start"]) + 1
    return None


def _with_windows(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens, with ``window`` as a name where it does not begin a WINDOW clause.

    sqlglot takes ``GROUP BY window(ts, '1 hour')`` for one.
    """
    found = list(tokens)
    for place, token in enumerate(tokens):
        clause = [after.token_type for after in tokens[place + 2 : place + 3]] == [TokenType.ALIAS]
        if token.token_type == TokenType.WINDOW and not clause:
            found[place] = copy(token)
            found[place].token_type = TokenType.VAR
    return found


def tree_of(source: Source) -> Any:
    """What sqlglot makes of a query."""
    return read_by(Spark(), source, _with_windows(source.tokens))
