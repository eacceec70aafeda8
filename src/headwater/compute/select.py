"""Ad-hoc queries: Spark SQL over collections, all of them at one time.

A query is compiled to the plan a view of it would have and that plan is run, so that an ad-hoc
answer is the one a view shows: ties, ``first``, floating sums and their like are what the plan
fixes. The current time, where a plan asks for it, is ``as_of``. What a view cannot be (a random
number, a sketch) is run as the text says it.

Each query has a Spark session of its own (they share the context, not the names), in which every
relation it mentions is the collection's rows at ``as_of``. The answer is definite, because every
snapshot is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import sqlglot
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.base.errors import HeadwaterError
from headwater.compute import too_deep
from headwater.compute.answer import NoSpaceForResult, ResultTooLarge, is_small, rows_of
from headwater.compute.catalyst import blame
from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.catalyst.render import execute
from headwater.compute.catalyst.user_functions import has_functions, session_of
from headwater.compute.columns.frame import columns_frame
from headwater.compute.columns.settled import SettledRuns
from headwater.compute.ir.node import Scan, walk
from headwater.compute.ir.plan import Plan
from headwater.compute.ir.refusal import NotUnderstood, Position, Refused
from headwater.compute.known_plans import known_or
from headwater.compute.step import job_group, last_line
from headwater.persist import evolution
from headwater.persist.client import Client
from headwater.persist.decision import collection_named
from headwater.persist.read import Snapshot
from headwater.persist.spark import arrow_frame, rows_frame
from headwater.persist.spark_end import SparkEnded, or_ended
from headwater.persist.state import State

TOO_MUCH: Final = (
    "the query brings more together in Spark's driver than its memory allows; select or join less, "
    "or give Spark more with --spark-memory-mib"
)
SYSTEM_ERROR: Final = "58000"


class QueryFailed(HeadwaterError):
    """Spark refused a query, or could not finish it."""

    def __init__(
        self,
        message: str,
        condition: str | None,
        sqlstate: str | None,
        position: Position | None = None,
    ) -> None:
        super().__init__(message)
        self.condition, self.sqlstate, self.position = condition, sqlstate, position


def select(
    client: Client,
    session: Any,
    sql: str,
    as_of: int,
    relations: Mapping[str, str],
    local: Mapping[str, pa.Table] = MappingProxyType({}),
    group: str = "",
    settled: SettledRuns | None = None,
    tentative: Mapping[str, pa.Table] = MappingProxyType({}),
) -> pa.Table:
    """Return the rows of the query, in its order. ``local`` are relations besides collections.

    ``group`` names its jobs, for :func:`cancel`; ``settled`` is what queries before have settled;
    ``tentative`` are updates on top of collections, by their names, that are in no log yet.
    """
    with or_ended(session):
        own = session_of(session)
        with job_group(own, group, "query") if group else nullcontext():
            read = _Read(client, as_of, relations, tentative)
            return _selected(read, own, sql, local, settled)


@dataclass(frozen=True, slots=True)
class _Read:
    """What is read, and when."""

    client: Client
    as_of: int
    relations: Mapping[str, str]
    tentative: Mapping[str, pa.Table]

    def snapshot(self, name: str) -> Snapshot:
        """Return a relation, with what is tentative of it."""
        collection = self.relations[name]
        found = self.client.reader(collection).snapshot(self.as_of)
        more = self.tentative.get(collection)
        return found if more is None else found.with_updates(more)


def cancel(session: Any, group: str) -> None:
    """End the jobs of a group that run now."""
    # With the JVM they have ended, too.
    with suppress(SparkEnded), or_ended(session):
        session.sparkContext.cancelJobGroup(group)


def _selected(
    read: _Read,
    own: Any,
    sql: str,
    local: Mapping[str, pa.Table],
    settled: SettledRuns | None,
) -> pa.Table:
    # Kept until the query has run: they keep what it reads from being collected.
    snapshots: dict[str, Snapshot] = {}
    with _failures(own):
        relations = read.relations
        known = mentioned(sql, relations)
        named = {name: relations[name] for name in known}
        plan = _planned(read.client, own, sql, named, local)
        for name in known if plan is None else set(plan.relations) - set(local):
            snapshots[name] = read.snapshot(name)
        fields = {} if plan is None else _fields(plan)
        frames = {n: _rows(own, each, fields.get(n), settled) for n, each in snapshots.items()}
        frames.update((name, arrow_frame(own, rows)) for name, rows in local.items())
        if plan is not None:
            small = is_small(plan, snapshots, local)
            return rows_of(own, execute(own, plan, frames, now_ms=read.as_of), small=small)
        for name, frame in frames.items():
            frame.createOrReplaceTempView(quoted(name))
        return rows_of(own, own.sql(sql), small=False)


def _rows(
    session: Any, snapshot: Snapshot, fields: set[str] | None, settled: SettledRuns | None
) -> Any:
    found = columns_frame(session, snapshot, settled)
    return rows_frame(session, snapshot, fields) if found is None else found


def _fields(plan: Plan) -> dict[str, set[str]]:
    """Return the fields that a plan reads, by relation: its scans have no others."""
    found: dict[str, set[str]] = {}
    for node in walk(plan.root):
        if isinstance(node, Scan):
            found.setdefault(node.relation, set()).update(field.field for field in node.fields)
    return found


def _planned(
    client: Client,
    session: Any,
    sql: str,
    relations: Mapping[str, str],
    local: Mapping[str, pa.Table],
) -> Plan | None:
    """Return the plan of a query; ``None`` if it has none, as what is not deterministic."""
    state = client.core.state
    schemas = {
        name: evolution.from_bytes(collection_named(state, collection).schemas[-1])
        for name, collection in relations.items()
    }
    schemas.update((name, rows.schema) for name, rows in local.items())

    def compiled() -> Plan:
        return Workspace(session, schemas, in_session=True).compile_sql(sql)

    try:
        return compiled() if has_functions(session) else known_or(sql, schemas, compiled)
    except Refused:
        return None
    except NotUnderstood as error:
        raise QueryFailed(
            str(error), error.condition or None, error.sqlstate or None, error.position
        ) from error


def describe(state: State, session: Any, sql: str, relations: Mapping[str, str]) -> pa.Schema:
    """Return the columns the query would have over collections of a state; starts no job."""
    with or_ended(session), _failures(session):
        own = session_of(session)
        for name in mentioned(sql, relations):
            collection = collection_named(state, relations[name])
            empty = evolution.from_bytes(collection.schemas[-1]).empty_table()
            arrow_frame(own, empty).createOrReplaceTempView(quoted(name))
        return to_arrow_schema(own.sql(sql).schema, timezone="UTC")


def mentioned(sql: str, relations: Mapping[str, str]) -> list[str]:
    """Return the known relations that a query mentions; it may mean something else by a name."""
    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
    except SqlglotError:
        # Spark may well read what sqlglot cannot; its own message is the one to show otherwise.
        text = sql.lower()
        return [name for name in relations if name.lower() in text]
    names = {table.name.lower() for table in tree.find_all(exp.Table)}
    return [name for name in relations if name.lower() in names]


def quoted(name: str) -> str:
    """Return a name as Spark's parser takes it, whatever its characters."""
    return f"`{name.replace('`', '``')}`"


