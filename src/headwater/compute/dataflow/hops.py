"""Paths of a join over several inputs: in which order a changed row looks up the others.

A path begins at one input and hops to one other at a time, by all the equalities that relate it to
what is known by then; by those of joins, if any do, since one that a filter adds would only ask for
one more arrangement. The order is greedy: the input that is reached by most columns; of these, by
columns that are equal to the fewest others (what many inputs share, a nation, is rarely a key of
any); of these, one whose arrangement another path needs anyway; of these, one that is *narrowed* by
a filter of its own, so that fewer rows look up what comes after it; of these, the first in an order
of the inputs. Several such orders are tried, the plan's first, and the paths taken that need fewest
arrangements: each is one more copy of its input, and one more to write at every change of it. Of as
many, those are taken that come to narrowed inputs soonest.

Equalities are transitive where they are strict: from ``a = b`` and ``b = c`` a row of ``a`` finds
those of ``c``. An equality that a path does not look anything up by is not *enforced* by it, and
must be checked afterwards.

Kept by: this module; the property that every equality is enforced or reported on every path is
tested with the rules (``tests/unit/dataflow``). Relied on by: ``lower_join.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final, Literal

Key = tuple[int, str]
"""An input's number and one of its columns."""

Arranged = tuple[int, tuple[str, ...]]
"""An arrangement: an input's number, and the columns it is laid out by."""

Strength = Literal["key", "filter", "constant"]
"""Of a join; of a filter over joins, which is looked up by only where no key of a join relates an
input to what is known; always true, for inputs that nothing else relates."""

_STRENGTHS: Final[tuple[Strength, ...]] = ("key", "filter", "constant")

_FEW: Final = 4
"""Of so many inputs every order is tried."""


