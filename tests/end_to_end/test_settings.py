"""Settings that clients send: obeyed, true whatever they say, or refused by name."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import psycopg
import pytest

from headwater.adapter.foreign_settings import HOLDS, holds
from headwater.adapter.pgwire import variables
from tests.end_to_end.client_door import Door

pytestmark = pytest.mark.server

WAIT_SECONDS = 20


def refused(connection: psycopg.Connection[Any], sql: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as told:
        connection.execute(sql.encode())
    return told.value


def said_at_start(door: Door, options: str) -> bytes:
    """What the server says to a client that starts with these; drivers show little of it."""
    payload = struct.pack("!i", 196608)
    for word in ("user", "headwater", "options", options):
        payload += word.encode() + b"\0"
    payload += b"\0"
    said = b""
    with socket.create_connection((door.wire.host, door.wire.port), WAIT_SECONDS) as client:
        client.sendall(struct.pack("!i", len(payload) + 4) + payload)
        while not said.endswith(b"Z\0\0\0\5I") and (piece := client.recv(65536)):
            said += piece
    return said


# --- the time zone --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "SET timezone = 'Europe/Berlin'",
        "SET TIME ZONE 'America/Chicago'",
        "SET TIME ZONE '+02'",
        "SET LOCAL timezone TO 'no zone'",
        "SELECT set_config('TimeZone', 'Europe/Berlin', false)",
        "SELECT pg_catalog.set_config('timezone', 'CET', true)",
    ],
)
def test_there_is_one_time_zone(door: Door, sql: str) -> None:
    with door.connect() as connection, connection.transaction(force_rollback=True):
        error = refused(connection, sql)
    assert error.sqlstate == "22023"
    assert 'parameter "TimeZone" cannot be set to' in str(error)
    assert "UTC" in str(error.diag.message_detail)
    assert error.diag.message_hint is not None


def test_which_has_many_names(door: Door) -> None:
    with door.connect() as connection:
        for zone in ("'UTC'", "'Etc/UTC'", "'GMT'", "'Z'", "0", "'+00:00'", "LOCAL", "DEFAULT"):
            connection.execute(f"SET TIME ZONE {zone}".encode())
            assert connection.execute("SHOW timezone").fetchall() == [("UTC",)], zone
        connection.execute("SELECT set_config('timezone', 'utc', false)")
        connection.execute("RESET timezone")


def test_a_start_with_what_is_not_here_is_warned_of(door: Door) -> None:
    """Drivers send their machine's time zone unasked, as those of Java do."""
    options = "-c TimeZone=Europe/Berlin -c lock_timeout=5s -c statement_timeout=9s"
    with door.connect(options=options) as connection:
        assert connection.info.parameter_status("TimeZone") == "UTC"
        assert connection.execute("SHOW statement_timeout").fetchall() == [("9s",)]
        assert connection.execute("SHOW lock_timeout").fetchall() == [("0",)]
    said = said_at_start(door, options)
    assert said.count(b"SWARNING\0") == 2
    assert b'C01000\0Mparameter "TimeZone" cannot be set to "Europe/Berlin"' in said
    assert b'Mparameter "lock_timeout" cannot be set to "5s"' in said
    assert b"TimeZone\0UTC\0" in said
    assert b"SWARNING" not in said_at_start(door, f"{options} -c client_min_messages=error")
    for fatal in ("-c client_encoding=LATIN1", "-c statement_timeout=soon", "-c nothing=1"):
        assert b"SFATAL\0" in said_at_start(door, fatal), fatal


# --- all others -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("SET lock_timeout = '2s'", "22023"),
        ("SET transaction_timeout = 1000", "22023"),
        ("SET extra_float_digits = 0", "22023"),
        ("SET datestyle = 'German'", "22023"),
        ("SET intervalstyle = iso_8601", "22023"),
        ("SET client_encoding = LATIN1", "22023"),
        ("SET standard_conforming_strings = off", "22023"),
        ("SET client_min_messages = loud", "22023"),
        ("SET default_transaction_isolation = chaos", "22023"),
        ("SET default_transaction_read_only = perhaps", "22023"),
        ("SET transform_null_equals = on", "22023"),
        ("SET array_nulls = off", "22023"),
        ("SET exit_on_error = on", "22023"),
        ("SET xmloption = document", "22023"),
        ("SET default_text_search_config = 'pg_catalog.english'", "22023"),
        ("SET work_mem = 'much'", "22023"),
        ("SET server_version = '9'", "22023"),
        ("SET nothing = 1", "42704"),
    ],
)
def test_what_would_not_be_obeyed_is_refused(door: Door, sql: str, state: str) -> None:
    with door.connect() as connection:
        error = refused(connection, sql)
    assert error.sqlstate == state, error


def test_what_pg_dump_and_drivers_send_is_taken(door: Door) -> None:
    with door.connect() as connection:
        for sql in (
            "SET lock_timeout = 0",
            "SET extra_float_digits = 3",
            "SET client_min_messages = warning",
            "SET row_security = off",
            "SET jit = off",
            "SET enable_seqscan = on",
            "SET work_mem = '64MB'",
            "SET synchronous_commit = off",
            "SET check_function_bodies = false",
            "SET xmloption = content",
            "SET default_tablespace = ''",
            "SET default_table_access_method = heap",
            "SET transaction_timeout = 0",
            "SET idle_session_timeout = '1h'",
            "SET my.own = 'thing'",
        ):
            connection.execute(sql.encode())
        assert connection.execute("SHOW work_mem").fetchall() == [("64MB",)]
        assert connection.execute("SHOW my.own").fetchall() == [("thing",)]


