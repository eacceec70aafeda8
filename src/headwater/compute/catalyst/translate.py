"""From the JSON that ``Exporter.java`` writes to a plan of ours.

Catalyst's operators are still visible in that JSON. Here a sort below a limit becomes a TopK, a
sort at the top the order of presentation, and any other sort nothing; a subquery that is left
becomes a join with its one row; the rest is in ``lowering.py``. Positions are positions only in
Catalyst: where an operator goes by position, the JSON says which columns stand there.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Final

import msgspec

from headwater.collection.types import UnsupportedType
from headwater.compute.catalyst import degenerate, lowering, user_functions
from headwater.compute.catalyst.lowering import Names, column_expression, passed
from headwater.compute.ir.expression import (
    AggregateCall,
    Column,
    Expression,
    Field,
    JoinKey,
    Named,
    SortKey,
    WindowCall,
)
from headwater.compute.ir.functions import SKETCH, UNSTABLE
from headwater.compute.ir.in_turn import in_turn
from headwater.compute.ir.node import (
    Aggregate,
    Bag,
    Distinct,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Project,
    Scan,
    TemporalFilter,
    TopK,
    Union,
    Values,
    Window,
    keep,
)
from headwater.compute.ir.plan import OutputColumn, Plan, UserFunction, version
from headwater.compute.ir.refusal import Position, Refused

Raw = dict[str, Any]

_OTHERWISE: Final = "write the query without it"

_KINDS: Final[dict[str, JoinKind]] = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
}


def translated(text: str, *, spark_version: str, settings: Mapping[str, str]) -> Plan:
    """Return the plan that the front end's answer describes; raises what it refused."""
    raw, functions = _with_functions(text)
    if refused := raw.get("refused"):
        position = Position(refused["line"], refused["column"]) if refused["line"] else None
        raise Refused(
            refused["construct"], refused["reason"], hint=refused["hint"], position=position
        )
    try:
        root, order = _Translation().presented(raw["root"])
        root = in_turn(root)
    except UnsupportedType as error:
        raise _not_stored("a value", error) from error
    plan = Plan(
        version=version(root, functions),
        spark_version=spark_version,
        settings=dict(settings),
        root=root,
        outputs=tuple(OutputColumn(output["label"], output["name"]) for output in raw["outputs"]),
        order=order,
        functions=functions,
    )
    return stored(plan)


def stored(plan: Plan) -> Plan:
    """Return a plan each of whose columns can be stored."""
    for output, column in zip(plan.outputs, plan.columns, strict=True):
        try:
            _ = column.sql_type
        except UnsupportedType as error:
            raise _not_stored(f"column {output.label!r}", error) from error
    return plan


def _not_stored(what: str, error: UnsupportedType) -> Refused:
    return Refused(f"{what} of type {error.what}", "it cannot be stored", hint=error.instead)


def _with_functions(text: str) -> tuple[Raw, tuple[UserFunction, ...]]:
    """Return the answer with the user's functions called as they are stored."""
    raw: Raw = msgspec.json.decode(text)
    if not raw.get("functions"):
        return raw, ()
    functions: dict[str, UserFunction] = {}
    for found in raw["functions"]:
        command = base64.b64decode(found["command"])
        function = user_functions.taken({**found, "command": command})
        functions[function.called] = function
        # The front end's name is one that nothing else in the answer can have.
        text = text.replace(found["called"], function.called)
    return msgspec.json.decode(text), tuple(functions[name] for name in sorted(functions))


def _expression(raw: Raw) -> Expression:
    return Expression(raw["text"], raw["type"], raw["nullable"], tuple(raw["columns"]))


def _column(raw: Raw) -> Column:
    return Column(raw["name"], raw["type"], raw["nullable"])


def _order(raw: list[Raw]) -> tuple[SortKey, ...]:
    return tuple(
        SortKey(_expression(key["expression"]), key["descending"], key["nulls_first"])
        for key in raw
    )


