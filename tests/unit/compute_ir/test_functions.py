"""The lists of functions that depend on order, and what keeps their answers exact."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from statistics import pvariance, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.compute.catalyst.rounding import (
    ONE,
    TWO,
    VECTOR,
    exact_average,
    exact_co_moment,
    exact_moment,
    exact_sum,
    exact_vector,
)
from headwater.compute.ir.functions import FLOATING, ORDERED, POSITIONAL, RANKING, UNSTABLE

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
ALIASES = {"mean", "try_avg", "std", "stddev", "variance", "sum", "try_sum", "avg"}


def test_the_lists_do_not_contradict_each_other() -> None:
    assert not ORDERED & FLOATING
    assert not POSITIONAL & RANKING
    assert not (ORDERED | FLOATING | POSITIONAL | RANKING) & set(UNSTABLE)
    computed = set(ONE) | set(TWO) | set(VECTOR) | ALIASES
    assert computed >= FLOATING, "every rounding function is computed exactly"


@given(st.lists(FINITE, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_a_sum_is_the_exact_one_rounded_once_in_any_order(
    values: list[float], random: Random
) -> None:
    exact = sum(map(Fraction, values), Fraction())
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.inf if exact > 0 else -math.inf
    assert exact_sum(values) == expected
    shuffled = random.sample(values, len(values))
    assert exact_sum(shuffled) == expected
    for function in ("var_pop", "stddev_samp", "skewness"):
        assert exact_moment(function, shuffled) == exact_moment(function, values)


def test_what_is_not_finite() -> None:
    assert exact_sum([]) is None
    assert exact_average([]) is None
    assert exact_sum([math.inf, 1.0]) == math.inf
    assert math.isnan(exact_sum([math.inf, -math.inf, 1.0]) or 0)
    assert math.isnan(exact_sum([math.nan, math.inf]) or 0)
    assert exact_sum([1.7e308, 1.7e308, -1.7e308]) == 1.7e308
    assert exact_sum([1.7e308, 1.7e308]) == math.inf
    assert math.isnan(exact_moment("var_pop", [1.0, math.inf]) or 0)
    assert math.isnan(exact_co_moment("corr", [(1.0, math.nan), (1.0, 2.0)]) or 0)
    assert exact_moment("var_pop", []) is None
    assert exact_vector("vector_sum", []) is None
    assert exact_co_moment("corr", []) is None


def test_samples_that_are_too_small() -> None:
    assert exact_moment("var_samp", [3.0]) is None
    assert exact_moment("var_pop", [3.0]) == 0.0
    assert exact_moment("skewness", [3.0, 3.0]) is None
    assert exact_co_moment("covar_samp", [(1.0, 2.0)]) is None
    assert exact_co_moment("regr_slope", [(1.0, 2.0), (3.0, 2.0)]) is None
    assert exact_co_moment("regr_r2", [(1.0, 2.0), (1.0, 3.0)]) == 1.0


def test_known_values() -> None:
    values = [0.1, 0.2, 0.4, 1e10]
    exact = [Fraction(v) for v in values]
    assert exact_moment("var_pop", values) == float(pvariance(exact))
    assert exact_moment("var_samp", values) == float(variance(exact))
    pairs = [(1.0, 2.0), (2.0, 4.0), (3.0, 6.5)]
    assert exact_co_moment("covar_pop", pairs) == pytest.approx(1.5)
    assert exact_co_moment("regr_avgx", pairs) == 12.5 / 3
    vectors: list[list[float | None]] = [[1e16, 1.0], [1.0, None], [1.0, 2.0], [-1e16, 3.0]]
    assert exact_vector("vector_sum", vectors) == [1.0, 6.0], "one with a NULL does not count"
    assert exact_vector("vector_avg", vectors[::-1]) == [1 / 3, 2.0]
