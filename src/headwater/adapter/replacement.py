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
A subscription tells the difference at the time of the swap, which all that is swapped has in common
(``collection.succession``); as long as it has not come so far, or a durable one has not
acknowledged it, the old collection is kept. The columns must stay as they are where a durable one
tells them; one that merely runs ends where they change.

The item ``replacement/<collection>`` names what is to be dropped if nobody goes on with it: first
the new collections, from the swap on the old ones. So a server that dies in between leaves one set
of views, whole, and drops the other when it starts again (:func:`drop_abandoned`).

Objects keep their ids. Where a plain view is made of one, its columns must stay as they are. A
query that fails while it is built changes nothing.

History begins anew: times before the swap cannot be read any more. What an old view that stands
still lacks up to the swap is taken for no change (:func:`_settle`), so that nobody waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headwater.adapter import catalog, subscriptions
from headwater.adapter.catalog import Object
from headwater.adapter.errors import InvalidDefinition, Unsupported, WrongKind
from headwater.adapter.ports import Evaluator
from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.collection import succession
from headwater.collection.schema import type_of
from headwater.collection.succession import Succession, changed_columns
from headwater.compute import definition
from headwater.compute.ir import plan as plans
from headwater.materialize.controller import Materializations
from headwater.materialize.replaced import CannotBeMoved
from headwater.persist import evolution
from headwater.persist.commands import Atomic, Command, Outcome, Seal, SetItem
from headwater.persist.core import Core
from headwater.persist.errors import SealRegression
from headwater.persist.read import Hold
from headwater.persist.state import State

PREFIX: Final = "replacement/"
LOOK_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 5.0
STILL_SECONDS: Final = 5.0
"""How long an old view may stay where it is, short of the swap, before it is not waited for."""

CommitAlone = Callable[[Callable[[int], Sequence[Command]]], Outcome]
"""Commits what is to be at a time, in an entry of that time; ``group_commit``."""


@dataclass(frozen=True, slots=True)
class Affected:
    """What a replacement does to others, in the order in which they are made."""

    rebuilt: tuple[Object, ...]
    """Materialized views and indexes that read what is replaced."""
    kept: tuple[Object, ...]
    """Plain views: their texts mean the new one from the swap on."""
    delivered: tuple[Object, ...]
    """Materializations: they go on from the difference."""
    followed: tuple[Object, ...]
    """Durable subscriptions: they tell the difference at the swap."""


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
        tuple(each for each in readers if each.kind == "subscription"),
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
            raise _made_of_itself(found, above[oid])


def _made_of_itself(found: Object, over: str) -> InvalidDefinition:
    return InvalidDefinition(
        f'"{found.name}" cannot be replaced by a query over "{over}": it would be made of itself',
        hint="Read what it is made of instead, or create a view under another name.",
    )


def check_view(state: State, found: Object, tables: Sequence[str]) -> None:
    """Refuse to replace what is no plain view, has views made of it, or would be made of itself."""
    if found.kind != "view":
        raise WrongKind(found.name, "view", found.kind)
    if catalog.users(state, found.id):
        hint = "Create a view under another name, or drop those first."
        raise Unsupported("replacing a view that others are made of", hint=hint)
    if found.id in {catalog.named(state, table).id for table in tables}:
        raise _made_of_itself(found, found.name)


def check(state: State, found: Object, uses: Sequence[str]) -> Affected:
    """Return whom a replacement by what uses these concerns; refuse one that cannot be."""
    if found.kind != "materialized view":
        raise WrongKind(found.name, "materialized view", found.kind)
    concerned = affected(state, found)
    check_order(found, concerned, uses)
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
    if concerned.followed:
        yield "tells the difference at the time of the swap, if the columns stay:"
        for each in concerned.followed:
            yield f"  {each.kind} {each.name}"


