"""``headwater serve``: run a server until it is told to stop, or fenced."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from headwater.base.errors import InvalidUsage


def serve(
    data: Annotated[Path, typer.Option(help="Directory of the location; made if missing.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that others can reach needs --users.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port for SQL clients; 0 takes a free one.")] = 6875,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence whoever holds the location.")
    ] = False,
    spark_master: Annotated[str, typer.Option(help="Spark master; default: local.")] = "",
    users: Annotated[
        Path | None, typer.Option(help="File of users, as `headwater user` writes it.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="Certificate (PEM) for encrypted connections.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key (PEM) of the certificate.")] = None,
    tls_required: Annotated[
        bool, typer.Option("--tls-required", help="Refuse connections without TLS.")
    ] = False,
) -> None:
    """Serve SQL over the PostgreSQL protocol from one directory."""
    # Imported here: Spark takes a second to import, and `headwater version` should not wait.
    from headwater.adapter.pgwire import tls
    from headwater.adapter.pgwire.users import UserList
    from headwater.server.compose import Server, ServerConfig

    if (tls_certificate is None) != (tls_key is None) or (tls_required and tls_key is None):
        raise InvalidUsage("TLS needs both --tls-certificate and --tls-key")

    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    config = ServerConfig(
        data,
        host,
        port,
        take_over,
        spark_master,
        users=None if users is None else UserList.of_file(users),
        tls=None
        if tls_certificate is None or tls_key is None
        else tls.of_files(tls_certificate, tls_key, required=tls_required),
    )
    with Server(config) as server:
        print(f"listening on {server.wire.host}:{server.wire.port}", flush=True)
        print(f"psql -h {server.wire.host} -p {server.wire.port} -U headwater", flush=True)
        while not stopping.wait(0.2):
            failure = server.failure
            if failure is not None:
                raise failure  # Told, and turned into its exit status, as every error of ours.
