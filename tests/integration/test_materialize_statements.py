"""A driver that dies at its n-th statement, for every n: the rows are those of the checkpoint.

``test_materialize_drivers_killed`` lets things die between messages. One message is several
statements here, and what commits too early, or in two steps, shows only in between.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.base.ids import GlobalId
from headwater.materialize.definition import Binding
from headwater.materialize.drivers import duckdb as duckdb_driver
from headwater.materialize.drivers import postgres as postgres_driver
from headwater.materialize.drivers import sqlite as sqlite_driver
from headwater.materialize.drivers.duckdb_file import executed
from headwater.materialize.drivers.mysql_session import MySqlSession
from headwater.materialize.protocol.specs import MaterializationSpec
from tests.integration.materialize_places import (
    DuckDbPlace,
    MySqlPlace,
    Place,
    PostgresPlace,
    SqlitePlace,
    open_delivery,
    prepared,
    transact,
)

pytestmark = pytest.mark.server

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
BINDING = Binding("orders", GlobalId(1), "target", ("k",))
CHANGES: dict[int, list[tuple[tuple[int, str], int]]] = {
    2: [((1, "a"), 1), ((2, "b"), 1)],
    3: [((1, "a"), -1), ((1, "c"), 1), ((2, "b"), -1), ((3, "d"), 1)],
}
ROWS: dict[int, list[tuple[int, str]]] = {0: [], 2: [(1, "a"), (2, "b")], 3: [(1, "c"), (3, "d")]}


class Died(Exception):
    """The process is gone."""


class Statements:
    """Counts statements, and lets one of them be the last."""

    def __init__(self) -> None:
        self.left = -1

    def dying(self, executes: Callable[..., Any]) -> Callable[..., Any]:
        def execute(*arguments: Any, **named: Any) -> Any:
            if self.left == 0:
                raise Died
            self.left -= 1
            return executes(*arguments, **named)

        return execute


def _dying_sqlite(statements: Statements) -> SimpleNamespace:
    """Return the module with connections that die; ours alone, for the test has others."""

    class Dying(sqlite3.Connection):
        execute = statements.dying(sqlite3.Connection.execute)
        executemany = statements.dying(sqlite3.Connection.executemany)

    return SimpleNamespace(**vars(sqlite3) | {"connect": partial(sqlite3.connect, factory=Dying)})


def _dying_psycopg(statements: Statements) -> SimpleNamespace:
    class Dying(psycopg.Connection[Any]):
        wait = statements.dying(psycopg.Connection.wait)  # Of every statement, and of each COPY.

    return SimpleNamespace(**vars(psycopg) | {"connect": Dying.connect})


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    made = Statements()
    monkeypatch.setattr(duckdb_driver, "executed", made.dying(executed))
    monkeypatch.setattr(sqlite_driver, "sqlite3", _dying_sqlite(made))
    monkeypatch.setattr(postgres_driver, "psycopg", _dying_psycopg(made))
    for name in ("run", "changed"):
        monkeypatch.setattr(MySqlSession, name, made.dying(getattr(MySqlSession, name)))
    return made


@pytest.fixture(params=["duckdb", "mysql", "postgres", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    makes: dict[str, Callable[[], Place]] = {
        "duckdb": lambda: DuckDbPlace(tmp_path),
        "mysql": lambda: MySqlPlace(request.getfixturevalue("mariadb")),
        "postgres": lambda: PostgresPlace(request.getfixturevalue("postgres").dsn),
        "sqlite": lambda: SqlitePlace(tmp_path),
    }
    with closing(makes[request.param]()) as made:
        yield made


def _delivered(place: Place, spec: MaterializationSpec) -> None:
    """Deliver what is not delivered yet; the rows must be those of the position from the start."""
    delivery = open_delivery(place, spec)
    reached = 0 if delivery.position is None else delivery.position.time
    assert place.select(["k", "v"], "target") == ROWS[reached]
    for upper, changed in CHANGES.items():
        if upper > reached:
            transact(delivery, SCHEMA, upper, *changed)


def test_killed_at_the_nth_statement(place: Place, statements: Statements) -> None:
    spec = prepared(place, [BINDING], [SCHEMA])
    for number in itertools.count():
        place.execute("DELETE FROM target")
        place.execute("DELETE FROM flow_checkpoints_v1")
        statements.left = number
        try:
            _delivered(place, spec)
        except Died:
            place.kill()
            statements.left = -1
            _delivered(place, spec)
            place.kill()
            assert place.select(["k", "v"], "target") == ROWS[3]
        else:
            break
    assert number > 12, "there is something to die at"
