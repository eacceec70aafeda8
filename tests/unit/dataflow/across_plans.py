"""Random plans that join by what is less than what."""

from __future__ import annotations

from itertools import product
from random import Random

from headwater.compute.ir.expression import Column, Field, JoinKey
from headwater.compute.ir.node import Filter, Join, JoinKind, Node, Scan
from headwater.testing.relations import RELATIONS
from tests.unit.dataflow.lowered_plans import plain, where


def _relation(name: str, number: int) -> Scan:
    fields = [Field(f, Column(f"{f}_{number}", t, True)) for f, t in RELATIONS[name].items()]
    return Scan(name, tuple(fields))


def _keys(random: Random, left: Scan, right: Scan) -> tuple[JoinKey, ...]:
    same = [(a, b) for a, b in product(left.columns, right.columns) if a.type == b.type]
    a, b = random.choice(same)
    return (JoinKey(plain(a.name, a.type), plain(b.name, b.type)),)


def across(random: Random, *, keyed: bool = False) -> Node:
    """Return relations joined by what is less than what, and by more than that.

    ``keyed``: two of them also by what is equal.
    """
    count = random.choice([2, 3, 3, 3] if keyed else [2, 2, 2, 3])
    scans = [_relation(random.choice("rrt"), number) for number in range(1, count + 1)]
    columns = [(n, c) for n, s in enumerate(scans) for c in s.columns]
    between = [
        (a.name, b.name)
        for (m, a), (n, b) in product(columns, columns)
        if m != n and a.type == b.type and a.type in ("int", "bigint", "double")
    ]
    texts: list[tuple[str, tuple[str, ...]]] = []
    for a, b in random.sample(between, min(len(between), random.randint(1, 3))):
        texts.append((f"({a} {random.choice(['<', '<=', '>', '>='])} {b})", (a, b)))
    if random.random() < 0.5:
        _, one = random.choice([c for c in columns if c[1].type in ("int", "bigint")])
        literal = f"{random.randrange(3)}{'L' if one.type == 'bigint' else ''}"
        texts.append((f"({one.name} {random.choice(['>=', '<>', '='])} {literal})", (one.name,)))
    random.shuffle(texts)
    text, names = texts[0]
    for more, others in texts[1:]:
        text, names = f"({text} AND {more})", (*names, *others)
    condition = where(text, *sorted(set(names)))
    node: Node = scans[0]
    for number, other in enumerate(scans[1:], 2):
        keys = _keys(random, scans[0], other) if keyed and number == 2 else ()
        if number < count or random.random() < 0.5:
            node = Join(node, other, "inner", keys)
            if number == count:
                node = Filter(node, condition)
        else:
            kinds: list[JoinKind] = ["inner", "left", "right", "full", "semi", "anti"]
            node = Join(node, other, random.choice(kinds), keys, condition)
    return node
