"""The graph: from sources and tables through views to materializations, live.

Nodes are links, so that Tab goes through them in the order of the data; only their texts change
while they stand, so that the focus stays where it is. They are laid out anew when objects come, go
or are joined differently.
"""

from __future__ import annotations

from typing import Final

from fastapi import Request
from nicegui import ui

from headwater.console.layout import Layout, Placed, laid_out
from headwater.console.model import Health, Node, Picture, duration, size
from headwater.console.pages.frame import REFRESH_SECONDS, clock, counted, frame, object_path
from headwater.console.sight import Sight

WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 232, 92, 84, 22, 12
_HEALTHS: Final = " ".join(f"hw-{health.value}" for health in Health)


def draw(request: Request, sight: Sight) -> None:
    """Draw the page."""
    with frame(request, sight, "/", "Graph"):
        with ui.element("div").classes("hw-title"):
            ui.label("Where the data goes").props("role=heading aria-level=1")
            summary = ui.label().classes("hw-soft").style("font-size: .85rem")
        page = _Graph(ui.element("div").classes("hw-card hw-graph"))

        def refresh() -> None:
            picture = sight.picture()
            page.show(picture)
            summary.set_text(_summary(picture))

        refresh()
        ui.timer(REFRESH_SECONDS, refresh)
        with ui.element("div").classes("hw-row hw-soft"):
            for health in Health:
                ui.html(f"<span class=hw-dot></span> {health.value}", sanitize=False).classes(
                    f"hw-badge hw-{health.value}"
                )
            ui.label("behind: how far an object is behind the timeline")


def _summary(picture: Picture) -> str:
    if not picture.nodes:
        return ""
    slowest = max(picture.nodes, key=lambda node: node.behind_ms)
    wrong = [node.name for node in picture.nodes if node.health is Health.STALLED]
    told = counted(len(picture.nodes), "object")
    if wrong:
        return f"{told}, {', '.join(wrong)} stalled"
    if slowest.behind_ms == 0:
        return f"{told}, all up to date"
    return f"{told}, {slowest.name} is farthest behind: {duration(slowest.behind_ms)}"


class _Graph:
    """The nodes on the page."""

    def __init__(self, place: ui.element) -> None:
        self._place = place
        self._shape: object = None
        self._nodes: dict[str, _NodeCard] = {}

    def show(self, picture: Picture) -> None:
        shape = (tuple((n.id, n.name, n.kind) for n in picture.nodes), picture.edges)
        if shape != self._shape:
            self._shape = shape
            self._lay_out(picture)
        for node in picture.nodes:
            self._nodes[node.id].show(node, picture)

    def _lay_out(self, picture: Picture) -> None:
        self._place.clear()
        self._nodes.clear()
        if not picture.nodes:
            self._place.style("height: auto")
            with self._place:
                ui.label("There is nothing yet. Make a table or a source:").classes("hw-soft")
                ui.label("CREATE TABLE orders (id bigint PRIMARY KEY, amount int);").classes(
                    "hw-mono hw-pre"
                )
                ui.link("Open the SQL page", "/sql")
            return
        layout = laid_out([node.id for node in picture.nodes], picture.edges)
        crossed = (place for way in layout.ways.values() for place in way)
        corners = [_corner(place) for place in (*layout.nodes, *crossed)]
        width = max(x for x, _ in corners) + WIDTH + MARGIN
        height = max(y for _, y in corners) + HEIGHT + MARGIN
        self._place.style(f"height: {height + 4}px")
        by_id = {node.id: node for node in picture.nodes}
        with self._place:
            ui.html(_edges(layout, width, height), sanitize=False)
            for spot in sorted(layout.nodes, key=lambda each: (each.column, each.row)):
                self._nodes[spot.id] = _NodeCard(by_id[spot.id], *_corner(spot))


def _corner(place: Placed) -> tuple[int, int]:
    return MARGIN + place.column * (WIDTH + ACROSS), MARGIN + int(place.row * (HEIGHT + DOWN))


def _edges(layout: Layout, width: int, height: int) -> str:
    places = {place.id: place for place in layout.nodes}
    paths = []
    for (source, target), way in layout.ways.items():
        x, y = _corner(places[source])
        x, y = x + WIDTH, y + HEIGHT // 2
        drawn = [f"M{x} {y}"]
        for place in (*way, places[target]):
            to_x, to_y = _corner(place)
            to_y += HEIGHT // 2
            bend, end = max(30, (to_x - x) // 2), to_x - (6 if place.id == target else 0)
            drawn.append(f"C{x + bend} {y} {to_x - bend} {to_y} {end} {to_y}")
            x, y = to_x + WIDTH, to_y
            if place.id != target:
                drawn.append(f"L{x} {y}")
        paths.append(f'<path d="{" ".join(drawn)}" marker-end="url(#hw-arrow)"/>')
    arrow = (
        '<defs><marker id="hw-arrow" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>'
    )
    return (
        f'<svg width="{width}" height="{height}" aria-hidden="true">{arrow}{"".join(paths)}</svg>'
    )


class _NodeCard:
    """One node on the page."""

    def __init__(self, node: Node, x: int, y: int) -> None:
        where = f"left: {x}px; top: {y}px; width: {WIDTH}px; height: {HEIGHT}px"
        with ui.link(target=object_path(node.name)).classes("hw-node").style(where) as self._card:
            ui.label(node.kind).classes("hw-kind")
            ui.label(node.name).classes("hw-name")
            with ui.element("div").classes("hw-line"):
                ui.element("span").classes("hw-dot")
                self._how = ui.label()
            with ui.element("div").classes("hw-line"):
                self._where = ui.label()
        self._health: Health | None = None

    def show(self, node: Node, picture: Picture) -> None:
        if node.health is not self._health:
            self._health = node.health
            self._card.classes(remove=_HEALTHS, add=f"hw-{node.health.value}")
        why = picture.why_stale(node)
        self._card.props["title"] = why or f"{node.name} is up to date"
        self._how.set_text(_how(node, why))
        self._where.set_text(_where(node))


def _how(node: Node, why: str) -> str:
    if node.health is Health.OK:
        return f"ok · {duration(node.behind_ms)} behind" if node.behind_ms else "ok · up to date"
    if node.health is Health.BEHIND:
        return f"{duration(node.behind_ms)} behind"
    return f"{node.health.value}: {why}" if why else node.health.value


def _where(node: Node) -> str:
    if node.delivery is not None:
        done = node.delivery.rows_stored + node.delivery.rows_deleted
        return f"{counted(node.delivery.transactions, 'transaction')}, {counted(done, 'row')}"
    if node.ingestion is not None and not node.stored:
        return f"{node.ingestion.kind}, {counted(node.ingestion.statistics.messages, 'message')}"
    if node.since is None:
        return "computed when it is read"
    upper = "closed" if node.upper is None else f"upper {clock(node.upper)}"
    return f"{upper} · {size(node.bytes)}"
