"""The wire, seen by clients people use: psql and psycopg against a backend of a few lines.

The backend keeps tables as Arrow in memory and answers ``SELECT * FROM table`` only: what is tested
is everything between the socket and :class:`Session`.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.adapter.errors import (
    DuplicateRelation,
    TimestampNotReadable,
    UnknownRelation,
    UnknownSetting,
    Unsupported,
)
from headwater.adapter.pgwire import Column, Result, WireServer
from headwater.adapter.pgwire.server import NotLoopback
from headwater.adapter.sql import statements
from headwater.adapter.sql.values import as_batch

pytestmark = pytest.mark.server

WAIT_SECONDS = 60


class Tables:
    """The backend: all sessions see the same tables; a transaction remembers where it began."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self.lock = threading.Lock()
        self.sessions_open = 0
        self.texts: list[str] = []
        self.release = threading.Event()

    def open_session(self) -> TablesSession:
        with self.lock:
            self.sessions_open += 1
        return TablesSession(self)


class TablesSession:
    def __init__(self, backend: Tables) -> None:
        self.backend = backend
        self.before: dict[str, pa.Table] | None = None

    def execute(self, statement: statements.Statement, sql: str) -> Result:
        self.backend.texts.append(sql)
        tables = self.backend.tables
        match statement:
            case statements.CreateTable():
                if statement.name in tables:
                    raise DuplicateRelation(statement.name)
                tables[statement.name] = statement.schema.empty_table()
                return Result("CREATE TABLE")
            case statements.Insert():
                table = self.table(statement.table)
                batch = as_batch(statement, table.schema)
                rows = pa.Table.from_batches([batch])
                tables[statement.table] = pa.concat_tables([table, rows])
                return Result(f"INSERT 0 {batch.num_rows}")
            case statements.Select(as_of=as_of) if as_of is not None:
                raise TimestampNotReadable(statement.tables[0], getattr(as_of, "time", 1000), 4000)
            case statements.Select(query_sql, None, (name,)):
                table = self.table(name)
                return Result.of_table(table.slice(0, 0) if "LIMIT 0" in query_sql else table)
            case statements.Select(query_sql="select 1 / 0", as_of=None):
                raise ZeroDivisionError("planted")
            case statements.Select(query_sql="select wait", as_of=None):
                self.backend.release.wait(WAIT_SECONDS)
                return Result("SELECT", (Column("waited", pa.bool_()),))
            case statements.Select(query_sql="select breaks", as_of=None):
                return Result("SELECT", (Column("n", pa.int64()),), self.breaking())
            case statements.Select():
                return Result.of_table(pa.table({"one": pa.array([1], pa.int32())}))
            case statements.Begin():
                self.before = dict(tables)
                return Result("BEGIN")
            case statements.Commit():
                self.before = None
                return Result("COMMIT")
            case statements.Rollback():
                assert self.before is not None, "transactions arrive well formed"
                tables.clear()
                tables.update(self.before)
                return Result("ROLLBACK")
            case statements.Show(name) | statements.SetVariable(name):
                raise UnknownSetting(name)
            case _:
                raise Unsupported(type(statement).__name__)

    def breaking(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array([1, 2], pa.int64())})
        raise Unsupported("the third row")

    def table(self, name: str) -> pa.Table:
        try:
            return self.backend.tables[name]
        except KeyError:
            raise UnknownRelation(name, hint="Create it.") from None

    def close(self) -> None:
        with self.backend.lock:
            self.backend.sessions_open -= 1


@pytest.fixture
def backend() -> Tables:
    return Tables()


@pytest.fixture
def server(backend: Tables) -> Iterator[WireServer]:
    with WireServer("127.0.0.1", 0, backend) as running:
        yield running
        backend.release.set()
    assert backend.sessions_open == 0


def connect(server: WireServer, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=server.host,
        port=server.port,
        user="headwater",
        dbname="headwater",
        connect_timeout=WAIT_SECONDS,
        **options,
    )


@pytest.fixture
def connection(server: WireServer) -> Iterator[psycopg.Connection[Any]]:
    with connect(server, autocommit=True) as connected:
        yield connected


