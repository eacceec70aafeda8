"""A checker for strict serializability of histories of appends to lists.

Every transaction reads whole lists and appends elements that nobody else appends. So what a read
returned tells which appends came before it, and the longest list of a key tells their order. From
that follows which transaction must be before which (Adya's dependencies), and real time adds more:

    ww   the one who appended an element   before the one who appended the next
    wr   the one who appended an element   before who read a list ending in it
    rw   who read a list                   before the one who appended the next element
    rt   who had been answered             before who began after that

A history is strictly serializable only if these have no cycle. A transaction whose outcome is not
known (its server was gone) counts as committed where somebody saw its appends, and may then have
happened at any time after it began; else it counts as not having happened.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

Element = int
Edge = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Happened:
    """One transaction as its client saw it. ``end`` None: it was never told the outcome."""

    begin: float
    end: float | None
    reads: Mapping[str, tuple[Element, ...]] = field(default_factory=dict)
    appends: Mapping[str, Element] = field(default_factory=dict)


def violation(history: Sequence[Happened], final: Mapping[str, Sequence[Element]]) -> str | None:
    """Say what is not strictly serializable about a history, or None.

    ``final``: every list at the end, read after everything.
    """
    lists = {key: tuple(elements) for key, elements in final.items()}
    seen = {element for elements in lists.values() for element in elements}
    writer: dict[Element, int] = {}
    for number, each in enumerate(history):
        for key, element in each.appends.items():
            writer[element] = number
            if each.end is not None and element not in lists.get(key, ()):
                return f"acknowledged append of {element} to {key} is lost"
        for key, found in each.reads.items():
            whole = lists.get(key, ())
            if whole[: len(found)] != found:
                return f"a read of {key} saw {found}, which is no beginning of {whole}"
    for key, elements in lists.items():
        if len(set(elements)) != len(elements):
            return f"{key} has an element twice: {elements}"
        unknown = [element for element in elements if element not in writer]
        if unknown:
            return f"{key} has elements that nobody appended: {unknown}"
    happened = {
        number
        for number, each in enumerate(history)
        if each.end is not None or any(e in seen for e in each.appends.values())
    }
    return _cycle(history, happened, list(_edges(history, happened, lists, writer)))


def _edges(
    history: Sequence[Happened],
    happened: set[int],
    lists: Mapping[str, tuple[Element, ...]],
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


def _real_time(history: Sequence[Happened], happened: set[int]) -> Iterator[Edge]:
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


def _cycle(history: Sequence[Happened], happened: set[int], edges: Sequence[Edge]) -> str | None:
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
