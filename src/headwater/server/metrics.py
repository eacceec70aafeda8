"""``/metrics``: what persist counts, and where everything stands, in Prometheus' text format.

Persist has a registry of its own (``persist/metrics.py``). The figures of objects are made when
they are asked for, from the same picture that the console draws, so that both say the same:

==========================================  ========================================================
``headwater_object_behind_seconds``         how far an object is behind the timeline
``headwater_object_upper_ms``, ``since_ms`` its frontiers
``headwater_object_updates``, ``_bytes``    what it holds, merged or not
``headwater_object_healthy``                1, or 0 with the state in the label ``health``
``headwater_materialization_…_total``       transactions and rows of each, since this server started
``headwater_clock_behind_seconds``          how far the timeline is behind the clock
``headwater_spark_ready``                   1 when queries need not wait for Spark
``headwater_spark_restarts_total``          how many JVMs ended and were followed by another
==========================================  ========================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.console.model import Health, Picture

_NAMES = ("object", "kind")


class Spark(Protocol):
    """How Spark is."""

    @property
    def ready(self) -> bool:
        """Whether it answers."""

    @property
    def restarts(self) -> int:
        """How often it was started again."""


class ObjectMetrics(Collector):
    """Makes the figures of a picture."""

    def __init__(self, picture: Callable[[], Picture], spark: Spark) -> None:
        self._picture = picture
        self._spark = spark

    def collect(self) -> Iterable[Metric]:
        """Return the figures of now."""
        picture = self._picture()
        yield _one(
            "headwater_timeline_upper_ms", "Every time before it is complete.", picture.upper
        )
        yield _one(
            "headwater_clock_behind_seconds",
            "How far the timeline is behind the clock.",
            picture.clock_behind_ms / 1000,
        )
        yield _one("headwater_log_seqno", "The newest log entry.", picture.seqno)
        yield _one("headwater_spark_ready", "Whether Spark has started.", int(self._spark.ready))
        yield CounterMetricFamily(
            "headwater_spark_restarts", "JVMs that ended.", value=self._spark.restarts
        )
        yield from _objects(picture)
        yield from _deliveries(picture)


def text(*registries: CollectorRegistry) -> bytes:
    """Return the figures of some registries, one after another."""
    return b"".join(generate_latest(each) for each in registries)


def _one(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, value=value)


def _objects(picture: Picture) -> Iterable[Metric]:
    behind = GaugeMetricFamily(
        "headwater_object_behind_seconds", "How far behind the timeline.", labels=_NAMES
    )
    upper = GaugeMetricFamily("headwater_object_upper_ms", "Its upper.", labels=_NAMES)
    since = GaugeMetricFamily("headwater_object_since_ms", "Its since.", labels=_NAMES)
    updates = GaugeMetricFamily("headwater_object_updates", "Updates it holds.", labels=_NAMES)
    held = GaugeMetricFamily("headwater_object_bytes", "Bytes it holds.", labels=_NAMES)
    healthy = GaugeMetricFamily(
        "headwater_object_healthy", "Whether it is well.", labels=(*_NAMES, "health")
    )
    for node in picture.nodes:
        labels = (node.name, node.kind)
        if node.upper is not None:
            behind.add_metric(labels, node.behind_ms / 1000)
            upper.add_metric(labels, node.upper)
        if node.since is not None:
            since.add_metric(labels, node.since)
            updates.add_metric(labels, node.rows)
            held.add_metric(labels, node.bytes)
        healthy.add_metric((*labels, node.health.value), int(node.health is Health.OK))
    return behind, upper, since, updates, held, healthy


def _deliveries(picture: Picture) -> Iterable[Metric]:
    counted = {
        name: CounterMetricFamily(f"headwater_materialization_{name}", meaning, labels=("object",))
        for name, meaning in (
            ("transactions", "Transactions committed."),
            ("rows_loaded", "Rows that the endpoint was asked for."),
            ("rows_stored", "Rows that were stored."),
            ("rows_deleted", "Rows that were deleted."),
        )
    }
    for node in picture.nodes:
        if node.delivery is not None:
            for name, family in counted.items():
                family.add_metric((node.name,), getattr(node.delivery, name))
    return counted.values()
