"""Aggregates that are functions of sums: which sums each needs, and what it makes of them.

A *term* is a sum over the rows of a group, so that a change of the rows changes it by what they
add, with the sign of their diff, and nothing else of the group has to be read. With ``[c]`` being
1 where ``c`` holds and 0 elsewhere:

    count      Σ [all of ``present`` are not NULL]                  how many values there were
    true       Σ [x is true]
    sum        Σ x                     integers, unscaled decimals, microseconds; exact
    product    Σ Π factors             as doubles, exact (``exact.py``); of rows that are finite
    nan, up, down                      Σ [x is NaN], Σ [x = +∞], Σ [x = -∞]
    unbounded  Σ [one of ``present`` is NaN or ±∞]
    xor        ⊕ x                     a sum as well, in which every number is its own negative

each of rows where ``filter`` is true and ``present`` is not NULL. Two calls share a term they both
need. What ``rounding.py`` defines of moments is made of them in ``moments.py``; sums and averages
here: a sum is judged when it is asked for, so what it passed through does not count.

Kept by: this module; ``tests/spark/test_accumulate_meaning.py`` holds every answer against Spark's.
Relied on by: ``accumulate.py``; the lowering asks what can be kept so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.collection.type_table import UnsupportedType
from headwater.collection.types import by_spark
from headwater.compute.catalyst import rounding
from headwater.compute.dataflow.graph import AccumulateCall
from headwater.compute.dataflow.memory import Numbers
from headwater.compute.dataflow.ops import exact
from headwater.compute.dataflow.ops.changes import COUNT, Stored
from headwater.compute.dataflow.ops.exact import Exact
from headwater.compute.dataflow.ops.moments import moments
from headwater.compute.ir.expression import Column

Longs = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_ALIASES: Final = {
    "any": "bool_or",
    "every": "bool_and",
    "mean": "avg",
    "regr_count": "count",
    "some": "bool_or",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "variance": "var_samp",
}
_SUMS: Final = frozenset({"sum", "try_sum", "avg", "try_avg"})
_TRUTHS: Final = frozenset({"count_if", "bool_and", "bool_or"})
_INTEGERS: Final = frozenset({"tinyint", "smallint", "integer", "bigint"})
_NUMBERS: Final = _INTEGERS | {"numeric", "real", "double precision"}
_FLOATS: Final = frozenset({"real", "double precision"})

_LONG_BITS: Final = 63
_DECIMAL_DIGITS_MAX: Final = 38
_SUM_DIGITS_MORE: Final = 10
"""Spark's sum of decimals has so many digits more."""


def canonical(function: str) -> str:
    """Return the one name of an aggregate function.

    >>> canonical("stddev"), canonical("every"), canonical("sum")
    ('stddev_samp', 'bool_and', 'sum')
    """
    return _ALIASES.get(function, function)


def is_accumulable(function: str, argument_types: Sequence[str]) -> bool:
    """Whether a call (not DISTINCT) over columns of these types is a function of sums.

    >>> is_accumulable("avg", ("decimal(10,2)",)), is_accumulable("max", ("int",))
    (True, False)
    """
    try:
        types = [by_spark(type_).name for type_ in argument_types]
    except UnsupportedType:
        return False
    function = canonical(function)
    if function == "count":
        return True
    if function in rounding.TWO:
        return len(types) == 2 and set(types) <= _NUMBERS
    allowed: frozenset[str] = frozenset()
    if function in _SUMS:
        allowed = _NUMBERS | {"interval"}
    elif function in _TRUTHS:
        allowed = frozenset({"boolean"})
    elif function == "bit_xor":
        allowed = _INTEGERS
    elif function in rounding.ONE:
        allowed = _NUMBERS
    return len(types) == 1 and types[0] in allowed


# ---- terms -----------------------------------------------------------------------------------

Kind = Literal["count", "true", "sum", "product", "nan", "up", "down", "unbounded", "xor"]


