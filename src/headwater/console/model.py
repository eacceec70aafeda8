"""What the console shows, as a value: a pure function of what is seen at a moment.

    Seen(state, now_ms, failures, …)  ──pictured──▶  Picture(nodes, edges, spans, …)

A **node** is an object of the catalog that carries data: its frontiers, how far it is behind, and
how it is. An **edge** goes from what an object is made of to the object, so that data flows along
it. Secrets, connections and the like carry none and are not drawn.

**Behind** is measured against the timeline: a table is never behind, a view is behind by the times
that the timeline has completed and it has not. Whether the timeline itself follows the clock is a
figure of its own.

**Why stale** walks up the edges to the first cause: a node that failed, or hydrates, or is slow.

Kept by: this module, without I/O and without a browser. Relied on by: the pages, ``/metrics``, the
demo's summary.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.adapter import catalog, sources
from headwater.adapter.catalog import Object
from headwater.adapter.sql.forms import name_of
from headwater.adapter.system.seen import Seen
from headwater.base.ids import GlobalId
from headwater.materialize.status import State as DeliveryState
from headwater.materialize.status import Status as Delivery
from headwater.persist.batch import Times
from headwater.persist.state import State
from headwater.storage.controller import SourceStatus
from headwater.storage.runner import Condition

FRESH_MS: Final = 2_000
"""Up to this much behind nobody is told: a step takes its time."""

DRAWN: Final = ("source", "table", "view", "materialized view", "materialization", "subscription")
"""The kinds that carry data, in the order in which it flows."""

INTERNAL: Final = "internal"


class Health(enum.Enum):
    """How a node is, from good to bad."""

    OK = "ok"
    STARTING = "starting"
    HYDRATING = "hydrating"
    PAUSED = "paused"
    BEHIND = "behind"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True)
class Node:
    """One object."""

    id: str
    name: str
    kind: str
    since: int | None
    upper: int | None
    """None: it has no frontier, or is complete for ever."""
    behind_ms: int
    rows: int
    bytes: int
    health: Health
    why: str
    """Why it is not well; empty if it is."""
    delivery: Delivery | None = None
    ingestion: SourceStatus | None = None

    @property
    def stored(self) -> bool:
        """Whether it is a collection, with frontiers of its own."""
        return self.since is not None


@dataclass(frozen=True, slots=True)
class Span:
    """The readable interval of a collection, internal ones included."""

    name: str
    kind: str
    since: int
    upper: int
    holds: tuple[tuple[str, int], ...]
    """Who holds it from which time on, by purpose."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything the console draws."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]
    """Ids: from, to."""
    spans: tuple[Span, ...]
    upper: int
    """Of the timeline."""
    clock_behind_ms: int
    """How far the timeline is behind the clock."""
    seqno: int

    def node(self, name: str) -> Node | None:
        """Return the node of a name."""
        return next((node for node in self.nodes if node.name == name), None)

    def inputs(self, node: Node) -> tuple[Node, ...]:
        """Return what a node is made of."""
        found = [source for source, target in self.edges if target == node.id]
        return tuple(each for each in self.nodes if each.id in found)

    def why_stale(self, node: Node) -> str:
        """Return the first cause of a node's being behind, in a sentence; empty: it is not."""
        cause = self._cause(node)
        if cause is None:
            return ""
        of, why = cause
        return why if of is node else f"waits for {of.name}: {why}"

    def _cause(self, node: Node) -> tuple[Node, str] | None:
        """Return who is to blame for a node's being behind: itself, or what it is made of."""
        if node.why:
            return node, node.why
        for source in self.inputs(node):
            cause = self._cause(source)
            if cause is not None:
                return cause
        if node.behind_ms > FRESH_MS:
            late = f"{node.behind_ms / 1000:.1f} s of changes are still to be worked through"
            return node, late
        return None


def pictured(seen: Seen, ingestions: Sequence[SourceStatus] = ()) -> Picture:
    """Return what is drawn of a moment; ``ingestions`` say how sources are."""
    running = {each.id: each for each in ingestions}
    state, upper = seen.state, seen.oracle_upper
    objects = [each for each in catalog.objects(state) if _is_drawn(state, each)]
    objects.sort(key=lambda each: (DRAWN.index(each.kind), each.name))
    nodes = tuple(_node(seen, each, running.get(each.of or each.id)) for each in objects)
    known = {each.id for each in objects}
    edges = tuple(
        (used, each.id) for each in objects for used in sorted(set(each.uses)) if used in known
    )
    return Picture(
        nodes,
        edges,
        tuple(_spans(state, objects)),
        upper,
        max(0, seen.now_ms - upper),
        state.seqno,
    )


def columns(state: State, name: str) -> list[tuple[str, str, bool, str]]:
    """Return the columns of a relation: name, type, nullable, comment; none if it has none."""
    found = catalog.named(state, name)
    if not found.collection and not found.schema:
        return []
    schema = catalog.schemas(state, (name,))[name]
    return [
        (
            each.name,
            name_of(each),
            each.nullable,
            found.column_comments.get(each.name, ""),
        )
        for each in schema
    ]


