"""A built-in driver behind gRPC: each call is a stream to a driver of its own.

Two services are served: ``materialize.Connector``, which is protocol 3032023, and
``materialize.Driver``, which is the arena protocol of document 001.

The methods are found by name (gRPC's generic handlers), and messages are bytes to gRPC: encoding
them is our own business (``wire``), so there is no generated code. What a driver refuses ends its
call with the reason; other calls go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import grpc

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.materialize.arena.served import ArenaServed
from headwater.materialize.arena.stream import TRANSACTIONS
from headwater.materialize.arena.tables import REQUEST, RESPONSE
from headwater.materialize.arena.unary import METHODS, answer_to_arena, from_arena
from headwater.materialize.drivers.fences import FencedOff
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.protocol.machine import Side
from headwater.materialize.transport.grpc_call import OPTIONS
from headwater.materialize.transport.grpc_stream import METHOD
from headwater.materialize.transport.served import Served
from headwater.materialize.transport.tls import ServerTls
from headwater.materialize.wire.framing import Codec
from headwater.materialize.wire.protobuf import (
    decode,
    decode_in,
    decode_value,
    encode,
    encode_in,
    encode_value,
)

CALLS_MAX: Final = 64
"""How many streams are served at once; each has a thread."""
STOP_SECONDS: Final = 1.0

Make = Callable[[], Responder]


def _materialize(make: Make, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    driver = make()
    served = Served(driver, Codec.PROTOBUF)
    try:
        for payload in requests:
            # The table refuses what is no request.
            for response in served.respond(decode(payload, Side.RUNTIME)):  # type: ignore[arg-type]
                yield encode(response, Side.DRIVER)
        served.end()
    except HeadwaterError as error:
        refused(context, error)
    finally:
        driver.close()


def _answer(make: Make, asked: type, payload: bytes, context: Any) -> bytes:
    """Answer Spec, Validate or Apply of the arena protocol."""
    driver = make()
    try:
        (response,) = driver.respond(from_arena(decode_value(payload, asked)))
        return encode_value(answer_to_arena(response))  # type: ignore[arg-type] # of such a request
    except HeadwaterError as error:
        refused(context, error)
        raise  # It was told; what is told raises by itself.
    finally:
        driver.close()


def _transactions(make: Make, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    """Serve a session of the arena protocol."""
    driver = make()
    served = ArenaServed(driver)
    try:
        for payload in requests:
            for response in served.respond(decode_in(payload, REQUEST)):
                yield encode_in(response, RESPONSE)
        served.end()
    except HeadwaterError as error:
        refused(context, error)
    finally:
        driver.close()


def refused(context: Any, error: HeadwaterError) -> None:
    """End a call with the reason."""
    match error:
        case FencedOff():
            code = grpc.StatusCode.ABORTED
        case InvalidUsage():
            code = grpc.StatusCode.FAILED_PRECONDITION
        case _:
            code = grpc.StatusCode.INTERNAL
    context.abort(code, str(error))


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc] # gRPC is untyped
    def __init__(self, methods: Mapping[str, Any]) -> None:
        self._methods = methods

    def service(self, details: Any) -> Any:
        return self._methods.get(details.method)


class GrpcServer:
    """A server of one driver, at an address."""

    def __init__(self, make: Make, address: str, tls: ServerTls | None = None) -> None:
        self._server = grpc.server(ThreadPoolExecutor(CALLS_MAX), options=OPTIONS)
        methods = {
            METHOD: grpc.stream_stream_rpc_method_handler(partial(_materialize, make)),
            TRANSACTIONS: grpc.stream_stream_rpc_method_handler(partial(_transactions, make)),
        }
        for method, asked, _ in METHODS.values():
            answer = partial(_answer, make, asked)
            methods[method] = grpc.unary_unary_rpc_method_handler(answer)
        self._server.add_generic_rpc_handlers((_Handlers(methods),))
        try:
            if tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, tls.credentials())
        except RuntimeError as error:
            raise InvalidUsage(f"cannot listen at {address!r}: {error}") from error
        """Where it listens; chosen by the system if the address has port 0."""
        self._server.start()

    def wait(self) -> None:
        """Serve until stopped."""
        self._server.wait_for_termination()

    def stop(self) -> None:
        """End all calls."""
        self._server.stop(STOP_SECONDS).wait()
