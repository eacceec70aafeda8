"""Views kept by delta rules: how they are stored, what a step of them reads, what it commits.

A maintained view is a plan, the dataflow it was lowered to (``compute/dataflow``), and collections:
its output, and one for each private arrangement and state. Arrangements of stored collections are
*shared*: they have a definition of their own, ``arrangement/<id>``, are there once per (collection,
key), and go when the last view that uses them goes.

    lower = the upper of the view's output,  upper = the meet of its inputs' uppers

A step covers ``[lower, upper)`` of each of its views. Its one log entry appends to the outputs, to
the states and to the shared arrangements, and moves the holds: inputs, shared arrangements and
states stay readable from ``upper - 1`` on, **never only from** ``upper``, because a rule that looks
strictly before a time at ``upper`` must still tell what was before. What a view did not change
keeps its upper: a state may be behind its view, a shared arrangement behind or ahead of it; what
is missing in between is in the inputs, which the arrangement holds at its own ``upper - 1``.

The token of an append names the collection, lower *and* upper. With ``lower`` alone, a retry that
reaches further than the committed attempt would pass for already done.

Pure. Kept by: this module. Relied on by: the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from headwater.algebra.frontier import Frontier
from headwater.base.decoding import from_msgpack
from headwater.base.ids import GlobalId
from headwater.compute.dataflow import graph
from headwater.compute.dataflow.graph import Dataflow
from headwater.compute.dataflow.remembered import Stamps
from headwater.compute.dataflow.task import (
    Done,
    Shared,
    StepTask,
    Stored,
    Updates,
    ViewTask,
)
from headwater.compute.ir import plan as plans
from headwater.compute.step import Interval, due, held, token
from headwater.compute.stored_view import StoredView
from headwater.persist.batch import Part, Times
from headwater.persist.commands import (
    AllowCompaction,
    Command,
    CompareAndAppend,
    DowngradeReader,
)
from headwater.persist.decision import collection_of
from headwater.persist.spark_parts import Cut, Place, Reading, Target, Writing, cut
from headwater.persist.state import CollectionState, State, bound

STORED_VERSION: Final = 3
ARRANGEMENT_PREFIX: Final = "arrangement/"

IDLE_HOLD_LAG_MS: Final = 10_000
"""How far the holds of an idle view may be behind it."""


class SharedArrangement(msgspec.Struct, frozen=True):
    """An index of a stored collection: all its columns, by these of them."""

    version: int
    relation: GlobalId
    key: tuple[str, ...]
    id: GlobalId
    start: int

    @property
    def reader_id(self) -> str:
        """The name of its hold on the collection."""
        return f"{ARRANGEMENT_PREFIX}{self.id}"


class MaintainedView(StoredView, frozen=True, kw_only=True, tag_field="kind", tag="maintained"):
    """A view that is kept by delta rules."""

    dataflow: bytes
    arrangements: dict[str, GlobalId]
    """The shared ones, by the names the dataflow has for them."""
    stored: dict[str, GlobalId]
    """Private arrangements and states, by the names the dataflow has for them."""
    shown: tuple[str, ...]
    """For each column of the output, the column of the plan that it is."""

    @property
    def owned(self) -> tuple[GlobalId, ...]:
        """What goes with it."""
        return (*super().owned, *self.stored.values())

    @property
    def shared(self) -> tuple[GlobalId, ...]:
        """The shared arrangements it uses, each once."""
        return tuple(dict.fromkeys(self.arrangements.values()))

    @property
    def flow(self) -> Dataflow:
        """The dataflow."""
        return _flow(self.dataflow)

    @property
    def calls(self) -> bool:
        """Whether its steps call functions of the user's, which take as long as they like."""
        return _calls(self.plan)

    @property
    def schedules(self) -> bool:
        """Whether it may change although no input does, at times that its states know."""
        return any(isinstance(operator, graph.Temporal) for operator in self.flow.operators)


_flow = lru_cache(maxsize=1024)(graph.decoded)


@lru_cache(maxsize=4096)
def _calls(plan: bytes) -> bool:
    return bool(plans.decoded(plan).functions)


def arrangements(state: State) -> dict[GlobalId, SharedArrangement]:
    """Return the shared arrangements of a location, by id."""
    found = (
        from_msgpack(data, SharedArrangement)
        for key, data in state.items.items()
        if key.startswith(ARRANGEMENT_PREFIX)
    )
    return {arrangement.id: arrangement for arrangement in found}


def pins(state: State, view: MaintainedView, others: Iterable[MaintainedView], lag_ms: int) -> bool:
    """Whether a view is further behind an arrangement that others use than it may be (pure)."""
    used = {gid for other in others for gid in other.shared}
    lower = state.upper(collection_of(state, view.id))
    for gid in used.intersection(view.shared):
        upper = state.upper(collection_of(state, gid))
        if not upper.is_closed and bound(lower) + lag_ms < bound(upper):
            return True
    return False


