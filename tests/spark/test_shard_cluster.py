"""Shards are tasks on a cluster, and an executor that is killed in a transaction costs nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

import headwater

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.soak]

STORY = Path(__file__).with_name("shard_cluster_story.py")
SOURCE = str(Path(headwater.__file__).parents[1])
MOMENTS = [f"{when}:{of}" for when in ("before", "asked", "after") for of in ("rows", "files")]


def test_executors_are_killed_around_the_commit(tmp_path: Path) -> None:
    spark_home = str(Path(pyspark.__file__).parent)
    done = subprocess.run(
        [sys.executable, str(STORY), str(tmp_path), SOURCE, *MOMENTS],
        env={**os.environ, "SPARK_HOME": spark_home, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=1_800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert len(set(seen["killed"])) == len(MOMENTS)
    meant = seen["meant"]
    assert len(meant) == 2 + len(MOMENTS)
    assert seen["delivered"] == {"sums": [5 * len(meant)], "log": meant, "files": meant}