@dataclass(frozen=True, slots=True)
class Term:
    """A sum that is kept per group."""

    kind: Kind
    factors: tuple[str, ...] = ()
    """The columns that are added or multiplied."""
    present: tuple[str, ...] = ()
    """Columns that must not be NULL for a row to count."""
    filter: str | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is a number of any size, stored as such."""
        return self.kind in ("sum", "product")

    def column(self, number: int) -> Column:
        """Return where the state has it; ``number`` is its place among the terms."""
        if self == ROWS:
            return COUNT
        return Column(f"_{self.kind}{number}_0", "binary" if self.is_number else "bigint", False)

    def before(self, name: str, of: Stored) -> Exact:
        """Return what the state has in a column for each group."""
        found = []
        if len(of.known):
            digits = of.recalled[name]
            exponents = of.recalled.get(_exponents(name))
            known = Exact(digits) if exponents is None else exact.one_unit(digits, exponents)
            found.append(known.scattered(of.known, of.size))
        if of.updates is not None:
            updates = self._loaded(of.updates.table.column(name))
            found.append(updates.summed(of.updates.diffs, of.updates.places, of.size))
        if not found:
            return Exact(np.zeros(of.size, np.int64))
        return found[0] if len(found) == 1 else found[0] + found[1]

    def _loaded(self, stored: Any) -> Exact:
        if self.is_number:
            return exact.decoded(stored, fractional=self.kind == "product")
        return Exact(stored.to_numpy())

    def stored(self, numbers: Exact) -> Any:
        """Return a column of the state."""
        if self.is_number:
            return exact.encoded(numbers, fractional=self.kind == "product")
        return pa.array(numbers.digits.astype(np.int64))

    def remembered(self, name: str, numbers: Exact) -> dict[str, Numbers]:
        """Return what a memory has instead of a column of the state."""
        if self.kind != "product":
            return {name: exact.narrowed(numbers.digits)}
        digits, exponents = exact.odds(numbers)
        return {name: digits, _exponents(name): exponents}


ROWS: Final = Term("count")
"""How many rows there are, whatever is in them."""


def _exponents(name: str) -> str:
    return f"{name}.exponents"


def terms_of(
    calls: Iterable[AccumulateCall], types: Mapping[str, str]
) -> tuple[tuple[Term, ...], ...]:
    """Return the terms of each call, given the types of the input's columns."""
    return tuple(tuple(_terms(call, types)) for call in calls)


def distinct_terms(calls: Iterable[AccumulateCall], types: Mapping[str, str]) -> tuple[Term, ...]:
    """Return what is kept for these calls, in the order of the state's columns."""
    needed = (term for terms in terms_of(calls, types) for term in terms)
    return tuple(dict.fromkeys([ROWS, *needed]))


def _terms(call: AccumulateCall, types: Mapping[str, str]) -> list[Term]:
    arguments = call.arguments

    def term(kind: Kind, *factors: str) -> Term:
        return Term(kind, factors, arguments, call.filter)

    if call.function == "count":
        return [term("count")]
    if call.function == "count_if":
        return [term("true", *arguments)]
    found = [term("count")]
    if call.function in ("bool_and", "bool_or"):
        return [*found, term("true", *arguments)]
    if call.function == "bit_xor":
        return [*found, term("xor", *arguments)]
    if call.function in _SUMS:
        (x,) = arguments
        if by_spark(types[x]).name in _FLOATS:
            return [*found, term("product", x), *(term(k, x) for k in ("nan", "up", "down"))]
        return [*found, term("sum", x)]
    if (averaged := _decimal_average(call, types)) is not None:
        return [*found, term("sum", averaged)]
    found.append(term("unbounded"))
    return [*found, *(term("product", *factors) for factors in _products(call))]


def _decimal_average(call: AccumulateCall, types: Mapping[str, str]) -> str | None:
    """Return the column of which a call of two columns is the average, if that is a decimal.

    Only stored views have such calls; of new ones they are averages (``catalyst/lowering.py``).
    """
    place = {"regr_avgy": 0, "regr_avgx": 1}.get(call.function)
    if place is None or by_spark(types[call.arguments[place]]).name != "numeric":
        return None
    return call.arguments[place]


