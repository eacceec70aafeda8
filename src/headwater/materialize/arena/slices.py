"""Many values as one arena: their bytes one after the other, and a slice for each.

Invariant:      a slice lies within the arena. Checked when it is read: a peer may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.materialize.arena.messages import Slice
from headwater.materialize.wire.protobuf import MalformedMessage


class Arena:
    """An arena that is being filled.

    >>> arena = Arena()
    >>> arena.add([b"ab", b"c"])
    (Slice(begin=0, end=2), Slice(begin=2, end=3))
    >>> arena.content
    b'abc'
    """

    def __init__(self) -> None:
        self._content = bytearray()

    def add(self, values: Iterable[bytes]) -> tuple[Slice, ...]:
        """Put values behind what is there; return where they are."""
        slices = []
        for value in values:
            begin = len(self._content)
            self._content += value
            slices.append(Slice(begin, len(self._content)))
        return tuple(slices)

    @property
    def content(self) -> bytes:
        """All of it."""
        return bytes(self._content)


def taken(arena: bytes, slices: Sequence[Slice]) -> list[bytes]:
    """Return the values that slices say."""
    for each in slices:
        if not 0 <= each.begin <= each.end <= len(arena):
            raise MalformedMessage(
                f"a slice [{each.begin}, {each.end}) of an arena of {len(arena)} bytes"
            )
    return [arena[each.begin : each.end] for each in slices]
