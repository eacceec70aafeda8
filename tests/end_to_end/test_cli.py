"""The command line, as a script sees it: output, exit status, and what is left on disk."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headwater.base.errors import HeadwaterError, Indeterminate
from headwater.cli import exit_status
from headwater.cli.exit_status import CannotOpen, ExitStatus
from headwater.cli.main import COMMANDS, app
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import open_location
from headwater.persist.core import Settings
from headwater.persist.errors import AlreadyLocked, Fenced

pytestmark = pytest.mark.server  # It starts processes of ours.

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
ROWS = 1_000


def updates(time: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(ROWS), pa.int64()),
            "v": pa.array([f"a value of some length {n}" for n in range(ROWS)]),
            "__time": pa.array([time] * ROWS, pa.int64()),
            "__diff": pa.array([1] * ROWS, pa.int64()),
        }
    )


@pytest.fixture
def location(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    with open_location(place, settings=Settings(maintenance=False), layouts=LAYOUTS) as client:
        orders, _ = client.create_or_load("orders", SCHEMA, key=("k",))
        arranged, _ = client.create_or_load("arranged", SCHEMA, key=("k",), layout="run")
        for time in range(2):
            orders.compare_and_append(updates(time), time, time + 1).result()
            arranged.compare_and_append(updates(time), time, time + 1).result()
    return place


def listing(root: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in (root, *root.rglob("*")):
        found[str(path)] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found


def run(*arguments: object) -> tuple[int, str, str]:
    """Run a command in this process; return its status, standard output and standard error."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def a_part(location: Path, layout: bytes) -> Path:
    """Return the file of an object of a layout, told by how it begins."""
    found = [p for p in (location / "blob" / "part").rglob("*") if p.is_file()]
    return next(p for p in found if p.read_bytes().startswith(layout))


# ---- inspect ---------------------------------------------------------------------------------


def test_inspect_shows_what_is_there_and_touches_nothing(location: Path) -> None:
    before = listing(location)
    status, out, err = run("inspect", location)
    assert (status, err) == (ExitStatus.OK, "")
    for word in ("orders", "arranged", "parquet", "run", "server", "owner", "k: int64", "2,000"):
        assert word in out
    assert listing(location) == before


def test_inspect_as_json(location: Path) -> None:
    status, out, _ = run("inspect", location, "--json")
    report = json.loads(out)
    assert status == ExitStatus.OK
    assert [c["name"] for c in report["collections"]] == ["orders", "arranged"]
    assert report["collections"][0]["upper"] == [2]
    assert report["sizes"]["referenced"]["objects"] == 4
    assert report["leaked"] == []


def test_inspect_names_what_leaked(location: Path) -> None:
    (location / "blob" / "part" / "server" / "0-1-dead").write_bytes(b"x")
    (location / "blob" / "~temporary" / "beef").write_bytes(b"x")
    _, out, _ = run("inspect", location)
    assert "part/server/0-1-dead" in out
    assert "~temporary/beef" in out


def test_addresses_instead_of_a_directory(location: Path) -> None:
    blob, log = location / "blob", f"sqlite://{quote(str(location / 'log.db'))}"
    status, out, _ = run("inspect", "--blob", blob, "--consensus", log, "--json")
    assert (status, json.loads(out)["seqno"]) == (
        0,
        json.loads(run("inspect", location, "--json")[1])["seqno"],
    )
    assert run("fsck", "--blob", f"file://{quote(str(blob))}", "--consensus", log)[0] == 0


# ---- fsck ------------------------------------------------------------------------------------


def test_fsck_of_a_sound_location(location: Path) -> None:
    before = listing(location)
    assert run("fsck", location) == (ExitStatus.OK, "0 errors, 0 warnings\n", "")
    status, out, _ = run("fsck", location, "--json")
    assert (status, json.loads(out)) == (0, {"errors": 0, "warnings": 0, "findings": []})
    assert listing(location) == before


def test_fsck_of_a_location_that_is_being_written(tmp_path: Path) -> None:
    with open_location(tmp_path) as writer:
        write, _ = writer.create_or_load("t", SCHEMA)
        write.compare_and_append(updates(0), 0, 1).result()
        assert run("fsck", tmp_path) == (ExitStatus.OK, "0 errors, 0 warnings\n", "")
        write.compare_and_append(updates(1), 1, 2).result()


