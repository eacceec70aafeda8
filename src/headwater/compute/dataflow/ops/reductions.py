"""Aggregate functions of the rows a group has, for all versions of all groups at once.

    answer(call, members) -> one value per version        a function of the version's multiset

The functions, as ``catalyst/ordered.py`` renders them; *rank* is the place of a row in the
canonical order of its group, which is the order in which :class:`~.groups.Members` has the rows:

    min, max        least, greatest value in SQL's order; a zero is 0.0, as it is for a group
    first, last     the value of least, of greatest rank (``ignore_nulls``: that is not NULL)
    min_by, max_by  of (x, y): the x of the least, greatest y that is not NULL; ties by least rank
    mode            the least of the most frequent values
    count           rows in which no argument is NULL; ``count_if``: in which it is true
    sum, avg        exact, rounded once; ``try_sum`` is NULL where the sum does not fit
    median          the middle one, or between the middle two as Spark interpolates, in doubles
    collect_list    the values by rank; collect_set: each once, in their order

``distinct`` counts each value once, compared as groups are. NULLs do not count anywhere but in
first and last. A sum that does not fit into its type has *failed*: it is NULL, and an error.

A float's sum is a Python loop over versions (``catalyst/rounding.py`` is its definition); all else
is vectorised. Not here, and so recomputed: sketches, ``listagg``, percentiles other than the median
(their parts are no columns), medians of floats (Spark lets 0.0 and -0.0 be two values there),
values that hold floats inside where values are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.type_table import UnsupportedType
from headwater.collection.types import SqlType, by_spark
from headwater.compute.catalyst.rounding import exact_average, exact_sum
from headwater.compute.dataflow.graph import ReduceCall
from headwater.compute.dataflow.ops.exact import doubles, peak, whole_numbers
from headwater.compute.dataflow.ops.groups import (
    NOWHERE,
    Longs,
    Mask,
    Members,
    normalised,
    numbered,
    one_array,
    order_codes,
    pick,
)

Exact = npt.NDArray[Any]
Answer = tuple[Any, Mask | None]
"""A value per version; and which of them have failed, where any can."""

_ALIASES: Final = {
    "any": "bool_or",
    "any_value": "first",
    "array_agg": "collect_list",
    "every": "bool_and",
    "first_value": "first",
    "last_value": "last",
    "mean": "avg",
    "some": "bool_or",
}
_WHOLE: Final = frozenset({"tinyint", "smallint", "integer", "bigint"})
_FLOATS: Final = frozenset({"real", "double precision"})
_SPARK_DIVISION_SCALE: Final = 38

RANKED: Final = frozenset({"first", "last", "min_by", "max_by", "collect_list"})
"""Functions whose answer depends on the canonical order of the rows, unless ``distinct``."""


def canonical(function: str) -> str:
    """Return the name under which a function is known here."""
    return _ALIASES.get(function, function)


def is_reducible(function: str, argument_types: Sequence[str], distinct: bool) -> bool:
    """Whether a call can be kept here; types are Spark's texts."""
    try:
        types = [by_spark(text) for text in argument_types]
    except UnsupportedType:
        return False
    kinds = [kind.name for kind in types]
    compared = all(map(_is_compared, types))
    match canonical(function), types:
        case "count", _:
            return not distinct or (bool(types) and compared and not any(map(_is_nested, types)))
        case "count_if" | "bool_and" | "bool_or", [_]:
            return kinds == ["boolean"] and not (distinct and function == "count_if")
        case "min" | "max", [_]:
            return compared
        case "first" | "last", [_]:
            return not distinct or compared
        case "min_by" | "max_by", [_, by]:
            return _is_compared(by)
        case "collect_list", [one]:
            return not distinct or (compared and not _is_nested(one))
        case "collect_set", [one]:
            return compared and not _is_nested(one)
        case "mode", [one]:
            return compared and not distinct and not _is_nested(one)
        case "sum" | "try_sum" | "avg", [_]:
            return kinds[0] in _WHOLE | _FLOATS | {"numeric"}
        case "try_avg", [_]:
            return kinds[0] in _WHOLE | _FLOATS
        case "median", [_]:
            return kinds[0] in _WHOLE | {"numeric"} and not distinct
        case _:
            return False