def refusals(
    state: State, found: Object, new: pa.Schema, materializations: Materializations
) -> Iterator[str]:
    """Say why a replacement by a query with these columns would be refused, if it would be."""
    reasons = []
    refused = refused_columns(state, found, new)
    if refused is not None:
        reasons += [str(refused), f"{refused.detail}", f"{refused.hint}"]
    gids = [state.names[each.collection] for each in (found, *affected(state, found).rebuilt)]
    try:
        materializations.check_replaceable(gids)
        materializations.check_delivered(gids[0], new)
    except CannotBeMoved as error:
        told = _immovable(state, found, error)
        reasons += [str(told), f"{told.hint}"]
    if reasons:
        yield "would be refused:"
        yield from (f"  {reason}" for reason in reasons)


def _immovable(state: State, found: Object, error: CannotBeMoved) -> InvalidDefinition:
    """Tell which materialization cannot go on, by its name."""
    name = catalog.by_id(state, error.name).name
    return InvalidDefinition(
        f'"{found.name}" cannot be replaced: materialization {name} cannot go on: {error.why}',
        hint=f"Drop materialization {name} and make it again afterwards, or keep what it delivers.",
    )


def _why(state: State, each: Object) -> str:
    return ", ".join(catalog.by_id(state, oid).name for oid in each.uses)


def _views(state: State, found: Object) -> list[definition.Definition]:
    return [view for view in definition.stored(state) if view.name == found.collection]


def check_columns(state: State, found: Object, built: str) -> None:
    """Refuse other columns while somebody needs the old ones as they are."""
    refused = refused_columns(state, found, _columns(state, built))
    if refused is not None:
        raise refused


def refused_columns(state: State, found: Object, new: pa.Schema) -> InvalidDefinition | None:
    """Return why an object cannot have these columns: plain views and subscriptions have others."""
    kinds = ("view", "subscription")
    users = [each for each in catalog.users(state, found.id) if each.kind in kinds]
    differences = changed_columns(_columns(state, found.collection), new)
    if not users or not differences:
        return None
    names = ", ".join(f"{each.kind} {each.name}" for each in users)
    return InvalidDefinition(
        f'"{found.name}" cannot be replaced: its columns would change, and {names} needs them',
        detail=f"{'; '.join(differences)}.",
        hint=f"Drop {names} and make it again afterwards, or keep names and types of the columns.",
    )


def _columns(state: State, collection: str) -> pa.Schema:
    return evolution.from_bytes(state.collections[state.names[collection]].schemas[-1])


class Replacement:
    """One replacement: ``named`` in place of ``found``, with all who read that."""

    def __init__(
        self,
        core: Core,
        views: Evaluator,
        materializations: Materializations,
        found: Object,
        new_id: Callable[[], GlobalId],
        commit_alone: CommitAlone,
    ) -> None:
        self._core, self._views, self._found = core, views, found
        self._materializations = materializations
        self._commit_alone = commit_alone
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
        try:
            yield
        except CannotBeMoved as error:
            raise _immovable(self._core.state, self._found, error) from error

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
                types=tuple(map(type_of, _columns(state, each.collection))),
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
        self._commit_alone(lambda time: self._swapping(named, rebuilt, also, time))
        self._swapped = True

    def _swapping(
        self, named: Object, rebuilt: Sequence[Object], also: tuple[Command, ...], time: int
    ) -> tuple[Command, ...]:
        """Return what makes every object mean its new collection from ``time`` on."""
        state = self._core.state
        kept = catalog.named(state, self._found.exact)
        swapped = [
            catalog.changed(
                named,
                id=kept.id,
                comment=kept.comment,
                column_comments=kept.column_comments,
                begins=time,
            )
        ]
        for each in rebuilt:
            now = catalog.by_id(state, each.id)
            built = self._built[each.collection]
            swapped.append(catalog.changed(now, collection=built, begins=time))
        marks = [mark for old, new in self._built.items() for mark in (_spared(new), _doomed(old))]
        lines = [
            succession.put(state.names[old], Succession(state.names[new], time, time))
            for old, new in self._built.items()
        ]
        followed = [
            subscriptions.going_on(each, state.names[which.collection], time)
            for which in swapped
            for each in catalog.users(state, which.id)
            if each.kind == "subscription"
        ]
        return (*map(catalog.put, swapped), *marks, *lines, *followed, *also)


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
        # Stopped meanwhile: the next start does it.
        with suppress(HeadwaterError):
            for old in gone:
                _settle(core, views, old)
            time.sleep(GRACE_SECONDS)
            left = gone
            while left := _drop_unneeded(core, views, materializations, left):
                core.wait(lambda _: None, LOOK_SECONDS)

    thread = threading.Thread(target=drop, name=f"headwater-drop-{gone[-1]}", daemon=True)
    thread.start()


