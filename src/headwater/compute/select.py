"""Ad-hoc queries: Spark SQL over collections, all of them at one time.

Each query has a Spark session of its own (they share the context, not the names), in which every
relation it mentions is a temporary view of the collection's rows at ``as_of``. The answer is
definite, because every snapshot is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.compute.frontend import relations_of
from headwater.persist import evolution
from headwater.persist.client import Client
from headwater.persist.decision import collection_named
from headwater.persist.read import Snapshot
from headwater.persist.spark import arrow_frame, rows_frame


class QueryFailed(HeadwaterError):
    """Spark refused a query, or could not finish it."""

    def __init__(self, message: str, condition: str | None, sqlstate: str | None) -> None:
        super().__init__(message)
        self.condition, self.sqlstate = condition, sqlstate


def select(
    client: Client, session: Any, sql: str, as_of: int, relations: Mapping[str, str]
) -> pa.Table:
    """Return the rows of the query."""
    own = session.newSession()
    # Kept until the query has run: they keep what it reads from being collected.
    snapshots: list[Snapshot] = []
    with _failures():
        for name in mentioned(sql, relations):
            snapshot = client.reader(relations[name]).snapshot(as_of)
            snapshots.append(snapshot)
            rows_frame(own, snapshot).createOrReplaceTempView(quoted(name))
        return own.sql(sql).toArrow()


def describe(client: Client, session: Any, sql: str, relations: Mapping[str, str]) -> pa.Schema:
    """Return the columns the query would have; starts no job."""
    own = session.newSession()
    with _failures():
        for name in mentioned(sql, relations):
            collection = collection_named(client.core.state, relations[name])
            empty = evolution.from_bytes(collection.schemas[-1]).empty_table()
            arrow_frame(own, empty).createOrReplaceTempView(quoted(name))
        return to_arrow_schema(own.sql(sql).schema, timezone="UTC")


def mentioned(sql: str, relations: Mapping[str, str]) -> list[str]:
    """Return the known relations that a query mentions; it may mean something else by a name."""
    try:
        names = relations_of(sql)
    except InvalidUsage:
        # Spark may well read what sqlglot cannot; its own message is the one to show otherwise.
        text = sql.lower()
        return [name for name in relations if name.lower() in text]
    return [name for name in relations if name.lower() in names]


def quoted(name: str) -> str:
    """Return a name as Spark's parser takes it, whatever its characters."""
    return f"`{name.replace('`', '``')}`"


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        raise QueryFailed(
            spark_message(error), error.getCondition(), error.getSqlState()
        ) from error


def spark_message(error: PySparkException) -> str:
    """Return what Spark says, without the excerpt of the query."""
    return str(error.getMessage() or error).split("\n== SQL", 1)[0].strip()
