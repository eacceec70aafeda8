"""The transport without a wire: runtime and driver in one process, in one thread.

Both sides' sessions are kept, and the contents of transactions checked, exactly as if there were a
pipe between them; a driver that passes here says nothing else to Flow. ``watch`` sees each message
at the moment it is sent or received: the place where a test lets things fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from headwater.base.errors import HeadwaterError
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.protocol.contents import Contents
from headwater.materialize.protocol.machine import Session, Side
from headwater.materialize.protocol.messages import Flush, Message, Open, Request, Response

Watch = Callable[[Message], None]


class NothingSaid(HeadwaterError):
    """The runtime waits for a driver that has nothing more to say."""


def _unwatched(_: Message) -> None:
    return


class InProcess:
    """The runtime's end of a stream to a driver."""

    def __init__(self, driver: Responder, watch: Watch = _unwatched) -> None:
        self._driver = driver
        self._watch = watch
        self._here = Session(Side.RUNTIME)
        self._there = Session(Side.DRIVER)
        self._contents = Contents(())
        self._said: deque[Response] = deque()
        self._saying: Iterator[Response] = iter(())
        """What the driver has still to say; it goes on when it is asked for."""

    def send(self, request: Request) -> None:
        """Say something to the driver."""
        if isinstance(request, Open) and request.materialization is not None:
            bindings = request.materialization.bindings
            self._contents = Contents([binding.delta_updates for binding in bindings])
        self._here = self._here.sending(request)
        self._contents.check(request)
        self._watch(request)
        self._there = self._there.received(request)
        self._saying = self._driver.respond(request)
        # What is loaded may be much, and is taken one by one; all else is said at once.
        while not isinstance(request, Flush) and self._says_more():
            pass

    def _says_more(self) -> bool:
        """Let the driver say one thing more, if it has any."""
        response = next(self._saying, None)
        if response is None:
            return False
        self._there = self._there.sending(response)
        self._watch(response)
        self._said.append(response)
        return True

    def receive(self) -> Response:
        """Return what the driver said next."""
        if not self._said and not self._says_more():
            raise NothingSaid(f"the driver is silent while {self._there.phase.value}")
        response = self._said.popleft()
        self._here = self._here.received(response)
        self._contents.check(response)
        return response

    def end(self) -> None:
        """End the stream where the protocol permits it, and release the driver."""
        while self._said or self._says_more():
            self.receive()
        self._here = self._here.ending()
        self._there = self._there.peer_ended().ending()
        self._driver.close()

    def abort(self) -> None:
        """Release the driver, whatever it was about to do."""
        self._driver.close()
