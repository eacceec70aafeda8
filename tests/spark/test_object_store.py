"""Tasks on an object store: parts are written, probed and read with no Hadoop jar and no file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.testing.servers import s3_server

pytestmark = [pytest.mark.spark, pytest.mark.server]

STORY = Path(__file__).with_name("s3_story.py")


def test_a_view_is_stepped_over_parts_in_s3(tmp_path: Path) -> None:
    with s3_server() as server:
        server.create_bucket("headwater")
        done = subprocess.run(
            [sys.executable, str(STORY), "s3://headwater/location", f"sqlite://{tmp_path}/log.db"],
            env={**os.environ, **server.environment},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["failures"] == []
    assert seen["rows"] == 3999
    assert seen["objects"] >= 3
    assert [row["c"] for row in seen["view"]] == [800, 799, 800, 800, 800]
    assert sum(row["n"] for row in seen["view"]) == sum(range(4000)) - 1
