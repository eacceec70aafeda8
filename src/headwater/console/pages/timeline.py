"""The timeline: ``[since, upper)`` of everything, on one scale, with who holds what.

The scale goes from the oldest ``since`` to the clock; a hold that is the reason why ``since``
stays is a mark inside the bar, and is named beside it.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

from fastapi import Request
from nicegui import ui

from headwater.console.model import INTERNAL, Picture, Span, duration
from headwater.console.pages.frame import REFRESH_SECONDS, clock, frame, object_path
from headwater.console.sight import Sight


@dataclass(frozen=True, slots=True)
class Scale:
    """From times to percent of the picture's width."""

    first: int
    last: int

    def percent(self, time: int) -> float:
        """Return where a time is.

        >>> Scale(100, 300).percent(150), Scale(5, 5).percent(5), Scale(0, 10).percent(99)
        (25.0, 0.0, 100.0)
        """
        width = max(1, self.last - self.first)
        return min(100.0, max(0.0, 100 * (time - self.first) / width))


def scale_of(picture: Picture, spans: list[Span]) -> Scale:
    """Return the scale on which some spans are drawn."""
    last = picture.upper + picture.clock_behind_ms
    return Scale(min((span.since for span in spans), default=last), last)


def draw(request: Request, sight: Sight) -> None:
    """Draw the page."""
    with frame(request, sight, "/timeline", "Timeline"):
        with ui.element("div").classes("hw-title"):
            ui.label("What can be read, and when").props("role=heading aria-level=1")
        with ui.element("div").classes("hw-row"):
            internal = ui.checkbox("arrangements and other internal collections")
            ui.label("marks: holds, by which history is kept").classes("hw-soft")
        with ui.element("div").classes("hw-card"):
            rows = ui.html(sanitize=False).classes("hw-spans")

        def refresh() -> None:
            picture = sight.picture()
            spans = [s for s in picture.spans if internal.value or s.kind != INTERNAL]
            scale = scale_of(picture, spans)
            drawn = "".join(_row(span, scale) for span in spans)
            rows.set_content(_axis(scale) + drawn if drawn else "There is nothing yet.")

        refresh()
        internal.on_value_change(refresh)
        ui.timer(REFRESH_SECONDS, refresh)


def _axis(scale: Scale) -> str:
    width = scale.last - scale.first
    ticks = (scale.first + width * part // 4 for part in range(5))
    labels = "".join(f"<span>{clock(tick)}</span>" for tick in ticks)
    return f"<div></div><div class=hw-axis>{labels}</div><div></div>"


def _row(span: Span, scale: Scale) -> str:
    left, right = scale.percent(span.since), scale.percent(span.upper)
    internal = span.kind == INTERNAL
    name = html.escape(span.name)
    label = name if internal else f'<a href="{html.escape(object_path(span.name))}">{name}</a>'
    holds = "".join(
        f'<span class=hw-hold style="left:{scale.percent(time):.2f}%" '
        f'title="{html.escape(purpose)} holds {clock(time)}"></span>'
        for purpose, time in span.holds
    )
    kind = "hw-internal" if internal else ""
    about = f"readable from {clock(span.since)} to just before {clock(span.upper)}"
    width = max(0, span.upper - span.since)
    return (
        f"<div>{label} <span class=hw-kind>{html.escape(span.kind)}</span></div>"
        f'<div class=hw-track role=img aria-label="{about}" title="{about}">'
        f'<div class="hw-bar {kind}" style="left:{left:.2f}%;width:{right - left:.2f}%"></div>'
        f"{holds}</div><div class=hw-soft>{duration(width)}</div>"
    )
