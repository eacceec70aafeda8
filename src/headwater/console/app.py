"""The application behind the console port: figures, health, the picture as JSON, and the pages.

NiceGUI keeps its pages in the process, so there is one console with pages per process; it carries
all of its JavaScript in its wheel, and nothing is fetched from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from headwater.console.guard import Check, Guard
from headwater.console.sight import Sight

Figures = Callable[[], bytes]
Health = Callable[[], tuple[int, dict[str, str]]]

ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" '
    'rx="7" fill="#0b7285"/><path d="M5 21c4-6 7-6 11 0s7 6 11 0M5 13c4-6 7-6 11 0s7 6 11 0" '
    'fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/></svg>'
)


def application(
    sight: Sight,
    figures: Figures,
    health: Health,
    *,
    pages: bool = True,
    loopback: bool = True,
    check: Check | None = None,
) -> Any:
    """Return the application that shows ``sight`` to those whom ``check`` knows."""
    app = FastAPI(title="Headwater", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/healthz")
    def healthz() -> Response:
        status, body = health()
        return JSONResponse(body, status)

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(figures(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/api/picture")
    def picture() -> Response:
        drawn = msgspec.json.encode(sight.picture(), enc_hook=str)
        return Response(drawn, media_type="application/json")

    if pages:
        _add_pages(app, sight)
    return Guard(app, loopback=loopback, check=check)


def _add_pages(app: FastAPI, sight: Sight) -> None:
    # Imported here: its libraries take a second, and figures alone do without.
    from nicegui import ui, ui_run_with

    from headwater.console.pages import graph, object_page, sql, timeline

    @ui.page("/")
    def graph_page(request: Request) -> None:
        graph.draw(request, sight)

    @ui.page("/object")
    def one_object(request: Request, name: str = "") -> None:
        object_page.draw(request, sight, name)

    @ui.page("/sql")
    def sql_page(request: Request, text: str = "") -> None:
        sql.draw(request, sight, text)

    @ui.page("/timeline")
    def timeline_page(request: Request) -> None:
        timeline.draw(request, sight)

    # When it starts, NiceGUI looks for its HTTP server among all objects of the process, and we do
    # not need it to. Who has them in hand breaks other threads: `tuple(generator)` fails there with
    # a SystemError if anybody else refers to the tuple that it is making (a bug of CPython).
    vars(ui_run_with)["gc"] = SimpleNamespace(get_objects=list)
    ui.run_with(
        app,
        title="Headwater",
        favicon=ICON,
        dark=None,
        tailwind=False,
        show_welcome_message=False,
    )
