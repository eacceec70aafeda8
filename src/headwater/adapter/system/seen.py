"""What the system views look at: one state of the location, and what only the process knows.

A :class:`Seen` is taken once for a statement, so that all views that it reads agree. What only the
process knows (why a step failed, who is connected) is taken from those who know it, by name of the
object, at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.adapter import catalog
from headwater.adapter.clients import SessionSeen, SubscriptionSeen
from headwater.base.ids import GlobalId
from headwater.materialize.status import Status as DeliveryStatus
from headwater.persist.core import Core
from headwater.persist.state import CollectionState, State
from headwater.storage.controller import SourceStatus


@dataclass(frozen=True, slots=True)
class Seen:
    """A moment."""

    core: Core
    state: State
    now_ms: int
    oracle_upper: int
    """The timeline's upper: what is complete before it is up to date."""
    failures: Mapping[GlobalId, str] = field(default_factory=dict)
    """Why views do not advance, by their collections."""
    hydrating: Mapping[str, float] = field(default_factory=dict)
    """Collections whose first step runs in the background, and which part of it is done."""
    deliveries: Callable[[str], DeliveryStatus | None] = lambda _: None
    """How a materialization does, by its id."""
    sources: Mapping[str, SourceStatus] = field(default_factory=dict)
    """How sources do, by their ids."""
    sessions: Sequence[SessionSeen] = ()
    subscriptions: Sequence[SubscriptionSeen] = ()

    def objects(self) -> Iterator[catalog.Object]:
        """Yield everything in the catalog, by name."""
        return catalog.objects(self.state)

    def collections(self) -> Iterator[tuple[catalog.Object, CollectionState]]:
        """Yield what has a collection, with it."""
        for each in self.objects():
            gid = self.state.names.get(each.collection)
            if gid is not None:
                yield each, self.state.collections[gid]

    def why_stalled(self, each: catalog.Object) -> str | None:
        """Return why a view stands still, as its reader calls it; compute knows it by its id."""
        gid = self.state.names.get(each.collection)
        why = None if gid is None else self.failures.get(gid)
        if why is None:
            return None
        return why.replace(f"view {each.collection!r} ", f"view {each.name!r} ", 1)

    def since(self, collection: CollectionState) -> int | None:
        """Return from when on a collection is readable; None: never again."""
        return None if collection.since.is_closed else collection.since.only()

    def upper(self, collection: CollectionState) -> int | None:
        """Return until when it is complete; None: for ever."""
        upper = self.state.upper(collection)
        return None if upper.is_closed else upper.only()

    def lag_ms(self, collection: CollectionState) -> int:
        """Return how far a collection is behind the timeline."""
        upper = self.upper(collection)
        return 0 if upper is None else max(0, self.oracle_upper - upper)