# ---- a step ----------------------------------------------------------------------------------


Cuts = dict[tuple[GlobalId, int, int, bool], tuple[Cut, Cut]]
"""What was cut out of collections of one state: by collection, interval, and if it hydrates."""


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One view of a step, from one state."""

    state: State = field(compare=False, repr=False)
    view: MaintainedView
    interval: Interval
    deltas: Mapping[str, Cut]
    """By relation."""
    errors: Mapping[str, Cut]

    @property
    def hydrating(self) -> bool:
        """Whether this is the view's first step."""
        return bound(self.interval.lower) == self.view.start

    @property
    def is_empty(self) -> bool:
        """Whether it takes nothing in; a first step has its answer at ``start`` to give."""
        cuts = (*self.deltas.values(), *self.errors.values())
        return not self.hydrating and not any(cut.parts for cut in cuts)

    @property
    def rows(self) -> int:
        """At most how many updates it has to take in."""
        return sum(cut.rows for cut in self.deltas.values())


@dataclass(frozen=True)
class _Told:
    """What tasks are told of collections: of the same updates by one object, read once."""

    place: Place
    state: State
    stamps: Stamps = field(default_factory=dict)
    _updates: dict[tuple[GlobalId, int, int, bool], Updates] = field(default_factory=dict)

    def updates(self, gid: GlobalId, cut: Cut) -> Updates:
        reading = Reading.of(self.place, collection_of(self.state, gid))
        key = (gid, cut.lower, cut.upper, cut.hydrating)
        return self._updates.setdefault(key, Updates(reading, cut))

    def stored(self, gid: GlobalId) -> Stored:
        collection = collection_of(self.state, gid)
        parts = tuple(part for batch in collection.batches for part in batch.parts)
        reading, target = Reading.of(self.place, collection), Target.of(collection)
        return Stored(gid, reading, parts, target, self.stamps.get(gid))


@dataclass(frozen=True)
class GroupStep:
    """A step of several views before it runs: from one state, so that all of it agrees."""

    state: State
    views: tuple[ViewStep, ...]
    shared: Mapping[GlobalId, SharedArrangement] = field(default_factory=dict)
    others: frozenset[GlobalId] = frozenset()
    """The shared arrangements that steps of other views write, which may run beside this one."""

    def task(
        self,
        place: Place,
        writing: Writing,
        among: Sequence[GlobalId],
        stamps: Stamps = MappingProxyType({}),
    ) -> StepTask:
        """Return what the tasks of a program of these views are told."""
        told = _Told(place, self.state, stamps)
        views = {step.view.id: self._view_task(told, step) for step in self.views}
        return StepTask(
            tuple(views.get(gid) for gid in among),
            {gid: self._shared_task(told, a) for gid, a in self.shared.items()},
            writing,
        )

    def pinned(self) -> Iterator[Part]:
        """Return every part that is read, to be kept from garbage collection meanwhile."""
        for step in self.views:
            for side in (*step.deltas.values(), *step.errors.values()):
                yield from side.parts
            if step.hydrating:  # What a view held that was made anew (``renew.py``).
                yield from self._collection(step.view.id).parts()
            for gid in step.view.stored.values():
                yield from self._collection(gid).parts()
        for gid, arrangement in self.shared.items():
            yield from self._collection(gid).parts()
            since = self._since(arrangement)
            if since is not None:
                yield from since.parts

    def _collection(self, gid: GlobalId) -> CollectionState:
        return collection_of(self.state, gid)

    def _view_task(self, told: _Told, step: ViewStep) -> ViewTask:
        view = step.view
        return ViewTask(
            bound(step.interval.lower),
            bound(step.interval.upper),
            step.hydrating,
            {name: told.updates(view.relations[name], cut) for name, cut in step.deltas.items()},
            view.arrangements,
            {name: told.stored(gid) for name, gid in view.stored.items()},
            view.output,
            Target.of(self._collection(view.output)),
            view.shown,
        )

    def _since(self, arrangement: SharedArrangement) -> Cut | None:
        relation = self._collection(arrangement.relation)
        own = self.state.upper(self._collection(arrangement.id))
        upper = self.state.upper(relation)
        if not own < upper:
            return None
        hydrating = own == Frontier.of(arrangement.start)
        return cut(relation, bound(own), bound(upper), hydrating=hydrating)[0]

    def _shared_task(self, told: _Told, arrangement: SharedArrangement) -> Shared:
        since = self._since(arrangement)
        updates = None if since is None else told.updates(arrangement.relation, since)
        return Shared(told.stored(arrangement.id), updates, self._advances(arrangement))

    def _advances(self, arrangement: SharedArrangement) -> bool:
        """Whether this step writes the arrangement.

        A view's first step may run beside the steps of others, so it writes only what is as new as
        itself; the rest is theirs.
        """
        if arrangement.id in self.others:
            return False
        own = self.state.upper(self._collection(arrangement.id))
        if any(step.hydrating for step in self.views):
            return own == Frontier.of(arrangement.start)
        return True

    def advanced(self) -> Iterator[SharedArrangement]:
        """Yield the shared arrangements that this step writes."""
        for arrangement in self.shared.values():
            if self._advances(arrangement):
                yield arrangement


