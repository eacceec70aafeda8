"""The shadow, whole: start and stop with the server, mirror, analyse, answer.

Every method may be called from any thread. ``mirror`` is serialized; ``analyse`` and
``run_catalog_query`` run beside it and beside each other. A process that died meanwhile is started
again by whoever finds out, and shows what it showed.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

import psycopg

from headwater.adapter.shadow import bootstrap
from headwater.adapter.shadow.errors import ShadowUnavailable
from headwater.adapter.shadow.instance import Instance
from headwater.adapter.shadow.mirror import mirror
from headwater.adapter.shadow.objects import Mirrored
from headwater.adapter.shadow.sessions import PUBLIC_PATH, Analysis, Answer, Sessions

_log = logging.getLogger(__name__)
T = TypeVar("T")

DYING_SECONDS: Final = 1.0
DYING_LOOKS: Final = 20
"""How long, and how often, a process that told of its end is looked at until it has ended."""

RENAMED: Final = {"daticulocale": "datlocale", "colliculocale": "colllocale"}
"""Columns of catalogs that older clients ask for (``\\l`` and ``\\dO`` of psql 15 and 16)."""

_RENAMED: Final = re.compile(rf"\b(?:{'|'.join(RENAMED)})\b")


class Shadow:
    """The shadow PostgreSQL of one server, under ``directory``."""

    def __init__(self, directory: Path, users: Collection[str] = ()) -> None:
        self.instance = Instance(directory)
        self._users = users
        self._sessions = Sessions(lambda: self.instance.connect(bootstrap.READER))
        self._admin: psycopg.Connection[Any] | None = None
        self._shown: tuple[Mirrored, ...] = ()
        self._stopped = True
        self._lock = threading.Lock()

    def start(self) -> bool:
        """Start; return whether it is new, and shows nothing until :meth:`mirror` is called."""
        with self._lock:
            self._stopped = False
            return self._started()

    def _started(self) -> bool:
        new = self.instance.start()
        if self._users or not new:
            with self.instance.connect(bootstrap.ADMIN) as connection:
                bootstrap.show_users(connection, self._users)
        return new

    def stop(self) -> None:
        """Stop the process and close every session."""
        with self._lock:
            self._stopped = True
            self._close()
            self.instance.stop()

    def _close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        self._sessions.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def mirror(self, objects: Sequence[Mirrored]) -> tuple[str, ...]:
        """Show exactly ``objects``; return the keys of those that had to be made."""
        objects = tuple(objects)

        def show() -> tuple[str, ...]:
            with self._lock:
                made = self._show(objects)
                self._shown = objects
                return made

        return self._with_a_living(show)

    def analyse(
        self, text: str, parameters: Sequence[int] = (), path: Sequence[str] = PUBLIC_PATH
    ) -> Analysis:
        """What a statement returns, or ``PostgresRejected`` with PostgreSQL's own words."""
        return self._with_a_living(lambda: self._sessions.analyse(text, parameters, path))

    def run_catalog_query(
        self,
        text: str,
        parameters: Sequence[str | None] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
        path: Sequence[str] = PUBLIC_PATH,
    ) -> Answer:
        """The answer to a query about the catalog; see :func:`.classify.is_catalog_query`."""
        spelled = _RENAMED.sub(lambda old: RENAMED[old[0]], text)
        return self._with_a_living(lambda: self._sessions.run(spelled, parameters, settings, path))

    def _show(self, objects: Sequence[Mirrored]) -> tuple[str, ...]:
        try:
            if self._admin is None or self._admin.closed:
                self._admin = self.instance.connect(bootstrap.ADMIN)
            return mirror(self._admin, objects)
        except psycopg.OperationalError as error:
            raise ShadowUnavailable(f"the shadow PostgreSQL is gone: {error}") from error

    def _with_a_living(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except ShadowUnavailable:
            with self._lock:
                if self._stopped:
                    raise
                if self._has_died():
                    _log.warning("the shadow PostgreSQL is gone, and is started again")
                    self._close()
                    self.instance.stop()
                    self._started()
                    self._show(self._shown)
            return ask()

    def _has_died(self) -> bool:
        """Whether it is gone: its sessions may learn of it before the system has let it go."""
        for _ in range(DYING_LOOKS):
            if not self.instance.is_running():
                return True
            time.sleep(DYING_SECONDS / DYING_LOOKS)
        return False
