"""A story told by a process that dies in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headwater.persist.client import Client
from headwater.persist.errors import Stopped
from headwater.persist.location import Blob, Consensus
from headwater.testing.unreliable import Crash, FailNth


class Ports(Protocol):
    """What outlives a process."""

    @property
    def blob(self) -> Blob:
        """Its objects."""
        ...

    @property
    def log(self) -> Consensus:
        """Its log."""
        ...

    def open(self, blob: Blob, log: Consensus, /) -> Client:
        """Open the location, by these ports to it."""
        ...


def tell_until_killed(process: FailNth, ports: Ports, story: Callable[[Client], None]) -> None:
    """Tell it in a process that is killed; at the latest while it gives its role back.

    Whether it was killed at all, and not the story over before, the process knows.
    """
    try:
        client = ports.open(process.blob(ports.blob), process.consensus(ports.log))
        story(client)
        client.stop()
    except (Crash, Stopped):
        return