def _named(raw: list[Raw]) -> tuple[Named, ...]:
    """Return the outputs, each once: the same attribute twice is one column, shown twice."""
    found = {output["name"]: output for output in raw}
    return tuple(Named(name, _expression(o["expression"])) for name, o in found.items())


def _optional(raw: Raw | None) -> Expression | None:
    return None if raw is None else _expression(raw)


class _Translation:
    """One plan."""

    def __init__(self) -> None:
        self._names = Names()

    # ---- order and limits ------------------------------------------------------------------

    def presented(self, raw: Raw) -> tuple[Node, tuple[SortKey, ...]]:
        """Return a node, perhaps with columns that only its order needs, and that order."""
        match raw["node"]:
            case "sort" if raw["global"]:
                if raw["subqueries"]:
                    raise Refused("ORDER BY", "it has a subquery", hint="select it as a column")
                return self.node(raw["input"]), _order(raw["order"])
            case "project":
                source, order = self.presented(raw["input"])
                source = self._lifted(source, raw["subqueries"])
                outputs = {output.name: output for output in _named(raw["outputs"])}
                known = {column.name: column for column in source.columns}
                for key in order:
                    for name in key.expression.columns:
                        outputs.setdefault(name, Named(name, column_expression(known[name])))
                return Project(source, tuple(outputs.values())), order
            case "limit" | "offset":
                return self._limited(raw)
            case _:
                return self.node(raw), ()

    def _limited(self, raw: Raw) -> tuple[Node, tuple[SortKey, ...]]:
        chain: list[Raw] = []
        while raw["node"] in ("limit", "offset"):
            chain.append(raw)
            raw = raw["input"]
        source, order = self.presented(raw)
        skip, take = 0, None
        for step in reversed(chain):
            if step["node"] == "offset":
                skip += step["rows"]
                take = None if take is None else max(0, take - step["rows"])
            else:
                take = step["rows"] if take is None else min(take, step["rows"])
        if take == 0:  # Nothing is read for no rows, so nothing fails; Spark does not either.
            return Values(source.columns, ()), order
        return TopK(source, order, take, skip), order

    # ---- subqueries ------------------------------------------------------------------------

    def _lifted(self, source: Node, subqueries: list[Raw]) -> Node:
        """Return the source with each subquery's value as a column."""
        present = {column.name for column in source.columns}
        for subquery in subqueries:
            output = _column(subquery["column"])
            if output.name in present:
                continue
            present.add(output.name)
            inner = self.node(subquery["plan"])
            if subquery["kind"] == "exists":
                one = lowering.exists(self._names, inner, output)
            else:
                (name,) = subquery["columns"]
                value = next(column for column in inner.columns if column.name == name)
                one = lowering.at_most_one(self._names, inner, value, output)
            source = Join(source, one, "inner")
        return source

    # ---- operators -------------------------------------------------------------------------

    def node(self, raw: Raw) -> Node:
        """Return the operator, with just the columns that Catalyst gives it."""
        match raw["node"]:
            case "sort":
                return self.node(raw["input"])
            case "limit" | "offset":
                node, _ = self._limited(raw)
                return self._visible(node, raw)
            case "scan":
                fields = (Field(f["field"], _column(f["column"])) for f in raw["fields"])
                return Scan(raw["relation"], tuple(fields))
            case "values":
                columns = tuple(_column(column) for column in raw["columns"])
                return Values(columns, tuple(tuple(row) for row in raw["rows"]))
            case "range":
                return self._range(raw)
            case "filter":
                source = self.node(raw["input"])
                lifted = self._lifted(source, raw["subqueries"])
                return self._without(_filtered(lifted, raw), source)
            case "project":
                lifted = self._lifted(self.node(raw["input"]), raw["subqueries"])
                return Project(lifted, _named(raw["outputs"]))
            case "join":
                return self._join(raw)
            case "aggregate":
                return self._aggregate(raw)
            case "union":
                return self._union(raw)
            case "bag":
                left = self._positional(raw["left"])
                return Bag(raw["kind"], left, self._positional(raw["right"]))
            case "distinct":
                return Distinct(self.node(raw["input"]))
            case "window":
                return self._window(raw)
            case "generate":
                return self._generate(raw)
            case "expand":
                lifted = self._lifted(self.node(raw["input"]), raw["subqueries"])
                projections = tuple(tuple(map(_expression, row)) for row in raw["projections"])
                return Expand(lifted, projections, tuple(_column(c) for c in raw["columns"]))
            case other:
                raise Refused(other, "this operator is not supported", hint=_OTHERWISE)

    def _without(self, node: Node, source: Node) -> Node:
        """Return the node with the columns of ``source`` and no lifted ones."""
        return keep(node, (column.name for column in source.columns))

    def _visible(self, node: Node, raw: Raw) -> Node:
        """Return the node without the columns that only its order needed."""
        while raw["node"] in ("limit", "offset", "sort"):
            raw = raw["input"]
        if raw["node"] != "project":
            return node
        return keep(node, dict.fromkeys(output["name"] for output in raw["outputs"]))

    def _range(self, raw: Raw) -> Node:
        start, end, step = raw["start"], raw["end"], raw["step"]
        numbers = range(start, end, step)
        column = _column(raw["column"])
        if not numbers:
            return Values((column,), ())
        text = f"explode(sequence({numbers[0]}L, {numbers[-1]}L, {step}L))"
        return Generate(Values((), ((),)), Expression(text, column.type, False), (column,))

    def _join(self, raw: Raw) -> Node:
        source, right = self.node(raw["left"]), self.node(raw["right"])
        left = self._lifted(source, raw["subqueries"])
        keys = tuple(
            JoinKey(_expression(key["left"]), _expression(key["right"]), key["comparison"])
            for key in raw["keys"]
        )
        residual = _optional(raw.get("residual"))
        joined: Node
        match raw["kind"]:
            case "Existence":
                joined = lowering.existence_join(
                    left, right, keys, residual, _column(raw["exists"])
                )
            case "LeftSingle":
                joined = lowering.single_join(self._names, left, right, keys, residual)
            case kind if kind in _KINDS:
                joined = Join(left, right, _KINDS[kind], keys, residual)
            case other:
                raise Refused(f"a join of kind {other}", "it is not supported", hint=_OTHERWISE)
        lifted = {column.name for column in left.columns} - {c.name for c in source.columns}
        return keep(joined, (c.name for c in joined.columns if c.name not in lifted))

    def _positional(self, raw: Raw) -> Node:
        """Return the node with its columns in order; one that stands twice gets a second name."""
        node = self.node(raw["input"])
        names: list[str] = raw["columns"]
        known = {column.name: column for column in node.columns}
        if len(set(names)) == len(names):
            return keep(node, names)
        outputs: dict[str, Named] = {}
        for name in names:
            own = self._names.fresh("again") if name in outputs else name
            outputs[own] = Named(own, column_expression(known[name]))
        return Project(node, tuple(outputs.values()))

    def _union(self, raw: Raw) -> Node:
        branches = tuple(self._positional(branch) for branch in raw["branches"])
        columns = tuple(_column(column) for column in raw["columns"])
        if len({column.name for column in columns}) != len(columns):
            raise Refused("UNION", "its first input has a column twice", hint="give it an alias")
        return Union(branches, columns)

    def _aggregate(self, raw: Raw) -> Node:
        source = self._lifted(self.node(raw["input"]), raw["subqueries"])
        groups = _named(raw["groups"])
        known = {column.name for column in source.columns}
        computed = [group for group in groups if group.name not in known]
        if computed:
            source = Project(source, (*passed(source.columns), *computed))
        names = [group.name for group in groups]
        calls: list[AggregateCall] = []
        afterwards: list[Named] = []
        session = [group["name"] for group in raw["groups"] if group["session_window"]]
        if session:
            (name,) = session
            column = next(column for column in source.columns if column.name == name)
            names.remove(name)
            source, number, edges, struct = lowering.sessions(self._names, source, names, column)
            names.append(number)
            calls.extend(edges)
            afterwards.append(Named(name, struct))
        for call in raw["calls"]:
            if call["function"] == "pivot_first":
                picked, array = lowering.pivoted(
                    self._names,
                    _expression(call["pivot"]),
                    _expression(call["value"]),
                    call["values"],
                )
                calls.extend(picked)
                afterwards.append(Named(call["name"], array))
            else:
                calls.append(lowering.of_one_column(_call(call)))
        made, chosen = degenerate.decided(self._names, calls, source.columns)
        afterwards.extend(chosen.values())
        grouped: Node = Aggregate(source, tuple(names), made)
        if afterwards:
            grouped = Project(grouped, (*passed(grouped.columns), *afterwards))
        return _projected(self._lifted(grouped, raw["result_subqueries"]), _named(raw["results"]))

    def _window(self, raw: Raw) -> Node:
        source = self.node(raw["input"])
        lifted = self._lifted(source, raw["subqueries"])
        calls = [lowering.of_one_column(_window_call(call)) for call in raw["calls"]]
        partition = tuple(map(_expression, raw["partition"]))
        made, chosen = degenerate.decided(self._names, calls, lifted.columns)
        window = Window(lifted, partition, _order(raw["order"]), made)
        wanted = (*(c.name for c in source.columns), *(call.name for call in calls))
        if not chosen:
            return keep(window, wanted)
        known = {output.name: output for output in passed(window.columns)} | chosen
        return Project(window, tuple(known[name] for name in wanted))

    def _generate(self, raw: Raw) -> Node:
        lifted = self._lifted(self.node(raw["input"]), raw["subqueries"])
        outputs = tuple(_column(column) for column in raw["outputs"])
        generated = Generate(lifted, _expression(raw["generator"]), outputs, raw["outer"])
        return keep(generated, (*raw["kept"], *(column.name for column in outputs)))


