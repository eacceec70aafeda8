"""A real PostgreSQL that holds the corpus's tables, and what it answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa

from headwater.adapter.shadow import bootstrap
from headwater.adapter.shadow.instance import Instance
from headwater.collection.schema import type_of
from headwater.testing.shadow_directory import shadow_directory
from tests.unit.adapter_dialect.relations import RELATIONS, rows

COUNTS = {"x": 40, "y": 25}


@contextlib.contextmanager
def started() -> Iterator[psycopg.Connection[Any]]:
    """A connection to an instance with nothing in it."""
    with shadow_directory() as directory:
        instance = Instance(directory)
        instance.start()
        try:
            with instance.connect(bootstrap.ADMIN) as connection:
                yield connection
        finally:
            instance.stop()


@contextlib.contextmanager
def loaded(seed: int) -> Iterator[psycopg.Connection[Any]]:
    """A connection to an instance with the tables of ``seed``."""
    with started() as connection:
        for relation, columns in RELATIONS.items():
            listed = ", ".join(f'"{c}" {_declared(c, t.postgres)}' for c, t in columns.items())
            connection.execute(f"create table {relation} ({listed})".encode())
            marks = ", ".join(["%s"] * len(columns))
            connection.cursor().executemany(
                f"insert into {relation} values ({marks})".encode(),
                list(rows(seed, relation, COUNTS[relation])),
            )
        yield connection


def load(connection: psycopg.Connection[Any], name: str, table: pa.Table) -> None:
    """Create ``name`` with the rows of ``table``."""
    listed = ", ".join(f'"{field.name}" {type_of(field).postgres}' for field in table.schema)
    connection.execute(f"create table {name} ({listed})".encode())
    marks = ", ".join(["%s"] * table.num_columns)
    rows_of = zip(*(column.to_pylist() for column in table.columns), strict=True)
    connection.cursor().executemany(f"insert into {name} values ({marks})".encode(), list(rows_of))


def _declared(column: str, type_: str) -> str:
    return "numeric" if column == "z" else type_


def ask(connection: psycopg.Connection[Any], sql: str) -> tuple[list[str], list[int], list[Any]]:
    """(names, type OIDs, rows)."""
    cursor = connection.execute(sql.encode())
    described = cursor.description or []
    return [c.name for c in described], [c.type_code for c in described], cursor.fetchall()
