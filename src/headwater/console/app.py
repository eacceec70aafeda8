"""The application behind the console port: figures, health, the picture as JSON, and the pages.

NiceGUI keeps its pages in the process, so there is one console per process; it carries all of its
JavaScript in its wheel, and nothing is fetched from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from headwater.console.sight import Sight

Figures = Callable[[], bytes]
Health = Callable[[], tuple[int, dict[str, str]]]


def application(sight: Sight, figures: Figures, health: Health) -> FastAPI:
    """Return the application that shows ``sight``."""
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
        return Response(msgspec.json.encode(sight.picture()), media_type="application/json")

    return app
