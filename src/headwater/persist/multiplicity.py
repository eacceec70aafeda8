"""Rows as often as they are there: a multiset (each distinct row once, with ``__diff``) unfolded.

A collection at a time is a multiset; SQL and everybody who counts wants to see its rows. A row that
is there fewer than zero times has no such form: something retracted what was never inserted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.base.errors import HeadwaterError
from headwater.persist.evolution import DIFF


class NegativeMultiplicity(HeadwaterError):
    """A collection that at some time holds a row fewer than zero times: it has no rows to show."""

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(
            f"collection {name!r} has {rows} row(s) with a negative multiplicity; "
            f"something retracted what was never inserted"
        )


def repeat_rows(multiset: pa.Table, name: str) -> pa.Table:
    """Return each row as often as ``__diff`` says, without that column."""
    diffs = multiset.column(DIFF).to_numpy()
    if (diffs < 0).any():
        raise NegativeMultiplicity(name, int((diffs < 0).sum()))
    rows = multiset.drop_columns([DIFF])
    if (diffs == 1).all():
        return rows
    return rows.take(pa.array(np.repeat(np.arange(len(diffs)), diffs)))