def _is_nested(type_: SqlType) -> bool:
    return bool(type_.parts)


def _is_compared(type_: SqlType) -> bool:
    """Whether values have one order, here and on Spark."""
    if type_.name == "map":
        return False
    return not _is_nested(type_) or all(
        _is_compared(part) and part.name not in _FLOATS for _, part in type_.parts
    )


def is_ranked(call: ReduceCall) -> bool:
    """Whether a call looks at the order of the rows."""
    return canonical(call.function) in RANKED and not call.distinct


def looked_at(call: ReduceCall) -> tuple[str, ...]:
    """Return the columns that a call looks at."""
    return (*call.arguments, *((call.filter,) if call.filter is not None else ()))


def counted(call: ReduceCall, rows: pa.Table) -> Mask:
    """Return the rows that pass the call's filter and have no NULL where it matters."""
    function = canonical(call.function)
    mask = np.ones(len(rows), np.bool_)
    needed = list(call.arguments)
    if function in ("first", "last") and not call.distinct:
        needed = needed if call.ignore_nulls else []
    elif function in ("min_by", "max_by"):
        needed = needed[1:]
    for name in needed:
        column = rows.column(name)
        if column.null_count:
            mask &= np.asarray(column.is_valid(), dtype=np.bool_)
    flags = [call.filter] if call.filter is not None else []
    flags += [call.arguments[0]] if function == "count_if" else []
    for name in flags:
        mask &= np.asarray(pc.fill_null(rows.column(name), False), dtype=np.bool_)
    return mask


def answer(call: ReduceCall, members: Members) -> Answer:
    """Return the call's value in each version."""
    type_ = by_spark(call.type).arrow
    having = members.where(counted(call, members.rows)[members.row])
    function = canonical(call.function)
    if call.distinct:
        function = {"first": "min", "last": "max", "collect_list": "collect_set"}.get(
            function, function
        )
    columns = [members.rows.column(name) for name in call.arguments]
    if function in _PICKED:
        value = normalised(columns[0]) if function in _VALUES else columns[0]
        return _cast(pick(value, _PICKED[function](having, columns)), type_), None
    if call.distinct:
        having = _once(having, columns)
    match function:
        case "count" | "count_if":
            return pa.array(having.sizes), None
        case "sum" | "try_sum":
            return _sum(having, columns[0], type_, function == "sum")
        case "avg" | "try_avg":
            return _average(having, columns[0], type_)
        case "median":
            return _percentile(having, columns[0], 0.5), None
        case "collect_list":
            return _lists(having.row, having, columns[0], type_), None
        case _:
            assert function == "collect_set", f"{function} is no reduction"
            return _set(having, columns[0], type_), None


def _cast(array: Any, type_: pa.DataType) -> Any:
    return array if array.type == type_ else array.cast(type_)


# ---- a row is chosen -------------------------------------------------------------------------


def _spread(having: Members, at: Longs, values: Longs) -> Longs:
    """Return the values of these versions among all; nowhere for the others."""
    spread = np.full(having.versions, NOWHERE)
    spread[at] = values
    return spread


def _first(having: Members, _: Sequence[Any]) -> Longs:
    at, start = having.segments()
    return _spread(having, at, having.row[start])


def _last(having: Members, _: Sequence[Any]) -> Longs:
    at, start = having.segments()
    return _spread(having, at, having.row[np.append(start, len(having.row))[1:] - 1])


