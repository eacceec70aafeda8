"""Mistakes of whoever starts a server: one sentence with the remedy, a status, no traceback."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.exit_status import ExitStatus
from headwater.cli.main import app
from headwater.persist import encoding
from headwater.persist.client import open_location

pytestmark = pytest.mark.server  # It would start one.


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    logging.getLogger("headwater").setLevel(logging.NOTSET)


def refused(*arguments: object, status: ExitStatus = ExitStatus.CANNOT_OPEN) -> str:
    """Run a command that must refuse; return its sentence."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == status, result.stderr
    told = [line for line in result.stderr.splitlines() if line.startswith("headwater: ")]
    assert len(told) == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    return told[0]


def test_a_used_port_fences_nobody(tmp_path: Path) -> None:
    with (
        open_location(tmp_path, reentrance_id=f"server:{tmp_path.resolve()}") as running,
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        port = taken.getsockname()[1]
        told = refused("serve", "--data", tmp_path, "--listen", f"127.0.0.1:{port}")
        assert f"another program listens on 127.0.0.1:{port}" in told
        running.core.confirm()  # It would raise Fenced.


def test_a_directory_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"x")
    assert "photo.jpg" in refused("serve", "--data", tmp_path, "--listen", "0")
    assert "is not a directory" in refused("serve", "--data", tmp_path / "photo.jpg")


def test_a_log_that_is_not_one(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"not a database at all")
    told = refused("serve", "--data", tmp_path, "--listen", "0", status=ExitStatus.FAILED)
    assert "log.db" in told


def test_a_newer_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = encoding.VERSION + 1
    with monkeypatch.context() as newer:
        newer.setattr(encoding, "VERSION", version)  # What it reads,
        newer.setattr(encoding, "ORDINARY", version)  # and what it writes.
        open_location(tmp_path).stop()
    assert "upgrade Headwater" in refused("serve", "--data", tmp_path, "--listen", "0")


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert "install a JDK" in refused("serve", "--data", tmp_path / "d", "--listen", "0")


def test_too_little_memory(tmp_path: Path) -> None:
    told = refused(
        *("serve", "--data", tmp_path / "d", "--listen", "0"), "--spark-memory-mib", 10**9
    )
    assert "--spark-memory-mib" in told


def test_a_mistake_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "headwater.toml"
    file.write_text('data = "d"\nlissten = "127.0.0.1:0"\n')
    assert "perhaps listen" in refused("serve", "--config", file)
    assert "No such file" in refused("serve", "--config", tmp_path / "absent")


def test_an_open_door_needs_users_also_the_consoles(tmp_path: Path) -> None:
    told = refused(
        *("serve", "--data", tmp_path / "d", "--listen", "127.0.0.1:0"),
        *("--console", "0.0.0.0:0"),
        status=ExitStatus.FAILED,
    )
    assert "headwater user NAME" in told


def test_services_that_are_not_there(tmp_path: Path) -> None:
    told = refused(
        *("serve", "--data", tmp_path / "d", "--listen", "0", "--blob", tmp_path / "b"),
        *("--consensus", "postgresql://ann:hidden@127.0.0.1:1/db"),
        status=ExitStatus.FAILED,
    )
    assert "hidden" not in told
