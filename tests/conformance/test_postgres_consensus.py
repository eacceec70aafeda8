"""What is PostgresConsensus's own: broken connections, races with truncation, secrets."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from headwater.base.errors import Determinate, Indeterminate, InvalidUsage
from headwater.base.ids import SeqNo
from headwater.persist.consensus import PostgresConsensus, open_consensus
from headwater.persist.location import Committed, LogEntry, LostRace

pytestmark = pytest.mark.server

WAIT_FOR_BLOCKED = """
    DO $$ BEGIN
        FOR attempt IN 1..1000 LOOP
            PERFORM pg_stat_clear_snapshot();
            IF EXISTS (SELECT FROM pg_stat_activity
                       WHERE application_name = 'headwater' AND wait_event_type = 'Lock')
            THEN RETURN; END IF;
            PERFORM pg_sleep(0.01);
        END LOOP;
        RAISE 'nobody waits';
    END $$"""


@pytest.fixture
def name() -> str:
    return uuid4().hex


@pytest.fixture
def log(postgres_dsn: str, name: str) -> Iterator[PostgresConsensus]:
    with closing(PostgresConsensus(postgres_dsn, name)) as opened:
        yield opened


@pytest.fixture
def other(postgres_dsn: str, log: PostgresConsensus) -> Iterator[psycopg.Connection]:
    """A session of somebody else's."""
    del log  # it makes the table
    with psycopg.connect(postgres_dsn) as connection:
        yield connection


def terminate_sessions(other: psycopg.Connection) -> None:
    other.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE application_name = 'headwater'"
    )
    other.commit()


def insert(other: psycopg.Connection, name: str, seqno: int) -> None:
    other.execute("INSERT INTO headwater_log VALUES (%s, %s, 'theirs')", (name, seqno))


def test_logs_share_a_table_and_nothing_else(postgres_dsn: str, name: str) -> None:
    address = f"{postgres_dsn}{'&' if '?' in postgres_dsn else '?'}headwater_log="
    with (
        closing(open_consensus(address + name)) as one,
        closing(open_consensus(f"{address}{name}-2")) as two,
    ):
        assert one.append(SeqNo(0), b"one") == Committed()
        assert two.head() is None
        assert two.append(SeqNo(0), b"two") == Committed()
        assert one.append(SeqNo(1), b"one") == Committed()
        assert two.append(SeqNo(2), b"two") == LostRace(SeqNo(0))
        assert one.truncate(SeqNo(1)) == 1
        assert two.scan(SeqNo(0), 10) == (LogEntry(SeqNo(0), b"two"),)


def test_reconnects_after_a_broken_connection(
    log: PostgresConsensus, other: psycopg.Connection
) -> None:
    log.append(SeqNo(0), b"x")
    terminate_sessions(other)
    with pytest.raises(Indeterminate):
        log.head()
    assert log.head() == 0
    terminate_sessions(other)
    with pytest.raises(Indeterminate):
        log.append(SeqNo(1), b"x")
    assert log.append(SeqNo(1), b"x") == Committed()


@pytest.mark.parametrize("seqno", [0, 1])
def test_a_connection_that_breaks_under_an_append_is_indeterminate(
    log: PostgresConsensus, other: psycopg.Connection, name: str, seqno: int
) -> None:
    for before in range(seqno):
        log.append(SeqNo(before), b"x")
    insert(other, name, seqno)  # uncommitted: whoever wants this seqno waits for us
    with ThreadPoolExecutor(1) as pool:
        appending = pool.submit(log.append, SeqNo(seqno), b"mine")
        other.execute(WAIT_FOR_BLOCKED)
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'headwater' AND wait_event_type = 'Lock'"
        )
        with pytest.raises(Indeterminate):
            appending.result()
    other.rollback()
    assert log.append(SeqNo(seqno), b"mine") == Committed()


def test_an_append_waits_for_a_rival_and_loses_or_wins_by_its_outcome(
    log: PostgresConsensus, other: psycopg.Connection, name: str
) -> None:
    log.append(SeqNo(0), b"x")
    with ThreadPoolExecutor(1) as pool:
        insert(other, name, 1)
        appending = pool.submit(log.append, SeqNo(1), b"mine")
        other.execute(WAIT_FOR_BLOCKED)
        other.rollback()
        assert appending.result() == Committed()

        insert(other, name, 2)
        appending = pool.submit(log.append, SeqNo(2), b"mine")
        other.execute(WAIT_FOR_BLOCKED)
        other.commit()
        assert appending.result() == LostRace(SeqNo(2))


def test_a_stalled_append_does_not_fill_the_hole_a_truncation_left(
    log: PostgresConsensus, other: psycopg.Connection, name: str
) -> None:
    """Its seqno was committed by another and truncated, while it waited with an old snapshot."""
    log.append(SeqNo(0), b"x")
    other.execute("SELECT FROM headwater_log WHERE log = %s FOR UPDATE", (name,))
    with ThreadPoolExecutor(1) as pool:
        appending = pool.submit(log.append, SeqNo(1), b"mine")
        other.execute(WAIT_FOR_BLOCKED)
        insert(other, name, 1)
        insert(other, name, 2)
        other.execute("DELETE FROM headwater_log WHERE log = %s AND seqno < 2", (name,))
        other.commit()
        assert appending.result() == LostRace(SeqNo(2))
    assert log.scan(SeqNo(0), 10) == (LogEntry(SeqNo(2), b"theirs"),)


