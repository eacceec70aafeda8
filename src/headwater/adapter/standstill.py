"""Whether a collection will ever be complete at a time, as far as is known.

A collection *stands still* before a time if a source that it is made of has failed there: what the
source has bound to the time cannot be read upstream, so neither the source nor anything made of it
gets to that time until somebody mends it. Upstream being away is no such thing: it is tried again.

It is *stalled* before a time if the step of a view that it is made of, or is, fails there. Such a
step is tried again by itself, so one look is not enough to give up: whoever waits does so when it
has seen the same for :data:`STALLED_SECONDS`.

Whoever waits asks here now and then, and tells its client instead of waiting for ever.

Relied on by: ``adapter/reads.py``.
"""

from __future__ import annotations

from typing import Final

from headwater.adapter import catalog
from headwater.adapter.object_errors import SourceFailed, ViewStalled
from headwater.adapter.system.seen import Seen
from headwater.base.ids import GlobalId
from headwater.persist.decision import collection_named
from headwater.persist.state import State
from headwater.storage.runner import Condition

STALLED_SECONDS: Final = 10.0
"""How long a reader waits for a view that fails at each look; some six attempts at its step."""


def standstill(seen: Seen, gid: GlobalId, time: int) -> SourceFailed | None:
    """Return why the collection does not get to ``time``; ``None`` if nothing is known."""
    for each in _beneath(seen.state, gid):
        source = seen.sources.get(each.of or each.id)
        if source is None or source.status.condition is not Condition.FAILED or not each.collection:
            continue
        upper = seen.state.upper(collection_named(seen.state, each.collection))
        if upper.allows(time):
            name = catalog.by_id(seen.state, source.id).name
            return SourceFailed(name, source.status.why, upper.only() - 1)
    return None


def stalled(seen: Seen, gid: GlobalId, time: int) -> ViewStalled | None:
    """Return which view's failing step keeps the collection from ``time``; ``None`` if none."""
    for each in _beneath(seen.state, gid):
        why = seen.why_stalled(each)
        if why is None:
            continue
        upper = seen.state.upper(collection_named(seen.state, each.collection))
        if upper.allows(time):
            return ViewStalled(each.kind, each.name, why, upper.only() - 1)
    return None


def _beneath(state: State, gid: GlobalId) -> list[catalog.Object]:
    """Return what is kept in the collection, and all that this is made of."""
    every = {each.id: each for each in catalog.objects(state)}
    found = [
        each
        for each in every.values()
        if each.collection and state.names.get(each.collection) == gid
    ]
    for each in found:
        found += [every[used] for used in each.uses if used in every and every[used] not in found]
    return found
