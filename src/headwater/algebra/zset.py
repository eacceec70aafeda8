"""Collections with multiplicities, in memory: the reference model of everything.

A :class:`ZSet` is a function from rows to integers that is zero almost everywhere: a multiset in
which a row may also be missing (a negative count). Z-sets form a commutative group under ``+``, and
``scale``, ``map``, ``filter`` and ``join`` are linear in it; ``distinct`` is not. A *collection* at
one time is a Z-set without negative counts; a *change* is any Z-set.

:class:`Updates` is a collection over time, ``{(row, time, diff)}``, with

    updates.at(t)  =  the sum of all diffs at times s <= t,  row by row
    updates.advance(since).at(t) == updates.at(t)   for every t beyond since

Both are kept consolidated (equal entries summed, zeros dropped), so ``==`` is equality of meaning.

The *oracles* use them: whatever the system answers at ``t`` must equal what the model says. So the
code here prefers the definition to speed, and must never share code with what it judges.

Rows are compared by Python equality: ``1``, ``1.0`` and ``True`` are one row, and a NaN differs
from itself. A suite over SQL values gives rows in a canonical form of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from headwater.algebra.frontier import Frontier
from headwater.algebra.order import PartialOrder

Row = TypeVar("Row", bound=Hashable)
Other = TypeVar("Other", bound=Hashable)
Output = TypeVar("Output", bound=Hashable)
T = TypeVar("T", bound=PartialOrder)


def _summed(entries: Iterable[tuple[Row, int]]) -> dict[Row, int]:
    counts: defaultdict[Row, int] = defaultdict(int)
    for row, count in entries:
        counts[row] += count
    return {row: count for row, count in counts.items() if count}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ZSet(Generic[Row]):
    """Rows with integer multiplicities.

    Invariant: no stored count is zero.

    >>> orders = ZSet.of("a", "a", "b")
    >>> orders
    ZSet{'a': 2, 'b': 1}
    >>> orders - ZSet.of("b"), orders + -orders == ZSet.empty()
    (ZSet{'a': 2}, True)
    """

    _counts: Mapping[Row, int]

    def __post_init__(self) -> None:
        assert all(self._counts.values()), "a row with count zero is not in the Z-set"

    @classmethod
    def empty(cls) -> ZSet[Row]:
        """Return the zero of the group."""
        return cls({})

    @classmethod
    def of(cls, *rows: Row) -> ZSet[Row]:
        """Return the multiset of ``rows``, each once for every time it is given."""
        return cls(_summed((row, 1) for row in rows))

    @classmethod
    def consolidate(cls, entries: Iterable[tuple[Row, int]]) -> ZSet[Row]:
        """Return the sum of ``(row, count)`` entries."""
        return cls(_summed(entries))

    def __add__(self, other: ZSet[Row]) -> ZSet[Row]:
        return ZSet.consolidate((*self.items(), *other.items()))

    def __neg__(self) -> ZSet[Row]:
        return self.scale(-1)

    def __sub__(self, other: ZSet[Row]) -> ZSet[Row]:
        return self + -other

    def scale(self, factor: int) -> ZSet[Row]:
        """Return every count multiplied by ``factor``."""
        return ZSet.consolidate((row, count * factor) for row, count in self.items())

    def map(self, function: Callable[[Row], Output]) -> ZSet[Output]:
        """Return the image of the rows; counts of rows that become equal are added."""
        return ZSet.consolidate((function(row), count) for row, count in self.items())

    def flat_map(self, function: Callable[[Row], Iterable[Output]]) -> ZSet[Output]:
        """Return all outputs of all rows, each with its row's count."""
        return ZSet.consolidate(
            (out, count) for row, count in self.items() for out in function(row)
        )

    def filter(self, keep: Callable[[Row], bool]) -> ZSet[Row]:
        """Return the rows that ``keep`` wants."""
        return ZSet({row: count for row, count in self.items() if keep(row)})

    def join(
        self,
        other: ZSet[Other],
        key: Callable[[Row], Hashable],
        other_key: Callable[[Other], Hashable],
        combine: Callable[[Row, Other], Output],
    ) -> ZSet[Output]:
        """Return ``combine`` of every pair with equal keys; counts are multiplied. Bilinear.

        A key of ``None`` is a key like any other here: SQL's ``=`` on NULL is a filter before it.

        >>> people = ZSet.of((1, "ann"), (2, "bo"))
        >>> people.join(ZSet.of((1, 10)), lambda p: p[0], lambda o: o[0], lambda p, o: (p[1], o[1]))
        ZSet{('ann', 10): 1}
        """
        by_key: defaultdict[Hashable, list[tuple[Other, int]]] = defaultdict(list)
        for row, count in other.items():
            by_key[other_key(row)].append((row, count))
        return ZSet.consolidate(
            (combine(left, right), left_count * right_count)
            for left, left_count in self.items()
            for right, right_count in by_key.get(key(left), ())
        )

    def distinct(self) -> ZSet[Row]:
        """Return each row with a positive count, once."""
        return ZSet({row: 1 for row, count in self.items() if count > 0})

    @property
    def is_multiset(self) -> bool:
        """Whether no row is missing, as of every collection that can be shown to a client."""
        return all(count > 0 for count in self._counts.values())

    def rows(self) -> list[Row]:
        """Return every row as often as it is in this multiset, ordered by how it prints."""
        assert self.is_multiset, f"a row is missing: {self}"
        return [row for row in sorted(self._counts, key=repr) for _ in range(self[row])]

    def total(self) -> int:
        """Return the sum of all counts."""
        return sum(self._counts.values())

    def items(self) -> Iterable[tuple[Row, int]]:
        """Return the rows with their counts, none of them zero."""
        return self._counts.items()

    def __getitem__(self, row: Row) -> int:
        return self._counts.get(row, 0)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZSet) and self._counts == other._counts

    def __hash__(self) -> int:
        return hash(frozenset(self._counts.items()))

    def __repr__(self) -> str:
        entries = sorted(f"{row!r}: {count}" for row, count in self._counts.items())
        return "ZSet{" + ", ".join(entries) + "}"


