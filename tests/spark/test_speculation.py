"""Spark's own speculation: two attempts of one task write, one of them is committed, once.

On a standalone cluster of processes of their own, with workers on hosts of different names: Spark
places a speculative copy only on another host. Seven processes of Java or more: about half a minute
of two cores, hence with the long tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import headwater
from headwater.testing.cluster import standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.soak]

STORY = Path(__file__).with_name("speculation_story.py")
ROWS = 8000


def test_of_two_attempts_that_have_written_one_is_committed(tmp_path: Path) -> None:
    source = str(Path(headwater.__file__).parents[1])
    with standalone_cluster(workers=2) as cluster:
        done = subprocess.run(
            [sys.executable, str(STORY), str(tmp_path), cluster.master, json.dumps(cluster.extra)],
            env={
                **os.environ,
                "SPARK_HOME": str(Path(pyspark.__file__).parent),
                "PYTHONPATH": source,
            },
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    stories = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(stories) == 2
    for winner, seen in zip((1, 0), stories, strict=True):
        twins = {task["attempt"]: task for task in seen["tasks"] if task["partition"] == 0}
        assert [twins[attempt]["speculative"] for attempt in (0, 1)] == [False, True]
        assert twins[0]["host"] != twins[1]["host"]
        assert twins[winner]["status"] == "SUCCESS"
        assert twins[1 - winner]["status"] != "SUCCESS"
        assert seen["written"] == [0, 1], "both attempts have written their objects"
        assert seen["committed"] == [winner]
        assert (seen["rows"], seen["sum"]) == (ROWS, sum(range(ROWS)))
        assert seen["in_work"], "while the step is open nobody may take it for garbage"
        assert seen["leaked"], "inspect names just the objects of the losers"
        assert seen["swept"], "the sweep deletes just the objects of the losers"
