"""An exception that nobody foresaw is XX000 to the client, on whichever way it comes.

No handler takes it for something else, the log has its trace, and the session goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from headwater.adapter import subscribe
from headwater.adapter.copy_in import TableCopy
from headwater.adapter.group_commit import GroupCommit
from headwater.adapter.pgwire import WireServer, connection, parameters
from headwater.adapter.pgwire.rows import RowStream
from headwater.adapter.pgwire.variable_statements import VariableStatements
from headwater.adapter.promised import Promised
from headwater.adapter.session import ClientSession
from headwater.testing.sql_server import DuckRows, SqlServer

pytestmark = pytest.mark.server

Client = psycopg.Connection[Any]


class Unforeseen(Exception):
    """What nobody catches by name."""


def fails(*_: object, **__: object) -> Any:
    raise Unforeseen("of the test")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with SqlServer() as server, WireServer("127.0.0.1", 0, server.coordinator) as wire:
        sql = server.session()
        sql("CREATE TABLE t (k bigint PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')")
        sql("CREATE TABLE u (k bigint)")
        yield f"host={wire.host} port={wire.port} user=headwater dbname=headwater"


def copied_in(client: Client) -> None:
    with client.cursor().copy("COPY u FROM STDIN") as rows:
        rows.write_row((7,))


def copied_out(client: Client) -> None:
    with client.cursor().copy("COPY t TO STDOUT") as rows:
        list(rows)


def followed(client: Client) -> None:
    with client.cursor().copy("COPY (SUBSCRIBE t) TO STDOUT") as rows:
        list(rows)


def fetched(client: Client) -> None:
    with client.transaction():
        client.execute("DECLARE c CURSOR FOR SELECT v FROM t")
        client.execute("FETCH ALL FROM c")


def committed(client: Client) -> None:
    client.execute("BEGIN")
    client.execute("INSERT INTO u VALUES (3)")
    client.execute("COMMIT")


def said(sql: str, *values: object) -> Callable[[Client], object]:
    """One statement: with values by the extended protocol, else by the simple one."""
    return lambda client: client.execute(sql.encode(), values or None)


WAYS: tuple[tuple[str, type | Any, str, Callable[[Client], object]], ...] = (
    ("simple", ClientSession, "_execute", said("SELECT v FROM t")),
    ("evaluated", DuckRows, "select", said("SELECT count(*) FROM t")),
    ("parsed", connection, "parse_text", said("SELECT v FROM t")),
    ("extended", ClientSession, "_execute", said("SELECT v FROM t WHERE k > %s", 0)),
    ("described", ClientSession, "describe", said("SELECT v FROM t WHERE k > %s", 0)),
    ("bound", parameters, "decode", said("SELECT v FROM t WHERE k > %s", 0)),
    ("shown", VariableStatements, "show", said("SHOW search_path")),
    ("encoded", RowStream, "take", said("SELECT v FROM t")),
    ("copy in, begun", ClientSession, "copy_in", copied_in),
    ("copy in, written", TableCopy, "write", copied_in),
    ("copy in, finished", TableCopy, "finish", copied_in),
    ("copy in, committed", GroupCommit, "_commit_at", copied_in),
    ("copy out", RowStream, "take", copied_out),
    ("subscribe", subscribe, "follow", followed),
    ("subscribe, later", subscribe, "_fetched", followed),
    ("cursor", RowStream, "take", fetched),
    ("commit", GroupCommit, "_commit_at", committed),
    ("promised insert", GroupCommit, "_commit_at", said("INSERT INTO u VALUES (4)")),
    ("promise", ClientSession, "promise", said("INSERT INTO u VALUES (5)")),
    ("promise kept", Promised, "result", said("INSERT INTO u VALUES (6)")),
    ("insert", GroupCommit, "write", said("INSERT INTO u SELECT k FROM t")),
    ("update", ClientSession, "_write", said("UPDATE t SET v = 'b' WHERE k = 1")),
    ("definition", ClientSession, "_define", said("CREATE TABLE w (k int)")),
)


@pytest.mark.parametrize(
    ("place", "name", "do"), [way[1:] for way in WAYS], ids=[w[0] for w in WAYS]
)
def test_it_is_told_as_what_it_is(
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: Any,
    name: str,
    do: Callable[[Client], object],
) -> None:
    with psycopg.connect(address, autocommit=True) as client:
        client.execute("SELECT v FROM t").fetchall()
        with monkeypatch.context() as patched:
            patched.setattr(place, name, fails)
            with pytest.raises(psycopg.Error) as told:
                do(client)
        assert told.value.sqlstate == "XX000"
        assert told.value.diag.message_primary == "internal error: Unforeseen: of the test"
        traced = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert any(record.exc_info and record.exc_info[0] is Unforeseen for record in traced)
        client.execute("ROLLBACK")
        assert client.execute("SELECT v FROM t").fetchall() == [("a",)]
        client.execute("INSERT INTO u VALUES (1)")
