"""``headwater serve``: run a server until it is told to stop, or fenced."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer


def serve(
    data: Annotated[Path, typer.Option(help="Directory of the location; made if missing.")],
    host: Annotated[str, typer.Option(help="Address to listen on (loopback only so far).")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port for SQL clients; 0 takes a free one.")] = 6875,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence whoever holds the location.")
    ] = False,
    spark_master: Annotated[str, typer.Option(help="Spark master; default: local.")] = "",
) -> None:
    """Serve SQL over the PostgreSQL protocol from one directory."""
    # Imported here: Spark takes a second to import, and `headwater version` should not wait.
    from headwater.server.compose import Server, ServerConfig

    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    config = ServerConfig(data, host, port, take_over, spark_master)
    with Server(config) as server:
        print(f"listening on {server.wire.host}:{server.wire.port}", flush=True)
        print(f"psql -h {server.wire.host} -p {server.wire.port} -U headwater", flush=True)
        while not stopping.wait(0.2):
            failure = server.failure
            if failure is not None:
                raise failure  # Told, and turned into its exit status, as every error of ours.
