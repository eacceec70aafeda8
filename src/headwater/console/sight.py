"""Where the console looks: the core of a running server, read directly.

:class:`Sight` is what it is given: what is seen at a moment, and how a session is opened, in which
SQL is executed as any client's. Looking costs no log entry, no Spark job, and never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.adapter.session import ClientSession
from headwater.adapter.system import SYSTEM_VIEWS, Seen
from headwater.console.model import Picture, pictured
from headwater.storage.controller import SourceStatus


@dataclass(frozen=True, slots=True)
class Sight:
    """What the console sees of a server."""

    seen: Callable[[], Seen]
    open_session: Callable[[], ClientSession]
    ingestions: Callable[[], Sequence[SourceStatus]] = tuple
    """How sources are."""

    def picture(self) -> Picture:
        """Return what is drawn now."""
        return pictured(self.seen(), self.ingestions())

    def about(self, view: str, name: str, by: str = "name") -> list[dict[str, object]]:
        """Return what a system view says of one object, a row as a mapping.

        ``by`` is the column that has the object's name.
        """
        found = SYSTEM_VIEWS.get(view)
        if found is None:
            return []
        names = [column.name for column in found.columns]
        rows = [dict(zip(names, row, strict=True)) for row in found.rows(self.seen())]
        return [row for row in rows if row[by] == name]
