"""What the shards of one materialization agree about, while each runs its own transactions.

    target      the newest time that any of them has begun to deliver up to; the others follow to
                exactly there, be it with a transaction that stores nothing
    apply       the shard that begins at 0 makes the endpoint ready; the others wait for it
    holds       history that any of them may still have to read again is kept

So shards go their own pace and still meet: when nothing changes any more, all of them stand at
one checkpoint, and the endpoint as a whole is the view at one time. A time at which nothing changes
for anybody is no target, and costs nothing. One that is behind goes to the newest target at once,
not through all that it missed.

Once an agreement is *closed* nobody proposes any more, and each shard is done when it stands where
all do: the state from which key ranges can be split and joined (``shards``).

Invariant:      a target is a time at which one shard could deliver, and inputs are definite; so
                all can. After closing the target does not move once every shard has begun.
Kept by:        :meth:`Agreement.propose`, which takes a target only if all that were agreed before
                it are behind the proposer.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from headwater.base.errors import HeadwaterError
from headwater.materialize.checkpoint import Position
from headwater.materialize.key_range import KeyRange

APPLY_SECONDS: Final = 10.0
"""How long a shard waits at once for the endpoint to be made ready."""


class NotReady(HeadwaterError):
    """The endpoint was not made ready in time."""

    def __init__(self) -> None:
        super().__init__("waiting for the first shard to make the endpoint ready")


class BeginAnew(HeadwaterError):
    """A session that is past the target that all shards go to; the next one goes there."""


class Agreement:
    """One agreement, for as long as the key ranges stay what they are."""

    def __init__(self, shards: Sequence[KeyRange] = (KeyRange.full(),)) -> None:
        self._shards = tuple(shards)
        self._changed = threading.Condition()
        self._target: int | None = None
        self._standing: dict[KeyRange, Position | None] = {}
        """Where each shard stands that has begun."""
        self._acknowledged: dict[KeyRange, int] = {}
        self._applied = ""
        self._closed = False
        self._abandoned = False

    @property
    def alone(self) -> bool:
        """Whether there is one shard, which need not agree with anybody."""
        return len(self._shards) == 1

    @property
    def aligned(self) -> bool:
        """Whether all shards stand at one checkpoint."""
        with self._changed:
            return self._all_begun and len(set(self._standing.values())) == 1

    @property
    def closed(self) -> bool:
        """Whether no target is proposed any more."""
        return self._closed

    @property
    def _all_begun(self) -> bool:
        return len(self._standing) == len(self._shards)

    # Apply.

    def applies(self, shard: KeyRange) -> bool:
        """Whether this shard is the one that makes the endpoint ready."""
        return shard == self._shards[0]

    def applied(self, version: str) -> None:
        """Tell the others that the endpoint is ready for a version of the materialization."""
        with self._changed:
            self._applied = version
            self._changed.notify_all()

    def wait_applied(self, version: str, seconds: float = APPLY_SECONDS) -> None:
        """Wait until the endpoint is ready for a version; raise if it takes too long."""
        with self._changed:
            self._changed.wait_for(lambda: self._applied == version or self._abandoned, seconds)
            if self._applied != version:
                raise NotReady

    def abandon(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    # Targets.

    def next_target(self, reached: int) -> int | None:
        """Return where somebody was before, if that is after what a shard has reached."""
        with self._changed:
            return self._target if self._target is not None and self._target > reached else None

    def propose(self, reached: int, target: int) -> bool:
        """Agree upon a target, or learn that there is another one, or that there is none."""
        with self._changed:
            if self._target is not None and self._target > reached:
                return self._target == target
            if self._closed:
                return False
            self._target = target
            return True

    def stands(self, shard: KeyRange, position: Position | None, owed: int | None = None) -> None:
        """Take notice of where a shard is, by a commit or by opening.

        ``owed``: up to where it has begun to deliver before, and will go first.
        """
        with self._changed:
            self._standing[shard] = position
            for time in (position.time if position is not None else None, owed):
                if time is not None:
                    self._target = max(time, self._target or 0)

    def close(self) -> None:
        """From now on nobody proposes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def is_done(self, shard: KeyRange, reached: int) -> bool:
        """Whether a shard stands where all will; :class:`BeginAnew` if it is past that."""
        with self._changed:
            if not self._closed or not self._all_begun:
                return False
            here = self._standing[shard]
            there = None if self._target is None else Position(self._target)
            if here != there and there is not None and there.time <= reached:
                raise BeginAnew
            return here == there

    # Holds.

    def oldest(self, shard: KeyRange, acknowledged: int) -> int | None:
        """Return the oldest time that any shard may have to begin at, to the one that moves holds.

        ``None``: it is not known yet, or another shard moves them. If each did, they would race.
        """
        with self._changed:
            self._acknowledged[shard] = acknowledged
            all_known = len(self._acknowledged) == len(self._shards)
            return min(self._acknowledged.values()) if all_known and self.applies(shard) else None
