"""The session variables that the adapter acts on.

============================  =====================================================================
``transaction_isolation``     ``strict serializable`` (default), ``serializable``, or
                              ``bounded staleness <duration>``
``statement_timeout``         how long a statement may wait; 0, the default: for ever
============================  =====================================================================

A duration is written as PostgreSQL writes one: ``500``, ``'500ms'``, ``'10s'``, ``'5 minutes'``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from headwater.adapter.errors import InvalidSetting, UnknownSetting
from headwater.adapter.timestamps import STRICT, BoundedStaleness, Isolation, Serializable

_UNITS: Final = {
    "": 1,
    "ms": 1,
    "millisecond": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "min": 60_000,
    "m": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hr": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}

_DURATION: Final = re.compile(r"(\d{1,15})\s*([a-z]*)")


def duration_ms(text: str) -> int | None:
    """Read a duration; None if it is none.

    >>> duration_ms("5 minutes"), duration_ms("10s"), duration_ms("20ms"), duration_ms("soon")
    (300000, 10000, 20, None)
    """
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        return None
    number, unit = found.groups()
    # "s" is seconds, and the end of "minutes".
    factor = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
    return None if factor is None else int(number) * factor


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of one session."""

    isolation: Isolation = STRICT
    statement_timeout_ms: int = 0

    def show(self, name: str) -> str:
        """The value now, as text."""
        match name:
            case "transaction_isolation":
                return str(self.isolation)
            case "statement_timeout":
                return f"{self.statement_timeout_ms}ms" if self.statement_timeout_ms else "0"
            case _:
                raise UnknownSetting(name)

    def assigned(self, name: str, value: str | None) -> Settings:
        """These settings with one changed; None restores its default."""
        text = None if value is None else value.strip().strip("'").strip().lower()
        match name:
            case "transaction_isolation":
                return replace(self, isolation=STRICT if text is None else _isolation(text))
            case "statement_timeout":
                timeout = Settings().statement_timeout_ms if text is None else duration_ms(text)
                if timeout is None:
                    raise InvalidSetting(f'invalid value for parameter "{name}": "{value}"')
                return replace(self, statement_timeout_ms=timeout)
            case _:
                raise UnknownSetting(name)


def _isolation(text: str) -> Isolation:
    if text == "strict serializable":
        return STRICT
    if text == "serializable":
        return Serializable()
    if text.startswith("bounded staleness"):
        bound_ms = duration_ms(text.removeprefix("bounded staleness"))
        if bound_ms is not None:
            return BoundedStaleness(bound_ms)
    if text in ("repeatable read", "read committed", "read uncommitted"):
        return STRICT  # Never less than was asked for.
    raise InvalidSetting(
        f'invalid value for parameter "transaction_isolation": "{text}"',
        hint="It is strict serializable, serializable, or bounded staleness with a duration.",
    )
