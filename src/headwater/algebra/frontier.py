"""Frontiers: antichains of times, the lower bound of what may still change.

A frontier ``F`` stands for the set of times beyond it, ``{t : f <= t for some f in F}``. The empty
frontier is *closed*: no time is beyond it. Frontiers form a lattice under

    F <= G   iff   every time beyond G is beyond F            (closed is the greatest)
    meet     =     the frontier of the union of both sets     (the earlier one)
    join     =     the frontier of the intersection           (the later one)

Invariant: no element is ``<=`` another. Kept by :meth:`Frontier.of`, refused otherwise by the
constructor, so that every ``Frontier`` in the program holds it. Relied on by everybody.

**Advancing.** Once nobody reads before ``F`` any more, a time ``s`` may be replaced by

    s advanced by F  =  the meet of join(s, f) over all f in F      (nothing, where no join exists)

because for every time ``t`` beyond ``F``: ``s <= t`` iff ``s.advanced <= t``. It is the best such
replacement: times that no reader beyond ``F`` can tell apart become equal, so their updates cancel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

from headwater.algebra.order import PartialOrder, join, meet

T = TypeVar("T", bound=PartialOrder)


def _minimal(times: Iterable[T]) -> tuple[T, ...]:
    kept: list[T] = []
    for time in times:
        if any(other <= time for other in kept):
            continue
        kept = [other for other in kept if not time <= other]
        kept.append(time)
    return tuple(kept)


@dataclass(frozen=True, slots=True, eq=False)
class Frontier(Generic[T]):
    """A set of mutually incomparable times.

    >>> Frontier.of(3, 5, 4)
    Frontier{3}
    >>> Frontier.of(3).allows(3), Frontier.of(3).allows(2), Frontier.closed().allows(9)
    (True, False, False)
    >>> Frontier.of(3) < Frontier.of(4) < Frontier.closed()
    True
    """

    _elements: tuple[T, ...]

    def __post_init__(self) -> None:
        if len(self._elements) > 1:
            assert len(_minimal(self._elements)) == len(self._elements), "not an antichain"

    @classmethod
    def of(cls, *times: T) -> Frontier[T]:
        """Keep the minimal elements of ``times``; none at all is the closed frontier."""
        return cls(times if len(times) < 2 else _minimal(times))

    @classmethod
    def closed(cls) -> Frontier[T]:
        """Return the empty frontier: no time is beyond it."""
        return cls(())

    @property
    def is_closed(self) -> bool:
        """Whether nothing may change any more."""
        return not self._elements

    def allows(self, time: T) -> bool:
        """Whether ``time`` is beyond this frontier, that is: may still change."""
        # Mostly there is one, and this is asked all the time: a generator costs thrice as much.
        for element in self._elements:  # noqa: SIM110
            if element <= time:
                return True
        return False

    def only(self) -> T:
        """Return the single element of an open frontier of a totally ordered time."""
        (element,) = self._elements
        return element

    def meet(self, other: Frontier[T]) -> Frontier[T]:
        """Return the earlier of both: beyond it is what is beyond either."""
        if self <= other:
            return self
        if other <= self:
            return other
        return Frontier(_minimal((*self._elements, *other._elements)))

    def join(self, other: Frontier[T]) -> Frontier[T]:
        """Return the later of both: beyond it is what is beyond both."""
        if self <= other:
            return other
        if other <= self:
            return self
        bounds = (join(a, b) for a in self._elements for b in other._elements)
        return Frontier(_minimal(bound for bound in bounds if bound is not None))

    def advance(self, time: T) -> T | None:
        """Return the time that stands for ``time`` to every reader beyond this frontier.

        ``None`` says that no time beyond this frontier is at or after ``time``, so that an update
        at it may be forgotten; with a closed frontier that is every update.

        >>> Frontier.of(5).advance(3), Frontier.of(5).advance(8), Frontier.closed().advance(3)
        (5, 8, None)
        """
        bounds = [bound for f in self._elements if (bound := join(time, f)) is not None]
        return reduce(meet, bounds) if bounds else None

    def __le__(self, other: Frontier[T]) -> bool:
        for time in other._elements:  # noqa: SIM110
            if not self.allows(time):
                return False
        return True

    def __lt__(self, other: Frontier[T]) -> bool:
        return self <= other and not other <= self

    def __ge__(self, other: Frontier[T]) -> bool:
        return other <= self

    def __gt__(self, other: Frontier[T]) -> bool:
        return other < self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frontier):
            return False
        same = self._elements == other._elements
        return same or set(self._elements) == set(other._elements)

    def __hash__(self) -> int:
        return hash(frozenset(self._elements))

    def __iter__(self) -> Iterator[T]:
        return iter(self._elements)

    def __repr__(self) -> str:
        return "Frontier{" + ", ".join(map(str, sorted(self._elements, key=str))) + "}"

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, sorted(self._elements, key=str))) + "}"
