"""What a followed table can do to whoever follows it."""

from __future__ import annotations


class Misfit(Exception):
    """A table is not any more what the source was defined with; the message names the column."""
