"""``headwater sql``, ``backup`` and ``restore``, as a script sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.adapter.pgwire import WireServer
from headwater.base.clock import SystemClock
from headwater.cli.exit_status import ExitStatus
from headwater.cli.main import app
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import open_location
from headwater.persist.core import Settings
from headwater.testing.sql_server import SqlServer

pytestmark = pytest.mark.server


def run(*arguments: object, stdin: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "data"


@pytest.fixture(scope="module")
def address(data: Path) -> Iterator[str]:
    client = open_location(data, layouts=LAYOUTS, settings=Settings(maintenance=False))
    with (
        SqlServer(SystemClock(), client=client) as server,
        WireServer("127.0.0.1", 0, server.coordinator) as wire,
    ):
        yield f"127.0.0.1:{wire.port}"


def test_statements_and_their_answers(address: str, tmp_path: Path) -> None:
    status, out, _ = run(
        *("sql", "--server", address),
        "CREATE TABLE t (k bigint PRIMARY KEY, v numeric(8,2)); INSERT INTO t VALUES (1, 2.50)",
    )
    assert (status, out) == (0, "CREATE TABLE\nINSERT 0 1\n")
    file = tmp_path / "a.sql"
    file.write_text("-- a comment; with a semicolon\nSELECT k, v, NULL AS n FROM t;\n")
    status, out, _ = run("sql", "--server", address, "--file", file)
    assert status == 0
    assert "│ 1 │ 2.50 │ NULL │" in out
    assert "1 row " in out


def test_json_is_a_line_for_each_answer(address: str) -> None:
    status, out, _ = run(
        "sql", "--server", address, "--json", stdin="SELECT 1 AS a; SELECT true AS b"
    )
    assert status == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"tag": "SELECT 1", "columns": ["a"], "rows": [[1]]},
        {"tag": "SELECT 1", "columns": ["b"], "rows": [[True]]},
    ]


def test_what_cannot_be_is_one_sentence(address: str, tmp_path: Path) -> None:
    status, out, err = run("sql", "--server", address, "SELECT 1; SELECT * FROM absent; SELECT 2")
    assert (status, out.count("1 row")) == (ExitStatus.FAILED, 1)
    assert err == 'headwater: relation "absent" does not exist (42P01)\n'
    for arguments, status, told in (
        (
            ("--server", "127.0.0.1:1", "SELECT 1"),
            ExitStatus.CANNOT_OPEN,
            "headwater: no server answers at 127.0.0.1:1: Connection refused; start one with",
        ),
        (("--server", "here", "SELECT 1"), ExitStatus.CANNOT_OPEN, "HOST:PORT"),
        (("--data", tmp_path, "SELECT 1"), ExitStatus.CANNOT_OPEN, "no log.db"),
        (("--file", tmp_path / "absent"), ExitStatus.CANNOT_OPEN, "cannot be read"),
        (("--server", address, "SELECT 'open"), ExitStatus.FAILED, "syntax error"),
        (("--server", address, "--data", tmp_path, "SELECT 1"), ExitStatus.FAILED, "not both"),
    ):
        found = run("sql", *arguments)
        assert (found[0], found[2].count("\n"), told in found[2]) == (status, 1, True), found


def test_a_location_is_read_beside_its_server(address: str, data: Path) -> None:
    run(
        "sql",
        "--server",
        address,
        "CREATE TABLE r (k bigint PRIMARY KEY); INSERT INTO r VALUES (7)",
    )
    status, out, _ = run("sql", "--data", data, "--json", "SELECT k FROM r WHERE k = 7")
    assert (status, json.loads(out)["rows"]) == (0, [[7]])
    # What is wrong is told as a server tells it: with the remedy, and the SQLSTATE.
    status, _, err = run("sql", "--data", data, "SELECT k FROM r WHERE k = 7 AS OF 5")
    assert status == ExitStatus.FAILED
    assert "or raise RETAIN HISTORY. (22023)" in err


def test_a_backup_while_it_runs_and_its_restore(address: str, data: Path, tmp_path: Path) -> None:
    run(
        "sql",
        "--server",
        address,
        "CREATE TABLE b (k bigint PRIMARY KEY); INSERT INTO b VALUES (1)",
    )
    status, out, _ = run("backup", data, "--to", tmp_path / "backup")
    assert (status, "checked" in out) == (0, True), out
    run("sql", "--server", address, "INSERT INTO b VALUES (2)")
    status, out, _ = run("restore", tmp_path / "backup", "--data", tmp_path / "new", "--json")
    assert status == 0
    assert json.loads(out)["entries"] > 0
    assert run("fsck", tmp_path / "new") == (0, "0 errors, 0 warnings\n", "")
    for key, there in ((1, [[1]]), (2, [])):  # By key: without Spark.
        text = f"SELECT k FROM b WHERE k = {key}"
        out = run("sql", "--data", tmp_path / "new", "--json", text)[1]
        assert json.loads(out)["rows"] == there
    status, _, err = run("restore", tmp_path / "backup", "--data", tmp_path / "new")
    assert (status, "choose an empty" in err) == (ExitStatus.FAILED, True)
    status, _, err = run("backup", tmp_path / "absent", "--to", tmp_path / "x")
    assert (status, "is not a directory" in err) == (ExitStatus.CANNOT_OPEN, True)
    assert run("restore", tmp_path / "backup")[0] == ExitStatus.FAILED