EVERY_TYPE = (
    "create table every (a int2, b int4, c int8, d bool, e text, f float4, g float8,"
    " h numeric(10,2), i numeric, j date, k timestamp, l timestamptz, m bytea)"
)
EVERY_ROW = (
    "insert into every values (-1, 2, 9007199254740993, true, 'é ''q'' \\', 0.1, 1e300, 1.5,"
    " '-0.000000001', '2026-01-02', '2026-01-02 03:04:05.6', '2026-01-02 03:04:05+02', '\\x00ff'),"
    " (null, null, null, null, null, null, null, null, null, null, null, null, null)"
)


# --- psql -----------------------------------------------------------------------------------------


@pytest.fixture
def psql(server: WireServer) -> Any:
    binary = shutil.which("psql")
    if binary is None:
        pytest.skip("psql is not on this machine (Debian: postgresql-client)")

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binary, "-X", "-h", server.host, "-p", str(server.port), "-U", "headwater",
             "-d", "headwater", "--no-password", *arguments],
            input=stdin, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False,
            env={"LC_ALL": "C.UTF-8", "PATH": ""},
        )  # fmt: skip

    return run


def test_psql_prints_every_type_as_from_postgresql(psql: Any) -> None:
    done = psql(
        "-At", "-P", "null=NULL", stdin=f"{EVERY_TYPE};\n{EVERY_ROW};\nselect * from every;"
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "CREATE TABLE",
        "INSERT 0 2",
        (
            "-1|2|9007199254740993|t|é 'q' \\|0.1|1e+300|1.50|-0.000000001|2026-01-02"
            "|2026-01-02 03:04:05.6|2026-01-02 01:04:05+00|\\x00ff"
        ),
        "|".join(["NULL"] * 13),
    ]


def test_psql_shows_errors_with_everything_and_goes_on(psql: Any) -> None:
    done = psql(
        "-At", "-v", "VERBOSITY=verbose",
        stdin="select * from t as of 1000;\nselect * from missing;\nselect 1 2;\nselect one;\n",
    )  # fmt: skip
    told = TimestampNotReadable("t", 1000, 4000)
    assert done.stderr.splitlines() == [
        f"ERROR:  {told.sqlstate}: {told.primary}",
        f"DETAIL:  {told.detail}",
        f"HINT:  {told.hint}",
        'ERROR:  42P01: relation "missing" does not exist',
        "HINT:  Create it.",
        'ERROR:  42601: syntax error at or near "2"',
        "LINE 1: select 1 2;",
        "                 ^",
    ]
    assert done.stdout.splitlines() == ["1"]


def test_psql_sends_several_statements_at_once(psql: Any, backend: Tables) -> None:
    done = psql(
        "-At", "-c", "create table t (a int); insert into t values (1), (2); select * from t"
    )
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["CREATE TABLE", "INSERT 0 2", "1", "2"],
    )
    # A statement that fails stops those after it; one that does not parse stops all of them.
    failed = psql("-c", "insert into t values (3); select * from u; insert into t values (4)")
    assert failed.returncode == 1
    assert psql("-c", "insert into t values (5); selec 1").returncode == 1
    assert backend.tables["t"]["a"].to_pylist() == [1, 2, 3]


def test_psql_asks_what_clients_ask(psql: Any) -> None:
    done = psql(
        "-At",
        stdin="select version();\nshow server_version;\nset client_encoding to 'utf8';\n"
        "set application_name = 'a b';\nshow application_name;\nselect current_database();\n"
        "set timezone to 'Europe/Berlin';\nshow timezone;\nset datestyle to german;\n"
        "show nothing;\n",
    )
    assert done.stdout.splitlines() == [
        "PostgreSQL 18.0 (Headwater)",
        "18.0 (Headwater)",
        "SET",
        "SET",
        "a b",
        "headwater",
        "SET",
        "UTC",
    ]
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == [
        "WARNING",
        "ERROR",
        "HINT",
        "ERROR",
    ]