@dataclass(frozen=True, slots=True)
class Equality:
    """Two columns of different inputs that must be equal."""

    left: Key
    right: Key
    null_safe: bool = False
    strength: Strength = "key"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A hop: these columns of ``input``, probed by columns of what is known."""

    input: int
    key: tuple[str, ...]
    probe: tuple[str, ...]
    null_safe: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Routes:
    """A path per input, and which equalities (by position) some path does not enforce."""

    paths: tuple[tuple[Lookup, ...], ...]
    unenforced: frozenset[int]


class _Classes:
    """Which keys are equal to each other."""

    def __init__(self) -> None:
        self._above: dict[Key, Key] = {}

    def root(self, key: Key) -> Key:
        while (above := self._above.get(key, key)) != key:
            key = above
        return key

    def join(self, a: Key, b: Key) -> None:
        a, b = sorted((self.root(a), self.root(b)))
        self._above[b] = a


def components(inputs: int, equalities: Sequence[Equality]) -> list[list[int]]:
    """Return the inputs in groups: within one, each is related to the others by equalities."""
    classes = _Classes()
    for equality in equalities:
        classes.join((equality.left[0], ""), (equality.right[0], ""))
    groups: dict[Key, list[int]] = {}
    for number in range(inputs):
        groups.setdefault(classes.root((number, "")), []).append(number)
    return list(groups.values())


def routes(
    order: Sequence[Sequence[str]],
    equalities: Sequence[Equality],
    narrowed: Collection[int] = (),
) -> Routes:
    """Return the paths; ``order`` has per input the columns in the order they have in a key."""
    tried: list[Routes] = []
    for ranks in _orders(len(order)):
        found = _routes(order, equalities, narrowed, ranks, set())
        tried.append(found)
        if narrowed:  # Once more, now that it is known which arrangements are made anyway.
            tried.append(_routes(order, equalities, narrowed, ranks, _made(found)))
    return min(tried, key=lambda found: _cost(found, narrowed))


def _made(found: Routes) -> set[Arranged]:
    return {(hop.input, hop.key) for path in found.paths for hop in path}


def _cost(found: Routes, narrowed: Collection[int]) -> tuple[int, int, int, int]:
    made = _made(found)
    copies = Counter(number for number, _ in made)
    late = (n for path in found.paths for n, hop in enumerate(path) if hop.input in narrowed)
    # Of as many, those that are spread: what all others refer to is often the largest.
    spread = sum(n * n for n in copies.values())
    return len(made), spread, len(found.unenforced), sum(late)


def _orders(inputs: int) -> Iterator[tuple[int, ...]]:
    """Yield orders of the inputs, as the rank of each; all of them where they are few."""
    if inputs <= _FEW:
        yield from permutations(range(inputs))
        return
    for start in range(inputs):
        yield tuple((number - start) % inputs for number in range(inputs))
        yield tuple((start - number) % inputs for number in range(inputs))


def _routes(
    order: Sequence[Sequence[str]],
    equalities: Sequence[Equality],
    narrowed: Collection[int],
    ranks: Sequence[int],
    made: set[Arranged],
) -> Routes:
    paths: list[tuple[Lookup, ...]] = []
    unenforced: set[int] = set()
    for start in range(len(order)):
        path = _path(start, order, equalities, made, narrowed, ranks)
        made.update((hop.input, hop.key) for hop in path)
        unenforced.update(_unenforced(path, equalities))
        paths.append(path)
    return Routes(tuple(paths), frozenset(unenforced))


def _path(
    start: int,
    order: Sequence[Sequence[str]],
    equalities: Sequence[Equality],
    made: set[Arranged],
    narrowed: Collection[int],
    ranks: Sequence[int],
) -> tuple[Lookup, ...]:
    known = [start]
    path: list[Lookup] = []
    while len(known) < len(order):
        hops: list[tuple[tuple[int, int, int, bool, bool, int], Lookup]] = []
        for number in range(len(order)):
            if number in known:
                continue
            strength, links = _links(number, known, equalities)
            if links:
                hop = _lookup(number, order[number], links)
                shared_by = min(link.shared_by for link in links.values())
                is_new = (hop.input, hop.key) not in made
                is_wide = number not in narrowed
                ranked = (strength, -len(links), shared_by, is_new, is_wide, ranks[number])
                hops.append((ranked, hop))
        assert hops, "an input that nothing relates to the others"
        _, hop = min(hops, key=lambda ranked: ranked[0])
        path.append(hop)
        known.append(hop.input)
    return tuple(path)


@dataclass(frozen=True, slots=True)
class _Link:
    probe: str
    null_safe: bool
    shared_by: int


def _links(
    number: int, known: Sequence[int], equalities: Sequence[Equality]
) -> tuple[int, dict[str, _Link]]:
    """Return how the columns of an input can be known, by the strongest equalities there are."""
    for weakness in range(len(_STRENGTHS)):
        strong = [e for e in equalities if _STRENGTHS.index(e.strength) <= weakness]
        links = _links_by(number, known, strong)
        if links:
            return weakness, links
    return len(_STRENGTHS), {}


def _links_by(
    number: int, known: Sequence[int], equalities: Sequence[Equality]
) -> dict[str, _Link]:
    """Return how the columns of an input can be known: strictly if possible."""
    classes = _Classes()
    strict = [equality for equality in equalities if not equality.null_safe]
    for equality in strict:
        classes.join(equality.left, equality.right)
    members: dict[Key, list[Key]] = {}
    for key in dict.fromkeys(k for e in strict for k in (e.left, e.right)):
        members.setdefault(classes.root(key), []).append(key)
    links: dict[str, _Link] = {}
    for same in members.values():
        here = sorted((known.index(i), column) for i, column in same if i in known)
        for column in (column for i, column in same if here and i == number):
            links[column] = _Link(here[0][1], False, len(same))
    for equality in equalities:
        if equality.null_safe:
            for (i, here_name), (j, there_name) in (
                (equality.left, equality.right),
                (equality.right, equality.left),
            ):
                if i in known and j == number:
                    links.setdefault(there_name, _Link(here_name, True, 2))
    return links


def _lookup(number: int, order: Sequence[str], links: dict[str, _Link]) -> Lookup:
    key = tuple(column for column in order if column in links)
    return Lookup(
        number,
        key,
        tuple(links[column].probe for column in key),
        tuple(links[column].null_safe for column in key),
    )


def _unenforced(path: Sequence[Lookup], equalities: Sequence[Equality]) -> set[int]:
    owners = {
        column: number for e in equalities for number, column in (e.left, e.right)
    }  # Names are distinct over all inputs.
    strict = _Classes()
    safe: set[frozenset[Key]] = set()
    for hop in path:
        for column, probe, null_safe in zip(hop.key, hop.probe, hop.null_safe, strict=True):
            pair = ((owners[probe], probe), (hop.input, column))
            if null_safe:
                safe.add(frozenset(pair))
            else:
                strict.join(*pair)
    return {
        number
        for number, equality in enumerate(equalities)
        if equality.strength != "constant"
        and strict.root(equality.left) != strict.root(equality.right)
        and not (equality.null_safe and frozenset((equality.left, equality.right)) in safe)
    }
