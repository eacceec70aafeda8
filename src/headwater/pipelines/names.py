"""What a project calls relations, and what they are called here.

A location has one schema, so the pipeline's catalog and database only qualify: ``orders``,
``sales.orders`` and ``spark_catalog.sales.orders`` are the relation ``orders``. Spark does not tell
cases apart; names here are in lower case. What is qualified by anything else is Spark's to find.

In texts of SQL, ``STREAM orders`` is what is inserted into ``orders``: a relation of its own
(``compute/declared/guarded.py``), which keeps the name ``orders`` for the query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlglot.tokens import TokenType

from headwater.adapter.errors import SqlSyntaxError
from headwater.adapter.sql.tokens import is_word, split
from headwater.base.errors import InvalidUsage
from headwater.compute.declared.guarded import stream_of

CATALOG: Final = "spark_catalog"
DATABASE: Final = "default"

_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`\s]+)")
_NAMES: Final = (TokenType.VAR, TokenType.IDENTIFIER)
_BEFORE: Final = ("FROM", "JOIN", ",")


class NotAName(InvalidUsage):
    """A name that no relation can have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is no name of a relation; write name, or database.name")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one pipeline."""

    catalog: str | None = None
    database: str | None = None

    def plain(self, name: str) -> str:
        """Return what a relation is called here.

        >>> Names("spark_catalog", "sales").plain("Sales.`Orders`")
        'orders'
        >>> Names().plain("elsewhere.orders")
        'elsewhere.orders'
        """
        parts = _parts(name)
        return self._bare(parts) or ".".join(parts)

    def _bare(self, parts: Sequence[str]) -> str | None:
        """Return the name alone, if it is qualified by nothing or by what is the pipeline's."""
        *qualifiers, name = (part.lower() for part in parts)
        databases = {(self.database or DATABASE).lower(), DATABASE}
        catalogs = {(self.catalog or CATALOG).lower(), CATALOG}
        match qualifiers:
            case []:
                return name
            case [database] if database in databases:
                return name
            case [catalog, database] if catalog in catalogs and database in databases:
                return name
            case _:
                return None

    def rewritten(self, sql: str) -> str:
        """Return a text over the names that relations have here.

        >>> Names(None, "sales").rewritten("SELECT o.k FROM sales.orders o, STREAM(bids)")
        'SELECT o.k FROM `orders` o, `__stream__bids` AS `bids`'
        """
        try:
            sources = split(sql, "spark")
        except SqlSyntaxError:
            return sql  # Spark says what is wrong with it.
        changes: list[tuple[int, int, str]] = []
        for source in sources:
            tokens = source.tokens
            for index in range(1, len(tokens)):
                if is_word(tokens[index - 1], *_BEFORE):
                    changes += self._changed(tokens, index)
        for start, end, text in reversed(changes):
            sql = sql[:start] + text + sql[end:]
        return sql

    def _changed(self, tokens: Sequence[Any], index: int) -> list[tuple[int, int, str]]:
        """Return what takes the place of the relation at this token, from where to where."""
        first = index
        streams = is_word(tokens[index], "STREAM") and index + 1 < len(tokens)
        bracket = streams and tokens[index + 1].token_type == TokenType.L_PAREN
        if streams and not bracket and not _is_name(tokens, index + 1):
            streams = False
        index += streams + bracket
        parts: list[str] = []
        while index < len(tokens) and (bracket or parts or _is_name(tokens, index)):
            parts.append(str(tokens[index].text))
            if index + 1 < len(tokens) and tokens[index + 1].token_type == TokenType.DOT:
                index += 2
                continue
            break
        bare = self._bare(parts) if parts else None
        if bare is None or index >= len(tokens):
            return []
        if bracket:
            index += 1
            if index >= len(tokens) or tokens[index].token_type != TokenType.R_PAREN:
                return []
        elif index + 1 < len(tokens) and tokens[index + 1].token_type == TokenType.L_PAREN:
            return []  # A function that returns rows.
        if not streams and len(parts) == 1:
            return []
        text = _quoted(stream_of(bare) if streams else bare)
        if streams and not _has_alias(tokens, index + 1):
            text += f" AS {_quoted(bare)}"
        return [(tokens[first].start, tokens[index].end + 1, text)]


def _is_name(tokens: Sequence[Any], index: int) -> bool:
    """Whether a name begins here: a word that is none of SQL's, or one with more behind it."""
    if tokens[index].token_type in _NAMES:
        return True
    dotted = index + 1 < len(tokens) and tokens[index + 1].token_type == TokenType.DOT
    return dotted and str(tokens[index].text).isidentifier()


def _has_alias(tokens: Sequence[Any], index: int) -> bool:
    if index >= len(tokens):
        return False
    return is_word(tokens[index], "AS") or tokens[index].token_type in _NAMES


def _parts(name: str) -> list[str]:
    parts, position = [], 0
    while True:
        found = _PART.match(name, position)
        if found is None:
            raise NotAName(name)
        parts.append(found[1].replace("``", "`") if found[1] else found[2])
        position = found.end()
        if position == len(name):
            return parts
        if name[position] != ".":
            raise NotAName(name)
        position += 1


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