def test_every_variable_has_one_judgement() -> None:
    ours = {*variables.FIXED, *variables.FREE, *variables.SHARED}
    assert not [name for name in ours if holds(name)]
    assert all(each.why for each in variables.FREE.values())
    assert all(why.endswith(".") for why in HOLDS)


def test_read_only_sessions(door: Door) -> None:
    with door.connect() as connection:
        connection.execute("CREATE TABLE only_read (k bigint PRIMARY KEY)")
        connection.execute("SET default_transaction_read_only = on")
        assert connection.info.parameter_status("default_transaction_read_only") == "on"
        for sql in (
            "INSERT INTO only_read VALUES (1)",
            "DELETE FROM only_read",
            "TRUNCATE only_read",
            "DROP TABLE only_read",
            "CREATE TABLE other (k bigint)",
            "CREATE TABLE other AS SELECT 1 AS k",
            "COPY only_read FROM STDIN",
        ):
            assert refused(connection, sql).sqlstate == "25006", sql
        assert connection.execute("SHOW transaction_read_only").fetchall() == [("on",)]
        connection.execute("BEGIN READ WRITE")
        assert connection.execute("SHOW transaction_read_only").fetchall() == [("off",)]
        connection.execute("INSERT INTO only_read VALUES (2)")
        connection.execute("COMMIT")
        connection.execute("BEGIN; SET TRANSACTION READ WRITE")
        assert connection.execute("SHOW transaction_read_only").fetchall() == [("off",)]
        assert refused(connection, "SET transaction_read_only = on").sqlstate == "22023"
        connection.execute("ROLLBACK")
        assert connection.execute("SHOW transaction_read_only").fetchall() == [("on",)]
        assert connection.execute("SELECT k FROM only_read").fetchall() == [(2,)]
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
        shown = connection.execute("SHOW default_transaction_read_only").fetchall()
        assert shown == [("off",)]
        assert connection.info.parameter_status("default_transaction_read_only") == "off"
        connection.execute("INSERT INTO only_read VALUES (1)")
        connection.execute("DROP TABLE only_read")


@pytest.mark.parametrize(
    ("name", "begin", "state"),
    [
        ("idle_session_timeout", "SELECT 1", "57P05"),
        ("idle_in_transaction_session_timeout", "BEGIN", "25P03"),
    ],
)
def test_who_says_nothing_is_sent_away(door: Door, name: str, begin: str, state: str) -> None:
    with door.connect() as connection:
        connection.execute(f"SET {name} = '100ms'".encode())
        connection.execute(begin.encode())
        time.sleep(0.5)
        error = refused(connection, "SELECT 1")
        assert error.sqlstate == state
        assert connection.broken


# --- what the shadow would say of itself ----------------------------------------------------------


def test_settings_are_the_sessions(door: Door) -> None:
    with door.connect() as connection:
        connection.execute("SET statement_timeout = '7s'; SET application_name = 'me'")
        shown = dict(connection.execute("SELECT lower(name), setting FROM pg_settings").fetchall())
        ours = {name for name in shown if name in {*variables.FREE, *variables.FIXED}}
        assert len(ours) > 15
        for name in ours | {"statement_timeout", "search_path"}:
            assert connection.execute(f"SHOW {name}".encode()).fetchall() == [(shown[name],)], name
        assert shown["statement_timeout"] == "7s"
        assert shown["max_index_keys"] == "32"  # A driver asks for it, and it is what we have.
        every = {row[0].lower(): row[1] for row in connection.execute("SHOW ALL").fetchall()}
        assert {name: every[name] for name in ours} == {name: shown[name] for name in ours}
        for name in ("wal_level", "max_connections", "shared_buffers", "fsync"):
            assert name not in shown
            assert name not in every
            error = refused(connection, f"SHOW {name}")
            assert (error.sqlstate, "SHOW ALL" in str(error.diag.message_hint)) == ("0A000", True)


def test_a_wrong_number_is_worse_than_none(door: Door) -> None:
    with door.connect() as connection:
        for sql in (
            "SELECT pg_total_relation_size('orders')",
            "SELECT pg_table_size('orders'::regclass)",
            "SELECT pg_relation_size('orders', 'main')",
            "SELECT pg_size_pretty(pg_database_size('headwater'))",
            "SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = 'orders'",
            "SELECT heap_blks_read FROM pg_statio_user_tables WHERE relname = 'orders'",
            "SELECT xact_commit FROM pg_stat_database WHERE datname = 'headwater'",
            "SELECT nullif(reltuples, -1) FROM pg_class WHERE relname = 'orders'",
        ):
            assert connection.execute(sql.encode()).fetchall() == [(None,)], sql
        listed = connection.execute("SELECT schemaname FROM pg_stat_user_tables").fetchall()
        assert "pg_headwater" not in {schema for (schema,) in listed}
        for view in ("pg_stat_activity", "pg_stat_wal", "pg_stat_bgwriter", "pg_stat_io"):
            error = refused(connection, f"SELECT * FROM {view}")
            assert (error.sqlstate, error.diag.message_hint is not None) == ("42501", True), view
    printed = door.psql(r"\dt+ orders", r"\l+", r"\di+", r"\d+ orders")
    assert " kB" not in printed
    assert " MB" not in printed
