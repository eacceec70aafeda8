"""What the shadow says when it cannot, or will not.

:class:`PostgresRejected` is PostgreSQL's own error about the client's text, passed on with its
SQLSTATE and position; :class:`ShadowUnavailable` is about our process and not about the text.
"""

from __future__ import annotations

from headwater.adapter.errors import AdapterError
from headwater.base.errors import HeadwaterError


class PostgresRejected(AdapterError):
    """PostgreSQL analysed the text and refused it; every field is its own."""

    condition = "POSTGRES_REJECTED"
    sqlstate = "42000"

    def __init__(
        self,
        primary: str,
        sqlstate: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(primary, detail=detail, hint=hint, position=position)
        self.sqlstate = sqlstate

    def again(self) -> PostgresRejected:
        """The same, to be raised once more: whoever hears of it may move its position."""
        return PostgresRejected(
            self.primary, self.sqlstate, detail=self.detail, hint=self.hint, position=self.position
        )


class AnswerTooLarge(AdapterError):
    """A catalog query with more rows or bytes than a catalog has."""

    condition = "CATALOG_ANSWER_TOO_LARGE"
    sqlstate = "54000"

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        super().__init__(
            "the answer of a catalog query is too large",
            detail=f"It may have {rows_max} rows and {bytes_max} bytes.",
            hint="Add a condition or a LIMIT.",
        )


class ShadowUnavailable(HeadwaterError):
    """The shadow could not be started, or is gone."""
