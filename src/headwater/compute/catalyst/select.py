"""A SELECT as text: the one place where plan texts are put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NOTHING: Final = "_nothing_0"
"""The column of a row that has none."""


def select(outputs: Sequence[str], source: str) -> str:
    """Return the SELECT of these outputs, each with its name; of :data:`NOTHING` for none."""
    shown = ", ".join(outputs) or f"true AS {NOTHING}"
    return f"SELECT {shown} FROM {source}"  # noqa: S608 - texts of a checked plan, not of a user
