"""Who is connected and what they follow: kept in memory, for the system views.

A session that is open, and a SUBSCRIBE that somebody reads, are noted here for as long as they
are. Nothing is decided by it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from headwater.adapter.sql.explain_statements import Explain
from headwater.adapter.sql.statements import Select, Statement, Subscribe

TEXT_MAX: Final = 4_096
"""Characters of a query that are kept to be shown."""


@dataclass(frozen=True, slots=True)
class SessionSeen:
    """A session at a moment."""

    id: int
    opened_ms: int
    about: Mapping[str, str] = field(default_factory=dict)
    """What its connection said of itself: user, address, application."""
    state: Literal["idle", "active", "in transaction"] = "idle"
    statement: str = ""
    """The last one that it executed; of one that may hold a secret, its first words."""
    since_ms: int = 0
    """Since when it is in this state."""
    isolation: str = ""
    read_time: int | None = None
    """Of its transaction."""


@dataclass(frozen=True, slots=True)
class SubscriptionSeen:
    """A SUBSCRIBE at a moment."""

    id: int
    session: int
    name: str
    """Of what it is a subscription to."""
    named: str | None
    """Name of the durable subscription that it reads, if it does."""
    start: int
    upper: int
    """Everything before it has been delivered."""


def shown_text(statement: Statement, sql: str) -> str:
    """Return what others may see of a statement: all of a query, the first words of the rest."""
    if isinstance(statement, Select | Subscribe | Explain):
        return sql[:TEXT_MAX]
    return " ".join(sql.split(maxsplit=2)[:2])


class Clients:
    """The sessions and subscriptions of one server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._sessions: dict[int, SessionSeen] = {}
        self._subscriptions: dict[int, SubscriptionSeen] = {}

    def opened(self, now_ms: int) -> int:
        """Note a new session; return its number."""
        with self._lock:
            number = next(self._ids)
            self._sessions[number] = SessionSeen(number, now_ms, since_ms=now_ms)
            return number

    def closed(self, number: int) -> None:
        """Forget a session."""
        with self._lock:
            self._sessions.pop(number, None)

    def told(self, number: int, about: Mapping[str, str]) -> None:
        """Note what a connection says of itself."""
        with self._lock:
            seen = self._sessions.get(number)
            if seen is not None:
                self._sessions[number] = replace(seen, about=dict(about))

    def does(
        self,
        number: int,
        state: Literal["idle", "active", "in transaction"],
        now_ms: int,
        isolation: str,
        statement: str | None = None,
        read_time: int | None = None,
    ) -> None:
        """Note what a session does now."""
        with self._lock:
            seen = self._sessions.get(number)
            if seen is not None:
                self._sessions[number] = replace(
                    seen,
                    state=state,
                    since_ms=now_ms,
                    isolation=isolation,
                    statement=seen.statement if statement is None else statement,
                    read_time=read_time,
                )

    def subscribed(
        self,
        session: int,
        name: str,
        named: str | None,
        start: int,
        ended: Callable[[], None],
    ) -> Follower:
        """Note a subscription, until it says that it has ended; then ``ended`` is called."""
        with self._lock:
            number = next(self._ids)
            self._subscriptions[number] = SubscriptionSeen(
                number, session, name, named, start, start
            )
        return Follower(self, number, ended)

    def ended(self, number: int) -> None:
        """Forget a subscription."""
        with self._lock:
            self._subscriptions.pop(number, None)

    def reached(self, number: int, upper: int) -> None:
        """Note how far a subscription is."""
        with self._lock:
            seen = self._subscriptions.get(number)
            if seen is not None:
                self._subscriptions[number] = replace(seen, upper=upper)

    def sessions(self) -> tuple[SessionSeen, ...]:
        """Return the sessions that are open."""
        with self._lock:
            return tuple(self._sessions.values())

    def subscriptions(self) -> tuple[SubscriptionSeen, ...]:
        """Return the subscriptions that are being read."""
        with self._lock:
            return tuple(self._subscriptions.values())


@dataclass(frozen=True, slots=True)
class Follower:
    """A subscription that is noted, and says how far it is."""

    clients: Clients
    number: int
    ended: Callable[[], None]

    def reached(self, upper: int) -> None:
        """Everything before ``upper`` has been delivered."""
        self.clients.reached(self.number, upper)

    def end(self) -> None:
        """Nobody reads it any more."""
        self.clients.ended(self.number)
        self.ended()
