"""What each operator of a dataflow does, what it reads at most, and what it keeps: for ``explain``.

    explained(dataflow) -> one :class:`Explained` per operator, in the dataflow's order

The bound is the one that the operator's rule declares (``ops/``), said with the names of this
dataflow; the tests that count rows read hold each rule to it. An arrangement of a stored collection
is shared by all views, one of a lane, whose rows are computed, is the view's own.

Pure. Relied on by: ``explain``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from headwater.compute.dataflow.edge import Edge
from headwater.compute.dataflow.flow import is_constant
from headwater.compute.dataflow.graph import (
    Accumulate,
    Arranged,
    Arrangement,
    Bag,
    Constant,
    Dataflow,
    DeltaJoin,
    Distinct,
    Exchanged,
    Operator,
    Origin,
    Output,
    Read,
    Reduce,
    Scanned,
    Semi,
    Stretches,
    Temporal,
    TopK,
    Unversion,
    Versions,
)
from headwater.compute.dataflow.ops.stretches import margin
from headwater.compute.dataflow.ops.temporal import BITS, LEVELS
from headwater.compute.ir.node import Scan
from headwater.compute.ir.refusal import InvalidPlan
from headwater.compute.ir.text import headline

_UNITS: Final = {"date": " days", "timestamp": " µs", "timestamp_ntz": " µs"}
"""Of distances between values; whole numbers have none."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An arrangement or a state of an operator."""

    name: str
    kind: Literal["shared", "own", "state"]
    """An arrangement of a stored collection; one of a lane; a state."""
    of: str
    key: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Explained:
    """One operator."""

    operator: str
    strategy: str
    bound: str
    kept: tuple[Kept, ...]
    after: tuple[str, ...] = ()
    """The linear operators that its rows pass on their way to it, one line each."""

    @property
    def states(self) -> tuple[str, ...]:
        """The names of all it keeps."""
        return tuple(one.name for one in self.kept)


def explained(dataflow: Dataflow) -> list[Explained]:
    """Return what each operator does."""
    return [_explained(dataflow, operator) for operator in dataflow.operators]


def written(dataflow: Dataflow) -> str:
    """Return the explanation as text: an operator a line, what belongs to it below."""
    lines: list[str] = []
    for one in explained(dataflow):
        lines.append(f"{one.operator}: {one.strategy}")
        lines.append(f"  reads at most {one.bound}")
        lines.extend(f"  keeps {k.name} ({k.kind}), {k.of}: {k.why}" for k in one.kept)
        lines.extend(f"  over {line}" for line in one.after)
    return "\n".join(lines) + "\n"


def _explained(flow: Dataflow, operator: Operator) -> Explained:
    match operator:
        case Read():
            relation = operator.of.relation
            return Explained(f"read {relation}", "its changes as they are", "the change", ())
        case Constant():
            return Explained("constant", "there from the start", "nothing", ())
        case Exchanged() | Arranged():
            raise InvalidPlan("a phase of a first step is not what a view is kept by")
        case Output():
            return Explained(
                "output",
                "written as the view's changes",
                "nothing",
                (),
                _edges(flow, operator.lane),
            )
        case DeltaJoin():
            return _join(flow, operator)
        case Semi():
            right = _named(operator.right)
            return Explained(
                f"{operator.kind} join of {_named(operator.left)} with {right}",
                "by how many rows the right has of each key",
                "the change, a count per changed key, and of each key whose count leaves or "
                "reaches zero the rows of the left",
                (
                    _arranged(flow, operator.arrangement, "to find rows whose key comes or goes"),
                    _stated(flow, operator.counts, f"the number of rows of {right} per key"),
                ),
                _into(flow, operator.left, operator.right),
            )
        case Accumulate():
            calls = ", ".join(call.function for call in operator.calls) or "rows"
            return Explained(
                f"aggregate by {', '.join(operator.groups) or 'nothing'}: {calls}",
                "by sums; no row of a group is read again",
                "the change, and the sums of each changed group",
                (_stated(flow, operator.state, "the sums of each group"),),
                _into(flow, operator.input),
            )
        case Reduce():
            return _reduce(flow, operator)
        case Distinct():
            return Explained(
                "distinct",
                "by how often each row is there",
                "the change, and a count per changed row",
                (_stated(flow, operator.counts, "the number of copies of each row"),),
                _into(flow, operator.input),
            )
        case Bag():
            return Explained(
                f"{operator.kind} all",
                "by how often each row is on either side",
                "the change, and two counts per changed row",
                (_stated(flow, operator.counts, "the number of copies of each row"),),
                _into(flow, operator.left, operator.right),
            )
        case TopK():
            return _top(flow, operator)
        case Versions():
            return Explained(
                f"the groups of {_named(operator.input)} that changed",
                "read again, for Spark's own functions to look at every version of them",
                "the change, and the rows of each changed group",
                (_arranged(flow, operator.arrangement, "the rows of each group"),),
                _into(flow, operator.input),
            )
        case Stretches():
            return _stretches(flow, operator)
        case Temporal():
            return Explained(
                f"rows of {_named(operator.input)} as long as they are in time",
                "each change says when its row comes and goes; what is later is scheduled",
                "the change, what is scheduled for the seconds of the step, and for each of "
                f"{LEVELS} levels of the schedule at most {1 << BITS} rows on either side of them",
                (_stated(flow, operator.state, "what comes and goes later"),),
                _into(flow, operator.input),
            )
        case Unversion():
            return Explained(
                "what changed between versions of groups",
                "by when each version begins and ends",
                "the rows of each changed group, times its changes",
                (),
                _into(flow, operator.input),
            )


