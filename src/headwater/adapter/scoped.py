"""Settings of a session, and for how long they hold. Pure.

``SET`` holds until the session ends, *if* the transaction it is in commits; ``SET LOCAL`` until
that transaction ends. So there are three values at any time: what holds ``now``, what will hold
when the transaction commits (``lasting``: without what is local), and what comes back when it does
not (``begun``). Outside a transaction all three are one.

A savepoint is the pair of the first two, and going back to it forgets what was set after it. Kept
by the session for what it acts on (``adapter/session_settings.py``) and by the wire for what it
does (``adapter/pgwire/variables.py``).

>>> scoped = Scoped.of(0).assigned(lambda _: 1).begun_now().assigned(lambda _: 2)
>>> local = scoped.assigned(lambda _: 3, local=True)
>>> local.now, local.ended(committed=True).now, local.ended(committed=False).now
(3, 2, 1)
>>> local.back_to(scoped).ended(committed=True).now
2
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scoped(Generic[T]):
    """A value as it is, as it stays, and as it was before the transaction."""

    now: T
    lasting: T
    begun: T

    @classmethod
    def of(cls, value: T) -> Scoped[T]:
        """A value outside any transaction."""
        return cls(value, value, value)

    def assigned(self, change: Callable[[T], T], *, local: bool = False) -> Scoped[T]:
        """After a change, for good or until the transaction ends."""
        now = change(self.now)
        return replace(self, now=now, lasting=self.lasting if local else change(self.lasting))

    def begun_now(self) -> Scoped[T]:
        """At the beginning of a transaction."""
        return Scoped.of(self.lasting)

    def ended(self, *, committed: bool) -> Scoped[T]:
        """After the transaction."""
        return Scoped.of(self.lasting if committed else self.begun)

    def back_to(self, then: Scoped[T]) -> Scoped[T]:
        """As it was at a savepoint."""
        return replace(then, begun=self.begun)
