"""Reducing: two documents of one key become one.

``reduce(left, right, strategies, full=…)`` walks both documents at once. ``strategies`` belong to
the *right* one: a map from JSON pointers to strategies, default lastWriteWins. A location that
only the left has is kept. One that only the right has goes through its strategy with nothing on
the left.

A reduction is *full* if its left side is the document itself, *partial* if it is an update too.
Deletion takes effect only in a full one: in a partial one the mark must live on, since what it
deletes is not there yet. What cannot be combined before it meets the document raises
:class:`NotAssociative`.

Law (``test_reduction_strategies.py``), where partial reduction does not raise and deletes nothing:

    full(full(base, a), b) = full(base, partial(a, b))

That law is what lets a transaction combine its updates before it loads.

Decided where Flow's reference leaves room: a null on the left of append requires an array on the
right; keyed arrays that are not sorted are refused; an array of a set without a key has natural
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headwater.materialize.reduction import numbers
from headwater.materialize.reduction.errors import (
    AppendWrongType,
    JsonSchemaMergeWrongType,
    MergeWrongType,
    NotAssociative,
    NotSorted,
    SumOverflow,
    SumWrongType,
)
from headwater.materialize.reduction.schemas import NotASchema, united
from headwater.materialize.reduction.sets import reduce_sets
from headwater.materialize.reduction.strategy import (
    DEFAULT,
    Append,
    FirstWriteWins,
    JsonSchemaMerge,
    LastWriteWins,
    Maximize,
    Merge,
    Minimize,
    Set,
    Strategy,
    Sum,
)
from headwater.materialize.reduction.value import ABSENT, Json, below, key_order, order

Strategies = Mapping[str, Strategy]
"""The strategies of one document, by JSON pointer; the default is left out."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """A reduced document, and whether it says that its key is gone."""

    document: Json
    deleted: bool = False


def reduce(left: Json, right: Json, strategies: Strategies, *, full: bool) -> Reduced:
    """Reduce a document into another; both must be there."""
    walk = _Walk(strategies, full)
    document = walk.applied("", left, right)
    return Reduced(document, full and _deletes(walk.strategy("")))


def reduce_all(
    base: Json, updates: Iterable[Json], strategies_of: Callable[[Json], Strategies]
) -> Reduced:
    """Reduce updates into a document, or into nothing if it is :data:`ABSENT`; fully, in order.

    The first document of a key is taken as it is: a deletion is an outcome of reducing *into*
    something, so a lone tombstone is a row like any other. After a deletion the next begins anew.
    """
    current = None if base is ABSENT else Reduced(base)
    for update in updates:
        if current is None or current.deleted:
            current = Reduced(update)
        else:
            current = reduce(current.document, update, strategies_of(update), full=True)
    if current is None:
        raise ValueError("nothing to reduce")
    return current


def combine(
    updates: Iterable[Json], strategies_of: Callable[[Json], Strategies]
) -> tuple[Json, ...]:
    """Combine updates as far as that is possible without the document that they update.

    One is left, mostly; more where strategies are not associative. In delta mode each is stored.
    """
    combined: list[Json] = []
    for update in updates:
        combined.append(update)
        while len(combined) > 1:
            left, right = combined[-2:]
            try:
                both = reduce(left, right, strategies_of(right), full=False).document
            except NotAssociative:
                break
            combined[-2:] = [both]
    return tuple(combined)


def _deletes(strategy: Strategy) -> bool:
    return isinstance(strategy, LastWriteWins | Merge) and strategy.delete


@dataclass(frozen=True, slots=True)
class _Walk:
    """One reduction: what stays the same at all its locations."""

    strategies: Strategies
    full: bool

    def strategy(self, pointer: str) -> Strategy:
        return self.strategies.get(pointer, DEFAULT)

    def at(self, pointer: str, left: Json, right: Json) -> Json:
        """Reduce a location below the root; ABSENT if it is deleted."""
        if self.full and _deletes(self.strategy(pointer)):
            return ABSENT
        return self.applied(pointer, left, right)

    def applied(self, pointer: str, left: Json, right: Json) -> Json:
        strategy = self.strategy(pointer)
        match strategy:
            case Append():
                return _appended(pointer, left, right)
            case FirstWriteWins():
                return right if left is ABSENT else left
            case LastWriteWins():
                return self._last(strategy, pointer, left, right)
            case Minimize(key):
                return self._least(pointer, key, left, right, sign=1)
            case Maximize(key):
                return self._least(pointer, key, left, right, sign=-1)
            case Merge(key):
                return self._merged(pointer, key, left, right)
            case Set(key):
                base = {} if left is ABSENT else left
                return reduce_sets(pointer, key, base, right, self.at, full=self.full)
            case Sum():
                return _summed(pointer, left, right)
            case JsonSchemaMerge():
                return _schemas_merged(pointer, left, right)

    def _last(self, strategy: LastWriteWins, pointer: str, left: Json, right: Json) -> Json:
        unequal = left is not ABSENT and order(left) != order(right)
        if unequal and not strategy.associative and not self.full:
            raise NotAssociative(pointer, left, right)
        return right

    def _least(
        self, pointer: str, key: tuple[str, ...], left: Json, right: Json, sign: int
    ) -> Json:
        if left is not ABSENT:
            ours, theirs = key_order(key or ("",), left), key_order(key or ("",), right)
            compared = sign * ((ours > theirs) - (ours < theirs))
            if compared < 0:
                return left
            if compared == 0 and key:
                return self._merged(pointer, (), left, right)
        return self._merged(pointer, (), ABSENT, right) if key else right

    def _merged(self, pointer: str, key: tuple[str, ...], left: Json, right: Json) -> Json:
        if not isinstance(right, dict | list):
            raise MergeWrongType(pointer, left, right)
        if left is not ABSENT and type(left) is not type(right):
            if not self.full:
                raise NotAssociative(pointer, left, right)
            left = ABSENT
        if isinstance(right, dict):
            return self._merged_objects(pointer, {} if left is ABSENT else left, right)
        return self._merged_arrays(pointer, key, [] if left is ABSENT else left, right)

    def _merged_objects(
        self, pointer: str, left: dict[str, Json], right: dict[str, Json]
    ) -> dict[str, Json]:
        merged = dict(left)
        for name, value in right.items():
            reduced = self.at(below(pointer, name), left.get(name, ABSENT), value)
            if reduced is ABSENT:
                merged.pop(name, None)
            else:
                merged[name] = reduced
        return merged

    def _merged_arrays(
        self, pointer: str, key: tuple[str, ...], left: list[Json], right: list[Json]
    ) -> list[Json]:
        merged = []
        for ours, theirs, index in _paired(pointer, key, left, right):
            item = ours if theirs is ABSENT else self.at(below(pointer, index), ours, theirs)
            if item is not ABSENT:
                merged.append(item)
        return merged


def _paired(
    pointer: str, key: tuple[str, ...], left: list[Json], right: list[Json]
) -> Iterator[tuple[Json, Json, int]]:
    """Yield items that belong together, in order, with the index of the right one."""
    ours = _places(pointer, key, left)
    theirs = _places(pointer, key, right)
    for place in sorted(ours.keys() | theirs.keys()):
        at_left, at_right = ours.get(place), theirs.get(place)
        yield (
            ABSENT if at_left is None else left[at_left],
            ABSENT if at_right is None else right[at_right],
            -1 if at_right is None else at_right,
        )


def _places(pointer: str, key: tuple[str, ...], items: list[Json]) -> dict[Any, int]:
    if not key:
        return {index: index for index in range(len(items))}
    orders: Sequence[Any] = [key_order(key, item) for item in items]
    if any(later <= earlier for earlier, later in pairwise(orders)):
        raise NotSorted(pointer, items, items)
    return {place: index for index, place in enumerate(orders)}


def _appended(pointer: str, left: Json, right: Json) -> Json:
    if left is ABSENT:
        return right
    if isinstance(right, list):
        if left is None:
            return None
        if isinstance(left, list):
            return [*left, *right]
    raise AppendWrongType(pointer, left, right)


def _summed(pointer: str, left: Json, right: Json) -> Json:
    try:
        return numbers.add(0 if left is ABSENT else left, right)
    except numbers.NotANumber as error:
        raise SumWrongType(pointer, left, right) from error
    except numbers.TooLarge as error:
        raise SumOverflow(pointer, left, right) from error


def _schemas_merged(pointer: str, left: Json, right: Json) -> Json:
    if left is ABSENT:
        return right
    try:
        return united(left, right)
    except NotASchema as error:
        raise JsonSchemaMergeWrongType(pointer, left, right) from error
