"""The SQL page: an editor, answers as tables, history, EXPLAIN, and a slider over time.

Ctrl+Enter runs. The slider goes over the times at which what the text reads can be read; while it
is on, queries are read AS OF its time. The history is kept by the browser, never by the server.

What runs is the text that the browser shows. The server's copy of it may lack what was typed last,
so nothing is sent into the editor while somebody may be typing: it is written by the history alone.
"""

from __future__ import annotations

import json
from typing import Final

from fastapi import Request
from nicegui import run, ui

from headwater.console.answers import Answer, Desk, readable, relations_of
from headwater.console.pages.frame import frame, moment, table
from headwater.console.sight import Sight

HISTORY_KEY: Final = "headwater-history"
HISTORY_MAX: Final = 50
STEPS: Final = 1_000
"""Places of the slider; an arrow key is one, Page Up and Down are ten."""
INTERVAL_SECONDS: Final = 1.0
BROWSER_SECONDS: Final = 10.0
START: Final = "SELECT * FROM hw_catalog.hw_status"


def draw(request: Request, sight: Sight, text: str = "") -> None:
    """Draw the page."""
    with frame(request, sight, "/sql", "SQL") as mode:
        page = _Page(sight, text or START)
        mode.on_value_change(page.dress)


class _Page:
    """What is on the page, and what it is doing."""

    def __init__(self, sight: Sight, text: str) -> None:
        self._sight = sight
        self._desk = Desk(sight)
        self._history: list[str] = []
        self._at: int | None = None
        """The time that was chosen."""
        self._shown = STEPS
        """Where the slider was put by us."""
        ui.context.client.on_delete(self._desk.close)
        with ui.element("div").classes("hw-columns"):
            with ui.element("div").style("display: flex; flex-direction: column; gap: 1rem"):
                self._draw_editor(text)
                self._answers = ui.element("div").style(
                    "display: flex; flex-direction: column; gap: 1rem"
                )
            with ui.element("aside").classes("hw-card hw-history"):
                ui.html("<h2>History</h2>", sanitize=False)
                self._list = ui.element("div")
        ui.timer(INTERVAL_SECONDS, self._move_slider)
        ui.timer(0.1, self._load_history, once=True)
        ui.timer(0.1, self.dress, once=True)

    def dress(self) -> None:
        """Give the editor the page's palette.

        In the browser: `set_theme` sends the text along and would take back what is being typed.
        """
        ui.run_javascript(
            f"getElement({self._editor.id}).setTheme("
            "document.body.classList.contains('body--dark') ? 'basicDark' : 'basicLight')"
        )

    async def _text(self) -> str:
        """Return the text as it is shown; none if the browser does not say: never an older one."""
        shown = f"getElement({self._editor.id}).editor.state.doc.toString()"
        try:
            return str(await ui.run_javascript(shown, timeout=BROWSER_SECONDS))
        except TimeoutError:
            ui.notify("Nothing was run: the browser did not say what is in the editor. Try again.")
            return ""

    def _draw_editor(self, text: str) -> None:
        with ui.element("div").classes("hw-card"):
            self._editor = ui.codemirror(
                text,
                language="PostgreSQL",
                theme="basicLight",
                keymap={"Mod-Enter": self._run},
            ).classes("hw-editor")
            self._editor.props('aria-label="SQL"')
            with ui.element("div").classes("hw-row").style("margin-top: .75rem"):
                self._go = ui.button("Run", on_click=self._run).props("no-caps unelevated dense")
                self._go.props("padding='4px 16px'").tooltip("Ctrl+Enter")
                ui.button("Explain", on_click=self._explain).props(
                    "no-caps outline dense padding='4px 12px'"
                )
                self._stop = ui.button("Cancel", on_click=self._desk.cancel).props(
                    "no-caps flat dense"
                )
                self._stop.disable()
                self._past = ui.checkbox("as of").props("dense")
                self._slider = ui.slider(min=0, max=STEPS, value=STEPS).props("dense")
                self._slider.props('aria-label="Time of the read"').style("width: 220px")
                self._when = ui.label().classes("hw-soft hw-mono")
            self._past.on_value_change(self._move_slider)
            self._slider.on_value_change(self._choose_time)

    # ---- time --------------------------------------------------------------------------------

    def _interval(self) -> tuple[int, int] | None:
        names = relations_of(self._editor.value or "")
        return readable(self._sight.seen().state, names) if names else None

    def _move_slider(self) -> None:
        """Follow what can be read; a time that was chosen stays, while it can be read."""
        found = self._interval()
        past = bool(self._past.value)
        self._slider.set_enabled(found is not None and past)
        if found is None:
            self._at = None
            self._when.set_text("" if not past else "nothing here has a history")
            return
        first, last = found
        self._at = last if self._at is None or not past else min(max(self._at, first), last)
        self._shown = round(STEPS * (self._at - first) / max(1, last - first))
        self._slider.set_value(self._shown)
        self._when.set_text(f"{moment(self._at)} ({self._at})" if past else "now")

    def _choose_time(self) -> None:
        """Take the time of the slider, if it was a person who moved it."""
        value, found = self._slider.value, self._interval()
        if value is None or found is None or value == self._shown:
            return
        first, last = found
        self._at = first + int((last - first) * value / STEPS)
        self._move_slider()

    def _as_of(self) -> int | None:
        return self._at if self._past.value else None

    # ---- running -----------------------------------------------------------------------------

    async def _run(self) -> None:
        await self._execute(await self._text())

    async def _explain(self) -> None:
        text = (await self._text()).strip().rstrip(";")
        names = relations_of(text)
        views = [n for n in self._sight.picture().nodes if n.name in names]
        told = [f"EXPLAIN TIMESTAMP FOR {text}"] if names else []
        told += [
            'EXPLAIN MATERIALIZED VIEW "{}"'.format(node.name.replace('"', '""'))
            for node in views
            if node.kind == "materialized view"
        ]
        await self._execute(";\n".join(told) or text, remember=False)

    async def _execute(self, text: str, *, remember: bool = True) -> None:
        if not text.strip():
            return
        self._go.disable()
        self._stop.enable()
        try:
            answers = await run.io_bound(self._desk.run, text, self._as_of())
        finally:
            self._go.enable()
            self._stop.disable()
        self._answers.clear()
        with self._answers:
            for answer in answers or ():
                _show(answer)
        if remember:
            self._remember(text)

    # ---- history -----------------------------------------------------------------------------

    async def _load_history(self) -> None:
        try:
            kept = await ui.run_javascript(f"localStorage.getItem('{HISTORY_KEY}')")
        except TimeoutError:
            return
        try:
            found = json.loads(kept or "[]")
        except ValueError:
            found = []
        self._history = [each for each in found if isinstance(each, str)][:HISTORY_MAX]
        self._draw_history()

    def _remember(self, text: str) -> None:
        self._history = [text, *(each for each in self._history if each != text)][:HISTORY_MAX]
        kept = json.dumps(json.dumps(self._history))
        ui.run_javascript(f"localStorage.setItem('{HISTORY_KEY}', {kept})")
        self._draw_history()

    def _draw_history(self) -> None:
        self._list.clear()
        with self._list:
            if not self._history:
                ui.label("What you run is listed here.").classes("hw-soft")
            for text in self._history:
                button = ui.button(
                    " ".join(text.split())[:60],
                    on_click=lambda text=text: self._editor.set_value(text),
                )
                button.props("flat dense no-caps").classes("hw-mono").tooltip(text[:400])


def _show(answer: Answer) -> None:
    with ui.element("div").classes("hw-card"):
        if answer.error:
            ui.label(answer.error).classes("hw-error").props("role=alert")
            if answer.hint:
                ui.label(answer.hint).classes("hw-soft")
            return
        rows = f"{len(answer.rows):,} rows{' and more' if answer.more else ''}, "
        told = f"{rows if answer.columns else ''}{answer.seconds * 1000:.0f} ms"
        with ui.element("div").classes("hw-row").style("margin-bottom: .4rem"):
            ui.label(answer.tag).style("font-weight: 600")
            ui.label(told).classes("hw-soft")
        if answer.columns:
            ui.html(table(answer.columns, answer.rows), sanitize=False).classes("hw-scroll hw-mono")
