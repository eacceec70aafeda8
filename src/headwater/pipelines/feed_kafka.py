"""Topics of Kafka as a stream of a pipeline (:mod:`.feeds`), by the client of our sources.

Only committed messages are read, up to the first open transaction. ``startingOffsets`` counts for
whoever has taken nothing: ``latest`` (as in Spark, if nothing is said) begins with what comes after
the first run, so that one takes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import pyarrow as pa
from confluent_kafka import KafkaException

from headwater.compute.declared.feeds import Feed
from headwater.pipelines.feeds import FeedFailed, Position
from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.offsets import Offsets
from headwater.storage.source import HEADERS, OFFSET, PARTITION, TIMESTAMP
from headwater.storage.sources.kafka import TIMESTAMP_TYPE, TOPIC, Kafka

GROUP: Final = "group.id"
EARLIEST, LATEST = -2, -1
"""Spark's numbers for the oldest message that a partition has, and for its end."""
_NAMES: Final = {"partition": PARTITION, "offset": OFFSET, "timestampType": TIMESTAMP_TYPE}
"""Columns that Spark calls otherwise."""
_MADE_AGAIN: Final = "was deleted and made again; take it from its beginning with --full-refresh"


class Topics:
    """The topics of one feed."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        options = feed.client
        group = options.pop(GROUP, None)
        include = [TIMESTAMP, TIMESTAMP_TYPE, *([HEADERS] if HEADERS in feed.schema.names else [])]
        self._topics = {
            topic: Kafka(options, topic, group=group, include=include, name=feed.name)
            for topic in feed.topics
        }

    def first(self) -> Position:
        """Return where to begin, as ``startingOffsets`` says."""
        said = self._feed.options.get("startingoffsets", "latest")
        end = self.now({})
        if said == "latest":
            return end
        begin = {part: 1 for part in end if _is_identity(part)}
        if said == "earliest":
            return begin
        offsets = msgspec.json.decode(said, type=dict[str, dict[int, int]])
        given = {f"{topic}/{part}": at for topic in offsets for part, at in offsets[topic].items()}
        for part in end.keys() - begin.keys() - given.keys():
            raise FeedFailed(self._feed, f"startingOffsets says nothing of {part}; add it")
        # A partition without a message is at 0, and no position names it.
        words = {part: {EARLIEST: 0, LATEST: end.get(part, 0)} for part in given}
        return begin | {part: words[part].get(at, at) for part, at in given.items()}

    def now(self, before: Position) -> Position:
        """Return how far the topics are."""
        found = dict(before)
        with self._told():
            for topic, source in self._topics.items():
                for part, at in source.probe().items():
                    place = f"{topic}/{part}"
                    if before and _is_identity(place) and place not in before:
                        raise FeedFailed(self._feed, f"topic {topic!r} {_MADE_AGAIN}")
                    found[place] = max(at, before.get(place, 0))
        return found

    def rows(self, before: Position, until: Position) -> pa.Table:
        """Return the messages between two positions."""
        tables = [self._feed.schema.empty_table()]
        with self._told():
            for topic, source in self._topics.items():
                read = source.read(_of(topic, before), _of(topic, until))
                tables += [self._as_spark_has_them(topic, each.table) for each in read]
        return pa.concat_tables(tables)

    def _as_spark_has_them(self, topic: str, messages: pa.Table) -> pa.Table:
        arrays = [
            pa.repeat(topic, messages.num_rows)
            if field.name == "topic"
            else messages.column(_NAMES.get(field.name, field.name)).cast(field.type)
            for field in self._feed.schema
        ]
        return pa.Table.from_arrays(arrays, schema=self._feed.schema)

    def close(self) -> None:
        """Close the clients."""
        for source in self._topics.values():
            source.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (TransientError, DefiniteError) as error:
            raise FeedFailed(self._feed, str(error)) from error
        except KafkaException as error:
            # Also of a setting that librdkafka does not know.
            raise FeedFailed(self._feed, error.args[0].str() or str(error)) from error


def _is_identity(part: str) -> bool:
    return part.partition("/")[2].startswith(TOPIC)


def _of(topic: str, position: Position) -> Offsets:
    """Return what a position says of one topic."""
    prefix = f"{topic}/"
    return Offsets(
        {part.removeprefix(prefix): at for part, at in position.items() if part.startswith(prefix)}
    )
