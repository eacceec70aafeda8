"""RFC 7396 merge patches: how the state of a driver changes.

A patch is JSON: an object changes the properties it names, null removes, everything else replaces.

Two patches cannot be combined into one. ``{"b": null}`` and then ``{"b": {}}`` leave an empty
``b``, which no single patch can say: ``{"b": {}}`` alone leaves ``b`` as it was. So patches are
kept as a list and applied in order.
"""

from __future__ import annotations

import msgspec

from headwater.materialize.protocol.specs import ConnectorState
from headwater.materialize.reduction.value import Json


def merge_patch(target: Json, patch: Json) -> Json:
    """Return a value after a patch.

    >>> merge_patch({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return patch
    patched = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            patched.pop(name, None)
        else:
            patched[name] = merge_patch(patched.get(name), value)
    return patched


def updated_state(state_json: bytes, update: ConnectorState | None) -> bytes:
    """Return a driver's state after an update, as JSON; empty is no state."""
    if update is None or not update.updated_json:
        return state_json
    if not update.merge_patch:
        return update.updated_json
    before = msgspec.json.decode(state_json) if state_json else None
    return msgspec.json.encode(merge_patch(before, msgspec.json.decode(update.updated_json)))
