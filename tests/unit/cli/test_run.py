"""``headwater run`` and ``check``: mistakes that are told before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.exit_status import ExitStatus
from headwater.cli.main import app

SPEC = "name: a\nstorage: kept\nlibraries: [{glob: {include: x.py}}]\n"


def refused(*arguments: object) -> str:
    """Run a command that must refuse; return its one sentence."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (ExitStatus.CANNOT_OPEN, ExitStatus.FAILED)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("headwater: ")
    return line


@pytest.mark.parametrize("command", ["run", "check"])
def test_mistakes_in_what_is_asked_for(command: str, tmp_path: Path) -> None:
    file = tmp_path / "spark-pipeline.yml"
    assert "cannot be read" in refused(command, "--spec", file)
    file.write_text("name: a\nstorrage: b\n")
    assert f"{file}: there is no key 'storrage'; perhaps storage" in refused(
        command, "--spec", file
    )
    file.write_text(SPEC)
    assert "libraries: no file matches 'x.py'" in refused(command, "--spec", file)
    assert "--full-refresh-all is everything" in refused(
        command, "--spec", file, "--refresh", "a, b", "--full-refresh-all"
    )


def test_a_directory_that_cannot_be_a_locations(tmp_path: Path) -> None:
    file = tmp_path / "spark-pipeline.yml"
    file.write_text(SPEC)
    (tmp_path / "x.py").touch()
    assert "holds files that are not Headwater's" in refused(
        "run", "--spec", file, "--data", tmp_path
    )


def test_a_directory_without_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no spark-pipeline.yml" in refused("check")
