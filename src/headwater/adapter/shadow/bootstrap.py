"""What a new shadow is: its settings, its three roles, and what the weakest may do.

Three roles, each with a purpose and no more rights than that needs:

- :data:`ADMIN` makes roles and keeps the record of what is mirrored. No client text reaches it.
- :data:`OWNER` owns the mirrored objects and creates them; :data:`ACCESS` lets it in nowhere and it
  is no superuser, so a definition that we mirror cannot do more than define.
- :data:`READER` is who client text runs as. It may read the catalogs and the (empty) mirrored
  relations. It owns nothing, creates nothing, belongs to no other role, reads no file, and cannot
  sleep, lock, signal, or raise its own limits for more than the statement in which it does so
  (:mod:`.sessions` forgets everything afterwards).

Strings are compared by code point, as UTF8_BINARY does, and a code point's case is its own alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import psycopg
from psycopg import sql

from headwater.adapter.shadow.numbers import hide_numbers

DATABASE: Final = "headwater"
ADMIN: Final = "headwater_admin"
OWNER: Final = "headwater"
READER: Final = "headwater_reader"
RECORD_SCHEMA: Final = "pg_headwater"
"""Where the record is. Clients take ``pg_…`` for the system's and do not list it."""

NAME_BYTES_MAX: Final = 63
STATEMENT_TIMEOUT_MS: Final = 5_000

INITDB_OPTIONS: Final = (
    *("-U", ADMIN, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"),
    *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
)

ACCESS: Final = f"local all {ADMIN} trust\nlocal {DATABASE} {READER} trust\nlocal all all reject\n"
"""The socket's directory is entered by our user alone; that is the lock on the door."""

CONFIGURATION: Final = """\
listen_addresses = ''
unix_socket_permissions = 0700
max_connections = 24
superuser_reserved_connections = 4
shared_buffers = 16MB
temp_buffers = 1MB
work_mem = 4MB
maintenance_work_mem = 16MB
temp_file_limit = 65536
max_parallel_workers = 0
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
max_wal_senders = 0
wal_level = minimal
max_wal_size = 64MB
min_wal_size = 32MB
max_prepared_transactions = 0
synchronous_commit = off
autovacuum_naptime = 600
jit = off
track_activities = off
session_preload_libraries = ''
log_min_messages = fatal
log_min_error_statement = panic
log_statement = none
log_checkpoints = off
log_autovacuum_min_duration = -1
datestyle = 'ISO, MDY'
intervalstyle = 'postgres'
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
default_text_search_config = 'pg_catalog.simple'
"""
"""No activity and no statement is recorded: one client's text is not another's to read."""

UNFORCED: Final = "fsync = off\nfull_page_writes = off\n"
"""Where a crash of the machine is noticed, and the shadow made again."""

READER_SETTINGS: Final = {
    "statement_timeout": str(STATEMENT_TIMEOUT_MS),
    "lock_timeout": "2000",
    "idle_session_timeout": "0",
    "synchronous_commit": "on",  # As it is with us; it writes nothing.
    "default_transaction_read_only": "on",
    "search_path": "public",
}

FORBIDDEN_FUNCTIONS: Final = (
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
    "pg_cancel_backend",
    "pg_terminate_backend",
    "pg_notify",
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
    "pg_logical_emit_message",
    "pg_export_snapshot",
    "pg_stat_get_activity",
    "query_to_xml",
    "query_to_xmlschema",
    "query_to_xml_and_xmlschema",
    "cursor_to_xml",
    "cursor_to_xmlschema",
    "table_to_xml",
    "table_to_xmlschema",
    "table_to_xml_and_xmlschema",
    "schema_to_xml",
    "schema_to_xmlschema",
    "schema_to_xml_and_xmlschema",
    "database_to_xml",
    "database_to_xmlschema",
    "database_to_xml_and_xmlschema",
    "ts_stat",
    "lo_creat",
    "lo_create",
    "lo_from_bytea",
    "lo_get",
    "lo_import",
    "lo_export",
    "lo_open",
    "lo_put",
    "lo_unlink",
    "nextval",
    "setval",
)
"""Revoked from everybody: those that wait, signal, lock, run text, or write."""


USER_FUNCTIONS: Final = ("current_user", "session_user", "current_role", "user")
"""Called with the session's user in the place of PostgreSQL's words (``adapter/acting.py``)."""

INITIAL_DATABASE: Final = "template1"
"""What there is before :data:`DATABASE`, and no longer when a shadow is whole."""

ROLE_VIEWS: Final = ("pg_roles", "pg_shadow")
"""Of PostgreSQL's own, over which its others are: what clients learn of roles, they learn here."""


def make_database(connection: psycopg.Connection[Any]) -> None:
    """Roles and the database, from :data:`INITIAL_DATABASE`. Nobody may be connected to another."""
    run = connection.execute
    owner, reader, database = map(sql.Identifier, (OWNER, READER, DATABASE))
    run(sql.SQL("CREATE ROLE {} LOGIN").format(owner))  # "Cannot login" would puzzle in \\du
    run(sql.SQL("CREATE ROLE {} LOGIN").format(reader))
    run(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, owner))
    run("DROP DATABASE postgres")
    run(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(database))
    run(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, reader))
    run(sql.SQL("GRANT CREATE, CONNECT ON DATABASE {} TO {}").format(database, owner))
    for name, value in READER_SETTINGS.items():
        run(
            sql.SQL("ALTER ROLE {} SET {} = {}").format(
                reader, sql.Identifier(name), sql.Literal(value)
            )
        )


