"""A schema of two tables on a real MariaDB or MySQL, for the tests of their source."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random
from typing import Any

import pymysql

from headwater.storage.envelope import Rows
from headwater.storage.offsets import Offsets
from headwater.storage.outputs import Definition, Output
from headwater.storage.sources.my_discover import discover, is_maria
from headwater.storage.sources.mysql import MySql
from headwater.testing.mariadb import MariaDb

numbers = itertools.count()


class World:
    """A schema with two tables of accounts; money only moves."""

    snapshots = True
    keyed = False
    errors: tuple[type[Exception], ...] = (pymysql.Error, OSError)

    def __init__(self, server: MariaDb) -> None:
        self.name = f"t{next(numbers)}"
        self.server = server
        self.sources: list[MySql] = []
        self.connection = server.connect()
        self.execute(f"CREATE DATABASE {self.name}")
        for table in ("a", "b"):
            self.execute(
                f"CREATE TABLE {self.name}.{table} (id int PRIMARY KEY, money decimal(12,2), "
                "note text)"
            )
            rows = ", ".join(f"({n}, 100, 'n{n}')" for n in range(1, 6))
            self.execute(f"INSERT INTO {self.name}.{table} VALUES {rows}")
        found = discover(server.config)
        self.identity = found.server
        self.maria = is_maria(self.connection)
        self.tables = {t: s for t, s in found.tables.items() if t.startswith(f"{self.name}.")}

    def execute(self, *statements: str) -> None:
        """Execute statements; several are one transaction."""
        with self.connection.cursor() as cursor:
            if len(statements) > 1:
                cursor.execute("BEGIN")
            for statement in statements:
                cursor.execute(statement)
            if len(statements) > 1:
                cursor.execute("COMMIT")

    def source(self) -> MySql:
        source = MySql(self.server.config, self.tables, server=self.identity)
        self.sources.append(source)
        return source

    def processes_die(self) -> None:
        """Their connections die with them."""
        for source in self.sources:
            source.close()
        self.sources.clear()

    def grow(self, random: Random) -> None:
        """Move money between the tables in a transaction; rows come and go, too."""
        for _ in range(random.randrange(1, 4)):
            amount, one, other = (
                random.randrange(50),
                random.randrange(1, 6),
                random.randrange(1, 6),
            )
            move = [f"UPDATE {self.name}.a SET money = money - {amount} WHERE id = {one}"]
            if random.random() < 0.3:
                fresh = random.randrange(100, 10**6)
                move.append(f"INSERT IGNORE INTO {self.name}.b VALUES ({fresh}, 0, NULL)")
            if random.random() < 0.3:
                move.append(f"DELETE FROM {self.name}.b WHERE money = 0")
            move.append(f"UPDATE {self.name}.b SET money = money + {amount} WHERE id = {other}")
            self.execute(*move)
            if random.random() < 0.2:
                self.execute("FLUSH BINARY LOGS")

    def contents(self, table: str) -> Counter[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self.name}.{table}")
            return Counter(cursor.fetchall())

    def definition(self) -> Definition:
        outputs = (Output(table, table, Rows(schema)) for table, schema in self.tables.items())
        return Definition("my", tuple(outputs))

    def connect(self) -> None:
        """Connect, unless there is a connection."""
        if not self.connection.open:
            self.connection = self.server.connect()

    def disconnect(self) -> None:
        if self.connection.open:
            self.connection.close()

    def outage(self) -> None:
        self.server.kill()

    def mended(self) -> None:
        self.server.start()

    def check_kept(self, durable: Offsets) -> None:
        """Nothing is told upstream."""

    def close(self) -> None:
        self.processes_die()
        self.execute(f"DROP DATABASE {self.name}")
        self.connection.close()
