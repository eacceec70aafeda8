"""What every page has: the head with its links, the strip of figures, dark and light, the keys.

Alt+1, Alt+2, Alt+3 go to the pages from anywhere, also from inside the editor; the first link of a
page skips to its content. The choice between dark and light is a cookie of the browser; without
one the system's is taken.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import resources
from typing import Final
from urllib.parse import quote

from fastapi import Request
from nicegui import events, ui

from headwater.console.model import Health, Picture, duration
from headwater.console.sight import Sight

CSS: Final = resources.files("headwater.console").joinpath("style.css").read_text("utf-8")
PAGES: Final = (("Graph", "/"), ("SQL", "/sql"), ("Timeline", "/timeline"))
PRIMARY: Final = "#1c8ea3"
COOKIE: Final = "headwater-theme"
REFRESH_SECONDS: Final = 1.0
_YEAR_SECONDS: Final = 31_536_000


@contextmanager
def frame(request: Request, sight: Sight, here: str, title: str) -> Iterator[ui.dark_mode]:
    """Draw the frame; what is drawn inside is the page's content. Yields dark or light."""
    ui.add_css(CSS)
    ui.colors(primary=PRIMARY)
    ui.page_title(f"{title} · Headwater")
    chosen = {"dark": True, "light": False}.get(request.cookies.get(COOKIE, ""))
    mode = ui.dark_mode(chosen)
    skip = ui.element("div")
    with ui.element("header").classes("hw-header"):
        ui.html("head<b>water</b>", tag="a", sanitize=False).classes("hw-brand").props("href=/")
        with ui.element("nav").classes("hw-nav").props('aria-label="Pages"'):
            for number, (name, path) in enumerate(PAGES, 1):
                link = ui.link(name, path).props(f'title="Alt+{number}"')
                if path == here:
                    link.classes("hw-here").props("aria-current=page")
        strip = _Strip()
        _theme_button(mode)
    main = ui.element("div").classes("hw-main").props("tabindex=-1")
    with skip:
        ui.skip_link(target=main)
    ui.keyboard(on_key=_go, ignore=[])
    strip.draw(sight.picture())
    ui.timer(REFRESH_SECONDS, lambda: strip.draw(sight.picture()))
    with main:
        yield mode


class _Strip:
    """The figures at the top."""

    def __init__(self) -> None:
        with ui.element("div").classes("hw-strip").props('aria-live="off"'):
            self._time, self._behind, self._log = ui.label(), ui.label(), ui.label()
            self._time.tooltip("every time before it is complete")

    def draw(self, picture: Picture) -> None:
        wrong = [node for node in picture.nodes if node.health is Health.STALLED]
        self._time.set_text(f"timeline {clock(picture.upper)}")
        self._behind.set_text(
            f"{len(wrong)} stalled" if wrong else f"{duration(picture.clock_behind_ms)} ago"
        )
        self._log.set_text(f"entry {picture.seqno:,}")


def _theme_button(mode: ui.dark_mode) -> None:
    def turn() -> None:
        dark = mode.value is not True
        mode.set_value(dark)
        value = "dark" if dark else "light"
        ui.run_javascript(
            f"document.cookie='{COOKIE}={value};path=/;max-age={_YEAR_SECONDS};SameSite=Strict'"
        )

    button = ui.button(icon="contrast", on_click=turn).props("flat round dense size=sm")
    button.props('aria-label="Dark or light"').tooltip("dark or light")


def _go(event: events.KeyEventArguments) -> None:
    if not event.action.keydown or not event.modifiers.alt:
        return
    for number, (_, path) in enumerate(PAGES, 1):
        if event.key.code == f"Digit{number}":
            ui.navigate.to(path)


def clock(time_ms: int) -> str:
    """Return a time of ours as a clock shows it, in UTC.

    >>> clock(1_794_780_000_123)
    '21:20:00.123'
    """
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def moment(time_ms: int | None) -> str:
    """Return a time of ours with its date; a dash for none."""
    if time_ms is None:
        return "-"
    day = datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d")
    return f"{day} {clock(time_ms)}"


def counted(number: int, what: str) -> str:
    """Return a number of things.

    >>> counted(1, "row"), counted(1_200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def object_path(name: str) -> str:
    """Return the address of an object's page."""
    return f"/object?name={quote(name)}"


def table(columns: Sequence[str], rows: Sequence[Sequence[object | None]]) -> str:
    """Return rows as a table of HTML, with every text of theirs escaped."""
    head = "".join(
        f"<th scope=col{_NUMBER * _is_number(row[place] for row in rows)}>{html.escape(name)}</th>"
        for place, name in enumerate(columns)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table class=hw-table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_NUMBER: Final = " class=hw-number"


def _is_number(values: Iterable[object | None]) -> bool:
    """Whether a column has numbers, and nothing else but NULLs."""
    found = [value for value in values if value is not None]
    return bool(found) and all(type(value) is int for value in found)


def _cell(value: object | None) -> str:
    if value is None:
        return "<td class=hw-null>NULL</td>"
    if isinstance(value, Sign):
        way = "plus" if value.diff > 0 else "minus"
        return f"<td class=hw-{way}>{value.diff:+d}</td>"
    number = _NUMBER if type(value) is int else ""
    text = f"{value:,}" if number else str(value)
    return f"<td{number}>{html.escape(text)}</td>"


class Sign:
    """A diff, shown with its sign."""

    def __init__(self, diff: int) -> None:
        self.diff = diff
