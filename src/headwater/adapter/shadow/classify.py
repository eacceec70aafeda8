"""Which client text is a question about the catalog, for the shadow to answer.

``is_catalog_query(text)`` holds iff ``text`` is one query, reads no relation of ours, and

- reads at least one relation of ``pg_catalog`` or ``information_schema``, or
- reads no relation at all and calls a function about the catalog or the session, or casts to a
  type of object identifiers (``'t'::regclass``).

A query that reads both is *not* one: in the shadow our relations are empty, and an empty answer
would be a wrong one. The caller's other path then refuses the catalog relation by its name.

Names are PostgreSQL's: unquoted ones folded, an unqualified name looked for in ``pg_catalog``
first. ``WITH`` names are followed through their scopes.
"""

from __future__ import annotations

import re
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from headwater.adapter.shadow.catalog_names import PG_CATALOG
from headwater.adapter.sql.query import folded, is_user
from headwater.adapter.sql.tokens import UNREADABLE

_SCHEMAS: Final = frozenset({"pg_catalog", "information_schema"})

_FUNCTIONS: Final = frozenset(
    {
        "col_description",
        "current_catalog",
        "current_database",
        "current_role",
        "current_schema",
        "current_schemas",
        "current_setting",
        "current_user",
        "format_type",
        "inet_server_addr",
        "inet_server_port",
        "obj_description",
        "row_security_active",
        "session_user",
        "set_config",
        "shobj_description",
        "to_regclass",
        "to_regnamespace",
        "to_regproc",
        "to_regprocedure",
        "to_regrole",
        "to_regtype",
        "txid_current",
        "version",
    }
)
_PREFIXES: Final = ("pg_", "has_")
_SESSION_NODES: Final = (
    exp.CurrentVersion,
    exp.CurrentUser,
    exp.SessionUser,
    exp.CurrentSchema,
    exp.CurrentSchemas,
    exp.CurrentDatabase,
    exp.CurrentCatalog,
    exp.CurrentRole,
)
_NOT_READS: Final = (exp.Into, exp.Lock, exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Command)


# A query's first word, after comments (dbt writes one before everything) and brackets.
_QUERY: Final = re.compile(
    r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(?:select|with|values|table)\b", re.IGNORECASE | re.DOTALL
)
_EMPTY_BRACKETS: Final = re.compile(r"\[\s*\]")
# Some word that a question about the catalog has: without one, nothing needs to be parsed.
_WORD: Final = re.compile(
    rf"\b(?:pg_|has_|reg[a-z]+\b|information_schema\b|user\b|(?:{'|'.join(sorted(_FUNCTIONS))})\b)",
    re.IGNORECASE,
)


def mentions_catalog(text: str) -> bool:
    """Whether a text has a word without which it cannot be about the catalog."""
    return _WORD.search(text) is not None


def is_catalog_query(text: str) -> bool:
    """Whether the shadow is to answer ``text``."""
    if not mentions_catalog(text) or not _QUERY.match(text):
        return False
    try:
        trees = sqlglot.parse(text, dialect="postgres")
    except UNREADABLE:
        try:
            # ``$1::oid[]``: an array of a type that sqlglot does not know (asyncpg writes it). What
            # is read does not depend on it.
            trees = sqlglot.parse(_EMPTY_BRACKETS.sub("", text), dialect="postgres")
        except UNREADABLE:
            return False
    trees = [tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon)]
    try:
        return len(trees) == 1 and _asks_the_catalog(trees[0])
    except UNREADABLE:
        return False  # What it was read as is no query: ``(SHOW x) UNION (SELECT 1)``.


def reads_catalog(tree: Any) -> bool:
    """Whether a query reads a relation of the catalog, whatever else it reads."""
    return isinstance(tree, exp.Query) and any(_relations(tree))


def _asks_the_catalog(tree: Any) -> bool:
    if not isinstance(tree, exp.Query) or tree.find(*_NOT_READS):
        return False
    relations = _relations(tree)
    if relations:
        return all(relations)
    return any(map(_is_about_the_catalog, tree.walk()))


def _relations(tree: Any) -> list[bool]:
    """For each relation that is read, whether it is the catalog's."""
    # A source that is a Table and no scope is no query of a WITH; without a name it is a call.
    return [
        _is_catalog(source)
        for scope in traverse_scope(tree)
        for source in scope.sources.values()
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
    ]


def _is_catalog(table: Any) -> bool:
    schema = table.args.get("db")
    if schema is not None and not isinstance(schema, exp.Identifier):
        return False  # ``pg_catalog. .x``, which is no name.
    if schema is None:
        return folded(table.this) in PG_CATALOG
    return folded(schema) in _SCHEMAS


def _is_about_the_catalog(node: Any) -> bool:
    if isinstance(node, _SESSION_NODES) or is_user(node):
        return True
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
        return name in _FUNCTIONS or name.startswith(_PREFIXES)
    if isinstance(node, exp.Dot):  # pg_catalog.f(…)
        return isinstance(node.this, exp.Identifier) and folded(node.this) == "pg_catalog"
    if isinstance(node, exp.Cast):
        return str(node.to.sql(dialect="postgres")).lower().removeprefix("pg_catalog.")[:3] == "reg"
    return False
