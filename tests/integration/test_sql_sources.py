"""Sources and deliveries through connections, by SQL alone, against a real PostgreSQL.

Rows are evaluated by DuckDB (``headwater.testing.sql_server``); everything else is the real thing.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.object_errors import ConnectionFailed, SourceFailed
from headwater.base.clock import SystemClock
from headwater.base.ids import SeqNo
from headwater.storage.errors import TransientError
from headwater.storage.ingestion import Ingestion
from headwater.testing.sql_server import SqlServer
from tests.integration.shared_location import Postgres

pytestmark = pytest.mark.server

PASSWORD = "open sesame 99"
DEADLINE_S = 60.0
numbers = itertools.count()
OPEN: list[psycopg.Connection[Any]] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


class Shop:
    """A schema upstream with two tables of accounts, and a user who has a password."""

    def __init__(self, server: Postgres) -> None:
        self.name = f"shop{next(numbers)}"
        self.connection = psycopg.connect(server.dsn, autocommit=True)
        self.connect = psycopg.conninfo.conninfo_to_dict(server.dsn)
        self.execute(f"CREATE SCHEMA {self.name}")
        OPEN.append(self.connection)
        for table in ("a", "b"):
            self.execute(f"CREATE TABLE {self.name}.{table} (id int PRIMARY KEY, money bigint)")
            self.execute(f"ALTER TABLE {self.name}.{table} REPLICA IDENTITY FULL")
            self.execute(
                f"INSERT INTO {self.name}.{table} SELECT n, 100 FROM generate_series(1, 5) n"
            )
        self.execute(f"CREATE PUBLICATION {self.name} FOR TABLES IN SCHEMA {self.name}")
        self.execute(f"CREATE ROLE {self.name} SUPERUSER REPLICATION LOGIN PASSWORD '{PASSWORD}'")

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []

    def move(self, amount: int) -> None:
        """One transaction over both tables: the sum stays."""
        with self.connection.transaction():
            self.execute(f"UPDATE {self.name}.a SET money = money - {amount} WHERE id = 1")
            self.execute(f"UPDATE {self.name}.b SET money = money + {amount} WHERE id = 2")

    def slots(self) -> list[tuple[Any, ...]]:
        return self.execute("SELECT slot_name FROM pg_replication_slots WHERE database IS NOT NULL")

    def connection_sql(self) -> str:
        port = f"PORT {self.connect['port']}, " if "port" in self.connect else ""
        return (
            f"CREATE SECRET pw AS '{PASSWORD}'; CREATE CONNECTION pg TO POSTGRES "
            f"(HOST '{self.connect['host']}', {port}DATABASE '{self.connect['dbname']}', "
            f"USER '{self.name}', PASSWORD SECRET pw)"
        )


def wait_for(what: Any) -> Any:
    over = time.monotonic() + DEADLINE_S
    while not (found := what()):
        assert time.monotonic() < over, "it did not come"
        time.sleep(0.05)
    return found


def test_followed_restarted_and_dropped(logical: Postgres) -> None:
    shop, clock = Shop(logical), SystemClock()
    before = shop.slots()
    with SqlServer(clock) as server:
        sql = server.session()
        sql(shop.connection_sql())
        sql("VALIDATE CONNECTION pg")
        with pytest.raises(AdapterError, match="has no tables"):
            sql(
                "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'nothing') FOR ALL TABLES"
            )
        shop.execute(f"ALTER TABLE {shop.name}.a REPLICA IDENTITY NOTHING")
        with pytest.raises(AdapterError, match="cannot be followed") as refused:
            sql(
                f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION '{shop.name}') "
                "FOR ALL TABLES"
            )
        assert f"ALTER TABLE {shop.name}.a REPLICA IDENTITY FULL" in str(refused.value.hint)
        shop.execute(f"ALTER TABLE {shop.name}.a REPLICA IDENTITY FULL")
        sql(
            f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION '{shop.name}') "
            f"FOR TABLES ({shop.name}.a AS one, {shop.name}.b AS other)"
        )
        sql("CREATE TABLE rate (k int, factor bigint); INSERT INTO rate VALUES (1, 2), (2, 3)")
        server.ingestions.tick()
        assert sql("SELECT count(*), sum(money) FROM one") == [(5, 500)]
        shop.move(30)
        shop.move(12)
        server.ingestions.tick()
        both = "SELECT (SELECT sum(money) FROM one), (SELECT sum(money) FROM other)"
        assert sql(both) == [(458, 542)]
        joined = "SELECT money * factor FROM one JOIN rate ON id = k"
        assert sql(joined) == [(116,), (300,)]
        server.ingestions.stop()  # its stream ends, as that of a process that dies

        again = SqlServer(clock, on=server, take_over=True)
        try:
            sql = again.session()
            shop.move(8)
            shop.execute(f"DELETE FROM {shop.name}.a WHERE id = 5")
            again.ingestions.tick()
            assert sql(both) == [(350, 550)]
            (status,) = again.ingestions.statuses()
            assert status.status.condition.value == "running"
            assert status.lag == 0
            assert len(shop.slots()) == len(before) + 1
            with pytest.raises(AdapterError, match="depend on it"):
                sql("DROP CONNECTION pg")
            sql("DROP SOURCE s")
            assert shop.slots() == before
        finally:
            again.stop()


def test_tables_that_log_their_key_alone(
    logical: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are made: REPLICA IDENTITY DEFAULT. One of the two tables logs its rows."""
    shop = Shop(logical)
    shop.execute(f"ALTER TABLE {shop.name}.a REPLICA IDENTITY DEFAULT")
    append, dying = Ingestion._append_range, [True]

    def dies_once(self: Ingestion) -> bool:
        if dying:
            dying.clear()
            raise TransientError("s", "the cable")
        return append(self)

    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(shop.connection_sql())
        sql(
            f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION '{shop.name}') "
            f"FOR TABLES ({shop.name}.a AS one, {shop.name}.b AS other)"
        )
        monkeypatch.setattr(Ingestion, "_append_range", dies_once)
        server.ingestions.tick()  # Bound, and not appended: its snapshot is lost.
        assert sql("SELECT status FROM hw_sources") == [("stalled",)]
        shop.move(30)
        server.ingestions.tick()
        assert sql("SELECT status FROM hw_sources") == [("running",)]
        both = "SELECT (SELECT sum(money) FROM one), (SELECT sum(money) FROM other)"
        assert sql(both) == [(470, 530)]
        shop.move(12)
        shop.execute(f"DELETE FROM {shop.name}.a WHERE id = 5")
        shop.execute(f"UPDATE {shop.name}.a SET id = 50 WHERE id = 4")
        server.ingestions.tick()
        assert sql(both) == [(358, 542)]
        evaluated = server.evaluator.evaluated
        assert sql("SELECT id, money FROM one WHERE id IN (1, 4, 50)") == [(1, 58), (50, 100)]
        assert server.evaluator.evaluated == evaluated, "by key, without a query"
        names = {row[0] for row in sql("SHOW SOURCES")}
        assert names == {"s", "one", "other", "s_progress"}
        sql("DROP SOURCE s")


