"""What the shadow would say of itself, and clients would take for ours: not said.

It is an empty PostgreSQL of 16 MB. The sizes of its relations, how often they were read, and how it
is configured, are true of it and wrong of us, and a wrong number is worse than none:

- functions about the size or the use of a relation answer NULL, "not known", and so do the columns
  of ``pg_stat_…`` views that are made of them (``\\dt+`` and ``\\l+`` show no size);
- functions about the process are nobody's to call (42501);
- ``pg_settings`` lists what a client may set, and what PostgreSQL was built with, no more, and has
  the session's values where the session has others (:data:`SESSION`).

How much there is of ours, and who does what, is in ``hw_statistics`` and ``hw_sessions``.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import sql

HINT: Final = (
    "What the server does is in hw_catalog: hw_sessions, hw_status, hw_statistics, hw_lag."
)
"""For who is denied a function about the process."""

SESSION: Final = "hw_session."
"""What the names of settings begin with that say the values of a client's variables."""

_SIZES: Final = (
    *("pg_table_size", "pg_total_relation_size", "pg_relation_size", "pg_indexes_size"),
    *("pg_database_size", "pg_tablespace_size"),
)
_ABOUT_OBJECTS: Final = """
    SELECT oid::regprocedure::text, proname, pg_get_function_identity_arguments(oid),
           prorettype::regtype::text
    FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND NOT proretset
      AND (proname = ANY(%s) OR (proname LIKE 'pg\\_stat\\_get\\_%%' AND pronargs = 1
           AND proargtypes[0] = 'oid'::regtype AND prorettype <> 'record'::regtype))
"""
_ABOUT_THE_PROCESS: Final = """
    SELECT oid::regprocedure::text FROM pg_proc
    WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f'
      AND (proname LIKE 'pg\\_stat\\_get\\_%' OR proname LIKE 'pg\\_ls\\_%')
      AND (pronargs = 0 OR proargtypes[0] = 'int4'::regtype OR proretset)
"""
_REPLACING: Final = (
    "ALTER FUNCTION {signature} RENAME TO {old}",
    "REVOKE ALL ON FUNCTION pg_catalog.{old}({arguments}) FROM PUBLIC",
    """CREATE FUNCTION pg_catalog.{name}({arguments}) RETURNS {answer}
       LANGUAGE sql STABLE PARALLEL SAFE RETURN NULL::{answer}""",
)
_SETTING: Final = "coalesce(current_setting({} || lower(s.name), true), s.setting) AS setting"
_OLD: Final = "hw_"
"""What the names of PostgreSQL's own functions begin with from then on, instead of ``pg_``."""


def hide_numbers(connection: psycopg.Connection[Any]) -> None:
    """Make it so, as the admin, who may change the system's own."""
    _refuse_process(connection)
    _blank_objects(connection)
    _show_settings(connection)


def _refuse_process(connection: psycopg.Connection[Any]) -> None:
    for (signature,) in connection.execute(_ABOUT_THE_PROCESS).fetchall():
        connection.execute(
            sql.SQL("REVOKE ALL ON FUNCTION {} FROM PUBLIC").format(sql.SQL(signature))
        )


def _blank_objects(connection: psycopg.Connection[Any]) -> None:
    """Put functions that know nothing in the place of those that know the shadow's numbers.

    PostgreSQL finds its own functions by their number, whatever stands in their place; so they
    are renamed, and the views that call them are made anew over those of the old name.
    """
    renamed = []
    for signature, name, arguments, answer in connection.execute(
        _ABOUT_OBJECTS, [list(_SIZES)]
    ).fetchall():
        old = _OLD + name.removeprefix("pg_")
        renamed.append((old, name))
        for statement in _REPLACING:
            connection.execute(
                sql.SQL(statement).format(
                    signature=sql.SQL(signature),
                    old=sql.Identifier(old),
                    name=sql.Identifier(name),
                    arguments=sql.SQL(arguments),
                    answer=sql.SQL(answer),
                )
            )
    views = connection.execute(
        "SELECT viewname, definition FROM pg_views WHERE schemaname = 'pg_catalog'"
    ).fetchall()
    for view, definition in views:
        # Lists of the user's relations leave out those that are the system's: also our record.
        anew = definition.replace("'^pg_toast'", "'^pg_'")
        for old, name in renamed:
            anew = anew.replace(f"{old}(", f"{name}(")
        if anew != definition:
            connection.execute(
                sql.SQL("CREATE OR REPLACE VIEW pg_catalog.{} AS {}").format(
                    sql.Identifier(view), sql.SQL(anew.rstrip().rstrip(";"))
                )
            )


def _show_settings(connection: psycopg.Connection[Any]) -> None:
    """Leave those settings that are a client's, and those that are what PostgreSQL is."""
    columns = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'pg_settings'::regclass"
        " AND attnum > 0 ORDER BY attnum"
    ).fetchall()
    setting = sql.SQL(_SETTING).format(sql.Literal(SESSION))
    shown = sql.SQL(", ").join(
        setting if name == "setting" else sql.Identifier("s", name) for (name,) in columns
    )
    connection.execute(
        sql.SQL(
            "CREATE OR REPLACE VIEW pg_catalog.pg_settings AS SELECT {} FROM pg_show_all_settings()"
            " AS s WHERE s.context IN ('user', 'internal') AND s.name !~ '^shared_memory_size'"
        ).format(shown)
    )
