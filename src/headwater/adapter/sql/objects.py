"""Statements about objects by name: ``DROP``, ``ALTER``, ``COMMENT ON``, ``SHOW``, schemas.

Read by recursive descent; the grammar stands in the docstrings of :mod:`.statements`.
"""

from __future__ import annotations

from typing import Final, Literal

from sqlglot.tokens import TokenType

from headwater.adapter.errors import InvalidDefinition, Unsupported
from headwater.adapter.sql import statements
from headwater.adapter.sql.commands import settings
from headwater.adapter.sql.constraints import UNCHANGED
from headwater.adapter.sql.durations import duration_ms
from headwater.adapter.sql.materialization_statements import (
    SetMaterialization,
    TurnMaterialization,
)
from headwater.adapter.sql.names import DATABASE
from headwater.adapter.sql.source_statements import TurnSource
from headwater.adapter.sql.tokens import Cursor, Source
from headwater.adapter.sql.trees import time_of

_KINDS: Final[tuple[tuple[tuple[str, ...], statements.Kind], ...]] = (
    (("TABLE",), "table"),
    (("VIEW",), "view"),
    (("MATERIALIZED", "VIEW"), "materialized view"),
    (("INDEX",), "index"),
    (("MATERIALIZATION",), "materialization"),
    (("SUBSCRIPTION",), "subscription"),
    (("SOURCE",), "source"),
    (("SUBSOURCE",), "source"),
    (("SECRET",), "secret"),
    (("CONNECTION",), "connection"),
)

_PLURALS: Final[tuple[tuple[tuple[str, ...], statements.Kind | None], ...]] = (
    (("VIEWS",), "view"),
    (("MATERIALIZED", "VIEWS"), "materialized view"),
    (("INDEXES",), "index"),
    (("MATERIALIZATIONS",), "materialization"),
    (("SUBSCRIPTIONS",), "subscription"),
    (("SOURCES",), "source"),
    (("SECRETS",), "secret"),
    (("CONNECTIONS",), "connection"),
    (("OBJECTS",), None),
)


_ACTIONS: Final[tuple[Literal["pause", "resume", "backfill"], ...]] = (
    "pause",
    "resume",
    "backfill",
)


def kind_of(cursor: Cursor, what: str) -> statements.Kind:
    """The kind of object that is named next, as ``DROP`` and its like name it."""
    for words, kind in _KINDS:
        if cursor.accept(*words):
            return kind
    raise Unsupported(f"{what} {cursor.identifier().upper()}")


def drop(source: Source) -> statements.Statement:
    """``DROP kind [IF EXISTS] name, … [CASCADE | RESTRICT]``."""
    cursor = Cursor(source)
    cursor.expect("DROP")
    if cursor.accept("SCHEMA"):
        return _drop_schema(cursor)
    kind = kind_of(cursor, "DROP")
    if_exists = cursor.accept("IF", "EXISTS")
    names = [cursor.relation()]
    while cursor.accept(","):
        names.append(cursor.relation())
    cascade = cursor.accept("CASCADE")
    if not cascade:
        cursor.accept("RESTRICT")
    cursor.finish()
    return statements.Drop(kind, names[0], if_exists, cascade, tuple(names[1:]))


def _drop_schema(cursor: Cursor) -> statements.Statement:
    if_exists = cursor.accept("IF", "EXISTS")
    names = [_schema(cursor)]
    while cursor.accept(","):
        names.append(_schema(cursor))
    cascade = cursor.accept("CASCADE")
    if not cascade:
        cursor.accept("RESTRICT")
    cursor.finish()
    return statements.DropSchema(tuple(names), if_exists, cascade)


def _schema(cursor: Cursor) -> str:
    """A schema's name, which may be written with our database."""
    *database, name = cursor.parts()
    if database not in ([], [DATABASE]):
        raise Unsupported(f'a schema of the database "{".".join(database)}"')
    return name


def alter_schema(source: Source) -> statements.Statement:
    """``ALTER SCHEMA name RENAME TO new_name``."""
    cursor = Cursor(source)
    cursor.expect("ALTER", "SCHEMA")
    name = _schema(cursor)
    if not cursor.accept("RENAME", "TO"):
        raise Unsupported("this ALTER SCHEMA")
    new_name = cursor.name()
    cursor.finish()
    return statements.RenameSchema(name, new_name)


def alter(source: Source) -> statements.Statement:
    """``ALTER kind name RENAME TO … | SET SCHEMA … | SET (…) | RESET (…)``."""
    cursor = Cursor(source)
    cursor.expect("ALTER")
    kind = kind_of(cursor, "ALTER")
    name = cursor.relation()
    if cursor.accept("RENAME"):
        if cursor.peek("COLUMN"):
            raise Unsupported("renaming a column", hint=UNCHANGED)
        cursor.expect("TO")
        new_name = cursor.name()
        cursor.finish()
        return statements.Rename(kind, name, new_name)
    if cursor.accept("SET", "SCHEMA"):
        schema = cursor.name()
        cursor.finish()
        return statements.SetSchema(kind, name, schema)
    if kind == "materialization":
        for action in _ACTIONS:
            if cursor.accept(action.upper()):
                cursor.finish()
                return TurnMaterialization(name, action)
    if kind == "source" and (cursor.peek("PAUSE") or cursor.peek("RESUME")):
        paused = cursor.accept("PAUSE") or not cursor.accept("RESUME")
        cursor.finish()
        return TurnSource(name, "pause" if paused else "resume")
    if kind == "materialization" and cursor.accept("SET"):
        given = settings(cursor)
        cursor.finish()
        return SetMaterialization(name, given)
    if cursor.accept("SET"):
        retain_ms = retention(cursor)
        cursor.finish()
        return statements.AlterRetention(kind, name, retain_ms)
    if cursor.accept("RESET"):
        cursor.expect("(", "RETAIN", "HISTORY", ")")
        cursor.finish()
        return statements.AlterRetention(kind, name, None)
    hint = UNCHANGED if kind == "table" else None
    raise Unsupported(f"this ALTER {kind.upper()}", hint=hint)


