"""Tells the log when an object becomes unwell, and when it is well again: once each.

Being behind is not told: a busy moment is not an event, and ``/metrics`` has the number.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

from headwater.console.model import Health, Picture

LOG: Final = logging.getLogger(__name__)

WATCH_SECONDS: Final = 2.0
_WELL: Final = (Health.OK, Health.BEHIND, Health.STARTING, Health.HYDRATING)


def changes(known: dict[str, str], picture: Picture) -> Iterator[tuple[str, str, str]]:
    """Yield who became unwell (with why) or well (with nothing), and note it in ``known``."""
    unwell = {node.name: node for node in picture.nodes if node.health not in _WELL}
    for name, node in unwell.items():
        told = f"{node.health.value}: {node.why}"
        if known.get(name) != told:
            known[name] = told
            yield name, node.kind, told
    for name in [name for name in known if name not in unwell]:
        del known[name]
        yield name, "", ""


class Watch:
    """A thread that looks now and then."""

    def __init__(self, picture: Callable[[], Picture], seconds: float = WATCH_SECONDS) -> None:
        self._picture, self._seconds = picture, seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headwater-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        known: dict[str, str] = {}
        while not self._stopping.wait(self._seconds):
            try:
                picture = self._picture()
            except Exception:
                # Who tells what is not well is not to be the first to be silent.
                LOG.exception("nobody could see how the objects are; the next look comes")
                continue
            for name, kind, told in changes(known, picture):
                fields = {"object": name, "kind": kind, "why": told} if told else {"object": name}
                if told:
                    LOG.warning("an object is not well", extra={"event": fields})
                else:
                    LOG.info("an object is well again, or gone", extra={"event": fields})
