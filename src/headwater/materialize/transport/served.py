"""The driver's end of any wire: the table kept, single documents gathered, runs split.

A transport decodes what comes, hands it to :meth:`Served.respond`, and encodes what that yields.
Several unary requests may come, one after the other; Open turns the stream into a session.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.materialize.drivers.responder import Responder
from headwater.materialize.protocol.contents import Contents
from headwater.materialize.protocol.machine import Session, Side
from headwater.materialize.protocol.messages import Message, Open, Request
from headwater.materialize.wire.framing import Codec
from headwater.materialize.wire.runs import Gathering, Splitting


class Served:
    """One stream, as its driver's side sees it."""

    def __init__(self, driver: Responder, codec: Codec) -> None:
        self._driver = Gathering(driver)
        self._splitting = Splitting(codec)
        self._session = Session(Side.DRIVER)
        self._contents = Contents(())

    def respond(self, request: Request) -> Iterator[Message]:
        """Act upon a request; yield single messages, each permitted where it is said."""
        self._session = self._session.received(request)
        if isinstance(request, Open) and request.materialization is not None:
            bindings = request.materialization.bindings
            self._contents = Contents([binding.delta_updates for binding in bindings])
            self._splitting.opened(request)
        self._contents.check(request)
        for response in self._driver.respond(request):
            for single in self._splitting.split(response):
                self._session = self._session.sending(single)
                yield single

    def end(self) -> None:
        """Take notice that the runtime has ended its stream; raise if it may not have."""
        self._session = self._session.peer_ended().ending()