def duration(milliseconds: int) -> str:
    """Return a duration as a person reads it.

    >>> [duration(n) for n in (0, 250, 1500, 90_000, 7_200_000)]
    ['0 ms', '250 ms', '1.5 s', '1.5 min', '2.0 h']
    """
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    if milliseconds < 3_600_000:
        return f"{milliseconds / 60_000:.1f} min"
    return f"{milliseconds / 3_600_000:.1f} h"


def size(count: int) -> str:
    """Return a number of bytes as a person reads it.

    >>> [size(n) for n in (0, 1023, 2048, 5 << 20)]
    ['0 B', '1023 B', '2.0 KiB', '5.0 MiB']
    """
    number, unit = float(count), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number, unit = number / 1024, bigger
    return f"{count} B" if unit == "B" else f"{number:.1f} {unit}"


def _is_drawn(state: State, each: Object) -> bool:
    """Whether an object carries data; of a source's own bookkeeping, dead letters if there are."""
    if each.kind not in DRAWN:
        return False
    if each.kind != "source" or not each.of:
        return True
    what = sources.kind(state, each)
    letters = state.collections.get(state.names[each.collection])
    return what == "subsource" or (
        what == "errors" and letters is not None and any(letters.parts())
    )


def _node(seen: Seen, each: Object, ingestion: SourceStatus | None) -> Node:
    state = seen.state
    since = upper = None
    rows = in_bytes = 0
    gid = state.names.get(each.collection) if each.collection else None
    collection = None if gid is None else state.collections.get(gid)
    if collection is not None:
        since, upper = seen.since(collection), seen.upper(collection)
        parts = list(collection.parts())
        rows, in_bytes = sum(p.rows for p in parts), sum(p.size_bytes for p in parts)
    delivery = seen.deliveries(each.id) if each.kind == "materialization" else None
    if delivery is not None:
        upper = delivery.reached if delivery.reached is not None else delivery.checkpoint
    behind = 0 if upper is None else max(0, seen.oracle_upper - upper)
    health, why = _health(seen, each, gid, delivery, behind)
    if ingestion is not None and health in (Health.OK, Health.BEHIND):
        health, why = _ingested(ingestion, health)
    return Node(
        *(each.id, each.name, each.kind, since, upper, behind, rows, in_bytes, health, why),
        delivery,
        ingestion,
    )


def _health(
    seen: Seen, each: Object, gid: GlobalId | None, delivery: Delivery | None, behind_ms: int
) -> tuple[Health, str]:
    if gid is not None and gid in seen.failures:
        return Health.STALLED, seen.failures[gid]
    if each.collection in seen.hydrating:
        return Health.HYDRATING, f"its first content is made: {seen.hydrating[each.collection]:.0%}"
    if each.kind == "materialization":
        return _delivered(delivery, behind_ms)
    return (Health.BEHIND if behind_ms > FRESH_MS else Health.OK), ""


def _ingested(ingestion: SourceStatus, otherwise: Health) -> tuple[Health, str]:
    status = ingestion.status
    match status.condition:
        case Condition.RUNNING:
            return otherwise, ""
        case Condition.STARTING:
            return Health.STARTING, status.why or "it has not read anything yet"
        case Condition.PAUSED:
            return Health.PAUSED, "it is paused: ALTER SOURCE … RESUME lets it go on"
        case Condition.STOPPED:
            return Health.PAUSED, status.why or "it is stopped"
        case Condition.STALLED | Condition.FAILED | Condition.FENCED:
            return Health.STALLED, status.why or status.condition.value


def _delivered(delivery: Delivery | None, behind_ms: int) -> tuple[Health, str]:
    if delivery is None:
        return Health.PAUSED, "it is paused: ALTER MATERIALIZATION … RESUME lets it go on"
    match delivery.state:
        case DeliveryState.STALLED | DeliveryState.FENCED:
            return Health.STALLED, delivery.error
        case DeliveryState.STARTING:
            return Health.STARTING, "it has not delivered yet"
        case DeliveryState.STOPPED:
            return Health.PAUSED, "it is stopped"
        case DeliveryState.RUNNING:
            return (Health.BEHIND if behind_ms > FRESH_MS else Health.OK), ""


def _spans(state: State, objects: list[Object]) -> Iterator[Span]:
    kinds = {each.collection: (each.name, each.kind) for each in objects if each.collection}
    for collection in sorted(state.collections.values(), key=lambda each: each.id):
        name, kind = kinds.get(collection.name, (collection.name, INTERNAL))
        since, upper = _only(collection.since), _only(state.upper(collection))
        if since is None or upper is None:
            continue
        holds = tuple(
            sorted(
                (reader.purpose or "a reader", held)
                for reader in collection.readers.values()
                if (held := _only(reader.since)) is not None
            )
        )
        yield Span(name, kind, since, upper, holds)


def _only(times: Times) -> int | None:
    return None if times.is_closed else times.only()