# --- psycopg --------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_every_type_comes_back(connection: psycopg.Connection[Any], binary: bool) -> None:
    connection.execute(EVERY_TYPE)
    connection.execute(EVERY_ROW)
    cursor = connection.cursor(binary=binary)
    rows = cursor.execute("select * from every").fetchall()
    assert cursor.statusmessage == "SELECT 2"
    assert rows[0] == (
        -1,
        2,
        9007199254740993,
        True,
        "é 'q' \\",
        pytest.approx(0.1),
        1e300,
        Decimal("1.50"),
        Decimal("-0.000000001"),
        date(2026, 1, 2),
        datetime.fromisoformat("2026-01-02T03:04:05.600000"),
        datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC),
        b"\x00\xff",
    )
    assert rows[1] == (None,) * 13
    assert cursor.description is not None
    assert [column.type_code for column in cursor.description] == [
        21, 23, 20, 16, 25, 700, 701, 1700, 1700, 1082, 1114, 1184, 17,
    ]  # fmt: skip
    assert (cursor.description[7].precision, cursor.description[7].scale) == (10, 2)


@pytest.mark.parametrize("format_", ["%s", "%b", "%t"])
def test_parameters_of_every_type(connection: psycopg.Connection[Any], format_: str) -> None:
    row = (
        -32768,
        -5,
        2**62,
        False,
        "'; drop table every; --",
        0.5,
        -2.5,
        Decimal("-12.34"),
        Decimal("1e5"),
        date(1, 1, 1),
        datetime.fromisoformat("2026-01-02T03:04:05"),
        datetime(2026, 1, 2, tzinfo=UTC),
        b"\x00'\\",
    )
    connection.execute(EVERY_TYPE)
    places = ",".join([format_] * len(row))
    connection.execute(f"insert into every values ({places})", row)
    nulls = ", ".join(["%s"] * len(row))
    connection.execute(f"insert into every values ({nulls})", (None,) * len(row))
    assert connection.execute("select * from every").fetchall() == [row, (None,) * len(row)]


def test_prepared_statements(connection: psycopg.Connection[Any], backend: Tables) -> None:
    connection.execute("create table t (a int)")
    for number in range(8):  # psycopg prepares by itself from the fifth on
        connection.execute("insert into t values (%s)", (number,))
        assert len(connection.execute("select * from t", prepare=True).fetchall()) == number + 1
    assert backend.tables["t"]["a"].to_pylist() == list(range(8))


def test_a_pipeline(connection: psycopg.Connection[Any]) -> None:
    with connection.pipeline():
        connection.execute("create table t (a int)")
        for number in range(5):
            connection.execute("insert into t values (%s)", (number,))
        rows = connection.execute("select * from t")
    assert rows.fetchall() == [(number,) for number in range(5)]


def test_errors_carry_their_fields_and_the_connection_goes_on(
    connection: psycopg.Connection[Any],
) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable) as refused:
        connection.execute("select * from missing")
    assert refused.value.diag.severity == "ERROR"
    assert refused.value.diag.message_primary == 'relation "missing" does not exist'
    assert refused.value.diag.message_hint == "Create it."
    connection.execute("create table t (a int not null)")
    for sql, error in (
        ("create table t (a int)", psycopg.errors.DuplicateTable),
        ("insert into t values ('x')", psycopg.errors.InvalidTextRepresentation),
        ("insert into t values (null)", psycopg.errors.NotNullViolation),
        ("insert into t values (1e10)", psycopg.errors.NumericValueOutOfRange),
        ("insert into t (b) values (1)", psycopg.errors.UndefinedColumn),
        ("update t set a = 1", psycopg.errors.FeatureNotSupported),
        ("selec 1", psycopg.errors.SyntaxError),
        ("select breaks", psycopg.errors.FeatureNotSupported),
    ):
        with pytest.raises(error):
            connection.execute(sql)
        with pytest.raises(error):
            connection.execute(sql.encode(), prepare=False)
    assert connection.execute("select * from t").fetchall() == []


