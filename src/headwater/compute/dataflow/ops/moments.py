"""Variance, correlation and their like, from sums of products: exact, rounded at the end.

With ``n`` the number of rows, ``Sxy`` the exact sum of ``x·y`` over them, and the numbers

    A2 = n·Sxx - Sx²     A3 = n²·Sxxx - 3n·Sx·Sxx + 2Sx³     C = n·Sxy - Sx·Sy
    A4 = n³·Sxxxx - 4n²·Sx·Sxxx + 6n·Sx²·Sxx - 3Sx⁴

which are exact, the answers are those that ``catalyst/rounding.py`` defines on the rows themselves,
bit for bit, because both round the same rationals at the same places:

    var_pop A2/n²      var_samp A2/(n(n-1))      skewness ±√(A3²/A2³)       kurtosis A4/A2² - 3
    covar_pop C/n²     covar_samp C/(n(n-1))     corr ±√(C²/(A2x·A2y))      regr_r2 its square
    regr_sxx A2x/n     regr_sxy C/n              regr_slope C/A2x
    regr_intercept (Sy·A2x - C·Sx)/(n·A2x)       regr_avgx Sx, rounded, over n

A quotient by 0 is NULL. All states are computed at once; those of no multiset, which may come up in
between, have any answer. Kept by: this module; ``tests/unit/dataflow/test_accumulate.py`` holds it
against ``rounding.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from headwater.compute.dataflow.ops.exact import Exact, quotient, rounded

Longs = npt.NDArray[np.int64]

Answers = list[float | None]

_ONE: Final = Exact(np.ones(1, np.int64))


def _over(numerator: Exact, denominator: Exact) -> Answers:
    exponent = numerator.exponent - denominator.exponent
    pairs = zip(numerator.digits.tolist(), denominator.digits.tolist(), strict=True)
    return [quotient(a, b, exponent) if b else None for a, b in pairs]


def _roots(squares: Answers, sign: Exact | None = None) -> Answers:
    """Return the roots, with the signs of other numbers."""
    roots = [None if s is None else math.sqrt(s) if s >= 0 else math.nan for s in squares]
    if sign is None:
        return roots
    below = (sign.digits < 0).tolist()
    return [-r if minus and r is not None else r for r, minus in zip(roots, below, strict=True)]


def _second(n: Exact, x: Exact, xx: Exact) -> Exact:
    return n * xx - x * x


def _mixed(n: Exact, x: Exact, y: Exact, xy: Exact) -> Exact:
    return n * xy - x * y


def _third(n: Exact, x: Exact, xx: Exact, xxx: Exact) -> Exact:
    return n * n * xxx - (n * x * xx).times(3) + (x * x * x).times(2)


def _fourth(n: Exact, x: Exact, xx: Exact, xxx: Exact, xxxx: Exact) -> Exact:
    square = x * x
    whole = n * n * n * xxxx - (n * n * x * xxx).times(4)
    return whole + (n * square * xx).times(6) - (square * square).times(3)


def _var_pop(n: Exact, *sums: Exact) -> Answers:
    return _over(_second(n, *sums), n * n)


def _var_samp(n: Exact, *sums: Exact) -> Answers:
    return _over(_second(n, *sums), n * (n - _ONE))


def _skewness(n: Exact, x: Exact, xx: Exact, xxx: Exact) -> Answers:
    second, third = _second(n, x, xx), _third(n, x, xx, xxx)
    return _roots(_over(third * third, second * second * second), third)


def _kurtosis(n: Exact, x: Exact, xx: Exact, xxx: Exact, xxxx: Exact) -> Answers:
    second = _second(n, x, xx)
    square = second * second
    return _over(_fourth(n, x, xx, xxx, xxxx) - square.times(3), square)


def _corr(n: Exact, x: Exact, y: Exact, xy: Exact, xx: Exact, yy: Exact) -> Answers:
    mixed = _mixed(n, x, y, xy)
    return _roots(_over(mixed * mixed, _second(n, x, xx) * _second(n, y, yy)), mixed)


def _r2(n: Exact, x: Exact, y: Exact, xy: Exact, xx: Exact, yy: Exact) -> Answers:
    of_x, of_y, mixed = _second(n, x, xx), _second(n, y, yy), _mixed(n, x, y, xy)
    found = _over(mixed * mixed, of_x * of_y)
    level = (of_x.nonzero & ~of_y.nonzero).tolist()
    return [1.0 if flat else value for value, flat in zip(found, level, strict=True)]


def _intercept(n: Exact, x: Exact, y: Exact, xy: Exact, xx: Exact) -> Answers:
    of_x, mixed = _second(n, x, xx), _mixed(n, x, y, xy)
    return _over(y * of_x - mixed * x, n * of_x)


def _average(n: Exact, x: Exact) -> Answers:
    averages: Answers = (rounded(x) / n.digits).tolist()
    return averages


MOMENTS: Final[dict[str, Callable[..., Answers]]] = {
    "var_pop": _var_pop,
    "var_samp": _var_samp,
    "stddev_pop": lambda n, *sums: _roots(_var_pop(n, *sums)),
    "stddev_samp": lambda n, *sums: _roots(_var_samp(n, *sums)),
    "skewness": _skewness,
    "kurtosis": _kurtosis,
    "covar_pop": lambda n, *sums: _over(_mixed(n, *sums), n * n),
    "covar_samp": lambda n, *sums: _over(_mixed(n, *sums), n * (n - _ONE)),
    "corr": _corr,
    "regr_avgx": _average,
    "regr_avgy": _average,
    "regr_sxx": lambda n, *sums: _over(_second(n, *sums), n),
    "regr_syy": lambda n, *sums: _over(_second(n, *sums), n),
    "regr_sxy": lambda n, *sums: _over(_mixed(n, *sums), n),
    "regr_slope": lambda n, x, y, xy, xx: _over(_mixed(n, x, y, xy), _second(n, x, xx)),
    "regr_intercept": _intercept,
    "regr_r2": _r2,
}
"""In what order they take their sums is said where the terms are (``accumulators.py``)."""


def moments(function: str, n: Longs, unbounded: Exact, products: Sequence[Exact]) -> Answers:
    """Return the value in every state: NULL without rows, NaN where one of them is not finite."""
    values = np.full(len(n), None, object)
    values[(n > 0) & (unbounded.digits > 0)] = math.nan
    finite = np.flatnonzero((n > 0) & (unbounded.digits <= 0))
    if len(finite):
        sums = (Exact(product.digits[finite], product.exponent) for product in products)
        values[finite] = MOMENTS[function](Exact(n[finite]), *sums)
    answers: Answers = values.tolist()
    return answers