def test_a_stalled_first_append_does_not_begin_the_log_anew(
    log: PostgresConsensus, other: psycopg.Connection, name: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        other.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('headwater_log/' || %s, 0))", (name,)
        )
        appending = pool.submit(log.append, SeqNo(0), b"mine")
        other.execute(WAIT_FOR_BLOCKED)
        insert(other, name, 0)
        insert(other, name, 1)
        other.execute("DELETE FROM headwater_log WHERE log = %s AND seqno < 1", (name,))
        other.commit()
        assert appending.result() == LostRace(SeqNo(1))


@pytest.mark.parametrize("state", ["40001", "40P01", "53100", "42501", "25006", "57014"])
def test_what_the_server_rolled_back_is_determinate(
    log: PostgresConsensus, other: psycopg.Connection, name: str, state: str
) -> None:
    """A trigger raises each SQLSTATE for real."""
    function = sql.Identifier(f"refuse_{name}_{state.lower()}")
    other.execute(
        sql.SQL(
            "CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE 'injected' USING ERRCODE = {}; END $$"
        ).format(function, sql.Literal(state))
    )
    other.execute(
        sql.SQL(
            "CREATE TRIGGER refuse BEFORE INSERT ON headwater_log FOR EACH ROW "
            "WHEN (NEW.log = {}) EXECUTE FUNCTION {}()"
        ).format(sql.Literal(name), function)
    )
    other.commit()
    try:
        with pytest.raises(Determinate, match=f"injected.*{state}"):
            log.append(SeqNo(0), b"x")
    finally:
        other.execute("DROP TRIGGER refuse ON headwater_log")
        other.commit()
    assert log.append(SeqNo(0), b"x") == Committed(), "the connection is still good"


def test_unclassified_states_are_indeterminate(
    log: PostgresConsensus, other: psycopg.Connection, name: str
) -> None:
    io_error = "58030"
    with pytest.raises(Indeterminate):
        test_what_the_server_rolled_back_is_determinate(log, other, name, io_error)


def test_durable_whatever_the_servers_default(
    postgres_dsn: str, name: str, other: psycopg.Connection
) -> None:
    for setting in ("off", "on"):
        dsn = psycopg.conninfo.make_conninfo(
            postgres_dsn, options=f"-c synchronous_commit={setting}"
        )
        with closing(PostgresConsensus(dsn, name)) as log, log._statement() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_read_only_creates_nothing(postgres_dsn: str, name: str) -> None:
    database = f"empty_{name}"
    with psycopg.connect(postgres_dsn, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    dsn = psycopg.conninfo.make_conninfo(postgres_dsn, dbname=database)
    with closing(PostgresConsensus(dsn, "main", read_only=True)) as reader:
        assert reader.head() is None
        assert reader.scan(SeqNo(0), 10) == ()
        with psycopg.connect(dsn) as other:
            assert other.execute("SELECT to_regclass('headwater_log')").fetchone() == (None,)
        for effect in (lambda: reader.append(SeqNo(0), b""), lambda: reader.truncate(SeqNo(0))):
            with pytest.raises(InvalidUsage, match="opened read-only"):
                effect()
        with ThreadPoolExecutor(4) as pool:  # all of them find no table, and make it
            writers = list(pool.map(lambda _: PostgresConsensus(dsn, "main"), range(4)))
        assert [log.append(SeqNo(0), b"x") for log in writers].count(Committed()) == 1
        assert reader.head() == 0
        for log in writers:
            log.close()


def test_secrets_stay_out_of_error_texts(postgres_dsn: str) -> None:
    for wrong in (
        "postgresql://user:s3cr%zzet@localhost/x",
        "postgresql://user:s3cr%zzet@localhost:port/x",
        "postgresql://user:s3cret@127.0.0.1:1/x",
        "postgresql://user:s3cret@127.0.0.1:1/x?headwater_log=not%20a%20name",
        "postgresql://user:s3cret@[::1/x",
        "postgresql://user:s3cret@127.0.0.1:1/x?no_such_parameter=s3cret",
    ):
        with pytest.raises((Determinate, InvalidUsage)) as failure:
            open_consensus(wrong)
        assert "s3cr" not in "".join(traceback.format_exception(failure.value)), wrong
    with pytest.raises(InvalidUsage):
        PostgresConsensus(postgres_dsn, "no such name")


def test_a_server_that_is_not_there_is_determinate() -> None:
    with pytest.raises(Determinate, match=r"127\.0\.0\.1"):
        PostgresConsensus("postgresql://user@127.0.0.1:1/x", "main")


def test_a_closed_log_says_so(log: PostgresConsensus) -> None:
    log.close()
    with pytest.raises(InvalidUsage, match="was closed"):
        log.head()
