"""System views: what there is and how it does, as relations that a client reads like any other.

They are in the schema ``hw_catalog``, and are found without it, too; every name of theirs begins
with ``hw_``, and no name of a user's does. Their rows are those of the moment in which a statement
reads them, all from one state of the location; they have no history, and no view is made of them.

One module for each subject (:mod:`.catalog_rows`, :mod:`.progress_rows`, …); :data:`SYSTEM_VIEWS`
has them all, in the order of the reference (``docs/sql/system-views.md``, written from here).
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from headwater.adapter.errors import UnknownRelation
from headwater.adapter.system import (
    catalog_rows,
    client_rows,
    compute_rows,
    delivery_rows,
    progress_rows,
    source_rows,
)
from headwater.adapter.system.seen import Seen
from headwater.adapter.system.system_view import SystemView

SYSTEM_VIEWS: Final[dict[str, SystemView]] = {
    view.name: view
    for module in (
        catalog_rows,
        progress_rows,
        compute_rows,
        source_rows,
        delivery_rows,
        client_rows,
    )
    for view in module.VIEWS
}
"""By name."""


def system_view(name: str) -> SystemView:
    """Return a system view; refuse a name that none has, with the nearest."""
    found = SYSTEM_VIEWS.get(name)
    if found is None:
        near = get_close_matches(name, SYSTEM_VIEWS, n=1)
        raise UnknownRelation(name, hint=f'Perhaps you meant "{near[0]}".' if near else None)
    return found


__all__ = ["SYSTEM_VIEWS", "Seen", "SystemView", "system_view"]
