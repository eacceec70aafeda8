"""Free ports of this machine for servers of tests, which somebody else may take in between."""

from __future__ import annotations

import socket
from typing import Final, Protocol

START_ATTEMPTS_MAX: Final = 3


class OnPort(Protocol):
    """A server that is started on its port."""

    port: int

    def start(self) -> None:
        """Start it; :class:`RuntimeError` if it does not answer."""
        ...


def free_ports(count: int) -> list[int]:
    """Return ports that nobody uses now, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(found.getsockname()[1]) for found in sockets]
    finally:
        for found in sockets:
            found.close()


def start_somewhere(server: OnPort) -> None:
    """Start a server on its port, or on another if that was taken meanwhile."""
    for attempt in range(START_ATTEMPTS_MAX):
        try:
            server.start()
        except RuntimeError:
            if attempt + 1 == START_ATTEMPTS_MAX:
                raise
            (server.port,) = free_ports(1)
        else:
            return
