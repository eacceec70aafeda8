"""Sets: updates of a set as documents.

An update has ``add`` and either ``intersect`` or ``remove``, each optional: the base set is
intersected with the one, or the other is taken from it, and then the additions are joined. Of two
updates, left then right,

    add'        (LA - RR) + RA,  or (LA ∩ RI) + RA where the right intersects
    intersect'  LI ∩ RI,  LI - RR,  or RI - LR
    remove'     LR + RR, where neither intersects

and in a full reduction only ``add'`` is left, for then the left side *is* the set. Members on both
sides of a union or an intersection are reduced into each other, so that a set of keyed members is a
map.

The terms are all arrays, sorted by the key and each key once (without a key: by natural order), or
all objects, whose keys are their property names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headwater.materialize.reduction.errors import NotSorted, SetWrongType
from headwater.materialize.reduction.value import ABSENT, Json, below, key_order

Members = dict[Any, tuple[str | int, Json]]
"""A term by key, in order; with each member, its name or index in the document."""

ReduceMember = Callable[[str, Json, Json], Json]
"""Reduce two members, or delete them (ABSENT); the pointer is that of the right one."""

_TERMS = ("add", "intersect", "remove")


@dataclass(frozen=True, slots=True)
class _Update:
    add: Members | None
    intersect: Members | None
    remove: Members | None


def reduce_sets(
    pointer: str,
    key: Sequence[str],
    left: Json,
    right: Json,
    reduce_member: ReduceMember,
    *,
    full: bool,
) -> Json:
    """Return the update that does what ``left`` and then ``right`` do; or, if full, the set."""
    wrong = SetWrongType(pointer, left, right)
    for side in (left, right):
        if not isinstance(side, dict) or not side.keys() <= {*_TERMS}:
            raise wrong
        if "intersect" in side and "remove" in side:
            raise wrong
    kinds = {type(term) for side in (left, right) for term in side.values()}
    if not (kinds <= {list} or kinds <= {dict}):
        raise wrong
    rebuilt: Callable[[Iterable[tuple[str | int, Json]]], Json]
    rebuilt = dict if kinds == {dict} else _items

    def update(side: Json) -> _Update:
        return _Update(
            *(_members(pointer, name, key, side[name]) if name in side else None for name in _TERMS)
        )

    l, r = update(left), update(right)  # noqa: E741 - as in the formulas above

    def union(name: str, first: Members | None, second: Members | None) -> Members | None:
        if first is None or second is None:
            return second if first is None else first
        joined = {**first}
        for at, (place, member) in second.items():
            if at in first:
                reduced = reduce_member(below(below(pointer, name), place), first[at][1], member)
                joined[at] = (place, reduced)
            else:
                joined[at] = (place, member)
        return {at: found for at, found in joined.items() if found[1] is not ABSENT}

    out: dict[str, Members | None] = {}
    if r.intersect is not None:
        out["add"] = union("add", _within(l.add, r.intersect), r.add)
        if l.intersect is not None:
            both = _within(l.intersect, r.intersect)
            others = _within(r.intersect, l.intersect)
            out["intersect"] = union("intersect", both, others)
        else:
            out["intersect"] = _without(r.intersect, l.remove)
    else:
        out["add"] = union("add", _without(l.add, r.remove), r.add)
        if l.intersect is not None:
            out["intersect"] = _without(l.intersect, r.remove)
        else:
            out["remove"] = union("remove", l.remove, r.remove)
    if full:
        out = {"add": out["add"]}
    return {
        name: rebuilt(member for _, member in sorted(members.items()))
        for name, members in out.items()
        if members is not None
    }


def _members(pointer: str, name: str, key: Sequence[str], term: Json) -> Members:
    if isinstance(term, dict):
        return {prop: (prop, term[prop]) for prop in sorted(term)}
    found = [key_order(key or ("",), member) for member in term]
    if any(later <= earlier for earlier, later in pairwise(found)):
        raise NotSorted(below(pointer, name), term, term)
    return {at: (index, member) for index, (at, member) in enumerate(zip(found, term, strict=True))}


def _items(members: Iterable[tuple[str | int, Json]]) -> list[Json]:
    return [member for _, member in members]


def _within(members: Members | None, others: Members) -> Members | None:
    if members is None:
        return None
    return {at: member for at, member in members.items() if at in others}


def _without(members: Members | None, others: Members | None) -> Members | None:
    if members is None or others is None:
        return members
    return {at: member for at, member in members.items() if at not in others}
