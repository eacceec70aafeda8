"""Exact numbers: no bit is lost, and what is made of them is nearest."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headwater.compute.dataflow.ops import exact
from tests.unit.dataflow.brute_force import SEED, any_decimal, any_double


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"SEED={SEED}")


def _fractions(numbers: exact.Exact) -> list[Fraction]:
    return [Fraction(int(n)) * Fraction(2) ** numbers.exponent for n in numbers.digits]


def _eighth(random: Random) -> float:
    return random.randint(-9, 9) / 8


def test_exact_numbers_are_exact() -> None:
    random = Random(SEED)
    for _ in range(300):
        spread: Callable[[Random], float] = random.choice([any_double, _eighth, Random.random])
        values = [spread(random) for _ in range(random.randrange(1, 8))]
        numbers = exact.from_doubles(np.array(values))
        assert _fractions(numbers) == list(map(Fraction, values))
        assert exact.rounded(numbers).tolist() == values
        squares = numbers * numbers
        assert _fractions(squares) == [Fraction(v) ** 2 for v in values]
        for number in (numbers, squares):
            stored = exact.encoded(number, fractional=True)
            back = exact.decoded(stored, fractional=True)
            assert _fractions(back) == _fractions(number)
            finer = back.at(back.exponent - random.randrange(80))
            assert exact.encoded(finer, fractional=True).equals(stored)
            alone = [
                exact.encoded(
                    exact.Exact(number.digits[n : n + 1], number.exponent), fractional=True
                )
                for n in range(len(values))
            ]
            assert pa.concat_arrays(alone).equals(stored)


def test_whole_numbers_are_stored_in_words() -> None:
    random = Random(SEED)
    edges = [0, 1, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**38, -(10**40), 2**127]
    for _ in range(200):
        values = random.choices(edges, k=random.randrange(1, 5))
        digits = np.empty(len(values), object)
        digits[:] = values
        stored = exact.encoded(exact.Exact(digits), fractional=False)
        assert exact.decoded(stored, fractional=False).digits.tolist() == values
        assert exact.decoded(stored.slice(1), fractional=False).digits.tolist() == values[1:]
        alone = [
            exact.encoded(exact.Exact(digits[n : n + 1]), fractional=False)
            for n in range(len(values))
        ]
        assert pa.concat_arrays(alone).equals(stored)


def test_decimals_become_the_nearest_doubles() -> None:
    random = Random(SEED)
    for type_, make in (
        (pa.decimal128(9, 3), any_decimal(9, 3)),
        (pa.decimal128(38, 30), any_decimal(38, 30)),
    ):
        values = [make(random) for _ in range(200)]
        found = exact.doubles(pa.array(values, type_))
        assert found.tolist() == [float(Fraction(value)) for value in values]
