"""The door of the front end: a SQL text or a DataFrame in, a plan out. No job is started.

A :class:`Workspace` is a Spark session of its own with the names of some relations in it, all
empty: analysis needs their columns only. A query over other names is not understood. DataFrame code
runs in the workspace's session, takes relations by ``table(name)`` and hands in the frame it made:

    workspace = Workspace(session, {"orders": schema})
    plan = workspace.compile_sql("SELECT …")
    plan = workspace.compile_frame(workspace.table("orders").groupBy("k").count())

Functions that the user registered in the given session are known in the workspace's too
(``user_functions.py``). The session must have the meaning of ``compute/session.py``: what is stored
was checked under it.

Kept by: this module. Relied on by: views, ad-hoc queries; nobody else asks Catalyst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError

from headwater.collection.schema import columns
from headwater.compute.catalyst.jvm import front_end
from headwater.compute.catalyst.translate import stored, translated
from headwater.compute.catalyst.user_functions import session_of
from headwater.compute.ir.expression import Column, Field
from headwater.compute.ir.functions import FLOATING, ORDERED, POSITIONAL, UNSTABLE
from headwater.compute.ir.node import Scan, Text
from headwater.compute.ir.plan import VERSION, OutputColumn, Plan
from headwater.compute.ir.refusal import NotUnderstood, OtherMeaning, Position, Refused
from headwater.compute.session import MEANING

RECURSIVE: Final = "WITH RECURSIVE"

_TOLD: Final = re.compile(
    r"\[(?P<condition>\w+)\] (?P<message>.*?)\.? SQLSTATE: (?P<state>\w+)", re.DOTALL
)


_LIMIT_LIKE: Final = re.compile(
    r'The limit like expression "(.*?)" is invalid\. The (limit|offset) expression must', re.DOTALL
)
"""What Spark says of a LIMIT or an OFFSET that cannot be."""


class Workspace:
    """Names to compile over."""

    def __init__(
        self, session: Any, relations: Mapping[str, pa.Schema], *, in_session: bool = False
    ) -> None:
        """``in_session``: its session is the given one, which is there for this query alone."""
        self.session = session if in_session else session_of(session)
        _require_meaning(self.session)
        self._relations: dict[str, str] = {}
        for name, schema in relations.items():
            self.add(name, schema)

    def add(self, name: str, schema: pa.Schema) -> None:
        """Add a relation, of a name that differs from all others by more than case."""
        assert name.lower() not in self._relations, "names differ by more than case"
        self._relations[name.lower()] = name
        front_end(self.session).relation(self.session._jsparkSession, _quoted(name), ddl(schema))

    def table(self, name: str) -> Any:
        """Return a relation as a DataFrame without rows."""
        return self.session.table(_quoted(name))

    def compile_sql(self, text: str) -> Plan:
        """Return the plan of a query in Spark SQL."""
        with _spark_errors(text):
            _require_query(self.session, text)
            frame = self.session.sql(text)
        try:
            return self.compile_frame(frame)
        except Refused as refused:
            if refused.construct != RECURSIVE:
                raise
            return self._as_text(text, frame)

    def _as_text(self, text: str, frame: Any) -> Plan:
        """Return the plan that is the text itself; refuses what its answer may depend on."""
        called = front_end(self.session).userFunction(frame._jdf)
        if called is not None:
            raise Refused(
                f"{RECURSIVE} with {called}()",
                "a recursive query is run as its text says, and the function's name is not stored",
                hint="call it in a view over the recursive one",
            )
        ordered = [*ORDERED, *POSITIONAL, *UNSTABLE]
        told = front_end(self.session).openAsText(frame._jdf, ordered, [*FLOATING])
        if told is not None:
            construct, reason, hint, line, column = told
            position = Position(line, column) if line else None
            raise Refused(construct, reason, hint=hint, position=position)
        wanted = sorted(relations_of(self.session, text) & set(self._relations))
        scans = tuple(self._scan(self._relations[name]) for name in wanted)
        columns = tuple(
            Column(f"out_{number}", field.dataType.simpleString(), True)
            for number, field in enumerate(frame.schema)
        )
        outputs = tuple(
            OutputColumn(field.name, column.name)
            for field, column in zip(frame.schema, columns, strict=True)
        )
        root = Text(text, scans, columns)
        return stored(Plan(VERSION, self.session.version, dict(MEANING), root, outputs))

    def _scan(self, name: str) -> Scan:
        fields = tuple(
            Field(field.name, Column(f"in_{number}", field.dataType.simpleString(), True))
            for number, field in enumerate(self.table(name).schema)
        )
        return Scan(name, fields)

    def compile_frame(self, frame: Any) -> Plan:
        """Return the plan of a DataFrame made in this workspace."""
        return compile_frame(frame, self._relations)


def compile_frame(
    frame: Any, relations: Mapping[str, str], outside: Mapping[Any, str] | None = None
) -> Plan:
    """Return the plan of a DataFrame; ``relations`` are names it may read, by their lower case.

    ``outside`` are leaves of Catalyst's that read something else, and names that stand for them.
    """
    session = frame.sparkSession
    _require_meaning(session)
    with _spark_errors(""):
        answer = front_end(session).export(frame._jdf, dict(relations), dict(outside or {}))
    return translated(answer, spark_version=session.version, settings=MEANING)


def relations_of(session: Any, text: str) -> frozenset[str]:
    """Return the names that a query may mean as relations, in lower case."""
    with _spark_errors(text):
        return frozenset(front_end(session).relations(session._jsparkSession, text))


def _require_query(session: Any, text: str) -> None:
    """Refuse a command: Spark runs those as soon as it is asked what they are."""
    command = front_end(session).command(session._jsparkSession, text)
    if command is not None:
        raise NotUnderstood(
            f"{command} is a command, not a query; write a SELECT",
            sqlstate="42601",
            position=Position(1, 1),
        )


def ddl(schema: pa.Schema) -> str:
    """Return the columns of a collection as Spark's DDL.

    >>> ddl(pa.schema([pa.field("a b", pa.int32(), nullable=False), pa.field("c", pa.string())]))
    '`a b` int NOT NULL, `c` string'
    """
    return ", ".join(
        f"{_quoted(column.name)} {column.type.spark}{'' if column.nullable else ' NOT NULL'}"
        for column in columns(schema)
    )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _require_meaning(session: Any) -> None:
    key = front_end(session).otherSetting(session._jsparkSession, dict(MEANING))
    if key is not None:
        raise OtherMeaning(
            f"{key} is {session.conf.get(key)!r} in this session; "
            f"queries are compiled under {MEANING[key]!r}"
        )


@contextmanager
def _spark_errors(text: str) -> Iterator[None]:
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        message = str(error.getMessage() or error).split("\n== SQL", 1)[0].strip()
        message = _LIMIT_LIKE.sub(lambda found: f"{found[2].upper()} {found[1]} must", message)
        raise NotUnderstood(
            message,
            condition=error.getCondition() or "",
            sqlstate=error.getSqlState() or "",
            position=_position(error, text),
        ) from error
    except Py4JJavaError as error:
        # What PySpark takes for a failure of Spark's, because Spark calls it an internal error.
        found = _TOLD.match(str(error.java_exception.getMessage()))
        if found is None:
            raise
        raise NotUnderstood(
            found["message"], condition=found["condition"], sqlstate=found["state"]
        ) from error


def _position(error: Any, text: str) -> Position | None:
    if found := re.search(r"\(line (\d+), pos (\d+)\)", str(error)):
        return Position(int(found[1]), int(found[2]) + 1)
    starts = [context.startIndex() for context in error.getQueryContext() if _is_sql(context)]
    if not starts or not 0 <= starts[0] < len(text):
        return None
    before = text[: starts[0]]
    return Position(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _is_sql(context: Any) -> bool:
    return str(context.contextType()) in ("SQL", "QueryContextType.SQL")
