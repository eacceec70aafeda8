"""The operators of a plan: a closed union of frozen values, each checked when it is made.

Every operator has ``columns``, its output, and ``inputs``. The invariants, for every operator:

- the names of its output are distinct; so the two sides of a join share no name;
- every expression mentions only columns of the input it stands over;
- a union, and ``INTERSECT``/``EXCEPT ALL``, match their inputs by position, with equal types.

So a plan that exists is well formed: who reads one asks no such question again.

Meaning. Each operator maps multisets of rows to a multiset. Where SQL leaves an order open (ties
of a :class:`TopK`, of ``row_number()``, the order of ``collect_list``) it is the canonical order of
the whole row of the operator's input (``collection/order.py``). Rows of no columns are rows: they
count.

Kept by: the constructors. Relied on by: rendering (``compute/catalyst/render.py``) and every delta
rule. Stored as JSON (``plan.py``): a field is added with a default, never renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from headwater.compute.ir.expression import (
    BOOLEAN,
    AggregateCall,
    Column,
    Expression,
    Field,
    JoinKey,
    Named,
    SortKey,
    WindowCall,
)
from headwater.compute.ir.refusal import InvalidPlan

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
BagKind = Literal["intersect", "except"]


def _distinct(what: str, columns: Iterable[Column | str]) -> None:
    names = [c if isinstance(c, str) else c.name for c in columns]
    if len(set(names)) != len(names):
        raise InvalidPlan(f"{what} has a name twice: {names}")


def _known(what: str, used: Iterable[str], columns: Iterable[Column]) -> None:
    unknown = set(used) - {column.name for column in columns}
    if unknown:
        raise InvalidPlan(f"{what} mentions {sorted(unknown)}, which its input does not have")


def _boolean(what: str, condition: Expression) -> None:
    if condition.type != BOOLEAN:
        raise InvalidPlan(f"{what} is {condition.type}, not {BOOLEAN}: {condition.text}")


def _nullable(columns: Iterable[Column]) -> tuple[Column, ...]:
    return tuple(Column(column.name, column.type, True) for column in columns)


class Operator(msgspec.Struct, frozen=True):
    """What all operators have in common; ``columns``, the output, each says in its own way."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operators whose rows it reads."""
        values = (getattr(self, name) for name in self.__struct_fields__)
        rows = (value if isinstance(value, tuple) else (value,) for value in values)
        return tuple(one for row in rows for one in row if isinstance(one, Operator))  # type: ignore[misc]


