"""The session variables that belong to the wire: what clients set and ask for while they connect.

Two kinds. *Fixed* ones describe how we write values (UTF-8, ISO dates, UTC, hex): a client may
set them to what they are; another value is refused, except the time zone, which stays UTC with a
warning because drivers set it unasked and every timestamptz is sent with its offset anyway.
*Free* ones are remembered and shown; of these the *timeouts* are lengths of time, and obeyed by the
connection. A name in neither is not ours: it goes to the backend. *Shared* ones go there too, and
are remembered here as well: the connection obeys ``statement_timeout`` whatever the backend does
with it, and a backend that does not know ``transaction_isolation`` is one whose is serializable.

They follow the transaction as in PostgreSQL (``adapter/scoped.py``): what is local to it ends with
it, and what was set in one that was rolled back was never set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from headwater.adapter.errors import InvalidSetting
from headwater.adapter.pgwire.durations import duration_ms
from headwater.adapter.savepoints import Savepoints
from headwater.adapter.scoped import Scoped
from headwater.adapter.sql import search_path
from headwater.adapter.sql.durations import shown
from headwater.adapter.sql.statements import Dialect, Release, RollbackTo, Savepoint

SERVER_VERSION = (
    "18.0 (Headwater)"  # Of the catalog we answer with, so that clients ask the right way.
)
VERSION_TEXT = f"PostgreSQL {SERVER_VERSION}"

FIXED = MappingProxyType(
    {
        "client_encoding": ("UTF8", {"utf8", "utf-8", "unicode"}),
        "datestyle": ("ISO, MDY", {"iso", "iso, mdy", "iso,mdy"}),
        "timezone": ("UTC", {"utc", "etc/utc", "gmt", "0", "+00:00", "00:00"}),
        "intervalstyle": ("postgres", {"postgres"}),
        "standard_conforming_strings": ("on", {"on", "true", "1"}),
        "bytea_output": ("hex", {"hex"}),
        "server_encoding": ("UTF8", set()),
        "server_version": (SERVER_VERSION, set()),
        "server_version_num": ("180000", set()),
        "integer_datetimes": ("on", set()),
        "max_identifier_length": ("63", set()),
        "is_superuser": ("off", set()),
        "in_hot_standby": ("off", set()),
        "transaction_read_only": ("off", {"off"}),
    }
)
FREE = MappingProxyType(
    {
        "application_name": "",
        "client_min_messages": "notice",
        "default_transaction_isolation": "serializable",
        "default_transaction_read_only": "off",
        "extra_float_digits": "1",
        "idle_in_transaction_session_timeout": "0",
        "lock_timeout": "0",
        "row_security": "on",
        "synchronize_seqscans": "on",
    }
)
SHARED = MappingProxyType(
    {
        "dialect": "postgres",
        search_path.NAME: search_path.shown(search_path.DEFAULT),
        "statement_timeout": "0",
        "transaction_isolation": "serializable",
    }
)
TIMEOUTS = frozenset({"idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout"})
# Those that clients follow: told when they change.
FOLLOWED = ("application_name", "default_transaction_read_only", "search_path")
# Sent to every client at once (PostgreSQL's GUC_REPORT), in PostgreSQL's spelling.
REPORTED = MappingProxyType(
    {
        "DateStyle": FIXED["datestyle"][0],
        "IntervalStyle": FIXED["intervalstyle"][0],
        "TimeZone": FIXED["timezone"][0],
        **{
            name: FIXED[name][0]
            for name in (
                "client_encoding",
                "in_hot_standby",
                "integer_datetimes",
                "is_superuser",
                "server_encoding",
                "server_version",
                "standard_conforming_strings",
            )
        },
    }
)


class SessionVariables:
    """The variables of one connection."""

    def __init__(self) -> None:
        self._initial = {**FREE, **SHARED}
        self._values: Scoped[Mapping[str, str]] = Scoped.of(dict(self._initial))
        self._savepoints: Savepoints[Scoped[Mapping[str, str]]] = Savepoints()

    @property
    def _free(self) -> Mapping[str, str]:
        return self._values.now

    def start(self, name: str, value: str) -> None:
        """Set from the client's start-up packet: what RESET goes back to."""
        self.assign(name, value)
        if name in self._free:
            self._initial[name] = self._free[name]

    def reset_all(self) -> None:
        """Everything as it was when the session began."""
        self._values = self._values.assigned(lambda _: dict(self._initial))

    # --- transactions -----------------------------------------------------------------------------

    def begin(self) -> None:
        """A transaction begins."""
        self._values, self._savepoints = self._values.begun_now(), Savepoints()

    def end(self, *, committed: bool) -> None:
        """It has ended."""
        self._values = self._values.ended(committed=committed)

    def savepoint(self, statement: Savepoint | RollbackTo | Release) -> None:
        """What the backend has done with a savepoint."""
        match statement:
            case Savepoint(name):
                self._savepoints = self._savepoints.having(name, self._values)
            case RollbackTo(name):
                self._savepoints, then = self._savepoints.back_to(name)
                self._values = self._values.back_to(then)
            case Release(name):
                self._savepoints = self._savepoints.released(name)

    # --- values -----------------------------------------------------------------------------------

    def seconds(self, name: str) -> float | None:
        """A timeout; None if there is none."""
        milliseconds = duration_ms(self._free[name])
        return milliseconds / 1000 if milliseconds else None

    def names(self) -> Iterable[str]:
        """Every variable that is the wire's own, or remembered here."""
        return (*FIXED, *self._free)

    @property
    def dialect(self) -> Dialect:
        """In which dialect the queries of this connection are."""
        return "spark" if self._free["dialect"].lower() == "spark" else "postgres"

    def holds(self, name: str) -> bool:
        """Whether the variable is the wire's own."""
        return name in FIXED or name in FREE

    def shares(self, name: str) -> bool:
        """Whether the variable is the backend's, and remembered here."""
        return name in SHARED

    def show(self, name: str) -> str:
        """The value now."""
        return FIXED[name][0] if name in FIXED else self._free[name]

    def assign(self, name: str, value: str | None, *, local: bool = False) -> str | None:
        """Set, or with None restore; the answer is a warning for the client, if there is one."""
        if name in self._free:
            if value is not None and name == search_path.NAME:
                value = search_path.shown(search_path.read(value))
            elif value is not None:
                value = value.strip().strip("'")
            if value is not None and name in TIMEOUTS:
                value = shown(duration_ms(value))  # Refused now, not when it is needed.
            wanted = self._initial[name] if value is None else value
            self._values = self._values.assigned(lambda was: {**was, name: wanted}, local=local)
            return None
        current, accepted = FIXED[name]
        if value is None or value.strip().strip("'").lower() in accepted:
            return None
        if name == "timezone":
            return f'time zone "{value}" is not used: timestamps are read and written in UTC'
        if not accepted:
            raise InvalidSetting(f'parameter "{name}" cannot be changed')
        raise InvalidSetting(
            f'invalid value for parameter "{name}": "{value}"', hint=f"It is {current}."
        )
