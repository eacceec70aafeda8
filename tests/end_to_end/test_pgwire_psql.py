"""The wire by psql, unmodified: what it prints is what it prints of PostgreSQL."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from headwater.adapter.errors import TimestampNotReadable
from headwater.adapter.pgwire import WireServer
from tests.end_to_end import tables_backend
from tests.end_to_end.tables_backend import EVERY_ROW, EVERY_TYPE, WAIT_SECONDS, Tables

pytestmark = pytest.mark.server

backend = tables_backend.backend
server = tables_backend.server


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
        "UTC",
    ]
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == [
        *("ERROR", "DETAIL", "HINT"),
        *("ERROR", "DETAIL", "HINT"),
        "ERROR",
    ]
