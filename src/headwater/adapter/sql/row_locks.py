"""Row locks: ``SELECT … FOR {UPDATE | NO KEY UPDATE | SHARE | KEY SHARE}``.

Nothing is locked here, and nobody waits. What a transaction has read FOR UPDATE must be unchanged
when it commits (``adapter/transaction.py``), so that nobody else's change comes between; that is
what the rows are locked for. So ``NOWAIT`` says nothing new, and ``SKIP LOCKED`` cannot be had.

The clause is the last of a query, and is cut off it. PostgreSQL's rules of where it may stand are
kept: the rows of a query must be rows of its tables.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from sqlglot import exp
from sqlglot.tokens import TokenType

from headwater.adapter.errors import SqlSyntaxError, Unsupported
from headwater.adapter.object_errors import NotInFrom
from headwater.adapter.sql import query
from headwater.adapter.sql.tokens import Cursor, Source, is_word

_STRENGTHS: Final = (
    ("UPDATE",),
    ("SHARE",),
    ("NO", "KEY", "UPDATE"),
    ("KEY", "SHARE"),
)


def strip(source: Source) -> tuple[Source, tuple[str, ...] | None]:
    """Cut row locks off a query; return the relations they name, or None if there are none."""
    depth = 0
    for index, token in enumerate(source.tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if index and not depth and is_word(token, "FOR") and _strength(Cursor(source, index + 1)):
            return replace(source, tokens=source.tokens[:index]), _named(Cursor(source, index))
    return source, None


def _strength(cursor: Cursor) -> str:
    for words in _STRENGTHS:
        if cursor.accept(*words):
            return f"FOR {' '.join(words)}"
    return ""


def _named(cursor: Cursor) -> tuple[str, ...]:
    named: list[str] = []
    while cursor.accept("FOR"):
        if not _strength(cursor):
            raise SqlSyntaxError(None, detail="FOR UPDATE, or another row lock, is expected.")
        if cursor.accept("OF"):
            named.append(cursor.name())
            while cursor.accept_type(TokenType.COMMA) is not None:
                named.append(cursor.name())
        if cursor.accept("SKIP", "LOCKED"):
            raise Unsupported(
                "SKIP LOCKED",
                detail="Rows are not locked: who changes them second is refused when it commits.",
                hint="Try a transaction that is refused with 40001 again.",
            )
        cursor.accept("NOWAIT")
    cursor.finish()
    return tuple(named)


def check(tree: Any, named: tuple[str, ...]) -> None:
    """Refuse row locks on a query whose rows are not those of its relations."""
    if isinstance(tree, exp.SetOperation):
        raise _not_with("UNION/INTERSECT/EXCEPT")
    if not isinstance(tree, exp.Select):
        raise _not_with("VALUES" if isinstance(tree, exp.Values) else "parentheses")
    for part, clause in (("distinct", "DISTINCT"), ("group", "GROUP BY"), ("having", "HAVING")):
        if tree.args.get(part):
            raise _not_with(f"{clause} clause")
    for node in tree.walk(prune=lambda each: isinstance(each, exp.Subquery)):
        if isinstance(node, exp.Window):
            raise _not_with("window functions")
        if isinstance(node, exp.AggFunc) and not isinstance(node.parent, exp.Window):
            raise _not_with("aggregate functions")
    known = {
        query.folded(each.args["alias"].this) if each.alias else query.folded(each.this)
        for each in tree.find_all(exp.Table, exp.Subquery)
        if each.alias or isinstance(each, exp.Table)
    }
    for name in named:
        if name not in known:
            raise NotInFrom(name)


def _not_with(clause: str) -> Unsupported:
    return Unsupported(f"FOR UPDATE with {clause}", detail="Its rows are not rows of a relation.")
