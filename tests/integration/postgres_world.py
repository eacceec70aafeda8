"""A schema of two tables on a real PostgreSQL with logical replication, for its source's tests."""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import psycopg

from headwater.storage.envelope import Rows
from headwater.storage.keyed_changes import Keyed
from headwater.storage.offsets import Offsets
from headwater.storage.outputs import Definition, Output
from headwater.storage.sources.pg_types import lsn
from headwater.storage.sources.postgres import LOG, Postgres, discover, table_keys, table_oids
from tests.integration.shared_location import Postgres as Server

numbers = itertools.count()


class World:
    """A schema with two tables of accounts, their publication and slot; money only moves."""

    snapshots = True
    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, server: Server, *, keyed: bool = False) -> None:
        """With ``keyed``, the log names the rows that go by their primary key alone."""
        self.name = f"t{next(numbers)}"
        self.keyed = keyed
        self.dsn = server.dsn
        self.sources: list[Postgres] = []
        self.connection = psycopg.connect(server.dsn, autocommit=True)
        self.execute(f"CREATE SCHEMA {self.name}")
        for table in ("a", "b"):
            self.execute(
                f"CREATE TABLE {self.name}.{table} (id int PRIMARY KEY, money numeric(12,2), "
                "note text)"
            )
            identity = "DEFAULT" if keyed else "FULL"
            self.execute(f"ALTER TABLE {self.name}.{table} REPLICA IDENTITY {identity}")
            self.execute(
                f"INSERT INTO {self.name}.{table} "
                "SELECT n, 100, 'n' || n FROM generate_series(1, 5) n"
            )
        self.execute(f"CREATE PUBLICATION {self.name} FOR TABLES IN SCHEMA {self.name}")
        self.tables = discover(server.dsn, self.name)
        self.oids = table_oids(server.dsn, self.name)
        self.keys = table_keys(server.dsn, self.name)

    def execute(self, statement: str) -> None:
        self.connection.execute(statement)

    def source(self) -> Postgres:
        source = Postgres(
            self.dsn, self.name, self.name, self.tables, oids=self.oids, keys=self.keys
        )
        self.sources.append(source)
        return source

    def processes_die(self) -> None:
        """Their connections die with them."""
        for source in self.sources:
            source.close()
        self.sources.clear()

    def released(self) -> None:
        """Our processes are away for a while: the slot is in nobody's use."""
        for source in self.sources:
            source.close()
        self.await_slot("NOT active")

    def await_slot(self, condition: str) -> None:
        """What we tell the server in a stream it does in its own time."""
        query = f"SELECT {condition} FROM pg_replication_slots WHERE slot_name = %s"
        while self.connection.execute(query, (self.name,)).fetchone() == (False,):
            pass

    def grow(self, random: Random) -> None:
        """Move money between the tables in a transaction; rows come and go, too."""
        for _ in range(random.randrange(1, 4)):
            amount, one, other = (
                random.randrange(50),
                random.randrange(1, 6),
                random.randrange(1, 6),
            )
            with self.connection.transaction():
                self.execute(f"UPDATE {self.name}.a SET money = money - {amount} WHERE id = {one}")
                if random.random() < 0.3:
                    fresh = random.randrange(100, 10**6)
                    self.execute(
                        f"INSERT INTO {self.name}.b VALUES ({fresh}, 0) ON CONFLICT DO NOTHING"
                    )
                if random.random() < 0.3:
                    self.execute(f"DELETE FROM {self.name}.b WHERE money = 0")
                self.execute(
                    f"UPDATE {self.name}.b SET money = money + {amount} WHERE id = {other}"
                )

    def connect(self) -> None:
        """Connect, unless there is a connection."""
        if self.connection.closed:
            self.connection = psycopg.connect(self.dsn, autocommit=True)

    def disconnect(self) -> None:
        self.connection.close()

    def outage(self) -> None:
        """Kill one process of the server: it ends all others and recovers from its log."""
        with suppress(psycopg.Error), psycopg.connect(self.dsn, autocommit=True) as connection:
            os.kill(connection.info.backend_pid, signal.SIGKILL)

    def mended(self) -> None:
        """It recovers by itself."""

    def check_kept(self, durable: Offsets) -> None:
        """The slot, and only the slot, is what upstream keeps."""
        assert self.confirmed() <= durable[LOG]

    def confirmed(self) -> int:
        row = self.connection.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
            (self.name,),
        ).fetchone()
        assert row is not None
        return lsn(row[0])

    def contents(self, table: str) -> Counter[tuple[Any, ...]]:
        return Counter(self.connection.execute(f"SELECT * FROM {self.name}.{table}").fetchall())

    def definition(self) -> Definition:
        outputs = []
        for table, schema in self.tables.items():
            key = self.keys.get(table)
            envelope = Rows(schema) if key is None else Keyed(schema, key)
            outputs.append(Output(table, table, envelope))
        return Definition("pg", tuple(outputs))

    def close(self) -> None:
        self.processes_die()
        self.await_slot("NOT active")
        self.execute(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            f"WHERE slot_name = '{self.name}'"
        )
        self.connection.close()