def _filtered(node: Node, raw: Raw) -> Node:
    """Return the rows that a filter keeps; its bounds in time in as few operators as they need."""
    if condition := raw.get("condition"):
        node = Filter(node, _expression(condition))
    since = [_expression(b["expression"]) for b in raw["temporal"] if b["bound"] == "since"]
    until = [_expression(b["expression"]) for b in raw["temporal"] if b["bound"] == "until"]
    for pair in zip_longest(since, until):
        node = TemporalFilter(node, *pair)
    return node


def _stable(function: str) -> str:
    if function in UNSTABLE:
        raise Refused(f"{function}()", SKETCH, hint=UNSTABLE[function])
    return function


def _call(raw: Raw) -> AggregateCall:
    return AggregateCall(
        name=raw["name"],
        function=_stable(raw["function"]),
        text=raw["text"],
        type=raw["type"],
        nullable=raw["nullable"],
        columns=tuple(raw["columns"]),
        arguments=tuple(map(_expression, raw["arguments"])),
        distinct=raw["distinct"],
        ignore_nulls=raw["ignore_nulls"],
        filter=_optional(raw.get("filter")),
    )


def _window_call(raw: Raw) -> WindowCall:
    return WindowCall(
        name=raw["name"],
        function=_stable(raw["function"]),
        text=raw["text"],
        frame=raw["frame"],
        type=raw["type"],
        nullable=raw["nullable"],
        columns=tuple(raw["columns"]),
        arguments=tuple(map(_expression, raw["arguments"])),
        ignore_nulls=raw["ignore_nulls"],
        filter=_optional(raw.get("filter")),
    )


def _projected(node: Node, outputs: tuple[Named, ...]) -> Node:
    """Return the projection, or the node itself where it would change nothing."""
    if all(output.expression.text == output.name for output in outputs):
        return keep(node, (output.name for output in outputs))
    return Project(node, outputs)
