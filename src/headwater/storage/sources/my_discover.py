"""What a server of MySQL or MariaDB has, and what keeps it from being followed, with the remedy.

Refused is what would be followed wrongly, or not at all:

- a server without a log of whole rows with the names of their columns;
- a table of an engine without transactions: it has no snapshot, and its rows no commit;
- a table whose rows are changed by a foreign key (``ON DELETE CASCADE``, …): the engine does that,
  and no log has it;
- a table with a type or a character set that is not known here.

What cannot be seen from here: sessions that log nothing (``SET sql_log_bin = 0``), or otherwise
than the server is set to; the latter is found in the log, and is an error there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headwater.storage.sources.my_binlog import file_number, place
from headwater.storage.sources.my_copy import end_of_log
from headwater.storage.sources.my_stream import Stream
from headwater.storage.sources.my_types import DATES, Unreadable, declared_type
from headwater.storage.sources.my_wire import Config, connected, one, rows, variables

SYSTEM: Final = ("mysql", "information_schema", "performance_schema", "sys")

_SETTINGS: Final = (
    ("binlog_format", "ROW"),
    ("binlog_row_image", "FULL"),
    ("binlog_row_metadata", "FULL"),
)


@dataclass(frozen=True, slots=True)
class Discovered:
    """The tables of a server, and what is wrong: with it, and with each."""

    server: str
    tables: Mapping[str, pa.Schema]
    keys: Mapping[str, tuple[str, ...]]
    wrong: tuple[str, ...]
    wrong_with: Mapping[str, tuple[str, ...]]

    def obstacles(self, wanted: Collection[str]) -> list[str]:
        """Return what keeps these tables from being followed."""
        found = [*self.wrong]
        for table in wanted:
            found += self.wrong_with.get(table, ())
        return found


def is_maria(connection: Any) -> bool:
    """Whether it is a server of MariaDB."""
    return "mariadb" in str(one(connection, "SELECT VERSION()")).lower()


def server_of(connection: Any, *, maria: bool) -> str:
    """Return which server it is: positions in the log of another mean nothing."""
    found = one(connection, "SELECT @@server_id" if maria else "SELECT @@server_uuid")
    assert found is not None
    return str(found[0])


def charsets_of(connection: Any) -> dict[int, str]:
    """Return the character set of each collation, by its number."""
    found = rows(
        connection,
        "SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL",
    )
    return {int(number): str(name) for number, name in found if name is not None}


def discover(config: Config) -> Discovered:
    """Look at a server: its settings, and all tables that we may see."""
    connection = connected(config)
    try:
        maria = is_maria(connection)
        given = variables(connection)
        schemas = [str(row[0]) for row in rows(connection, "SHOW DATABASES")]
        schemas = [each for each in schemas if each.lower() not in SYSTEM] or [""]
        tables, wrong_with = _tables(connection, schemas)
        _refuse_cascades(connection, schemas, wrong_with)
        found = Discovered(
            server_of(connection, maria=maria),
            tables,
            _keys(connection, schemas),
            tuple(_wrong(given) or _unreadable_log(connection, config)),
            {table: tuple(why) for table, why in wrong_with.items()},
        )
    finally:
        connection.close()
    return found


def _wrong(given: Mapping[str, str]) -> list[str]:
    if given.get("log_bin") != "ON":
        return ["it keeps no binary log: set log_bin in its configuration, and restart it"]
    found = []
    for name, wanted in _SETTINGS:
        there = given.get(name)
        if there is None:
            found.append(
                f"it knows no {name}: MariaDB 10.5 or MySQL 8.0 is the oldest that can be followed"
            )
        elif there.upper() != wanted:
            found.append(
                f"{name} is {there}: SET GLOBAL {name} = '{wanted}', in its configuration too, "
                "and let its clients connect anew"
            )
    if "PARTIAL_JSON" in given.get("binlog_row_value_options", ""):
        found.append("binlog_row_value_options is PARTIAL_JSON: SET GLOBAL it to ''")
    return found


def _unreadable_log(connection: Any, config: Config) -> list[str]:
    """Try to read the log: who may not is told now, not later."""
    import pymysql

    try:
        end = end_of_log(connection)
        assert end is not None, "log_bin is on"
        stream = Stream(config, end[0], place(file_number(end[0]), end[1]))
        try:
            stream.hello()
        finally:
            stream.close()
    except pymysql.Error as error:
        remedy = (
            "GRANT SELECT, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* "
            "TO the user of the connection"
        )
        return [f"its log cannot be read ({error.args[-1]}): {remedy}"]
    return []


def _tables(
    connection: Any, schemas: list[str]
) -> tuple[dict[str, pa.Schema], dict[str, list[str]]]:
    wrong: dict[str, list[str]] = {}
    fields: dict[str, list[pa.Field]] = {}
    kinds = rows(
        connection,
        "SELECT t.table_schema, t.table_name, t.table_type, t.engine, e.transactions "
        "FROM information_schema.tables t LEFT JOIN information_schema.engines e "
        "ON e.engine = t.engine WHERE t.table_schema IN %s "
        "AND t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')",
        schemas,
    )
    for schema, name, kind, engine, transactions in kinds:
        table = f"{schema}.{name}"
        fields[table] = []
        if kind != "BASE TABLE":
            wrong.setdefault(table, []).append(f"table {table} keeps versions of its rows")
        if transactions != "YES":
            wrong.setdefault(table, []).append(
                f"table {table} has no transactions ({engine}): ALTER TABLE {table} ENGINE = InnoDB"
            )
    columns = rows(
        connection,
        "SELECT table_schema, table_name, column_name, data_type, column_type, numeric_precision, "
        "numeric_scale, character_set_name, is_nullable, extra FROM information_schema.columns "
        "WHERE table_schema IN %s ORDER BY table_schema, table_name, ordinal_position",
        schemas,
    )
    for schema, name, column, type_, full, precision, scale, charset, nullable, extra in columns:
        table = f"{schema}.{name}"
        if table not in fields or "VIRTUAL" in str(extra).upper():
            continue  # A view; or what is computed where it is read, and not logged.
        try:
            found = declared_type(type_, full, precision, scale, charset)
        except Unreadable as error:
            wrong.setdefault(table, []).append(
                f"table {table}, column {column}: {error}; leave the table out"
            )
            continue
        may_be_null = nullable == "YES" or type_ in DATES
        fields[table].append(pa.field(column, found, nullable=may_be_null))
    return {table: pa.schema(found) for table, found in fields.items()}, wrong


def _refuse_cascades(connection: Any, schemas: list[str], wrong: dict[str, list[str]]) -> None:
    for schema, name, constraint, on_update, on_delete in rows(
        connection,
        "SELECT constraint_schema, table_name, constraint_name, update_rule, delete_rule "
        "FROM information_schema.referential_constraints "
        "WHERE constraint_schema IN %s AND (update_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT') "
        "OR delete_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT'))",
        schemas,
    ):
        table = f"{schema}.{name}"
        wrong.setdefault(table, []).append(
            f"table {table} is changed by its foreign key {constraint} (ON UPDATE {on_update}, "
            f"ON DELETE {on_delete}), and no log has that: make it RESTRICT, or leave the table out"
        )


def _keys(connection: Any, schemas: list[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for schema, name, column in rows(
        connection,
        "SELECT table_schema, table_name, column_name FROM information_schema.statistics "
        "WHERE index_name = 'PRIMARY' AND table_schema IN %s "
        "ORDER BY table_schema, table_name, seq_in_index",
        schemas,
    ):
        found.setdefault(f"{schema}.{name}", []).append(str(column))
    return {table: tuple(columns) for table, columns in found.items()}