@pytest.mark.parametrize("layout", [b"PAR1", b"\xff\xff\xff\xff"], ids=["parquet", "run"])
def test_fsck_names_a_damaged_object(location: Path, layout: bytes) -> None:
    path = a_part(location, layout)
    key = str(path.relative_to(location / "blob"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    status, out, _ = run("fsck", location)
    assert status == ExitStatus.FINDINGS
    assert f"error: object {key} at 0: its checksum does not match" in out
    status, out, _ = run("fsck", location, "--json")
    verdict = json.loads(out)
    assert (status, verdict["errors"]) == (ExitStatus.FINDINGS, 1)
    assert key in verdict["findings"][0]["what"]

    path.unlink()
    status, out, _ = run("fsck", location)
    assert status == ExitStatus.FINDINGS
    assert f"error: object {key}: missing" in out


def test_warnings_alone_are_no_failure(location: Path) -> None:
    (location / "blob" / "part" / "server" / "0-1-dead").write_bytes(b"x")
    status, out, _ = run("fsck", location)
    assert status == ExitStatus.OK
    assert "warning: object part/server/0-1-dead: written and never committed" in out
    assert "0 errors, 1 warnings" in out


# ---- what cannot be opened -------------------------------------------------------------------


@pytest.mark.parametrize("command", ["inspect", "fsck"])
def test_a_missing_location_is_one_sentence_and_nothing_is_made(
    tmp_path: Path, command: str
) -> None:
    for place in (tmp_path / "absent", tmp_path):
        status, out, err = run(command, place)
        assert (status, out) == (ExitStatus.CANNOT_OPEN, "")
        assert err.startswith(f"headwater: cannot open the location: {place} is not a")
        assert err.count("\n") == 1
    assert run(command)[0] == ExitStatus.CANNOT_OPEN
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["inspect", "fsck"])
def test_a_stranger_is_not_opened(tmp_path: Path, command: str) -> None:
    (tmp_path / "blob").mkdir()
    (tmp_path / "log.db").write_bytes(b"not a database at all")
    status, _, err = run(command, tmp_path)
    assert status == ExitStatus.CANNOT_OPEN
    assert "log.db" in err
    assert (tmp_path / "log.db").read_bytes() == b"not a database at all"


def test_inspect_of_a_corrupted_log_points_to_fsck(location: Path) -> None:
    # The newest entry is somewhere in the file, as it is: change a byte of its text.
    data = (location / "log.db").read_bytes()
    assert data.count(b"orders") == 1
    (location / "log.db").write_bytes(data.replace(b"orders", b"Orders"))
    status, _, err = run("inspect", location)
    assert status == ExitStatus.CANNOT_OPEN
    assert "checksum" in err
    assert "headwater fsck" in err
    status, out, _ = run("fsck", location)
    assert status == ExitStatus.FINDINGS
    assert "error: log entry 1: its checksum does not match" in out


def test_each_kind_of_end_has_its_status() -> None:
    for error, status in (
        (CannotOpen("why"), ExitStatus.CANNOT_OPEN),
        (Fenced("server", 1, 2, "another"), ExitStatus.FENCED),
        (AlreadyLocked("server", "another", 1), ExitStatus.LOCKED),
        (Indeterminate("timeout"), ExitStatus.FAILED),
        (HeadwaterError("?"), ExitStatus.FAILED),
    ):
        assert exit_status.of(error) == status


# ---- the program -----------------------------------------------------------------------------


def test_version() -> None:
    status, out, _ = run("version")
    assert status == 0
    assert out.startswith("headwater 0.")
    assert "pyspark 4." in out


def test_help_names_every_command() -> None:
    _, out, _ = run("--help")
    for command in COMMANDS:
        assert command.__name__ in out


def test_as_a_process(location: Path, tmp_path: Path) -> None:
    def headwater(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "headwater", *arguments]
        return subprocess.run(program, capture_output=True, text=True, check=False)

    sound = headwater("fsck", str(location))
    assert (sound.returncode, sound.stdout) == (0, "0 errors, 0 warnings\n")
    absent = headwater("inspect", str(tmp_path / "absent"))
    assert (absent.returncode, absent.stdout) == (2, "")
    assert "Traceback" not in absent.stderr


def test_a_long_check_shows_a_bar_on_a_terminal(location: Path) -> None:
    """On a terminal only: above, standard error was empty."""
    program = (
        "from headwater.cli import main, progress\n"
        "progress.bar.__wrapped__.__defaults__ = (0.0,)\n"
        f"main.app(['fsck', {str(location)!r}])"
    )
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm"},
        ) as process:
            os.close(theirs)
            assert process.stdout is not None
            assert process.stdout.read() == b"0 errors, 0 warnings\n"
        assert process.returncode == 0
        shown = b""
        while b"rows" not in shown:
            shown += os.read(ours, 4096)
    finally:
        os.close(ours)
