"""Making the shadow show exactly the given objects: ``mirror(objects)``.

After ``mirror(objects)`` the shadow has those objects and no others, whatever it had before; a
second call with the same objects does nothing. What is unchanged is not touched, so that its OID
stays; what is changed is dropped and made again, and so is whatever PostgreSQL dropped along with
it. All of it is one transaction: a client sees the catalog before or after, never between.
An object that PostgreSQL does not take (a column called ``ctid``) is left out, and the log says so.

The record of what is there (key → digest) is kept by the shadow itself, in the same transaction.

Definitions come from clients. They run as the owner of the mirrored objects, which is no superuser,
one command at a time (the extended protocol takes no second one), and only to
be analysed: a materialized view is created ``WITH NO DATA``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, assert_never

import psycopg
from psycopg import sql

from headwater.adapter.shadow.bootstrap import OWNER, RECORD_SCHEMA
from headwater.adapter.shadow.objects import Mirrored, Relation, Schema, digest

_log = logging.getLogger(__name__)

PUBLIC: Final = "public"
_RECORD: Final = sql.Identifier(RECORD_SCHEMA, "mirrored")
_KINDS: Final = {
    "table": sql.SQL("TABLE"),
    "view": sql.SQL("VIEW"),
    "materialized view": sql.SQL("MATERIALIZED VIEW"),
}


def mirror(connection: psycopg.Connection[Any], objects: Sequence[Mirrored]) -> tuple[str, ...]:
    """Make it so, as the admin; return the keys of what was made (in their order).

    ``objects`` are in an order in which they can be created: schemas first, a view after what it
    reads.
    """
    wanted = {what.key: digest(what) for what in objects}
    if len(wanted) != len(objects):
        raise ValueError("two objects have one name")
    with connection.transaction(), connection.cursor() as cursor:
        found = _record(cursor)
        gone = [key for key in found if wanted.get(key) != found[key][1]]
        for key in gone:
            cursor.execute(found[key][0])
            cursor.execute(sql.SQL("DELETE FROM {} WHERE key = %s").format(_RECORD), [key])
        there = _existing(cursor)
        made = [
            what
            for what in objects
            if what.key not in found or what.key in gone or what.key not in there
        ]
        taken = [what for what in made if _is_taken(cursor, what)]
        for place, what in enumerate(taken):
            cursor.execute(
                sql.SQL(
                    "INSERT INTO {} VALUES (%s, %s, %s, %s)"
                    " ON CONFLICT (key) DO UPDATE SET drops = excluded.drops"
                ).format(_RECORD),
                [what.key, place, _drop(what).as_string(connection), wanted[what.key]],
            )
    return tuple(what.key for what in taken)


def _record(cursor: psycopg.Cursor[Any]) -> dict[str, tuple[str, str]]:
    cursor.execute(sql.SQL("SELECT key, drops, digest FROM {} ORDER BY key").format(_RECORD))
    return {key: (drops, known) for key, drops, known in cursor.fetchall()}


def _existing(cursor: psycopg.Cursor[Any]) -> set[str]:
    """The keys of everything that the owner owns, by what PostgreSQL says and not the record."""
    cursor.execute(
        "SELECT 'schema ' || nspname FROM pg_namespace WHERE nspowner = %(owner)s::regrole"
        " UNION ALL SELECT 'relation ' || nspname || '.' || relname"
        " FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE relowner = %(owner)s::regrole AND relkind IN ('r', 'v', 'm')",
        {"owner": OWNER},
    )
    return {key for (key,) in cursor.fetchall()}


def _drop(what: Mirrored) -> sql.Composable:
    match what:
        case Schema(name):
            if name == PUBLIC:
                return sql.SQL("COMMENT ON SCHEMA public IS NULL")
            return sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name))
        case Relation():
            return sql.SQL("DROP {} IF EXISTS {} CASCADE").format(_KINDS[what.kind], _name(what))
        case _:
            assert_never(what)


def _is_taken(cursor: psycopg.Cursor[Any], what: Mirrored) -> bool:
    """Create it, unless PostgreSQL refuses."""
    try:
        with cursor.connection.transaction():
            _create(cursor, what)
    except psycopg.OperationalError:
        raise
    except psycopg.Error as error:
        _log.warning("%s is not shown: %s", what.key, error.diag.message_primary or error)
        return False
    return True


def _create(cursor: psycopg.Cursor[Any], what: Mirrored) -> None:
    cursor.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(OWNER)))
    match what:
        case Schema(name, comment):
            if name != PUBLIC:
                cursor.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
            if comment is not None:
                _comment(cursor, sql.SQL("SCHEMA {}").format(sql.Identifier(name)), comment)
        case Relation():
            _create_relation(cursor, what)
            for statement in _keys(what):
                cursor.execute(statement)
            _comment_relation(cursor, what)
        case _:
            assert_never(what)
    cursor.execute("RESET ROLE")


def _create_relation(cursor: psycopg.Cursor[Any], what: Relation) -> None:
    if what.kind == "table":
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}{}{}").format(
                sql.Identifier(column.name),
                sql.SQL(column.type),
                sql.SQL("" if column.default is None else f" DEFAULT {column.default}"),
                sql.SQL(" NOT NULL") if column.not_null else sql.SQL(""),
            )
            for column in what.columns
        )
        cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(_name(what), columns))
        return
    if what.definition is not None and _defined(cursor, what):
        return
    empty = sql.SQL("SELECT {}").format(
        sql.SQL(", ").join(
            sql.SQL("NULL::{} AS {}").format(sql.SQL(column.type), sql.Identifier(column.name))
            for column in what.columns
        )
    )
    cursor.execute(_create_as(what, empty))


def _defined(cursor: psycopg.Cursor[Any], what: Relation) -> bool:
    """Whether PostgreSQL takes the client's own definition, and gives it the same columns."""
    assert what.definition is not None
    cursor.execute("SAVEPOINT definition")
    try:
        # An empty list of parameters makes it the extended protocol: one command and no more; and
        # psycopg looks for their places, which a % would be.
        text = _create_as(what, sql.SQL(what.definition)).as_bytes(None).replace(b"%", b"%%")
        cursor.execute(text, [], prepare=True)
        cursor.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [_name(what).as_string(None)],
        )
        names = [name for name, _ in cursor.fetchall()]
        if names == [column.name for column in what.columns]:
            cursor.execute("RELEASE definition")
            return True
    except psycopg.Error as error:
        why = error.diag.message_primary or error
        _log.info("%s is shown with its columns alone: %s", what.key, why)
    cursor.execute("ROLLBACK TO definition")
    return False


