"""What happened to a location, as its users saw it, and whether that can be the truth.

A *history* is what a nemesis (``testing/nemesis.py``) recorded: operations with their outcomes,
and observations (snapshots, deliveries of a listen, frontiers). :func:`violations` holds it against
the model, which is nothing but arithmetic on multisets:

    contents(c, t)  =  sum of the updates of c at times <= t, over all operations that happened

An operation *happened* if it was acknowledged; it did not if it was refused; one whose outcome is
unknown happened iff the final contents show it. Every operation carries in each collection it
touches a **marker**: a row of its own, retracted by nobody unless it was acknowledged. So what an
unknown operation did can be read off, and all else has to agree with that, for ever:

- *definite*: every snapshot ever read at ``(c, t)`` is ``contents(c, t)``, in distinct rows;
- *exactly once*: the final contents are, so nothing is lost or doubled;
- *atomic*: an operation's markers are there in all its collections, or in none;
- *listens*: the updates delivered for ``[lower, upper)`` are those at these times, at their own
  time, and each interval begins where the one before ended;
- *frontiers* never go back, reach what was acknowledged, and pass nothing that was not asked for;
- *fences*: nobody is acknowledged anything he asked for after a later epoch began;
- *order*: a write is refused for being late only by a seal asked for before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Row = tuple[int, str]
Update = tuple[Row, int, int]
Contents = Counter[Row]


class Outcome(Enum):
    """What its caller knows of an operation."""

    PENDING = "pending"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """It certainly did not happen, and never will."""
    UNKNOWN = "unknown"
    """It happened entirely or not at all, and stays so."""


@dataclass(slots=True)
class Operation:
    """Something asked of a location that may change it."""

    text: str
    epoch: int
    begun: int
    updates: Mapping[str, tuple[Update, ...]] = field(default_factory=dict)
    """By collection; the first of each is the marker."""
    uppers: Mapping[str, int] = field(default_factory=dict)
    sinces: Mapping[str, int] = field(default_factory=dict)
    outcome: Outcome = Outcome.PENDING
    ended: int = -1
    reason: str = ""
    late_for: Mapping[str, int] = field(default_factory=dict)
    """The sealed frontier that a refusal named, by collection."""

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"#{self.begun} {self.text} -> {self.outcome.value}{reason}"


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """A snapshot's rows, as they came: with their multiplicities."""

    at: int
    collection: str
    as_of: int
    rows: tuple[tuple[Row, int], ...]


@dataclass(frozen=True, slots=True)
class Delivered:
    """One event of a listen: all updates at times in ``[lower, upper)``."""

    at: int
    listen: int
    collection: str
    lower: int
    upper: int
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class FrontiersSeen:
    """A collection's frontiers, seen by one observer; ``fresh`` if read from the log itself."""

    at: int
    observer: str
    collection: str
    since: int
    upper: int
    fresh: bool


@dataclass(frozen=True, slots=True)
class NotReadable:
    """A read was refused because history before ``as_of`` had been given up."""

    at: int
    collection: str
    as_of: int


@dataclass(frozen=True, slots=True)
class EpochBegan:
    """From here on nobody with an earlier epoch may be acknowledged anything."""

    at: int
    epoch: int


Observation = SnapshotRead | Delivered | FrontiersSeen | NotReadable | EpochBegan


@dataclass(slots=True)
class History:
    """Everything that was asked and seen, in order."""

    operations: list[Operation] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    final: dict[str, tuple[tuple[Row, int], ...]] = field(default_factory=dict)
    """What each collection held after the end, at a time beyond all others."""
    clock: int = 0

    def tick(self) -> int:
        """Return the next point of the history's own time."""
        self.clock += 1
        return self.clock


def violations(history: History) -> Iterator[str]:
    """Name everything in a history that cannot be."""
    for operation in history.operations:
        if operation.outcome is Outcome.PENDING:
            yield f"{operation}: it was never answered"
    happened = []
    for operation in history.operations:
        found = _happened(history, operation)
        if isinstance(found, str):
            yield found
        elif found:
            happened.append(operation)
    model = _Model(happened)
    yield from _reads(history, model)
    yield from _frontiers(history)
    yield from _fences(history)
    yield from _order(history)


def _happened(history: History, operation: Operation) -> bool | str:
    """Return whether the operation took effect; a complaint if only some of it did."""
    if operation.outcome is not Outcome.UNKNOWN:
        return operation.outcome is Outcome.ACKNOWLEDGED
    shown = {
        name: any(row == updates[0][0] for row, _ in history.final.get(name, ()))
        for name, updates in operation.updates.items()
    }
    if len(set(shown.values())) > 1:
        return f"{operation}: it is torn: {shown}"
    return any(shown.values())


class _Model:
    """The updates of what happened."""

    def __init__(self, happened: list[Operation]) -> None:
        self._updates: dict[str, list[Update]] = {}
        for operation in happened:
            for name, updates in operation.updates.items():
                self._updates.setdefault(name, []).extend(updates)

    def contents(self, collection: str, as_of: int | None) -> Contents:
        contents: Contents = Counter()
        for row, time, diff in self._updates.get(collection, ()):
            if as_of is None or time <= as_of:
                contents[row] += diff
        return _without_zeros(contents)

    def between(self, collection: str, lower: int, upper: int) -> Counter[tuple[Row, int]]:
        found: Counter[tuple[Row, int]] = Counter()
        for row, time, diff in self._updates.get(collection, ()):
            if lower <= time < upper:
                found[row, time] += diff
        return Counter({update: diff for update, diff in found.items() if diff})


