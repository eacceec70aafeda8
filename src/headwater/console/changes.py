"""The change stream of an object, followed for one open page.

A thread reads a subscription (without snapshot, from the newest complete time) and keeps the last
changes; the page takes what is new when it draws. Closing ends the subscription, so that nothing
is held for a page that nobody looks at.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

from headwater.adapter.session import ClientSession
from headwater.adapter.sql.names import quoted_name
from headwater.adapter.sql.parse import parse_for_session
from headwater.base.errors import HeadwaterError
from headwater.console.answers import shown
from headwater.console.sight import Sight

KEPT: Final = 200


@dataclass(frozen=True, slots=True)
class Change:
    """One update: when, by how much, and the row."""

    number: int
    time: int
    diff: int
    row: tuple[str | None, ...]


class ChangeStream:
    """The newest changes of one object."""

    def __init__(self, sight: Sight, name: str) -> None:
        self._session: ClientSession = sight.open_session()
        self._name = name
        self._kept: deque[Change] = deque(maxlen=KEPT)
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self.columns: tuple[str, ...] = ()
        self.error = ""
        self.total = 0
        """Updates seen since it began."""
        self._thread = threading.Thread(target=self._follow, name="headwater-changes", daemon=True)
        self._thread.start()

    def newest(self) -> tuple[Change, ...]:
        """Return the last changes, newest first."""
        with self._lock:
            return tuple(reversed(self._kept))

    def close(self) -> None:
        """End the subscription."""
        self._closed.set()
        self._session.cancel()

    def _follow(self) -> None:
        quoted = quoted_name(self._name)
        try:
            ((statement, text),) = parse_for_session(f"SUBSCRIBE {quoted} WITH (SNAPSHOT = false)")
            result = self._session.execute(statement, text)
            self.columns = tuple(column.name for column in result.columns or ())[2:]
            for batch in result.batches:
                if self._closed.is_set():
                    break
                self._take(list(zip(*(c.to_pylist() for c in batch.columns), strict=True)))
            close = getattr(result.batches, "close", None)
            if close is not None:
                close()
        except HeadwaterError as error:
            if not self._closed.is_set():
                self.error = str(error)
        finally:
            self._session.close()

    def _take(self, rows: list[tuple[object, ...]]) -> None:
        with self._lock:
            for time, diff, *row in rows:
                self.total += 1
                self._kept.append(
                    Change(self.total, int(str(time)), int(str(diff)), tuple(map(shown, row)))
                )
