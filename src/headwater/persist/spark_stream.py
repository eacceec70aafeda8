"""A collection as a stream of Spark's: ``readStream.format("headwater")``.

Offsets are times, so a restarted query goes on exactly where it was; what travels to tasks are
descriptors of parts, as everywhere at the edge (``persist/spark.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headwater.base.errors import InvalidUsage
from headwater.persist import evolution
from headwater.persist.client import Client, open_location
from headwater.persist.core import Core
from headwater.persist.decision import collection_named
from headwater.persist.layout import Layout
from headwater.persist.spark import batches_of, refuse_errors, spark_schema, spread, wire_schema
from headwater.persist.spark_parts import Cut, Reading, cut, place_of
from headwater.persist.state import bound


class HeadwaterDataSource(DataSource):  # type: ignore[misc]  # pyspark is untyped to mypy
    """``readStream.format("headwater")``: a snapshot at ``asOf``, then every update, once.

    Options: ``location`` (a directory), or ``blob`` and ``consensus`` (their addresses);
    ``collection``; ``asOf``, the time to begin at, which is required so that a restarted query
    begins at the same one. Rows are updates, with ``__time`` and ``__diff``.

    An offset is a time: everything before it has been delivered. The query has no hold on the
    collection; if history it still needs is compacted, it fails and says so.
    """

    layouts: tuple[Layout, ...] = ()

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "headwater"

    def schema(self) -> Any:
        """The columns of the updates."""
        with self.open() as client:
            collection = collection_named(client.core.state, self._option("collection"))
            return spark_schema(evolution.with_system_columns(collection.schemas[-1]))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        """Return the reader of one query."""
        return _StreamReader(self, self._option("collection"), int(self._option("asOf")))

    def _option(self, name: str) -> str:
        value = self.options.get(name)
        if value is None:
            raise InvalidUsage(f"the format headwater needs the option {name!r}")
        return str(value)

    def open(self) -> Client:
        """Open the location, as a reader that writes nothing anywhere."""
        return open_location(
            self.options.get("location", ""),
            blob=self.options.get("blob"),
            consensus=self.options.get("consensus"),
            read_only=True,
            layouts=self.layouts,
        )


class _StreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Offsets are ``{"time": t}``; at the initial one the snapshot is still to come."""

    def __init__(self, source: HeadwaterDataSource, collection: str, as_of: int) -> None:
        self._source = source
        self._collection = collection
        self._as_of = as_of
        self._client: Client | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"time": self._as_of}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802
        core = self._runtime()
        state = core.refresh()
        upper = bound(state.upper(collection_named(state, self._collection)))
        return {"time": max(upper, start["time"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if start["time"] >= end["time"]:
            return []
        core = self._runtime()
        collection = collection_named(core.refresh(), self._collection)
        hydrating = start["time"] == self._as_of
        ok, errors = cut(collection, start["time"], end["time"], hydrating=hydrating)
        refuse_errors(core, collection, errors)
        place = place_of(core)
        if place is None:
            raise InvalidUsage("a location in memory cannot be read by Spark's tasks")
        reading = Reading.of(place, collection)
        return [
            InputPartition((reading, Cut(group, ok.lower, ok.upper, hydrating)))
            for group in spread(ok.parts, 8)
            if group
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        reading, wanted = partition.value
        wire = wire_schema(reading.schema)
        for updates in wanted.read(reading):
            yield from batches_of(updates, wire)

    def stop(self) -> None:
        if self._client is not None:
            self._client.stop()

    def _runtime(self) -> Core:
        if self._client is None:
            self._client = self._source.open()
        return self._client.core


def register_data_source(session: Any, layouts: Sequence[Layout] = ()) -> None:
    """Make the format ``headwater`` known to a session; ``layouts`` as in ``open_location``."""
    # A class of its own: Spark ships it by value, and the layouts with it.
    source = type("HeadwaterDataSource", (HeadwaterDataSource,), {"layouts": tuple(layouts)})
    session.dataSource.register(source)
