"""Empty grouping sets over no rows: PostgreSQL has a row for each ``()``, Spark has none.

    SELECT k, sum(x) … GROUP BY ROLLUP (k)   is, in Spark's words,
    SELECT k, sum(x) … GROUP BY ROLLUP (k) UNION ALL SELECT NULL, NULL … HAVING (count(1) = 0)

One of both has no rows, so windows, DISTINCT and LIMIT may look at each by itself. Over no rows
keys and aggregates are NULL, and counts are 0 (``Scope.absent``): a view keeps a count for it.

Left as Spark has it: where such a query is ordered by what it does not list, has a subquery in its
list or in HAVING, or mentions columns of a query around it; and several ``()`` beside a window.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Any, Final

from sqlglot import exp

from headwater.adapter.dialect.literals import identifier
from headwater.adapter.dialect.refusal import refuse
from headwater.adapter.dialect.scope import Scope
from headwater.adapter.dialect.typed import Typed, cast_sql

_SETS: Final = (exp.Rollup, exp.Cube, exp.GroupingSets)
_PLACE: Final = re.compile(r"\d+ (?:ASC|DESC)[A-Z ]*")


def are_missing(node: Any, scope: Scope, text: str, order: str) -> bool:
    """Whether a SELECT has rows over none that its text in Spark's words has not."""
    group = node.args.get("group")
    sets = 0 if group is None else empty_sets(group)
    if sets == 1 and not any(keys(group)):
        return False  # Of one set without a key Spark makes no groups, and a row as of none.
    looked_at = [*node.expressions, *filter(None, [node.args.get("having")])]
    if not sets or any(part.find(exp.Select) for part in looked_at):
        return False
    if sets > 1 and any(part.find(exp.Window) for part in looked_at):
        return False
    by_place = all(map(_PLACE.fullmatch, order.removeprefix(" ORDER BY ").split(", ")))
    return (not order or by_place) and not _is_correlated(scope, text)


def require_no_window_over_having(node: Any) -> None:
    """Refuse a window over some of the groups of several sets: Spark has it over all of them."""
    group = node.args["group"]
    looked_at = [*node.expressions, *filter(None, [node.args.get("order")])]
    if node.args.get("having") is None or not any(part.find(exp.Window) for part in looked_at):
        return
    if any(isinstance(item, _SETS) for item in group.expressions):
        refuse(
            group,
            "a window function beside HAVING of grouping sets",
            "Put the groups into a subquery in FROM, and the window around it.",
        )


def _is_correlated(scope: Scope, text: str) -> bool:
    around = scope.outer
    while around is not None:
        if any(f"{identifier(source.alias)}." in text for source in around.sources):
            return True
        around = around.outer
    return False


def empty_sets(group: Any) -> int:
    """How many of the sets of a GROUP BY have no key.

    Sets side by side are combined with one another, so a key beside them is in each.
    """
    return prod(map(_empty, group.expressions))


def _empty(item: Any) -> int:
    match item:
        case exp.Rollup() | exp.Cube():
            return 1
        case exp.GroupingSets():
            return sum(map(_empty, item.expressions))
        case exp.Tuple():
            return int(not item.expressions)
        case _:
            return 0


def keys(item: Any) -> Iterator[Any]:
    """Return the keys of all sets."""
    for part in item.expressions:
        if isinstance(part, (exp.Tuple, *_SETS)):
            yield from keys(part)
        else:
            yield part


def nothing(value: Typed) -> Typed:
    """Return a value as NULL of its type."""
    return value.of(cast_sql("NULL", value.type), value.type, scale_shown=value.scale_shown)


def of_no_rows(name: str, value: Typed) -> Typed:
    """Return what an aggregate is over no rows."""
    zero = value.of(cast_sql("0", value.type), value.type)
    return zero if name == "count" else nothing(value)
