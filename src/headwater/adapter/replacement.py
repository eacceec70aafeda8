"""``CREATE OR REPLACE MATERIALIZED VIEW``: another query under the same name, without a gap.

    build   the new view has a collection of its own and hydrates beside the old one, which stays as
            it is and answers; so has everything that reads the old one as it is stored
    swap    when all of them are as far as those they replace: in one entry every object means its
            new collection, and a materialization goes on from the difference between the two
    drop    the old ones go a little later (``GRACE_SECONDS``), so that who reads them just then is
            not cut off

*Readers* of a materialized view are those whose collections are made of it, through plain views or
not: materialized views and indexes, and theirs in turn. They are made again by the queries they
have, over the new collections; plain views are texts, and need nothing. A materialization delivers
what the new rows are other than the old ones, in one transaction (``materialize.replaced``); until
its endpoint has that, the old collection is kept. It must still have the columns that it delivers.
A durable subscription has told the old rows to somebody else: it is named and nothing is done.

The item ``replacement/<collection>`` names what is to be dropped if nobody goes on with it: first
the new collections, from the swap on the old ones. So a server that dies in between leaves one set
of views, whole, and drops the other when it starts again (:func:`drop_abandoned`).

Objects keep their ids. Where a plain view is made of one, its columns must stay as they are. A
query that fails while it is built changes nothing.

History begins anew: times before the swap's hydration cannot be read any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headwater.adapter import catalog
from headwater.adapter.catalog import Object
from headwater.adapter.errors import InvalidDefinition, WrongKind
from headwater.adapter.ports import Evaluator
from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.collection.schema import type_of
from headwater.compute import definition
from headwater.compute.ir import plan as plans
from headwater.materialize.controller import Materializations
from headwater.materialize.replaced import CannotBeMoved
from headwater.persist import evolution
from headwater.persist.commands import Atomic, Command, SetItem
from headwater.persist.core import Core
from headwater.persist.read import Hold
from headwater.persist.state import State

PREFIX: Final = "replacement/"
LOOK_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Affected:
    """What a replacement does to others, in the order in which they are made."""

    rebuilt: tuple[Object, ...]
    """Materialized views and indexes that read what is replaced."""
    kept: tuple[Object, ...]
    """Plain views: their texts mean the new one from the swap on."""
    delivered: tuple[Object, ...]
    """Materializations: they go on from the difference."""
    refused: tuple[Object, ...]
    """What has told the old rows to somebody else."""


def affected(state: State, found: Object) -> Affected:
    """Return whom a replacement concerns: everything that is made of the object."""
    order: dict[str, Object] = {}
    _add_readers(state, found, order)
    readers = list(order.values())
    stored = ("materialized view", "index")
    return Affected(
        tuple(each for each in readers if each.kind in stored),
        tuple(each for each in readers if each.kind == "view"),
        tuple(each for each in readers if each.kind == "materialization"),
        tuple(each for each in readers if each.kind not in (*stored, "view", "materialization")),
    )


def _add_readers(state: State, each: Object, order: dict[str, Object]) -> None:
    for user in catalog.users(state, each.id):
        order.pop(user.id, None)  # To the end: after all that it is made of.
        order[user.id] = user
        _add_readers(state, user, order)


def check_order(found: Object, concerned: Affected, uses: Sequence[str]) -> None:
    """Refuse a query that reads what it replaces, or what is made of that."""
    above = {each.id: each.name for each in (*concerned.rebuilt, *concerned.kept)}
    above[found.id] = found.name
    for oid in uses:
        if oid in above:
            raise InvalidDefinition(
                f'"{found.name}" cannot be replaced by a query over "{above[oid]}": it would be '
                "made of itself",
                hint="Read what it is made of instead, or create a view under another name.",
            )


def check(state: State, found: Object, uses: Sequence[str]) -> Affected:
    """Return whom a replacement by what uses these concerns; refuse one that cannot be."""
    if found.kind != "materialized view":
        raise WrongKind(found.name, "materialized view", found.kind)
    concerned = affected(state, found)
    check_order(found, concerned, uses)
    if concerned.refused:
        names = ", ".join(f"{each.kind} {each.name}" for each in concerned.refused)
        raise InvalidDefinition(
            f'"{found.name}" cannot be replaced: {names} has told its rows to somebody',
            hint="Drop it and make it again afterwards, or create the new view under another name.",
        )
    return concerned


def explained(state: State, found: Object, inputs: Sequence[str]) -> Iterator[str]:
    """Say what a replacement by a query over ``inputs`` computes anew, and what stays as it is."""
    if found.kind != "materialized view":
        raise WrongKind(found.name, "materialized view", found.kind)
    concerned = affected(state, found)
    check_order(found, concerned, [catalog.named(state, name).id for name in inputs])
    yield "recomputed, beside what answers meanwhile:"
    yield f"  {found.kind} {found.name}"
    for each in concerned.rebuilt:
        yield f"  {each.kind} {each.name}: it reads {_why(state, each)}"
    yield "kept as it is:"
    for each in concerned.kept:
        yield f"  {each.kind} {each.name}: a text, if the columns it uses stay"
    for name in inputs:
        each = catalog.named(state, name)
        yield f"  {each.kind} {each.name}: read by the new query"
    if concerned.delivered:
        yield "goes on from the difference, if the columns it delivers stay:"
        for each in concerned.delivered:
            yield f"  {each.kind} {each.name}"
    if concerned.refused:
        yield "refused, because it has told its rows to somebody:"
        for each in concerned.refused:
            yield f"  {each.kind} {each.name}"


def _why(state: State, each: Object) -> str:
    return ", ".join(catalog.by_id(state, oid).name for oid in each.uses)


def _views(state: State, found: Object) -> list[definition.Definition]:
    return [view for view in definition.stored(state) if view.name == found.collection]


def check_columns(state: State, found: Object, built: str) -> None:
    """Refuse other columns while plain views are made of the old ones."""
    users = [each.name for each in catalog.users(state, found.id) if each.kind == "view"]
    old, new = (
        evolution.from_bytes(state.collections[state.names[name]].schemas[-1])
        for name in (found.collection, built)
    )
    differences = changed_columns(old, new)
    if users and differences:
        raise InvalidDefinition(
            f'"{found.name}" cannot be replaced: its columns would change, and view '
            f"{', '.join(users)} is made of them",
            detail=f"{'; '.join(differences)}.",
            hint="Drop the views that are made of it, or keep names and types of the columns.",
        )


def changed_columns(old: pa.Schema, new: pa.Schema) -> list[str]:
    """Say how the columns differ for who reads them; whether one may be NULL is not among it.

    >>> old = pa.schema([("k", pa.int32()), ("v", pa.string()), ("w", pa.string())])
    >>> new = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64())])
    >>> changed_columns(old, new)
    ['column "v" was text and would be bigint', 'column "w" would be gone']
    >>> changed_columns(old, pa.schema([old.field(1), old.field(0), old.field(2)]))
    ['the order of the columns would change']
    """
    types = [{field.name: type_of(field) for field in schema} for schema in (old, new)]
    found = []
    for name, was in types[0].items():
        will = types[1].get(name)
        if will is None:
            found.append(f'column "{name}" would be gone')
        elif will != was:
            found.append(f'column "{name}" was {was.postgres} and would be {will.postgres}')
    found += [f'column "{name}" would be new' for name in types[1] if name not in types[0]]
    return found or (["the order of the columns would change"] if old.names != new.names else [])


class Replacement:
    """One replacement: ``named`` in place of ``found``, with all who read that."""

    def __init__(
        self,
        core: Core,
        views: Evaluator,
        materializations: Materializations,
        found: Object,
        new_id: Callable[[], GlobalId],
    ) -> None:
        self._core, self._views, self._found = core, views, found
        self._materializations = materializations
        self._new_id = new_id
        self._built: dict[str, str] = {}
        """From the collections that were to those that are to be, in the order of making."""
        self._swapped = False

    def run(self, named: Object, create: Callable[..., object]) -> None:
        """Build the view that ``create`` makes in ``named.collection``, and swap it in."""
        core, found = self._core, self._found
        concerned = check(core.state, found, named.uses)
        gids = [core.state.names[each.collection] for each in (found, *concerned.rebuilt)]
        with self._refusing():
            self._materializations.check_replaceable(gids)
        try:
            self._building(found.collection, named.collection)
            create((_doomed(named.collection),))
            check_columns(core.state, found, named.collection)
            for each in concerned.rebuilt:
                self._rebuild(each)
                check_columns(core.state, each, self._built[each.collection])
            for old, new in self._built.items():
                _await(core, self._views, old, new)
            self._swap(named, concerned.rebuilt)
        except BaseException:
            for built in reversed(self._built.values() if not self._swapped else ()):
                self._views.drop_view(built, also=(_spared(built),))
            raise
        _drop_later(core, self._views, self._materializations, tuple(reversed(self._built)))

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Tell which materialization cannot go on, by its name."""
        try:
            yield
        except CannotBeMoved as error:
            name = catalog.by_id(self._core.state, error.name).name
            raise InvalidDefinition(
                f'"{self._found.name}" cannot be replaced: materialization {name} cannot go on: '
                f"{error.why}",
                hint=f"Drop materialization {name} and make it again afterwards, or keep what it "
                "delivers.",
            ) from error

    def _building(self, old: str, new: str) -> None:
        self._built[old] = new

    def _rebuild(self, each: Object) -> None:
        """Make a reader again by the query it has, over what is built so far."""
        state = self._core.state
        (view,) = _views(state, each)
        names = {name: state.collections[gid].name for name, gid in view.relations.items()}
        built = f"u{self._new_id()}"
        self._building(each.collection, built)
        try:
            self._views.create_view(
                built,
                _query(view),
                relations={name: self._built.get(old, old) for name, old in names.items()},
                key=state.collections[view.id].key,
                also=(_doomed(built),),
            )
        except HeadwaterError as error:
            raise InvalidDefinition(
                f'"{self._found.name}" cannot be replaced: {each.kind} {each.name} could not be '
                f"made of the new query: {error}",
                hint=f"Drop {each.kind} {each.name}, or keep the columns that it reads.",
            ) from error

    def _swap(self, named: Object, rebuilt: Sequence[Object]) -> None:
        names = self._core.state.names
        swapped = {names[old]: names[new] for old, new in self._built.items()}
        # So that what a materialization begins with can be read when it does.
        holds = [Hold(self._core, gid, _since(self._core.state, gid)) for gid in swapped.values()]
        try:
            with self._refusing():
                self._materializations.replace(
                    swapped, lambda also: self._commit(named, rebuilt, also)
                )
        finally:
            for hold in holds:
                hold.release()

    def _commit(self, named: Object, rebuilt: Sequence[Object], also: tuple[Command, ...]) -> None:
        state = self._core.state
        kept = catalog.named(state, self._found.exact)
        swapped = [
            catalog.changed(
                named, id=kept.id, comment=kept.comment, column_comments=kept.column_comments
            )
        ]
        for each in rebuilt:
            now = catalog.by_id(state, each.id)
            swapped.append(catalog.changed(now, collection=self._built[each.collection]))
        marks = [mark for old, new in self._built.items() for mark in (_spared(new), _doomed(old))]
        self._core.submit(Atomic((*map(catalog.put, swapped), *marks, *also))).result()
        self._swapped = True


