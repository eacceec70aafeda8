"""Questions about the catalog, answered by the shadow as of a state of ours.

Invariant: while a question is asked, the shadow shows exactly the catalog of the asker's state.
So a client sees its own definitions at once, also those of its open transaction, and nobody sees
those of somebody else's. Kept by :meth:`CatalogQueries._showing`: the shadow shows one catalog at
a time, whoever asks says which, and it is changed when nobody is asking.

The shadow is started beside everything else (:meth:`CatalogQueries.start` returns at once), and
the first question waits for it. One that did not start is started by a later question; one that
died is started again by :class:`~headwater.adapter.shadow.shadow.Shadow`, and the question asked
again. It holds nothing that is not in our catalog.

Relied on by: sessions (``adapter/session.py``), for ``\\d`` and its like, for the types of
parameters, and for variables that only PostgreSQL knows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import psycopg
import pyarrow as pa

from headwater.adapter import acting
from headwater.adapter.errors import AdapterError
from headwater.adapter.mirrored import catalog_key, mirrored
from headwater.adapter.namespaces import searched
from headwater.adapter.pgwire.backend import Column, Passed, Result
from headwater.adapter.shadow.errors import PostgresRejected, ShadowUnavailable
from headwater.adapter.shadow.sessions import Analysis, Answer, ResultColumn
from headwater.adapter.shadow.shadow import Shadow
from headwater.base.errors import HeadwaterError
from headwater.persist.state import State

_log = logging.getLogger(__name__)

ANALYSES_MAX: Final = 1024
"""Statements whose types are remembered, until the catalog changes."""
START_AGAIN_SECONDS: Final = 10.0
"""For so long after it did not start nobody tries again: whoever asks is told at once."""


_Asked = tuple[str, tuple[int, ...], tuple[str, ...]]
"""A statement, its parameters' OIDs, and where its names are looked for."""


class CatalogUnavailable(AdapterError):
    """The shadow could not be started, or was lost while it answered."""

    condition = "CATALOG_UNAVAILABLE"
    sqlstate = "57P03"

    def __init__(self, cause: str) -> None:
        super().__init__(
            "questions about the catalog cannot be answered now",
            detail=f"{cause}.",
            hint="Ask again: the PostgreSQL that answers them is then started anew.",
        )


class CatalogQueries:
    """The shadow of one server, under ``directory``; ``current`` is the state of the location.

    ``users`` are those who may connect to the server: its roles, to clients.
    """

    def __init__(
        self, directory: Path, current: Callable[[], State], users: Collection[str] = ()
    ) -> None:
        self._directory = directory
        self._users = users
        self._current = current
        self._shadow: Shadow | None = None
        self._stopped = False
        self._starting = threading.Lock()
        self._refused: str | None = None
        self._refused_until = 0.0
        # Which catalog is shown, and how many are asking about it.
        self._turn = threading.Condition()
        self._shown: frozenset[tuple[str, bytes]] | None = None
        self._shown_items: object = None
        self._asking = 0
        self._analyses: dict[_Asked, Analysis | PostgresRejected] = {}

    def start(self) -> None:
        """Begin to start the shadow, and to show the catalog there."""
        threading.Thread(target=self._begin, name="shadow", daemon=True).start()

    def stop(self) -> None:
        """Stop the shadow; what is asked from now on is refused."""
        with self._starting:
            self._stopped = True
            shadow, self._shadow = self._shadow, None
        if shadow is not None:
            shadow.stop()

    # ---- questions ---------------------------------------------------------------------------

    def run(
        self, text: str, state: State, settings: Mapping[str, str] = MappingProxyType({})
    ) -> Result:
        """Return the answer to a query about the catalog of ``state``, under these settings."""
        with _sorted_errors(), self._showing(state) as shadow:
            asked, path = acting.said(text), searched(state)
            return _result(shadow.run_catalog_query(asked, settings=settings, path=path))

    def rows(self, text: str, *parameters: str | None) -> tuple[tuple[str | None, ...], ...]:
        """Return the rows of a question of our own."""
        with _sorted_errors(), self._showing(self._current()) as shadow:
            return shadow.run_catalog_query(acting.said(text), parameters).rows

    def analyse(self, text: str, parameter_oids: Sequence[int], state: State) -> Analysis:
        """Return what a statement is, over the catalog of ``state``; or PostgreSQL's refusal."""
        path = searched(state)
        asked = (text, tuple(parameter_oids), path)
        with self._turn:
            known = self._analyses.get(asked) if self._shows(state) else None
        if known is None:
            with _sorted_errors(), self._showing(state) as shadow:
                try:
                    known = shadow.analyse(text, parameter_oids, path)
                except PostgresRejected as refused:
                    known = refused
                if len(self._analyses) >= ANALYSES_MAX:
                    self._analyses.clear()
                self._analyses[asked] = known
        if isinstance(known, PostgresRejected):
            raise known.again()
        return known

    # ---- the shadow --------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            with self._showing(self._current()):
                pass
        except (HeadwaterError, psycopg.Error, OSError) as error:
            _log.warning("the shadow PostgreSQL does not answer yet: %s", error)

    def _started(self) -> Shadow:
        with self._starting:
            if self._stopped:
                raise ShadowUnavailable("the server is stopping")
            if self._shadow is None:
                if self._refused is not None and time.monotonic() < self._refused_until:
                    raise ShadowUnavailable(self._refused)
                self._shadow = self._start()
            return self._shadow

    def _start(self) -> Shadow:
        try:
            shadow = Shadow(self._directory, self._users)
            shadow.start()
        except (HeadwaterError, OSError, ImportError, LookupError) as error:
            self._refused = f"the shadow PostgreSQL does not start: {error}"
            self._refused_until = time.monotonic() + START_AGAIN_SECONDS
            raise ShadowUnavailable(self._refused) from error
        self._refused = None
        return shadow

    def _shows(self, state: State) -> bool:
        """Whether the catalog of ``state`` is shown. With :attr:`_turn` held."""
        if state.items is self._shown_items:
            return True
        if self._shown is None or catalog_key(state) != self._shown:
            return False
        self._shown_items = state.items  # Something else than the catalog has changed.
        return True

    @contextmanager
    def _showing(self, state: State) -> Iterator[Shadow]:
        """Have the shadow show the catalog of ``state`` until the question is answered."""
        shadow = self._started()
        with self._turn:
            while not self._shows(state) and self._asking:
                self._turn.wait()
            if not self._shows(state):
                shadow.mirror(mirrored(state))
                self._shown, self._shown_items = catalog_key(state), state.items
                self._analyses = {}
            self._asking += 1
        try:
            yield shadow
        finally:
            with self._turn:
                self._asking -= 1
                self._turn.notify_all()


@contextmanager
def _sorted_errors() -> Iterator[None]:
    try:
        yield
    except (ShadowUnavailable, psycopg.Error) as error:
        raise CatalogUnavailable(str(error)) from error


def passed(column: ResultColumn) -> Column:
    """A column of the shadow's answer, under the type it has there."""
    told = Passed(column.oid, column.size, column.modifier)
    return Column(column.name, pa.string(), passed=told)


def _result(answer: Answer) -> Result:
    columns = tuple(map(passed, answer.columns))
    arrays = [pa.array([row[n] for row in answer.rows], pa.string()) for n in range(len(columns))]
    if not columns:
        empty = pa.table({"": pa.nulls(len(answer.rows))}).select([])
        return Result("SELECT", (), empty.to_batches())
    names = [column.name for column in columns]
    return Result("SELECT", columns, [pa.RecordBatch.from_arrays(arrays, names=names)])