def _create_as(what: Relation, query: sql.Composable) -> sql.Composed:
    no_data = sql.SQL(" WITH NO DATA" if what.kind == "materialized view" else "")
    return sql.SQL("CREATE {} {} AS {}{}").format(_KINDS[what.kind], _name(what), query, no_data)


def _keys(what: Relation) -> Iterator[sql.Composed]:
    keys = [("PRIMARY KEY", what.primary_key)] if what.primary_key else []
    keys += [("UNIQUE", key) for key in what.unique_keys]
    if what.kind == "table":
        for words, columns in keys:
            yield sql.SQL("ALTER TABLE {} ADD {} ({})").format(
                _name(what), sql.SQL(words), _list(columns)
            )
    elif what.kind == "materialized view":
        for _, columns in keys:
            yield sql.SQL("CREATE UNIQUE INDEX ON {} ({})").format(_name(what), _list(columns))
    if what.kind != "view":
        for index in what.indexes:
            yield sql.SQL("CREATE {}INDEX {} ON {} ({})").format(
                sql.SQL("UNIQUE " if index.unique else ""),
                sql.Identifier(index.name),
                _name(what),
                _list(index.columns),
            )


def _comment_relation(cursor: psycopg.Cursor[Any], what: Relation) -> None:
    if what.comment is not None:
        _comment(cursor, sql.SQL("{} {}").format(_KINDS[what.kind], _name(what)), what.comment)
    for column in what.columns:
        if column.comment is not None:
            name = sql.Identifier(what.schema, what.name, column.name)
            _comment(cursor, sql.SQL("COLUMN {}").format(name), column.comment)


def _comment(cursor: psycopg.Cursor[Any], on: sql.Composable, text: str) -> None:
    cursor.execute(sql.SQL("COMMENT ON {} IS {}").format(on, sql.Literal(text)))


def _name(what: Relation) -> sql.Identifier:
    return sql.Identifier(what.schema, what.name)


def _list(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
