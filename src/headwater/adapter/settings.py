"""The session variables that the adapter acts on.

============================  =====================================================================
``transaction_isolation``     ``strict serializable`` (default), ``serializable``, or
                              ``bounded staleness <duration>``
``statement_timeout``         how long a statement may wait; 0, the default: for ever
``dialect``                   ``postgres`` (default), or ``spark``: queries are Spark SQL, as it is
``default_transaction_        whether transactions only read, unless they say otherwise; a statement
read_only``                   on its own is one
``search_path``               in which schemas names are looked for (``adapter/namespaces.py``)
============================  =====================================================================

A duration is written as PostgreSQL writes one: ``500``, ``'500ms'``, ``'10s'``, ``'5 minutes'``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from headwater.adapter.setting_errors import InvalidSetting, UnknownSetting
from headwater.adapter.sql import search_path
from headwater.adapter.sql.durations import duration_ms, shown
from headwater.adapter.sql.statements import Dialect
from headwater.adapter.timestamps import STRICT, BoundedStaleness, Isolation, Serializable

READ_ONLY: Final = "default_transaction_read_only"
_OURS: Final = (
    *("transaction_isolation", "statement_timeout", "dialect"),
    *(search_path.NAME, READ_ONLY),
)
_BOOLEANS: Final = {
    **dict.fromkeys(("on", "true", "yes", "1"), True),
    **dict.fromkeys(("off", "false", "no", "0"), False),
}


def is_ours(name: str) -> bool:
    """Whether a variable is one that the adapter acts on."""
    return name in _OURS


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of one session."""

    isolation: Isolation = STRICT
    statement_timeout_ms: int = 0
    read_only: bool = False
    """Whether transactions only read, unless they say otherwise."""
    dialect: Dialect = "postgres"
    """In which queries are."""
    search_path: tuple[str, ...] = search_path.DEFAULT
    """Where names are looked for."""

    def path(self, user: str) -> tuple[str, ...]:
        """Where names are looked for by a user."""
        return tuple(user if each == search_path.USER else each for each in self.search_path)

    def show(self, name: str) -> str:
        """The value now, as text."""
        match name:
            case "transaction_isolation":
                return str(self.isolation)
            case "statement_timeout":
                return shown(self.statement_timeout_ms)
            case "dialect":
                return self.dialect
            case "default_transaction_read_only":
                return "on" if self.read_only else "off"
            case search_path.NAME:
                return search_path.shown(self.search_path)
            case _:
                raise UnknownSetting(name)

    def assigned(self, name: str, value: str | None) -> Settings:
        """These settings with one changed; None restores its default."""
        if name == search_path.NAME:
            path = search_path.DEFAULT if value is None else search_path.read(value)
            return replace(self, search_path=path)
        text = None if value is None else value.strip().strip("'").strip().lower()
        match name:
            case "transaction_isolation":
                return replace(self, isolation=STRICT if text is None else _isolation(text))
            case "statement_timeout":
                timeout = Settings().statement_timeout_ms if text is None else duration_ms(text)
                if timeout is None:
                    raise InvalidSetting(f'invalid value for parameter "{name}": "{value}"')
                return replace(self, statement_timeout_ms=timeout)
            case "default_transaction_read_only":
                read_only = _BOOLEANS.get(text or "off")
                if read_only is None:
                    raise InvalidSetting(f'parameter "{name}" requires a Boolean value')
                return replace(self, read_only=read_only)
            case "dialect" if text in (None, "postgres", "postgresql"):
                return replace(self, dialect="postgres")
            case "dialect" if text == "spark":
                return replace(self, dialect="spark")
            case "dialect":
                raise InvalidSetting(
                    f'invalid value for parameter "dialect": "{value}"',
                    hint="It is postgres or spark.",
                )
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
