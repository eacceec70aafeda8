"""Variables of PostgreSQL's that mean nothing here: known, checked, remembered, shown.

Clients set them unasked (``SET jit = off``, ``SET enable_seqscan = on``) and would fail without.
Which there are, and what they may be, the shadow knows: a value is tried there first. A name with
a point in it is the client's own, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.adapter.catalog_queries import CatalogQueries
from headwater.adapter.errors import UnknownSetting
from headwater.adapter.shadow.errors import PostgresRejected

_UNKNOWN = "42704"


class ForeignSettings:
    """Which there are, and what they may be; what is set the session keeps."""

    def __init__(self, queries: CatalogQueries | None) -> None:
        self._queries = queries

    def show(self, name: str, assigned: Mapping[str, str]) -> str:
        """The value of a variable, beside those that are set."""
        if name in assigned:
            return assigned[name]
        return self._ask("SELECT current_setting($1)", name)

    def accepted(self, name: str, value: str | None, assigned: Mapping[str, str]) -> str | None:
        """A value as PostgreSQL takes it; None restores what it was."""
        if value is None:
            self.show(name, assigned)  # Refused if there is no such variable.
            return None
        written = value.strip().strip("'")
        return self._ask("SELECT set_config($1, $2, true)", name, written)

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
