"""Endpoints for tests of drivers: where rows go, and a look at them that asks no driver."""

from __future__ import annotations

import queue
import re
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql

from headwater.base.errors import Determinate
from headwater.materialize.changes import changes
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import Bound
from headwater.materialize.definition import Binding, Definition, Endpoint, to_validate
from headwater.materialize.definition import to_spec as spec_of
from headwater.materialize.delivery import Delivery, Stream, Transaction
from headwater.materialize.drivers.duckdb_file import DuckFile
from headwater.materialize.drivers.registry import driver
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.key_range import KeyHash, KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.machine import Side
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.recovery import RecoveryEntry
from headwater.materialize.resources import resource_config
from headwater.materialize.transport.grpc_call import PeerFailed, PeerFenced
from headwater.materialize.transport.grpc_server import GrpcServer
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.wire.framing import Codec, FrameReader, frame
from headwater.materialize.wire.runs import Gathering, Splitting
from headwater.persist.evolution import updates_schema
from headwater.testing.mariadb import MariaDb
from headwater.testing.redis import RedisServer

NAME = "acme/sink"
FULL = KeyRange.full()

Change = tuple[Sequence[Any], int]
"""A row and how many of it come, or go."""


class OverTheWire:
    """A driver to which every message comes as bytes, and from which every one goes as bytes."""

    def __init__(self, driver: Responder, codec: Codec) -> None:
        self._driver = Gathering(driver, rows_at_once=2)
        self._codec = codec
        self._there, self._back = Splitting(codec), Splitting(codec)

    def respond(self, request: m.Request) -> Iterator[m.Response]:
        if isinstance(request, m.Open):
            self._back.opened(request)
        for single in self._there.split(request):
            (heard,) = FrameReader(Side.RUNTIME, self._codec).feed(
                frame(single, Side.RUNTIME, self._codec)
            )
            for response in self._driver.respond(heard):  # type: ignore[arg-type]
                for said in self._back.split(response):
                    sent = frame(said, Side.DRIVER, self._codec)
                    yield from FrameReader(Side.DRIVER, self._codec).feed(sent)  # type: ignore[misc]

    def close(self) -> None:
        self._driver.close()


class Noted:
    """A driver whose last error is remembered, for over gRPC only its text arrives."""

    def __init__(self, driver: Responder) -> None:
        self._driver = driver
        self.error: Exception | None = None

    def respond(self, request: m.Request) -> Iterator[m.Response]:
        try:
            yield from self._driver.respond(request)
        except Exception as error:
            self.error = error
            raise

    def close(self) -> None:
        self._driver.close()


Dial = Callable[[str], Stream]


class OverGrpc:
    """A driver behind a real server of gRPC; what it says is awaited with every request."""

    def __init__(self, noted: Noted, stream: Stream) -> None:
        self._noted, self._stream = noted, stream

    def respond(self, request: m.Request) -> Iterator[m.Response]:
        try:
            self._stream.send(request)
            for last in _AWAITED.get(type(request), ()):
                while not isinstance(said := self._stream.receive(), last):
                    yield said
                yield said
        except (PeerFailed, PeerFenced) as failed:
            noted = self._noted.error
            if noted is None or str(noted) not in str(failed):
                raise Determinate(str(failed)) from failed
            raise noted from failed

    def close(self) -> None:
        self._stream.abort()


_AWAITED: Mapping[type, tuple[type, ...]] = {
    m.Spec: (m.Specified,),
    m.Validate: (m.Validated,),
    m.Apply: (m.Applied,),
    m.Open: (m.Opened, m.Acknowledged),
    m.Flush: (m.Flushed,),
    m.StartCommit: (m.StartedCommit, m.Acknowledged),
}
"""With what a driver of an authoritative endpoint ends its answer."""