def _without_zeros(contents: Contents) -> Contents:
    return Counter({row: diff for row, diff in contents.items() if diff})


def _difference(seen: Mapping[Any, int], model: Mapping[Any, int]) -> str:
    wrong = {
        key: (seen.get(key, 0), model.get(key, 0))
        for key in {*seen, *model}
        if seen.get(key, 0) != model.get(key, 0)
    }
    shown = sorted(f"{_short(key)} is {is_} not {must}" for key, (is_, must) in wrong.items())
    return "; ".join(shown[:6])


def _short(key: object) -> str:
    text = repr(key)
    return text if len(text) <= 40 else f"{text[:37]}…"


def _reads(history: History, model: _Model) -> Iterator[str]:
    frontiers: dict[int, int] = {}
    for seen in history.observations:
        match seen:
            case SnapshotRead():
                what = f"#{seen.at} snapshot of {seen.collection} at {seen.as_of}"
                yield from _rows(what, seen.rows, model.contents(seen.collection, seen.as_of))
            case Delivered():
                what = (
                    f"#{seen.at} listen {seen.listen} of {seen.collection} "
                    f"over [{seen.lower}, {seen.upper})"
                )
                expected = frontiers.get(seen.listen, seen.lower)
                if seen.lower != expected:
                    yield f"{what}: the interval before ended at {expected}"
                frontiers[seen.listen] = seen.upper
                found: Counter[tuple[Row, int]] = Counter()
                for row, time, diff in seen.updates:
                    found[row, time] += diff
                due = model.between(seen.collection, seen.lower, seen.upper)
                if found != due:
                    yield f"{what}: {_difference(found, due)}"
            case FrontiersSeen() | NotReadable() | EpochBegan():
                pass
    for name, rows in history.final.items():
        yield from _rows(f"the final contents of {name}", rows, model.contents(name, None))


def _rows(what: str, rows: tuple[tuple[Row, int], ...], model: Contents) -> Iterator[str]:
    contents: Contents = Counter()
    for row, diff in rows:
        if row in contents:
            yield f"{what}: row {_short(row)} comes twice"
        contents[row] += diff
    if contents != model:
        yield f"{what}: {_difference(contents, model)}"


def _frontiers(history: History) -> Iterator[str]:
    last: dict[tuple[str, str], FrontiersSeen] = {}
    for seen in history.observations:
        if isinstance(seen, NotReadable):
            asked = _largest(history, seen.collection, seen.at, since=True)
            if asked <= seen.as_of:
                yield f"#{seen.at} {seen.collection} at {seen.as_of}: nobody gave it up"
        if not isinstance(seen, FrontiersSeen):
            continue
        what = f"#{seen.at} {seen.collection}, seen by {seen.observer}"
        before = last.get((seen.observer, seen.collection))
        if before is not None and (seen.since < before.since or seen.upper < before.upper):
            yield (
                f"{what}: [{seen.since}, {seen.upper}) came after [{before.since}, {before.upper})"
            )
        last[seen.observer, seen.collection] = seen
        for since, value in ((True, seen.since), (False, seen.upper)):
            word = "since" if since else "upper"
            if value > _largest(history, seen.collection, seen.at, since=since):
                yield f"{what}: nobody asked for {word} {value}"
            if seen.fresh and value < _acknowledged(history, seen, since=since):
                yield f"{what}: {word} is {value}, and more was acknowledged"


def _moves(operation: Operation, *, since: bool) -> Mapping[str, int]:
    return operation.sinces if since else operation.uppers


def _largest(history: History, collection: str, at: int, *, since: bool) -> int:
    """Return the furthest frontier that was asked for before ``at``."""
    asked = (
        _moves(operation, since=since).get(collection, 0)
        for operation in history.operations
        if operation.begun < at and operation.outcome is not Outcome.REFUSED
    )
    return max(asked, default=0)


def _acknowledged(history: History, seen: FrontiersSeen, *, since: bool) -> int:
    done = (
        _moves(operation, since=since).get(seen.collection, 0)
        for operation in history.operations
        if operation.outcome is Outcome.ACKNOWLEDGED and operation.ended < seen.at
    )
    return max(done, default=0)


def _fences(history: History) -> Iterator[str]:
    began = [seen for seen in history.observations if isinstance(seen, EpochBegan)]
    for operation in history.operations:
        if operation.outcome is not Outcome.ACKNOWLEDGED:
            continue
        for epoch in began:
            if epoch.at < operation.begun and operation.epoch < epoch.epoch:
                yield (
                    f"{operation}: epoch {operation.epoch} was acknowledged after "
                    f"epoch {epoch.epoch} began at #{epoch.at}"
                )


def _order(history: History) -> Iterator[str]:
    for operation in history.operations:
        for name, frontier in operation.late_for.items():
            asked = _largest(history, name, operation.begun, since=False)
            if frontier > asked:
                yield (
                    f"{operation}: {name} was sealed to {frontier} by a request made after it "
                    f"(before it, at most to {asked})"
                )
