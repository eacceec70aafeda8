"""Streams: how whoever carries a session reaches the driver of its endpoint.

A driver of ours runs in the process that asks for it; one of somebody else's is a child of that
process, or is dialled from there. So a session that is carried by a task has its driver there.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.base.errors import InvalidUsage
from headwater.materialize.definition import CONNECTOR, Endpoint
from headwater.materialize.delivery import Stream
from headwater.materialize.drivers.registry import driver
from headwater.materialize.transport.child_process import ChildProcess
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.wire.framing import Codec

Streams = Callable[[], Stream]
"""How a session reaches its driver: each call is a new stream."""


def stream_to(endpoint: Endpoint) -> Stream:
    """Return a new stream to the driver of an endpoint."""
    if endpoint.driver != CONNECTOR:
        return InProcess(driver(endpoint.driver).make())
    address = endpoint.config.get("endpoint")
    if address is not None:
        return _dial(address, endpoint)
    command = endpoint.config.get("command")
    if not isinstance(command, list) or not command or not all(map(_is_text, command)):
        raise InvalidUsage("a connector needs its command, as a list of texts")
    codec = Codec(endpoint.config.get("codec", Codec.PROTOBUF.value))
    return ChildProcess(command, codec)


def _dial(address: str, endpoint: Endpoint) -> Stream:
    try:
        from headwater.materialize.arena.stream import ArenaStream
        from headwater.materialize.transport.grpc_stream import GrpcStream
        from headwater.materialize.transport.tls import ClientTls
    except ModuleNotFoundError as error:
        raise InvalidUsage("gRPC is an extra: install headwater[grpc] where this runs") from error
    tls = ClientTls.of(endpoint.config)
    if endpoint.speaks_arenas:
        return ArenaStream(address, tls=tls)
    return GrpcStream(address, tls=tls)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
