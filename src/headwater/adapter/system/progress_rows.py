"""How far everything is: frontiers, lag, status, sizes, errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from headwater.adapter import catalog
from headwater.adapter.mistakes import sentence
from headwater.adapter.system.seen import Seen
from headwater.adapter.system.system_view import OBJECT, Column, Row, SystemView
from headwater.adapter.timeline import DEFAULT
from headwater.algebra.frontier import Frontier
from headwater.compute import definition
from headwater.compute.describe import described
from headwater.compute.maintained import MaintainedView
from headwater.compute.step import due
from headwater.persist.batch import Part
from headwater.persist.client import ReadHandle
from headwater.persist.state import CollectionState

BEHIND_MS_MIN: Final = 5_000
"""From when on it is said why a recomputed view is behind."""


def _frontiers(seen: Seen) -> Iterator[Row]:
    for each, collection in seen.collections():
        since, upper = seen.since(collection), seen.upper(collection)
        shown = "never" if since is None else f"[{since}, {'closed' if upper is None else upper})"
        yield (each.id, each.name, each.kind, since, upper, shown, collection.timeline or DEFAULT)


def _lag(seen: Seen) -> Iterator[Row]:
    known = {each.id: each for each in seen.objects()}
    lags = {each.id: (each.name, seen.lag_ms(of)) for each, of in seen.collections()}
    for each, collection in seen.collections():
        upper = seen.upper(collection)
        name, lag = lags[each.id]
        inputs = [lags[oid] for oid in _inputs(known, each) if oid in lags]
        slowest = max(inputs, key=lambda one: one[1], default=None)
        fresh = None if upper is None else max(0, seen.now_ms - (upper - 1))
        yield (
            each.id,
            name,
            each.kind,
            lag,
            fresh,
            None if slowest is None else max(0, lag - slowest[1]),
            None if slowest is None else slowest[0],
        )


def _inputs(known: Mapping[str, catalog.Object], each: catalog.Object) -> Iterator[str]:
    """Yield the ids of what an object is made of, through plain views, which keep nothing."""
    for oid in each.uses:
        used = known.get(oid)
        if used is not None and not used.collection:
            yield from _inputs(known, used)
        yield oid


def _status(seen: Seen) -> Iterator[Row]:
    for each in seen.objects():
        status, detail = _status_of(seen, each)
        yield (each.id, each.name, each.kind, status, detail)


def _status_of(seen: Seen, each: catalog.Object) -> tuple[str, str | None]:
    gid = seen.state.names.get(each.collection)
    source = seen.sources.get(each.id)
    if source is not None:
        return source.status.condition.value, source.status.why or None
    if each.kind == "materialization":
        delivery = seen.deliveries(each.id)
        if delivery is None:
            return "paused", None
        return delivery.state.value, delivery.error or None
    if gid is None:
        return "ready", None
    if (full := seen.core.retries.room.full) is not None:
        return "stalled", f"The disk is full: there is no room for {full.place}."
    if (why := seen.why_stalled(each)) is not None:
        return "stalled", why
    collection = seen.state.collections[gid]
    stored = seen.state.items.get(definition.item_key(gid))
    view = None if stored is None else definition.decoded(stored)
    if view is not None and seen.state.upper(collection) == Frontier.of(view.start):
        done = seen.hydrating.get(each.collection)
        return "hydrating", None if done is None else f"about {done:.0%} done"
    if any(True for _ in _errors_of(seen, collection)):
        return "failing", "It has errors; see hw_errors."
    return "running", None if view is None else _catching_up(seen, view)


def _catching_up(seen: Seen, view: definition.Definition) -> str | None:
    """Return why a view that advances is behind what it reads, if it is for long."""
    ahead = due(seen.state, view)
    if isinstance(view, MaintainedView) or ahead is None or ahead.upper.is_closed:
        return None
    behind_ms = ahead.upper.only() - ahead.lower.only()
    if behind_ms < BEHIND_MS_MIN:
        return None
    return (
        f"{behind_ms / 1_000:.0f} s behind its inputs: it is recomputed for each time at which "
        f"they change, because there is no incremental rule for {view.why}"
    )


def _errors_of(seen: Seen, collection: CollectionState) -> Iterator[tuple[str, int]]:
    """Yield what is wrong with a collection at its newest time, and how often."""
    upper = seen.upper(collection)
    if not any(part.errors for part in collection.parts()) or collection.since.is_closed:
        return
    newest = max(collection.since.only(), (upper or seen.oracle_upper) - 1)
    if upper is not None and newest >= upper:
        return
    errors = ReadHandle(seen.core, collection.id).snapshot(newest).errors()
    counts = dict.fromkeys(errors.column("message").to_pylist(), 0)
    rows = zip(
        errors.column("message").to_pylist(), errors.column("__diff").to_pylist(), strict=True
    )
    for message, count in rows:
        counts[message] += count
    yield from counts.items()


def _errors(seen: Seen) -> Iterator[Row]:
    for each, collection in seen.collections():
        if (why := seen.why_stalled(each)) is not None:
            yield (each.id, each.name, each.kind, "stalled", why, 1)
        for message, count in _errors_of(seen, collection):
            yield (each.id, each.name, each.kind, "data", sentence(message, None), count)
    for each in seen.objects():
        source = seen.sources.get(each.id)
        if source is not None and source.status.why:
            yield (each.id, each.name, each.kind, "source", source.status.why, 1)
        delivery = seen.deliveries(each.id) if each.kind == "materialization" else None
        if delivery is not None and delivery.error:
            yield (each.id, each.name, each.kind, "delivery", delivery.error, 1)


def _statistics(seen: Seen) -> Iterator[Row]:
    for each, collection in seen.collections():
        parts = list(collection.parts())
        waiting = [part for unsealed in collection.unsealed for part in unsealed.parts]
        stored = seen.state.items.get(definition.item_key(collection.id))
        state_bytes = None
        if stored is not None:
            kept = described(seen.state, definition.decoded(stored), None, None)
            state_bytes = kept.state_bytes
        yield (
            each.id,
            each.name,
            each.kind,
            _updates(parts),
            sum(part.size_bytes for part in parts),
            len(parts),
            len(collection.batches),
            _updates(waiting),
            state_bytes,
        )


def _updates(parts: list[Part]) -> int:
    return sum(part.rows for part in parts if not part.errors)


def _timelines(seen: Seen) -> Iterator[Row]:
    for name, timeline in sorted(seen.state.timelines.items()):
        yield (name, timeline.upper - 1, timeline.upper, max(0, seen.now_ms - timeline.upper))


VIEWS: Final = (
    SystemView(
        "hw_frontiers",
        "When each collection can be read: at every time in `[since, upper)`.",
        (
            *OBJECT,
            Column("since", "bigint", "the first readable time; NULL: never again"),
            Column("upper", "bigint", "the first time that may still change; NULL: none does"),
            Column("readable", "text", "the interval as text"),
            Column("timeline", "text", "the timeline its times are of"),
        ),
        _frontiers,
    ),
    SystemView(
        "hw_lag",
        "How far each collection is behind.",
        (
            *OBJECT,
            Column("lag_ms", "bigint", "how far it is behind the timeline"),
            Column("age_ms", "bigint", "how long ago its newest complete time is, by the clock"),
            Column("own_lag_ms", "bigint", "how far it is behind the slowest of its inputs"),
            Column("slowest_input", "text", "which of its inputs is farthest behind"),
        ),
        _lag,
    ),
    SystemView(
        "hw_status",
        "What each object is doing.",
        (
            *OBJECT,
            Column(
                "status",
                "text",
                "`running`; `ready` (it is a definition alone); `hydrating`; `stalled`: it does "
                "not advance; `failing`: it advances, and has errors; of deliveries and sources "
                "also `starting`, `paused`, `failed`, `fenced`, `stopped`",
            ),
            Column("detail", "text", "why, or how far"),
        ),
        _status,
    ),
    SystemView(
        "hw_statistics",
        "What each collection takes.",
        (
            *OBJECT,
            Column("updates", "bigint", "updates it is stored as; at most so many rows"),
            Column("bytes", "bigint", "their size"),
            Column("parts", "bigint", "in how many parts they are"),
            Column("batches", "bigint", "in how many batches"),
            Column("unsealed_updates", "bigint", "those of them that are not yet readable"),
            Column("state_bytes", "bigint", "what a view keeps besides its rows"),
        ),
        _statistics,
    ),
    SystemView(
        "hw_errors",
        "What is wrong now: errors in data, views that stall, deliveries that fail.",
        (
            *OBJECT,
            Column(
                "origin",
                "text",
                "`data`: rows of it are errors, and it cannot be read; `stalled`: it does not "
                "advance; `delivery`; `source`",
            ),
            Column("message", "text", "what is wrong"),
            Column("count", "bigint", "how many rows"),
        ),
        _errors,
    ),
    SystemView(
        "hw_timelines",
        "The clocks by which everything is ordered.",
        (
            Column("name", "text", "name of the timeline"),
            Column("read_time", "bigint", "the time a strictly serializable read would get"),
            Column("upper", "bigint", "every time before it is complete for every table"),
            Column("behind_clock_ms", "bigint", "how far it is behind the clock"),
        ),
        _timelines,
    ),
)
