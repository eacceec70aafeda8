"""Dataflows: a plan as the operators that keep it, the state they need, and what flows between.

    Scan ──▶ operator ──lane──▶ edge ──lane──▶ operator ──▶ … ──▶ Output

A *lane* is a stream of updates ``(row, time, diff)`` with named columns. An *operator* is Python:
it has state, reads lanes or stored collections, and writes one lane. An *edge* is linear and has
no state: filters, projections, generators and expansions of the plan, evaluated row by row in the
JVM, from one lane into another. Several edges into one lane are a union. An edge that only picks
and renames columns needs no JVM. One from a lane of *versions* may begin with a window (Spark's
own, whatever its functions are), whose partition is the version: within a version it is a function
of its rows, and versions come and go as wholes.

*Origins* are what an operator reads: a lane, or a stored collection as it is (``Scanned``). An
*arrangement* is the history of an origin, indexed by a key (``collection/run.py``). Arrangements of
stored collections have all their columns and no filter and are shared by all views; those of lanes
belong to the view, like the *states* that operators keep in a form of their own.

Invariants, checked when a dataflow is made: every lane is written by just one operator or by edges
only; operators are in an order in which each reads what is written before it; names are of this
dataflow; keys are columns of what they index.

Stored with the view: its durable state has the form this graph says, whatever a later program
would make of the same plan. Fields are added with a default, never renamed.

Kept by: the constructors. Made by: ``lower.py``. Relied on by: ``lanes.py`` (edges), the operators
(``ops/``), the runner of steps, and ``explain``.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from headwater.base.decoding import from_json
from headwater.compute.dataflow.edge import Edge, Lane
from headwater.compute.ir.expression import Column, Expression, Field
from headwater.compute.ir.refusal import InvalidPlan

VERSION: Final = 1


# ---- what operators read ---------------------------------------------------------------------


class Scanned(msgspec.Struct, frozen=True, tag="scanned"):
    """A stored collection as it is: these fields of it, under these names."""

    relation: str
    fields: tuple[Field, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """What the operator sees."""
        return tuple(field.column for field in self.fields)


class Laned(msgspec.Struct, frozen=True, tag="laned"):
    """A lane."""

    lane: int
    columns: tuple[Column, ...]


Origin = Scanned | Laned


class Arrangement(msgspec.Struct, frozen=True):
    """The history of an origin by a key: what a probe looks into."""

    name: str
    of: Origin
    key: tuple[str, ...]
    """Columns of ``of``; at least one."""

    def __post_init__(self) -> None:
        names = {column.name for column in self.of.columns}
        if not self.key or not set(self.key) <= names:
            raise InvalidPlan(f"arrangement {self.name} by {self.key} of {sorted(names)}")


class State(msgspec.Struct, frozen=True):
    """A collection that an operator keeps in a form of its own, indexed by ``key``."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    ordered: bool = False
    """Whether it is sorted by its key, which is one number, and not by the hash of it."""


# ---- operators -------------------------------------------------------------------------------


class Read(msgspec.Struct, frozen=True, tag="read"):
    """The updates of a stored collection, as they are."""

    of: Scanned
    output: int


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    """Rows that are there from the start: edges from a lane of one row without columns."""

    output: int


Comparison = Literal["<", "<=", ">", ">="]


class Within(msgspec.Struct, frozen=True):
    """A column of what was found, compared with one of what is looked up."""

    probed: str
    comparison: Comparison
    found: str


class Hop(msgspec.Struct, frozen=True):
    """One lookup of a path: rows of ``input`` whose key equals these columns of what was found.

    ``within``: of all rows of ``input``, which have one key, those for which this holds as well;
    the join's conditions are still evaluated after it.
    """

    input: int
    arrangement: str
    probe: tuple[str, ...]
    null_safe: tuple[bool, ...]
    within: tuple[Within, ...] = ()


class DeltaJoin(msgspec.Struct, frozen=True, tag="delta_join"):
    """The inner join of several origins: for each input, the path its updates take.

    ``kept``: conditions, each of columns of one input, that are evaluated after the join. They
    cannot fail, nor can anything before them: rows that they leave out need not be looked up.
    """

    inputs: tuple[Origin, ...]
    paths: tuple[tuple[Hop, ...], ...]
    output: int
    kept: tuple[Expression, ...] = ()


class KeyMatch(msgspec.Struct, frozen=True):
    """A column of each side, compared."""

    left: str
    right: str
    null_safe: bool = False


