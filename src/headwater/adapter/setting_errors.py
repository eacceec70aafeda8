"""What can be wrong with a setting that is known, as :mod:`headwater.adapter.errors` says it."""

from __future__ import annotations

from headwater.adapter.errors import InvalidSetting


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