def _drop_unneeded(
    core: Core, views: Evaluator, materializations: Materializations, gone: Sequence[str]
) -> list[str]:
    """Drop what nobody needs, readers before what they read; return the rest."""
    left = list(gone)
    while free := [each for each in left if not _is_needed(core, materializations, each)]:
        for each in free:
            _drop(core, views, each)
            left.remove(each)
    return left


def _is_needed(core: Core, materializations: Materializations, collection: str) -> bool:
    """Whether anybody reads what was replaced, or may have to: also to come to what follows it."""
    gid, state = _age(core, collection), core.state
    return (
        any(gid in view.inputs for view in definition.stored(state))
        or subscriptions.is_kept(state, gid)
        or core.in_use.is_held(gid)
        or len(succession.line(state, gid)) > 1
        or materializations.needs(gid)
    )


def _settle(core: Core, views: Evaluator, collection: str) -> None:
    """Wait until an old view is as far as the swap; where it stands still, let it end there."""
    gid = _age(core, collection)
    stands, since = None, time.monotonic()
    while True:
        state = core.state
        way = succession.succession(state, gid)
        if way is None or gid not in state.collections or way.new not in state.collections:
            return
        upper = state.upper(state.collections[gid])
        if upper.is_closed or upper.only() >= way.end:
            return
        if upper != stands:
            stands, since = upper, time.monotonic()
        ahead = not state.upper(state.collections[way.new]).allows(way.begin)
        if gid in views.failures() or (ahead and time.monotonic() - since > STILL_SECONDS):
            ended = Succession(way.new, upper.only(), way.begin)
            # It has moved meanwhile: then it does not stand still.
            with suppress(SealRegression):
                core.submit(Atomic((Seal((gid,), upper), succession.put(gid, ended)))).result()
                return
        core.wait(lambda _: None, LOOK_SECONDS)


def _doomed(collection: str) -> SetItem:
    return SetItem(PREFIX + collection, collection.encode())


def _spared(collection: str) -> SetItem:
    return SetItem(PREFIX + collection, None)


def abandoned(state: State) -> list[tuple[str, str]]:
    """Return what is to be dropped: items, and the collections they name."""
    return [(key, value.decode()) for key, value in state.items.items() if key.startswith(PREFIX)]


def drop_abandoned(core: Core, views: Evaluator, materializations: Materializations) -> None:
    """Drop what nobody builds any more: called before anything is defined."""
    found = [each for _, each in abandoned(core.state)]
    left = _drop_unneeded(core, views, materializations, found)
    if left:
        _drop_later(core, views, materializations, left)


def replaced_since(state: State, read: Mapping[GlobalId, str]) -> tuple[str, int] | None:
    """Return which of the collections that are read was replaced, and when, if one was."""
    for gid, name in read.items():
        way, now = succession.succession(state, gid), catalog.called(state, name)
        if way is not None:
            return name, way.begin
        if gid not in state.collections and now is not None and now.begins:
            return name, now.begins
    return None


def _drop(core: Core, views: Evaluator, collection: str) -> None:
    forgotten = (_spared(collection), succession.remove(_age(core, collection)))
    if not views.drop_view(collection, also=forgotten):
        core.submit(Atomic(forgotten)).result()


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
