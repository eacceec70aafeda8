"""The query of a flow as a plan of ours, over relations and over what is outside.

A project's code names relations that may not be known yet when it runs: those of its own datasets,
which are made of other code. So a query is tried, and each time Spark does not know a name, whoever
knows (``provide``) makes it known (:meth:`Queries.add`, :meth:`Queries.define`) and the query is
tried again. The order in which datasets depend on each other comes out by itself.

A view that the project calls temporary is no relation: it is part of the queries that read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.base.errors import InvalidUsage
from headwater.compute.catalyst.compiler import Workspace, compile_frame
from headwater.compute.declared import outside
from headwater.compute.declared.elements import Flow, MistakeInProject, Where
from headwater.compute.declared.feeds import Feed
from headwater.compute.declared.guarded import guarded, stream_of
from headwater.compute.declared.outside import Outside
from headwater.compute.declared.project import Registry, authors_mistakes, import_file, inside, said
from headwater.compute.ir.plan import Plan
from headwater.compute.ir.refusal import NotUnderstood, Refused
from headwater.compute.query import compiled, output_schema
from headwater.compute.session import MEANING

ATTEMPTS_MAX: Final = 1_000
"""Names that one query may want to be told; more of them, and somebody does not listen."""

_UNKNOWN: Final = "TABLE_OR_VIEW_NOT_FOUND"
_PARTS: Final = re.compile(r"`((?:[^`]|``)*)`")
_FIXED: Final = "spark.sql.legacy."


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A flow's query: its plan, its columns, and what it reads outside, by the plan's names."""

    plan: Plan
    schema: pa.Schema
    outside: Mapping[str, Outside]
    feeds: Mapping[str, Feed] = field(default_factory=dict)


Provide = Callable[[str], None]
"""Makes a name known, or raises what is wrong with it."""


