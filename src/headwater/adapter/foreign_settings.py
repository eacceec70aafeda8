"""Variables of PostgreSQL's that mean nothing here: known, checked, remembered, shown.

Clients set them unasked (``SET jit = off``, ``SET enable_seqscan = on``) and would fail without.
Which there are, and what they may be, the shadow knows: a value is tried there first. A name with
a point in it is the client's own, as in PostgreSQL.
"""

from __future__ import annotations

from headwater.adapter.catalog_queries import CatalogQueries
from headwater.adapter.errors import UnknownSetting
from headwater.adapter.shadow.errors import PostgresRejected

_UNKNOWN = "42704"


class ForeignSettings:
    """What one session has set."""

    def __init__(self, queries: CatalogQueries | None) -> None:
        self._queries = queries
        self._set: dict[str, str] = {}

    def show(self, name: str) -> str:
        """The value now."""
        if name in self._set:
            return self._set[name]
        return self._ask("SELECT current_setting($1)", name)

    def assign(self, name: str, value: str | None) -> None:
        """Set; None restores what it was."""
        if value is None:
            if self._set.pop(name, None) is None:
                self.show(name)  # Refused if there is no such variable.
            return
        written = value.strip().strip("'")
        self._set[name] = self._ask("SELECT set_config($1, $2, true)", name, written)

    def reset(self) -> None:
        """Forget everything."""
        self._set.clear()

    def _ask(self, text: str, *parameters: str) -> str:
        if self._queries is None:
            raise UnknownSetting(parameters[0])
        try:
            ((value,),) = self._queries.rows(text, *parameters)
        except PostgresRejected as error:
            if error.sqlstate == _UNKNOWN:
                raise UnknownSetting(parameters[0]) from error
            raise
        return value or ""