class Place(ABC):
    """One endpoint, empty at first."""

    driver: str
    config: Mapping[str, Any]
    located = "table"
    """Which property of a resource says where it is."""
    creates = "CREATE TABLE"

    def __init__(self, codec: Codec | None = None, dial: Dial | None = None) -> None:
        self.made: list[Responder] = []
        self._codec = codec
        self._dial = dial
        self._called: queue.Queue[Responder] = queue.Queue()
        self._server = GrpcServer(self._called.get, "127.0.0.1:0") if dial else None
        self._dialled: list[OverGrpc] = []

    @property
    def in_process(self) -> bool:
        return self._codec is None and self._dial is None

    def make(self) -> Responder:
        """Return a new driver of the place's kind, perhaps behind a wire."""
        made = driver(self.driver).make()
        self.made.append(made)
        if self._dial is not None:
            assert self._server is not None
            noted = Noted(made)
            self._called.put(noted)
            called = OverGrpc(noted, self._dial(f"127.0.0.1:{self._server.port}"))
            self._dialled.append(called)
            return called
        return made if self._codec is None else OverTheWire(made, self._codec)

    def kill(self) -> None:
        """End the newest driver, as the end of its process would."""
        self.made[-1].close()

    def close(self) -> None:
        for called in self._dialled:
            called.close()
        if self._server is not None:
            self._server.stop()
        for made in self.made:
            made.close()

    def resource(self, target: str, *, delta_updates: bool) -> Mapping[str, Any]:
        (said,) = self.make().respond(m.Spec())
        assert isinstance(said, m.Specified)
        return resource_config(said, self.target(target), delta_updates=delta_updates)

    def target(self, table: str) -> str:
        return table

    @abstractmethod
    def execute(self, statement: str) -> None: ...

    def remove(self, table: str, keys: Sequence[int]) -> None:
        """Remove rows by ``k``, as somebody else would."""
        self.execute(f"DELETE FROM {table} WHERE k IN ({', '.join(map(str, keys))})")

    def begin_anew(self, table: str) -> None:
        """Remove the rows of a table, and all checkpoints."""
        self.execute(f"DELETE FROM {table}")
        with suppress(Exception):
            self.execute("DELETE FROM flow_checkpoints_v1")

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

    def __init__(
        self, directory: Path, codec: Codec | None = None, dial: Dial | None = None
    ) -> None:
        super().__init__(codec, dial)
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


class DuckDbPlace(Place):
    """A file that is open here all the time, for to open one takes DuckDB long."""

    driver = "duckdb"

    def __init__(self, directory: Path, codec: Codec | None = None) -> None:
        super().__init__(codec)
        self.path = directory / f"{uuid.uuid4().hex}.duckdb"
        self.config = {"path": str(self.path)}
        self._db = duckdb.connect(self.path)

    def close(self) -> None:
        super().close()
        self._db.close()

    def reopen(self) -> None:
        """Open the file again, after it was closed."""
        self._db = duckdb.connect(self.path)

    def execute(self, statement: str) -> None:
        self._db.execute(statement).fetchall()

    def select(self, columns: Sequence[str], table: str) -> list[tuple[Any, ...]]:
        names = ", ".join('"' + c.replace('"', '""') + '"' for c in columns)
        quoted = table.replace('"', '""')
        return sorted(self._db.execute(f'SELECT {names} FROM "{quoted}"').fetchall(), key=repr)

    def writable_by_others(self) -> bool:
        file = DuckFile(str(self.path))
        file.open()
        file.close()
        return True


class MySqlPlace(Place):
    driver = "mysql"

    def __init__(self, server: MariaDb, codec: Codec | None = None) -> None:
        super().__init__(codec)
        self.database = f"d{uuid.uuid4().hex[:12]}"
        self.config = {**server.config, "database": self.database}
        self._db = server.connect()
        self.execute(f"CREATE DATABASE {self.database}")
        self._db.select_db(self.database)

    def close(self) -> None:
        super().close()
        self._db.close()

    def execute(self, statement: str) -> None:
        with self._db.cursor() as cursor:
            cursor.execute(statement)

    def select(self, columns: Sequence[str], table: str) -> list[tuple[Any, ...]]:
        names = ", ".join("`" + c.replace("`", "``") + "`" for c in columns)
        quoted = table.replace("`", "``")
        with self._db.cursor() as cursor:
            cursor.execute(f"SELECT {names} FROM `{quoted}`")
            return sorted(cursor.fetchall(), key=repr)

    def writable_by_others(self) -> bool:
        with self._db.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM information_schema.innodb_trx")
            return bool(cursor.fetchone() == (0,))


class PostgresPlace(Place):
    driver = "postgres"

    def __init__(self, dsn: str, codec: Codec | None = None) -> None:
        super().__init__(codec)
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


