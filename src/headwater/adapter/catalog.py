"""The SQL catalog: which name means which object.

Names are the user's (with their schema, ``sql/names.py``) and may be dropped, changed and given
again; an object has an id of the log (``u12``) that is never reused, and what it is never changes
into something else. Objects refer to each other by id, so a change of a name breaks nothing. The
catalog is kept as items of the commit log (``catalog/<name>``), changed in the same entry as what
it describes, so DDL is in one total order with everything else.

A table or materialized view *is* a collection, whose name in persist is its id. A view is a text:
``query`` in Spark's dialect, in which ``bindings`` say what each name means. :func:`sources` turns
names of a query into what is read: collections, and a ``WITH`` in front of the query for its views.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import pyarrow as pa

from headwater.adapter import namespaces
from headwater.adapter.errors import (
    DuplicateRelation,
    ReservedName,
    SystemRelation,
    UnknownRelation,
    Unsupported,
)
from headwater.adapter.sql import names as naming
from headwater.adapter.sql.names import SYSTEM_PREFIX
from headwater.base.decoding import from_json
from headwater.base.ids import GlobalId
from headwater.compute import definition
from headwater.compute.maintained import MaintainedView
from headwater.persist import evolution
from headwater.persist.commands import SetItem
from headwater.persist.state import State

if TYPE_CHECKING:
    from headwater.adapter.overlay import Overlay

PREFIX: Final = "catalog/"

RETAIN_MS_DEFAULT: Final = 60_000

_INNER: Final = re.compile(r"`__(u\d+)`")
"""The name of a collection in the text of a view that is kept."""

Kind = Literal[
    "table",
    "view",
    "materialized view",
    "index",
    "materialization",
    "subscription",
    "source",
    "secret",
    "connection",
]


class Place(msgspec.Struct, frozen=True):
    """How far a named subscription is: where it began, and what was acknowledged."""

    start: int
    acknowledged: int


class Object(msgspec.Struct, frozen=True):
    """One named thing."""

    name: str
    """With the schema, unless that is ``public``: ``sql/names.py``."""
    kind: Kind
    sql: str
    collection: str = ""
    """Name of its collection in persist; empty where it has none."""
    uses: tuple[str, ...] = ()
    """Ids of the objects it is made of: they cannot be dropped before it."""
    id: str = ""
    query: str = ""
    """Of a view: its query, in Spark's dialect."""
    bindings: dict[str, str] = {}
    """From the names in its text to the ids of objects, as they were looked up."""
    comment: str | None = None
    column_comments: dict[str, str] = {}
    retain_ms: int = RETAIN_MS_DEFAULT
    """How long history is kept for ``AS OF``."""
    schema: bytes = b""
    """Of a view: its columns."""
    place: Place | None = None
    """Of a subscription."""
    of: str = ""
    """Of what a source keeps: the id of the source, which it comes and goes with."""
    dialect: Literal["postgres", "spark"] = "postgres"
    """In which the query in its text is."""
    begins: int = 0
    """Since when it is its collection; before, it was another, which is not read any more."""

    @property
    def exact(self) -> str:
        """A name that means this object, whatever the path."""
        return naming.exact(self.name)


Schemas = Mapping[str, pa.Schema]
"""The columns of relations, by the names that a query has for them."""


@lru_cache(maxsize=4096)
def _decoded(value: bytes) -> Object:
    return from_json(value, Object)


def find(state: State, name: str) -> Object | None:
    """Return what a name means that a client wrote, if anything: along the path."""
    schema, alone = naming.parts(name)
    for each in namespaces.path() if schema is None else (schema,):
        value = state.items.get(PREFIX + naming.full(each, alone))
        if value is not None:
            return _decoded(value)
    return None


def called(state: State, name: str) -> Object | None:
    """Return the object that has a name, if there is one; the path does not matter."""
    value = state.items.get(PREFIX + name)
    return None if value is None else _decoded(value)


def named(state: State, name: str) -> Object:
    """Return what a name means; refuse one that means nothing, with those that are near."""
    found = find(state, name)
    if found is None and name.startswith(SYSTEM_PREFIX):
        raise SystemRelation(name)
    if found is None:
        known = [each.name for each in objects(state)]
        near = get_close_matches(name, known, n=1)
        hint = f'Perhaps you meant "{near[0]}".' if near else None
        schema, _ = naming.parts(name)
        if hint is None and schema is not None and not namespaces.exists(state, schema):
            hint = f'There is no schema "{schema}".'
        raise UnknownRelation(name, hint=hint)
    return found


def by_id(state: State, oid: str) -> Object:
    """Return the object of an id."""
    for each in objects(state):
        if each.id == oid:
            return each
    raise UnknownRelation(oid)


def ids(state: State, names: Iterable[str]) -> dict[str, str]:
    """Return the objects that names mean, as their whole names by their ids."""
    found = (named(state, name) for name in names)
    return {each.id: each.name for each in found}


