"""Source times: an offset in a range of partitions, as one partial order.

A source has many partitions (of a topic, of a set of files, of a replication group), each with its
own offsets, and gets new ones while we read. A *source time* is a non-empty range of partitions
and one offset:

    (R, o) <= (S, p)   iff   S is within R  and  o <= p
    meet((R, o), (S, p)) = (the smallest range around R and S, min(o, p))
    join((R, o), (S, p)) = (R and S, max(o, p)), and none where R and S are disjoint

A record at offset ``o`` of partition ``p`` has the time ``([p], o)``. A frontier of such times
says of *every* partition, also of one that does not exist yet, which of its offsets may still come:

    {(.., 0), 0}   {[0], 7}   {(0, 3), 0}   {[3], 2}   {(3, ..), 0}

has ingested seven records of partition 0, two of partition 3, and any partition that appears later
begins at 0. A partition that no element covers is *finished*: nothing comes from it.

**Why not a vector of offsets?** With the product order a record of partition 0 is not beyond
``{0: 7, 3: 2}`` unless it also carries an offset >= 2 for partition 3, which no record has; and a
vector over the partitions known today says nothing of the ones of tomorrow. With ranges both the
records and the frontier are times of one order, and nothing needs a special case.

**Canonical form.** Two antichains may cut the partitions differently and still speak of the same
records. :func:`source_frontier` builds the one cut at exactly the partitions that have progress;
frontiers built by it compare as the offsets do, partition by partition.

Kept by: :class:`PartitionRange`, which cannot be empty, and :func:`source_frontier`.
Relied on by: ``storage`` (remap, reclock, resumption). Sizes: a frontier over *n* partitions has at
most ``2 n + 1`` elements and comparing two is quadratic: for hundreds of partitions, not for
millions of files (those are records of one partition, in the order of their listing).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import ClassVar

from headwater.algebra.frontier import Frontier

Partition = int | str


@total_ordering
@dataclass(frozen=True, slots=True, repr=False)
class Cut:
    """A place between partitions, where a range begins or ends.

    ``side`` is -1 just before ``partition`` and +1 just after it. Without a partition it is the
    place before all (-1) or after all (+1).
    """

    partition: Partition | None
    side: int

    START: ClassVar[Cut]
    END: ClassVar[Cut]

    def __post_init__(self) -> None:
        if self.side not in (-1, 1):
            raise ValueError(f"a cut is before (-1) or after (1) a partition, not {self.side}")

    def __lt__(self, other: Cut) -> bool:
        if self.partition is None or other.partition is None:
            return self._outside() < other._outside()
        if self.partition == other.partition:
            return self.side < other.side
        # Both of one source, hence of one type; comparing an int with a str raises.
        return self.partition < other.partition  # type: ignore[operator]

    def _outside(self) -> int:
        """-1 before all partitions, 1 after all, 0 among them."""
        return self.side if self.partition is None else 0

    def reaches(self, other: Cut) -> bool:
        """Whether some partition may lie after this cut and before ``other``.

        Between two neighbouring integers there is none; between two strings there always may be.
        """
        if other <= self:
            return False
        left, right = self.partition, other.partition
        if isinstance(left, int) and isinstance(right, int) and self.side > 0 > other.side:
            return left + 1 < right
        return True

    def __repr__(self) -> str:
        side = "before" if self.side < 0 else "after"
        return f"{side} {'all' if self.partition is None else self.partition}"


Cut.START = Cut(None, -1)
Cut.END = Cut(None, 1)


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Consecutive partitions, existing or not.

    Invariant: it can hold a partition. :meth:`between` returns ``None`` rather than an empty one.

    >>> PartitionRange.everything(), PartitionRange.single(3)
    ((.., ..), [3])
    >>> print(PartitionRange.between(Cut(0, 1), Cut(1, -1)))
    None
    """

    lower: Cut
    upper: Cut

    def __post_init__(self) -> None:
        if not self.lower.reaches(self.upper):
            raise ValueError(f"no partition lies in {self}")

    @classmethod
    def between(cls, lower: Cut, upper: Cut) -> PartitionRange | None:
        """Return the range between two cuts; ``None`` where no partition can lie."""
        return cls(lower, upper) if lower.reaches(upper) else None

    @classmethod
    def everything(cls) -> PartitionRange:
        """Return the range of all partitions."""
        return cls(Cut.START, Cut.END)

    @classmethod
    def single(cls, partition: Partition) -> PartitionRange:
        """Return the range of one partition."""
        return cls(Cut(partition, -1), Cut(partition, 1))

    def covers(self, other: PartitionRange) -> bool:
        """Whether every partition of ``other`` is in this range."""
        return self.lower <= other.lower and other.upper <= self.upper

    def hull(self, other: PartitionRange) -> PartitionRange:
        """Return the smallest range around both."""
        lower = min(self.lower, other.lower)
        upper = max(other.upper, self.upper)
        return PartitionRange(lower, upper)

    def intersect(self, other: PartitionRange) -> PartitionRange | None:
        """Return the range in both; ``None`` where they share no partition."""
        lower = max(other.lower, self.lower)
        upper = min(self.upper, other.upper)
        return PartitionRange.between(lower, upper)

    def __repr__(self) -> str:
        if self.lower.partition is not None and self.lower.partition == self.upper.partition:
            return f"[{self.lower.partition}]"
        left = ".." if self.lower.partition is None else str(self.lower.partition)
        right = ".." if self.upper.partition is None else str(self.upper.partition)
        opening = "[" if self.lower.side < 0 and self.lower.partition is not None else "("
        closing = "]" if self.upper.side > 0 and self.upper.partition is not None else ")"
        return f"{opening}{left}, {right}{closing}"