def _least(having: Members, columns: Sequence[Any]) -> Longs:
    """Return the row with the least value of the last column; of these, the one of least rank."""
    at, start = having.segments()
    if not len(at):
        return _spread(having, at, at)
    rows = len(having.rows)
    keys = order_codes(columns[-1])[having.row] * rows + having.row
    return _spread(having, at, np.minimum.reduceat(keys, start) % rows)


def _greatest(having: Members, columns: Sequence[Any]) -> Longs:
    """Return the row with the greatest value of the last column; of these, that of least rank."""
    at, start = having.segments()
    if not len(at):
        return _spread(having, at, at)
    rows = len(having.rows)
    keys = order_codes(columns[-1])[having.row] * rows + (rows - 1 - having.row)
    return _spread(having, at, rows - 1 - np.maximum.reduceat(keys, start) % rows)


def _most_frequent(having: Members, columns: Sequence[Any]) -> Longs:
    codes = order_codes(columns[0])[having.row]
    by_value = np.lexsort((codes, having.version))
    version, codes, row = having.version[by_value], codes[by_value], having.row[by_value]
    if not len(row):
        return _spread(having, row, row)
    fresh = np.concatenate(([True], (version[1:] != version[:-1]) | (codes[1:] != codes[:-1])))
    start = np.flatnonzero(fresh)
    times = np.add.reduceat(having.count[by_value], start)
    version, row = version[start], row[start]
    # Stable: among the equally frequent the least stays first.
    best = np.lexsort((-times, version))
    version, row = version[best], row[best]
    leading = np.concatenate(([True], version[1:] != version[:-1]))
    return _spread(having, version[leading], row[leading])


_PICKED: Final[dict[str, Callable[[Members, Sequence[Any]], Longs]]] = {
    "first": _first,
    "last": _last,
    "min": _least,
    "bool_and": _least,
    "min_by": _least,
    "max": _greatest,
    "bool_or": _greatest,
    "max_by": _greatest,
    "mode": _most_frequent,
}
_VALUES: Final = frozenset({"min", "max", "mode"})
"""Of these, the functions that show a value and not the column of a row."""


# ---- numbers ---------------------------------------------------------------------------------


def _once(having: Members, columns: Sequence[Any]) -> Members:
    """Return one member for each distinct value of a version, with a count of one."""
    numbers, distinct = numbered([normalised(c) for c in columns], len(having.rows))
    codes = having.version * max(len(distinct), 1) + numbers[having.row]
    first = np.sort(np.unique(codes, return_index=True)[1])
    ones = np.ones(len(first), np.int64)
    return Members(having.rows, having.row[first], having.version[first], ones, having.versions)


def totals(having: Members, column: Any) -> Exact:
    """Return the exact sum of an integer or decimal column in each version (unscaled)."""
    sums: Exact = np.zeros(having.versions, object)
    at, start = having.segments()
    if len(at):
        values: Exact = whole_numbers(column).digits[having.row]
        if peak(values) * int(having.count.sum()) >= 2**63:
            values = values.astype(object)
        sums[at] = np.add.reduceat(values * having.count, start)
    return sums


def _sum(having: Members, column: Any, type_: pa.DataType, strict: bool) -> Answer:
    column = one_array(column)
    if pa.types.is_floating(column.type):
        return _each(having, normalised(column), exact_sum), None
    return shown_sum(totals(having, column), having.sizes, type_, strict)


def shown_sum(sums: Exact, sizes: Longs, type_: pa.DataType, strict: bool) -> Answer:
    """Return sums of so many values as a column; those that do not fit are NULL."""
    whole = not pa.types.is_decimal(type_)
    limit = 2 ** (type_.bit_width - 1) if whole else 10**type_.precision
    fits = ((sums < limit) & (sums >= -limit if whole else sums > -limit)).astype(np.bool_)
    known = fits & (sizes > 0)
    return _numbers(sums, known, type_), ~fits if strict else None