_CONDITION: Final = re.compile(r"SparkException: \[(?P<condition>[A-Z_.]+)\] (?P<message>.*)")
"""A condition of Spark's that PySpark does not know for one."""


@contextmanager
def _failures(session: Any) -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        if error.getCondition() is None:
            _raise_of_values(session, error)
        raise QueryFailed(
            spark_message(error), error.getCondition(), error.getSqlState()
        ) from error
    except Py4JJavaError as error:
        # A job that failed for a reason that is no condition of Spark's.
        if "spark.driver.maxResultSize" in str(error):
            raise QueryFailed(
                TOO_MUCH, ResultTooLarge.condition, ResultTooLarge.sqlstate
            ) from error
        if (known := condition_of(error)) is not None:
            raise QueryFailed(known[1], known[0], SYSTEM_ERROR) from error
        if too_deep.is_too_deep(error):
            raise QueryFailed(too_deep.TOLD, too_deep.CONDITION, too_deep.SQLSTATE) from error
        _raise_of_values(session, error)
        raise QueryFailed(last_line(error), None, SYSTEM_ERROR) from error
    except (ResultTooLarge, NoSpaceForResult) as error:
        raise QueryFailed(str(error), error.condition, error.sqlstate) from error


def _raise_of_values(session: Any, error: Exception) -> None:
    """Tell a failure of an expression as what it is; PySpark does not know all for conditions."""
    found = blame.of_values(session, error)
    if found is not None:
        raise QueryFailed(found.message, found.condition, found.sqlstate) from error


def condition_of(error: Py4JJavaError) -> tuple[str, str] | None:
    """Return the condition of a failure that PySpark does not know for one, and what it says."""
    known = _CONDITION.search(last_line(error))
    return None if known is None else (known["condition"], known["message"])


def spark_message(error: PySparkException) -> str:
    """Return what Spark says, without the excerpt of the query."""
    return str(error.getMessage() or error).split("\n== SQL", 1)[0].strip()
