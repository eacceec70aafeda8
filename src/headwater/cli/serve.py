"""``headwater serve``: run a server until it is told to stop, or fenced.

Every option is a setting of :class:`~headwater.server.config.ServerConfig`, which can also be given
in the environment or in a file; here they are all "not given" by default.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.base.errors import InvalidUsage


def serve(
    data: Annotated[
        Path | None, typer.Option(help="Directory of the server; made if missing.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="File with settings (TOML); options come before it.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where SQL clients connect [127.0.0.1:6875]; port 0 takes a free one, and an "
            "address that others can reach needs --users.",
        ),
    ] = None,
    console: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT|off",
            help="Where the console, /metrics and /healthz are [the port after that of --listen].",
        ),
    ] = None,
    blob: Annotated[
        str | None, typer.Option(metavar="URL", help="Objects elsewhere: s3://bucket/prefix.")
    ] = None,
    consensus: Annotated[
        str | None, typer.Option(metavar="URL", help="Log elsewhere: postgresql://user@host/db.")
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence whoever holds the location.")
    ] = False,
    spark_master: Annotated[str | None, typer.Option(help="Spark master [local].")] = None,
    spark_memory_mib: Annotated[
        int | None,
        typer.Option(
            help="Heap of Spark's driver, in MiB [a quarter of the memory, from 1024 to 4096]."
        ),
    ] = None,
    spark_cores: Annotated[
        int | None, typer.Option(help="Cores to plan for [all of this machine].")
    ] = None,
    spark_host: Annotated[
        str | None, typer.Option(help="Address at which executors reach the driver [127.0.0.1].")
    ] = None,
    query_result_mib: Annotated[
        int | None, typer.Option(help="How large the answer of a query may be, in MiB [4096].")
    ] = None,
    tick_ms: Annotated[
        int | None,
        typer.Option(help="How often time goes on where nobody writes, from 200 ms on [1000]."),
    ] = None,
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
    secrets_key: Annotated[
        Path | None,
        typer.Option(help="File of the key that secrets are sealed with [~/.config/headwater]."),
    ] = None,
    otel: Annotated[
        bool,
        typer.Option(
            "--otel", help="Send traces to OTEL_EXPORTER_OTLP_ENDPOINT (headwater[otel])."
        ),
    ] = False,
    log_format: Annotated[str | None, typer.Option(help="plain or json [plain].")] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error [info].")
    ] = None,
    host: Annotated[str | None, typer.Option(hidden=True)] = None,
    port: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve SQL over the PostgreSQL protocol, with a console, from one directory."""
    from headwater.server.config import read_file, resolved

    options: dict[str, Any] = {
        "data": data,
        "listen": _listen(listen, host, port),
        "console": console,
        "blob": blob,
        "consensus": consensus,
        "take_over": take_over,
        "spark_master": spark_master,
        "spark_memory_mib": spark_memory_mib,
        "spark_cores": spark_cores,
        "spark_host": spark_host,
        "query_result_mib": query_result_mib,
        "tick_ms": tick_ms,
        "users": users,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "tls_required": tls_required or None,
        "secrets_key": secrets_key,
        "otel": otel or None,
        "log_format": log_format,
        "log_level": log_level,
    }
    chosen = config or os.environ.get("HEADWATER_CONFIG")
    file = {} if chosen is None else read_file(Path(chosen))
    settings = resolved(options, os.environ, file, str(chosen))

    # Imported here: Spark takes a second to import, and a mistake should be told before.
    from headwater.server import heap, logs
    from headwater.server.compose import Server

    logs.set_up(settings.log_format, settings.log_level)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with Server(settings) as server:
        print(f"listening on {server.wire.host}:{server.wire.port}", flush=True)
        print(server.psql, flush=True)
        if server.console is not None:
            print(f"console at {server.console.url}", flush=True)
        settled = False
        while not stopping.wait(0.2):
            failure = server.failure
            if failure is not None:
                raise failure  # Told, and turned into its exit status, as every error of ours.
            if not settled and server.session.ready:
                heap.settle()  # By now everything is loaded.
                settled = True


def _listen(listen: str | None, host: str | None, port: int | None) -> str | None:
    """Return the address of the two ways of writing it."""
    if host is None and port is None:
        return listen
    if listen is not None:
        raise InvalidUsage("give --listen HOST:PORT, or --host and --port, not both")
    return f"{host or '127.0.0.1'}:{6875 if port is None else port}"