class RedisPlace(Place):
    """The keys below a word of its own; values are read as what the driver said they are."""

    driver = "redis"
    located = "name"
    creates = "HSET"

    def __init__(self, server: RedisServer, codec: Codec | None = None, **more: Any) -> None:
        super().__init__(codec)
        self.prefix = uuid.uuid4().hex[:8]
        self.config = {**server.config, **more}
        self.client = server.connect()

    def close(self) -> None:
        super().close()
        self.client.close()

    def target(self, table: str) -> str:
        return f"{self.prefix}-{table}"

    def execute(self, statement: str) -> None:
        raise NotImplementedError(statement)

    def remove(self, table: str, keys: Sequence[int]) -> None:
        self.client.delete(*(f"{self.target(table)}:{key}" for key in keys))

    def begin_anew(self, table: str) -> None:
        self.client.delete(f"flow_checkpoints_v1:{NAME}", *self.keys(table))

    def keys(self, table: str) -> list[bytes]:
        escaped = re.sub(r"([*?\[\]\\^])", r"\\\1", self.target(table))
        return list(self.client.scan_iter(f"{escaped}:*", count=1_000))

    def select(self, columns: Sequence[str], table: str) -> list[tuple[Any, ...]]:
        shape = msgspec.json.decode(
            self.client.hget("headwater_bindings_v1", self.target(table)) or b"{}"
        )
        if shape.get("stream"):
            rows = [fields for _, fields in self.client.xrange(self.target(table))]
        else:
            rows = [self.client.hgetall(key) for key in self.keys(table)]
        read = [_READ.get(shape["columns"][name], bytes.decode) for name in columns] if rows else []
        return sorted(
            (
                tuple(
                    None if (value := row.get(name.encode())) is None else how(value)
                    for name, how in zip(columns, read, strict=True)
                )
                for row in rows
            ),
            key=repr,
        )

    def fences(self) -> list[tuple[KeyRange, int, str]]:
        rows: dict[str, dict[str, str]] = {}
        for name, value in self.client.hgetall(f"flow_checkpoints_v1:{NAME}").items():
            key_range, _, field = name.decode().partition("/")
            rows.setdefault(key_range, {})[field] = value.decode()
        found = [
            (KeyRange.parse(key_range), int(row["fence"]), row["checkpoint"])
            for key_range, row in rows.items()
        ]
        return sorted(found, key=lambda row: row[0].end - row[0].begin)

    def writable_by_others(self) -> bool:
        return True  # Nothing is ever locked.


_READ: Mapping[str, Callable[[bytes], Any]] = {
    "integer": int,
    "integer of any size": int,
    "double": float,
    "decimal": lambda text: Decimal(text.decode()),
    "bytes": bytes,
    "boolean": lambda text: {b"true": True, b"false": False}[text],
}


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
    resources = [place.resource(b.target, delta_updates=b.delta_updates) for b in bindings]
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


def open_delivery(place: Place, spec: MaterializationSpec) -> Delivery:
    """Return a new session of all keys."""
    return Delivery(InProcess(place.make()), spec, "v1", FULL, Memory(), source=NAME)


def stores(schema: pa.Schema, upper: int, *changed: Change) -> m.StoreMany:
    """Return what is stored of changes just before a time, by the key ``k``."""
    columns: dict[str, list[Any]] = {
        name: [row[at] for row, _ in changed] for at, name in enumerate(schema.names)
    }
    columns |= {"__time": [upper - 1] * len(changed), "__diff": [diff for _, diff in changed]}
    return changes(0, ["k"], pa.table(columns, schema=updates_schema(schema)), upper, FULL)


def loading(binding: Binding, schema: pa.Schema) -> Bound:
    """Return a binding to the same place that loads whole rows, as one that reduces them does."""
    column = next(name for name in schema.names if name not in binding.key)
    reducing = msgspec.structs.replace(binding, reduce=((column, "minimize"),), append_only=True)
    bound = Bound(0, reducing, "x", schema)
    assert bound.loads
    return bound


def transact(delivery: Delivery, schema: pa.Schema, upper: int, *changed: Change) -> None:
    """Deliver changes in one transaction."""
    delivery.transact(Transaction.of([stores(schema, upper, *changed)], Position(upper)))
