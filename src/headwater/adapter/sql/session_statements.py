"""Questions about the session and the catalog, as values; :mod:`.statements` has them, too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionColumn:
    """One session function of a :class:`SelectSession`, its argument and its column name."""

    function: str
    argument: str | None
    name: str
    value: str | None = None
    """What ``set_config`` sets the argument to."""
    local: bool = False
    """Whether it does so for the transaction only."""
    missing_ok: bool = False
    """Whether ``current_setting`` of a variable that nobody has set is NULL, and no mistake."""


@dataclass(frozen=True, slots=True)
class SelectSession:
    """``SELECT version(), current_user, …``: a query about the session alone, in no table.

    Clients send it while they connect. The wire answers it wherever it stands: alone, in a cursor,
    in a COPY, as what is executed. No session sees it.
    """

    columns: tuple[SessionColumn, ...]


@dataclass(frozen=True, slots=True)
class SelectCatalog:
    """A query about PostgreSQL's catalog that reads no relation of ours: the shadow answers it."""

    query_sql: str
    variables: tuple[tuple[str, str], ...] = ()
    """What the session's variables are, where it asks for them (``pg_settings``)."""
