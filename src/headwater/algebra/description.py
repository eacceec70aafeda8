"""What a batch of updates is: the interval ``[lower, upper)``, seen from ``since`` on.

Let ``U`` be all updates of a collection. A batch described by ``(lower, upper, since)`` stands for
the updates at the times of its interval,

    U[lower, upper) = { (row, time, diff) in U : lower.allows(time) and not upper.allows(time) }

and promises one thing: for every time ``t`` beyond ``since``, summing the batch's updates at times
``<= t`` gives the same multiset as summing those of ``U[lower, upper)``. It does **not** promise
the times themselves: those before ``since`` may have been advanced to it (compaction), and updates
that cancel at the advanced time are gone.

What follows:

- a batch answers a read at ``t`` iff ``since`` allows ``t``;
- batches whose intervals tile ``[first, last)`` together answer every read at ``t < last`` that all
  their sinces allow;
- a time at or after ``upper`` is no contradiction, when it *is* ``since``: an update of the
  interval was advanced past the interval's end. Cutting a batch by its update times instead of by
  its description is the usual misuse.

Times are those of our timeline, a total order; product times never become durable.

Kept by: :class:`Description` (the interval is neither inverted nor empty: whoever has nothing to
say about any time makes no batch). Relied on by: persist's trace, merge, snapshot and listen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

from headwater.algebra.frontier import Frontier


class InvalidDescription(ValueError):
    """The bounds given cannot describe a batch."""


@dataclass(frozen=True, slots=True)
class Description:
    """The interval of a batch, and from when on its times can be trusted.

    >>> Description.of(2, 5)
    [{2}, {5}) since {0}
    >>> Description.of(5, 5)
    Traceback (most recent call last):
        ...
    headwater.algebra.description.InvalidDescription: interval [{5}, {5}) is empty
    """

    lower: Frontier[int]
    upper: Frontier[int]
    since: Frontier[int]

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            raise InvalidDescription(f"interval [{self.lower}, {self.upper}) is inverted")
        if self.lower == self.upper:
            raise InvalidDescription(f"interval [{self.lower}, {self.upper}) is empty")

    @classmethod
    def of(cls, lower: int, upper: int | None, since: int = 0) -> Description:
        """Return the description of ``[lower, upper)``; without ``upper``, of all that follows."""
        closed: Frontier[int] = Frontier.closed()
        return cls(
            Frontier.of(lower), closed if upper is None else Frontier.of(upper), Frontier.of(since)
        )

    def covers(self, time: int) -> bool:
        """Whether the updates that happened at ``time`` are in this batch (perhaps advanced)."""
        return self.lower.allows(time) and not self.upper.allows(time)

    def permits(self, time: int) -> bool:
        """Whether an update of this batch may carry ``time``, after all permitted compaction.

        >>> [Description.of(2, 5, since=8).permits(t) for t in (1, 2, 4, 5, 8, 9)]
        [False, True, True, False, True, False]
        """
        if self.covers(time):
            return True
        # Advancing moves an earlier time of the interval to `since` exactly, never beyond it.
        return self.lower.allows(time) and not self.since.is_closed and time == self.since.only()

    def readable_at(self, time: int) -> bool:
        """Whether this batch contributes the right rows to a read at ``time``."""
        return self.since.allows(time)

    def precedes(self, other: Description) -> bool:
        """Whether ``other`` begins exactly where this one ends."""
        return self.upper == other.lower

    def __repr__(self) -> str:
        return f"[{self.lower}, {self.upper}) since {self.since}"


def merged(descriptions: Sequence[Description], since: Frontier[int]) -> Description:
    """Return the description of consecutive batches merged into one and advanced to ``since``.

    The merged batch can be trusted only where each of its inputs can, and not before ``since``.

    >>> merged([Description.of(0, 3), Description.of(3, 7, since=2)], Frontier.of(1))
    [{0}, {7}) since {2}
    """
    if not descriptions:
        raise InvalidDescription("nothing to merge")
    for earlier, later in pairwise(descriptions):
        if not earlier.precedes(later):
            raise InvalidDescription(f"{earlier} is not followed by {later}")
    trusted = reduce(Frontier.join, (description.since for description in descriptions), since)
    return Description(descriptions[0].lower, descriptions[-1].upper, trusted)
