"""Statistics of a part: what its columns can contain, so that a reader may skip it.

A predicate on a column keeps a part unless the statistics prove that no row of it can satisfy the
predicate. Missing statistics prove nothing. NULL satisfies no comparison. NaN is greater than every
number in our order, so a float column with a NaN has no upper bound. Of the system's columns only
the diffs have any: whether a part takes something away (``persist/pieces.py``).

Relied on by: ``persist/read.py``, which audits a sample of what it skips.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headwater.persist.batch import ColumnStats
from headwater.persist.evolution import DIFF, SYSTEM_COLUMNS

STRING_BOUND_MAX: Final = 64
COLUMNS_MAX: Final = 32

Operator = Literal["=", "<", "<=", ">", ">="]


_COMPARE: Final = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Predicate:
    """``column operator value``; NULLs never satisfy it."""

    column: str
    operator: Operator
    value: int | float | str

    def matches(self, table: pa.Table) -> Any:
        """Return a boolean array: which rows satisfy it (NULL counts as not)."""
        column = table.column(self.column)
        found = _COMPARE[self.operator](column, self.value)
        if pa.types.is_floating(column.type) and not isinstance(self.value, str):
            # Arrow's NaN is beside every order; ours is above every number, and equal to itself.
            nan = pc.is_nan(column)
            if math.isnan(self.value):
                found = {"<": pc.invert(nan), "<=": pc.is_valid(column)}.get(self.operator, nan)
                if self.operator == ">":
                    found = pc.and_not(nan, nan)
            elif self.operator in (">", ">="):
                found = pc.or_(found, nan)
        return pc.fill_null(found, fill_value=False)


def of(updates: pa.Table) -> dict[str, ColumnStats]:
    """Return the statistics of the diffs, and of the first columns that can have any."""
    found: dict[str, ColumnStats] = {}
    for field in updates.schema:
        if field.name in SYSTEM_COLUMNS or len(found) == COLUMNS_MAX:
            continue
        column = updates.column(field.name)
        if pa.types.is_integer(field.type) or pa.types.is_string(field.type):
            bounds = pc.min_max(column)
            lower, upper = bounds["min"].as_py(), bounds["max"].as_py()
            if isinstance(lower, str):
                lower = lower[:STRING_BOUND_MAX]
                upper = upper if len(upper) <= STRING_BOUND_MAX else None
            found[field.name] = ColumnStats(lower, upper, column.null_count)
        elif pa.types.is_float64(field.type) or pa.types.is_float32(field.type):
            bounds = pc.min_max(column)
            lower, upper = bounds["min"].as_py(), bounds["max"].as_py()
            if pc.any(pc.is_nan(column)).as_py():
                lower = upper = None
            found[field.name] = ColumnStats(lower, upper, column.null_count)
    diffs = pc.min_max(updates.column(DIFF))
    found[DIFF] = ColumnStats(diffs["min"].as_py(), diffs["max"].as_py(), 0)
    return found


def may_match(known: Mapping[str, ColumnStats], rows: int, predicate: Predicate) -> bool:
    """Whether a row of a part with these statistics can satisfy the predicate."""
    column = known.get(predicate.column)
    if column is None:
        return True
    if column.nulls == rows:
        return False
    lower, upper, value = column.lower, column.upper, predicate.value
    if isinstance(lower if lower is not None else upper, str) != isinstance(value, str):
        return True
    above = lower is not None and lower > value  # type: ignore[operator]
    below = upper is not None and upper < value  # type: ignore[operator]
    match predicate.operator:
        case "=":
            return not above and not below
        case "<":
            return not (lower is not None and lower >= value)  # type: ignore[operator]
        case "<=":
            return not above
        case ">":
            return not (upper is not None and upper <= value)  # type: ignore[operator]
        case ">=":
            return not below
