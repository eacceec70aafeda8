"""A statement that nobody can read to its end, as :mod:`headwater.adapter.errors` says it."""

from __future__ import annotations

from headwater.adapter.errors import AdapterError


class TooComplex(AdapterError):
    """A statement that is nested more deeply than it can be read."""

    condition = "STATEMENT_TOO_COMPLEX"
    sqlstate = "54001"

    def __init__(self) -> None:
        super().__init__(
            "stack depth limit exceeded",
            detail="Its expressions, brackets or subqueries are nested too deeply.",
            hint="Write it flatter: IN for long chains of OR, WITH for nested subqueries.",
        )
