"""What a query is about: the relations it reads, and whether we may run it.

:func:`tables` is what a view depends on and what a read must hold; it follows PostgreSQL's
scoping of ``WITH``: a name means the query of that name where it is in scope, and a relation
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from headwater.adapter.errors import Unsupported
from headwater.adapter.sql.names import written
from headwater.adapter.sql.statements import SessionColumn

# Functions about the session that clients call while connecting; none touches a collection.
_SESSION_NODES: dict[type, str] = {
    exp.CurrentVersion: "version",
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentSchema: "current_schema",
    exp.CurrentDatabase: "current_database",
    exp.CurrentCatalog: "current_catalog",
}
_SESSION_NAMES = frozenset(
    {
        "version",
        "current_user",
        "session_user",
        "current_schema",
        "current_database",
        "current_catalog",
        "pg_backend_pid",
        "pg_is_in_recovery",
    }
)


def check(tree: Any) -> None:
    """Refuse what is no pure read: ``SELECT INTO``, row locks, writes inside ``WITH``."""
    for node in tree.walk():
        if isinstance(node, exp.Into):
            raise Unsupported("SELECT INTO")
        if isinstance(node, exp.Lock):
            raise Unsupported("a row lock (FOR UPDATE, FOR SHARE)")
        if isinstance(node, exp.Insert | exp.Update | exp.Delete | exp.Merge | exp.Command):
            raise Unsupported("a statement that writes inside a query")
        if isinstance(node, exp.Parameter | exp.Placeholder):
            raise Unsupported("a parameter in a statement that was not prepared")


def tables(tree: Any) -> tuple[str, ...]:
    """The relations ``tree`` reads, each once."""
    if not isinstance(tree, exp.Query):
        return ()
    found: dict[str, None] = {}
    # A source that is a Table, and not a scope, is no query of a WITH; without a name it is a call.
    for scope in traverse_scope(tree):
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and source.name:
                found.setdefault(written([folded(part) for part in source.parts]))
    return tuple(found)


def folded(identifier: Any) -> str:
    """A name as PostgreSQL means it: quoted as it stands, unquoted in lower case."""
    return str(identifier.this) if identifier.args.get("quoted") else str(identifier.this).lower()


def is_user(node: Any) -> bool:
    """Whether a node is one of PostgreSQL's words for who asks, which name no column."""
    if isinstance(node, exp.CurrentUser | exp.SessionUser):
        return True
    if not isinstance(node, exp.Column) or node.table or not isinstance(node.this, exp.Identifier):
        return False
    return not node.this.args.get("quoted") and folded(node.this) in ("user", "current_role")


def session_columns(tree: Any) -> tuple[SessionColumn, ...] | None:
    """The session functions that make up all of ``tree``, or None if it is anything else."""
    if not isinstance(tree, exp.Select):
        return None
    if any(value for part, value in tree.args.items() if part not in ("expressions", "kind")):
        return None
    columns = [_session_column(expression) for expression in tree.expressions]
    known = tuple(column for column in columns if column is not None)
    return known if known and len(known) == len(columns) else None


def _session_column(expression: Any) -> SessionColumn | None:
    alias = expression.alias if isinstance(expression, exp.Alias) else ""
    call = expression.unalias()
    if isinstance(call, exp.Dot) and call.this.name.lower() == "pg_catalog":
        call = call.expression
    function = _SESSION_NODES.get(type(call))
    argument = None
    if function is None and isinstance(call, exp.Anonymous):
        name = call.name.lower()
        arguments = call.expressions
        if name in _SESSION_NAMES and not arguments:
            function = name
        elif (
            name == "current_setting"
            and len(arguments) in (1, 2)
            and isinstance(arguments[0], exp.Literal)
            and arguments[0].is_string
            and all(isinstance(each, exp.Boolean) for each in arguments[1:])
        ):
            argument = str(arguments[0].this).lower()
            missing_ok = any(each.this for each in arguments[1:])
            return SessionColumn(name, argument, alias or name, missing_ok=missing_ok)
        elif name == "set_config":
            return _set_config(arguments, alias or name)
    return None if function is None else SessionColumn(function, argument, alias or function)


def _set_config(arguments: Sequence[Any], name: str) -> SessionColumn | None:
    """``set_config('name', 'value', is_local)``, all of it written out."""
    if len(arguments) != 3 or not isinstance(arguments[2], exp.Boolean):
        return None
    if not all(isinstance(each, exp.Literal) and each.is_string for each in arguments[:2]):
        return None
    variable, value = (str(each.this) for each in arguments[:2])
    return SessionColumn("set_config", variable.lower(), name, value, bool(arguments[2].this))
