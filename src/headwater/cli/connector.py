"""``headwater connector NAME``: a built-in driver as a process that speaks Flow's protocol.

Requests come on standard input, responses go to standard output, logs to standard error, as JSON
lines. ``FLOW_RUNTIME_CODEC`` chooses the wire: ``proto`` (the default) or ``json``. So Flow's
runtime can drive it as any connector of its own, and ours as any of Flow's.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, BinaryIO, cast

import msgspec
import typer

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.cli.exit_status import ExitStatus


def connector(
    name: Annotated[str, typer.Argument(help="Which driver: delta, postgres, sqlite, …")],
) -> None:
    """Serve a materialization driver on standard input and output."""
    from headwater.materialize.drivers.registry import driver
    from headwater.materialize.transport.standard_streams import serve
    from headwater.materialize.wire.framing import Codec

    chosen = os.environ.get("FLOW_RUNTIME_CODEC") or Codec.PROTOBUF.value
    try:
        codec = Codec(chosen)
    except ValueError as error:
        known = " or ".join(codec.value for codec in Codec)
        raise InvalidUsage(f"FLOW_RUNTIME_CODEC is {chosen!r}; it may be {known}") from error
    made = driver(name).make()
    # Nothing but messages may go there; what a library prints goes to the logs.
    responses = cast("BinaryIO", os.fdopen(os.dup(sys.stdout.fileno()), "wb"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(made, lambda size: os.read(sys.stdin.fileno(), size), responses, codec)
    except HeadwaterError as error:
        line = {"level": "error", "msg": str(error)}
        sys.stderr.write(msgspec.json.encode(line).decode() + "\n")
        raise typer.Exit(ExitStatus.FAILED) from error
