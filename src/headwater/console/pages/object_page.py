"""The page of an object: what it is, how it is, what is in it, and what changes.

What is said of it comes from the read model and from the system views; the sample is read by SQL
when something changed, and the changes are those of a subscription, which ends with the page.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Final

from fastapi import Request
from nicegui import run, ui

from headwater.adapter import catalog
from headwater.adapter.sql.names import quoted_name
from headwater.base.errors import HeadwaterError
from headwater.console.answers import Answer, Desk, readable
from headwater.console.changes import ChangeStream
from headwater.console.model import Health, Node, Picture, columns, duration, size
from headwater.console.pages.frame import (
    REFRESH_SECONDS,
    Sign,
    clock,
    counted,
    frame,
    moment,
    object_path,
    table,
)
from headwater.console.sight import Sight
from headwater.storage.offsets import Offsets

SAMPLE_ROWS: Final = 50
SAMPLE_SECONDS: Final = 3.0
CHANGES_SHOWN: Final = 40
PARTITIONS_SHOWN: Final = 4
_HIDDEN: Final = ("object_id", "name", "kind")
_HIDDEN_OF_OTHERS: Final = ("object_id", "kind", "on_id", "on_name", "on_kind")

PANELS: Final[tuple[tuple[str, str, str], ...]] = (
    ("Delivery", "hw_materializations", "name"),
    ("Bindings", "hw_materialization_bindings", "name"),
    ("Operators", "hw_operators", "name"),
    ("What they keep", "hw_arrangements", "name"),
    ("Indexes", "hw_indexes", "on_name"),
)
"""Titles, the system views whose rows of the object stand below them, and where its name is."""


def draw(request: Request, sight: Sight, name: str) -> None:
    """Draw the page."""
    with frame(request, sight, "", name or "Object"):
        if sight.picture().node(name) is None:
            ui.label(f'There is no object "{name}".').classes("hw-title")
            ui.label("It may have been dropped or renamed.").classes("hw-soft")
            ui.link("Back to the graph", "/")
            return
        _Page(sight, name)


class _Page:
    """One object on a page."""

    def __init__(self, sight: Sight, name: str) -> None:
        self._sight, self._name = sight, name
        node = sight.picture().node(name)
        assert node is not None
        self._health: Health | None = None
        with ui.element("div").classes("hw-title"):
            ui.label(name).props("role=heading aria-level=1")
            ui.label(node.kind).classes("hw-kind")
            with ui.element("span").classes("hw-badge") as self._badge:
                ui.element("span").classes("hw-dot")
                self._how = ui.label()
        self._why = ui.label().classes("hw-warn").props("role=status")
        with ui.element("div").classes("hw-card"):
            self._facts = ui.html(sanitize=False).classes("hw-facts")
        self._links = ui.element("div").classes("hw-row hw-soft")
        self._panels = [_Panel(title, view, sight, name, by) for title, view, by in PANELS]
        self._draw_definition(node)
        self._errors = _Panel("Errors", "hw_errors", sight, name)
        self._sample: _Sample | None = None
        self._changes: _Changes | None = None
        if node.stored:
            self._changes = _Changes(sight, name)
            self._sample = _Sample(sight, name, self._changes)
        elif node.kind == "view":
            self._sample = _Sample(sight, name, None)
        self._shown_links: object = None
        self._refresh()
        ui.timer(REFRESH_SECONDS, self._refresh)

    def _refresh(self) -> None:
        picture = self._sight.picture()
        node = picture.node(self._name)
        if node is None:
            self._why.set_text("This object is gone: it was dropped or renamed.")
            return
        if node.health is not self._health:
            if self._health is not None:
                self._badge.classes(remove=f"hw-{self._health.value}")
            self._health = node.health
            self._badge.classes(add=f"hw-{node.health.value}")
        self._how.set_text(node.health.value)
        why = picture.why_stale(node)
        self._why.set_text(f"Why it is stale: {why}" if why else "")
        self._why.set_visibility(bool(why))
        self._facts.set_content(_facts(node))
        self._draw_links(picture, node)
        for panel in (*self._panels, self._errors):
            panel.refresh()
        if self._changes is not None:
            self._changes.refresh()

    def _draw_links(self, picture: Picture, node: Node) -> None:
        above = [n.name for n in picture.inputs(node)]
        below = [n.name for n in picture.nodes if (node.id, n.id) in picture.edges]
        if (above, below) == self._shown_links:
            return
        self._shown_links = (above, below)
        self._links.clear()
        with self._links:
            for word, names in (("made of", above), ("used by", below)):
                if names:
                    ui.label(word)
                for name in names:
                    ui.link(name, object_path(name))

    def _draw_definition(self, node: Node) -> None:
        state = self._sight.seen().state
        found = catalog.named(state, node.name)
        described = columns(state, node.name)
        with ui.element("div").classes("hw-card"):
            ui.html("<h2>Definition</h2>", sanitize=False)
            if found.comment:
                ui.label(found.comment).classes("hw-soft")
            ui.label(found.sql.strip()).classes("hw-mono hw-pre")
            if described:
                rows = [(n, t, "yes" if nullable else "no", c) for n, t, nullable, c in described]
                ui.html(table(("column", "type", "nullable", "comment"), rows), sanitize=False)


def _facts(node: Node) -> str:
    facts = [
        ("behind the timeline", duration(node.behind_ms) if node.upper is not None else "-"),
        ("since (first readable)", moment(node.since)),
        ("upper (first open)", moment(node.upper)),
        ("updates kept", f"{node.rows:,}"),
        ("bytes", size(node.bytes)),
    ]
    if node.delivery is not None:
        done = node.delivery
        facts = [
            ("behind the timeline", duration(node.behind_ms) if node.upper is not None else "-"),
            ("delivered up to", moment(node.upper)),
            ("transactions", f"{done.transactions:,}"),
            ("rows stored", f"{done.rows_stored:,}"),
            ("rows deleted", f"{done.rows_deleted:,}"),
        ]
    elif node.ingestion is not None:
        read = node.ingestion.statistics
        facts = [
            *(facts if node.stored else ()),
            ("messages read", f"{read.messages:,}"),
            ("offsets durable", _offsets(read.offsets_committed)),
            ("offsets known upstream", _offsets(read.offsets_known)),
            ("dead letters", f"{read.dead_letters:,}"),
        ]
    elif not node.stored:
        facts = [("kept", "no: it is computed when it is read")]
    return "".join(
        f"<div class=hw-fact><span>{name}</span><span>{value}</span></div>" for name, value in facts
    )


def _offsets(offsets: Offsets) -> str:
    """Return the offsets of a source; of many partitions, their sum."""
    found = dict(offsets.items())
    if len(found) > PARTITIONS_SHOWN:
        return f"{sum(found.values()):,} in {len(found)} partitions"
    return ", ".join(f"{html.escape(str(name))}: {at:,}" for name, at in found.items()) or "none"


class _Panel:
    """What a system view says of the object; not there while it says nothing."""

    def __init__(self, title: str, view: str, sight: Sight, name: str, by: str = "name") -> None:
        self._view, self._sight, self._name, self._by = view, sight, name, by
        self._shown: object = None
        with ui.element("div").classes("hw-card") as self._card:
            ui.html(f"<h2>{title}</h2>", sanitize=False)
            self._table = ui.html(sanitize=False).style("overflow-x: auto")
        self._card.set_visibility(False)

    def refresh(self) -> None:
        rows = self._sight.about(self._view, self._name, self._by)
        if rows == self._shown:
            return
        self._shown = rows
        self._card.set_visibility(bool(rows))
        if rows:
            hidden = _HIDDEN if self._by == "name" else _HIDDEN_OF_OTHERS
            names = [name for name in rows[0] if name not in hidden]
            self._table.set_content(table([_title(name) for name in names], _cells(names, rows)))


def _title(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _cells(names: Sequence[str], rows: Sequence[Mapping[str, object]]) -> list[list[object | None]]:
    return [[_readable(name, row[name]) for name in names] for row in rows]


def _readable(name: str, value: object) -> object | None:
    if isinstance(value, int) and not isinstance(value, bool):
        if name.endswith("_ms"):
            return duration(value)
        if name.endswith("bytes"):
            return size(value)
        if name in ("last_transaction", "delivered", "since", "upper"):
            return clock(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else value


class _Changes:
    """The change stream; it begins when a browser is there, not when the page is asked for."""

    def __init__(self, sight: Sight, name: str) -> None:
        self._sight, self._name = sight, name
        self._stream: ChangeStream | None = None
        self._drawn = -1
        with ui.element("div").classes("hw-card"):
            ui.html("<h2>Changes, live</h2>", sanitize=False)
            self._told = ui.label("none since this page was opened").classes("hw-soft")
            self._table = ui.html(sanitize=False).classes("hw-scroll hw-mono")
        ui.timer(0, self._begin, once=True)

    @property
    def total(self) -> int:
        """Updates seen so far."""
        return 0 if self._stream is None else self._stream.total

    def _begin(self) -> None:
        self._stream = ChangeStream(self._sight, self._name)
        ui.context.client.on_delete(self._stream.close)

    def refresh(self) -> None:
        stream = self._stream
        if stream is None:
            return
        if stream.error:
            self._told.set_text(stream.error)
        if stream.total == self._drawn or not stream.total:
            return
        self._drawn = stream.total
        newest = stream.newest()[:CHANGES_SHOWN]
        rows = [(clock(each.time), Sign(each.diff), *each.row) for each in newest]
        self._told.set_text(f"{stream.total:,} since this page was opened, newest first")
        self._table.set_content(table(("time", "diff", *stream.columns), rows))


class _Sample:
    """Some rows, read again when something changed."""

    def __init__(self, sight: Sight, name: str, changes: _Changes | None) -> None:
        self._sight, self._desk = sight, Desk(sight)
        self._name, self._changes = name, changes
        ui.context.client.on_delete(self._desk.close)
        self._read_at = -1
        self._reading = False
        with ui.element("div").classes("hw-card"):
            ui.html("<h2>Sample</h2>", sanitize=False)
            with ui.element("div").classes("hw-row"):
                self._told = ui.label("reading …").classes("hw-soft")
                ui.button("Read again", on_click=self.read).props("flat dense no-caps size=sm")
            self._table = ui.html(sanitize=False).classes("hw-scroll hw-mono")
        ui.timer(0.1, self.read, once=True)
        if changes is not None:
            ui.timer(SAMPLE_SECONDS, self._follow)

    async def _follow(self) -> None:
        assert self._changes is not None
        if self._changes.total != self._read_at:
            await self.read()

    async def read(self) -> None:
        """Read the sample."""
        if self._reading:
            return
        self._reading = True
        if self._changes is not None:
            self._read_at = self._changes.total
        quoted = quoted_name(self._name)
        try:
            # One more than is shown, to know whether there are more.
            text = f"SELECT * FROM {quoted} LIMIT {SAMPLE_ROWS + 1}"  # noqa: S608 - quoted
            answers = await run.io_bound(self._desk.run, text, self._newest())
        except HeadwaterError as error:
            answers = [Answer("", error=str(error))]
        finally:
            self._reading = False
        for answer in answers or ():
            self._show(answer)

    def _newest(self) -> int | None:
        """Return the newest time that is complete: a sample waits for nothing."""
        found = readable(self._sight.seen().state, (self._name,))
        return None if found is None else found[1]

    def _show(self, answer: Answer) -> None:
        if answer.error:
            self._told.set_text(answer.error)
            self._told.classes(add="hw-error")
            self._table.set_content("")
            return
        self._told.classes(remove="hw-error")
        more = len(answer.rows) > SAMPLE_ROWS
        rows = answer.rows[:SAMPLE_ROWS]
        told = counted(len(rows), "row")
        self._told.set_text(f"the first {told}" if more else f"all {told}" if rows[1:] else told)
        self._table.set_content(table(answer.columns, rows))