def _query(view: definition.Definition) -> Any:
    """Return what a view is made of: its text, or its plan where the text does not say it all."""
    plan = plans.decoded(view.plan) if view.plan else None
    return view.sql if view.sql and (plan is None or not plan.functions) else plan


def _since(state: State, gid: GlobalId) -> int:
    since = state.collections[gid].since
    return 0 if since.is_closed else since.only()


def _drop_later(
    core: Core, views: Evaluator, materializations: Materializations, gone: Sequence[str]
) -> None:
    """Drop what was replaced when nobody reads it any more, readers before what they read."""

    def drop() -> None:
        time.sleep(GRACE_SECONDS)
        # Stopped meanwhile: the next start does it.
        with suppress(HeadwaterError):
            for old in gone:
                while materializations.needs(_age(core, old)):
                    core.wait(lambda _: None, LOOK_SECONDS)
                _drop(core, views, old)

    thread = threading.Thread(target=drop, name=f"headwater-drop-{gone[-1]}", daemon=True)
    thread.start()


def _doomed(collection: str) -> SetItem:
    return SetItem(PREFIX + collection, collection.encode())


def _spared(collection: str) -> SetItem:
    return SetItem(PREFIX + collection, None)


def abandoned(state: State) -> list[tuple[str, str]]:
    """Return what is to be dropped: items, and the collections they name."""
    return [(key, value.decode()) for key, value in state.items.items() if key.startswith(PREFIX)]


def drop_abandoned(core: Core, views: Evaluator, materializations: Materializations) -> None:
    """Drop what nobody builds any more: called before anything is defined."""
    # The youngest first: readers before what they read.
    found = sorted(abandoned(core.state), key=lambda each: -_age(core, each[1]))
    collections = [each for _, each in found]
    if any(materializations.needs(_age(core, each)) for each in collections):
        # Such a one may be made of the others.
        _drop_later(core, views, materializations, collections)
        return
    for each in collections:
        _drop(core, views, each)


def _drop(core: Core, views: Evaluator, collection: str) -> None:
    if not views.drop_view(collection, also=(_spared(collection),)):
        core.submit(_spared(collection)).result()


def _age(core: Core, collection: str) -> GlobalId:
    return core.state.names.get(collection, GlobalId(0))


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
