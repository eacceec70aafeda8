"""What is said of a query that we do not take: the construct, the reason, the remedy, the place.

A query that is not on the allow-list is refused, never guessed: a clause that was silently left out
would be a wrong view for ever. :class:`InvalidPlan` is another thing: the plan itself contradicts
itself, which is a defect of ours, or of the bytes it was read from.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.base.errors import HeadwaterError, InvalidUsage


class Position(NamedTuple):
    """A place in the text of a query, both counted from 1."""

    line: int
    column: int


class Refused(InvalidUsage):
    """A query we do not take. ``construct`` is what stands in it, ``reason`` why it cannot be."""

    def __init__(
        self, construct: str, reason: str, *, hint: str = "", position: Position | None = None
    ) -> None:
        place = f" (line {position.line}, column {position.column})" if position else ""
        super().__init__(f"{construct}{place}: {reason}" + (f"; {hint}" if hint else ""))
        self.construct, self.reason, self.hint = construct, reason, hint
        self.position = position


class NotUnderstood(InvalidUsage):
    """Spark cannot read or analyse the text; ``condition`` and ``sqlstate`` are its own."""

    def __init__(
        self,
        message: str,
        *,
        condition: str = "",
        sqlstate: str = "",
        position: Position | None = None,
    ) -> None:
        place = f" (line {position.line}, column {position.column})" if position else ""
        super().__init__(f"{message}{place}")
        self.condition, self.sqlstate, self.position = condition, sqlstate, position


class InvalidPlan(HeadwaterError):
    """A plan that contradicts itself; nobody can have written it but us."""


class OtherMeaning(HeadwaterError):
    """A stored plan made under another version or other settings: hydrate again, never mix."""
