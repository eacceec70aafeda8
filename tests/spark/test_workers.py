"""The Python processes of a step live on: a later step finds them, with the runs they have open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.controller import ViewController
from headwater.persist.client import Client
from tests.spark.shape_story import Story

pytestmark = pytest.mark.spark

SQL = "SELECT amount % 5 AS part, count(*) AS n FROM orders WHERE amount > 0 GROUP BY amount % 5"
"""Two stages: what is computed between them passes the JVM."""


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