def retention(cursor: Cursor) -> int:
    """``(RETAIN HISTORY [=] FOR 'duration')``, in milliseconds."""
    cursor.expect("(", "RETAIN", "HISTORY")
    cursor.accept("=")
    cursor.expect("FOR")
    written = cursor.string()
    cursor.expect(")")
    retain_ms = duration_ms(written)
    if retain_ms is None:
        raise InvalidDefinition(f"'{written}' is no duration", hint="Write '5 minutes', say.")
    return retain_ms


def comment(source: Source) -> statements.Statement:
    """``COMMENT ON kind name | SCHEMA name | COLUMN name.column IS …``."""
    cursor = Cursor(source)
    cursor.expect("COMMENT", "ON")
    column = None
    kind: statements.Kind | Literal["schema"] | None = None
    if cursor.accept("COLUMN"):
        name, column = cursor.column()
    elif cursor.accept("SCHEMA"):
        kind, name = "schema", _schema(cursor)
    else:
        kind = kind_of(cursor, "COMMENT ON")
        name = cursor.relation()
    cursor.expect("IS")
    text = None if cursor.accept("NULL") else cursor.string()
    cursor.finish()
    return statements.CommentOn(name, column, text, kind)


def refresh(source: Source) -> statements.Statement:
    """``REFRESH MATERIALIZED VIEW [CONCURRENTLY] name [WITH DATA]``."""
    cursor = Cursor(source)
    cursor.expect("REFRESH", "MATERIALIZED", "VIEW")
    cursor.accept("CONCURRENTLY")
    name = cursor.relation()
    if cursor.accept("WITH"):
        if cursor.peek("NO"):
            raise Unsupported("a materialized view without data")
        cursor.expect("DATA")
    cursor.finish()
    return statements.Refresh(name)


def create_schema(source: Source) -> statements.Statement:
    """``CREATE SCHEMA [IF NOT EXISTS] name``."""
    cursor = Cursor(source)
    cursor.expect("CREATE", "SCHEMA")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = _schema(cursor)
    if cursor.accept("AUTHORIZATION"):
        raise Unsupported("the owner of a schema")
    cursor.finish()
    return statements.CreateSchema(name, if_not_exists)


def create_subscription(source: Source) -> statements.Statement:
    """``CREATE SUBSCRIPTION name TO object``."""
    cursor = Cursor(source)
    cursor.expect("CREATE", "SUBSCRIPTION")
    name = cursor.relation()
    cursor.expect("TO")
    on = cursor.relation()
    cursor.finish()
    return statements.CreateSubscription(name, on)


def acknowledge(source: Source) -> statements.Statement:
    """``ACKNOWLEDGE subscription UP TO time``."""
    cursor = Cursor(source)
    cursor.expect("ACKNOWLEDGE")
    name = cursor.relation()
    cursor.expect("UP", "TO")
    time = time_of(cursor)
    cursor.finish()
    return statements.Acknowledge(name, time)


def show(source: Source) -> statements.Statement:
    """``SHOW TABLES``, of other objects, ``SHOW CREATE``, or ``SHOW variable``."""
    cursor = Cursor(source)
    cursor.expect("SHOW")
    shown = _shown(cursor)
    cursor.finish()
    return shown


def _shown(cursor: Cursor) -> statements.Statement:
    if cursor.accept("TABLES"):
        return statements.ShowTables(_from_schema(cursor))
    if cursor.accept("SCHEMAS"):
        return statements.ShowSchemas()
    if cursor.accept("COLUMNS"):
        cursor.expect("FROM")
        return statements.ShowColumns(cursor.relation())
    if cursor.accept("CREATE"):
        return statements.ShowCreate(kind_of(cursor, "SHOW CREATE"), cursor.relation())
    for words, kind in _PLURALS:
        if cursor.accept(*words):
            return statements.ShowObjects(kind, _from_schema(cursor))
    if cursor.accept("TIME", "ZONE"):
        return statements.Show("timezone")
    if cursor.accept("TRANSACTION", "ISOLATION", "LEVEL"):
        return statements.Show("transaction_isolation")
    parts = [cursor.identifier().lower()]
    while cursor.accept_type(TokenType.DOT) is not None:
        parts.append(cursor.identifier().lower())
    return statements.Show(".".join(parts))


def _from_schema(cursor: Cursor) -> str | None:
    return _schema(cursor) if cursor.accept("FROM") else None
