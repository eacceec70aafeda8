"""What a view can be made of, and the plan it then has.

    str         Spark SQL over the names of the view's inputs
    function    PySpark code: given ``table(name)``, it returns a DataFrame
    DataFrame   made in a workspace of the controller
    Plan        compiled before, under this session's version and settings

Only the text of SQL is stored beside the plan: it can be compiled again under another Spark. Code
cannot, so a view of it lives as long as its plan holds.

Functions of the user's in Python are part of the plan (``catalyst/user_functions.py``). What a view
cannot keep is refused here, with the construct, the reason and the remedy: a collection has just
one column of a name; Spark cannot call a function everywhere it can be written. A filter on the
current time changes while no input does: a rule can keep it, a recomputation, which looks at the
times of inputs, cannot.

Kept by: this module. Relied on by: whoever installs a view.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headwater.base.errors import InvalidUsage
from headwater.collection.schema import Column, arrow_schema, columns
from headwater.collection.types import SqlType, as_text_form
from headwater.compute.catalyst import user_functions
from headwater.compute.catalyst.compiler import Workspace, compile_frame, ddl, relations_of
from headwater.compute.catalyst.render import execute
from headwater.compute.ir.node import Scan, TemporalFilter, walk
from headwater.compute.ir.plan import Plan, UserFunction
from headwater.compute.ir.refusal import NotUnderstood, Refused
from headwater.compute.select import spark_message
from headwater.compute.session import MEANING, new_session

Table = Callable[[str], Any]
Query: TypeAlias = str | Plan | DataFrame | Callable[[Table], DataFrame]
Schemas = Mapping[str, pa.Schema]


class Compiled(NamedTuple):
    """A query: its text where it has one, and the plan whose rows a view of it has."""

    sql: str
    plan: Plan


def compiled(
    session: Any, query: Query, inputs: Schemas, functions: Sequence[UserFunction] = ()
) -> Compiled:
    """Return the plan of a query over these relations; its order, if any, is no part of it.

    ``functions`` are those that a text meant when it was compiled before.
    """
    match query:
        case str():
            plan = _of_text(session, query, inputs, functions)
            return Compiled(query, _kept(session, plan, inputs))
        case Plan():
            query.require(session.version, MEANING)
            plan = query
        case DataFrame():
            plan = compile_frame(query, {name.lower(): name for name in inputs})
        case _ if callable(query):
            plan = _of_function(session, query, inputs)
        case _:
            raise InvalidUsage(
                f"a view is made of SQL, a DataFrame, a function or a plan, not of a "
                f"{type(query).__name__}"
            )
    _require_columns(plan, inputs)
    return Compiled("", _kept(session, plan, inputs))


def _of_text(
    session: Any, sql: str, inputs: Schemas, functions: Sequence[UserFunction] = ()
) -> Plan:
    known = {name.lower(): name for name in inputs}
    # Names of the query's own (WITH) are among those it mentions; the plan knows what it reads.
    mentioned = sorted(relations_of(session, sql) & set(known))
    workspace = Workspace(session, {known[n]: inputs[known[n]] for n in mentioned})
    user_functions.register(workspace.session, functions, by_name=True)
    try:
        return workspace.compile_sql(sql)
    except NotUnderstood as error:
        unknown = re.match(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view (\S+)", str(error))
        if unknown is None:
            raise
        raise NotUnderstood(
            f"[{error.condition}] there is no relation {unknown[1]}; create it before the view",
            condition=error.condition,
            sqlstate=error.sqlstate,
            position=error.position,
        ) from error


def _of_function(session: Any, function: Callable[[Table], DataFrame], inputs: Schemas) -> Plan:
    workspace = Workspace(session, {})
    known = {name.lower(): name for name in inputs}
    added: set[str] = set()

    def table(name: str) -> Any:
        found = known.get(name.lower())
        if found is None:
            raise InvalidUsage(f"there is no relation {name!r}; the view has {sorted(inputs)}")
        if found not in added:
            workspace.add(found, inputs[found])
            added.add(found)
        return workspace.table(found)

    frame = function(table)
    if not isinstance(frame, DataFrame):
        raise InvalidUsage(
            f"the function of a view returned a {type(frame).__name__}; return a DataFrame"
        )
    return workspace.compile_frame(frame)


def _require_columns(plan: Plan, inputs: Schemas) -> None:
    """Refuse a plan over other columns than the inputs have: nobody looked them up by name."""
    for scan in walk(plan.root):
        if not isinstance(scan, Scan):
            continue
        if scan.relation not in inputs:
            raise InvalidUsage(f"the query reads {scan.relation!r}; the view has {sorted(inputs)}")
        found = {column.name: column for column in columns(inputs[scan.relation])}
        for field in scan.fields:
            wanted, have = field.column, found.get(field.field)
            if have is None or not _fits(have, wanted.sql_type, wanted.nullable):
                raise InvalidUsage(
                    f"the query reads {scan.relation}.{field.field} {wanted.type}, but "
                    f"{scan.relation!r} has {_all(inputs[scan.relation])}; make it again over that"
                )


def _fits(column: Column, wanted: SqlType, nullable: bool) -> bool:
    """Whether a column's values are of this type, and NULL only where that is expected."""
    same = as_text_form(column.type) == as_text_form(wanted)
    return same and (nullable or not column.nullable)


