"""In CI only tests of Kafka may skip: the rule of ``tests/conftest.py``, in a run of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.server  # It starts processes of ours.

ROOT = Path(__file__).resolve().parents[3]
CONFTEST = ROOT / "tests" / "conftest.py"


def _run(folder: Path, reason: str, *options: str, ci: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST.read_text("utf-8"), "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (folder / "test_sample.py").write_text(
        "import pytest\n\ndef test_runs():\n    pass\n\n"
        f"@pytest.mark.skip(reason={reason!r})\ndef test_waits():\n    pass\n",
        "utf-8",
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)],
        cwd=folder,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_skip_fails_the_run_in_ci_and_is_named(tmp_path: Path, options: tuple[str, ...]) -> None:
    outcome = _run(tmp_path, "no psql here", *options, ci="true")
    assert outcome.returncode == pytest.ExitCode.TESTS_FAILED
    assert "CI does not permit" in outcome.stdout
    assert "no psql here" in outcome.stdout


def test_kafka_may_skip_in_ci(tmp_path: Path) -> None:
    assert _run(tmp_path, "needs a Kafka broker", ci="true").returncode == pytest.ExitCode.OK


def test_anything_may_skip_at_home(tmp_path: Path) -> None:
    assert _run(tmp_path, "no psql here", ci="").returncode == pytest.ExitCode.OK
