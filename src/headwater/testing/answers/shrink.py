"""A smaller query that still fails: what is left is what was wrong.

    smallest(sql, still_fails)

A tree is made smaller by leaving out what may be left out (conditions, columns, joins, orders, …)
and by putting a part of it in the place of the whole. A candidate need not mean the same, or
anything: who asks it says whether it still shows what is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

TRIED_MAX: Final = 400
"""So many candidates are asked at most."""

_KEPT: Final = frozenset({"this", "expression", "kind", "expressions", "alias"})
"""Arguments that a node cannot be without, as far as one can tell by their names."""


def smallest(sql: str, still_fails: Callable[[str], bool]) -> str:
    """Return the smallest query found that ``still_fails``, which this one does."""
    tried: set[str] = {sql}
    found = sql
    while True:
        for smaller in sorted(set(_smaller(found)), key=len):
            if len(smaller) >= len(found) or smaller in tried:
                continue
            if len(tried) >= TRIED_MAX:
                return found
            tried.add(smaller)
            if still_fails(smaller):
                found = smaller
                break
        else:
            return found


def _smaller(sql: str) -> Iterator[str]:
    """Return texts of trees with one thing less."""
    try:
        tree = sqlglot.parse_one(sql, read="postgres")
    except SqlglotError:
        return
    for place, _ in enumerate(tree.walk()):
        count = len(list(_changes(_at(tree, place))))
        for number in range(count):
            copy = tree.copy()
            root = list(_changes(_at(copy, place)))[number](copy)
            try:
                yield root.sql(dialect="postgres")
            except (SqlglotError, ValueError, KeyError, AttributeError, TypeError):
                continue  # A tree that cannot be without what was taken.


def _at(tree: Any, place: int) -> Any:
    for number, node in enumerate(tree.walk()):
        if number == place:
            return node
    raise AssertionError("a place of the tree")


def _changes(node: Any) -> Iterator[Callable[[Any], Any]]:
    """Return what makes the tree of a node smaller there; each returns the tree's root."""
    for name, value in node.args.items():
        if isinstance(value, list) and value:
            for number in range(len(value)):
                if len(value) > 1 or name not in _KEPT:
                    yield _without_item(node, name, number)
        elif isinstance(value, exp.Expression) and name not in _KEPT:
            yield _without(node, name)
    for child in node.iter_expressions():
        if isinstance(child, exp.Expression) and not isinstance(child, exp.Identifier):
            yield _lifted(node, child)


def _without_item(node: Any, name: str, number: int) -> Callable[[Any], Any]:
    def change(root: Any) -> Any:
        node.set(name, [each for n, each in enumerate(node.args[name]) if n != number])
        return root

    return change


def _without(node: Any, name: str) -> Callable[[Any], Any]:
    def change(root: Any) -> Any:
        node.set(name, None)
        return root

    return change


def _lifted(node: Any, child: Any) -> Callable[[Any], Any]:
    def change(root: Any) -> Any:
        if node is root:
            child.pop()
            return child
        node.replace(child)
        return root

    return change