def _numbers(values: Exact, known: Mask, type_: pa.DataType) -> Any:
    shown = np.where(known, values, 0)
    if not pa.types.is_decimal(type_):
        return pa.array(shown.astype(np.int64), type_, mask=~known)
    words = np.empty((len(shown), 2), np.uint64)
    words[:, 0] = (shown & (2**64 - 1)).astype(np.uint64)
    words[:, 1] = ((shown >> 64) & (2**64 - 1)).astype(np.uint64)
    valid = pa.array(known).buffers()[1]
    return pa.Array.from_buffers(type_, len(shown), [valid, pa.py_buffer(words.tobytes())])


def _average(having: Members, column: Any, type_: pa.DataType) -> Answer:
    column = one_array(column)
    if pa.types.is_floating(column.type):
        return _each(having, normalised(column), exact_average), None
    scale = column.type.scale if pa.types.is_decimal(column.type) else 0
    return shown_average(totals(having, column), having.sizes, scale, type_)


def shown_average(sums: Exact, sizes: Longs, scale: int, type_: pa.DataType) -> Answer:
    """Return the averages of so many values with these unscaled sums."""
    present = sizes > 0
    divisor = np.where(present, sizes, 1)
    if pa.types.is_floating(type_):
        quotients = np.array([float(number) for number in sums]) / divisor
        return pa.array(quotients, type_, mask=~present), None
    # Spark divides to 38 places and then rounds to the type's, both times half away from zero.
    fine = _half_up(sums * 10 ** (_SPARK_DIVISION_SCALE - scale), divisor.astype(object))
    coarse = 10 ** (_SPARK_DIVISION_SCALE - type_.scale)
    values = _half_up(fine, np.full(len(fine), coarse, object))
    fits = (abs(values) < 10**type_.precision).astype(np.bool_)
    return _numbers(values, present & fits, type_), ~fits


def _half_up(numbers: Exact, divisors: Exact) -> Exact:
    quotients = (2 * abs(numbers) + divisors) // (2 * divisors)
    rounded: Exact = np.where(numbers < 0, -quotients, quotients)
    return rounded


def _each(having: Members, column: Any, function: Callable[[Any], float | None]) -> Any:
    """Return a function of the list of doubles of each version."""
    values = np.asarray(column.cast(pa.float64()).fill_null(0.0))[having.row]
    repeated = np.repeat(values, having.count).tolist()
    ends = np.cumsum(having.sizes)
    found = [
        function(repeated[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    return pa.array(found, pa.float64())


def _percentile(having: Members, column: Any, percentage: float) -> Any:
    """Return the value at this part of the sorted values, between two of them interpolated."""
    codes = order_codes(column)[having.row]
    by_value = np.lexsort((codes, having.version))
    row, end = having.row[by_value], np.cumsum(having.count[by_value])
    present = having.sizes > 0
    sizes = having.sizes[present]
    before = np.cumsum(sizes) - sizes
    numbers = doubles(column)
    position = (sizes - 1) * percentage
    low = np.floor(position)

    def value_at(place: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        index = np.searchsorted(end, before + place.astype(np.int64), "right")
        return numbers[row[index]]

    lower, higher = value_at(low), value_at(np.ceil(position))
    values = np.zeros(having.versions)
    values[present] = lower + (position - low) * (higher - lower)
    return pa.array(values, mask=~present)


# ---- lists -----------------------------------------------------------------------------------


def _lists(row: Longs, having: Members, column: Any, type_: pa.DataType) -> Any:
    values = one_array(column).take(pa.array(np.repeat(row, having.count)))
    offsets = np.concatenate(([0], np.cumsum(having.sizes)))
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), _cast(values, type_.value_type), type=type_
    )


def _set(having: Members, column: Any, type_: pa.DataType) -> Any:
    once = _once(having, [column])
    by_value = np.lexsort((order_codes(column)[once.row], once.version))
    return _lists(once.row[by_value], once, normalised(column), type_)
