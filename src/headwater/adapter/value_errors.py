"""Refusals of a value by the column that it is for, in PostgreSQL's words."""

from __future__ import annotations

from headwater.adapter.errors import AdapterError


class InvalidLength(AdapterError):
    """A ``varchar(n)`` of an n that there is not."""

    condition = "INVALID_LENGTH"
    sqlstate = "22023"

    def __init__(self, length: int, length_max: int) -> None:
        super().__init__(
            f"length {length} for type varchar", detail=f"It is between 1 and {length_max}."
        )


class TooLong(AdapterError):
    """A text longer than its column takes."""

    condition = "STRING_TOO_LONG"
    sqlstate = "22001"

    def __init__(self, length_max: int) -> None:
        super().__init__(f"value too long for type character varying({length_max})")
