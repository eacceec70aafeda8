"""A dataflow in phases: what a large first step does range by range, in a task each.

    phase 0 ──▶ exchange by key ──▶ phase 1 ──▶ exchange by key ──▶ … ──▶ phase n

A view's first step takes in all that its inputs have. Most operators look at one key at a time: the
rows of a *range* of key hashes need nothing of any other range. So a phase is run once for every
range, each time by one task, and its operators are those for which the ranges of that phase are
*closed*. An operator with another key than the one before it is in a later phase, and what it reads
is put aside, by ranges of its own key, until then (:class:`~graph.Exchanged`).

    operator                                  the ranges of its phase
    filters, projections, Read, Output,
    Temporal, Unversion                       any: a range of one key, or some of an input's parts
    Accumulate, Distinct, Reduce, …, Bag      of its groups; without groups, all rows in range 0
    Stretches                                 of its partitions; without, all rows in range 0
    Semi, Versions, TopK                      of the key of its arrangement
    DeltaJoin by one key for all inputs       of that key
    any other DeltaJoin, and one by a
    constant                                  any, after its arrangements were written as wholes

A phase is a dataflow again, with the lanes of the whole one: :class:`~graph.Read` of a relation
called after the exchange (:func:`exchanged`) writes the lane that was put aside. An edge is
evaluated in the phase of the operator it comes from, so that what is filtered is never exchanged;
an output is written wherever rows of it come up.

Shared arrangements that are as new as the view are written in phase 1, from what phase 0 scattered
of their collections.

What a temporal filter announces of a row is of this row alone, and its schedule, a multiset, is the
sum of what ranges announce: their parts overlap in keys, as runs may.

Pure. Kept by: this module, against an oracle in ``tests/unit/dataflow/test_ranges.py``. Relied on
by: ``compute/hydration.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headwater.compute.dataflow.chain import read_lanes
from headwater.compute.dataflow.edge import Lane
from headwater.compute.dataflow.flow import is_constant, is_key
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
    Laned,
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
    used_names,
)
from headwater.compute.ir.expression import Field

Key = tuple[str, ...] | None
"""By which columns rows are in ranges; ``None``: by none."""

FIRST_WRITTEN: Final = 1
"""The phase in which shared arrangements are written."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A lane, put aside by ranges of a key."""

    number: int
    lane: Lane


@dataclass(frozen=True, slots=True)
class Phase:
    """What is run for each range at a time."""

    flow: Dataflow | None
    """``None``: nothing is, but scattering what is stored."""
    relations: Mapping[str, Key]
    """By relation that it reads: by which of its columns; ``None``: some of its parts each."""
    received: tuple[Exchange, ...]
    arranged: frozenset[str]
    """Private arrangements that earlier phases have written."""
    writes: bool
    """Whether the shared arrangements are written in it."""


def exchanged(number: int) -> str:
    """Return the relation as which a phase reads what was put aside for it: no name of a user's."""
    return f"\0exchange {number}"


def is_alone(operator: Operator) -> bool:
    """Whether it has rows to show although nothing came in: in range 0 only."""
    if isinstance(operator, Accumulate | Reduce):
        return not operator.groups
    return isinstance(operator, Constant)


def phases(flow: Dataflow, fresh: Collection[str]) -> tuple[Phase, ...] | None:
    """Return the phases of a first step; ``None`` if it has to be run as a whole.

    ``fresh``: the shared arrangements that it writes, by their names in the dataflow.
    """
    planning = _Planning(_read_first(flow), fresh)
    try:
        return planning.planned()
    except _Impossible:
        return None


class _Impossible(Exception):
    """An operator reads one thing in two ways at once."""


def _read_first(flow: Dataflow) -> Dataflow:
    """Return the dataflow with a lane wherever a stored collection is read and not arranged.

    So it is exchanged with the columns that are needed, like any other lane.
    """
    lanes = list(flow.lanes)
    reads = {o.of: o.output for o in flow.operators if isinstance(o, Read)}
    operators: list[Operator] = []
    done: set[Scanned] = set()

    def laned(origin: Origin) -> Origin:
        if isinstance(origin, Laned):
            return origin
        if origin not in reads:
            reads[origin] = len(lanes)
            lanes.append(Lane(origin.columns))
        if origin not in done:
            done.add(origin)
            operators.append(Read(origin, reads[origin]))
        return Laned(reads[origin], origin.columns)

    for operator in flow.operators:
        match operator:
            case Read():
                laned(operator.of)
            case Accumulate() | Distinct() | Stretches():
                read = laned(operator.input)
                operators.append(msgspec.structs.replace(operator, input=read))
            case Semi():
                read = laned(operator.right)
                operators.append(msgspec.structs.replace(operator, right=read))
            case Bag():
                left, right = laned(operator.left), laned(operator.right)
                operators.append(msgspec.structs.replace(operator, left=left, right=right))
            case _:
                operators.append(operator)
    return msgspec.structs.replace(flow, lanes=tuple(lanes), operators=tuple(operators))