def _products(call: AccumulateCall) -> list[tuple[str, ...]]:
    if call.function in rounding.ONE:
        (x,) = call.arguments
        power = {"skewness": 3, "kurtosis": 4}.get(call.function, 2)
        return [(x,) * n for n in range(1, power + 1)]
    y, x = call.arguments
    match call.function:
        case "regr_avgx":
            return [(x,)]
        case "regr_avgy":
            return [(y,)]
        case "regr_sxx":
            return [(x,), (x, x)]
        case "regr_syy":
            return [(y,), (y, y)]
        case "covar_pop" | "covar_samp" | "regr_sxy":
            return [(x,), (y,), (x, y)]
        case "regr_slope" | "regr_intercept":
            return [(x,), (y,), (x, y), (x, x)]
        case _:
            return [(x,), (y,), (x, y), (x, x), (y, y)]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a delta, as terms look at them."""

    table: pa.Table
    _doubles: dict[str, Doubles] = field(default_factory=dict)

    def added(self, term: Term) -> Exact:
        """Return what one of each row adds to a number, or to a bitwise one."""
        counts = self._counts(term)
        if term.kind in ("sum", "xor"):
            numbers = exact.whole_numbers(self.table.column(term.factors[0]))
            return numbers if counts is None else Exact(np.where(counts, numbers.digits, 0))
        assert term.kind == "product", f"a {term.kind} is counted"
        counts = _both(counts, self._finite(term))
        first, *others = (self._as_doubles(name) for name in term.factors)
        product = exact.from_doubles(np.where(counts, first, 0.0))
        for other in others:
            product = product * exact.from_doubles(np.where(counts, other, 0.0))
        return product

    def counted(self, term: Term) -> Mask | None:
        """Return which rows a count counts; ``None``: all of them."""
        counts = self._counts(term)
        match term.kind:
            case "count":
                return counts
            case "true":
                column = self.table.column(term.factors[0]).fill_null(False)
                return _both(counts, np.asarray(column, dtype=np.bool_))
            case "nan":
                return _both(counts, np.isnan(self._as_doubles(term.factors[0])))
            case "up":
                return _both(counts, np.isposinf(self._as_doubles(term.factors[0])))
            case "down":
                return _both(counts, np.isneginf(self._as_doubles(term.factors[0])))
            case _:
                assert term.kind == "unbounded", f"a {term.kind} is added up"
                return _both(counts, ~self._finite(term))

    def _counts(self, term: Term) -> Mask | None:
        """Return which rows the filter keeps and nothing is NULL in; ``None``: all of them."""
        counts = None
        if term.filter is not None:
            column = self.table.column(term.filter).fill_null(False)
            counts = np.asarray(column, dtype=np.bool_)
        for name in term.present:
            column = self.table.column(name)
            if column.null_count:
                counts = _both(counts, np.asarray(column.is_valid(), dtype=np.bool_))
        return counts

    def _finite(self, term: Term) -> Mask:
        finite = np.ones(len(self.table), np.bool_)
        for name in term.present:
            finite &= np.isfinite(self._as_doubles(name))
        return finite

    def _as_doubles(self, name: str) -> Doubles:
        if name not in self._doubles:
            self._doubles[name] = exact.doubles(self.table.column(name))
        return self._doubles[name]


def _both(counts: Mask | None, others: Mask) -> Mask:
    return others if counts is None else counts & others


# ---- answers ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """The value of a call in every state; NULL as well where it does not fit its type."""

    values: Any
    overflow: Mask | None = None
    """Where it does not fit; ``None``: it fits everywhere."""


States = Mapping[Term, Exact]


def answer(
    call: AccumulateCall, terms: Sequence[Term], types: Mapping[str, str], states: States
) -> Answer:
    """Return the value of a call in every state, given what :func:`terms_of` says it needs."""
    first, *others = (states[term] for term in terms)
    n: Longs = first.digits.astype(np.int64)
    match call.function:
        case "count" | "count_if":
            return Answer(pa.array(n))
        case "bool_and":
            return Answer(pa.array(others[0].digits == n, mask=n <= 0))
        case "bool_or":
            return Answer(pa.array(others[0].digits > 0, mask=n <= 0))
        case "bit_xor":
            return Answer(pa.array(others[0].digits, by_spark(call.type).arrow, mask=n <= 0))
        case _ if terms[1].kind == "sum":
            return _exact_sum(call, types[terms[1].factors[0]], n, others[0])
        case "sum" | "try_sum":
            return Answer(pa.array(_floating_sum(*others), mask=n <= 0))
        case "avg" | "try_avg":
            return Answer(pa.array(_floating_sum(*others) / np.maximum(n, 1), mask=n <= 0))
        case _:
            values = moments(call.function, n, others[0], others[1:])
            return Answer(pa.array(values, pa.float64()))


def _floating_sum(total: Exact, nan: Exact, up: Exact, down: Exact) -> Doubles:
    sums = exact.rounded(total)
    sums = np.where(up.digits > 0, np.inf, np.where(down.digits > 0, -np.inf, sums))
    undefined = (nan.digits > 0) | ((up.digits > 0) & (down.digits > 0))
    return np.where(undefined, np.nan, sums)


def _exact_sum(call: AccumulateCall, argument: str, n: Longs, total: Exact) -> Answer:
    type_, of = by_spark(call.type).arrow, by_spark(argument)
    known = n > 0
    scale = of.args[1] if of.name == "numeric" else 0
    averaged = call.function not in ("sum", "try_sum")
    if pa.types.is_floating(type_):
        assert not scale, f"{call.name}: an average of {argument} is no {call.type}"
        values = exact.rounded(total) / np.maximum(n, 1)
        return Answer(pa.array(values, mask=~known))
    digits, fits = total.digits, known
    if averaged:
        most = min(of.args[0] + _SUM_DIGITS_MORE, _DECIMAL_DIGITS_MAX) if of.args else None
        fits = fits & _below(digits, 10**most if most else 2**_LONG_BITS)
        wanted = type_.scale if pa.types.is_decimal(type_) else 0
        digits = _averages(digits, np.maximum(n, 1), scale, wanted)
    elif pa.types.is_decimal(type_):
        assert type_.scale == scale, f"{call.name}: a sum of {argument} is no {call.type}"
    limit = 10**type_.precision if pa.types.is_decimal(type_) else 2**_LONG_BITS
    fits = fits & _below(digits, limit)
    overflow = known & ~fits
    values = _column(np.where(fits, digits, 0), type_, fits)
    return Answer(values, None if call.function.startswith("try_") else overflow)


def _below(digits: exact.Digits, limit: int) -> Mask:
    if digits.dtype != object and limit >= 2**_LONG_BITS:
        return np.ones(len(digits), np.bool_)
    # Of the integers of n bits one more is negative; decimals have no such number.
    least = -limit if limit == 2**_LONG_BITS else 1 - limit
    return np.asarray((digits >= least) & (digits < limit), dtype=np.bool_)


def _averages(digits: exact.Digits, n: Longs, scale: int, wanted: int) -> exact.Digits:
    """Return sums of one scale divided by counts, in another scale; halves away from zero.

    Spark cuts the quotient off at scale 39 before it rounds to 38 or less, which changes nothing.
    """
    finer = 10 ** (wanted - scale)
    if digits.dtype == object or 2 * exact.peak(digits) * finer + int(n.max(initial=1)) >= 2**62:
        digits, n = digits.astype(object), n.astype(object)
    nearest: exact.Digits = (2 * np.abs(digits) * finer + n) // (2 * n)
    return np.where(digits < 0, -nearest, nearest)


def _column(digits: exact.Digits, type_: pa.DataType, known: Mask) -> Any:
    digits = exact.narrowed(digits)
    if not pa.types.is_decimal(type_):
        return pa.array(digits.astype(np.int64), mask=~known).cast(type_)
    words = np.empty((len(digits), 2), np.int64)
    if digits.dtype != object:
        words[:, 0], words[:, 1] = digits, digits >> 63
    else:
        words[:, 0] = (digits & (2**64 - 1)).astype(np.uint64).view(np.int64)
        words[:, 1] = (digits >> 64).astype(np.int64)
    bits = pa.array(known).buffers()[1]
    return pa.Array.from_buffers(type_, len(digits), [bits, pa.py_buffer(words.tobytes())])
