"""Where a view stands and how it is kept, as a value: for ``explain``, the console, tests.

    described(state, view, …) -> ViewDescription         written(description) -> text

Per operator: strategy, bound and why (``dataflow/bounds.py``), and each arrangement and state with
the rows and bytes it has now, as the log counts them. A shared arrangement is counted in full for
every view that uses it: dropping one view does not free it.

Pure. Kept by: this module. Relied on by: the controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.compute.dataflow.bounds import explained
from headwater.compute.definition import Definition
from headwater.compute.ir import plan as plans
from headwater.compute.maintained import MaintainedView
from headwater.persist.batch import Times
from headwater.persist.state import State


@dataclass(frozen=True, slots=True)
class Size:
    """What a collection takes: updates, not yet merged ones included, and their bytes."""

    rows: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows in {self.bytes:,} bytes"


@dataclass(frozen=True, slots=True)
class StateDescription:
    """An arrangement or a state."""

    name: str
    kind: Literal["shared", "own", "state"]
    of: str
    key: tuple[str, ...]
    why: str
    collection: GlobalId
    size: Size


@dataclass(frozen=True, slots=True)
class OperatorDescription:
    """An operator: what it does, what it reads at most, what it keeps."""

    operator: str
    strategy: str
    bound: str
    states: tuple[StateDescription, ...]
    over: tuple[str, ...]
    """The linear operators that its rows pass on their way to it, one line each."""


@dataclass(frozen=True, slots=True)
class ViewDescription:
    """A view."""

    id: GlobalId
    name: str
    sql: str
    """Empty if it was made of DataFrame code or a plan."""
    spark_version: str
    strategy: Literal["incremental", "recomputed"]
    why: str
    """Why it is recomputed; empty if it is not."""
    operators: tuple[OperatorDescription, ...]
    inputs: tuple[tuple[str, GlobalId], ...]
    start: int
    since: Times
    upper: Times
    """Both closed if the output was destroyed."""
    hydrating: bool
    """Whether its first step is still to be committed."""
    part_done: float | None
    """Of the first step, if that runs in the background."""
    failure: str | None
    """Why its last step failed, or why there can be none."""
    size: Size
    durable: bool
    """Whether output and state stay when the process goes."""

    @property
    def state_bytes(self) -> int:
        """What it keeps besides its output, shared arrangements included, each once."""
        sizes = {s.collection: s.size.bytes for one in self.operators for s in one.states}
        return sum(sizes.values())


def described(
    state: State, view: Definition, failure: str | None, part_done: float | None
) -> ViewDescription:
    """Return where a view stands in this state."""
    output = state.collections.get(view.id)
    upper: Times = Frontier.closed() if output is None else state.upper(output)
    incremental = isinstance(view, MaintainedView)
    return ViewDescription(
        id=view.id,
        name=view.name,
        sql=view.sql,
        spark_version=view.spark_version,
        strategy="incremental" if incremental else "recomputed",
        why="" if isinstance(view, MaintainedView) else view.why,
        operators=tuple(_operators(state, view)) if isinstance(view, MaintainedView) else (),
        inputs=tuple(view.relations.items()),
        start=view.start,
        since=Frontier.closed() if output is None else output.since,
        upper=upper,
        hydrating=upper == Frontier.of(view.start),
        part_done=part_done,
        failure=failure,
        size=_size(state, view.id),
        durable=view.kept_by is None,
    )


def _operators(state: State, view: MaintainedView) -> Iterator[OperatorDescription]:
    functions = plans.decoded(view.plan).functions
    for one in explained(view.flow):
        kept = []
        for name in one.kept:
            gid = view.arrangements.get(name.name) or view.stored[name.name]
            size = _size(state, gid)
            kept.append(
                StateDescription(name.name, name.kind, name.of, name.key, name.why, gid, size)
            )
        over = tuple(plans.as_named(line, functions) for line in one.after)
        yield OperatorDescription(one.operator, one.strategy, one.bound, tuple(kept), over)


def _size(state: State, gid: GlobalId) -> Size:
    collection = state.collections.get(gid)
    parts = [] if collection is None else list(collection.parts())
    return Size(sum(part.rows for part in parts), sum(part.size_bytes for part in parts))


def written(view: ViewDescription) -> str:
    """Return a description as text: how it is kept, then where it stands."""
    return "\n".join([*_kept(view), *_standing(view)]) + "\n"


def _kept(view: ViewDescription) -> Iterator[str]:
    if view.strategy == "recomputed":
        yield f"recomputed once per input time: no incremental rule yet for {view.why}"
        return
    yield "incremental:"
    for one in view.operators:
        yield f"{one.operator}: {one.strategy}"
        yield f"  reads at most {one.bound}"
        for kept in one.states:
            yield f"  keeps {kept.name} ({kept.kind}), {kept.of}, {kept.size}: {kept.why}"
        for line in one.over:
            yield f"  over {line}"


def _standing(view: ViewDescription) -> Iterator[str]:
    readable = f"readable in [{view.since}, {view.upper})"
    yield f"output u{view.id}: {view.size}, {readable}; {view.state_bytes:,} bytes of state"
    if not view.durable:
        yield "not durable: kept by this process, and computed again by the next"
    if view.hydrating:
        done = "" if view.part_done is None else f", about {view.part_done:.0%} done"
        yield f"hydrating from {view.start}{done}"
    if view.failure is not None:
        yield f"does not advance: {view.failure}"
