"""The driver's end of a pipe: requests on standard input, responses on standard output.

This is how Flow runs a connector (protocol 3032023), and how our runtime runs one in a process of
its own. Several unary requests may come, one after the other; Open turns the stream into a session.
The end of the input is the end of the session, clean where the protocol permits it.

Every response is flushed when it is said: the runtime may be waiting for it while the driver goes
on working.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Final

from headwater.materialize.drivers.responder import Responder
from headwater.materialize.protocol.contents import Contents
from headwater.materialize.protocol.machine import Session, Side
from headwater.materialize.protocol.messages import Open, Request
from headwater.materialize.wire.framing import Codec, FrameReader, frame
from headwater.materialize.wire.runs import Gathering, Splitting

_CHUNK_BYTES: Final = 1 << 16


Read = Callable[[int], bytes]
"""Waits for what comes, at most so many bytes; empty at the end."""


def serve(driver: Responder, read: Read, responses: BinaryIO, codec: Codec) -> None:
    """Serve one stream to its end; raises what went wrong."""
    served = _Served(driver, responses, codec)
    reader = FrameReader(Side.RUNTIME, codec)
    try:
        while chunk := read(_CHUNK_BYTES):
            for message in reader.feed(chunk):
                served.request(message)  # type: ignore[arg-type] # the table refuses a response
        reader.end()
        served.end()
    finally:
        driver.close()


class _Served:
    """One stream: the table kept, and both directions translated."""

    def __init__(self, driver: Responder, responses: BinaryIO, codec: Codec) -> None:
        self._driver = Gathering(driver)
        self._responses = responses
        self._codec = codec
        self._splitting = Splitting(codec)
        self._session = Session(Side.DRIVER)
        self._contents = Contents(())

    def request(self, request: Request) -> None:
        self._session = self._session.received(request)
        if isinstance(request, Open) and request.materialization is not None:
            bindings = request.materialization.bindings
            self._contents = Contents([binding.delta_updates for binding in bindings])
        self._contents.check(request)
        for response in self._driver.respond(request):
            for single in self._splitting.split(response):
                self._session = self._session.sending(single)
                self._responses.write(frame(single, Side.DRIVER, self._codec))
            self._responses.flush()

    def end(self) -> None:
        self._session = self._session.peer_ended().ending()
