"""What definitions change: commands on a state, several of them on top of one another.

A change is *steps*: commands as they are, or such as depend on the state in which they commit
(:class:`Made`: where a view starts, what it shares with others). All steps of a transaction block
commit as one entry. What others keep and commit themselves (a materialization, a source: they speak
with the outside, and start what runs) is an :class:`Effect`: it takes the steps into its own entry,
so a block has one of them at most.

Relied on by: :mod:`headwater.adapter.definitions`, and transactions that hold a :class:`Block`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from headwater.adapter import catalog, namespaces
from headwater.adapter.errors import SerializationFailure, Unsupported
from headwater.adapter.sql.names import schema_of
from headwater.persist.commands import (
    Command,
    CreateOrLoad,
    DowngradeReader,
    DropReader,
    OpenReader,
    SetItem,
)
from headwater.persist.decide import decide
from headwater.persist.state import State, apply_change

APART = "Create, change or drop it in a transaction of its own."


@dataclass(frozen=True, slots=True)
class Made:
    """Commands that are right for one state: made anew for the one in which they commit."""

    commands: Callable[[State], tuple[Command, ...]]
    of_views: bool = False
    """Whether they make or remove a view: nobody else does so meanwhile, …"""
    removes: bool = False
    """… and none is stepped while one is removed."""


Step = Command | Made


@dataclass(frozen=True, slots=True)
class Effect:
    """What others keep: they do it and commit it, with these commands in the same entry."""

    what: str
    act: Callable[[tuple[Command, ...]], object]
    own: tuple[Command, ...] = ()
    """Of the steps, those that belong to it where it has an entry of its own."""
    beneath: bool = False
    """Whether the objects of the steps are made of it: where they go, it goes after them."""
    alone: bool = False
    """Whether nothing else can be in its entry."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a definition does."""

    tag: str
    steps: tuple[Step, ...] = ()
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """The definitions of a transaction block so far, and the catalog as it was before them."""

    base: Mapping[str, bytes]
    steps: tuple[Step, ...] = ()
    planned: tuple[Command, ...] = ()
    """What the steps came to when they were planned."""
    effect: Effect | None = None

    def having(self, change: Change, planned: tuple[Command, ...], *, rows: bool = False) -> Block:
        """The block with one more; ``rows``: of a transaction that has written some."""
        effects = (*(() if self.effect is None else (self.effect,)), *change.effects)
        if effects and rows:
            raise effect_with_rows(effects[0])
        if len(effects) > 1:
            raise Unsupported(
                f"{effects[1].what} beside {effects[0].what} in one transaction", hint=APART
            )
        steps = (*self.steps, *change.steps)
        if effects and effects[0].alone and steps:
            raise Unsupported(
                f"{effects[0].what} beside other definitions in one transaction", hint=APART
            )
        effect = effects[0] if effects else None
        return replace(self, steps=steps, planned=(*self.planned, *planned), effect=effect)

    def check(self, state: State) -> None:
        """Refuse it if a name that it changes means something else by now."""
        anew = any(isinstance(step, Made) for step in self.steps)
        for command in self.planned:
            if not isinstance(command, SetItem):
                continue
            if anew and not command.key.startswith((catalog.PREFIX, namespaces.PREFIX)):
                continue  # Perhaps of what is made anew.
            if state.items.get(command.key) != self.base.get(command.key):
                raise SerializationFailure(command.key.removeprefix(catalog.PREFIX))

    def lost(self, state: State) -> str:
        """Return the name of something that it rests on, and that is not there any more."""
        for key in self.base:
            if key.startswith(catalog.PREFIX) and key not in state.items:
                return key.removeprefix(catalog.PREFIX)
        return "the catalog"


def effect_with_rows(effect: Effect) -> Unsupported:
    """Say why what others keep is not made in a transaction that writes rows."""
    return Unsupported(f"{effect.what} and rows in one transaction", hint=APART)


_HOLDS = OpenReader | DropReader | DowngradeReader
"""No part of what the catalog is. Whether they can be had is looked at when they commit."""


def after(
    state: State, steps: Iterable[Step], now_ms: int, *, holds: bool = True
) -> tuple[State, tuple[Command, ...]]:
    """Return the state that steps would make, and what they come to for this one.

    Without ``holds`` it is what a transaction sees that has not come to its commit: history may
    have moved on since the steps were made, and they will be made anew.
    """
    commands: list[Command] = []
    for step in steps:
        for each in step.commands(state) if isinstance(step, Made) else (step,):
            commands.append(each)
            if isinstance(each, _HOLDS) and not holds:
                continue
            if isinstance(each, CreateOrLoad) and each.id is not None:
                # Perhaps of later than this state; whether it is the log's, is asked at the commit.
                state = msgspec.structs.replace(state, reserved=state.reserved | {each.id})
            for change in decide(state, each, now_ms).changes:
                state = apply_change(state, change)
    return state, tuple(commands)


def seen(state: State, block: Block, now_ms: int) -> State:
    """Return the catalog that a block would make, as its own transaction sees it."""
    planned = block.planned
    return after(state, planned, now_ms, holds=False)[0] if planned else state


def refuse_dangling(state: State) -> None:
    """Refuse a catalog with something made of, or in, what another session dropped meanwhile."""
    known = {each.id for each in catalog.objects(state)}
    for each in catalog.objects(state):
        there = namespaces.exists(state, schema_of(each.name))
        if not there or not known.issuperset(each.uses):
            raise SerializationFailure(each.name)
