"""A plan as one Spark SQL text: what runs a query as a whole.

Ad-hoc queries, hydration and recomputation run this text; maintained views are held against it. It
is public SQL only, one ``WITH`` entry per operator and each equal subplan once, so that it can be
read, and shipped to any Spark. Where SQL leaves an order open the text fixes it (``ordered.py``);
the rest is the plan's own texts.

    rows of execute(plan, inputs)  ==  rows of the query the plan was compiled from, on these inputs

A row of no columns cannot be said in SQL; it is carried by a column :data:`NOTHING` that nobody
reads.

Lazy: :func:`execute` starts no job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from headwater.compute.catalyst import ordered, user_functions
from headwater.compute.catalyst.query_session import ask_as_planned
from headwater.compute.catalyst.select import NOTHING, select
from headwater.compute.catalyst.witness import (
    Pairs,
    Side,
    may_fail_at_joins,
    never,
    witnesses,
)
from headwater.compute.ir.expression import Column
from headwater.compute.ir.node import (
    Aggregate,
    Bag,
    Distinct,
    Expand,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    TemporalFilter,
    Text,
    TopK,
    Union,
    Values,
    Window,
)
from headwater.compute.ir.plan import Plan
from headwater.compute.ir.refusal import InvalidPlan
from headwater.compute.session import MEANING

_JOINS: Final = {
    "inner": "JOIN",
    "left": "LEFT OUTER JOIN",
    "right": "RIGHT OUTER JOIN",
    "full": "FULL OUTER JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
}

_views: Final = count(1)


def execute(
    session: Any, plan: Plan, inputs: Mapping[str, Any], *, now_ms: int | None = None
) -> Any:
    """Return the query's rows on these inputs, in its order and under its labels.

    ``inputs`` are DataFrames by the names of the plan's relations. ``now_ms`` is the time at which
    they are read; only a plan with a temporal filter asks for it.
    """
    plan.require(session.version, MEANING)
    views: dict[str, str] = {}
    try:
        for relation in plan.relations:
            views[relation] = f"headwater_input_{next(_views)}"
            inputs[relation].createOrReplaceTempView(views[relation])
        text = rendered(plan, views, now_ms=now_ms, witnessed=True)
        if may_fail_at_joins(plan.root):
            ask_as_planned(session)
        ordered.register(session, text)
        user_functions.register(session, plan.functions)
        return session.sql(text)
    finally:
        for view in views.values():
            session.catalog.dropTempView(view)


def rendered(
    plan: Plan,
    relations: Mapping[str, str],
    *,
    now_ms: int | None = None,
    witnessed: bool = False,
) -> str:
    """Return the text; ``relations`` says what the session calls the plan's relations.

    ``witnessed``: it fails on all rows that the plan fails on (``witness.py``).
    """
    rendering = _Rendering(relations, now_ms)
    root = rendering.name(plan.root)
    if witnessed:
        root = rendering.witnessed(plan.root)
    text = select([f"{output.name} AS {_quoted(output.label)}" for output in plan.outputs], root)
    if plan.order:
        text += f" ORDER BY {ordered.total(plan.order, plan.root.columns)}"
    entries = ",\n".join(f"{name} AS ({text})" for name, text in rendering.entries.items())
    return f"WITH {entries}\n{text}"


@dataclass
class _Rendering:
    relations: Mapping[str, str]
    now_ms: int | None
    entries: dict[str, str] = field(default_factory=dict)
    names: dict[Node, str] = field(default_factory=dict)

    def name(self, node: Node) -> str:
        """Return the name of the entry that yields the node's rows."""
        known = self.names.get(node)
        if known is None:
            text = self.text(node)
            known = f"op_{len(self.entries) + 1}"
            self.names[node], self.entries[known] = known, text
        return known

    def witnessed(self, root: Node) -> str:
        """Return the name of the entry that yields the root's rows, and fails where it does."""
        name = self.name(root)
        found = witnesses(root)
        if not found:
            return name
        none = [f"CAST(NULL AS {c.type}) AS {c.name}" for c in root.columns]
        asked = [f"{select(none, self._asked(one))}" for one in found]
        self.entries["witnessed"] = " UNION ALL ".join([self._all(root), *asked])
        return "witnessed"

    def _asked(self, witness: Side | Pairs) -> str:
        match witness:
            case Side(node, keys):
                return f"{self.name(node)} WHERE {never(node.columns, keys)}"
            case Pairs(join, residual):
                condition = " AND ".join(key.text for key in join.keys) or "true"
                pairs = f"{self.name(join.left)} JOIN {self.name(join.right)} ON {condition}"
                return f"{pairs} WHERE {never((), (residual,))}"

    def text(self, node: Node) -> str:
        """Return the SELECT of one operator."""
        match node:
            case Scan():
                fields = [f"{_quoted(f.field)} AS {f.column.name}" for f in node.fields]
                return select(fields, _quoted(self.relations[node.relation]))
            case Values():
                return _values(node)
            case Filter():
                return f"{self._all(node.input)} WHERE {node.condition.text}"
            case TemporalFilter():
                return f"{self._all(node.input)} WHERE {self._temporal(node)}"
            case Project():
                outputs = [f"{o.expression.text} AS {o.name}" for o in node.outputs]
                return select(outputs, self.name(node.input))
            case Join():
                return self._join(node)
            case Aggregate():
                return ordered.aggregate(node, self.name(node.input))
            case Union():
                return self._union(node)
            case Bag():
                word = "INTERSECT ALL" if node.kind == "intersect" else "EXCEPT ALL"
                return f"{self._all(node.left)} {word} {self._all(node.right)}"
            case Distinct():
                return self._all(node.input).replace("SELECT", "SELECT DISTINCT", 1)
            case Window():
                return ordered.window(node, self.name(node.input))
            case TopK():
                return self._top(node)
            case Generate():
                return self._generate(node)
            case Expand():
                return self._expand(node)
            case Text():
                return self._text(node)

    def _all(self, node: Node) -> str:
        return select(_names(node.columns), self.name(node))

    def _temporal(self, node: TemporalFilter) -> str:
        if self.now_ms is None:
            raise InvalidPlan("a temporal filter is run without the time at which it is read")
        now = f"timestamp_millis({self.now_ms}L)"
        bounds: list[str] = []
        if node.since is not None:
            bounds.append(f"({node.since.text} <= {now})")
        if node.until is not None:
            bounds.append(f"({now} < {node.until.text})")
        return " AND ".join(bounds)

    def _join(self, node: Join) -> str:
        conditions = [key.text for key in node.keys]
        if node.residual is not None:
            conditions.append(node.residual.text)
        condition = " AND ".join(conditions) or "true"
        left, right = self.name(node.left), self.name(node.right)
        source = f"{left} {_JOINS[node.kind]} {right} ON {condition}"
        return select(_names(node.columns), source)

    def _union(self, node: Union) -> str:
        branches: list[str] = []
        for branch in node.branches:
            pairs = zip(branch.columns, node.columns, strict=True)
            outputs = [f"{own.name} AS {column.name}" for own, column in pairs]
            branches.append(select(outputs, self.name(branch)))
        return " UNION ALL ".join(branches)

    def _top(self, node: TopK) -> str:
        text = self._all(node.input)
        total = ordered.total(node.order, node.input.columns)
        if total:
            text += f" ORDER BY {total}"
        if node.limit is not None:
            text += f" LIMIT {node.limit}"
        return text + (f" OFFSET {node.offset}" if node.offset else "")

    def _generate(self, node: Generate) -> str:
        outer = "OUTER " if node.outer else ""
        made = ", ".join(column.name for column in node.outputs)
        if node.is_in_from_alone:
            joined, condition = (" LEFT JOIN", " ON true") if node.outer else (",", "")
            call = f"{node.generator.text} AS g({made}){condition}"
            return select(_names(node.columns), f"{self.name(node.input)}{joined} {call}")
        source = f"{self.name(node.input)} LATERAL VIEW {outer}{node.generator.text} g AS {made}"
        return select(_names(node.columns), source)

    def _text(self, node: Text) -> str:
        for scan in node.scans:
            # Under its own name it hides what the session calls it, for everything in the text.
            source = _quoted(self.relations[scan.relation])
            fields = [_quoted(field.field) for field in scan.fields]
            self.entries[_quoted(scan.relation)] = select(fields, source)
        names = _names(node.columns)
        return select(names, f"({node.text}) AS t({', '.join(names)})")

    def _expand(self, node: Expand) -> str:
        names = _names(node.columns)
        cells = [e.text for projection in node.projections for e in projection]
        if not names:
            names, cells = [NOTHING], ["true"] * len(node.projections)
        stack = f"stack({len(node.projections)}, {', '.join(cells)})"
        # An output may have the name of an input: a column that is only passed on.
        outputs = [f"g.{name} AS {name}" for name in names]
        source = f"{self.name(node.input)} LATERAL VIEW {stack} g AS {', '.join(names)}"
        return select(outputs, source)


def _values(node: Values) -> str:
    if not node.rows:
        nulls = [f"CAST(NULL AS {c.type}) AS {c.name}" for c in node.columns]
        return f"{select(nulls, '(SELECT 1)')} WHERE false"
    rows = [f"({', '.join(row or ('true',))})" for row in node.rows]
    names = _names(node.columns) or [NOTHING]
    return select(names, f"VALUES {', '.join(rows)} AS v({', '.join(names)})")


def _names(columns: Iterable[Column]) -> list[str]:
    return [column.name for column in columns]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
