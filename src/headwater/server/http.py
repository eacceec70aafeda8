"""The console port: console pages, ``/metrics`` and ``/healthz``, on one HTTP server in a thread.

The socket is bound when this is built, so an address that cannot be had is refused at once;
requests wait in its backlog until the pages are loaded, which takes a second or two and happens in
the thread.

``/healthz`` is 200 while the server can commit, 503 with the reason when it cannot; ``spark`` says
whether queries still wait for Spark.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headwater.base.errors import HeadwaterError
from headwater.server.config import Address
from headwater.server.preflight import cannot_listen

LOG: Final = logging.getLogger(__name__)

STOP_SECONDS: Final = 2
BACKLOG: Final = 128


class HttpServer:
    """Serves an ASGI application, which ``make`` makes in the serving thread."""

    def __init__(
        self,
        address: Address,
        make: Callable[[], Any],
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        self._make = make
        self._certificate, self._key = certificate, key
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((address.host, address.port))
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            raise cannot_listen(address, "--console", error) from None
        self.address = Address(address.host, self._socket.getsockname()[1])
        self._stopping = threading.Event()
        self._serving: Any = None
        self._thread = threading.Thread(target=self._run, name="headwater-console", daemon=True)

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"{'http' if self._key is None else 'https'}://{self.address}"

    def start(self) -> None:
        """Serve."""
        self._thread.start()

    def stop(self) -> None:
        """Close every connection and stop."""
        self._stopping.set()
        if self._serving is not None:
            self._serving.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        import uvicorn

        try:
            config = uvicorn.Config(
                self._make(),
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=STOP_SECONDS,
                ssl_certfile=self._certificate,
                ssl_keyfile=self._key,
            )
            self._serving = uvicorn.Server(config)
            if not self._stopping.is_set():
                asyncio.run(self._serving.serve(sockets=[self._socket]))
        except Exception:
            # Data goes on without its pictures; whoever looks for them finds why in the log.
            LOG.exception("the console does not run")


def health(
    failure: HeadwaterError | None, ready: bool, full: HeadwaterError | None = None
) -> tuple[int, dict[str, str]]:
    """Return status and body of ``/healthz``; ``full``: there is no room to write just now."""
    if failure is not None:
        return 503, {"status": "failed", "why": str(failure)}
    if full is not None:
        return 503, {"status": "disk full", "why": str(full)}
    return 200, {"status": "ok", "spark": "ready" if ready else "starting"}
