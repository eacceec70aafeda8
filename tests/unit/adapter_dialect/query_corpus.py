"""Whole queries for the corpus, one a line in ``queries.sql``: clauses, scopes, sets, windows.

A query whose rows have an order that its text decides starts with ``=``: then order is compared,
too.
"""

from __future__ import annotations

from pathlib import Path

QUERIES: tuple[str, ...] = tuple(
    (Path(__file__).parent / "queries.sql").read_text("utf-8").splitlines()
)
