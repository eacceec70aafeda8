"""The writes of a collection that are durable and not sealed: an immutable sequence.

In the order in which they came, and found by their tokens. Adding one and asking for a token cost
O(log n) of those that wait, the earliest time is at hand: however many writers come between two
seals, a write costs what it costs. A seal that takes some of them costs O(n).

A token names one write. Should two of the same token ever come (a decision refuses the second while
it remembers the first), both are kept, as one: nothing durable is ever dropped.

Kept by: ``persist/collection_state.py``. Relied on by: decisions on retries, ``advance``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import immutables

from headwater.base.decoding import converted
from headwater.persist.batch import TIME_LIMIT, Unsealed


class UnsealedWrites:
    """Some unsealed writes; equal to others if they are the same writes in the same order."""

    __slots__ = ("_by_token", "time_min")

    time_min: int
    """The earliest time that may be in any of them; the limit of times if there are none."""

    def __init__(self, writes: Iterable[Unsealed] = ()) -> None:
        by_token: dict[str, tuple[int, Unsealed]] = {}
        for write in writes:
            by_token[write.token] = _placed(write, by_token.get(write.token), len(by_token))
        self._by_token = immutables.Map(by_token)
        self.time_min = min((write.time_min for _, write in by_token.values()), default=TIME_LIMIT)

    def add(self, write: Unsealed) -> UnsealedWrites:
        """Return these and one more."""
        more = UnsealedWrites()
        placed = _placed(write, self._by_token.get(write.token), len(self._by_token))
        more._by_token = self._by_token.set(write.token, placed)
        more.time_min = min(self.time_min, write.time_min)
        return more

    def __contains__(self, token: object) -> bool:
        return token in self._by_token

    def __iter__(self) -> Iterator[Unsealed]:
        return (write for _, write in sorted(self._by_token.values(), key=_number))

    def __len__(self) -> int:
        return len(self._by_token)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnsealedWrites) and self._by_token == other._by_token

    def __hash__(self) -> int:
        return hash(frozenset(self._by_token))

    def __repr__(self) -> str:
        return f"UnsealedWrites({list(self)})"

    def __reduce__(self) -> tuple[type[UnsealedWrites], tuple[tuple[Unsealed, ...]]]:
        return UnsealedWrites, (tuple(self),)


def _number(placed: tuple[int, Unsealed]) -> int:
    return placed[0]


def _placed(
    write: Unsealed, before: tuple[int, Unsealed] | None, number: int
) -> tuple[int, Unsealed]:
    """Return a write with its place: that of the one with the same token, or the next."""
    if before is None:
        return number, write
    return before[0], Unsealed(write.token, (*before[1].parts, *write.parts))


def enc_hook(value: Any) -> Any:
    """Encode unsealed writes as a list."""
    if isinstance(value, UnsealedWrites):
        return list(value)
    raise TypeError(f"cannot encode {type(value)}")


def dec_hook(kind: Any, value: Any) -> Any:
    """Decode unsealed writes."""
    if kind is UnsealedWrites:
        return UnsealedWrites(converted(value, tuple[Unsealed, ...]))
    raise TypeError(f"cannot decode {kind}")
