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
from headwater.materialize.protocol.machine import Side
from headwater.materialize.transport.served import Served
from headwater.materialize.wire.framing import Codec, FrameReader, frame

_CHUNK_BYTES: Final = 1 << 16


Read = Callable[[int], bytes]
"""Waits for what comes, at most so many bytes; empty at the end."""


def serve(driver: Responder, read: Read, responses: BinaryIO, codec: Codec) -> None:
    """Serve one stream to its end; raises what went wrong."""
    served = Served(driver, codec)
    reader = FrameReader(Side.RUNTIME, codec)
    try:
        while chunk := read(_CHUNK_BYTES):
            for message in reader.feed(chunk):
                # The table refuses what is no request.
                for response in served.respond(message):  # type: ignore[arg-type]
                    responses.write(frame(response, Side.DRIVER, codec))
                    responses.flush()
        reader.end()
        served.end()
    finally:
        driver.close()
