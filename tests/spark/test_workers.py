"""The Python processes of a step live on: a later step finds them, with the runs they have open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaObject
from py4j.protocol import GATEWAY_SERVER_OBJECT_ID

from headwater.compute.catalyst.jvm import java_object
from headwater.compute.controller import ViewController
from headwater.persist.client import Client
from tests.spark.shape_story import Story

pytestmark = pytest.mark.spark

SQL = "SELECT sqrt(amount) AS root, count(*) AS n FROM orders GROUP BY sqrt(amount)"
"""Two stages: a root is computed between them, in the JVM."""


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
