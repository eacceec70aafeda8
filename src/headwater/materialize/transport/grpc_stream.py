"""The runtime's end of a gRPC stream to a connector: protocol 3032023 as Flow serves it.

The service is ``materialize.Connector``, with one method ``Materialize``: a stream each way, of the
same messages as on a pipe. Whatever the connector does wrong ends the session with an error that
says so; the call is cancelled.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from headwater.materialize.protocol.contents import Contents
from headwater.materialize.protocol.machine import Session, Side
from headwater.materialize.protocol.messages import Message, Open, Request, Response
from headwater.materialize.transport.grpc_call import RECEIVE_SECONDS, Call, connect
from headwater.materialize.transport.tls import ClientTls
from headwater.materialize.wire.framing import Codec
from headwater.materialize.wire.protobuf import decode, encode
from headwater.materialize.wire.runs import Splitting

METHOD: Final = "/materialize.Connector/Materialize"


class GrpcStream:
    """The runtime's end of a stream to a connector at an address."""

    def __init__(
        self,
        address: str,
        receive_seconds: float = RECEIVE_SECONDS,
        tls: ClientTls | None = None,
    ) -> None:
        self._receive_seconds = receive_seconds
        self._session = Session(Side.RUNTIME)
        self._contents = Contents(())
        self._splitting = Splitting(Codec.PROTOBUF)
        self._channel = connect(address, tls)
        heard = partial(decode, side=Side.DRIVER)
        self._call: Call[Message] = Call(address, self._channel, METHOD, heard)

    def send(self, request: Request) -> None:
        """Say something to the connector."""
        if isinstance(request, Open) and request.materialization is not None:
            bindings = request.materialization.bindings
            self._contents = Contents([binding.delta_updates for binding in bindings])
        self._session = self._session.sending(request)
        self._contents.check(request)
        for single in self._splitting.split(request):
            self._call.send(encode(single, Side.RUNTIME))

    def receive(self) -> Response:
        """Wait for what the connector says next."""
        said = self._call.receive(self._session.phase.value, self._receive_seconds)
        self._session = self._session.received(said)
        self._contents.check(said)
        return said  # type: ignore[return-value] # the table refuses a request

    def end(self) -> None:
        """End the stream where the protocol permits it; the connector must then end the call."""
        self._session = self._session.ending()
        try:
            self._call.end()
        finally:
            self._channel.close()

    def abort(self) -> None:
        """Break the call off."""
        self._call.cancel()
        self._channel.close()
