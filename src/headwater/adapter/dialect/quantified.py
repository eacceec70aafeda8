"""``x operator ANY (query)`` and ``x operator ALL (query)``, exactly, NULLs among them. Pure.

Whether some or all of the values ``y`` compare with ``x`` is decided by the least and the greatest
of them (``edge``: which of the two, or both, an operator asks), and by whether there are any, and
any NULL:

    ALL   no y: true      some y fails: false     some y is NULL: NULL     else x operator edge
    ANY   some y holds: true    no y: false       some y is NULL: NULL     else x operator edge

``x > ALL`` fails for some ``y`` iff it fails for the greatest, ``x > ANY`` holds for some iff it
does for the least; ``x = ALL`` asks both. ``= ANY`` and ``<> ALL`` are IN and NOT IN, and are not
for this module. So there is no row of the query for each row outside, but a few numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

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
