"""A stream to a driver in this process, in which the n-th event goes wrong."""

from __future__ import annotations

from headwater.materialize.drivers.responder import Responder
from headwater.materialize.protocol import messages as m
from headwater.materialize.transport.in_process import InProcess


class Crash(Exception):
    """The process is gone."""


class Faulty(InProcess):
    """A stream in which the n-th event goes wrong."""

    def __init__(self, driver: Responder, fault: str, left: list[int]) -> None:
        super().__init__(driver, self._watched)
        self._fault, self._left = fault, left

    def _struck(self) -> bool:
        self._left[0] -= 1
        return self._left[0] == -1

    def _watched(self, message: m.Message) -> None:
        if self._fault == "lost reply" or not self._struck():
            return
        if self._fault == "crash":
            raise Crash
        if isinstance(message, m.Acknowledge):
            list(self._driver.respond(message))

    def receive(self) -> m.Response:
        response = super().receive()
        if self._fault == "lost reply" and self._struck():
            raise Crash
        return response
