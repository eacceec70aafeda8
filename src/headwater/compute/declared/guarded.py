"""The session in which a project's code makes its DataFrames.

The relations that a query names are there as views without rows, so the code can be given their
columns; it cannot be given rows. While it runs, therefore

- an action (``count()``, ``collect()``, ``write``) is refused: it would see nothing, and take that
  for an answer;
- a name that is qualified by the pipeline's catalog and database means the name alone;
- ``spark.readStream.table(name)`` and ``STREAM name`` in SQL mean :func:`stream_of` that name,
  which is a relation of its own: what is inserted into ``name``;
- ``spark.readStream`` of a format that is read by position (``feeds.py``) is the relation of that
  stream;
- ``SparkSession.active()`` and ``SparkSession.builder.getOrCreate()`` are this session.

The methods are replaced on pyspark's classes, as pyspark's own pipelines do it, because the project
may get its session in several ways; they come back afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.streaming import DataStreamReader

from headwater.base.errors import InvalidUsage
from headwater.compute.declared.feeds import Feed, recording

STREAM: Final = "__stream__"

ACTIONS: Final = (
    "checkpoint", "collect", "count", "first", "foreach", "foreachPartition", "head", "isEmpty",
    "localCheckpoint", "show", "tail", "take", "toArrow", "toLocalIterator", "toPandas", "write",
    "writeStream", "writeTo",
)  # fmt: skip


_PROPERTIES: Final = ("write", "writeStream")


class ActionInQuery(InvalidUsage):
    """Code of a query that wants rows."""

    def __init__(self, action: str) -> None:
        super().__init__(
            f"DataFrame.{action} runs a job while the query is being defined, when no rows are "
            f"there; return the DataFrame, and express what depends on rows as part of it"
        )


def stream_of(name: str) -> str:
    """Return the name of the relation of what is inserted into ``name``.

    >>> streamed(stream_of("orders"))
    'orders'
    """
    return STREAM + name


def streamed(relation: str) -> str | None:
    """Return of which relation this one is the insertions; None if it is a relation itself."""
    return relation.removeprefix(STREAM) if relation.startswith(STREAM) else None


@contextmanager
def guarded(
    session: Any,
    named: Callable[[str], str],
    rewritten: Callable[[str], str],
    known: Callable[[Feed], str],
) -> Iterator[None]:
    """Have code run as the module says.

    ``named`` returns what a name of a relation means, ``rewritten`` the text of a query over names
    of ours, ``known`` the relation of a stream from outside.
    """
    read, table, sql = DataFrameReader.table, SparkSession.table, SparkSession.sql

    def read_table(self: Any, tableName: str) -> Any:  # noqa: N803 - as Spark calls it
        return read(self, _quoted(named(tableName)))

    def session_table(self: Any, tableName: str) -> Any:  # noqa: N803
        return table(self, _quoted(named(tableName)))

    def stream_table(_: Any, tableName: str) -> Any:  # noqa: N803
        return table(session, _quoted(stream_of(named(tableName))))

    def fed(feed: Feed) -> Any:
        return table(session, _quoted(known(feed)))

    def session_sql(self: Any, sqlQuery: str, *args: Any, **named_args: Any) -> Any:  # noqa: N803
        return sql(self, rewritten(sqlQuery), *args, **named_args)

    with (
        _replaced(DataFrameReader, {"table": read_table}),
        _replaced(SparkSession, {"table": session_table, "sql": session_sql}),
        _replaced(DataStreamReader, {"table": stream_table, **recording(DataStreamReader, fed)}),
        _replaced(DataFrame, {action: _refusal(action) for action in ACTIONS}),
        _active(session),
    ):
        yield


def _refusal(action: str) -> Any:
    def refuse(*_: object, **__: object) -> Any:
        raise ActionInQuery(action)

    return property(refuse) if action in _PROPERTIES else refuse


@contextmanager
def _replaced(owner: Any, methods: Mapping[str, Any]) -> Iterator[None]:
    before = {name: vars(owner)[name] for name in methods}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(owner, name, method)


@contextmanager
def _active(session: Any) -> Iterator[None]:
    sessions = session.sparkContext._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    kept = SparkSession._activeSession, SparkSession._instantiatedSession
    sessions.setActiveSession(session._jsparkSession)
    # The one of the process, too: it is what builder.getOrCreate() returns.
    SparkSession._activeSession = SparkSession._instantiatedSession = session
    try:
        yield
    finally:
        SparkSession._activeSession, SparkSession._instantiatedSession = kept
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
