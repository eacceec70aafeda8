"""Endpoints for tests of drivers: where rows go, and a look at them that asks no driver."""

from __future__ import annotations

import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from headwater.materialize.checkpoint import Position
from headwater.materialize.definition import Binding, Definition, Endpoint, to_validate
from headwater.materialize.definition import to_spec as spec_of
from headwater.materialize.drivers.registry import driver
from headwater.materialize.drivers.sql import SqlDriver
from headwater.materialize.key_range import KeyHash, KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.recovery import RecoveryEntry
from headwater.materialize.transport.in_process import InProcess

NAME = "acme/sink"


class Place(ABC):
    """One endpoint, empty at first."""

    driver: str
    config: Mapping[str, Any]

    def __init__(self) -> None:
        self.made: list[SqlDriver] = []

    def make(self) -> SqlDriver:
        """Return a new driver of the place's kind."""
        made = driver(self.driver).make()
        assert isinstance(made, SqlDriver)
        self.made.append(made)
        return made

    def kill(self) -> None:
        """End the newest driver, as the end of its process would."""
        self.made[-1].close()

    def close(self) -> None:
        for made in self.made:
            made.close()

    def resource(self, target: str) -> Mapping[str, Any]:
        return driver(self.driver).resource(self.target(target))

    def target(self, table: str) -> str:
        return table

    @abstractmethod
    def execute(self, statement: str) -> None: ...

    @abstractmethod
    def select(self, columns: Sequence[str], table: str) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def writable_by_others(self) -> bool:
        """Whether nothing is locked, now."""

    def fences(self) -> list[tuple[KeyRange, int, str]]:
        """Return ranges, fences and checkpoints; the narrowest first."""
        columns = ["key_begin", "key_end", "fence", "checkpoint"]
        rows = self.select(columns, "flow_checkpoints_v1")
        return [
            (KeyRange(KeyHash(begin), KeyHash(end)), fence, checkpoint)
            for begin, end, fence, checkpoint in sorted(rows, key=lambda row: row[1] - row[0])
        ]


class SqlitePlace(Place):
    driver = "sqlite"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.path = directory / f"{uuid.uuid4().hex}.db"
        self.config = {"path": str(self.path)}

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.path)) as db:
            db.execute(statement)
            db.commit()

    def select(self, columns: Sequence[str], table: str) -> list[tuple[Any, ...]]:
        names = ", ".join('"' + c.replace('"', '""') + '"' for c in columns)
        with closing(sqlite3.connect(self.path)) as db:
            quoted = table.replace('"', '""')
            return sorted(db.execute(f'SELECT {names} FROM "{quoted}"').fetchall(), key=repr)

    def writable_by_others(self) -> bool:
        with closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
        return True


class PostgresPlace(Place):
    driver = "postgres"

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.dsn = dsn
        self.schema = f"s{uuid.uuid4().hex[:12]}"
        self.config = {"dsn": dsn, "schema": self.schema}
        self.execute(f"CREATE SCHEMA {self.schema}")

    def target(self, table: str) -> str:
        return f"{self.schema}.{table}"

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as db:
            db.execute(f"SET search_path = {self.schema}".encode())
            db.execute(statement.encode())

    def select(self, columns: Sequence[str], table: str) -> list[tuple[Any, ...]]:
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        query = sql.SQL("SELECT {} FROM {}").format(names, sql.Identifier(self.schema, table))
        with psycopg.connect(self.dsn, autocommit=True) as db:
            db.execute("SET TimeZone = 'UTC'")
            return sorted(db.execute(query).fetchall(), key=repr)

    def writable_by_others(self) -> bool:
        with psycopg.connect(self.dsn, autocommit=True) as db:
            busy = db.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE application_name = 'headwater' AND state LIKE 'idle in transaction%'"
            ).fetchone()
        return busy == (0,)


class Memory:
    """A recovery log that survives crashes of the process."""

    def __init__(self) -> None:
        self.entry = RecoveryEntry()

    def commit(self, entry: RecoveryEntry, acknowledged: Position | None) -> None:
        assert acknowledged is None or entry.position is not None
        self.entry = entry


def asked(
    place: Place, bindings: Sequence[Binding], delivered: Sequence[pa.Schema], **more: Any
) -> tuple[Definition, m.Validate]:
    """Return a materialization into a place, and the question whether it can be."""
    endpoint = Endpoint(place.driver, place.config)
    definition = Definition(NAME, "i", endpoint, tuple(bindings), (), **more)
    resources = [place.resource(binding.target) for binding in bindings]
    return definition, to_validate(definition, resources, delivered)


def prepared(
    place: Place, bindings: Sequence[Binding], delivered: Sequence[pa.Schema], **more: Any
) -> MaterializationSpec:
    """Return the spec of a materialization, validated and applied."""
    definition, question = asked(place, bindings, delivered, **more)
    stream = InProcess(place.make())
    stream.send(question)
    answer = stream.receive()
    assert isinstance(answer, m.Validated)
    spec = spec_of(definition, question, answer)
    stream.send(m.Apply(spec, "v1"))
    assert isinstance(stream.receive(), m.Applied)
    stream.end()
    return spec
