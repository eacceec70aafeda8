"""Refusals of a value by the column that it is for, in PostgreSQL's words."""

from __future__ import annotations

from decimal import Decimal

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


_SHOWN_MAX = 60
"""Characters of a number in an error."""


class NumericOverflow(AdapterError):
    """A number too large for the ``numeric(p,s)`` that its column is."""

    condition = "NUMERIC_VALUE_OUT_OF_RANGE"
    sqlstate = "22003"

    def __init__(self, precision: int, scale: int) -> None:
        super().__init__(
            "numeric field overflow",
            detail=f"A field with precision {precision}, scale {scale} must round to an absolute"
            f" value less than 10^{precision - scale}.",
        )


class NotBareNumeric(AdapterError):
    """A number with more digits than a ``numeric`` without precision keeps here."""

    condition = "NUMERIC_VALUE_OUT_OF_RANGE"
    sqlstate = "22003"

    def __init__(self, value: Decimal, digits: int, place: str, digits_max: int) -> None:
        written = format(value, "f") if digits < _SHOWN_MAX else str(value)
        shown = written if len(written) <= _SHOWN_MAX else f"{written[:_SHOWN_MAX]}…"
        super().__init__(
            f"value {shown} does not fit into numeric: it has {digits} digits {place} the point,"
            f" of which {digits_max} are kept",
            hint="Declare the column numeric(p,s), of up to 38 digits; that rounds to s digits, as"
            " round(value, 9) does.",
        )


class FloatOutOfRange(AdapterError):
    """A text of a number that no float of its type is near to."""

    condition = "NUMERIC_VALUE_OUT_OF_RANGE"
    sqlstate = "22003"

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(f'"{text}" is out of range for type {type_name}')


class NumberOutOfRange(AdapterError):
    """A number that the type it is cast to cannot hold."""

    condition = "NUMERIC_VALUE_OUT_OF_RANGE"
    sqlstate = "22003"

    def __init__(self, type_name: str) -> None:
        super().__init__(f"{type_name} out of range")


class UnknownZone(AdapterError):
    """A name that no time zone has."""

    condition = "INVALID_PARAMETER_VALUE"
    sqlstate = "22023"

    def __init__(self, name: str) -> None:
        super().__init__(f'time zone "{name}" not recognized')


class DisplacementOutOfRange(AdapterError):
    """A time zone further from UTC than there is any."""

    condition = "INVALID_TIME_ZONE_DISPLACEMENT_VALUE"
    sqlstate = "22009"

    def __init__(self, text: str) -> None:
        super().__init__(f'time zone displacement out of range: "{text}"')
