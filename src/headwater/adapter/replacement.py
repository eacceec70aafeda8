"""``CREATE OR REPLACE MATERIALIZED VIEW``: another query under the same name, without a gap.

    build   the new view has a collection of its own and hydrates beside the old one, which stays as
            it is and answers
    swap    when the new one is as far as the old one: in one entry the object means the new
            collection
    drop    the old view goes a little later (``GRACE_SECONDS``), so that who reads it just then is
            not cut off

The item ``replacement/<collection>`` names what is to be dropped if nobody goes on with it: first
the new collection, from the swap on the old one. So a server that dies in between leaves one view,
whole, and drops the other when it starts again (:func:`drop_abandoned`).

The object keeps its id, so views that are made of it go on, if its columns are the same. What reads
the old *collection* itself (a materialized view, an index, a materialization, a durable
subscription) cannot be moved under a reader's feet: it is named and nothing is done. A query that
fails while it is built changes nothing either.

History begins anew: times before the swap's hydration cannot be read any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headwater.adapter import catalog
from headwater.adapter.catalog import Object
from headwater.adapter.errors import InvalidDefinition, WrongKind
from headwater.adapter.ports import Evaluator
from headwater.base.errors import HeadwaterError
from headwater.compute import definition
from headwater.persist import evolution
from headwater.persist.commands import Atomic, SetItem
from headwater.persist.core import Core
from headwater.persist.state import State

PREFIX: Final = "replacement/"
LOOK_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 5.0


def check(state: State, found: Object) -> None:
    """Refuse to replace what is no materialized view, or what others read as it is stored."""
    if found.kind != "materialized view":
        raise WrongKind(found.name, "materialized view", found.kind)
    readers = [each for each in catalog.users(state, found.id) if each.kind != "view"]
    if readers:
        names = ", ".join(f"{each.kind} {each.name}" for each in readers)
        raise InvalidDefinition(
            f'"{found.name}" cannot be replaced: {names} reads it as it is stored',
            hint="Drop what reads it, or create the new view under another name.",
        )


def check_columns(state: State, found: Object, built: str) -> None:
    """Refuse other columns while views are made of the old ones."""
    users = [each.name for each in catalog.users(state, found.id) if each.kind == "view"]
    old, new = (
        evolution.from_bytes(state.collections[state.names[name]].schemas[-1])
        for name in (found.collection, built)
    )
    if users and not old.equals(new):
        raise InvalidDefinition(
            f'"{found.name}" cannot be replaced: its columns would change, and view '
            f"{', '.join(users)} is made of them",
            hint="Drop the views that are made of it, or keep names and types of the columns.",
        )


def replace(
    core: Core, views: Evaluator, found: Object, named: Object, create: Callable[..., object]
) -> None:
    """Build the view that ``create`` makes in ``named.collection``, and swap it in."""
    built, old = named.collection, found.collection
    create((_doomed(built),))
    try:
        check_columns(core.state, found, built)
        _await(core, views, old, built)
    except BaseException:
        views.drop_view(built, also=(_spared(built),))
        raise
    kept = catalog.named(core.state, found.name)
    swapped = catalog.changed(
        named, id=kept.id, comment=kept.comment, column_comments=kept.column_comments
    )
    core.submit(Atomic((catalog.put(swapped), _spared(built), _doomed(old)))).result()
    threading.Thread(
        target=_drop_later, args=(views, old), name=f"headwater-drop-{old}", daemon=True
    ).start()


def _drop_later(views: Evaluator, old: str) -> None:
    time.sleep(GRACE_SECONDS)
    # Stopped meanwhile: the next start does it.
    with suppress(HeadwaterError):
        views.drop_view(old, also=(_spared(old),))


def _doomed(collection: str) -> SetItem:
    return SetItem(PREFIX + collection, collection.encode())


def _spared(collection: str) -> SetItem:
    return SetItem(PREFIX + collection, None)


def abandoned(state: State) -> list[tuple[str, str]]:
    """Return what is to be dropped: items, and the collections they name."""
    return [(key, value.decode()) for key, value in state.items.items() if key.startswith(PREFIX)]


def drop_abandoned(core: Core, views: Evaluator) -> None:
    """Drop what nobody builds any more: called before anything is defined."""
    for item, collection in abandoned(core.state):
        if not views.drop_view(collection, also=(SetItem(item, None),)):
            core.submit(SetItem(item, None)).result()


def _await(core: Core, views: Evaluator, old: str, new: str) -> None:
    """Wait until the new view is hydrated and as far as the old one."""

    def ready(state: State) -> bool | None:
        (view,) = (each for each in definition.stored(state) if each.name == new)
        upper = state.upper(state.collections[state.names[new]])
        before = state.upper(state.collections[state.names[old]])
        if upper.is_closed:
            return True
        hydrated = upper.only() > view.start
        far = before.is_closed or upper.only() >= before.only()
        return True if hydrated and far else None

    while not core.wait(ready, LOOK_SECONDS):
        why = views.failures().get(core.state.names[new])
        if why is not None:
            raise InvalidDefinition(f"the new query does not advance: {why}")
