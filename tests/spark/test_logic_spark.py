"""Logic tests (``tests/logic``) over the wire, evaluated and kept by Spark: a part of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.adapter.coordinator import Coordinator
from headwater.adapter.pgwire import WireServer
from headwater.adapter.timeline import Timeline
from headwater.base.clock import SystemClock
from headwater.compute.controller import ViewController
from headwater.materialize.controller import Materializations
from headwater.persist.client import Client
from headwater.testing.datadriven import collect, run_file
from tests.logic.story import WireStory

pytestmark = pytest.mark.spark

LOGIC = Path(__file__).resolve().parents[1] / "logic"
EVERY_TIME = [*collect(LOGIC / "portable_on_spark"), *collect(LOGIC / "ours_on_spark")]
SOAKED = [path for path in collect(LOGIC) if path not in EVERY_TIME]


@pytest.fixture
def story(client: Client, spark: Any) -> Iterator[WireStory]:
    timeline = Timeline(client, SystemClock())
    views, materializations = ViewController(client, spark), Materializations(client)
    coordinator = Coordinator(client, timeline, views, materializations)
    views.start()
    timeline.start()
    with WireServer("127.0.0.1", 0, coordinator) as wire:
        opened = WireStory(host=wire.host, port=wire.port, user="headwater", times_max=3)
        yield opened
        opened.close()
    views.stop()
    timeline.stop()


@pytest.mark.parametrize(
    "path",
    [*EVERY_TIME, *(pytest.param(path, marks=pytest.mark.soak) for path in SOAKED)],
    ids=lambda path: path.stem,
)
def test_on_spark(story: WireStory, path: Path) -> None:
    run_file(path, story.handle)
    if path.stem in ("first", "times"):
        assert story.checked >= 4