class Semi(msgspec.Struct, frozen=True, tag="semi"):
    """Rows of the left that have (``semi``) or have not (``anti``) an equal key on the right.

    ``arrangement`` is that of the left by its key; ``counts`` is a state: the right's key columns
    and ``_count_0``, how many rows the right has with it.
    """

    kind: Literal["semi", "anti"]
    left: Origin
    right: Origin
    keys: tuple[KeyMatch, ...]
    arrangement: str
    counts: str
    output: int


class AccumulateCall(msgspec.Struct, frozen=True):
    """An aggregate whose value is a function of sums; arguments are columns of the input."""

    name: str
    function: str
    """Of ``ops/accumulate.py``: canonical, no alias."""
    type: str
    arguments: tuple[str, ...]
    filter: str | None = None
    """A boolean column: only rows where it is true count."""


class Accumulate(msgspec.Struct, frozen=True, tag="accumulate"):
    """A row per group: the groups, then the calls. Without groups always one row."""

    input: Origin
    groups: tuple[str, ...]
    calls: tuple[AccumulateCall, ...]
    state: str
    output: int


class Distinct(msgspec.Struct, frozen=True, tag="distinct"):
    """Each row once; ``counts`` is a state: the columns and ``_count_0``."""

    input: Origin
    counts: str
    output: int


class Bag(msgspec.Struct, frozen=True, tag="bag"):
    """INTERSECT ALL and EXCEPT ALL; a state: the columns, ``_left_0`` and ``_right_0``."""

    kind: Literal["intersect", "except"]
    left: Origin
    right: Origin
    counts: str
    output: int


class ReduceCall(msgspec.Struct, frozen=True):
    """An aggregate that needs the rows of its group; arguments are columns of the input."""

    name: str
    function: str
    """Of ``ops/reduce.py``."""
    type: str
    arguments: tuple[str, ...]
    filter: str | None = None
    distinct: bool = False
    ignore_nulls: bool = False


class Reduce(msgspec.Struct, frozen=True, tag="reduce"):
    """A row per group, computed anew from the rows of each group that changed."""

    input: Origin
    groups: tuple[str, ...]
    calls: tuple[ReduceCall, ...]
    arrangement: str
    """Of the input by the groups; without groups, by a column that is the same in every row."""
    output: int
    ties: tuple[str, ...] = ()
    """The columns whose canonical order is that of the rows; none: all of the input."""
    state: str | None = None
    """The best values of each group, where the calls allow it (``ops/reduce.py``)."""


class Sort(msgspec.Struct, frozen=True):
    """A key of an order: a column of the input."""

    column: str
    descending: bool = False
    nulls_first: bool = True


class TopK(msgspec.Struct, frozen=True, tag="top_k"):
    """Per partition, the rows after the first ``offset``, at most ``limit``.

    Ties follow the canonical order of the columns named in ``ties`` (the whole row of the plan's
    operator, in its order). ``number`` names a column with the row's number (``row_number()``), if
    it is wanted.
    """

    input: Origin
    partition: tuple[str, ...]
    order: tuple[Sort, ...]
    ties: tuple[str, ...]
    limit: int | None
    offset: int
    arrangement: str
    output: int
    number: str | None = None
    state: str | None = None
    """The first rows of each partition and some more (``ops/top_k.py``)."""


class Versions(msgspec.Struct, frozen=True, tag="versions"):
    """The rows of each group that changed, as they were before and after each of its changes.

    The output has the columns of a version (``edge.py``), then the input's.
    """

    input: Origin
    ties: tuple[str, ...]
    """The columns whose canonical order is that of the rows of a version; none: any order."""
    arrangement: str
    """Of the input by the group; without one, by a column that is the same in every row."""
    output: int


class Stretches(msgspec.Struct, frozen=True, tag="stretches"):
    """Of each partition that changed, the rows around its changes, in versions like those above.

    What is asked of a row depends on at most ``before`` rows before it in the order and ``after``
    behind it; or on those whose value is so near. The output has the columns of a version
    (``edge.py``), then the input's.
    """

    input: Origin
    partition: tuple[str, ...]
    order: tuple[Sort, ...]
    ties: tuple[str, ...]
    """The columns whose canonical order is that of rows which are equal in ``order``."""
    before: int
    after: int
    state: str
    """The rows, in the order of their numbers (``ops/stretches.py``)."""
    output: int
    by_value: bool = False
    """``before`` and ``after`` are no rows but distances: of whole numbers, days, microseconds."""


