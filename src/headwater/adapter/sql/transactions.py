"""Statements about transactions, as values; :mod:`.statements` has them in its union."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Begin:
    """``BEGIN`` or ``START TRANSACTION``, ``READ ONLY`` or not; None: as the session has it."""

    read_only: bool | None = None


@dataclass(frozen=True, slots=True)
class SetTransaction:
    """``SET TRANSACTION`` or ``SET SESSION CHARACTERISTICS AS TRANSACTION``: what it may do."""

    read_only: bool | None
    session: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """``COMMIT`` or ``END``."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """``ROLLBACK`` or ``ABORT``."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """``SAVEPOINT name``."""

    name: str


@dataclass(frozen=True, slots=True)
class RollbackTo:
    """``ROLLBACK TO [SAVEPOINT] name``."""

    name: str


@dataclass(frozen=True, slots=True)
class Release:
    """``RELEASE [SAVEPOINT] name``."""

    name: str
