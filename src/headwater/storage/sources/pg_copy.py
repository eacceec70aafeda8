"""The contents of a table in one snapshot, by ``COPY``, in large blocks.

The server sends every row as a message of its own; they are put together as they are and parsed as
CSV, thousands at a time, by Arrow. A NULL is ``\\N`` without quotes and a text that looks like it
has quotes, so they can be told apart. Types whose text form Arrow reads as PostgreSQL writes it are
parsed at once, the others by way of their text (:func:`column_of`), so that a copied value and a
replicated one are the same.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import pq, sql
from pyarrow import csv

from headwater.storage.generators.generator import placed, with_diffs
from headwater.storage.source import Records
from headwater.storage.sources.misfit import Misfit
from headwater.storage.sources.pg_types import Unreadable, column_of

ROWS_AT_ONCE: Final = 100_000
BYTES_AT_ONCE: Final = 16 * 1024 * 1024
SILENCE_MAX_S: Final = 600.0


def copied(
    connection: psycopg.Connection[Any], partition: str, table: str, schema: pa.Schema, place: int
) -> Iterator[Records]:
    """Return the rows of a table as the connection's transaction sees it, all at one place."""
    space, _, name = table.partition(".")
    query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv, NULL '\\N')").format(
        sql.SQL(", ").join(map(sql.Identifier, schema.names)), sql.Identifier(space, name)
    )
    try:
        for rows in _blocks(connection.pgconn, query.as_string(connection).encode()):
            parsed = _parsed(table, schema, b"".join(rows))
            assert parsed.num_rows == len(rows), "a message of COPY is a row"
            places = np.full(len(rows), place, np.int64)
            yield Records(table, placed(partition, places, with_diffs(parsed, 1)))
    except (psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedTable) as error:
        raise Misfit(f"table {table!r}: {error}".strip()) from error


def _blocks(connection: pq.abc.PGconn, command: bytes) -> Iterator[list[memoryview]]:
    """Return the messages of a COPY, many at a time."""
    result = connection.exec_(command)
    if result.status != pq.ExecStatus.COPY_OUT:
        raise psycopg.errors.error_from_result(result)
    rows: list[memoryview] = []
    size = 0
    while True:
        length, row = connection.get_copy_data(1)
        if length > 0:
            rows.append(row)
            size += length
            if len(rows) >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
                yield rows
                rows, size = [], 0
        elif length == 0:
            if not select.select([connection.socket], [], [], SILENCE_MAX_S)[0]:
                raise psycopg.OperationalError("the server does not go on with its COPY")
            connection.consume_input()
        else:
            break
    if rows:
        yield rows
    while (result_ := connection.get_result()) is not None:
        if result_.status != pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result_)


def _parsed(table: str, schema: pa.Schema, data: bytes) -> pa.Table:
    try:
        texts = _read_csv(data, [_parsed_at_once(field.type) for field in schema])
    except pa.ArrowInvalid:  # Which column it was is found below.
        texts = _read_csv(data, [pa.string()] * len(schema))
    arrays = []
    for found, field in zip(texts.columns, schema, strict=True):
        try:
            arrays.append(found if found.type == field.type else column_of(found, field.type))
        except Unreadable as error:
            raise Misfit(f"table {table!r}, column {field.name!r}: {error}") from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _parsed_at_once(type_: pa.DataType) -> pa.DataType:
    at_once = pa.types.is_integer(type_) or pa.types.is_boolean(type_)
    return type_ if at_once else pa.string()


def _read_csv(data: bytes, types: list[pa.DataType]) -> pa.Table:
    names = [str(number) for number in range(len(types))]
    return csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(
            column_names=names, use_threads=False, block_size=len(data) + 1
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict(zip(names, types, strict=True)),
            null_values=["\\N"],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
