"""Executors in processes of their own: one that dies after its task has written changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import headwater

pytestmark = [pytest.mark.spark, pytest.mark.soak]

STORY = Path(__file__).with_name("cluster_story.py")


def test_an_executor_dies_and_a_view_is_stepped_on_a_cluster(tmp_path: Path) -> None:
    source = str(Path(headwater.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(STORY), str(tmp_path / "data"), source],
        env={**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent), "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["rows"] == 8000
    assert seen["parts"] == 4
    assert seen["objects"] > 4, "the attempt that died had written its object"
    assert seen["swept"]
    assert seen["failures"] == []
    assert [row["c"] for row in seen["view"]] == [1600] * 5
    assert sum(row["n"] for row in seen["view"]) == sum(range(8000))