def test_delivered_with_a_password_that_is_in_no_log(logical: Postgres) -> None:
    shop = Shop(logical)
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(shop.connection_sql())
        sql("CREATE TABLE t (k bigint PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')")
        into = f'INTO POSTGRES CONNECTION pg (t AS "{shop.name}.copied" KEY (k))'
        found = sql(f"VALIDATE MATERIALIZATION m {into}")
        assert {row[0] for row in found} >= {"constraint", "guarantee", "action"}
        assert ("guarantee", "t", None, "exactly once") in found
        assert not shop.execute(f"SELECT to_regclass('{shop.name}.copied')")[0][0]
        sql(f"CREATE MATERIALIZATION m {into}")
        copied = f"SELECT k, v FROM {shop.name}.copied ORDER BY k"

        def there(rows: list[tuple[Any, ...]]) -> bool:
            server.timeline.tick()
            try:
                return shop.execute(copied) == rows
            except psycopg.errors.UndefinedTable:
                return False

        wait_for(lambda: there([(1, "a")]))
        sql("ALTER MATERIALIZATION m PAUSE; INSERT INTO t VALUES (2, 'b')")
        server.timeline.tick()
        assert there([(1, "a")])
        sql("ALTER MATERIALIZATION m RESUME")
        wait_for(lambda: there([(1, "a"), (2, "b")]))
        shop.execute(f"DELETE FROM {shop.name}.copied WHERE k = 1")
        sql("ALTER MATERIALIZATION m BACKFILL")
        wait_for(lambda: there([(1, "a"), (2, "b")]))
        log = server.client.core.consensus.scan(SeqNo(0), 100_000)
        assert PASSWORD.encode() not in b"".join(entry.data for entry in log)
        assert PASSWORD not in repr(server.client.core.state.items)
        with pytest.raises(AdapterError, match="depend on it"):
            sql("DROP SECRET pw")
        sql("DROP MATERIALIZATION m")


