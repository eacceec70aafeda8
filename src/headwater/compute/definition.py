"""The kinds of views there are, as they are stored in the log under ``view/<id>``.

    View             incremental: join + sum (``compute/view.py``); has no ``kind``
    RecomputedView   everything else (``compute/recompute.py``); ``kind`` is ``recomputed``

The first kind was stored before there was a second, so the absence of a kind is its name.
"""

from __future__ import annotations

import msgspec

from headwater.compute import recompute, view
from headwater.compute.recompute import RecomputedView
from headwater.compute.view import View
from headwater.persist.errors import NewerFormat

Definition = View | RecomputedView


class _Head(msgspec.Struct):
    version: int
    kind: str = ""


def encoded(definition: Definition) -> bytes:
    """Return the stored form of a definition."""
    return msgspec.msgpack.encode(definition)


def decoded(data: bytes) -> Definition:
    """Read a definition of either kind, of any version up to ours."""
    head = msgspec.msgpack.decode(data, type=_Head)
    known = recompute.STORED_VERSION if head.kind else view.STORED_VERSION
    if head.version > known:
        raise NewerFormat("a stored view", head.version, known)
    if head.kind:
        return msgspec.msgpack.decode(data, type=RecomputedView)
    return msgspec.msgpack.decode(data, type=View)


def explained(definition: Definition) -> str:
    """Say by which strategy a view is kept, and why."""
    match definition:
        case View():
            return "incremental: join + sum"
        case RecomputedView():
            return f"recomputed once per input time: no incremental rule yet for {definition.why}"