def missing(state: State, ids: Mapping[str, str]) -> str | None:
    """Return the name of one of these objects that is there no more; names by ids."""
    for oid, name in ids.items():
        found = called(state, name)
        if (found is None or found.id != oid) and all(each.id != oid for each in objects(state)):
            return name
    return None


def relation(state: State, name: str) -> tuple[Object, GlobalId]:
    """Return the table or materialized view called ``name``, and its collection."""
    found = named(state, name)
    if not found.collection or found.kind == "index":
        raise UnknownRelation(name, hint=f"There is a {found.kind} of that name.")
    return found, gid_of(state, found)


def gid_of(state: State, each: Object) -> GlobalId:
    """Return the collection of an object, which the transaction that creates it may not have."""
    gid = state.names.get(each.collection)
    if gid is None:
        raise created_here(f'reading "{each.name}"')
    return gid


def created_here(what: str) -> Unsupported:
    """Say that what others keep is not there before the transaction commits that creates it."""
    return Unsupported(
        f"{what} in the transaction that creates it",
        detail="It is there when the transaction commits, not before.",
        hint="COMMIT first.",
    )


def objects(state: State) -> Iterator[Object]:
    """Return everything in the catalog, by name."""
    for key in sorted(key for key in state.items if key.startswith(PREFIX)):
        yield _decoded(state.items[key])


def refuse_duplicate(state: State, name: str) -> None:
    """Refuse a name for an object that is taken, or the system's."""
    if naming.bare(name).startswith(SYSTEM_PREFIX):
        raise ReservedName(name, SYSTEM_PREFIX)
    if called(state, name) is not None:
        raise DuplicateRelation(name)


def users(state: State, oid: str) -> list[Object]:
    """Return the objects that are made of this one."""
    return [each for each in objects(state) if oid in each.uses]


def changed(what: Object, **changes: Any) -> Object:
    """Return an object with other words about it; what it is stays."""
    return msgspec.structs.replace(what, **changes)


def schemas(state: State, names: Sequence[str]) -> dict[str, pa.Schema]:
    """Return the columns of some relations."""
    found = {}
    for name in names:
        each = named(state, name)
        if each.collection and each.kind != "index":
            collection = state.collections[gid_of(state, each)]
            found[name] = evolution.from_bytes(collection.schemas[-1])
        elif each.schema:
            found[name] = evolution.from_bytes(each.schema)
        else:
            raise UnknownRelation(name, hint=f"There is a {each.kind} of that name.")
    return found


def put(what: Object) -> SetItem:
    """Return the command that names a thing."""
    return SetItem(PREFIX + what.name, msgspec.json.encode(what))


def remove(name: str) -> SetItem:
    """Return the command that frees a name."""
    return SetItem(PREFIX + name, None)


# ---- what a query reads --------------------------------------------------------------------------


@dataclass(slots=True)
class Sources:
    """What the names of a query mean."""

    relations: dict[str, str] = field(default_factory=dict)
    """From names in the text to collections."""
    views: dict[str, str] = field(default_factory=dict)
    """From names in the text to the queries of views."""
    collections: dict[GlobalId, str] = field(default_factory=dict)
    """Everything that is read, with the name it is known by."""
    tables: dict[GlobalId, str] = field(default_factory=dict)
    """The tables that all of it is made of."""
    derived: dict[GlobalId, str] = field(default_factory=dict)
    """What is read and is no table: it follows others."""
    begins: dict[GlobalId, int] = field(default_factory=dict)
    """From when on those mean what they are read for that took the place of others."""
    unsteady: dict[GlobalId, str] = field(default_factory=dict)
    """What may change although no table does: with the clock, or from outside."""
    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    """The columns of each, by the names of the query."""
    indexes: dict[str, str] = field(default_factory=dict)
    """Plain views of which an index is read, and its name."""
    unindexed: Callable[[], Sources] | None = None
    """The same without indexes, where one is read that may have errors which the query has not."""
    system: tuple[str, ...] = ()
    """The system views among what is read."""
    written: Mapping[GlobalId, Overlay] = field(default_factory=dict)
    """What the transaction that reads has written itself, by table."""
    created: dict[str, pa.Schema] = field(default_factory=dict)
    """Tables that it has created itself, by their collections: they have nothing else."""

    def text(self, sql: str) -> str:
        """Return the query with its views in front."""
        if not self.views:
            return sql
        definitions = ", ".join(f"{quoted(n)} AS ({q})" for n, q in self.views.items())
        nested = f"({sql})" if sql.lstrip().upper().startswith("WITH") else sql
        return f"WITH {definitions} {nested}"


