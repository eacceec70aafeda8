"""Clients people use, unmodified, against the memory backend: COPY, cursors, cancel, types.

psycopg and psql; asyncpg, which takes no type for granted.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.adapter.pgwire import WireServer
from headwater.collection import schema
from headwater.collection.types import by_postgres
from headwater.testing.awaited import until
from tests.end_to_end.memory_backend import WAIT_SECONDS, Memory

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("quiet")]

TYPES = (
    "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric(10,2)",
    "numeric", "text", "bytea", "date", "time", "timestamp", "timestamptz", "interval", "jsonb",
    "uuid", "integer[]", "text[]",
)  # fmt: skip
ROW: tuple[Any, ...] = (
    True,
    -3,
    4,
    1 << 40,
    0.5,
    1e300,
    Decimal("-12.30"),
    Decimal("0.000000001"),
    "é\t\\,\"'\n",
    b"\x00\xff",
    date(1, 1, 1),
    time(23, 59, 59, 999_999),
    datetime.fromisoformat("9999-12-31T23:59:59.999999"),
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    timedelta(days=-1, hours=-2, microseconds=-5),
    {"a": [1, None]},
    uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    [1, None, 3],
    ["a b", "", None, '"'],
)
STORED = (*ROW[:15], '{"a": [1, null]}', str(ROW[16]), *ROW[17:])


def every_type(rows: int = 0) -> pa.Table:
    """A table of every type, with ``rows`` times a full row and an empty one."""
    columns = [schema.Column(f"c{index}", by_postgres(name)) for index, name in enumerate(TYPES)]
    arrays = [
        pa.array([value, None] * rows, column.type.arrow)
        for value, column in zip(STORED, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema.arrow_schema(columns))


def numbers(count: int) -> pa.Table:
    strings = pa.array(["x" * 20] * count, pa.string())
    return pa.table({"n": pa.array(range(count), pa.int64()), "s": strings})


def connect(wire: WireServer, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=wire.host,
        port=wire.port,
        user="headwater",
        dbname="headwater",
        connect_timeout=WAIT_SECONDS,
        **{"autocommit": True, **options},
    )


@pytest.fixture
def connection(wire: WireServer) -> Iterator[psycopg.Connection[Any]]:
    with connect(wire) as connected:
        yield connected


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_every_type_comes_back(
    connection: psycopg.Connection[Any], memory: Memory, binary: bool
) -> None:
    memory.tables["every"] = every_type(1)
    cursor = connection.cursor(binary=binary)
    full, empty = cursor.execute("select * from every").fetchall()
    assert full == ROW
    assert empty == (None,) * len(ROW)
    assert cursor.description is not None
    assert [column.type_code for column in cursor.description] == [
        by_postgres(name).oid for name in TYPES
    ]


# --- COPY -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["text", "csv", "binary"])
def test_every_type_is_copied_out_and_in_again(
    connection: psycopg.Connection[Any], memory: Memory, format_: str
) -> None:
    memory.tables["every"] = every_type(3)
    memory.tables["again"] = every_type()
    cursor = connection.cursor()
    with cursor.copy(f"copy every to stdout (format {format_})") as copy:
        data = b"".join(copy)
    assert cursor.rowcount == 6
    with cursor.copy(f"copy again from stdin (format {format_})") as copy:
        for start in range(0, len(data), 7):  # Borders of messages mean nothing.
            copy.write(data[start : start + 7])
    assert cursor.statusmessage == "COPY 6"
    assert memory.tables["again"].equals(memory.tables["every"])


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_rows_are_copied_by_psycopg(
    connection: psycopg.Connection[Any], memory: Memory, binary: bool
) -> None:
    memory.tables["t"] = numbers(0)
    form = " (format binary)" if binary else ""
    rows = [(number, f"row\t{number}\\") for number in range(1234)]
    with connection.cursor().copy(f"copy t from stdin{form}") as copy:
        copy.set_types(["int8", "text"])
        for row in rows:
            copy.write_row(row)
    with connection.cursor().copy(f"copy (select * from t) to stdout{form}") as copy:
        copy.set_types(["int8", "text"])
        assert list(copy.rows()) == rows


def test_some_columns_are_copied_in_and_the_rest_is_null(
    connection: psycopg.Connection[Any], memory: Memory
) -> None:
    memory.tables["t"] = numbers(0)
    with connection.cursor().copy("copy t (s) from stdin") as copy:
        copy.write("a\n\\N\n")
    assert memory.tables["t"].to_pylist() == [{"n": None, "s": "a"}, {"n": None, "s": None}]


def test_a_copy_that_fails_leaves_nothing_and_the_connection_goes_on(
    connection: psycopg.Connection[Any], memory: Memory
) -> None:
    memory.tables["t"] = numbers(0)

    def copied(statement: str, data: str, **stop: Exception) -> None:
        with connection.cursor().copy(statement) as copy:
            copy.write(data.encode())
            if stop:
                raise stop["with_"]

    for statement, data, error in (
        ("copy t from stdin", "1\tx\ny\tx\n", psycopg.errors.InvalidTextRepresentation),
        ("copy t from stdin", "1\n", psycopg.errors.BadCopyFileFormat),
        ("copy t from stdin (format csv)", '1,"\n', psycopg.errors.BadCopyFileFormat),
        ("copy t from stdin (format binary)", "rubbish rubbish", psycopg.errors.BadCopyFileFormat),
        ("copy missing from stdin", "", psycopg.errors.UndefinedTable),
        ("copy t (z) from stdin", "", psycopg.errors.UndefinedColumn),
        ("copy t from stdin (format xml)", "", psycopg.errors.InvalidParameterValue),
        ("copy t from '/etc/passwd'", "", psycopg.errors.FeatureNotSupported),
        ("copy t from program 'id'", "", psycopg.errors.FeatureNotSupported),
    ):
        with pytest.raises(error):
            copied(statement, data * 20_001)
        assert connection.execute("select one").fetchone() == (1,)
    with pytest.raises(ZeroDivisionError):  # psycopg sends CopyFail.
        copied("copy t from stdin", "1\tx\n", with_=ZeroDivisionError())
    assert connection.execute("select one").fetchone() == (1,)
    assert memory.tables["t"].num_rows == 0


def test_a_large_copy_goes_through_in_both_directions(
    connection: psycopg.Connection[Any], memory: Memory
) -> None:
    memory.tables["t"] = numbers(0)
    lines = "".join(f"{number}\t{'x' * 20}\n" for number in range(50_000))
    with connection.cursor().copy("copy t from stdin") as copy:
        copy.write(lines)
    assert memory.tables["t"].equals(numbers(50_000))
    with connection.cursor().copy("copy t to stdout") as copy:
        assert b"".join(copy) == lines.encode()


def test_copy_inside_a_transaction_that_is_rolled_back(wire: WireServer, memory: Memory) -> None:
    memory.tables["t"] = numbers(0)
    with connect(wire, autocommit=False) as connection:
        with connection.cursor().copy("copy t from stdin") as copy:
            copy.write("1\tx\n")
        connection.rollback()
    assert memory.tables["t"].num_rows == 0


# --- streams and cursors --------------------------------------------------------------------------


def test_rows_leave_as_they_come_and_stop_when_nobody_takes_them(
    wire: WireServer, memory: Memory
) -> None:
    with connect(wire) as connection:
        for taken, row in enumerate(connection.cursor().stream("select endless")):
            assert row == (taken,)
            if taken == 1000:
                break  # psycopg cancels the rest
        assert connection.execute("select one").fetchone() == (1,)


def test_a_large_result_is_not_made_faster_than_it_is_read(
    wire: WireServer, memory: Memory
) -> None:
    memory.tables["t"] = pa.table({"s": ["x" * 10_000] * 20_000})
    with connect(wire) as connection:
        rows = connection.cursor().stream("select * from t")
        next(rows)
        given = -1
        while given != memory.rows_given:  # until it stands still
            given = memory.rows_given
            threading.Event().wait(0.1)
        assert given < 10_000
        assert sum(1 for _ in rows) == 19_999


def test_cursors(wire: WireServer, memory: Memory) -> None:
    memory.tables["t"] = numbers(2500)
    with connect(wire, autocommit=False) as connection:
        for binary in (False, True):
            with connection.cursor("some name", binary=binary) as cursor:
                cursor.itersize = 700
                cursor.execute("select * from t")
                assert cursor.fetchone() == (0, "x" * 20)
                assert [row[0] for row in cursor.fetchmany(3)] == [1, 2, 3]
                assert [row[0] for row in cursor] == list(range(4, 2500))
                assert cursor.fetchall() == []
        connection.commit()
        with pytest.raises(psycopg.errors.InvalidCursorName):
            connection.execute("fetch 1 from nothing")


def test_a_cursor_lives_as_long_as_its_transaction_or_longer(
    connection: psycopg.Connection[Any], memory: Memory
) -> None:
    memory.tables["t"] = numbers(3)
    with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
        connection.execute("declare c cursor for select * from t")
    with connection.transaction():
        connection.execute("declare c cursor for select * from t")
        with pytest.raises(psycopg.errors.DuplicateCursor):
            connection.execute("declare c cursor for select * from t")
        raise psycopg.Rollback
    with pytest.raises(psycopg.errors.InvalidCursorName):
        connection.execute("fetch c")
    connection.execute("declare c cursor with hold for select * from t")
    assert connection.execute("fetch 2 from c").fetchall()[1][0] == 1
    assert len(connection.execute("fetch all in c").fetchall()) == 1
    connection.execute("close c")
    with pytest.raises(psycopg.errors.InvalidCursorName):
        connection.execute("close c")


def test_fetch_with_a_timeout_gives_what_there_is(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        connection.execute("declare c cursor for select stuck")
        fetch = "fetch 10 from c with (timeout '50ms')"
        assert connection.execute(fetch).fetchall() == [(1,)]
        assert connection.execute(fetch).fetchall() == []


# --- pipelines and transactions -------------------------------------------------------------------


def test_a_pipeline_goes_on_after_an_error(
    connection: psycopg.Connection[Any], memory: Memory
) -> None:
    memory.tables["t"] = pa.table({"a": pa.array([], pa.int64())})
    first = connection.cursor()

    def failing() -> None:
        with connection.pipeline() as pipeline:
            first.execute("insert into t values (%s)", (1,))
            pipeline.sync()
            connection.cursor().execute("insert into t values (%s)", ("x",))
            connection.cursor().execute("insert into t values (%s)", (2,))  # skipped up to Sync

    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        failing()
    assert connection.execute("select * from t").fetchall() == [(1,)]
    assert first.statusmessage == "INSERT 0 1"
    assert memory.tables["t"]["a"].to_pylist() == [1]


def test_many_statements_in_one_pipeline(
    connection: psycopg.Connection[Any], memory: Memory
) -> None:
    memory.tables["t"] = pa.table({"a": pa.array([], pa.int64())})
    with connection.pipeline():
        connection.cursor().executemany(
            "insert into t values (%s)", [(number,) for number in range(300)]
        )
    assert memory.tables["t"]["a"].to_pylist() == list(range(300))


def test_several_statements_of_one_text_are_one_transaction(
    connection: psycopg.Connection[Any], memory: Memory
) -> None:
    memory.tables["t"] = pa.table({"a": pa.array([], pa.int64())})
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("insert into t values (1); select * from missing")
    assert memory.tables["t"].num_rows == 0
    connection.execute("insert into t values (1); insert into t values (2)")
    assert memory.tables["t"].num_rows == 2
    assert connection.info.transaction_status.name == "IDLE"
    connection.execute("insert into t values (3); begin; insert into t values (4)")
    assert connection.info.transaction_status.name == "INTRANS"
    connection.execute("rollback")
    assert memory.tables["t"]["a"].to_pylist() == [1, 2, 3]


# --- cancel and timeouts --------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["select waiting", "select endless", "select stuck"])
def test_cancel(wire: WireServer, memory: Memory, statement: str) -> None:
    with connect(wire) as connection:
        outcome: list[BaseException] = []

        def run() -> None:
            try:
                for _ in connection.cursor().stream(statement):
                    memory.waiting.release()
            except psycopg.Error as error:
                outcome.append(error)

        running = threading.Thread(target=run)
        running.start()
        assert memory.waiting.acquire(timeout=WAIT_SECONDS)
        connection.cancel_safe(timeout=WAIT_SECONDS)
        running.join(WAIT_SECONDS)
        assert isinstance(outcome[0], psycopg.errors.QueryCanceled)
        assert "user request" in str(outcome[0])
        assert connection.execute("select one").fetchone() == (1,)


def test_cancel_ends_a_copy_in(wire: WireServer, memory: Memory) -> None:
    memory.tables["t"] = numbers(0)
    with connect(wire) as connection:

        def cancelled() -> None:
            with connection.cursor().copy("copy t from stdin") as copy:
                copy.write("1\tx\n")
                connection.cancel_safe(timeout=WAIT_SECONDS)

        with pytest.raises(psycopg.errors.QueryCanceled):
            cancelled()
        assert connection.execute("select one").fetchone() == (1,)
    assert memory.tables["t"].num_rows == 0


def test_statement_timeout(wire: WireServer, memory: Memory) -> None:
    with connect(wire, options="-c statement_timeout=50ms") as connection:
        assert connection.execute("show statement_timeout").fetchone() == ("50ms",)
        for statement in ("select waiting", "select stuck", "select endless"):
            with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
                connection.execute(statement)
        connection.execute("set statement_timeout = 0")
        assert connection.execute("select one").fetchone() == (1,)
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("set statement_timeout = 'soon'")
    assert "timeout" in memory.cancelled


def test_a_transaction_that_idles_is_ended(wire: WireServer) -> None:
    with connect(wire) as connection:
        connection.execute("set idle_in_transaction_session_timeout = '50ms'")
        assert connection.execute("select one").fetchone() == (1,)
        connection.execute("begin")
        threading.Event().wait(0.3)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            connection.execute("select one")


def test_a_statement_whose_client_vanishes_is_ended(wire: WireServer, memory: Memory) -> None:
    connection = connect(wire)
    connection.pgconn.send_query(b"select waiting")
    assert memory.waiting.acquire(timeout=WAIT_SECONDS)
    connection.pgconn.finish()
    # The statement waits for what nobody gives: only a cancel ends it.
    until(lambda: not memory.sessions_open, "the end of every session")
    assert "gone" in memory.cancelled


# --- variables ------------------------------------------------------------------------------------


def test_variables_of_the_session(wire: WireServer) -> None:
    with connect(wire, application_name="test", options="-c dialect=spark") as connection:
        assert connection.info.parameter_status("application_name") == "test"
        connection.execute("set application_name = 'other'")
        assert connection.info.parameter_status("application_name") == "other"
        assert connection.execute("discard all").statusmessage == "DISCARD ALL"
        assert connection.info.parameter_status("application_name") == "test"
        connection.execute("reset all; unlisten *; close all; deallocate all")
    with pytest.raises(psycopg.OperationalError, match="unrecognized configuration parameter"):
        connect(wire, options="-c nonsense=1")
    with pytest.raises(psycopg.OperationalError, match="database"):
        psycopg.connect(host=wire.host, port=wire.port, user="headwater", dbname="other")


# --- psql -----------------------------------------------------------------------------------------


@pytest.fixture
def psql(wire: WireServer) -> Any:
    binary = shutil.which("psql")
    if binary is None:
        pytest.skip("psql is not on this machine (Debian: postgresql-client)")

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binary, "-X", "-h", wire.host, "-p", str(wire.port), "-U", "headwater",
             "-d", "headwater", "--no-password", *arguments],
            input=stdin, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False,
            env={"LC_ALL": "C.UTF-8", "PATH": ""},
        )  # fmt: skip

    return run


def test_psql_copies(psql: Any, memory: Memory, tmp_path: Path) -> None:
    memory.tables["t"] = numbers(0)
    copied = psql("-qAt", stdin="copy t from stdin;\n1\ta\n2\t\\N\n\\.\nselect one;\n")
    assert (copied.stdout, copied.stderr) == ("1\n", "")
    out = psql("-c", "copy t to stdout (format csv, header, force_quote (s))")
    assert out.stdout == 'n,s\n1,"a"\n2,\n'
    target = tmp_path / "t.csv"
    moved = psql(
        "-c", f"\\copy t to '{target}' csv header", "-c", f"\\copy t from '{target}' csv header"
    )
    assert moved.stderr == ""
    assert memory.tables["t"].num_rows == 4
    cursors = psql("-At", "-v", "FETCH_COUNT=1", "-c", "select * from t")
    assert cursors.stdout.splitlines() == ["1|a", "2|", "1|a", "2|"]


# --- asyncpg --------------------------------------------------------------------------------------


def test_asyncpg(wire: WireServer, memory: Memory) -> None:
    asyncpg = pytest.importorskip("asyncpg", reason="asyncpg is not installed (tests only)")
    memory.tables["t"] = pa.table(
        {"n": pa.array([], pa.int64()), "s": pa.array([], pa.string()),
         "at": pa.array([], pa.timestamp("us", "UTC")), "d": pa.array([], pa.decimal128(10, 2))}
    )  # fmt: skip
    instant = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    rows = [(number, f"s{number}", instant, Decimal("1.50")) for number in range(100)]

    async def story() -> None:
        connection = await asyncpg.connect(
            host=wire.host, port=wire.port, user="headwater", database="headwater", ssl=False
        )
        await connection.execute("insert into t values ($1, $2, $3, $4)", *rows[0])
        await connection.executemany("insert into t values ($1, $2, $3, $4)", rows[1:50])
        await connection.copy_records_to_table("t", records=rows[50:])
        fetched = await connection.fetch("select * from t")
        assert [tuple(row) for row in fetched] == rows
        async with connection.transaction():
            cursor = await connection.cursor("select * from t")
            assert [row["n"] for row in await cursor.fetch(30)] == list(range(30))
            assert [row["n"] for row in await cursor.fetch(30)] == list(range(30, 60))
        with pytest.raises(asyncpg.UndefinedTableError):
            await connection.fetch("select * from missing")
        with pytest.raises(TimeoutError):  # asyncpg asks for a cancel and waits for its effect.
            await connection.fetch("select waiting", timeout=0.2)
        assert await connection.fetchval("select one") == 1
        await connection.close()

    asyncio.run(story())
