"""Pairs of two tables between which inequalities hold: what a join without equalities looks at.

    pairs(left, right, comparisons)  ⊇  { (l, r) : left[l].a < right[r].b, …, of all comparisons }

A superset: the join's conditions are evaluated on what is found, by their own rules. Here they only
keep what cannot be from ever becoming rows. NULL is less than nothing. A NaN is compared later.

Every row is compared with every other, column by column, :data:`PAIRS_MAX` pairs at a time: memory
is that of so many truth values and of what is found, and a pair costs some nanoseconds.

Pure. Kept by: ``tests/unit/dataflow/test_within.py``. Relied on by: ``delta_join.py``,
``lower_join.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.compute.dataflow.graph import Comparison, Within
from headwater.compute.dataflow.ops.exact import whole_numbers
from headwater.compute.dataflow.term import decimal
from headwater.compute.ir.expression import NAME

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

PAIRS_MAX: Final = 4_000_000

_TYPES: Final = frozenset(
    [
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "date",
        "timestamp",
        "timestamp_ntz",
        "float",
        "double",
    ]
)
_DIGITS_MAX: Final = 18
"""Of a decimal that fits a number."""
_COMPARE: Final[Mapping[str, Callable[..., Any]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


_COMPARED: Final = re.compile(rf"\(({NAME.pattern}) (<|<=|>|>=) ({NAME.pattern})\)")
_BOTH_WAYS: Final[dict[str, tuple[Comparison, Comparison]]] = {
    "<": ("<", ">"),
    "<=": ("<=", ">="),
    ">": (">", "<"),
    ">=": (">=", "<="),
}


def both_ways(text: str) -> tuple[Within, ...]:
    """Return what a condition compares, seen from either side; nothing, if it is another one.

    >>> [(one.probed, one.comparison, one.found) for one in both_ways("(a_1 < b_1)")]
    [('a_1', '<', 'b_1'), ('b_1', '>', 'a_1')]
    """
    said = _COMPARED.fullmatch(text)
    if said is None:
        return ()
    one, other = _BOTH_WAYS[said[2]]
    return Within(said[1], one, said[3]), Within(said[3], other, said[1])


def is_comparable(left: str, right: str) -> bool:
    """Whether columns of these types can be compared here.

    >>> is_comparable("date", "date"), is_comparable("int", "bigint"), is_comparable("map", "map")
    (True, False, False)
    """
    digits = decimal(left)
    return left == right and (left in _TYPES or (digits is not None and digits[0] <= _DIGITS_MAX))


def pairs(
    left: pa.Table,
    right: pa.Table,
    comparisons: Sequence[Within],
    times: tuple[Longs, Longs, bool] | None = None,
) -> Iterator[tuple[Longs, Longs]]:
    """Yield places of rows on the left with places on the right, piece by piece.

    ``times``: those of both sides, and whether the right one must be before (or not after) the
    left one.
    """
    compared = [
        (_COMPARE[each.comparison], _numbers(left, each.probed), _numbers(right, each.found))
        for each in comparisons
    ]
    if times is not None:
        ours, theirs, strict = times
        compared.append((_COMPARE[">" if strict else ">="], (ours, None), (theirs, None)))
    rows = max(1, PAIRS_MAX // max(1, len(right)))
    for first in range(0, len(left), rows):
        some = slice(first, first + rows)
        met: Mask | None = None
        for compare, (a, a_odd), (b, b_odd) in compared:
            found = compare(a[some, np.newaxis], b[np.newaxis, :])
            if a_odd is not None:
                found |= a_odd[some, np.newaxis]
            if b_odd is not None:
                found |= b_odd[np.newaxis, :]
            met = found if met is None else met & found
        assert met is not None, "something is compared"
        mine, other = np.nonzero(met)
        if len(mine):
            yield mine + first, other


def present(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows without a NULL in these columns."""
    nulls = [name for name in dict.fromkeys(columns) if table.column(name).null_count]
    for name in nulls:
        table = table.filter(table.column(name).is_valid())
    return table


def _numbers(table: pa.Table, name: str) -> tuple[Any, Mask | None]:
    """Return a column's values as numbers in their order; and where they have none: a NaN."""
    column = table.column(name)
    if pa.types.is_floating(column.type):
        doubles = column.cast(pa.float64()).to_numpy()
        odd = np.isnan(doubles)
        return doubles, (odd if odd.any() else None)
    if pa.types.is_decimal(column.type):
        return whole_numbers(column).digits, None
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return column.cast(pa.int64()).to_numpy(), None