class Queries:
    """The queries of one project."""

    def __init__(
        self,
        session: Any,
        root: Path,
        named: Callable[[str], str],
        rewritten: Callable[[str], str],
    ) -> None:
        self._workspace = Workspace(session, {})
        self._compiling = session
        self._root = root
        self._named = named
        self._rewritten = rewritten
        self._schemas: dict[str, pa.Schema] = {}
        self._feeds: dict[str, Feed] = {}

    @property
    def session(self) -> Any:
        """The session of the project's code."""
        return self._workspace.session

    def configure(self, settings: Mapping[str, str], where: str) -> None:
        """Set what the project wants set; refuses what decides what a query means."""
        for key, value in settings.items():
            _set(self.session, key, value, where)

    def add(self, name: str, schema: pa.Schema) -> None:
        """Make a relation known, and what is inserted into it."""
        for each in (name, stream_of(name)):
            if each not in self._schemas:
                self._workspace.add(each, schema)
                self._schemas[each] = schema

    def _known(self, feed: Feed) -> str:
        """Make a stream from outside known; return its name."""
        if self._feeds.get(feed.name, feed) != feed:
            raise Refused(
                f"readStream.format({feed.format!r})",
                "the same stream is read elsewhere in the project with other options",
                hint="read it once, in a temporary view",
            )
        if feed.name not in self._feeds:
            self._workspace.add(feed.name, feed.schema)
            self._schemas[feed.name], self._feeds[feed.name] = feed.schema, feed
        return feed.name

    def define(self, name: str, frame: DataFrame) -> None:
        """Make a temporary view known: whoever reads it reads its query."""
        for each in (name, stream_of(name)):
            frame.createOrReplaceTempView(f"`{each}`")

    def import_file(self, file: Path, registry: Registry) -> None:
        """Run a Python file of the project, whose elements the registry is told."""
        with self._guarded():
            import_file(file, self._root, self.session, registry)

    def frame(self, flow: Flow, provide: Provide) -> DataFrame:
        """Return the DataFrame of a flow; ``provide`` makes names known that it asks for."""
        for _ in range(ATTEMPTS_MAX):
            try:
                with self._surrounded(flow):
                    return self._made(flow)
            except AnalysisException as error:
                unknown = unknown_name(error)
                if unknown is None:
                    with authors_mistakes(flow.where, self._root):
                        raise
            # Outside of the code's surroundings: what it needs has surroundings of its own.
            assert unknown is not None
            provide(unknown)
        raise MistakeInProject(
            flow.where,
            f"it asks for {unknown!r} again and again, although it was made known each time; do "
            f"not drop it, and do not change the current schema, in a query",
        )

    def _made(self, flow: Flow) -> DataFrame:
        try:
            made = self.session.sql(flow.query) if isinstance(flow.query, str) else flow.query()
        except AnalysisException as error:
            if unknown_name(error) is not None:
                raise
            with authors_mistakes(flow.where, self._root):
                raise
        except Exception:
            with authors_mistakes(flow.where, self._root):
                raise
        if not isinstance(made, DataFrame):
            raise MistakeInProject(
                flow.where,
                f"the query of {flow.name!r} returned a {type(made).__name__}; return a DataFrame",
            )
        return made

    @contextmanager
    def _surrounded(self, flow: Flow) -> Iterator[None]:
        settings = self.session.conf
        before = {key: settings.get(key, None) for key in flow.settings}
        with self._guarded():
            try:
                for key, value in flow.settings.items():
                    _set(self.session, key, value, str(flow.where))
                yield
            finally:
                for key, value in before.items():
                    if value is None:
                        settings.unset(key)
                    else:
                        settings.set(key, value)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        names = (self._named, self._rewritten, self._known)
        with self._placed(), guarded(self.session, *names):
            yield

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Have relative paths begin at the project, in Python and in the JVM."""
        context = self.session.sparkContext
        hadoop = context._jvm.org.apache.hadoop.fs
        files = hadoop.FileSystem.get(context._jsc.hadoopConfiguration())
        before = files.getWorkingDirectory()
        files.setWorkingDirectory(hadoop.Path(self._root.as_uri()))
        try:
            with inside(self._root):
                yield
        finally:
            files.setWorkingDirectory(before)

    def query(self, flow: Flow, frame: DataFrame) -> Query:
        """Return a flow's query as a plan; refuses what no view of it could keep."""
        relations = {name.lower(): name for name in self._schemas}
        try:
            leaves = outside.found_in(frame, relations, self._root)
            read = {each.name: each for _, each in leaves}
            plan = compile_frame(frame, relations, {leaf: each.name for leaf, each in leaves})
            known = {**self._schemas, **{name: outside_schema(each) for name, each in read.items()}}
            kept = compiled(self._compiling, plan, known).plan
        except (Refused, NotUnderstood, InvalidUsage) as error:
            raise MistakeInProject(flow.where, f"the query of {flow.name!r}: {error}") from error
        feeds = {name: self._feeds[name] for name in kept.relations if name in self._feeds}
        return Query(kept, output_schema(kept), read, feeds)

    def declared_schema(self, given: Any, where: Where) -> pa.Schema:
        """Return the columns that an output is declared with."""
        try:
            if not isinstance(given, StructType):
                given = StructType.fromDDL(str(given))
        except (PySparkException, ValueError) as error:
            raise MistakeInProject(
                where,
                f"the schema {given!r} cannot be read: {said(error)}; write it as columns of a "
                f"table, like 'id bigint, name string'",
            ) from error
        return to_arrow_schema(given)


def outside_schema(each: Outside) -> pa.Schema:
    """Return the columns of something outside; whether it has NULLs nobody knows."""
    fields = to_arrow_schema(each.frame.schema)
    return pa.schema([field.with_nullable(True) for field in fields])


def _set(session: Any, key: str, value: str, where: str) -> None:
    if key.startswith(_FIXED) or (key in MEANING and value.lower() != MEANING[key].lower()):
        fixed = f" (it is {MEANING[key]})" if key in MEANING else ""
        raise MistakeInProject(
            where,
            f"{key} decides what queries mean and cannot be set{fixed}; take it out and write what "
            f"is meant into the query",
        )
    try:
        session.conf.set(key, value)
    except AnalysisException as error:
        raise MistakeInProject(
            where,
            f"{key} cannot be set for one pipeline: {str(error.getMessage()).splitlines()[0]}; "
            f"take it out",
        ) from error


def unknown_name(error: AnalysisException) -> str | None:
    """Return the relation that Spark does not know, if that is what it says."""
    if error.getCondition() != _UNKNOWN:
        return None
    parts = _PARTS.findall(str((error.getMessageParameters() or {}).get("relationName", "")))
    return ".".join(part.replace("``", "`") for part in parts) or None
