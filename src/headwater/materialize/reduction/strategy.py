"""Strategies: what happens at one location of a document when another is reduced into it.

A strategy is a frozen value, made of a schema's keyword ``reduce: {"strategy": …}`` or of SQL's
``REDUCE (column strategy)``. A location without one has :data:`DEFAULT`, lastWriteWins.

*Retractions.* A collection of ours also takes rows away. A document that was reduced into others
can be taken out again only where the strategy has an inverse, or where the key has one row at a
time and the new row replaces it. :func:`retraction` says which; what it refuses is refused when
the materialization is validated, before a number is wrong.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.base.errors import InvalidUsage


@dataclass(frozen=True, slots=True)
class Append:
    """Arrays are concatenated; a null on the left stays null."""


@dataclass(frozen=True, slots=True)
class FirstWriteWins:
    """What is there stays."""


@dataclass(frozen=True, slots=True)
class LastWriteWins:
    """What comes replaces; with ``delete`` the location goes, in a full reduction."""

    delete: bool = False
    associative: bool = True
    """If not, unequal updates are kept apart until they meet the document they update."""


@dataclass(frozen=True, slots=True)
class Minimize:
    """The lesser value stays, by its whole or by a key of pointers into it."""

    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Maximize:
    """The greater value stays, by its whole or by a key of pointers into it."""

    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """Objects by property, arrays by index or, with a key, as sorted sets."""

    key: tuple[str, ...] = ()
    delete: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """An object of ``add``, ``intersect``, ``remove`` is an update of a set."""

    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sum:
    """Numbers, or strings that hold numbers, are added."""


@dataclass(frozen=True, slots=True)
class JsonSchemaMerge:
    """JSON schemas are widened until both sides' documents are valid."""


Strategy = (
    Append
    | FirstWriteWins
    | LastWriteWins
    | Minimize
    | Maximize
    | Merge
    | Set
    | Sum
    | JsonSchemaMerge
)

DEFAULT: Final = LastWriteWins()

NAMES: Final[Mapping[str, type[Any]]] = {
    "append": Append,
    "firstWriteWins": FirstWriteWins,
    "lastWriteWins": LastWriteWins,
    "minimize": Minimize,
    "maximize": Maximize,
    "merge": Merge,
    "set": Set,
    "sum": Sum,
    "jsonSchemaMerge": JsonSchemaMerge,
}


class UnknownStrategy(InvalidUsage):
    """A ``reduce`` annotation that is none."""

    def __init__(self, annotation: object, reason: str) -> None:
        super().__init__(
            f"the reduction {annotation!r} {reason}; strategies are {', '.join(NAMES)}"
        )


def name_of(strategy: Strategy) -> str:
    """Return what a strategy is called."""
    return next(name for name, kind in NAMES.items() if isinstance(strategy, kind))


def takes(strategy: Strategy) -> tuple[str, ...]:
    """Return what a strategy puts together, of arrays and structs; nothing: values of any kind.

    A text of JSON is neither: it is not looked into.
    """
    match strategy:
        case Append():
            return ("arrays",)
        case Merge():
            return ("arrays", "structs")
        case Set() | JsonSchemaMerge():
            return ("structs",)
        case _:
            return ()


def parse(annotation: object) -> Strategy:
    """Return the strategy of a ``reduce`` annotation.

    >>> parse({"strategy": "minimize", "key": ["/at"]})
    Minimize(key=('/at',))
    """
    if not isinstance(annotation, Mapping) or not isinstance(annotation.get("strategy"), str):
        raise UnknownStrategy(annotation, "has no strategy")
    kind = NAMES.get(annotation["strategy"])
    if kind is None:
        raise UnknownStrategy(annotation, "names no strategy")
    options = {name: value for name, value in annotation.items() if name != "strategy"}
    for name, value in options.items():
        if name not in kind.__dataclass_fields__:
            raise UnknownStrategy(annotation, f"has the unknown property {name!r}")
        options[name] = _option(annotation, name, value)
    strategy: Strategy = kind(**options)
    return strategy


def _option(annotation: object, name: str, value: object) -> object:
    if name == "key":
        pointers = isinstance(value, list) and all(
            isinstance(item, str) and (not item or item.startswith("/")) for item in value
        )
        if not isinstance(value, list) or not pointers:
            raise UnknownStrategy(annotation, "has a key that is no list of JSON pointers")
        return tuple(value)
    if not isinstance(value, bool):
        raise UnknownStrategy(annotation, f"has a {name!r} that is neither true nor false")
    return value


class Retraction(enum.Enum):
    """What becomes of a row that is taken away."""

    SUBTRACTED = "its value times its diff is added, which takes it out"
    REPLACED = "the key's new row replaces it, or the key is deleted"
    REFUSED = "it cannot be taken out of what it was reduced into"


def retraction(strategy: Strategy) -> Retraction:
    """Return whether a strategy can absorb retractions, and how."""
    match strategy:
        case Sum():
            return Retraction.SUBTRACTED
        case LastWriteWins():
            return Retraction.REPLACED
        case _:
            return Retraction.REFUSED


class CannotRetract(InvalidUsage):
    """A collection with retractions into a strategy that cannot absorb them."""

    def __init__(self, column: str, strategy: Strategy) -> None:
        super().__init__(
            f"column {column!r} is reduced by {name_of(strategy)}, which cannot absorb rows that "
            f"are deleted or updated: {Retraction.REFUSED.value}; compute it in a view and "
            "deliver the view without REDUCE, or deliver an append-only collection"
        )
