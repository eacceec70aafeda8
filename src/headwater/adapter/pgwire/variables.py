"""The session variables that belong to the wire: what clients set and ask for while they connect.

Nothing is accepted and ignored. *Fixed* ones describe how we write values (UTF-8, ISO dates, UTC,
hex): a client may set them to what they are; another value is refused, in a start-up packet with a
warning instead, because drivers send their machine's time zone unasked. *Free* ones are remembered
and shown, and each says why that is enough (:data:`FREE`): the connection obeys it, or what it asks
for is so anyway; a value of which neither is true is refused. A name in neither is not ours: it
goes to the backend. *Shared* ones go there too, and are remembered here as well: the connection
obeys ``statement_timeout`` whatever the backend does with it, and a backend that does not know
``transaction_isolation`` is one whose is serializable.

They follow the transaction as in PostgreSQL (``adapter/scoped.py``): what is local to it ends with
it, and what was set in one that was rolled back was never set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headwater.adapter.pgwire.durations import duration_ms
from headwater.adapter.savepoints import Savepoints
from headwater.adapter.scoped import Scoped
from headwater.adapter.setting_errors import InvalidSetting, NotHonoured
from headwater.adapter.sql import search_path
from headwater.adapter.sql.durations import shown
from headwater.adapter.sql.statements import Dialect, Release, RollbackTo, Savepoint

SERVER_VERSION = (
    "18.0 (Headwater)"  # Of the catalog we answer with, so that clients ask the right way.
)
VERSION_TEXT = f"PostgreSQL {SERVER_VERSION}"

UTC_NAMES = frozenset(
    {"utc", "etc/utc", "uct", "etc/uct", "gmt", "etc/gmt", "gmt0", "etc/gmt0", "universal"}
    | {"etc/universal", "zulu", "etc/zulu", "z", "0", "+0", "-0", "+00", "+00:00", "00:00", "local"}
)
"""What PostgreSQL calls our time zone; LOCAL is what it was at first."""

FIXED: Mapping[str, tuple[str, frozenset[str] | set[str]]] = MappingProxyType(
    {
        "client_encoding": ("UTF8", {"utf8", "utf-8", "unicode"}),
        "datestyle": ("ISO, MDY", {"iso", "iso, mdy", "iso,mdy"}),
        "timezone": ("UTC", UTC_NAMES),
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
MESSAGE_LEVELS = (
    *("debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "info", "notice"),
    *("warning", "error"),
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A variable that is remembered: its value at first, those it may have, and why that is true.

    ``values`` None: any. What is said of ``why`` is in the user's reference.
    """

    value: str
    values: tuple[str, ...] | None
    why: str


_BOOLEAN = ("on", "off", "true", "false", "yes", "no", "1", "0")
_OBEYED = "a length of time: `'10s'`, `0` is none"

FREE = MappingProxyType(
    {
        "application_name": Kept("", None, "a name for people"),
        "client_min_messages": Kept("notice", MESSAGE_LEVELS, "`error` keeps warnings back"),
        "default_transaction_isolation": Kept(
            "serializable",
            ("serializable", "repeatable read", "read committed", "read uncommitted"),
            "never less than was asked for: see `transaction_isolation`",
        ),
        "extra_float_digits": Kept("1", ("1", "2", "3"), "floats are written exactly: 1 to 3"),
        "idle_in_transaction_session_timeout": Kept("0", None, _OBEYED),
        "idle_session_timeout": Kept("0", None, _OBEYED),
        "lock_timeout": Kept("0", ("0",), "`0` only: use `statement_timeout`, which ends any wait"),
        "row_security": Kept("on", _BOOLEAN, "there are no policies that it could turn off"),
        "synchronize_seqscans": Kept("on", _BOOLEAN, "no answer depends on it"),
        "transaction_timeout": Kept(
            "0", ("0",), "`0` only: use `statement_timeout` and the idle ones"
        ),
    }
)
SHARED = MappingProxyType(
    {
        "default_transaction_read_only": "off",
        "dialect": "postgres",
        search_path.NAME: search_path.shown(search_path.DEFAULT),
        "statement_timeout": "0",
        "transaction_isolation": "serializable",
    }
)
READ_ONLY = "transaction_read_only"
"""Fixed as far as SET is concerned: it is what the transaction was begun with."""
TIMEOUTS = frozenset(
    {
        *("idle_in_transaction_session_timeout", "idle_session_timeout", "lock_timeout"),
        *("statement_timeout", "transaction_timeout"),
    }
)
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
        self._initial = {**{name: kept.value for name, kept in FREE.items()}, **SHARED}
        self._values: Scoped[Mapping[str, str]] = Scoped.of(dict(self._initial))
        self._savepoints: Savepoints[Scoped[Mapping[str, str]]] = Savepoints()

    @property
    def _free(self) -> Mapping[str, str]:
        return self._values.now

    @property
    def warns(self) -> bool:
        """Whether the client wants to hear of what is no error."""
        return self._free["client_min_messages"] != "error"

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

    def begin_with(self, read_only: bool | None) -> None:
        """Note what the open transaction says of itself; None: nothing."""
        if read_only is not None:
            now = "on" if read_only else "off"
            self._values = self._values.assigned(lambda was: {**was, READ_ONLY: now}, local=True)

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
        if name == READ_ONLY:
            return self._free.get(name, self._free[f"default_{name}"])
        return FIXED[name][0] if name in FIXED else self._free[name]

    def assign(self, name: str, value: str | None, *, local: bool = False) -> None:
        """Set, or with None restore."""
        if name == READ_ONLY:
            now = self.show(name)
            if value is not None and _bare(value).lower() != now:
                raise NotHonoured(name, _bare(value), now, hint="Say SET TRANSACTION READ ONLY.")
        elif name in self._free:
            wanted = self._initial[name] if value is None else _accepted(name, value)
            self._values = self._values.assigned(lambda was: {**was, name: wanted}, local=local)
        elif value is not None:
            _check_fixed(name, _bare(value))


def _accepted(name: str, value: str) -> str:
    """The value as it is remembered."""
    if name == search_path.NAME:
        return search_path.shown(search_path.read(value))
    value = _bare(value)
    if name in TIMEOUTS:
        value = shown(duration_ms(value))  # Refused now, not when it is needed.
    if name not in FREE or FREE[name].values is None:
        return value
    kept = FREE[name]
    assert kept.values is not None
    if value.lower() in kept.values:
        return value.lower()
    if name == "extra_float_digits" and value.lstrip("-").isdigit():
        hint = "Floats are written with as many digits as they need, and no more."
        raise NotHonoured(name, value, kept.value, hint=hint)
    if name in TIMEOUTS:
        hint = "statement_timeout ends a statement whatever it waits for."
        raise NotHonoured(name, value, kept.value, hint=hint)
    raise InvalidSetting(
        f'invalid value for parameter "{name}": "{value}"',
        hint=f"Available values: {', '.join(kept.values)}.",
    )


def _check_fixed(name: str, value: str) -> None:
    current, accepted = FIXED[name]
    if value.lower() in accepted:
        return
    if not accepted:
        raise InvalidSetting(f'parameter "{name}" cannot be changed')
    if name == "timezone":
        detail = "Timestamps are read and written in UTC here, whatever the client's zone is."
        hint = "Leave it at UTC, and convert timestamps in the client."
        raise NotHonoured("TimeZone", value, current, detail=detail, hint=hint)
    raise NotHonoured(name, value, current)


def _bare(value: str) -> str:
    """The value without the quotes of a list's only one."""
    return value.strip().strip("'")
