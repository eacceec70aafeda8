"""The shadow, whole: start and stop with the server, mirror, analyse, answer.

Every method may be called from any thread. ``mirror`` is serialized; ``analyse`` and
``run_catalog_query`` run beside it and beside each other.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import psycopg

from headwater.adapter.shadow import bootstrap
from headwater.adapter.shadow.errors import ShadowUnavailable
from headwater.adapter.shadow.instance import Instance
from headwater.adapter.shadow.mirror import mirror
from headwater.adapter.shadow.objects import Mirrored
from headwater.adapter.shadow.sessions import Analysis, Answer, Sessions

RENAMED: Final = {"daticulocale": "datlocale", "colliculocale": "colllocale"}
"""Columns of catalogs that older clients ask for (``\\l`` and ``\\dO`` of psql 15 and 16)."""

_RENAMED: Final = re.compile(rf"\b(?:{'|'.join(RENAMED)})\b")


class Shadow:
    """The shadow PostgreSQL of one server, under ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.instance = Instance(directory)
        self._sessions = Sessions(lambda: self.instance.connect(bootstrap.READER))
        self._admin: psycopg.Connection[Any] | None = None
        self._lock = threading.Lock()

    def start(self) -> bool:
        """Start; return whether it is new, and shows nothing until :meth:`mirror` is called."""
        return self.instance.start()

    def stop(self) -> None:
        """Stop the process and close every session."""
        with self._lock:
            if self._admin is not None:
                self._admin.close()
                self._admin = None
        self._sessions.close()
        self.instance.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def mirror(self, objects: Sequence[Mirrored]) -> tuple[str, ...]:
        """Show exactly ``objects``; return the keys of those that had to be made."""
        with self._lock:
            try:
                if self._admin is None or self._admin.closed:
                    self._admin = self.instance.connect(bootstrap.ADMIN)
                return mirror(self._admin, objects)
            except psycopg.OperationalError as error:
                raise ShadowUnavailable(f"the shadow PostgreSQL is gone: {error}") from error

    def analyse(self, text: str, parameters: Sequence[int] = ()) -> Analysis:
        """What a statement returns, or ``PostgresRejected`` with PostgreSQL's own words."""
        return self._sessions.analyse(text, parameters)

    def run_catalog_query(self, text: str, parameters: Sequence[str | None] = ()) -> Answer:
        """The answer to a query about the catalog; see :func:`.classify.is_catalog_query`."""
        return self._sessions.run(_RENAMED.sub(lambda old: RENAMED[old[0]], text), parameters)
