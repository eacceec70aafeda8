"""Scratch directories: nobody's are swept, somebody's never."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.base.scratch import PREFIX, Scratch, nameless, path_of, sweep

OWNER = """
from headwater.base.scratch import Scratch
made = Scratch("large")
(made.path / "run").write_bytes(bytes(1000))
print(made.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def owner(place: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """Another process, and its directory."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env=os.environ | {"TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield Path(process.stdout.readline().strip()), process
        finally:
            process.kill()


def test_only_that_of_the_killed_process_is_swept(place: Path) -> None:
    mine = Scratch("mine")
    with owner(place) as (living, _), owner(place) as (dead, process):
        assert sweep() == ()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (dead / "run").exists(), "nobody could remove it"
        assert sweep() == (dead,)
        assert (living / "run").exists()
        assert sorted(place.iterdir()) == sorted([mine.path, living])
    mine.close()
    mine.close()
    assert sweep() == (living,)
    assert not list(place.iterdir())


def test_what_does_not_bear_our_name_stays(place: Path) -> None:
    elsewhere = place / "data"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (place / f"{PREFIX}link").symlink_to(elsewhere)
    (place / f"{PREFIX}file").touch()
    (place / "headwater-spark-of-an-earlier-version").mkdir()
    before = sorted(place.rglob("*"))
    assert sweep() == ()
    assert sorted(place.rglob("*")) == before


def test_another_is_made_where_one_is_swept_before_it_is_opened(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    opening = os.open
    swept: list[Path] = []

    def late(path: Path, flags: int) -> int:
        monkeypatch.setattr(os, "open", opening)
        swept.extend(sweep())
        return opening(path, flags)

    monkeypatch.setattr(os, "open", late)
    made = Scratch("late")
    assert len(swept) == 1
    assert list(place.iterdir()) == [made.path]


@pytest.mark.parametrize("still", [False, True])
def test_another_is_made_where_one_is_swept_before_it_is_locked(
    monkeypatch: pytest.MonkeyPatch, place: Path, still: bool
) -> None:
    """``still``: the other is at it."""
    locking = fcntl.flock
    others: list[int] = []

    def late(directory: int, flags: int) -> None:
        monkeypatch.setattr(fcntl, "flock", locking)
        (path,) = place.iterdir()
        others.append(os.open(path, os.O_RDONLY))
        if still:
            locking(others[0], flags)
        path.rmdir()
        locking(directory, flags)

    monkeypatch.setattr(fcntl, "flock", late)
    made = Scratch("late")
    os.close(*others)
    assert list(place.iterdir()) == [made.path]
    assert sweep() == ()


def test_many_make_and_sweep_at_once(place: Path) -> None:
    wrong: list[Path] = []

    def work() -> None:
        for _ in range(200):
            made = Scratch("short")
            (made.path / "file").touch()
            sweep()
            if not (made.path / "file").exists():
                wrong.append(made.path)
            made.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not list(place.iterdir())


def test_a_nameless_file_is_found_by_nobody_else(place: Path) -> None:
    with nameless() as file:
        file.write(b"rows")
        file.flush()
        assert not list(place.iterdir())
        assert Path(path_of(file)).read_bytes() == b"rows"
