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

A quotient by 0 is NULL. Kept by: this module; ``tests/unit/dataflow/test_accumulate.py`` holds it
against ``rounding.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from headwater.compute.dataflow.ops.exact import Exact, quotient

Longs = npt.NDArray[np.int64]

Number = tuple[int, int]
"""Digits and exponent."""


def _times(a: Number, b: Number) -> Number:
    return a[0] * b[0], a[1] + b[1]


def _plus(*numbers: Number) -> Number:
    finest = min(exponent for _, exponent in numbers)
    return sum(digits << exponent - finest for digits, exponent in numbers), finest


def _over(numerator: Number, denominator: Number) -> float | None:
    if not denominator[0]:
        return None
    return quotient(numerator[0], denominator[0], numerator[1] - denominator[1])


def _second(n: int, x: Number, xx: Number) -> Number:
    return _plus(_times((n, 0), xx), _times((-1, 0), _times(x, x)))


def _mixed(n: int, x: Number, y: Number, xy: Number) -> Number:
    return _plus(_times((n, 0), xy), _times((-1, 0), _times(x, y)))


def _third(n: int, x: Number, xx: Number, xxx: Number) -> Number:
    cube = _times(x, _times(x, x))
    return _plus(_times((n * n, 0), xxx), _times((-3 * n, 0), _times(x, xx)), _times((2, 0), cube))


def _fourth(n: int, x: Number, xx: Number, xxx: Number, xxxx: Number) -> Number:
    square = _times(x, x)
    return _plus(
        _times((n**3, 0), xxxx),
        _times((-4 * n * n, 0), _times(x, xxx)),
        _times((6 * n, 0), _times(square, xx)),
        _times((-3, 0), _times(square, square)),
    )


def _root(value: float | None, sign: int = 1) -> float | None:
    if value is None:
        return None
    return math.sqrt(value) if sign >= 0 else -math.sqrt(value)


def _var_pop(n: int, *sums: Number) -> float | None:
    return _over(_second(n, *sums), (n * n, 0))


def _var_samp(n: int, *sums: Number) -> float | None:
    return _over(_second(n, *sums), (n * (n - 1), 0))


def _skewness(n: int, x: Number, xx: Number, xxx: Number) -> float | None:
    second, third = _second(n, x, xx), _third(n, x, xx, xxx)
    square = _over(_times(third, third), _times(second, _times(second, second)))
    return _root(square, third[0])


def _kurtosis(n: int, x: Number, xx: Number, xxx: Number, xxxx: Number) -> float | None:
    second = _second(n, x, xx)
    square = _times(second, second)
    return _over(_plus(_fourth(n, x, xx, xxx, xxxx), _times((-3, 0), square)), square)


def _corr(n: int, x: Number, y: Number, xy: Number, xx: Number, yy: Number) -> float | None:
    mixed, both = _mixed(n, x, y, xy), _times(_second(n, x, xx), _second(n, y, yy))
    return _root(_over(_times(mixed, mixed), both), mixed[0])


def _r2(n: int, x: Number, y: Number, xy: Number, xx: Number, yy: Number) -> float | None:
    of_x, of_y, mixed = _second(n, x, xx), _second(n, y, yy), _mixed(n, x, y, xy)
    if of_x[0] and not of_y[0]:
        return 1.0
    return _over(_times(mixed, mixed), _times(of_x, of_y))


def _intercept(n: int, x: Number, y: Number, xy: Number, xx: Number) -> float | None:
    of_x, mixed = _second(n, x, xx), _mixed(n, x, y, xy)
    whole = _plus(_times(y, of_x), _times((-1, 0), _times(mixed, x)))
    return _over(whole, _times((n, 0), of_x))


def _average(n: int, x: Number) -> float:
    return quotient(x[0], 1, x[1]) / n


MOMENTS: Final[dict[str, Callable[..., float | None]]] = {
    "var_pop": _var_pop,
    "var_samp": _var_samp,
    "stddev_pop": lambda n, *sums: _root(_var_pop(n, *sums)),
    "stddev_samp": lambda n, *sums: _root(_var_samp(n, *sums)),
    "skewness": _skewness,
    "kurtosis": _kurtosis,
    "covar_pop": lambda n, *sums: _over(_mixed(n, *sums), (n * n, 0)),
    "covar_samp": lambda n, *sums: _over(_mixed(n, *sums), (n * (n - 1), 0)),
    "corr": _corr,
    "regr_avgx": _average,
    "regr_avgy": _average,
    "regr_sxx": lambda n, *sums: _over(_second(n, *sums), (n, 0)),
    "regr_syy": lambda n, *sums: _over(_second(n, *sums), (n, 0)),
    "regr_sxy": lambda n, *sums: _over(_mixed(n, *sums), (n, 0)),
    "regr_slope": lambda n, x, y, xy, xx: _over(_mixed(n, x, y, xy), _second(n, x, xx)),
    "regr_intercept": _intercept,
    "regr_r2": _r2,
}
"""In what order they take their sums is said where the terms are (``accumulators.py``)."""


def moments(function: str, n: Longs, unbounded: Exact, *products: Exact) -> list[float | None]:
    """Return the value in every state: NULL without rows, NaN where one of them is not finite."""
    evaluate = MOMENTS[function]
    columns = [(product.digits.astype(object), product.exponent) for product in products]
    values: list[float | None] = []
    for row, count in enumerate(n.tolist()):
        if count <= 0:
            values.append(None)
        elif unbounded.digits[row] > 0:
            values.append(math.nan)
        else:
            values.append(evaluate(count, *((d[row], exponent) for d, exponent in columns)))
    return values
