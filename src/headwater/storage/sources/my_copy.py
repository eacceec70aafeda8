"""The contents of tables in one snapshot, at a known place of the log.

**MariaDB** says where in its log a snapshot is (``binlog_snapshot_file``), and nobody waits for it.
**MySQL** does not: our tables are locked against writing while the snapshot is taken and the end of
the log is asked for, and no longer. What others write then is of other tables, so any position in
between is the one of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.storage.generators.generator import placed, with_diffs
from headwater.storage.source import Records
from headwater.storage.sources.misfit import Misfit
from headwater.storage.sources.my_binlog import file_number, place, read_length
from headwater.storage.sources.my_types import Unreadable, column_of, quoted_name, selected
from headwater.storage.sources.my_wire import Config, connected, one, rows, selected_packets

ROWS_AT_ONCE: Final = 50_000
BYTES_AT_ONCE: Final = 16 * 1024 * 1024
LOCK_WAIT_S: Final = 50
_NULL: Final = 251
_UNKNOWN: Final = 1064


def quoted_table(table: str) -> str:
    """Return ``schema.table`` between quotes."""
    space, _, name = table.partition(".")
    return f"{quoted_name(space)}.{quoted_name(name)}"


def end_of_log(connection: Any) -> tuple[str, int] | None:
    """Return the file that is written, and the position behind what is in it."""
    import pymysql

    try:
        found = one(connection, "SHOW MASTER STATUS")
    except pymysql.err.ProgrammingError as error:
        if error.args[0] != _UNKNOWN:
            raise
        found = one(connection, "SHOW BINARY LOG STATUS")  # As MySQL calls it since 8.2.
    return None if found is None else (str(found[0]), int(found[1]))


def take_snapshot(connection: Any, config: Config, tables: Collection[str], *, maria: bool) -> int:
    """Begin a transaction that sees one snapshot; return its place in the log."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if maria:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            found = {
                str(name).lower(): value
                for name, value in rows(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'")
            }
            file, position = found["binlog_snapshot_file"], found["binlog_snapshot_position"]
            return place(file_number(file), int(position))
    locking = connected(config)
    try:
        with locking.cursor() as cursor:
            cursor.execute(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}")
            wanted = ", ".join(f"{quoted_table(table)} READ" for table in tables)
            cursor.execute(f"LOCK TABLES {wanted}")
        with connection.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        end = end_of_log(locking)
        assert end is not None, "it was there for the probe"
        return place(file_number(end[0]), end[1])
    finally:
        locking.close()


def copied(
    connection: Any, partition: str, table: str, schema: pa.Schema, at: int
) -> Iterator[Records]:
    """Return the rows of a table as the connection's transaction sees it, all at one place."""
    space, _, name = table.partition(".")
    declared = {
        str(column).lower(): str(type_)
        for column, type_ in rows(
            connection,
            "SELECT column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s",
            space,
            name,
        )
    }
    types = []
    for wanted in schema.names:
        if wanted.lower() not in declared:
            raise Misfit(f"table {table!r}, column {wanted!r}: it was dropped or renamed upstream")
        types.append(declared[wanted.lower()])
    asked = ", ".join(
        selected(column, type_) for column, type_ in zip(schema.names, types, strict=True)
    )
    query = f"SELECT {asked} FROM {quoted_table(table)}"  # noqa: S608 - names, quoted
    for texts in _blocks(selected_packets(connection, query), len(types)):
        arrays = []
        for found, field, type_ in zip(texts, schema, types, strict=True):
            try:
                arrays.append(column_of(found, field.type, type_))
            except Unreadable as error:
                raise Misfit(f"table {table!r}, column {field.name!r}: {error}") from error
        contents = pa.Table.from_arrays(arrays, schema=schema)
        places = np.full(contents.num_rows, at, np.int64)
        yield Records(table, placed(partition, places, with_diffs(contents, 1)))


def _blocks(packets: Iterator[bytes], width: int) -> Iterator[Sequence[Sequence[bytes | None]]]:
    """Return many rows at a time, column by column, as texts."""
    columns: list[list[bytes | None]] = [[] for _ in range(width)]
    size = 0
    for data in packets:
        at = 0
        for column in columns:
            length = data[at]
            at += 1
            if length == _NULL:
                column.append(None)
                continue
            if length > _NULL:
                length, at = read_length(data, at - 1)
            column.append(data[at : at + length])
            at += length
        size += len(data)
        if len(columns[0]) >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield columns
            columns, size = [[] for _ in range(width)], 0
    if columns[0]:
        yield columns
