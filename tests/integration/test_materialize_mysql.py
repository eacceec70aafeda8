"""What is MySQL's own: its comparisons, engines, sessions, and tables that others have a part in.

What it shares with all SQL endpoints is in ``test_materialize_drivers``. The server is MariaDB; the
soak has a MySQL 8 (``test_materialize_mysql8``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from headwater.base.clock import SystemClock
from headwater.base.errors import Determinate, InvalidUsage
from headwater.base.ids import GlobalId, SeqNo
from headwater.materialize.checkpoint import Position
from headwater.materialize.definition import Binding
from headwater.materialize.drivers.mysql import MySqlDriver
from headwater.materialize.drivers.sql import KeyTaken
from headwater.materialize.selection import FieldRefused
from headwater.materialize.transport.in_process import InProcess
from headwater.testing.mariadb import PASSWORD, MariaDb
from headwater.testing.sql_server import SqlServer
from tests.integration.materialize_places import (
    MySqlPlace,
    asked,
    open_delivery,
    prepared,
    transact,
)
from tests.integration.test_sql_sources import wait_for

pytestmark = pytest.mark.server

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
TEXTS = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("v", pa.string())])
BINDING = Binding("orders", GlobalId(1), "target", ("k",))


@pytest.fixture
def place(mariadb: MariaDb) -> Iterator[MySqlPlace]:
    with closing(MySqlPlace(mariadb)) as made:
        yield made


def test_texts_are_what_they_are(place: MySqlPlace) -> None:
    """Keys that most of its collations take for one, and whatever a statement might stumble on."""
    keys = ["a", "A", "a ", "ä", "a\u0308", "", " "]
    values = ["\\", "\\'", "'", "''; --", "%s", "\x00\x01\n\r\x1a", "𝄞 ü", None]
    rows = [(key, None) for key in keys] + [(f"v{at}", value) for at, value in enumerate(values)]
    delivery = open_delivery(place, prepared(place, [BINDING], [TEXTS]))
    transact(delivery, TEXTS, 2, *((row, 1) for row in rows))
    assert dict(place.select(["k", "v"], "target")) == dict(rows)
    transact(delivery, TEXTS, 3, (("a", None), -1), (("A", None), -1), (("A", "new"), 1))
    assert dict(place.select(["k", "v"], "target")) == {**dict(rows[1:]), "A": "new"}


def test_a_key_that_is_compared_otherwise_is_refused(place: MySqlPlace) -> None:
    place.execute("CREATE TABLE target (k varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY)")
    with pytest.raises(FieldRefused, match="utf8mb4_general_ci, not text"):
        prepared(place, [BINDING], [TEXTS])


def test_a_table_without_transactions_is_refused(place: MySqlPlace) -> None:
    place.execute("CREATE TABLE target (k bigint PRIMARY KEY, v longtext) ENGINE = MyISAM")
    with pytest.raises(InvalidUsage, match="engine MyISAM, which has no transactions"):
        prepared(place, [BINDING], [SCHEMA])


def test_a_target_names_its_database(place: MySqlPlace) -> None:
    place.config = {name: v for name, v in place.config.items() if name != "database"}
    _, question = asked(place, [BINDING], [SCHEMA])
    stream = InProcess(place.make())
    with pytest.raises(InvalidUsage, match=r'names no database: write "database\.target"'):
        stream.send(question)
    stream.abort()


def test_what_others_keep_in_the_table_stays(place: MySqlPlace) -> None:
    """And another index that is unique is not taken for the key."""
    spec = prepared(place, [BINDING], [SCHEMA])
    delivery = open_delivery(place, spec)
    transact(delivery, SCHEMA, 2, ((1, "a"), 1), ((2, "b"), 1))
    place.execute("ALTER TABLE target ADD COLUMN note text, ADD UNIQUE (v(9))")
    place.execute("UPDATE target SET note = 'mine'")
    transact(delivery, SCHEMA, 3, ((1, "a"), -1), ((1, "c"), 1), ((3, "d"), 1))
    expected = [(1, "c", "mine"), (2, "b", "mine"), (3, "d", None)]
    assert place.select(["k", "v", "note"], "target") == expected
    with pytest.raises(Determinate, match="Duplicate entry 'b'") as refused:
        transact(delivery, SCHEMA, 4, ((1, "c"), -1), ((1, "b"), 1))
    assert not isinstance(refused.value, KeyTaken)
    place.kill()
    assert open_delivery(place, spec).position == Position(3)
    assert place.select(["k", "v", "note"], "target") == expected


def _end_session(place: MySqlPlace) -> None:
    """End the newest driver's session, and wait until it is gone."""
    made = place.made[-1]
    assert isinstance(made, MySqlDriver)
    session = made._db.id
    place.execute(f"KILL {session}")

    def gone() -> bool:
        with place._db.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM information_schema.processlist WHERE id = {session}")
            return cursor.fetchone() is None

    wait_for(gone)


