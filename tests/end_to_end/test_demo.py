"""The demo, as a script runs it: live, exact, and going on where it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.soak]


def _demo(data: Path) -> dict[str, Any]:
    program = [sys.executable, "-m", "headwater", "demo", "--data", str(data)]
    done = subprocess.run(
        [*program, "--duration", "5", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_demo_is_exact_also_after_a_restart(tmp_path: Path) -> None:
    first = _demo(tmp_path / "d")
    assert first["exact"]
    assert first["updates_in"] > 0
    again = _demo(tmp_path / "d")
    assert again["exact"]
