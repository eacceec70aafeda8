"""A checker for strict serializability of histories of appends to lists.

Every transaction reads whole lists and appends elements that nobody else appends, in any order and
any number of them, and goes back to savepoints. So what a read returned tells which appends came
before it, and the longest list of a key tells their order. From that follows which transaction must
be before which (Adya's dependencies), and real time adds more:

    ww   the one who appended an element   before the one who appended the next
    wr   the one who appended an element   before who read a list ending in it
    rw   who read a list                   before the one who appended the next element
    rt   who had been answered             before who began after that

A history is strictly serializable only if these have no cycle. So a transaction whose appends to a
list are seen in part, or have others between them, is in a cycle with who saw or made them.

Inside a transaction nothing is left to order: each of its reads ends with what it has appended and
not taken back itself, and is otherwise what its other reads of the list were.

A transaction whose outcome is not known (its server was gone) counts as committed where somebody
saw its appends, and may then have happened at any time after it began; else it counts as not having
happened. What a transaction took back, or was refused, must be nowhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

Element = int
Lists = Mapping[str, tuple[Element, ...]]
Edge = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Read:
    """A list was read, and had these elements."""

    key: str
    elements: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class Append:
    """An element was appended."""

    key: str
    element: Element


@dataclass(frozen=True, slots=True)
class Mark:
    """A savepoint."""


@dataclass(frozen=True, slots=True)
class Back:
    """What was appended since the last savepoint was taken back; the savepoint stays."""


Step = Read | Append | Mark | Back


@dataclass(frozen=True, slots=True)
class Happened:
    """One transaction as its client saw it. ``end`` None: it was never told the outcome."""

    begin: float
    end: float | None
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class _Seen:
    """A transaction as others see it: what was there before it, and what it added."""

    begin: float
    end: float | None
    reads: Lists
    appends: Lists


def violation(history: Sequence[Happened], final: Mapping[str, Sequence[Element]]) -> str | None:
    """Say what is not strictly serializable about a history, or None.

    ``final``: every list at the end, read after everything.
    """
    lists = {key: tuple(elements) for key, elements in final.items()}
    seen = []
    for each in history:
        outside = _from_outside(each)
        if isinstance(outside, str):
            return f"{outside}: {each}"
        seen.append(outside)
    return _misplaced(seen, lists) or _cycle(seen, lists)


def _from_outside(each: Happened) -> _Seen | str:
    """Return a transaction as others see it; or what is wrong with it by itself."""
    reads: dict[str, tuple[Element, ...]] = {}
    own: dict[str, tuple[Element, ...]] = {}
    marked = own
    for step in each.steps:
        match step:
            case Append(key, element):
                own = {**own, key: (*own.get(key, ()), element)}
            case Mark():
                marked = own
            case Back():
                own = marked
            case Read(key, elements):
                mine = own.get(key, ())
                before = elements[: len(elements) - len(mine)]
                if elements[len(before) :] != mine:
                    return f"a read of {key} does not end with its own {mine}"
                if reads.setdefault(key, before) != before:
                    return f"{key} was first {reads[key]} and then {before} within a transaction"
    return _Seen(each.begin, each.end, reads, own)


def _misplaced(history: Sequence[_Seen], lists: Lists) -> str | None:
    """Say which elements are not where they must be, or are where they must not."""
    known: set[Element] = set()
    for each in history:
        for key, elements in each.appends.items():
            known.update(elements)
            lost = [element for element in elements if element not in lists.get(key, ())]
            if lost and (each.end is not None or len(lost) < len(elements)):
                return f"acknowledged append of {lost[0]} to {key} is lost"
        for key, found in each.reads.items():
            whole = lists.get(key, ())
            if whole[: len(found)] != found:
                return f"a read of {key} saw {found}, which is no beginning of {whole}"
    for key, elements in lists.items():
        if len(set(elements)) != len(elements):
            return f"{key} has an element twice: {elements}"
        unknown = [element for element in elements if element not in known]
        if unknown:
            return f"{key} has elements that nobody appended: {unknown}"
    return None


def _cycle(history: Sequence[_Seen], lists: Lists) -> str | None:
    there = {element for elements in lists.values() for element in elements}
    writer = {
        element: number
        for number, each in enumerate(history)
        for elements in each.appends.values()
        for element in elements
    }
    happened = {
        number
        for number, each in enumerate(history)
        if each.end is not None or any(not there.isdisjoint(e) for e in each.appends.values())
    }
    edges = list(_edges(history, happened, lists, writer))
    return _circle(history, happened, edges)


def _edges(
    history: Sequence[_Seen],
    happened: set[int],
    lists: Lists,
    writer: Mapping[Element, int],
) -> Iterator[Edge]:
    for key, elements in lists.items():
        for before, after in pairwise(elements):
            yield writer[before], writer[after], f"ww {key}"
    for number in happened:
        for key, found in history[number].reads.items():
            whole = lists.get(key, ())
            if found:
                yield writer[found[-1]], number, f"wr {key}"
            if len(found) < len(whole):
                yield number, writer[whole[len(found)]], f"rw {key}"
    yield from _real_time(history, happened)


def _real_time(history: Sequence[_Seen], happened: set[int]) -> Iterator[Edge]:
    """Order those that were answered before others began, through moments in between.

    A moment is a negative number. There are as many as answers, each after the one before, so that
    the edges are as many as transactions, not as pairs of them.
    """
    answered = sorted((end, n) for n in happened if (end := history[n].end) is not None)
    for place, (_, number) in enumerate(answered):
        yield number, -1 - place, "rt"
        if place:
            yield -place, -1 - place, "rt"
    ends = [end for end, _ in answered]
    for number in happened:
        # The last moment strictly before it began.
        place = bisect_left(ends, history[number].begin) - 1
        if place >= 0:
            yield -1 - place, number, "rt"


def _circle(history: Sequence[_Seen], happened: set[int], edges: Sequence[Edge]) -> str | None:
    graph: defaultdict[int, set[int]] = defaultdict(set)
    graph.update((number, set()) for number in happened)
    why: dict[tuple[int, int], str] = {}
    for before, after, kind in edges:
        if before != after:
            graph[after].add(before)
            why.setdefault((before, after), kind)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found = list(error.args[1])
        steps = [
            f"  {why.get((a, b)) or why.get((b, a))}: {history[a]}"
            for a, b in pairwise(found)
            if a >= 0
        ]
        return "\n".join(["a cycle of transactions:", *steps])
    return None