@dataclass
class _Planning:
    flow: Dataflow
    fresh: Collection[str]
    placed: list[tuple[int, Operator]] = field(default_factory=list)
    """Each operator with its phase, each after those it reads from."""
    writers: dict[int, int] = field(default_factory=dict)
    """By lane that an operator writes: its phase."""
    written: dict[str, int] = field(default_factory=dict)
    """By private arrangement: the phase that writes it."""
    ways: dict[tuple[int, str | int], Key] = field(default_factory=dict)
    """By phase and relation, or lane that is received: in ranges of which key it is read."""
    numbers: dict[tuple[int, Key], int] = field(default_factory=dict)
    """By lane and key: the exchange."""

    def __post_init__(self) -> None:
        self._incoming: dict[int, list[int]] = {}
        for place, edge in enumerate(self.flow.edges):
            self._incoming.setdefault(edge.target, []).append(place)

    def planned(self) -> tuple[Phase, ...]:
        for arrangement in self.flow.arrangements:
            if arrangement.name in self.fresh:
                marked = Arranged(arrangement.name, arrangement.of)
                self.placed.append((FIRST_WRITTEN, marked))
        for operator in self.flow.operators:
            if isinstance(operator, Output):
                for phase in sorted(set(self._sources(operator.lane))):
                    self.placed.append((phase, operator))
            elif isinstance(operator, DeltaJoin) and _common_key(self.flow, operator) is None:
                self._arrange(operator)
                self._place(operator, self._open(operator))
            else:
                self._place(operator, self._closed(operator))
        last = max(phase for phase, _ in self.placed)
        return tuple(self._phase(number) for number in range(last + 1))

    # ---- which phase ---------------------------------------------------------------------------

    def _closed(self, operator: Operator) -> list[tuple[Origin, Key]]:
        """Return what an operator reads, and by which key it has to be in ranges."""
        match operator:
            case Read():
                return [(operator.of, None)]
            case Unversion() | Temporal():
                return [(operator.input, None)]
            case Accumulate():
                return [(operator.input, operator.groups)]
            case Stretches():
                return [(operator.input, operator.partition)]
            case Distinct():
                return [(operator.input, _names(operator.input))]
            case Bag():
                sides = (operator.left, operator.right)
                return [(side, _names(side)) for side in sides]
            case Reduce():
                key = self.flow.arrangement(operator.arrangement).key
                return [(operator.input, key if operator.groups else ())]
            case TopK() | Versions():
                return [(operator.input, self.flow.arrangement(operator.arrangement).key)]
            case Semi():
                return [
                    (operator.left, self.flow.arrangement(operator.arrangement).key),
                    (operator.right, tuple(key.right for key in operator.keys)),
                ]
            case Arranged():
                return [(operator.of, _spread(self.flow.arrangement(operator.arrangement)))]
            case DeltaJoin():
                keys = _common_key(self.flow, operator)
                assert keys is not None, "else it is open"
                return list(zip(operator.inputs, keys, strict=True))
            case _:
                return []

    def _open(self, join: DeltaJoin) -> list[tuple[Origin, Key]]:
        """Return what a join reads whose inputs have no key in common: ranges of any kind."""
        keys = {hop.input: hop.arrangement for path in join.paths for hop in path}
        return [
            (origin, None)
            if isinstance(origin, Scanned)
            else (origin, _spread(self.flow.arrangement(keys[number])))
            for number, origin in enumerate(join.inputs)
        ]

    def _arrange(self, join: DeltaJoin) -> None:
        """Write what a join probes that is not written by then."""
        for name in sorted(used_names(join)):
            arrangement = self.flow.arrangement(name)
            if isinstance(arrangement.of, Laned) and name not in self.written:
                marked = Arranged(name, arrangement.of)
                self._place(marked, self._closed(marked))

    def _place(self, operator: Operator, reads: list[tuple[Origin, Key]]) -> None:
        phase, here = self._earliest(operator), None
        for origin, key in reads:
            if isinstance(origin, Scanned):
                phase = max(phase, 0 if key is None else FIRST_WRITTEN)
                continue
            sources = set(self._sources(origin.lane))
            if key is None and len(sources) == 1:
                (here,) = sources
            else:
                phase = max(phase, max(sources) + 1)
        if here is not None:
            assert len(reads) == 1, "an operator that takes any range has one input"
            phase = here
        else:
            while not self._agrees(phase, reads):
                phase += 1
            self._receive(phase, reads)
        self.placed.append((phase, operator))
        if not isinstance(operator, Arranged):
            assert not isinstance(operator, Output | Exchanged)
            self.writers[operator.output] = phase
        for name in used_names(operator):
            if name in {a.name for a in self.flow.arrangements if isinstance(a.of, Laned)}:
                self.written.setdefault(name, phase)

    def _earliest(self, operator: Operator) -> int:
        """Return the first phase in which what it probes is there."""
        is_open = isinstance(operator, DeltaJoin) and _common_key(self.flow, operator) is None
        phase = 0
        for name in used_names(operator):
            if name in self.fresh:
                phase = max(phase, FIRST_WRITTEN + is_open)
            elif name in self.written:
                phase = max(phase, self.written[name] + is_open)
        return phase

    def _sources(self, lane: int) -> list[int]:
        """Return the phases of the operators whose rows come into a lane."""
        if lane in self.writers:
            return [self.writers[lane]]
        edges = (self.flow.edges[place] for place in self._incoming[lane])
        return [phase for edge in edges for phase in self._sources(edge.source)]

    def _agrees(self, phase: int, reads: Iterable[tuple[Origin, Key]]) -> bool:
        """Whether nothing in the phase reads the same in another way."""
        wanted: dict[str | int, Key] = {}
        for origin, key in reads:
            name, by = _way(origin, key)
            if wanted.setdefault(name, by) != by:
                raise _Impossible
        return all(self.ways.get((phase, name), by) == by for name, by in wanted.items())

    def _receive(self, phase: int, reads: Iterable[tuple[Origin, Key]]) -> None:
        for origin, key in reads:
            name, by = _way(origin, key)
            self.ways[phase, name] = by
            if isinstance(name, int):
                self.numbers.setdefault((name, by), len(self.numbers))

    # ---- what a phase is -----------------------------------------------------------------------

    def _phase(self, number: int) -> Phase:
        operators: list[Operator] = []
        received: list[Exchange] = []
        relations: dict[str, Key] = {}
        for (phase, name), key in self.ways.items():
            if phase == number and isinstance(name, str):
                relations[name] = key
            elif phase == number and isinstance(name, int):
                which, lane = self.numbers[name, key], self.flow.lanes[name]
                fields = tuple(Field(column.name, column) for column in lane.columns)
                operators.append(Read(Scanned(exchanged(which), fields), name))
                received.append(Exchange(which, lane))
        operators += [operator for phase, operator in self.placed if phase == number]
        for (source, key), which in self.numbers.items():
            if number in self._sources(source) and self._is_wanted(source, key, after=number):
                operators.append(Exchanged(source, key, which))
        return Phase(
            self._flow(number, operators) if operators else None,
            relations,
            tuple(received),
            frozenset(name for name, phase in self.written.items() if phase < number),
            writes=number == FIRST_WRITTEN,
        )

    def _is_wanted(self, lane: int, key: Key, *, after: int) -> bool:
        return any(
            phase > after and name == lane and by == key for (phase, name), by in self.ways.items()
        )

    def _flow(self, number: int, operators: list[Operator]) -> Dataflow:
        given = {operator.output for operator in operators if isinstance(operator, Read)}
        wanted: set[int] = set()
        for operator in operators:
            for lane in read_lanes(operator):
                if lane not in given:
                    wanted.update(self._edges_to(lane, number))
        # By their places: a union of a collection with itself has the same edge twice.
        edges = tuple(self.flow.edges[place] for place in sorted(wanted))
        return msgspec.structs.replace(self.flow, edges=edges, operators=tuple(operators))

    def _edges_to(self, lane: int, number: int) -> list[int]:
        """Return the places of the edges by which rows of a phase's operators come into a lane."""
        found: list[int] = []
        for place in self._incoming.get(lane, ()) if lane not in self.writers else ():
            source = self.flow.edges[place].source
            before = self._edges_to(source, number)
            if before or self.writers.get(source) == number:
                found += [*before, place]
        return found


