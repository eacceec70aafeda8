"""Partial orders of times, with least upper and greatest lower bounds.

A *time* is an ``int`` (our timeline's milliseconds: a total order) or a value that is its own
partial order, such as :class:`headwater.algebra.partitioned.PartitionedOffset`. The laws, for all
times ``a, b, c`` (checked in ``tests/properties``):

    a <= a;   a <= b and b <= a imply a == b;   a <= b and b <= c imply a <= c
    join(a, b) is the least c with a <= c and b <= c, where any such c exists, else ``None``
    meet(a, b) is the greatest c with c <= a and c <= b; it always exists

Joins are *bounded*: two times of different partitions have no time above both, so there is
nothing to return, and :class:`~headwater.algebra.frontier.Frontier` needs nothing: the set beyond
both is empty. A total order has all joins.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, cast


class PartialOrder(Protocol):
    """Times that can be compared, perhaps with the answer "neither"."""

    def __le__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=PartialOrder)


def join(a: T, b: T) -> T | None:
    """Return the least time greater than or equal to both; ``None`` where no time is.

    >>> join(3, 5)
    5
    """
    if a <= b:
        return b
    if b <= a:
        return a
    return cast("T | None", cast("Any", a).join(b))


def meet(a: T, b: T) -> T:
    """Return the greatest time less than or equal to both.

    >>> meet(3, 5)
    3
    """
    if a <= b:
        return a
    if b <= a:
        return b
    return cast("T", cast("Any", a).meet(b))