Standing = Callable[[Object], Object | None]
"""The index that is read in place of a plain view, if there is one."""
Afresh = Callable[[Object], bool]
"""Whether a view that is kept is computed all the same: what is kept is not what it would be."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How views are read."""

    standing: Standing = lambda _: None
    afresh: Afresh = lambda _: False

    def is_text(self, each: Object) -> bool:
        """Whether an object stands in a query by its own query."""
        return each.kind == "view" or (each.kind == "materialized view" and self.afresh(each))


AS_KEPT: Final = Ways()
"""Every view that is kept is read where it is kept."""


def sources(state: State, names: Sequence[str], ways: Ways = AS_KEPT) -> Sources:
    """Return what the names of a query mean, through views that nothing stands for."""
    found = Sources(schemas=schemas(state, names))
    for name in dict.fromkeys(names):
        each = named(state, name)
        index = ways.standing(each) if each.kind == "view" else None
        if index is not None:
            found.relations[name] = _read(state, index, found, each.name)
            found.indexes[name] = index.name
        elif ways.is_text(each):
            found.views[name] = _view_text(state, each, found, ways)
        else:
            found.relations[name] = _read(state, each, found, each.name)
    return found


def rests_on(state: State, each: Object, tables: Collection[GlobalId]) -> bool:
    """Whether an object is one of these tables, or made of one."""
    if not tables:
        return False
    if each.kind == "table" and state.names.get(each.collection) in tables:
        return True
    return any(rests_on(state, by_id(state, oid), tables) for oid in each.uses)


def quoted(name: str) -> str:
    """Return a name as Spark's parser takes it, whatever its characters."""
    return f"`{name.replace('`', '``')}`"


def _read(state: State, each: Object, found: Sources, known_as: str) -> str:
    if not each.collection:
        raise UnknownRelation(each.name, hint=f"There is a {each.kind} of that name.")
    gid = gid_of(state, each)
    found.collections[gid] = known_as
    if each.begins:
        found.begins[gid] = each.begins
    _add_tables(state, each, found)
    if each.kind != "table":
        found.derived[gid] = known_as
    return each.collection


def _add_tables(state: State, each: Object, found: Sources) -> None:
    if each.kind == "table":
        found.tables[state.names[each.collection]] = each.name
    elif each.collection and not _is_steady(state, state.names[each.collection]):
        found.unsteady[state.names[each.collection]] = each.name
    for oid in each.uses:
        _add_tables(state, by_id(state, oid), found)


def _is_steady(state: State, gid: GlobalId) -> bool:
    """Whether a collection is a view that changes only when what it is made of does."""
    value = state.items.get(definition.item_key(gid))
    if value is None:
        return False
    view = definition.decoded(value)
    return not (isinstance(view, MaintainedView) and view.schedules)


def _view_text(state: State, view: Object, found: Sources, ways: Ways) -> str:
    definitions = []
    for name, each in _inputs(state, view):
        index = ways.standing(each) if each.kind == "view" else None
        if ways.is_text(each) and index is None:
            body = _view_text(state, each, found, ways)
        else:
            read = each if index is None else index
            if index is not None:
                found.indexes[each.name] = index.name
            # Under a name that no user gives: the same one may mean something else outside.
            inner = f"__{read.collection}"
            found.relations[inner] = _read(state, read, found, each.name)
            body = f"SELECT * FROM {quoted(inner)}"  # noqa: S608 - our own name
        definitions.append(f"{quoted(name)} AS ({body})")
    query = _query(state, view, found)
    return f"WITH {', '.join(definitions)} ({query})" if definitions else query


def _inputs(state: State, view: Object) -> list[tuple[str, Object]]:
    """Return the names in the query of a view, and what they mean."""
    bound = [(name, by_id(state, oid)) for name, oid in view.bindings.items()]
    if view.kind == "view":
        return bound
    # The text of one that is kept has the plain views in front that it is made of.
    text, by_collection = (
        kept_query(state, view),
        {each.collection: each for each in objects(state)},
    )
    inner = {name: by_collection.get(name) for name in _INNER.findall(text)}
    named = [(f"__{name}", each) for name, each in inner.items() if each is not None]
    return [*((name, each) for name, each in bound if each.kind != "view"), *named]


def _query(state: State, view: Object, found: Sources) -> str:
    if view.kind == "view":
        return view.query
    gid = gid_of(state, view)
    if not _is_steady(state, gid):
        found.unsteady[gid] = view.name
    return kept_query(state, view)


def kept_query(state: State, view: Object) -> str:
    """Return the query of a view that is kept, in Spark's dialect; refuse one that is no text."""
    value = state.items.get(definition.item_key(gid_of(state, view)))
    text = "" if value is None else definition.decoded(value).sql
    if not text:
        raise Unsupported(
            f'reading "{view.name}" after writing what it is made of in one transaction',
            detail="It is made of a DataFrame, which is not kept as a text.",
            hint="Read it first, or COMMIT in between.",
        )
    return text