@dataclass(frozen=True, slots=True)
class PartitionedOffset:
    """A source time: one offset in a range of partitions.

    >>> frontier = source_frontier({0: 7, 3: 2})
    >>> frontier.allows(PartitionedOffset.record(0, 6))  # ingested
    False
    >>> frontier.allows(PartitionedOffset.record(0, 7))  # next
    True
    >>> frontier.allows(PartitionedOffset.record(9, 0))  # a partition nobody has seen yet
    True
    """

    partitions: PartitionRange
    offset: int

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"offset {self.offset} of partitions {self.partitions} is negative")

    @classmethod
    def record(cls, partition: Partition, offset: int) -> PartitionedOffset:
        """Return the time of the record at ``offset`` of ``partition``."""
        return cls(PartitionRange.single(partition), offset)

    def __le__(self, other: PartitionedOffset) -> bool:
        return self.offset <= other.offset and self.partitions.covers(other.partitions)

    def join(self, other: PartitionedOffset) -> PartitionedOffset | None:
        """Return the least time at or after both; ``None`` where they share no partition."""
        shared = self.partitions.intersect(other.partitions)
        if shared is None:
            return None
        return PartitionedOffset(shared, max(self.offset, other.offset))

    def meet(self, other: PartitionedOffset) -> PartitionedOffset:
        """Return the greatest time at or before both."""
        hull = self.partitions.hull(other.partitions)
        return PartitionedOffset(hull, min(self.offset, other.offset))

    def __repr__(self) -> str:
        return f"{self.partitions}@{self.offset}"


SourceFrontier = Frontier[PartitionedOffset]


def source_frontier(
    offsets: Mapping[Partition, int], finished: Iterable[Partition] = ()
) -> SourceFrontier:
    """Return the canonical frontier: the *next* offset of each partition, 0 for all others.

    ``finished`` partitions have no next offset at all. A partition at 0 is no different from one
    that was never seen, so it makes no cut. Partitions are all ``int`` or all ``str``.

    >>> source_frontier({0: 7, 3: 2})
    Frontier{(.., 0)@0, (0, 3)@0, (3, ..)@0, [0]@7, [3]@2}
    >>> source_frontier({0: 0}) == source_frontier({})
    True
    """
    next_offsets: dict[Partition, int | None] = {
        p: offset for p, offset in offsets.items() if offset
    }
    next_offsets.update(dict.fromkeys(finished))
    times: list[PartitionedOffset] = []
    lower = Cut.START
    for partition in sorted(next_offsets):
        gap = PartitionRange.between(lower, Cut(partition, -1))
        if gap is not None:
            times.append(PartitionedOffset(gap, 0))
        offset = next_offsets[partition]
        if offset is not None:
            times.append(PartitionedOffset.record(partition, offset))
        lower = Cut(partition, 1)
    times.append(PartitionedOffset(PartitionRange(lower, Cut.END), 0))
    return Frontier.of(*times)


def next_offset(frontier: SourceFrontier, partition: Partition) -> int | None:
    """Return the first offset of ``partition`` that may still come; ``None`` if it is finished.

    >>> frontier = source_frontier({0: 7}, finished=[1])
    >>> next_offset(frontier, 0), next_offset(frontier, 1), next_offset(frontier, 2)
    (7, None, 0)
    """
    single = PartitionRange.single(partition)
    return min((time.offset for time in frontier if time.partitions.covers(single)), default=None)
