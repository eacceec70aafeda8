"""Expressions that fail on a row: as a function that is NULL there, and with what Spark said.

``headwater_try(x)`` is Catalyst's ``TryEval``: ``x``, or NULL where evaluating it raises a Java
*exception*: every error condition of Spark (arithmetic, casts, dates, ``raise_error``, bounds of
arrays, malformed JSON with FAILFAST), and exceptions of the libraries below it. Java *errors* are
not caught: out of memory, a stack overflow (``too_deep.py``). These fail the task, so the step; who
bisects a failed step finds the view. Unlike ``TryEval`` it forgets what failed: the
next row is computed as if it were the first (``java/Tried.java``).

:func:`failure_messages` says why rows failed. It evaluates the same text over the same rows, one by
one, in the driver and without a job, so what it says is a function of the row and the edge alone:
the part of Spark's message that quotes the text around the expression is left out, since that text
is ours, and so is its advice to change the session's settings.

Kept by: this module, ``java/Tried.java`` and ``java/Failures.java``. Relied on by:
``dataflow/passage.py``, which writes the function's name, and the runner of steps, which plans in a
:func:`passage_session`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headwater.base.errors import HeadwaterError
from headwater.compute.catalyst import postgres, reading
from headwater.compute.catalyst.bounded import bound
from headwater.compute.catalyst.jvm import java_object
from headwater.compute.catalyst.numerics import know
from headwater.compute.dataflow.edge import Lane
from headwater.compute.dataflow.lanes import LANE, Stream
from headwater.compute.dataflow.passage import (
    TRY,
    NumberedEdge,
    answers_of,
    called_layers,
    edge_sql,
)
from headwater.compute.session import new_session
from headwater.persist.spark import without_gaps

_CLASSES: Final = ("Tried", "Failures")
_LEAVE_OUT: Final = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in (
        "BooleanSimplification",
        "NullPropagation",
        "NullDownPropagation",
        "ReplaceNullWithFalseInPredicate",
        "SimplifyConditionals",
    )
)
"""Rules by which what may fail is not evaluated where what comes after it is known: never true of
the NULLs of an outer join, for example."""
OTHER: Final = "INTERNAL_ERROR"
"""The condition of an exception that has none."""
IN_PYTHON: Final = "PYTHON_EXCEPTION"
"""Spark's condition where a function in Python raised."""
NO_FUNCTIONS: Final[Mapping[str, str]] = MappingProxyType({})

_CONTEXT: Final = re.compile(r"\s*(?:SQLSTATE: \w+)?\s*(?:\n== .*)?\Z", re.DOTALL)
_CONDITION: Final = re.compile(r"\A\[[\w.]+\]\s*")
_ADVICE: Final = re.compile(
    r"\s*If (?:necessary,? set \S+ to \S+ to bypass this error"
    r"|you want to remove the duplicated keys, you can set [^.]*\.[^.]*\.[^.]*)\."
)


class Failed(NamedTuple):
    """What Spark says of a row: its error condition, and the message without it."""

    condition: str
    message: str


class DoesNotFail(HeadwaterError):
    """A row that failed in a task does not when it is evaluated again: a defect of somebody's."""


def register(session: Any) -> None:
    """Make ``headwater_try`` known to a session; doing it again does no harm."""
    java_object(session, _CLASSES, shipped=True).register(session._jsparkSession, TRY)


def passage_session(session: Any) -> Any:
    """Return a session of the same Spark in which passages are planned.

    Without generated code: it would be one method of all edges, soon longer than what Java compiles
    (8,000 bytes), then than what it takes at all (64 KB; tried again in every run). CPU without and
    with it: a million rows through 10 edges 1.0 and 1.8 s; a step of 3 stages, 1,000 rows and 10
    edges the same, with 80 edges of 30 columns 0.48 and 0.78 s.

    Not adaptive: there is nothing to adapt in one partition, and what is planned is what runs.
    """
    made = new_session(session)
    bound(made)
    know(made)
    reading.register(made)
    postgres.register(made)
    made.conf.set("spark.sql.codegen.wholeStage", "false")
    made.conf.set("spark.sql.adaptive.enabled", "false")
    made.conf.set("spark.sql.optimizer.excludedRules", _LEAVE_OUT)
    register(made)
    return made


def failure_messages(
    session: Any, numbered: NumberedEdge, rows: pa.Table, names: Mapping[str, str] = NO_FUNCTIONS
) -> list[Failed]:
    """Return for each of these rows of an edge's source why the edge fails on it.

    ``rows`` are updates, as in ``lanes.Failure.table()``; ``names`` what the view's query calls
    its functions in Python, which are called once more.
    """
    edge = numbered.edge
    (*_, scan) = edge.chain()
    stream_in = Stream({edge.source: Lane(scan.columns)})
    stream_out = Stream({edge.target: Lane(edge.node.columns)})
    lane = without_gaps(stream_in.pack(edge.source, rows))
    packed = session.createDataFrame(lane, stream_in.spark_schema())
    for layer in called_layers([numbered], stream_in):
        packed = packed.selectExpr(*layer)
    nothing = session.createDataFrame([], packed.schema)

    def said(text: str) -> list[Any]:
        # As in a passage it is in a branch of a CASE: nothing of it is evaluated before.
        of_lane = nothing.selectExpr(f"CASE WHEN {LANE} = {edge.source} THEN {text} END")
        found = java_object(session, _CLASSES, shipped=True).messages(of_lane._jdf, packed._jdf)
        return list(found)

    found: list[Failed | None] = [None] * rows.num_rows
    for call in answers_of(edge, stream_in).calls:
        found = _first(found, [_failed(one) for one in said(call.asking)])
        found = _first(found, [_raised(one, names[call.function]) for one in said(call.raising)])
    found = _first(found, [_failed(one) for one in said(edge_sql(edge, stream_in, stream_out))])
    failed = [one for one in found if one is not None]
    if len(failed) < rows.num_rows:
        raise DoesNotFail("a row that failed in a step does not fail when evaluated alone")
    return failed


def _first(known: list[Failed | None], then: list[Failed | None]) -> list[Failed | None]:
    return [one or other for one, other in zip(known, then, strict=True)]


def _raised(said: Any, name: str) -> Failed | None:
    failed = _failed(said)
    return failed and Failed(IN_PYTHON, f"{failed.message} (in {name}())")


def _failed(said: Any) -> Failed | None:
    if said is None:
        return None
    condition, kind, message = said
    if not condition:
        return Failed(OTHER, f"{kind}: {message}")
    return Failed(condition, plain(message))


def plain(message: str) -> str:
    """Return Spark's message without condition, state, the text around it and its advice.

    >>> plain("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\\n== SQL ==\\n1/0\\n")
    'Division by zero.'
    """
    message = _CONDITION.sub("", _CONTEXT.sub("", message, count=1))
    return _ADVICE.sub("", message)
