"""The session variables that belong to the wire: what clients set and ask for while they connect.

Two kinds. *Fixed* ones describe how we write values (UTF-8, ISO dates, UTC, hex): a client may
set them to what they are; another value is refused, except the time zone, which stays UTC with a
warning because drivers set it unasked and every timestamptz is sent with its offset anyway.
*Free* ones are remembered and shown. A name in neither is not ours: it goes to the backend.
"""

from __future__ import annotations

from types import MappingProxyType

from headwater.adapter.errors import InvalidSetting

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
        "transaction_isolation": ("serializable", {"serializable"}),
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
        "search_path": '"$user", public',
        "synchronize_seqscans": "on",
    }
)
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

    def __init__(self, application_name: str) -> None:
        self._free = {**FREE, "application_name": application_name}

    def holds(self, name: str) -> bool:
        """Whether the variable is the wire's own."""
        return name in FIXED or name in FREE

    def show(self, name: str) -> str:
        """The value now."""
        return FIXED[name][0] if name in FIXED else self._free[name]

    def assign(self, name: str, value: str | None) -> str | None:
        """Set, or with None restore; the answer is a warning for the client, if there is one."""
        if name in FREE:
            self._free[name] = FREE[name] if value is None else value
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