def test_a_session_that_the_server_ends(place: MySqlPlace) -> None:
    """Between transactions nobody notices; within one it never happened."""
    spec = prepared(place, [BINDING], [SCHEMA])
    delivery = open_delivery(place, spec)
    transact(delivery, SCHEMA, 2, ((1, "a"), 1))
    _end_session(place)
    transact(delivery, SCHEMA, 3, ((2, "b"), 1))
    place.made[-1]._begin()  # type: ignore[attr-defined]
    place.execute("INSERT INTO target VALUES (9, 'theirs')")
    _end_session(place)
    with pytest.raises(Determinate, match=r"cannot (write|commit) to MySQL"):
        transact(delivery, SCHEMA, 4, ((3, "c"), 1))
    place.kill()
    assert open_delivery(place, spec).position == Position(3)
    assert [k for (k,) in place.select(["k"], "target")] == [1, 2, 9]


@pytest.mark.parametrize(
    ("schema", "row", "told"),
    [
        (pa.float64(), float("nan"), "'x' has a NaN or infinite value"),
        (pa.float64(), float("inf"), "'x' has a NaN or infinite value"),
        (pa.decimal128(20, 3), Decimal("1.234"), "cannot write to MySQL"),
        (pa.string(), "x" * (17 << 20), "larger than what the server takes"),
    ],
)
def test_what_cannot_be_held_changes_nothing(
    place: MySqlPlace, schema: pa.DataType, row: Any, told: str
) -> None:
    if pa.types.is_decimal(schema):  # It would be rounded, in strict mode, too.
        place.execute("CREATE TABLE target (k bigint PRIMARY KEY, x decimal(9,1))")
    columns = pa.schema([SCHEMA.field("k"), pa.field("x", schema)])
    spec = prepared(place, [BINDING], [columns])
    delivery = open_delivery(place, spec)
    with pytest.raises(Determinate, match=told):
        transact(delivery, columns, 2, ((1, None), 1), ((2, row), 1))
    place.kill()
    assert open_delivery(place, spec).position is None
    assert place.select(["k"], "target") == []


def test_as_a_user_writes_it(place: MySqlPlace) -> None:
    """A connection, a dry run, two shards, sums; and the password is in no log."""
    host, port = place.config["host"], place.config["port"]
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(
            f"CREATE SECRET pw AS '{PASSWORD.replace(chr(39), chr(39) * 2)}'; "
            f"CREATE CONNECTION my TO MYSQL (HOST '{host}', PORT {port}, USER 'root', "
            "PASSWORD SECRET pw); VALIDATE CONNECTION my"
        )
        sql("CREATE TABLE t (k bigint PRIMARY KEY, v text NOT NULL, n bigint)")
        sql("INSERT INTO t VALUES (1, 'a', 5), (2, 'a', 6), (3, 'b', 7)")
        into = (
            f'INTO MYSQL CONNECTION my (t AS "{place.database}.rows" KEY (k), '
            f't AS "{place.database}.sums" KEY (v) REDUCE (n sum), '
            f't AS "{place.database}.log" KEY (k) DELTA UPDATES) WITH (SHARDS 2)'
        )
        found = sql(f"VALIDATE MATERIALIZATION m {into}")
        assert ("guarantee", f"t AS {place.database}.rows", None, "exactly once") in found
        with pytest.raises(pymysql.err.ProgrammingError):
            place.select(["k"], "rows")
        sql(f"CREATE MATERIALIZATION m {into}")

        def there(table: str, columns: list[str], rows: list[tuple[Any, ...]]) -> bool:
            server.timeline.tick()
            try:
                return place.select(columns, table) == rows
            except pymysql.err.ProgrammingError:
                return False  # There is no table yet.

        wait_for(lambda: there("sums", ["v", "n"], [("a", 11), ("b", 7)]))
        sql("DELETE FROM t WHERE k = 3; UPDATE t SET n = 1 WHERE k = 1")
        wait_for(lambda: there("sums", ["v", "n"], [("a", 7)]))
        wait_for(lambda: there("rows", ["k", "n"], [(1, 1), (2, 6)]))
        wait_for(lambda: there("headwater_status", ["shards", "aligned"], [(2, 1)]))
        assert len(place.select(["k"], "log")) == 6
        log = server.client.core.consensus.scan(SeqNo(0), 100_000)
        assert PASSWORD.encode() not in b"".join(entry.data for entry in log)
        sql("DROP MATERIALIZATION m")
