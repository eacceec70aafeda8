"""Spark, when it is needed and not before: theirs if they have one, else one of our own.

Two sessions of one Spark:

- ``session`` is where our queries are compiled and run: its settings are those that decide what a
  query means (``compute/session.py``), so it is a session beside the user's, whose settings and
  temporary views are left alone;
- ``frames`` is where DataFrames given to the user live: the user's own session, so that they can
  be joined with the user's and registered beside them.

What somebody else started is never stopped here. What was started here is stopped when the last
one that uses it is closed.
"""

from __future__ import annotations

import shutil
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

_lock = threading.Lock()
_users = 0
"""How many have been given the Spark that was started here."""


class LazySpark:
    """The Spark of one open database."""

    def __init__(self, theirs: Any | None = None) -> None:
        self._frames = theirs
        self._session: Any | None = None
        self._counted = False
        self._starting = threading.Lock()

    @property
    def is_running(self) -> bool:
        """Whether it has been needed."""
        return self._session is not None

    @property
    def session(self) -> Any:
        """The session of our queries; started now if there is none."""
        with self._starting:
            if self._session is None:
                self._start()
            return self._session

    @property
    def frames(self) -> Any:
        """The session of DataFrames that are given away."""
        _ = self.session
        return self._frames

    def _start(self) -> None:
        global _users
        from headwater.compute.session import open_session, running_session, with_meaning

        with _lock:
            if self._frames is None and not _users:
                self._frames = running_session()
            if self._frames is None:
                self._frames = open_session()
                _users += 1
                self._counted = True
        if not self._counted:
            warn_of_other_python(self._frames)
        self._session = with_meaning(self._frames)

    def close(self) -> None:
        """Stop Spark if nobody else uses it and it was started here."""
        global _users
        with _lock:
            if not self._counted:
                return
            self._counted = False
            _users -= 1
            if not _users:
                from headwater.compute.session import close_session

                close_session()


def warn_of_other_python(spark: Any) -> None:
    """Say so if tasks of a local Spark run another Python, which may not have this package."""
    context = spark.sparkContext
    found = shutil.which(context.pythonExec)
    if not str(context.master).startswith("local") or found is None:
        return
    if Path(found).parent != Path(sys.executable).parent:
        warnings.warn(
            f"the tasks of this Spark run {found}, not {sys.executable}; if Headwater is not "
            f"installed there, set PYSPARK_PYTHON={sys.executable} before the session is made",
            RuntimeWarning,
            stacklevel=2,
        )
