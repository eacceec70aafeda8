"""What definitions change: commands on a state, several of them on top of one another.

Relied on by: :mod:`headwater.adapter.definitions`, and transactions that hold a :class:`Block`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headwater.adapter import catalog, namespaces
from headwater.adapter.errors import SerializationFailure, Unsupported
from headwater.adapter.sql.names import schema_of
from headwater.persist.commands import Atomic, Command, SetItem
from headwater.persist.decide import decide
from headwater.persist.state import State, apply_change

Effect = Callable[[tuple[Command, ...]], object]
"""Does what others keep, with these commands in the same entry."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a definition does."""

    tag: str
    commands: tuple[Command, ...] = ()
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """The definitions of a transaction block so far, and the catalog as it was before them."""

    base: Mapping[str, bytes]
    commands: tuple[Command, ...] = ()
    effects: tuple[Effect, ...] = ()

    def having(self, change: Change, *, rows: bool = False) -> Block:
        """The block with one more; ``rows``: of a transaction that has written some."""
        effects = (*self.effects, *change.effects)
        if effects and rows:
            raise effect_with_rows()
        if len(effects) > 1:
            raise Unsupported(
                "more than one materialized view or materialization in one transaction"
            )
        return Block(self.base, (*self.commands, *change.commands), effects)

    def check(self, state: State) -> None:
        """Refuse it if a name that it changes means something else by now."""
        for command in self.commands:
            if isinstance(command, SetItem) and (
                state.items.get(command.key) != self.base.get(command.key)
            ):
                raise SerializationFailure(command.key.removeprefix(catalog.PREFIX))


def effect_with_rows() -> Unsupported:
    """Say why what others keep is not made in a transaction that writes rows."""
    return Unsupported(
        "a materialized view, index, source or materialization and rows in one transaction",
        hint="Create or drop it in a transaction of its own. Tables and views may be.",
    )


def after(state: State, commands: Sequence[Command], now_ms: int) -> State:
    """Return the state that commands would make."""
    for change in decide(state, Atomic(tuple(commands)), now_ms).changes:
        state = apply_change(state, change)
    return state


def refuse_dangling(state: State) -> None:
    """Refuse a catalog with something made of, or in, what another session dropped meanwhile."""
    known = {each.id for each in catalog.objects(state)}
    for each in catalog.objects(state):
        there = namespaces.exists(state, schema_of(each.name))
        if not there or not known.issuperset(each.uses):
            raise SerializationFailure(each.name)
