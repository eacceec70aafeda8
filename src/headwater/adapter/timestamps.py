"""Choosing the time of a read: a pure decision over frontiers.

A read has one time for everything it reads. What bounds it, by isolation level and clause:

=====================  ==========================================  ============================
                       time                                        waits for
=====================  ==========================================  ============================
strict serializable    the oracle's read time (or the join of the  every input to be complete
                       sinces, if that is later)                   there
serializable           the newest time complete in every input     nothing
bounded staleness d    the same; refused if it is older than the   nothing
                       oracle's read time less ``d``
``AS OF t``            ``t``; refused before a since               every input
``AS OF AT LEAST t``   the first readable time not before ``t``    every input
=====================  ==========================================  ============================

A clause opts a read out of the timeline: it neither reads nor moves the oracle. Where nothing is
complete yet at or after the sinces, ``serializable`` waits for the first readable time.

Kept by: :func:`choose`. Relied on by: every read of the adapter, and ``EXPLAIN TIMESTAMP``, which
prints the decision itself and not a description of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.adapter.errors import NeverReadable, StalenessExceeded, TimestampNotReadable
from headwater.adapter.sql.statements import AsOf


@dataclass(frozen=True, slots=True)
class StrictSerializable:
    """What anybody was told is seen by everybody after it."""

    def __str__(self) -> str:
        return "strict serializable"


@dataclass(frozen=True, slots=True)
class Serializable:
    """Some serial order; never waits."""

    def __str__(self) -> str:
        return "serializable"


@dataclass(frozen=True, slots=True)
class BoundedStaleness:
    """Serializable, and not older than ``bound_ms``; never waits."""

    bound_ms: int

    def __str__(self) -> str:
        return f"bounded staleness {self.bound_ms}ms"


Isolation = StrictSerializable | Serializable | BoundedStaleness

STRICT: Final = StrictSerializable()


@dataclass(frozen=True, slots=True)
class Input:
    """One collection that is read: ``[since, upper)``.

    ``since`` None: never readable again. ``upper`` None: complete for ever.
    """

    name: str
    since: int | None
    upper: int | None

    @property
    def newest(self) -> int | None:
        """The newest complete time; None: any is."""
        return None if self.upper is None else self.upper - 1


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound of the chosen time, and what it comes from."""

    time: int
    why: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The time of a read, why it is that, and whether it can be answered at once."""

    time: int
    binding: Bound
    oracle: int | None
    """The oracle's read time, where it was asked."""
    isolation: Isolation
    inputs: tuple[Input, ...]

    @property
    def incomplete(self) -> tuple[Input, ...]:
        """What has to be waited for."""
        return tuple(i for i in self.inputs if i.upper is not None and i.upper <= self.time)


def asks_oracle(isolation: Isolation, as_of: AsOf | None) -> bool:
    """Whether the choice needs the oracle's (confirmed) read time."""
    return as_of is None and not isinstance(isolation, Serializable)


def choose(
    inputs: Sequence[Input],
    isolation: Isolation,
    as_of: AsOf | None,
    oracle: int | None,
) -> Choice:
    """Choose the time of a read, or say why there is none."""
    for each in inputs:
        if each.since is None:
            raise NeverReadable(each.name)
    sinces = [Bound(i.since, f'since of "{i.name}"') for i in inputs if i.since is not None]
    if as_of is not None:
        binding = _by_clause(as_of, inputs, sinces)
    elif isinstance(isolation, StrictSerializable):
        assert oracle is not None, "a strict read asks the oracle"
        binding = _latest([Bound(oracle, "oracle read time"), *sinces])
    else:
        binding = _freshest(inputs, sinces, oracle)
        if isinstance(isolation, BoundedStaleness):
            assert oracle is not None, "staleness is against the oracle"
            if binding.time < oracle - isolation.bound_ms or _waits(inputs, binding.time):
                raise StalenessExceeded(isolation.bound_ms, binding.time, oracle)
    return Choice(binding.time, binding, oracle, isolation, tuple(inputs))


def _by_clause(as_of: AsOf, inputs: Sequence[Input], sinces: Sequence[Bound]) -> Bound:
    if as_of.at_least:
        return _latest([Bound(as_of.time, "AS OF AT LEAST"), *sinces])
    for each in inputs:
        if each.since is not None and as_of.time < each.since:
            raise TimestampNotReadable(each.name, as_of.time, each.since, each.upper)
    return Bound(as_of.time, "AS OF")


def _freshest(inputs: Sequence[Input], sinces: Sequence[Bound], oracle: int | None) -> Bound:
    uppers = [
        Bound(i.newest, f'newest complete time of "{i.name}"')
        for i in inputs
        if i.newest is not None
    ]
    if not uppers:
        # Nothing moves any more, or nothing is read: every time from the sinces on reads the same.
        return _latest([Bound(oracle or 0, "nothing that is read moves"), *sinces])
    return _latest([min(uppers, key=lambda bound: bound.time), *sinces])


def _waits(inputs: Sequence[Input], time: int) -> bool:
    return any(i.upper is not None and i.upper <= time for i in inputs)


def _latest(bounds: Iterable[Bound]) -> Bound:
    return max(bounds, key=lambda bound: bound.time)


def explained(choice: Choice, timeline: str) -> list[str]:
    """Return ``EXPLAIN TIMESTAMP`` of a choice, line by line."""
    waits = ", ".join(f'"{i.name}"' for i in choice.incomplete)
    lines = [
        f"query timestamp: {choice.time}",
        f"bound by: {choice.binding.why} ({choice.binding.time})",
        f"oracle read timestamp: {'not asked' if choice.oracle is None else choice.oracle}",
        f"isolation: {choice.isolation}",
        f"timeline: {timeline}",
        f"can respond immediately: {'no, waits for ' + waits if waits else 'yes'}",
    ]
    for each in choice.inputs:
        upper = "closed" if each.upper is None else each.upper
        lines.append(f'"{each.name}": readable [{each.since}, {upper})')
    return lines
