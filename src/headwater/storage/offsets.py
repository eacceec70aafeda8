"""Offsets: the frontier of a source as a table, partition by partition.

The frontiers of ``algebra/partitioned.py`` say of *every* partition, also of one that nobody has
seen yet, which offsets may still come. Of those frontiers a source only ever has the canonical
ones, *next offset of each partition, 0 for all others*, and this is their table:

    Offsets({p: o, ...}).frontier == source_frontier({p: o, ...})
    a <= b   iff   a.frontier <= b.frontier     (b is at least as far in every partition)

so comparing, meeting and storing cost the partitions that have progress, and no more: a directory
of ten thousand files is ten thousand rows, not a hundred million comparisons.

Invariant: no partition stands at 0 (it makes no difference to one never seen) and none below.
Kept by: the constructor. Relied on by: remap, reclock, resumption, every source. That the order is
the one of the algebra is a property in ``tests/unit/storage/test_offsets.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headwater.algebra.partitioned import SourceFrontier, source_frontier

Partition = str


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Offsets(Mapping[Partition, int]):
    """The next offset of each partition that has progress; of any other it is 0.

    >>> Offsets({"a": 7, "b": 0}), Offsets({"a": 7})["never seen"]
    ({a: 7}, 0)
    >>> Offsets({"a": 7}) <= Offsets({"a": 7, "b": 1}), Offsets({"c": 1}) <= Offsets({"a": 9})
    (True, False)
    """

    _next: Mapping[Partition, int] = field()

    def __init__(self, offsets: Mapping[Partition, int] | None = None) -> None:
        found = {}
        for partition, offset in sorted((offsets or {}).items()):
            if offset < 0:
                raise ValueError(f"offset {offset} of partition {partition!r} is negative")
            if offset:
                found[partition] = offset
        object.__setattr__(self, "_next", found)

    @property
    def frontier(self) -> SourceFrontier:
        """The same as an antichain of source times."""
        table: dict[int | str, int] = dict(self._next.items())
        return source_frontier(table)

    def __getitem__(self, partition: Partition) -> int:
        return self._next.get(partition, 0)

    def __contains__(self, partition: object) -> bool:
        return partition in self._next

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._next)

    def __len__(self) -> int:
        return len(self._next)

    def __le__(self, other: Offsets) -> bool:
        return all(offset <= other[partition] for partition, offset in self._next.items())

    def __lt__(self, other: Offsets) -> bool:
        return self <= other and self != other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and self._next == other._next

    def __hash__(self) -> int:
        return hash(frozenset(self._next.items()))

    def allows(self, partition: Partition, offset: int) -> bool:
        """Whether the record at ``offset`` of ``partition`` is beyond this: it may still come."""
        return offset >= self[partition]

    def meet(self, other: Offsets) -> Offsets:
        """Return the earlier of both, partition by partition."""
        return Offsets({p: min(offset, other[p]) for p, offset in self._next.items()})

    def join(self, other: Offsets) -> Offsets:
        """Return the later of both, partition by partition."""
        return Offsets({p: max(self[p], other[p]) for p in {*self, *other}})

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{p}: {o}" for p, o in self._next.items()) + "}"


NOTHING = Offsets()
"""The least of all: every record may still come."""