def _kept(session: Any, plan: Plan, inputs: Schemas) -> Plan:
    """Return the plan of a view, without order; refuses what no view can be."""
    labels = [output.label.lower() for output in plan.outputs]
    for label in labels:
        if labels.count(label) > 1:
            raise Refused(
                f"two columns {label!r}", "a collection has just one", hint="give one an alias"
            )
    kept = msgspec.structs.replace(plan, root=plan.shown(), order=())
    if kept.functions:
        _require_planned(session, kept, inputs)
    return kept


def _require_planned(session: Any, plan: Plan, inputs: Schemas) -> None:
    """Refuse functions where Spark cannot call them (some joins): it says so when it plans."""
    own = new_session(session)
    # Not known to be empty: Spark would plan nothing at all.
    nothing = own.sparkContext.emptyRDD()
    empty = {n: own.createDataFrame(nothing, ddl(inputs[n])) for n in plan.relations}
    try:
        execute(own, plan, empty)._jdf.queryExecution().executedPlan()
    except PySparkException as error:
        names = ", ".join(f"{function.name}()" for function in plan.functions)
        raise Refused(
            names, f"Spark cannot call it there: {spark_message(error)}", hint="put it into SELECT"
        ) from error


def require_no_clock(plan: Plan, why: str) -> None:
    """Refuse a plan that asks for the current time, if it is to be recomputed for this reason."""
    if any(isinstance(node, TemporalFilter) for node in walk(plan.root)):
        raise Refused(
            "a filter on the current time",
            f"rows come and go as time passes, and there is no incremental rule for {why}",
            hint="filter when the view is read",
        )


def output_schema(plan: Plan) -> pa.Schema:
    """Return the columns of the view's output."""
    pairs = zip(plan.outputs, plan.columns, strict=True)
    return arrow_schema(Column(o.label, c.sql_type, c.nullable) for o, c in pairs)


def require_fit(name: str, found: pa.Schema, plan: Plan) -> None:
    """Refuse a collection that cannot hold what a view shows."""
    wanted = output_schema(plan)
    pairs = list(zip(columns(wanted), columns(found), strict=False))
    if len(found) == len(wanted) and all(
        shown.name == kept.name and _fits(shown, kept.type, kept.nullable) for shown, kept in pairs
    ):
        return
    raise InvalidUsage(
        f"collection {name!r} has {_all(found)} and the view shows {_all(wanted)}; give the "
        f"collection the view's columns"
    )


def _said(column: Column) -> str:
    return f"{column.name} {column.type.spark}{'' if column.nullable else ' NOT NULL'}"


def _all(schema: pa.Schema) -> str:
    return f"({', '.join(map(_said, columns(schema)))})"
