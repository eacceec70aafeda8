"""A driver as every transport sees it: requests in, responses out.

``respond`` is given one request at a time, in an order that the session's table permits, and yields
what the driver has to say to it: nothing, one response, or several. A driver may say Acknowledged
earlier than it is asked, right after Opened or StartedCommit; the table knows.

A driver may be written for runs of documents alone; ``wire/runs`` then makes runs of single ones.

It raises what went wrong, and is then over: a transport ends the session, and the runtime opens
another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from headwater.base.errors import InvalidUsage
from headwater.materialize.protocol.messages import Request, Response


class NotServed(InvalidUsage):
    """A request that a driver is not written for."""

    def __init__(self, request: Request) -> None:
        super().__init__(f"this driver serves no {type(request).__name__}")


class Responder(Protocol):
    """One driver, for one stream."""

    def respond(self, request: Request) -> Iterator[Response]:
        """Act upon a request; yield the responses to it."""
        ...

    def close(self) -> None:
        """Release the endpoint; whatever is not committed never happened."""
        ...
