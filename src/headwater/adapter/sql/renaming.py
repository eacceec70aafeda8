"""The text of a CREATE with other names in it, or another setting: the rest stays as it is. Pure.

A statement is kept as its client wrote it. What changes about an object afterwards (its name, the
names of what it is made of, for how long its history is kept) is spliced into that text at the
places where the parser read it, so that comments, spelling and layout remain. :func:`parts` are
those places; what stands at them is for the caller to say (``adapter/creating.py``).

A relation under another name is still called as before inside its query (``"new" AS "old"``), so
that no other name in it has to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokens import TokenType

from headwater.adapter.errors import AdapterError
from headwater.adapter.sql import objects, parse, spark_text
from headwater.adapter.sql.names import bare, quoted_name, written
from headwater.adapter.sql.names import parts as parts_of
from headwater.adapter.sql.query import folded
from headwater.adapter.sql.tokens import Cursor, Dialect, Passed, Source, is_word, split
from headwater.adapter.sql.trees import parse_tree

_VIEWS: Final = ("view", "materialized view")


def in_quotes(name: str, dialect: Dialect) -> str:
    """Return a written name as a dialect has it, each part in quotes."""
    if dialect == "postgres":
        return quoted_name(name)
    schema, alone = parts_of(name)
    return ".".join(f"`{each.replace('`', '``')}`" for each in (schema, alone) if each is not None)


@dataclass(frozen=True, slots=True)
class Edit:
    """What stands in the place of a piece of a text."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with pieces replaced, none of which overlap.

    >>> edited("a bc d", [Edit(2, 4, "x"), Edit(0, 0, "y ")])
    'y a x d'
    """
    pieces: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda each: each.start):
        pieces += (text[at : edit.start], edit.text)
        at = edit.end
    return "".join((*pieces, text[at:]))


@dataclass(frozen=True, slots=True)
class Parts:
    """The places of a CREATE at which names stand, or may."""

    own: Passed
    """What it makes."""
    others: tuple[Passed, ...]
    """What it is made of, apart from what a query reads."""
    query: Source | None
    retention: tuple[int, int]
    """``WITH (RETAIN HISTORY …)``; where it would stand, empty, if there is none."""
    retain_ms: int | None


def parts(create_sql: str, dialect: Dialect = "postgres") -> Parts:
    """Return the places of a CREATE."""
    (source,) = split(create_sql, dialect)
    passed: list[Passed] = []
    cursor = Cursor(replace(source, passed=passed))
    cursor.expect("CREATE")
    cursor.accept("OR", "REPLACE")
    kind = objects.kind_of(cursor, "CREATE")
    cursor.accept("IF", "NOT", "EXISTS")
    cursor.relation()
    (own,) = passed
    if kind in _VIEWS:
        if cursor.peek("("):
            cursor.names()
        retention = _retention(source, cursor.index)
        while not cursor.accept("AS"):
            cursor.skip(1)
        return Parts(own, (), cursor.rest(), *retention)
    if cursor.accept("OF", "SOURCE"):
        cursor.relation()  # What a source keeps: no statement that could be parsed.
    elif kind != "table":
        passed.clear()
        parse.statement_of(replace(source, passed=passed))
    others = tuple(each for each in passed if each.start > own.start)
    return Parts(own, others, None, *_retention(source, len(source.tokens)))


def _retention(source: Source, index: int) -> tuple[tuple[int, int], int | None]:
    """Where it is said how long history is kept, and what; ``index``: the token it is before."""
    for first in range(len(source.tokens)):
        cursor = Cursor(source, first)
        if cursor.peek("WITH", "(", "RETAIN", "HISTORY"):
            cursor.expect("WITH")
            retain_ms = objects.retention(cursor)
            place = source.tokens[first].start, source.tokens[cursor.index - 1].end + 1
            return place, retain_ms
    end = source.tokens[index - 1].end + 1
    return (end, end), None


def renamed(create_sql: str, new_name: str, dialect: Dialect = "postgres") -> str:
    """Return the text of a CREATE with another name for what it makes."""
    own = parts(create_sql, dialect).own
    return edited(create_sql, (Edit(own.start, own.end, in_quotes(new_name, dialect)),))


def clause(create_sql: str, word: str, before: str | None = None) -> tuple[int, int]:
    """Return where the clause is, outside of brackets, that begins so, and ends ``before`` another.

    Where there is none it is empty, at its place.

    >>> text = "CREATE SOURCE s FROM x (FOR 1) FOR ALL TABLES WITH (y)"
    >>> first, last = clause(text, "FOR", "WITH")
    >>> text[first:last], clause("CREATE SOURCE s FROM x WITH (y)", "FOR", "WITH")
    ('FOR ALL TABLES', (22, 22))
    """
    (source,) = split(create_sql)
    depth, start, end = 0, None, source.tokens[-1].end + 1
    for token, last in zip(source.tokens[1:], source.tokens, strict=False):
        if not depth and before is not None and is_word(token, before):
            end = last.end + 1
            break
        if not depth and is_word(token, word):
            start = token.start
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
    return (end if start is None else start), end


# --- queries --------------------------------------------------------------------------------------


def query_with_names(query: str, called: Mapping[str, str]) -> str | None:
    """Return a query of PostgreSQL's dialect with relations under other names; None: unreadable."""
    try:
        (source,) = split(query)
        return edited(query, query_edits(source, called))
    except (AdapterError, ValueError):
        return None


def query_edits(query: Source, called: Mapping[str, str]) -> Iterator[Edit]:
    """Return what puts relations of a query under other names, by how it has them."""
    tree = spark_text.tree_of(query) if query.dialect == "spark" else parse_tree(query)
    done: set[int] = set()
    for table in _relations(tree, query.dialect):
        new = called.get(written([folded(part) for part in table.parts]))
        start, end = _place(table.parts)
        if new is None or start in done:
            continue
        done.add(start)
        alone = folded(table.this)
        alias = (
            ""
            if table.alias or bare(new) == alone
            else f" AS {in_quotes(_one(alone), query.dialect)}"
        )
        yield Edit(start, end, f"{in_quotes(new, query.dialect)}{alias}")
    for column in tree.find_all(exp.Column):
        *relation, _ = column.parts
        if len(relation) > 1 and written([folded(part) for part in relation]) in called:
            alone = in_quotes(_one(folded(relation[-1])), query.dialect)
            yield Edit(*_place(relation), alone)


def _relations(tree: Any, dialect: Dialect) -> Iterator[Any]:
    """The relations that a query reads, without the queries of its own WITH."""
    if dialect == "spark":
        defined = {with_.alias.lower() for with_ in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            if isinstance(table.this, exp.Identifier) and table.name.lower() not in defined:
                yield table
    elif isinstance(tree, exp.Query):
        for scope in traverse_scope(tree):
            for source in scope.sources.values():
                if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
                    yield source


def _place(identifiers: list[Any]) -> tuple[int, int]:
    return identifiers[0].meta["start"], identifiers[-1].meta["end"] + 1


def _one(name: str) -> str:
    return written((name,))