def _join(flow: Dataflow, operator: DeltaJoin) -> Explained:
    names = list(map(_named, operator.inputs))
    used: dict[str, str] = {}
    paths: list[str] = []
    unrelated: dict[str, None] = {}
    for number, path in enumerate(operator.paths):
        for hop in path:
            if is_constant(flow.arrangement(hop.arrangement).key):
                unrelated[names[hop.input]] = None
            used.setdefault(hop.arrangement, f"to find partners of a change of {names[number]}")
        paths.append(" → ".join([names[number], *(names[hop.input] for hop in path)]))
    kept = " and ".join(condition.text for condition in operator.kept)
    return Explained(
        f"join of {', '.join(names)}",
        f"each change finds its partners: {'; '.join(paths)}"
        + (f"; of use is only what has {kept}" if kept else ""),
        "the change, and the matching rows on each hop"
        + (f", which are all of {' and of '.join(unrelated)}" if unrelated else ""),
        tuple(_arranged(flow, name, why) for name, why in used.items()),
        _into(flow, *operator.inputs),
    )


def _reduce(flow: Dataflow, operator: Reduce) -> Explained:
    rows = _arranged(flow, operator.arrangement, "the rows of each group")
    calls = ", ".join(
        f"{call.function}{' distinct' if call.distinct else ''}" for call in operator.calls
    )
    what = f"aggregate by {', '.join(operator.groups) or 'nothing'}: {calls}"
    into = _into(flow, operator.input)
    if operator.state is None:
        return Explained(
            what,
            "changed groups are read again, since a call needs all rows of its group",
            "the change, and the rows of each changed group",
            (rows,),
            into,
        )
    best = _stated(flow, operator.state, "counts, sums and the best values of each group")
    return Explained(
        what,
        "by the best values of each group; one that has lost them all is read again",
        "the change, the kept values of each changed group, and the rows of groups without any, "
        "or perhaps without others",
        (rows, best),
        into,
    )


def _stretches(flow: Dataflow, operator: Stretches) -> Explained:
    before, after = operator.before, operator.after
    if operator.by_value:
        (type_,) = [c.type for c in operator.input.columns if c.name == operator.order[0].column]
        unit = _UNITS.get(type_, "")
        near = f"what is {before:,}{unit} before it and {after:,}{unit} after it by its value"
        bound = f"the rows that are {before + after:,}{unit} before and after each changed value"
    else:
        near = f"{before:,} rows before it and {after:,} after it"
        bound = (
            f"of each changed place the rows at it and {margin(before + after):,} before and after "
            "it in each run, or a few times that where they have gone since"
        )
    return Explained(
        f"the rows of {_named(operator.input)} around its changes",
        "read again, for Spark's own functions to look at every version of them: the answer of a "
        f"row depends on {near}",
        f"the change, and {bound}",
        (_stated(flow, operator.state, "the rows, in their order"),),
        _into(flow, operator.input),
    )


def _top(flow: Dataflow, operator: TopK) -> Explained:
    rows = _arranged(flow, operator.arrangement, "the rows of each partition")
    limit = "all" if operator.limit is None else str(operator.limit)
    offset = f" after {operator.offset}" if operator.offset else ""
    by = f" by {', '.join(operator.partition)}" if operator.partition else ""
    what = f"top {limit}{offset}{by}"
    into = _into(flow, operator.input)
    if operator.state is None:
        return Explained(
            what,
            "changed partitions are read again, since there is no limit",
            "the change, and the rows of each changed partition",
            (rows,),
            into,
        )
    first = _stated(flow, operator.state, "the first rows of each partition, and some more")
    return Explained(
        what,
        "by the first rows of each partition; one that has lost too many is read again",
        "the change, the kept rows of each changed partition, and the rows of those without "
        "enough, or perhaps without others",
        (rows, first),
        into,
    )


# ---- names -----------------------------------------------------------------------------------


def _named(origin: Origin) -> str:
    return origin.relation if isinstance(origin, Scanned) else f"lane {origin.lane}"


def _arranged(flow: Dataflow, name: str, why: str) -> Kept:
    found: Arrangement = flow.arrangement(name)
    of = f"{_named(found.of)} by {', '.join(_key(found))}"
    if isinstance(found.of, Scanned):
        return Kept(name, "shared", of, found.key, why)
    return Kept(name, "own", of, found.key, f"{why}; they are computed, so the view keeps them")


def _key(arrangement: Arrangement) -> Iterator[str]:
    of = arrangement.of
    fields = {f.column.name: f.field for f in of.fields} if isinstance(of, Scanned) else {}
    for name in arrangement.key:
        yield "a constant" if is_constant((name,)) else fields.get(name, name)


def _stated(flow: Dataflow, name: str, why: str) -> Kept:
    found = flow.state(name)
    return Kept(name, "state", f"by {', '.join(found.key)}", found.key, why)


def _into(flow: Dataflow, *read: Origin) -> tuple[str, ...]:
    lanes = [origin.lane for origin in read if not isinstance(origin, Scanned)]
    return tuple(line for lane in dict.fromkeys(lanes) for line in _edges(flow, lane))


def _edges(flow: Dataflow, lane: int) -> tuple[str, ...]:
    return tuple(_line(edge) for edge in flow.edges if edge.target == lane)


def _line(edge: Edge) -> str:
    steps = [headline(node) for node in edge.chain() if not isinstance(node, Scan)]
    return f"lane {edge.target} := {' ◁ '.join([*steps, f'lane {edge.source}'])}"