@dataclass(frozen=True, slots=True, repr=False)
class Updates(Generic[Row, T]):
    """A collection over time, as the changes that make it.

    >>> stock = Updates.of(("pear", 1, 2), ("fig", 3, 1), ("pear", 5, -2))
    >>> stock.at(4), stock.at(5)
    (ZSet{'fig': 1, 'pear': 2}, ZSet{'fig': 1})
    >>> stock.advance(Frontier.of(5))
    Updates{('fig', 5, 1)}
    """

    _entries: ZSet[tuple[Row, T]]

    @classmethod
    def empty(cls) -> Updates[Row, T]:
        """Return the collection that is empty at every time."""
        return cls(ZSet.empty())

    @classmethod
    def of(cls, *updates: tuple[Row, T, int]) -> Updates[Row, T]:
        """Return the sum of ``(row, time, diff)`` updates."""
        return cls.consolidate(updates)

    @classmethod
    def consolidate(cls, updates: Iterable[tuple[Row, T, int]]) -> Updates[Row, T]:
        """Return the sum of ``(row, time, diff)`` updates: equal ones added, zeros dropped."""
        return cls(ZSet.consolidate(((row, time), diff) for row, time, diff in updates))

    @classmethod
    def from_changes(cls, changes: Mapping[T, ZSet[Row]]) -> Updates[Row, T]:
        """Return the collection that changes by ``changes[t]`` at each time ``t``."""
        return cls.consolidate(
            (row, time, diff) for time, change in changes.items() for row, diff in change.items()
        )

    def at(self, time: T) -> ZSet[Row]:
        """Return the collection at ``time``: everything that happened at or before it."""
        return ZSet.consolidate((row, diff) for row, s, diff in self if s <= time)

    def change_at(self, time: T) -> ZSet[Row]:
        """Return what changes at exactly ``time``."""
        return ZSet.consolidate((row, diff) for row, s, diff in self if s == time)

    def between(self, lower: Frontier[T], upper: Frontier[T]) -> Updates[Row, T]:
        """Return the updates at times beyond ``lower`` and not beyond ``upper``."""
        return Updates.consolidate(u for u in self if lower.allows(u[1]) and not upper.allows(u[1]))

    def advance(self, since: Frontier[T]) -> Updates[Row, T]:
        """Return the same collection to every reader beyond ``since``, with as few updates."""
        advanced = ((row, since.advance(time), diff) for row, time, diff in self)
        return Updates.consolidate((row, t, diff) for row, t, diff in advanced if t is not None)

    def times(self) -> frozenset[T]:
        """Return the times at which something changes."""
        return frozenset(time for _, time, _ in self)

    def __add__(self, other: Updates[Row, T]) -> Updates[Row, T]:
        return Updates(self._entries + other._entries)

    def __neg__(self) -> Updates[Row, T]:
        return Updates(-self._entries)

    def __sub__(self, other: Updates[Row, T]) -> Updates[Row, T]:
        return self + -other

    def __iter__(self) -> Iterator[tuple[Row, T, int]]:
        for (row, time), diff in self._entries.items():
            yield row, time, diff

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return "Updates{" + ", ".join(sorted(map(repr, self))) + "}"
