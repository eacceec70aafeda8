"""The kinds of views there are, as they are stored in the log under ``view/<id>``.

MaintainedView   kept by delta rules (``compute/maintained.py``); ``kind`` is ``maintained``
RecomputedView   everything else (``compute/recompute.py``); ``kind`` is ``recomputed``
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from headwater.base.decoding import from_msgpack
from headwater.base.ids import GlobalId
from headwater.collection.commands import VIEW_PREFIX
from headwater.compute import maintained, recompute
from headwater.compute.maintained import MaintainedView
from headwater.compute.recompute import RecomputedView
from headwater.persist.errors import NewerFormat
from headwater.persist.state import State

Definition = MaintainedView | RecomputedView

_VERSIONS: Final = {
    "maintained": maintained.STORED_VERSION,
    "recomputed": recompute.STORED_VERSION,
}


class _Head(msgspec.Struct):
    version: int
    kind: str = ""


def item_key(view: GlobalId) -> str:
    """Return under which key of the log a view is stored."""
    return f"{VIEW_PREFIX}{view}"


def encoded(definition: Definition) -> bytes:
    """Return the stored form of a definition."""
    return msgspec.msgpack.encode(definition)


def decoded(data: bytes) -> Definition:
    """Read a definition of any kind, of any version up to ours."""
    head = from_msgpack(data, _Head)
    known = _VERSIONS.get(head.kind, 0)
    if head.version > known:
        raise NewerFormat("a stored view", head.version, known)
    either: Any = MaintainedView | RecomputedView
    return from_msgpack(data, either)  # type: ignore[no-any-return]


def lost(state: State, definition: Definition) -> str | None:
    """Return why a view can never advance again: a collection it needs was destroyed (pure)."""
    for what, gids in (("input", definition.inputs), ("output", (definition.id,))):
        for gid in gids:
            if gid not in state.collections:
                dead = [name for name, other in state.graveyard.items() if other == gid]
                return f"its {what} {(dead or [f'u{gid}'])[0]!r} was destroyed; drop the view"
    return None


def stored(state: State) -> tuple[Definition, ...]:
    """Return the views of a location, in the order of creation."""
    found = (_decoded(data) for key, data in state.items.items() if key.startswith(VIEW_PREFIX))
    return tuple(sorted(found, key=lambda view: view.id))


_decoded = lru_cache(maxsize=4096)(decoded)
