"""``x operator ANY (query)``, ``x operator ALL (query)``, ``x IN (query)``: exact with NULLs. Pure.

Whether some or all of the values ``y`` compare with ``x`` is decided by the least and the greatest
of them (``edge``: which of the two, or both, an operator asks), and by whether there are any, and
any NULL:

    ALL   no y: true      some y fails: false     some y is NULL: NULL     else x operator edge
    ANY   some y holds: true    no y: false       some y is NULL: NULL     else x operator edge

``x > ALL`` fails for some ``y`` iff it fails for the greatest, ``x > ANY`` holds for some iff it
does for the least; ``x = ALL`` asks both. So there is no row of the query for each row outside, but
a few numbers. ``= ANY`` and ``<> ALL`` are IN and NOT IN.

Of ``x IN (query)`` as a *value* Spark makes false where it is NULL. As a condition, where the two
are the same and NOT IN is looked after, it is left to Spark, which makes a join of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlglot import exp

from headwater.adapter.dialect import operators
from headwater.adapter.dialect.typed import BOOLEAN, Typed

_EDGES: Final = {
    (">", True): ("max",),
    (">=", True): ("max",),
    ("<", True): ("min",),
    ("<=", True): ("min",),
    (">", False): ("min",),
    (">=", False): ("min",),
    ("<", False): ("max",),
    ("<=", False): ("max",),
    ("=", True): ("min", "max"),
    ("<>", False): ("min", "max"),
}


def quantified(
    node: Any, operator: str, operand: Typed, value: Callable[[str], str], *, every: bool
) -> Typed:
    """Return the comparison of an operand with values ``y`` of its type.

    ``value``: an aggregate of ``y`` as one value.
    """
    tests = [
        operators.compare(
            node, operator, operand, operand.of(value(f"{edge}(y)"), operand.type)
        ).sql
        for edge in _EDGES[operator, every]
    ]
    test = f"({(' AND ' if every else ' OR ').join(tests)})"
    none = f"{value('count(*)')} = 0"
    null = f"{value('count(*)')} <> {value('count(y)')}"
    first = f"WHEN {none} THEN TRUE WHEN NOT {test} THEN FALSE"
    if not every:
        first = f"WHEN {test} THEN TRUE WHEN {none} THEN FALSE"
    return Typed(f"(CASE {first} WHEN {null} THEN NULL ELSE {test} END)", BOOLEAN, node)


def contained(node: Any, operand: Typed, query: str, name: str, *, negated: bool) -> Typed:
    """Return ``operand [NOT] IN (query)`` as a value; ``name``: a fresh one for the query."""

    def value(aggregate: str) -> str:
        return f"(SELECT {aggregate} FROM ({query}) AS {name} (y))"  # noqa: S608 - translated

    found = (
        f"CASE WHEN {operand.sql} IN ({query}) THEN TRUE WHEN {value('count(*)')} = 0 THEN FALSE "
        f"WHEN {operand.sql} IS NULL OR {value('count(*)')} <> {value('count(y)')} THEN NULL "
        "ELSE FALSE END"
    )
    return Typed(f"(NOT ({found}))" if negated else f"({found})", BOOLEAN, node)


def is_condition(node: Any) -> bool:
    """Whether only the truth of a comparison counts: it stands in WHERE, HAVING or ON."""
    around = node.parent
    while isinstance(around, exp.Paren | exp.And | exp.Or | exp.Not):
        around = around.parent
    return isinstance(around, exp.Where | exp.Having | exp.Join)
