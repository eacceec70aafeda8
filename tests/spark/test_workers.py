"""The Python processes of a step live on: a later step finds them, with the runs they have open.

They end with whoever started them, however that ended, and what is left on disk is swept.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaObject
from py4j.protocol import GATEWAY_SERVER_OBJECT_ID

from headwater.base.scratch import sweep
from headwater.compute.catalyst.jvm import java_object
from headwater.compute.controller import ViewController
from headwater.compute.session import crash_file
from headwater.persist.client import Client
from tests.spark.shape_story import Story

pytestmark = pytest.mark.spark

SQL = "SELECT sqrt(amount) AS root, count(*) AS n FROM orders GROUP BY sqrt(amount)"
"""Two stages: a root is computed between them, in the JVM."""
DEADLINE_SECONDS = 300


def _daemon(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield pa.record_batch([pa.array([os.getppid()])], names=["pid"])


def _workers(daemon: int) -> set[str]:
    return set(Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split())


def test_steps_run_in_the_same_workers(spark: Any, client: Client) -> None:
    story = Story(1)
    controller = ViewController(client, spark)
    story.go_on(client)
    controller.create_view("parts", SQL)
    controller.run_once()
    ((daemon,),) = spark.range(0, 1, 1, 1).mapInArrow(_daemon, "pid bigint").collect()
    known = _workers(daemon)
    assert len(known) >= 2
    for _ in range(3):
        story.go_on(client)
        assert controller.run_once() == ("parts",)
        assert _workers(daemon) == known


def test_no_answer_of_the_gateway_waits_to_be_acknowledged(spark: Any) -> None:
    java_object(spark, ("PlannedRun",))
    gateway = spark.sparkContext._gateway

    def delayed() -> list[bool]:
        server = JavaObject(GATEWAY_SERVER_OBJECT_ID, gateway._gateway_client)
        field = gateway.jvm.py4j.GatewayServer._java_lang_class.getDeclaredField("connections")
        field.setAccessible(True)
        return [not one.getSocket().getTcpNoDelay() for one in field.get(server)]

    # A thread of its own has a connection of its own, which is made now.
    with ThreadPoolExecutor(1) as thread:
        found = [*delayed(), *thread.submit(delayed).result()]
    assert len(found) > 2
    assert not any(found)


def test_nothing_is_left_of_a_process_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    here, told = tmp_path / "here", tmp_path / "told"
    here.mkdir()
    story = Path(__file__).with_name("busy_worker_story.py")
    paths = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        [sys.executable, str(story), str(told)],
        cwd=here,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": paths},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            _wait(lambda: told.exists() or process.poll() is not None)
            jvm, daemon, worker = map(int, told.read_text().split())
            assert sweep() == (), "it lives"
            os.kill(daemon, signal.SIGKILL)
            os.kill(jvm, signal.SIGSEGV)
        finally:
            process.kill()
    _wait(lambda: not any(map(_lives, (jvm, daemon, worker))))
    # Java said why, and not where whoever started it was.
    assert crash_file(jvm).exists()
    assert not list(here.iterdir())
    (left,) = tmp_path.glob("headwater-held-*")
    assert sweep() == (left,)
    assert sorted(tmp_path.iterdir()) == sorted([here, told, crash_file(jvm)])


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