def make_rights(connection: psycopg.Connection[Any]) -> None:
    """Rights and the record, inside the database."""
    run = connection.execute
    owner, reader = map(sql.Identifier, (OWNER, READER))
    run("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    run(sql.SQL("ALTER SCHEMA public OWNER TO {}").format(owner))
    run(sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(reader))
    run("COMMENT ON SCHEMA public IS NULL")
    run("REVOKE ALL ON LANGUAGE plpgsql, sql FROM PUBLIC")
    # REFERENCES shows the keys in information_schema, and needs a table of one's own to be used.
    run(
        sql.SQL(
            "ALTER DEFAULT PRIVILEGES FOR ROLE {} GRANT SELECT, REFERENCES ON TABLES TO {}"
        ).format(owner, reader)
    )
    run(
        sql.SQL("ALTER DEFAULT PRIVILEGES FOR ROLE {} GRANT USAGE ON SCHEMAS TO {}").format(
            owner, reader
        )
    )
    signatures = connection.execute(
        "SELECT oid::regprocedure::text FROM pg_proc"
        " WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY(%s) AND prokind = 'f'",
        [list(FORBIDDEN_FUNCTIONS)],
    ).fetchall()
    for (signature,) in signatures:
        run(sql.SQL("REVOKE ALL ON FUNCTION {} FROM PUBLIC").format(sql.SQL(signature)))
    run("SET allow_system_table_mods = on")
    schema = sql.Identifier(RECORD_SCHEMA)
    run(sql.SQL("CREATE SCHEMA {}").format(schema))
    run(
        sql.SQL(
            "CREATE TABLE {}.mirrored"
            " (key text PRIMARY KEY, place int NOT NULL, drops text NOT NULL, digest text NOT NULL)"
        ).format(schema)
    )
    for name in USER_FUNCTIONS:
        # The words of these names mean the role, which is the reader for everybody.
        run(
            sql.SQL(
                "CREATE FUNCTION pg_catalog.{}(text) RETURNS name IMMUTABLE STRICT PARALLEL SAFE"
                " LANGUAGE sql RETURN $1::name"
            ).format(sql.Identifier(name))
        )
    hide_numbers(connection)
    hide_what_is_ours(connection)
    run("RESET allow_system_table_mods")


def hide_what_is_ours(connection: psycopg.Connection[Any]) -> None:
    """Leave what a client expects to be listed: the one database, and no role of our own making."""
    run = connection.execute
    run("UPDATE pg_database SET datistemplate = false")
    for name in ("template0", INITIAL_DATABASE):
        run(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
    for view in ROLE_VIEWS:
        found = run("SELECT pg_get_viewdef(%s::regclass)", [view]).fetchone()
        assert found is not None, "an aggregate has a row"
        name = "rolname" if view == "pg_roles" else "usename"
        run(
            sql.SQL("CREATE OR REPLACE VIEW pg_catalog.{} AS SELECT * FROM ({}) AS r").format(
                sql.Identifier(view), sql.SQL(found[0].rstrip(";"))
            )
            + sql.SQL(" WHERE {} NOT IN ({}, {})").format(
                sql.Identifier(name), sql.Literal(ADMIN), sql.Literal(READER)
            )
        )


def show_users(connection: psycopg.Connection[Any], users: Iterable[str]) -> None:
    """Let roles of these names be listed, and no others besides :data:`OWNER`.

    They are names: nobody comes in by them (:data:`ACCESS`), and they may do nothing.
    """
    # What PostgreSQL keeps for itself, or cannot hold, cannot be shown.
    wanted = {name for name in users if not name.startswith("pg_") and _fits(name)}
    told = connection.execute("SELECT rolname FROM pg_authid WHERE rolname !~ '^pg_'").fetchall()
    there = {name for (name,) in told}
    for name in sorted(wanted - there):
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    for name in sorted(there - wanted - {ADMIN, OWNER, READER}):
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def _fits(name: str) -> bool:
    return len(name.encode()) <= NAME_BYTES_MAX and name not in ("public", "none", "")