def test_an_option_may_be_a_secret_and_is_kept_by_nobody_else(logical: Postgres) -> None:
    shop = Shop(logical)
    dsn = psycopg.conninfo.make_conninfo(logical.dsn, user=shop.name, password=PASSWORD)
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        quoted = dsn.replace("'", "''")
        sql(f"CREATE SECRET dsn AS '{quoted}'; CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        sql("INSERT INTO t VALUES (1, 'a')")
        bound = f'(t AS "{shop.name}.c" KEY (k))'
        sql(f"CREATE MATERIALIZATION m INTO POSTGRES (DSN SECRET dsn) {bound}")
        with pytest.raises(AdapterError, match="cannot be a secret"):
            sql('CREATE MATERIALIZATION n INTO CONNECTOR (COMMAND SECRET dsn) (t AS "c" KEY (k))')

        def there() -> bool:
            server.timeline.tick()
            try:
                return shop.execute(f"SELECT k, v FROM {shop.name}.c") == [(1, "a")]
            except psycopg.errors.UndefinedTable:
                return False

        wait_for(there)
        log = server.client.core.consensus.scan(SeqNo(0), 100_000)
        assert PASSWORD.encode() not in b"".join(entry.data for entry in log)
        assert b"open sesame" not in b"".join(entry.data for entry in log)
        sql("DROP MATERIALIZATION m")


def asks_for_passwords(logical: Postgres, user: str) -> None:
    """Let the server, which trusts everybody on its socket, ask this user for a password."""
    with psycopg.connect(logical.dsn, autocommit=True) as connection:
        row = connection.execute("SHOW hba_file").fetchone()
        assert row is not None
        rules = Path(row[0])
        rules.write_text(f"local all {user} scram-sha-256\n" + rules.read_text())
        connection.execute("SELECT pg_reload_conf()")


def test_a_password_that_is_wrong_stalls_until_it_is_mended(logical: Postgres) -> None:
    shop = Shop(logical)
    asks_for_passwords(logical, shop.name)
    dsn = psycopg.conninfo.make_conninfo(logical.dsn, user=shop.name, password="wrong")

    def refused() -> bool:  # It reads its rules again in its own time.
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            return True
        return False

    wait_for(refused)
    create = (
        f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION '{shop.name}') "
        f"FOR TABLES ({shop.name}.a AS one)"
    )
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(shop.connection_sql().replace(PASSWORD, "wrong"))
        with pytest.raises(ConnectionFailed, match="cannot be made") as told:
            sql(create)
        assert "password authentication failed" in str(told.value.detail)
        sql(f"ALTER SECRET pw AS '{PASSWORD}'")
        sql(create)
        sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '50ms')")
        server.ingestions.tick()
        shop.execute(f"ALTER ROLE {shop.name} PASSWORD 'another'")
        server.ingestions.stop()  # Who is connected stays so: only the next one is asked.
        server.ingestions.start()
        shop.move(40)
        server.ingestions.tick()
        said: dict[str, str] = dict(sql("SELECT name, status FROM hw_sources"))
        assert said == {"s": "stalled", "c": "running"}, "another source goes on"
        ((why,),) = sql("SELECT detail FROM hw_sources WHERE name = 's'")
        assert "password authentication failed" in why
        assert PASSWORD not in why
        assert sql("SELECT sum(money) FROM one") == [(500,)], "what is durable is there"
        sql("ALTER SECRET pw AS 'another'; ALTER SOURCE s RESUME")
        server.ingestions.tick()
        assert sql("SELECT sum(money) FROM one") == [(460,)]
        sql("DROP SOURCE s")


def test_a_server_that_is_not_there_is_told(logical: Postgres) -> None:
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(
            "CREATE SECRET pw AS 'x'; CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT 1, "
            "DATABASE 'd', USER 'u', PASSWORD SECRET pw)"
        )
        with pytest.raises(ConnectionFailed, match="cannot be made"):
            sql("VALIDATE CONNECTION pg")
        with pytest.raises(ConnectionFailed, match="cannot be made"):
            sql("CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES")
        assert sql("SHOW SOURCES") == []
        with pytest.raises(ConnectionFailed, match="cannot be made"):
            sql(
                "CREATE TABLE t (k int); CREATE MATERIALIZATION m INTO POSTGRES CONNECTION pg "
                '(t AS "public.t" KEY (k))'
            )
        assert sql("SHOW MATERIALIZATIONS") == []


