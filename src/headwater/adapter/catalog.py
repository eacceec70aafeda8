"""The SQL catalog: which name means which collection.

Names are the user's and may be dropped and given again; collections have ids of the log and names
that are never reused. The catalog is kept as items of the commit log (``catalog/<name>``), changed
in the same entry as what it describes, so DDL is in one total order with everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from headwater.adapter.errors import DuplicateRelation, UnknownRelation
from headwater.base.ids import GlobalId
from headwater.persist.commands import SetItem
from headwater.persist.state import State

PREFIX = "catalog/"

Kind = Literal["table", "materialized view", "materialization"]


class Object(msgspec.Struct, frozen=True):
    """One named thing."""

    name: str
    kind: Kind
    sql: str
    collection: str = ""
    """Name of its collection in persist; empty for a materialization."""
    uses: tuple[str, ...] = ()
    """Names of the relations it is made of: they cannot be dropped before it."""


def find(state: State, name: str) -> Object | None:
    """Return what a name means, if anything."""
    value = state.items.get(PREFIX + name)
    return None if value is None else msgspec.json.decode(value, type=Object)


def relation(state: State, name: str) -> tuple[Object, GlobalId]:
    """Return the table or view called ``name``, and its collection."""
    found = find(state, name)
    if found is None or not found.collection:
        raise UnknownRelation(name)
    return found, state.names[found.collection]


def objects(state: State) -> Iterator[Object]:
    """Return everything in the catalog, by name."""
    for key in sorted(key for key in state.items if key.startswith(PREFIX)):
        yield msgspec.json.decode(state.items[key], type=Object)


def refuse_duplicate(state: State, name: str) -> None:
    """Refuse a name that is taken."""
    if find(state, name) is not None:
        raise DuplicateRelation(name)


def put(what: Object) -> SetItem:
    """Return the command that names a thing."""
    return SetItem(PREFIX + what.name, msgspec.json.encode(what))


def remove(name: str) -> SetItem:
    """Return the command that frees a name."""
    return SetItem(PREFIX + name, None)