def _way(origin: Origin, key: Key) -> tuple[str | int, Key]:
    """Return what is read, and by which of its own columns it is in ranges."""
    if isinstance(origin, Laned):
        return origin.lane, key
    stored = {one.column.name: one.field for one in origin.fields}
    return origin.relation, None if key is None else tuple(stored[name] for name in key)


def _names(origin: Origin) -> tuple[str, ...]:
    return tuple(column.name for column in origin.columns)


def _spread(arrangement: Arrangement) -> tuple[str, ...]:
    """Return by which columns what is arranged may be in ranges, each of which writes its part.

    Its key; of what has one key for all rows the other columns, for all would be in one range.
    """
    if not is_constant(arrangement.key):
        return arrangement.key
    others = [c.name for c in arrangement.of.columns if c.name not in arrangement.key and is_key(c)]
    return tuple(others) or arrangement.key


def _common_key(flow: Dataflow, join: DeltaJoin) -> tuple[tuple[str, ...], ...] | None:
    """Return for each input the key by which all are joined; ``None`` if there is no such key."""
    keys: dict[int, tuple[str, ...]] = {}
    for hop in (hop for path in join.paths for hop in path):
        key = flow.arrangement(hop.arrangement).key
        if keys.setdefault(hop.input, key) != key:
            return None
    known = set(keys.values())
    if len(keys) < len(join.inputs) or any(map(is_constant, known)):
        return None
    if any(hop.probe not in known for path in join.paths for hop in path):
        return None
    ways: dict[str | int, Key] = {}
    for number, origin in enumerate(join.inputs):
        name, by = _way(origin, keys[number])
        if ways.setdefault(name, by) != by:  # Joined with itself, by another column.
            return None
    return tuple(keys[number] for number in range(len(join.inputs)))
