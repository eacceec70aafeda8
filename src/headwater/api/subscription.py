"""Every change of a relation, exactly once, as Python iterates.

First the contents (each row a change with its multiplicity), then every change after them, in the
order of time. ``position`` is how far it is: all changes before that time have been given out, and
none at or after it has been given out *completely*. So a consumer that keeps what it received
together with the position, and drops what came after it, resumes with ``resume_at=position`` and
misses nothing and sees nothing twice.

Iterated by one thread; :meth:`Subscription.close` may come from any other and ends the iteration.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from headwater.adapter.errors import QueryCanceled
from headwater.adapter.pgwire.backend import Result
from headwater.adapter.session import ClientSession
from headwater.adapter.subscribe import DIFFERENCE, PROGRESSED, TIMESTAMP


@dataclass(frozen=True, slots=True)
class Change:
    """At ``time`` a row came (``diff`` times) or went (``-diff`` times)."""

    time: int
    diff: int
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """No more changes before ``time`` will come."""

    time: int


class Subscription:
    """See the module's docstring. Iterate it, its :meth:`events`, or its :meth:`batches`."""

    def __init__(
        self,
        session: ClientSession,
        result: Result,
        *,
        resumed_at: int | None = None,
    ) -> None:
        self._session = session
        self._batches = iter(result.batches)
        self._position = resumed_at
        self._begun = False
        self._closed = threading.Event()
        self._ended = False

    @property
    def position(self) -> int | None:
        """Every change before it has been given out; None: not even the contents have."""
        return self._position

    def __iter__(self) -> Iterator[Change]:
        for event in self.events():
            if isinstance(event, Change):
                yield event

    def events(self) -> Iterator[Change | Progress]:
        """Yield changes, and in between how far it is; the first one says where it begins."""
        for told in self._told():
            if isinstance(told, Progress):
                yield told
                continue
            rows = told.drop_columns([TIMESTAMP, DIFFERENCE]).to_pylist()
            times = told.column(TIMESTAMP).to_pylist()
            diffs = told.column(DIFFERENCE).to_pylist()
            for time, diff, row in zip(times, diffs, rows, strict=True):
                yield Change(time, diff, row)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes as Arrow: ``mz_timestamp``, ``mz_diff``, and the relation's columns.

        :attr:`position` moves between two batches.
        """
        for told in self._told():
            if not isinstance(told, Progress):
                yield told

    def _told(self) -> Iterator[pa.RecordBatch | Progress]:
        """Yield changes and progress; :attr:`position` follows."""
        with suppress(QueryCanceled):
            for batch in self._batches:
                if self._closed.is_set():
                    break
                if not batch.num_rows:
                    continue  # Nothing happened for a while.
                progressed = batch.column(PROGRESSED)
                if progressed[0].as_py():
                    time = batch.column(TIMESTAMP)[0].as_py()
                    if self._begun:
                        self._position = time
                    self._begun = True  # The first says where it starts; nothing is out yet.
                    yield Progress(time)
                    continue
                assert not pc.any(progressed).as_py(), "progress stands alone"
                yield batch.drop_columns([PROGRESSED])
        self._end()

    def _end(self) -> None:
        if not self._ended:
            close = getattr(self._batches, "close", None)
            if close is not None:
                close()
            self._ended = True
            self._session.close()

    def close(self) -> None:
        """End it, also while another thread waits for the next change; what it held is let go."""
        self._closed.set()
        self._session.cancel()
        with suppress(ValueError):  # Another thread is iterating: it is the one who ends it.
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