def plan_view(state: State, view: MaintainedView, cuts: Cuts | None = None) -> ViewStep | None:
    """Return the next step of a view; ``None`` if its inputs have not moved.

    ``cuts`` are those of other views in this state; what is not among them is added.
    """
    interval = due(state, view)
    if interval is None:
        return None
    cuts = {} if cuts is None else cuts
    lower, upper = bound(interval.lower), bound(interval.upper)
    hydrating = lower == view.start
    deltas, errors = {}, {}
    for relation, gid in view.relations.items():
        what = gid, lower, upper, hydrating
        if what not in cuts:
            cuts[what] = cut(collection_of(state, gid), lower, upper, hydrating=hydrating)
        deltas[relation], errors[relation] = cuts[what]
    return ViewStep(state, view, interval, deltas, errors)


def plan_group(
    state: State, views: Sequence[ViewStep], live: Iterable[MaintainedView] = ()
) -> GroupStep:
    """Return the step of these views together; ``live`` are all views there are.

    Views that call functions are stepped beside those that do not, and leave to them what both use.
    """
    wanted = {gid for step in views for gid in step.view.shared}
    known = arrangements(state)
    others: set[GlobalId] = set()
    if any(step.view.calls for step in views):
        others = {gid for view in live if not view.calls for gid in view.shared}
    shared = {gid: known[gid] for gid in sorted(wanted)}
    return GroupStep(state, tuple(views), shared, frozenset(others))


def commands(
    step: GroupStep, done: Done, errors: Mapping[GlobalId, Sequence[Part]]
) -> tuple[Command, ...]:
    """Return what the driver commits for a step.

    ``errors`` are parts of the error side, by view.
    """
    made: list[Command] = []
    for arrangement in step.advanced():
        made += _advance(step.state, arrangement, done.parts.get(arrangement.id, ()))
    for view_step in step.views:
        view, interval = view_step.view, view_step.interval
        parts = (*done.parts.get(view.id, ()), *errors.get(view.id, ()))
        made.append(_append(view.id, interval, parts))
        for gid in view.stored.values():
            own = Interval(step.state.upper(collection_of(step.state, gid)), interval.upper)
            made.append(_append(gid, own, tuple(done.parts.get(gid, ()))))
        made += _holds(step.state, view, interval)
    return tuple(made)


def idle_commands(state: State, steps: Iterable[ViewStep]) -> tuple[Command, ...]:
    """Return what is committed for views over times at which nothing happened to them.

    Only the output moves; the holds follow now and then, so that an idle tick stays small.
    """
    made: list[Command] = []
    for step in steps:
        made.append(_append(step.view.id, step.interval, ()))
        if any(_lags(state, gid, step) for gid in (*step.view.inputs, *step.view.shared)):
            made += _holds(state, step.view, step.interval)
    return tuple(made)


def _lags(state: State, gid: GlobalId, step: ViewStep) -> bool:
    now = collection_of(state, gid).readers[step.view.reader_id].since
    return bound(now) + IDLE_HOLD_LAG_MS < bound(_held(state, step.view, step.interval))


def _append(gid: GlobalId, interval: Interval, parts: Sequence[Part]) -> Command:
    name = token(gid, interval)
    return CompareAndAppend(gid, name, interval.lower, interval.upper, tuple(parts))


def _advance(
    state: State, arrangement: SharedArrangement, parts: Sequence[Part]
) -> Iterator[Command]:
    own = state.upper(collection_of(state, arrangement.id))
    upper = state.upper(collection_of(state, arrangement.relation))
    if own < upper:
        interval = Interval(own, upper)
        yield _append(arrangement.id, interval, parts)
        yield DowngradeReader(arrangement.relation, arrangement.reader_id, interval.hold)


def _holds(state: State, view: MaintainedView, interval: Interval) -> Iterator[Command]:
    until = _held(state, view, interval)
    for gid in (*view.inputs, *view.shared):
        yield DowngradeReader(gid, view.reader_id, until)
    if view.stored:
        yield AllowCompaction(tuple((gid, interval.hold) for gid in view.stored.values()))


def _held(state: State, view: MaintainedView, interval: Interval) -> Times:
    return held(view, state.collections[view.id], interval)
