"""Refusals of a setting: of its name, or of its value."""

from __future__ import annotations

from headwater.adapter.errors import AdapterError


class InvalidSetting(AdapterError):
    """A session variable that does not exist, or a value it cannot have."""

    condition = "INVALID_PARAMETER_VALUE"
    sqlstate = "22023"


class NotHonoured(InvalidSetting):
    """A value that PostgreSQL would act on, of a variable that stays what it is here.

    In a start-up packet it is a warning: drivers send some unasked.
    """

    condition = "SETTING_NOT_SUPPORTED"

    def __init__(
        self, name: str, value: str, stays: str, *, detail: str | None = None, hint: str = ""
    ) -> None:
        super().__init__(
            f'parameter "{name}" cannot be set to "{value}"',
            detail=detail or f"It is {stays} here, and stays so.",
            hint=hint or f"Leave it out, or set it to {stays}.",
        )
        self.name = name


class UnknownSetting(AdapterError):
    """No session variable has this name."""

    condition = "UNDEFINED_SETTING"
    sqlstate = "42704"

    def __init__(self, name: str) -> None:
        super().__init__(f'unrecognized configuration parameter "{name}"')
