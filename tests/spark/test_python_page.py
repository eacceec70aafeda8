"""docs/python.md is true, also inside a PySpark job that has settings of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


@pytest.mark.spark
def test_every_example_of_the_page(tmp_path: Path) -> None:
    story = Path(__file__).parent / "python_page_story.py"
    ended = subprocess.run(
        [sys.executable, str(story), str(PAGE)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "SPARK_CONF_DIR": str(tmp_path / "conf"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[-2] == "America/New_York false", "their settings are theirs"
    assert int(lines[-1].split()[0]) > 30
