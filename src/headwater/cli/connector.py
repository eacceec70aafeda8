"""``headwater connector NAME``: a built-in driver as a process that speaks Flow's protocol.

Requests come on standard input, responses go to standard output, logs to standard error, as JSON
lines. ``FLOW_RUNTIME_CODEC`` chooses the wire: ``proto`` (the default) or ``json``. So Flow's
runtime can drive it as any connector of its own, and ours as any of Flow's.

With ``--grpc ADDRESS`` it serves gRPC there instead, any number of streams, until it is
interrupted; the port is told in the first line of its log. With ``--tls-certificate`` and
``--tls-key`` that is encrypted, and with ``--tls-client-ca`` only for those whom it trusts.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Annotated, BinaryIO, cast

import msgspec
import typer

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.cli.exit_status import ExitStatus


def connector(
    name: Annotated[
        str, typer.Argument(help="Which driver: delta, duckdb, iceberg, mysql, postgres, redis, …")
    ],
    grpc: Annotated[
        str, typer.Option(help="Serve gRPC at this address, host:port, instead of a pipe.")
    ] = "",
    tls_certificate: Annotated[
        str, typer.Option(help="With --grpc: encrypt; the file of our certificate, PEM.")
    ] = "",
    tls_key: Annotated[str, typer.Option(help="The file of its key, PEM.")] = "",
    tls_client_ca: Annotated[
        str, typer.Option(help="Serve only clients with a certificate signed by these, PEM.")
    ] = "",
) -> None:
    """Serve a materialization driver on standard input and output, or by gRPC."""
    tls = (tls_certificate, tls_key, tls_client_ca)
    if grpc:
        _serve_grpc(name, grpc, tls)
        return
    if any(tls):
        raise InvalidUsage("a pipe is not encrypted: --tls-… is for --grpc")
    from headwater.materialize.drivers.checked import Checked
    from headwater.materialize.drivers.registry import driver
    from headwater.materialize.transport.standard_streams import serve
    from headwater.materialize.wire.framing import Codec

    chosen = os.environ.get("FLOW_RUNTIME_CODEC") or Codec.PROTOBUF.value
    try:
        codec = Codec(chosen)
    except ValueError as error:
        known = " or ".join(codec.value for codec in Codec)
        raise InvalidUsage(f"FLOW_RUNTIME_CODEC is {chosen!r}; it may be {known}") from error
    made = Checked(driver(name).make())
    # Nothing but messages may go there; what a library prints goes to the logs.
    responses = cast("BinaryIO", os.fdopen(os.dup(sys.stdout.fileno()), "wb"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(made, lambda size: os.read(sys.stdin.fileno(), size), responses, codec)
    except HeadwaterError as error:
        line = {"level": "error", "msg": str(error)}
        sys.stderr.write(msgspec.json.encode(line).decode() + "\n")
        raise typer.Exit(ExitStatus.FAILED) from error


def _serve_grpc(name: str, address: str, tls: tuple[str, str, str]) -> None:
    from headwater.materialize.drivers.checked import Checked
    from headwater.materialize.drivers.registry import driver

    try:
        from headwater.materialize.transport.grpc_server import GrpcServer
        from headwater.materialize.transport.tls import ServerTls
    except ModuleNotFoundError as error:
        raise InvalidUsage("gRPC is an extra: install headwater[grpc] where this runs") from error
    make = driver(name).make
    make().close()  # What cannot be made is told now, not to the first who calls.
    server = GrpcServer(lambda: Checked(make()), address, ServerTls(*tls) if any(tls) else None)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _, __: ended.set())
    line = {"level": "info", "msg": f"serving {name} by gRPC", "port": server.port}
    sys.stderr.write(msgspec.json.encode(line).decode() + "\n")
    sys.stderr.flush()
    ended.wait()
    server.stop()