class Scan(Operator, frozen=True, tag="scan"):
    """The rows of a stored collection, or of another view; ``relation`` is its name."""

    relation: str
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        _distinct(f"scan of {self.relation}", self.columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output."""
        return tuple(field.column for field in self.fields)


class Values(Operator, frozen=True, tag="values"):
    """Constant rows, each a tuple of literals in Spark SQL."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        _distinct("values", self.columns)
        if any(len(row) != len(self.columns) for row in self.rows):
            raise InvalidPlan(f"a row of values has not {len(self.columns)} columns")


class Filter(Operator, frozen=True, tag="filter"):
    """The rows for which the condition is true: not false, not NULL."""

    input: Node
    condition: Expression

    def __post_init__(self) -> None:
        _known("filter", self.condition.columns, self.input.columns)
        _boolean("filter", self.condition)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output."""
        return self.input.columns


class TemporalFilter(Operator, frozen=True, tag="temporal_filter"):
    """The rows that are in at the time of reading: ``since <= now < until``.

    Both are timestamps of a row; a bound that is absent does not bind, one that is NULL excludes
    the row. ``now`` is the time at which the collection is read, so a row comes at ``since`` and
    goes at ``until`` without any change of the input.
    """

    input: Node
    since: Expression | None
    until: Expression | None

    def __post_init__(self) -> None:
        bounds = [bound for bound in (self.since, self.until) if bound is not None]
        if not bounds:
            raise InvalidPlan("a temporal filter without a bound")
        for bound in bounds:
            _known("temporal filter", bound.columns, self.input.columns)
            if bound.type != "timestamp":
                raise InvalidPlan(f"a temporal filter by {bound.type}: {bound.text}")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output."""
        return self.input.columns


class Project(Operator, frozen=True, tag="project"):
    """Each row mapped to these expressions."""

    input: Node
    outputs: tuple[Named, ...]

    def __post_init__(self) -> None:
        _distinct("project", (output.name for output in self.outputs))
        for output in self.outputs:
            _known("project", output.expression.columns, self.input.columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output."""
        return tuple(output.column for output in self.outputs)


class Join(Operator, frozen=True, tag="join"):
    """Pairs of rows for which every key compares true and the residual, if any, is true.

    ``semi`` and ``anti`` yield rows of the left side with, or without, such a partner. The
    comparison ``=?`` (equal or unknown) stands in these two only: ``x NOT IN (…)`` is an anti join
    by it.
    """

    left: Node
    right: Node
    kind: JoinKind
    keys: tuple[JoinKey, ...] = ()
    residual: Expression | None = None

    def __post_init__(self) -> None:
        both = (*self.left.columns, *self.right.columns)
        _distinct("join", both)
        for key in self.keys:
            _known("left key", key.left.columns, self.left.columns)
            _known("right key", key.right.columns, self.right.columns)
            if key.left.type != key.right.type:
                raise InvalidPlan(f"keys of {key.left.type} and {key.right.type}: {key.text}")
            if key.comparison == "=?" and self.kind not in ("semi", "anti"):
                raise InvalidPlan(f"a {self.kind} join by 'equal or unknown'")
        if self.residual is not None:
            _known("residual", self.residual.columns, both)
            _boolean("residual", self.residual)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output."""
        match self.kind:
            case "inner":
                return (*self.left.columns, *self.right.columns)
            case "left":
                return (*self.left.columns, *_nullable(self.right.columns))
            case "right":
                return (*_nullable(self.left.columns), *self.right.columns)
            case "full":
                return _nullable((*self.left.columns, *self.right.columns))
            case "semi" | "anti":
                return self.left.columns


class Aggregate(Operator, frozen=True, tag="aggregate"):
    """A row per group: the group's columns, then the calls. Without groups always one row."""

    input: Node
    groups: tuple[str, ...]
    calls: tuple[AggregateCall, ...]

    def __post_init__(self) -> None:
        _known("groups", self.groups, self.input.columns)
        _distinct("aggregate", (*self.groups, *(call.name for call in self.calls)))
        for call in self.calls:
            _known(call.text, call.columns, self.input.columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output."""
        known = {column.name: column for column in self.input.columns}
        return (*(known[name] for name in self.groups), *(call.column for call in self.calls))


class Union(Operator, frozen=True, tag="union"):
    """All rows of all inputs, columns by position."""

    branches: tuple[Node, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _distinct("union", self.columns)
        if len(self.branches) < 2:
            raise InvalidPlan("a union of fewer than two inputs")
        for branch in self.branches:
            _same_types("union", branch.columns, self.columns)


class Bag(Operator, frozen=True, tag="bag"):
    """``INTERSECT ALL``, the lesser count of a row; ``EXCEPT ALL``, the difference if positive.

    Rows are compared as groups are: NULL is NULL, 0.0 is -0.0. The left side's names are the
    output's.
    """

    kind: BagKind
    left: Node
    right: Node

    def __post_init__(self) -> None:
        _same_types(self.kind, self.left.columns, self.right.columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output."""
        return self.left.columns


class Distinct(Operator, frozen=True, tag="distinct"):
    """Each row once; rows are compared as groups are."""

    input: Node

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output."""
        return self.input.columns


class Window(Operator, frozen=True, tag="window"):
    """Each row with what the calls yield over its partition, in this order."""

    input: Node
    partition: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]

    def __post_init__(self) -> None:
        _distinct("window", self.columns)
        if not self.calls:
            raise InvalidPlan("a window without a call")
        for expression in (*self.partition, *(key.expression for key in self.order)):
            _known("window", expression.columns, self.input.columns)
        for call in self.calls:
            _known(call.text, call.columns, self.input.columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output."""
        return (*self.input.columns, *(call.column for call in self.calls))


class TopK(Operator, frozen=True, tag="top_k"):
    """The rows after the first ``offset``, at most ``limit`` (``None``: all), in this order."""

    input: Node
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int = 0

    def __post_init__(self) -> None:
        for key in self.order:
            _known("order", key.expression.columns, self.input.columns)
        if self.offset < 0 or (self.limit is not None and self.limit < 0):
            raise InvalidPlan(f"limit {self.limit} offset {self.offset}")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output."""
        return self.input.columns


class Generate(Operator, frozen=True, tag="generate"):
    """Each row once per row that the generator yields for it, with these columns added.

    ``outer``: a row for which it yields nothing stays, with NULLs. The text of a generator that
    Spark knows in ``FROM`` alone begins with ``LATERAL``.
    """

    input: Node
    generator: Expression
    outputs: tuple[Column, ...]
    outer: bool = False

    def __post_init__(self) -> None:
        _known("generator", self.generator.columns, self.input.columns)
        _distinct("generate", self.columns)

    @property
    def is_in_from_alone(self) -> bool:
        """Whether ``LATERAL VIEW`` does not know the generator."""
        return self.generator.text.startswith("LATERAL ")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output."""
        return (*self.input.columns, *self.outputs)


class Expand(Operator, frozen=True, tag="expand"):
    """Each row once per list of expressions (GROUPING SETS, hopping windows, UNPIVOT)."""

    input: Node
    projections: tuple[tuple[Expression, ...], ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _distinct("expand", self.columns)
        if not self.projections:
            raise InvalidPlan("an expand without projections")
        for projection in self.projections:
            if [e.type for e in projection] != [column.type for column in self.columns]:
                raise InvalidPlan(f"an expand of {[e.type for e in projection]}")
            for expression in projection:
                _known("expand", expression.columns, self.input.columns)


class Text(Operator, frozen=True, tag="text"):
    """A query that we have no operators for (``WITH RECURSIVE``): its text, run as it is.

    It reads the relations of ``scans`` by their own names, and its columns go by position.
    """

    text: str
    scans: tuple[Scan, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _distinct("text", self.columns)


Node = (
    Scan
    | Values
    | Filter
    | TemporalFilter
    | Project
    | Join
    | Aggregate
    | Union
    | Bag
    | Distinct
    | Window
    | TopK
    | Generate
    | Expand
    | Text
)


def _same_types(what: str, a: Iterable[Column], b: Iterable[Column]) -> None:
    left, right = [c.type for c in a], [c.type for c in b]
    if left != right:
        raise InvalidPlan(f"{what} of {left} and {right}")


def over(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the operator over its inputs as they are changed."""
    changed: dict[str, Any] = {}
    for name in node.__struct_fields__:
        value = getattr(node, name)
        if isinstance(value, Operator):
            changed[name] = change(value)  # type: ignore[arg-type]
        elif isinstance(value, tuple) and value and all(isinstance(v, Operator) for v in value):
            changed[name] = tuple(map(change, value))
    return msgspec.structs.replace(node, **changed) if changed else node


def walk(node: Node) -> Iterator[Node]:
    """Yield every operator, inputs before the operators over them."""
    for child in node.inputs:
        yield from walk(child)
    yield node


def relations(node: Node) -> tuple[str, ...]:
    """Return the names of the stored collections that are read, in the order of their first use."""
    return tuple(dict.fromkeys(n.relation for n in walk(node) if isinstance(n, Scan)))


def reference(column: Column) -> Named:
    """Return the output that passes a column on."""
    return Named(column.name, Expression(column.name, column.type, column.nullable, (column.name,)))


def keep(node: Node, names: Iterable[str]) -> Node:
    """Return the node with just these columns, in this order."""
    wanted = tuple(names)
    if wanted == tuple(column.name for column in node.columns):
        return node
    known = {column.name: column for column in node.columns}
    return Project(node, tuple(reference(known[name]) for name in wanted))
