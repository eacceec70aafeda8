"""Views on clusters: exact at every time, also if an executor is killed in the middle of a step.

Also in the middle of their hydration, by ranges, which both executors work at. Delivered exactly
once by tasks, also if their executors are killed around a commit. And in another SparkContext after
that one, in the same JVM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest

import headwater
from headwater.testing.cluster import standalone_cluster

pytestmark = pytest.mark.spark

STORY = Path(__file__).with_name("view_cluster_story.py")
LOSSY = Path(__file__).with_name("lossy_cluster_story.py")
LOSSES = ("executor", "executors", "python", "worker", "context", "workers", "frozen", "master")
SOURCE = str(Path(headwater.__file__).parents[1])
TESTS = str(Path(__file__).parents[2])


def told(folder: Path, master: str, extra: Any, pids: Sequence[int]) -> dict[str, Any]:
    """Run the story on a cluster; return what it saw."""
    return ran(STORY, str(folder), master, json.dumps(extra), json.dumps(pids))


def ran(story: Path, *arguments: str, seconds: int = 580) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(story), *arguments],
        env={
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYTHONPATH": os.pathsep.join((SOURCE, TESTS)),
        },
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def check(seen: dict[str, Any]) -> None:
    print("hydrations that had to be tried again:", seen["stalled"])
    assert seen["failures"] == []
    assert seen["advanced"] == ["slow", "outer", "extremes"]
    for when in ("hydrated", "stepped", "after_the_kill", "at_the_end", "in_another_context"):
        assert seen[when] == [], when
    assert seen["worked"] >= 2, "ranges are hydrated by both executors"
    assert seen["left_aside"] == [], "what was put aside on the way is garbage"
    assert seen["written_by_the_dead"], "it was killed after it had written"
    assert seen["attempts"] == 2, "one attempt died and one was committed"
    assert seen["left_of_the_dead"] == [], "what the dead attempt wrote is garbage"
    assert seen["killed_carriers"] == 2, "one before the commit, one after it"
    assert seen["carried_in"] == ["task"]
    assert seen["endpoint_is_the_view"]
    assert seen["log_is_the_view"]
    assert seen["same_jvm"], "one Spark after the other, as in a notebook"
    assert seen["again"] == seen["advanced"]
    assert seen["asked"] == seen["meant"]


def test_an_executor_of_a_local_cluster_is_killed_in_a_step(tmp_path: Path) -> None:
    extra = [("spark.executorEnv.PYTHONPATH", SOURCE)]
    check(told(tmp_path / "data", "local-cluster[2,1,1024]", extra, []))


@pytest.mark.soak
def test_an_executor_of_a_standalone_cluster_is_killed_in_a_step(tmp_path: Path) -> None:
    with standalone_cluster(workers=2) as cluster:
        check(told(tmp_path / "data", cluster.master, cluster.extra, cluster.pids))


@pytest.mark.soak
def test_whatever_a_standalone_cluster_loses(tmp_path: Path) -> None:
    seen = ran(LOSSY, str(tmp_path / "data"), *LOSSES, seconds=3_600)
    assert seen["wrong"] == []
    assert seen["failures"] == []
    assert list(seen["took"]) == list(LOSSES)
    assert seen["restarts"] == 2, "of Spark, for the loss of its context and of its master"
