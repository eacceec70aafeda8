"""A driver as every transport sees it: requests in, responses out.

``respond`` is given one request at a time, in an order that the session's table permits, and yields
what the driver has to say to it: nothing, one response, or several. A driver may say Acknowledged
earlier than it is asked, right after Opened or StartedCommit; the table knows.

A driver may be written for runs of documents alone; ``wire/runs`` then makes runs of single ones.

It raises what went wrong, and is then over: a transport ends the session, and the runtime opens
another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

import msgspec

from headwater.base.errors import InvalidUsage
from headwater.materialize.protocol.messages import PROTOCOL, Request, Response, Specified


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


class Describing(Protocol):
    """A driver that says by class variables what it wants to be told, as JSON schemas."""

    documentation_url: ClassVar[str]
    config_schema: ClassVar[Mapping[str, Any]]
    """Of the endpoint."""
    resource_schema: ClassVar[Mapping[str, Any]]
    """Of where a binding goes in it."""


def specified(driver: Describing) -> Specified:
    """Return a driver's response to Spec."""
    return Specified(
        PROTOCOL,
        msgspec.json.encode(driver.config_schema),
        msgspec.json.encode(driver.resource_schema),
        driver.documentation_url,
    )