def test_our_own_mistake_is_an_internal_error(
    connection: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(psycopg.errors.InternalError_, match="ZeroDivisionError: planted"):
        connection.execute("select 1 / 0")
    assert "ZeroDivisionError" in caplog.text
    assert connection.execute("select one").fetchone() == (1,)


def test_ten_thousand_rows_in_many_batches(
    connection: psycopg.Connection[Any], backend: Tables
) -> None:
    numbers = pa.table({"n": pa.array(range(10_000), pa.int64()), "s": ["x" * 100] * 10_000})
    pieces = [numbers.slice(start, 777) for start in range(0, 10_000, 777)]
    backend.tables["t"] = pa.concat_tables([numbers.slice(0, 0), *pieces])
    cursor = connection.execute("select * from t")
    assert [row[0] for row in cursor.fetchall()] == list(range(10_000))
    assert cursor.statusmessage == "SELECT 10000"
    streamed = connection.cursor().stream("select * from t")
    assert sum(row[0] for row in streamed) == sum(range(10_000))


def status(connection: psycopg.Connection[Any]) -> psycopg.pq.TransactionStatus:
    return connection.info.transaction_status


def test_transactions_have_their_states(server: WireServer, backend: Tables) -> None:
    with connect(server) as connection:
        connection.execute("create table t (a int)")
        assert status(connection) == psycopg.pq.TransactionStatus.INTRANS
        connection.commit()
        connection.execute("insert into t values (1)")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("select * from missing")
        assert status(connection) == psycopg.pq.TransactionStatus.INERROR
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("select * from t")
        assert connection.execute("commit").statusmessage == "ROLLBACK"
        assert status(connection) == psycopg.pq.TransactionStatus.IDLE
        with connection.transaction():
            connection.execute("insert into t values (2)")
    assert backend.tables["t"]["a"].to_pylist() == [2]


def test_a_waiting_statement_keeps_nobody_else_waiting(
    server: WireServer, backend: Tables, connection: psycopg.Connection[Any]
) -> None:
    with connect(server, autocommit=True) as other:
        waiting = threading.Thread(target=lambda: other.execute("select wait"))
        waiting.start()
        for _ in range(3):
            assert connection.execute("select one").fetchone() == (1,)
        assert waiting.is_alive()
        backend.release.set()
        waiting.join(WAIT_SECONDS)
        assert not waiting.is_alive()


def test_a_cancelled_statement_leaves_a_usable_connection(
    server: WireServer, backend: Tables, connection: psycopg.Connection[Any]
) -> None:
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            connection.execute("select wait")
        except psycopg.Error as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while "select wait" not in backend.texts:
        threading.Event().wait(0.01)
    connection.cancel_safe(timeout=WAIT_SECONDS)
    waiting.join(WAIT_SECONDS)
    assert isinstance(outcome[0], psycopg.errors.QueryCanceled)
    backend.release.set()
    assert connection.execute("select one").fetchone() == (1,)


# --- the protocol itself --------------------------------------------------------------------------


def message(tag: bytes, payload: bytes = b"") -> bytes:
    return tag + struct.pack("!i", len(payload) + 4) + payload


class RawClient:
    """A client that sends what it is told and reads messages until ReadyForQuery."""

    def __init__(self, server: WireServer) -> None:
        self.socket = socket.create_connection((server.host, server.port), WAIT_SECONDS)
        startup = struct.pack("!i", 196608) + b"user\0headwater\0\0"
        self.socket.sendall(struct.pack("!i", len(startup) + 4) + startup)
        self.file = self.socket.makefile("rb")
        self.until_ready()

    def until_ready(self) -> list[tuple[bytes, bytes]]:
        seen: list[tuple[bytes, bytes]] = []
        while not seen or seen[-1][0] != b"Z":
            tag, length = struct.unpack("!ci", self.file.read(5))
            seen.append((tag, self.file.read(length - 4)))
        return seen

    def tags(self, *messages: bytes) -> str:
        self.socket.sendall(b"".join(messages))
        return b"".join(tag for tag, _ in self.until_ready()).decode()

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@pytest.fixture
def raw(server: WireServer) -> Iterator[RawClient]:
    client = RawClient(server)
    yield client
    client.close()


def parse(sql: str) -> bytes:
    return message(b"P", b"\0" + sql.encode() + b"\0\0\0")


BIND = message(b"B", b"\0\0" + b"\0\0" * 3)
DESCRIBE_STATEMENT, DESCRIBE_PORTAL = message(b"D", b"S\0"), message(b"D", b"P\0")
SYNC = message(b"S")


def execute(rows_max: int = 0) -> bytes:
    return message(b"E", b"\0" + struct.pack("!i", rows_max))


def test_messages_of_the_extended_protocol(raw: RawClient, backend: Tables) -> None:
    backend.tables["t"] = pa.table({"n": pa.array(range(5), pa.int64())})
    select = parse("select * from t")
    assert raw.tags(select, DESCRIBE_STATEMENT, SYNC) == "1tTZ"
    assert raw.tags(select, BIND, DESCRIBE_PORTAL, execute(), SYNC) == "12TDDDDDCZ"
    assert raw.tags(select, BIND, execute(2), execute(2), execute(2), SYNC) == "12DDsDDsDCZ"
    assert backend.texts.count("select * from t") == 3  # each once, described or not
    assert raw.tags(parse("create table u (a int)"), DESCRIBE_STATEMENT, SYNC) == "1tnZ"
    assert raw.tags(BIND, DESCRIBE_PORTAL, execute(), SYNC) == "2nCZ"
    assert raw.tags(parse(""), BIND, DESCRIBE_PORTAL, execute(), SYNC) == "12nIZ"
    assert raw.tags(message(b"Q", b" ; \0")) == "IZ"


def test_after_an_error_messages_are_skipped_until_sync(raw: RawClient, backend: Tables) -> None:
    assert raw.tags(parse("selec 1"), BIND, execute(), SYNC) == "EZ"
    assert raw.tags(parse("select 1; select 2"), SYNC) == "EZ"
    assert raw.tags(message(b"B", b"\0none\0" + b"\0\0" * 3), SYNC) == "EZ"
    assert raw.tags(message(b"E", b"none\0" + struct.pack("!i", 0)), SYNC) == "EZ"
    # A portal ends with its transaction.
    assert raw.tags(parse("select one"), BIND, SYNC) == "12Z"
    assert raw.tags(execute(), SYNC) == "EZ"
    assert raw.tags(message(b"Q", b"select one\0")) == "TDCZ"


def test_a_client_that_vanishes_leaves_no_session(server: WireServer, backend: Tables) -> None:
    client = RawClient(server)
    backend.tables["t"] = pa.table({"s": ["x" * 1000] * 100_000})
    client.socket.sendall(message(b"Q", b"select * from t\0"))
    client.close()  # with rows still on their way
    for _ in range(100 * WAIT_SECONDS):
        if backend.sessions_open == 0 and "select * from t" in backend.texts:
            return
        threading.Event().wait(0.01)
    pytest.fail("the session of a client that is gone is still open")


# --- the server -----------------------------------------------------------------------------------


def test_it_listens_on_loopback_only(backend: Tables) -> None:
    for host in ("0.0.0.0", "192.0.2.1", "example.org", ""):
        with pytest.raises(NotLoopback):
            WireServer(host, 0, backend)


def test_a_taken_port_is_an_error_at_start(server: WireServer, backend: Tables) -> None:
    second = WireServer(server.host, server.port, backend)
    with pytest.raises(OSError, match="address already in use"):
        second.start()
    second.stop()


def test_stop_closes_connections_and_lets_a_statement_end(backend: Tables) -> None:
    server = WireServer("127.0.0.1", 0, backend)
    server.start()
    idle = connect(server, autocommit=True)
    idle.execute("select one")
    busy = RawClient(server)
    busy.socket.sendall(message(b"Q", b"select wait\0"))
    while "select wait" not in backend.texts:
        threading.Event().wait(0.01)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    backend.release.set()
    stopping.join(WAIT_SECONDS)
    assert not stopping.is_alive()
    assert backend.sessions_open == 0
    with pytest.raises(psycopg.OperationalError):
        idle.execute("select one")
    idle.close()
    busy.close()
