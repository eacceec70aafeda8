"""Transient views: what compute keeps for a subscription, and for no longer than that.

A SUBSCRIBE to a query, or to a plain view that has no index, follows a view that is made for it,
from the subscription's own time on. It is dropped when the subscription ends, also where its client
vanished; what a server that died has left is dropped by the next one, when it starts.

A transient view is the item ``transient/<collection>`` of the log, set and removed in the entries
that create and drop the view, so there is never one without the other. It is in no catalog: nobody
can name it, and nobody else uses it. Its history is kept only as far as its reader is.

Kept by: this module. Relied on by: SUBSCRIBE (``adapter/coordinator.py``), and retention.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headwater.adapter.catalog import Sources
from headwater.adapter.ports import Evaluator
from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.collection.collections import Collections
from headwater.collection.types import SqlType
from headwater.persist.client import Client
from headwater.persist.commands import SetItem
from headwater.persist.state import State

LOG: Final = logging.getLogger(__name__)

PREFIX: Final = "transient/"


@dataclass(frozen=True, slots=True)
class Followed:
    """What a subscription follows: a collection, or a query that is kept for it."""

    sources: Sources
    label: str
    """What it is called in errors, and to whoever asks who is there."""
    collection: GlobalId | None
    """None: a transient view of ``query``."""
    query: str = ""
    types: tuple[SqlType, ...] = ()
    """Of the query's columns, where they are more than it tells."""
    begins: int = 0
    """Since when the collection is what is followed."""
    named: Mapping[str, str] = field(default_factory=dict)
    """The objects that the subscription names, each name by its id: with one of them it ends."""


class Transients:
    """Makes and drops them, for one location."""

    def __init__(self, client: Client, views: Evaluator) -> None:
        self._core = client.core
        self._collections = Collections(client)
        self._views = views

    def keep(self, followed: Followed, start: int) -> tuple[GlobalId, Callable[[], None]]:
        """Keep a query from ``start`` on; return its collection, and what drops it."""
        name = f"{PREFIX}{self._collections.new_id()}"
        self._views.create_view(
            name,
            followed.query,
            relations=followed.sources.relations,
            start=start,
            types=followed.types,
            also=(SetItem(name, b""),),
        )
        return self._core.state.names[name], lambda: self._drop(name)

    def sweep(self) -> None:
        """Drop what is left of servers before this one."""
        for name in list(transients(self._core.state)):
            self._drop(name)

    def _drop(self, name: str) -> None:
        try:
            self._views.drop_view(name, also=(SetItem(name, None),))
        except HeadwaterError as error:
            # Stopped or fenced, most likely: the next server does it.
            LOG.info("the transient view %s is left to the next start: %s", name, error)


def transients(state: State) -> Iterator[str]:
    """Yield the names of the collections of transient views."""
    return (key for key in state.items if key.startswith(PREFIX))
