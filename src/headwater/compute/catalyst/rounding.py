"""Aggregates of floating numbers, rounded once: their answer is a function of the multiset.

Adding floats in another order gives other last bits, so a maintained sum, a recomputed one and a
sum on another number of tasks would differ. Here every one is computed exactly and rounded at the
end:

    sum         the exact sum, rounded to the nearest double
    avg         that sum, divided by the number of values
    variance, covariance and what is made of them: the exact rational, rounded to the nearest
    double; stddev, corr, skewness, kurtosis take roots and quotients of those
    vector_sum, vector_avg: the sum, the average of each place

A NaN makes the answer NaN, as do infinities of both signs in a sum, and any infinity elsewhere. No
value, and fewer than two where a sample needs two: NULL. What looks at one column of pairs must not
see what is not finite in the other, so it is asked of that column alone (``lowering.py``): in new
plans ``regr_avgx`` is an ``avg``, and both columns of ``regr_sxx`` are the same. Where a group is
one row, or a column constant, Spark says so before it says NaN; new plans choose that afterwards
(``degenerate.py``).

Relied on by: ``ordered.py``, which calls them on Spark, and every accumulator that keeps such sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Final


def exact_sum(values: Iterable[float]) -> float | None:
    """Return the sum, rounded once.

    >>> exact_sum([1e308, 1e308, -1e308, -1e308, 0.1, 0.2, -0.3])
    2.7755575615628914e-17
    """
    present = list(values)
    if not present:
        return None
    if not all(map(math.isfinite, present)):
        return sum(value for value in present if not math.isfinite(value))
    try:
        return math.fsum(present)
    except OverflowError:  # a partial sum was too large; the sum itself need not be
        return _rounded(sum(map(Fraction, present), Fraction()))


def exact_average(values: Iterable[float]) -> float | None:
    """Return the rounded sum, divided by the number of values."""
    present = list(values)
    total = exact_sum(present)
    return None if total is None else total / len(present)


def _rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _central(values: Sequence[Fraction], power: int) -> Fraction:
    mean = sum(values, Fraction()) / len(values)
    return sum(((value - mean) ** power for value in values), Fraction())


def _co_moment(xs: Sequence[Fraction], ys: Sequence[Fraction]) -> Fraction:
    mean_x, mean_y = sum(xs, Fraction()) / len(xs), sum(ys, Fraction()) / len(ys)
    return sum(((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)), Fraction())


def _over(numerator: Fraction, denominator: Fraction | int) -> float | None:
    return _rounded(numerator / denominator) if denominator else None


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def _signed_root(sign: Fraction, numerator: Fraction, denominator: Fraction) -> float | None:
    """Return the root of a quotient with the sign of another number."""
    root = _root(_over(numerator, denominator))
    return None if root is None else root if sign >= 0 else -root


def _skewness(values: Sequence[Fraction]) -> float | None:
    second, third = _central(values, 2), _central(values, 3)
    return _signed_root(third, len(values) * third**2, second**3)


def _kurtosis(values: Sequence[Fraction]) -> float | None:
    second = _central(values, 2)
    return _over(len(values) * _central(values, 4) - 3 * second**2, second**2)


def _corr(ys: Sequence[Fraction], xs: Sequence[Fraction]) -> float | None:
    together = _co_moment(xs, ys)
    return _signed_root(together, together**2, _central(xs, 2) * _central(ys, 2))


def _r2(ys: Sequence[Fraction], xs: Sequence[Fraction]) -> float | None:
    if not _central(xs, 2):
        return None
    if not _central(ys, 2):
        return 1.0
    return _over(_co_moment(xs, ys) ** 2, _central(xs, 2) * _central(ys, 2))


def _intercept(ys: Sequence[Fraction], xs: Sequence[Fraction]) -> float | None:
    if not _central(xs, 2):
        return None
    slope = _co_moment(xs, ys) / _central(xs, 2)
    return _rounded((sum(ys, Fraction()) - slope * sum(xs, Fraction())) / len(xs))


Moments = Callable[[Sequence[Fraction]], float | None]
CoMoments = Callable[[Sequence[Fraction], Sequence[Fraction]], float | None]

ONE: Final[dict[str, Moments]] = {
    "var_pop": lambda v: _over(_central(v, 2), len(v)),
    "var_samp": lambda v: _over(_central(v, 2), len(v) - 1),
    "stddev_pop": lambda v: _root(_over(_central(v, 2), len(v))),
    "stddev_samp": lambda v: _root(_over(_central(v, 2), len(v) - 1)),
    "skewness": _skewness,
    "kurtosis": _kurtosis,
}
"""Of one column."""

TWO: Final[dict[str, CoMoments]] = {
    "covar_pop": lambda a, b: _over(_co_moment(a, b), len(a)),
    "covar_samp": lambda a, b: _over(_co_moment(a, b), len(a) - 1),
    "corr": _corr,
    "regr_avgx": lambda _, x: _rounded(sum(x, Fraction())) / len(x),
    "regr_avgy": lambda y, _: _rounded(sum(y, Fraction())) / len(y),
    "regr_sxx": lambda _, x: _rounded(_central(x, 2)),
    "regr_syy": lambda y, _: _rounded(_central(y, 2)),
    "regr_sxy": lambda y, x: _rounded(_co_moment(x, y)),
    "regr_slope": lambda y, x: _over(_co_moment(x, y), _central(x, 2)),
    "regr_intercept": _intercept,
    "regr_r2": _r2,
}
"""Of two columns, the dependent one first, over the rows in which both are present.

Plans that were stored before ``lowering.of_one_column`` have ``regr_avgx`` and ``regr_avgy`` as
calls of pairs, NaN where any number is not finite. Their states and outputs are of that meaning, so
it is kept.
"""


def exact_moment(function: str, values: Iterable[float]) -> float | None:
    """Return a function of :data:`ONE`."""
    present = list(values)
    if not present:
        return None
    if not all(map(math.isfinite, present)):
        return math.nan
    return ONE[function]([Fraction(value) for value in present])


def exact_co_moment(function: str, pairs: Iterable[tuple[float, float]]) -> float | None:
    """Return a function of :data:`TWO`."""
    present = list(pairs)
    if not present:
        return None
    if not all(math.isfinite(a) and math.isfinite(b) for a, b in present):
        return math.nan
    return TWO[function]([Fraction(a) for a, _ in present], [Fraction(b) for _, b in present])


VECTOR: Final[dict[str, Callable[[Iterable[float]], float | None]]] = {
    "vector_sum": exact_sum,
    "vector_avg": exact_average,
}


def exact_vector(
    function: str, vectors: Iterable[Sequence[float | None]]
) -> list[float | None] | None:
    """Return a function of :data:`VECTOR` of each place; one with a NULL in it does not count.

    That all have as many places Spark has seen.
    """
    present = [[x for x in vector if x is not None] for vector in vectors if None not in vector]
    if not present:
        return None
    return [VECTOR[function](place) for place in zip(*present, strict=True)]