class Unversion(msgspec.Struct, frozen=True, tag="unversion"):
    """Rows that are there as long as their version, as updates.

    The input has ``UNTIL`` and ``BEFORE`` (``edge.py``), then the output's columns.
    """

    input: Laned
    output: int


class Temporal(msgspec.Struct, frozen=True, tag="temporal"):
    """Rows from ``since`` on, until just before ``until``: columns of milliseconds, not NULL.

    The output has the input's other columns.
    """

    input: Origin
    since: str | None
    until: str | None
    state: str
    """What is scheduled for later (``ops/temporal.py``)."""
    output: int


class Output(msgspec.Struct, frozen=True, tag="output"):
    """The view's rows."""

    lane: int


class Exchanged(msgspec.Struct, frozen=True, tag="exchanged"):
    """Rows on their way to the range of their key, in a later phase; only in ``phases.py``.

    Without columns in the key all go to the first range; without a key they stay in their own.
    """

    lane: int
    key: tuple[str, ...] | None
    number: int


class Arranged(msgspec.Struct, frozen=True, tag="arranged"):
    """An arrangement that later phases probe as a whole; only in ``phases.py``."""

    arrangement: str
    of: Origin


Sink = Output | Exchanged | Arranged
"""What writes no lane."""

Operator = (
    Read
    | Constant
    | DeltaJoin
    | Semi
    | Accumulate
    | Distinct
    | Bag
    | Reduce
    | TopK
    | Versions
    | Stretches
    | Unversion
    | Temporal
    | Output
    | Exchanged
    | Arranged
)


def origins(operator: Operator) -> tuple[Origin, ...]:
    """Return what an operator reads."""
    match operator:
        case Read() | Arranged():
            return (operator.of,)
        case Constant() | Output() | Exchanged():
            return ()
        case DeltaJoin():
            return operator.inputs
        case Semi() | Bag():
            return (operator.left, operator.right)
        case _:
            return (operator.input,)


def used_names(operator: Operator) -> frozenset[str]:
    """Return the names of the arrangements and states that an operator uses."""
    names: set[str] = set()
    for path in getattr(operator, "paths", ()):
        names.update(hop.arrangement for hop in path)
    for attribute in ("arrangement", "counts", "state"):
        name = getattr(operator, attribute, None)
        if name is not None:
            names.add(name)
    return frozenset(names)


class Dataflow(msgspec.Struct, frozen=True):
    """A view as it is kept."""

    version: int
    lanes: tuple[Lane, ...]
    edges: tuple[Edge, ...]
    operators: tuple[Operator, ...]
    """In an order in which each reads what is written before it; the last one is the output."""
    arrangements: tuple[Arrangement, ...]
    states: tuple[State, ...]

    def __post_init__(self) -> None:
        if not self.operators or not isinstance(self.operators[-1], Sink):
            raise InvalidPlan("a dataflow without an output")
        names = [a.name for a in self.arrangements] + [s.name for s in self.states]
        if len(set(names)) != len(names):
            raise InvalidPlan(f"a dataflow has a name twice: {names}")
        for edge in self.edges:
            have = [column.type for column in edge.node.columns]
            want = [column.type for column in self.lanes[edge.target].columns]
            if have != want:
                raise InvalidPlan(f"an edge of {have} into a lane of {want}")
        by_operator = [o.output for o in self.operators if not isinstance(o, Sink)]
        by_edge = {edge.target for edge in self.edges}
        if len(set(by_operator)) != len(by_operator) or by_edge & set(by_operator):
            raise InvalidPlan("a lane is written twice")

    def arrangement(self, name: str) -> Arrangement:
        """Return the arrangement of this name."""
        return next(a for a in self.arrangements if a.name == name)

    def state(self, name: str) -> State:
        """Return the state of this name."""
        return next(s for s in self.states if s.name == name)


def encoded(dataflow: Dataflow) -> bytes:
    """Return the bytes of a dataflow; equal ones have equal bytes."""
    return msgspec.json.encode(dataflow, order="deterministic")


def decoded(data: bytes) -> Dataflow:
    """Return the dataflow that these bytes hold."""
    try:
        return from_json(data, Dataflow)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InvalidPlan(f"the bytes hold no dataflow: {error}") from error
