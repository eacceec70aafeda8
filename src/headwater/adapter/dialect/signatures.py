"""How a function is allowed: by name, number of arguments and types.

A :class:`Signature` names the types of the arguments and of the result, and the Spark SQL of the
call with ``{0}``, ``{1}`` for the arguments. :func:`pick` chooses among the signatures of a name as
PostgreSQL would: the arguments must be exactly those types or coerce to them implicitly, the best
match wins. A name or a match that is not there is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.adapter.dialect.casts import can_coerce, coerce
from headwater.adapter.dialect.refusal import UndefinedFunction, position
from headwater.adapter.dialect.typed import TEXT, UNKNOWN, Typed
from headwater.collection.types import SqlType


@dataclass(frozen=True, slots=True)
class Signature:
    """One overload."""

    takes: tuple[SqlType, ...]
    gives: SqlType
    sql: str


Rule = Callable[[Any, list[Typed]], Typed]
"""A function whose result depends on more than its argument types: (node, arguments) → result."""


@dataclass(frozen=True, slots=True)
class Special:
    """A function with a rule of its own and ``least`` to ``most`` arguments."""

    least: int
    most: int
    rule: Rule


Function = tuple[Signature, ...] | Special


def call(node: Any, name: str, function: Function, arguments: list[Typed]) -> Typed:
    """Apply an allowed function."""
    if isinstance(function, Special):
        if not function.least <= len(arguments) <= function.most:
            raise no_function(node, name, arguments)
        return function.rule(node, arguments)
    chosen = pick(node, name, function, arguments)
    taken = [coerce(a, t).sql for a, t in zip(arguments, chosen.takes, strict=True)]
    return Typed(chosen.sql.format(*taken), chosen.gives, node)


def pick(node: Any, name: str, among: Sequence[Signature], arguments: list[Typed]) -> Signature:
    """The signature PostgreSQL would choose."""
    fitting = [
        signature
        for signature in among
        if len(signature.takes) == len(arguments)
        and all(can_coerce(a, t) for a, t in zip(arguments, signature.takes, strict=True))
    ]
    if not fitting:
        raise no_function(node, name, arguments)

    def fit(signature: Signature) -> int:
        pairs = zip(arguments, signature.takes, strict=True)
        return sum(2 * (a.type == t) + (a.type == UNKNOWN and t == TEXT) for a, t in pairs)

    return max(fitting, key=fit)


def no_function(node: Any, name: str, arguments: list[Typed]) -> UndefinedFunction:
    """No such function for these types, here."""
    types = ", ".join(
        "unknown" if argument.type == UNKNOWN else argument.type.postgres for argument in arguments
    )
    return UndefinedFunction(
        f"function {name}({types}) does not exist or is not supported",
        hint="You might need to add explicit type casts.",
        position=position(node),
    )