def test_a_file_that_shrinks_fails_its_source_until_it_is_restored(tmp_path: Path) -> None:
    for name in ("bad", "good"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").write_text("1,x\n2,y\n")
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        for name in ("bad", "good"):
            sql(
                f"CREATE SOURCE {name} (k bigint, v text) FROM FILES (PATH '{tmp_path / name}') "
                "FORMAT CSV"
            )
        server.ingestions.tick()
        (tmp_path / "bad" / "a.csv").write_text("1,x\n")
        with (tmp_path / "good" / "a.csv").open("a") as file:
            file.write("3,z\n")
        server.ingestions.tick()
        assert sql("SELECT name, status FROM hw_sources") == [
            ("bad", "failed"),
            ("good", "running"),
        ]
        ((why,),) = sql("SELECT detail FROM hw_sources WHERE name = 'bad'")
        assert "'a.csv' shrank from 8 to 4 bytes" in why
        assert "restore it" in why
        assert sql("SELECT count(*) FROM bad") == [(2,)], "nothing durable is lost"
        assert sql("SELECT count(*) FROM good") == [(3,)]
        (tmp_path / "bad" / "a.csv").write_text("1,x\n2,y\n4,w\n")
        sql("ALTER SOURCE bad RESUME")
        server.ingestions.tick()
        assert sql("SELECT k FROM bad") == [(1,), (2,), (4,)]
        assert sql("SELECT status FROM hw_sources WHERE name = 'bad'") == [("running",)]


def test_who_waits_for_a_source_that_failed_is_told(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "a.parquet")
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(f"CREATE SOURCE f (k bigint) FROM FILES (PATH '{tmp_path}') FORMAT PARQUET")
        server.ingestions.tick()
        assert sql("SELECT count(*) FROM f") == [(2,)]
        # Known upstream and bound to a time, but never to be read.
        pq.write_table(pa.table({"k": ["not a number"]}), tmp_path / "b.parquet")
        server.ingestions.tick()
        with pytest.raises(SourceFailed, match='source "f" has failed') as failed:
            sql("SELECT count(*) FROM f")
        assert "'b.parquet': column 'k'" in str(failed.value.detail)
        as_of = re.findall(r"AS OF \d+", str(failed.value.hint))
        assert sql(f"SELECT count(*) FROM f {as_of[0]}") == [(2,)]
        sql("SET transaction_isolation = serializable")
        assert sql("SELECT count(*) FROM f") == [(2,)]
        sql("SET transaction_isolation = 'strict serializable'")
        pq.write_table(pa.table({"k": [3]}), tmp_path / "b.parquet")
        sql("ALTER SOURCE f RESUME")
        server.ingestions.tick()
        assert sql("SELECT count(*) FROM f") == [(3,)]


def test_keys_of_an_upsert_are_looked_up(tmp_path: Path) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"k": 1, "v": "a"}\n{"k": 2, "v": "b"}\n{"k": 1, "v": "c"}\n')
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(
            f"CREATE SOURCE f (k bigint NOT NULL, v text) FROM FILES (PATH '{tmp_path}') "
            "FORMAT JSON ENVELOPE UPSERT (KEY (k))"
        )
        server.ingestions.tick()
        point = "SELECT v FROM f WHERE k = 1"
        assert sql(point) == [("c",)]
        assert sql("SELECT * FROM f WHERE k IN (2, 3)") == [(2, "b")]
        assert server.evaluator.evaluated == 0, "no query was evaluated"
        with lines.open("a") as file:
            file.write("nonsense\n")
        server.ingestions.tick()
        with pytest.raises(AdapterError, match=r"in\.jsonl"):  # as a read of all of it
            sql(point)


def test_files_and_their_dead_letters(tmp_path: Path) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"k": 1, "v": "a"}\n{"k": "x"}\n{"k": 1, "v": "b"}\n')
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(
            f"CREATE SOURCE f (k bigint NOT NULL, v text) FROM FILES (PATH '{tmp_path}') "
            "FORMAT JSON ENVELOPE UPSERT (KEY (k)) ON ERROR SKIP"
        )
        sql(f"CREATE SOURCE g (k bigint) FROM FILES (PATH '{tmp_path}') FORMAT JSON")
        server.ingestions.tick()
        assert sql("SELECT * FROM f") == [(1, "b")]
        reasons = sql('SELECT output, partition, "offset", reason FROM f_errors')
        assert [(row[1], row[2]) for row in reasons] == [("in.jsonl", 19)]
        with pytest.raises(AdapterError, match=r"in\.jsonl"):
            sql("SELECT * FROM g")
        with lines.open("a") as file:
            file.write('{"k": 2, "v": "c"}\n')
        server.ingestions.tick()
        assert sql("SELECT * FROM f") == [(1, "b"), (2, "c")]
        with pytest.raises(AdapterError, match="needs columns"):
            sql(f"CREATE SOURCE h FROM FILES (PATH '{tmp_path}') FORMAT CSV")
