"""How views are kept: their operators, and what those keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.adapter import catalog
from headwater.adapter.system.seen import Seen
from headwater.adapter.system.system_view import OBJECT, Column, Row, SystemView
from headwater.compute import definition
from headwater.compute.describe import ViewDescription, described


def _described(seen: Seen) -> Iterator[tuple[catalog.Object, ViewDescription]]:
    known = {view.name: view for view in definition.stored(seen.state)}
    for each in seen.objects():
        if each.collection in known:
            yield each, described(seen.state, known[each.collection], None, None)


def _operators(seen: Seen) -> Iterator[Row]:
    for each, view in _described(seen):
        if view.strategy == "recomputed":
            yield (each.id, each.name, each.kind, 1, "query", f"recomputed: {view.why}", None, 0)
        for place, one in enumerate(view.operators, 1):
            size = sum(state.size.bytes for state in one.states)
            yield (
                each.id,
                each.name,
                each.kind,
                place,
                one.operator,
                one.strategy,
                one.bound,
                size,
            )


def _arrangements(seen: Seen) -> Iterator[Row]:
    for each, view in _described(seen):
        for one in view.operators:
            for kept in one.states:
                yield (
                    each.id,
                    each.name,
                    each.kind,
                    one.operator,
                    f"u{kept.collection}",
                    kept.kind,
                    kept.of,
                    ", ".join(kept.key),
                    kept.size.rows,
                    kept.size.bytes,
                    kept.why,
                )


VIEWS: Final = (
    SystemView(
        "hw_operators",
        "The operators that keep each view, in the order in which rows pass them.",
        (
            *OBJECT,
            Column("position", "integer", "its place, from 1"),
            Column("operator", "text", "what it computes"),
            Column("strategy", "text", "by which rule, or why it is recomputed"),
            Column("reads_at_most", "text", "the bound of what a step reads"),
            Column("state_bytes", "bigint", "what it keeps, shared arrangements in full"),
        ),
        _operators,
    ),
    SystemView(
        "hw_arrangements",
        "What operators keep: indexed inputs, which views share, and state of their own.",
        (
            *OBJECT,
            Column("operator", "text", "which operator uses it"),
            Column("arrangement_id", "text", "id of its collection; the same for all who share it"),
            Column("sharing", "text", "`shared`, `own`, or `state`"),
            Column("of", "text", "what it holds"),
            Column("key", "text", "the columns it is laid out by"),
            Column("updates", "bigint", "updates it is stored as"),
            Column("bytes", "bigint", "their size"),
            Column("why", "text", "what it is needed for"),
        ),
        _arrangements,
    ),
)
