"""The console port without pages: figures and health of a server that has no Spark."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from headwater.base.errors import HeadwaterError
from headwater.console.app import application
from headwater.console.sight import Sight
from headwater.server import metrics
from headwater.server.config import Address
from headwater.server.http import HttpServer, health
from headwater.server.preflight import CannotStart
from headwater.testing.sql_server import SqlServer


class Served:
    def __init__(self, server: SqlServer) -> None:
        self.failure: HeadwaterError | None = None
        self.ready, self.restarts = False, 0
        self.sight = Sight(server.coordinator.seen, server.coordinator.open_session)
        registry = CollectorRegistry()
        registry.register(metrics.ObjectMetrics(self.sight.picture, self))
        self.http = HttpServer(
            Address("127.0.0.1", 0),
            lambda: application(
                self.sight,
                lambda: metrics.text(server.client.core.metrics.registry, registry),
                lambda: health(self.failure, self.ready),
                pages=False,
            ),
        )
        self.http.start()

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.http.url + path) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with SqlServer() as server:
        server.session()("CREATE TABLE t (k bigint PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
        made = Served(server)
        yield made
        made.http.stop()


def test_health_says_whether_it_can_commit_and_whether_spark_is_warm(served: Served) -> None:
    assert served.get("/healthz") == (200, '{"status":"ok","spark":"starting"}')
    served.ready = True
    assert json.loads(served.get("/healthz")[1])["spark"] == "ready"
    served.failure = HeadwaterError("taken over")
    assert served.get("/healthz") == (503, '{"status":"failed","why":"taken over"}')
    served.failure = None


def test_figures_of_persist_and_of_every_object(served: Served) -> None:
    status, text = served.get("/metrics")
    assert status == 200
    assert "headwater_persist_entries_total " in text
    assert 'headwater_object_behind_seconds{kind="table",object="t"} 0.0' in text
    assert 'headwater_object_updates{kind="table",object="t"} 2.0' in text
    assert 'headwater_object_healthy{health="ok",kind="table",object="t"} 1.0' in text
    for line in text.splitlines():
        assert line.startswith(("#", "headwater_")), line


def test_every_figure_is_explained(served: Served) -> None:
    """Of counters the page has the name under which they are read."""
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text("utf-8")
    text = served.get("/metrics")[1]
    told = [line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE ")]
    names = {name for name, kind in told if not (kind == "gauge" and name.endswith("_created"))}
    assert len(names) > 20
    assert sorted(name for name in names if f"`{name}" not in page) == []


def test_the_picture_for_scripts(served: Served) -> None:
    status, text = served.get("/api/picture")
    picture = json.loads(text)
    assert status == 200
    assert [(node["name"], node["health"]) for node in picture["nodes"]] == [("t", "ok")]


def test_a_used_port_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(CannotStart, match="--console"):
            HttpServer(address, object)
