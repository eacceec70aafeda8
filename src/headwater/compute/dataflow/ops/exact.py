"""Exact numbers as columns: sums that never overflow, never round, and come back to their bits.

    a column of exact numbers  =  (digits, exponent)      its values are  digits[i] · 2**exponent

``digits`` are integers of any size: an array of ``int64`` where a bound on all that is computed
from them says that they fit, else of Python's integers; the same expressions work on both, so the
bound is looked at in few places and the common case stays vectorised. Integers, decimals (their
unscaled values) and intervals (microseconds) have the exponent 0. Doubles are integers too, in the
unit of the finest of them: every finite double is a multiple of 2**-1074.

**Stored** in a ``binary`` column as 8-byte little-endian words, two's complement, as few as hold
the number; where it may be a fraction, a word with the exponent comes first and the digits are odd
(or it is 0 · 2**0). So equal numbers are equal bytes: a retracted state meets the row it retracts.

Kept by: this module, against Python's fractions in ``tests/unit/dataflow/test_exact.py``.
Relied on by: ``accumulators.py``. The stored form is that of durable states: never changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.compute.dataflow.ops.groups import one_array

Longs = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Digits = npt.NDArray[Any]
"""``int64``, or ``object`` with Python's integers."""

_SAFE: Final = 2**62
"""Below it, in absolute value, the sum of two numbers is an ``int64``."""
_MANTISSA_BITS: Final = 53
_FINEST: Final = -1074
_POWERS_OF_TEN_MAX: Final = 22
"""Up to it a power of ten is a double, so one division rounds once."""


@dataclass(frozen=True, slots=True)
class Exact:
    """A column of exact numbers."""

    digits: Digits
    exponent: int = 0

    def __len__(self) -> int:
        return len(self.digits)

    @property
    def nonzero(self) -> Mask:
        """Which of them are not 0."""
        return np.asarray(self.digits != 0, dtype=np.bool_)

    def at_rows(self, rows: Longs) -> Exact:
        """Return some of them."""
        return Exact(self.digits[rows], self.exponent)

    def at(self, exponent: int) -> Exact:
        """Return the same numbers in a finer unit."""
        shift = self.exponent - exponent
        highest = peak(self.digits)
        if not shift or not highest:
            return Exact(self.digits, exponent)
        assert shift > 0, "a coarser unit would round"
        if self.digits.dtype != object and highest << shift < _SAFE:
            return Exact(self.digits << shift, exponent)
        return Exact(self.digits.astype(object) * (1 << shift), exponent)

    def __mul__(self, other: Exact) -> Exact:
        exponent = self.exponent + other.exponent
        kind = _kind(max(peak(self.digits), 1) * max(peak(other.digits), 1))
        return Exact(self.digits.astype(kind) * other.digits.astype(kind), exponent)

    def __add__(self, other: Exact) -> Exact:
        a, b = aligned(self, other)
        kind = _kind(peak(a.digits) + peak(b.digits))
        return Exact(a.digits.astype(kind) + b.digits.astype(kind), a.exponent)

    def __sub__(self, other: Exact) -> Exact:
        return self + other.times(-1)

    def times(self, factor: int) -> Exact:
        """Return multiples of them by an integer that is not 0."""
        kind = _kind(peak(self.digits) * abs(factor))
        return Exact(self.digits.astype(kind) * factor, self.exponent)

    def scattered(self, places: Longs, size: int) -> Exact:
        """Return ``size`` numbers: these at their places, 0 elsewhere."""
        digits = np.zeros(size, self.digits.dtype)
        digits[places] = self.digits
        return Exact(digits, self.exponent)

    def summed(self, diffs: Longs, places: Longs, size: int) -> Exact:
        """Return ``size`` sums: at each place of what is there, as often as the diffs say."""
        kind = _kind(peak(self.digits) * max(int(np.abs(diffs).sum()), 1))
        sums = np.zeros(size, kind)
        np.add.at(sums, places, self.digits.astype(kind) * diffs.astype(kind))
        return Exact(sums, self.exponent)


def peak(digits: Digits) -> int:
    """Return the greatest absolute value."""
    return max(int(digits.max()), -int(digits.min())) if len(digits) else 0


def _kind(bound: int) -> Any:
    return np.int64 if bound < _SAFE else object


def aligned(*numbers: Exact) -> tuple[Exact, ...]:
    """Return columns in the finest of their units."""
    if len({number.exponent for number in numbers}) == 1:
        return numbers
    finest = min((n.exponent for n in numbers if peak(n.digits)), default=0)
    return tuple(number.at(finest) for number in numbers)


def prepared(added: Exact, diffs: Longs, base: Exact) -> tuple[Digits, Digits, int]:
    """Return ``added · diffs`` and ``base`` so that any sum of theirs is exact, and their unit."""
    added, base = aligned(added, base)
    bound = peak(added.digits) * max(int(np.abs(diffs).sum()), 1) + peak(base.digits)
    kind = _kind(bound)
    return added.digits.astype(kind) * diffs.astype(kind), base.digits.astype(kind), added.exponent


# ---- from columns ----------------------------------------------------------------------------


def whole_numbers(column: Any) -> Exact:
    """Return integers, unscaled decimals or microseconds; 0 for NULL."""
    array = one_array(column)
    if not pa.types.is_decimal128(array.type):
        if pa.types.is_duration(array.type):
            array = array.view(pa.int64())
        return Exact(np.asarray(array.cast(pa.int64()).fill_null(0)))
    words = np.frombuffer(array.buffers()[1], np.int64)
    words = words[2 * array.offset : 2 * (array.offset + len(array))].reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    if array.null_count:
        known = np.asarray(array.is_valid(), dtype=np.bool_)
        low, high = np.where(known, low, 0), np.where(known, high, 0)
    if (high == low >> 63).all():
        return Exact(low)
    return Exact(high.astype(object) * 2**64 + low.view(np.uint64).astype(object))


def doubles(column: Any) -> Doubles:
    """Return numbers as Spark casts them to DOUBLE, each to the nearest one; 0.0 for NULL."""
    array = one_array(column)
    if pa.types.is_floating(array.type):
        floats: Doubles = np.asarray(array.cast(pa.float64()).fill_null(0.0))
        return floats
    numbers = whole_numbers(array)
    scale = array.type.scale if pa.types.is_decimal(array.type) else 0
    if not scale:
        return rounded(numbers)
    small = numbers.digits.dtype != object and peak(numbers.digits) < 2**_MANTISSA_BITS
    if small and scale <= _POWERS_OF_TEN_MAX:
        quotients: Doubles = numbers.digits.astype(np.float64) / 10.0**scale
        return quotients
    # Division of integers rounds once, whatever their size.
    return np.array([int(n) / 10**scale for n in numbers.digits], np.float64)


def from_doubles(values: Doubles) -> Exact:
    """Return finite doubles as they are."""
    fractions, exponents = np.frexp(values)
    digits = (fractions * 2.0**_MANTISSA_BITS).astype(np.int64)
    return one_unit(*_odd(digits, exponents.astype(np.int64) - _MANTISSA_BITS))


def odds(numbers: Exact) -> tuple[Digits, Longs]:
    """Return the same numbers as odd digits, each with an exponent; 0 as 0 · 2**0."""
    digits = narrowed(numbers.digits)
    if digits.dtype != object:
        return _odd(digits, np.full(len(digits), numbers.exponent))
    zeros = [(number & -number).bit_length() - 1 if number else 0 for number in map(int, digits)]
    shifts = np.array(zeros, np.int64)
    odd = digits >> shifts.astype(object)
    return odd, np.where(digits == 0, 0, numbers.exponent + shifts)


def _odd(digits: Longs, exponents: Longs) -> tuple[Longs, Longs]:
    """Return the same numbers with odd digits; 0 as 0 · 2**0."""
    lowest = (digits & -digits).astype(np.float64)
    zeros = np.where(digits == 0, 0, np.frexp(lowest)[1].astype(np.int64) - 1)
    return digits >> zeros, np.where(digits == 0, 0, exponents + zeros)


def one_unit(digits: Digits, exponents: Longs) -> Exact:
    """Return numbers of different exponents in the finest of their units."""
    there = digits != 0
    if not there.any():
        return Exact(np.zeros(len(digits), np.int64))
    finest = int(exponents[there].min())
    shifts = np.where(there, exponents - finest, 0)
    if digits.dtype != object:
        bits = np.frexp(np.abs(digits.astype(np.float64)))[1] + shifts
        if bits.max() < _SAFE.bit_length() - 1:
            return Exact(digits << shifts, finest)
    return Exact(digits.astype(object) << shifts.astype(object), finest)


# ---- to doubles ------------------------------------------------------------------------------


def rounded(numbers: Exact) -> Doubles:
    """Return the nearest doubles; what is too large is infinite, a zero is 0.0."""
    if numbers.digits.dtype != object and numbers.exponent >= _FINEST:
        # An integer is rounded to 53 bits once; scaling it then is exact, or leads to infinity.
        with np.errstate(over="ignore"):
            near: Doubles = np.ldexp(numbers.digits.astype(np.float64), numbers.exponent)
        return near
    found = [quotient(int(n), 1, numbers.exponent) for n in numbers.digits]
    return np.array(found, np.float64)


def quotient(numerator: int, denominator: int, exponent: int = 0) -> float:
    """Return the double nearest to ``numerator / denominator · 2**exponent``."""
    if exponent >= 0:
        numerator <<= exponent
    else:
        denominator <<= -exponent
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if (numerator < 0) == (denominator < 0) else -math.inf


# ---- as stored -------------------------------------------------------------------------------


def encoded(numbers: Exact, *, fractional: bool) -> Any:
    """Return the numbers as a ``binary`` column."""
    if not fractional:
        digits = narrowed(numbers.digits)
        if digits.dtype != object:
            return _fixed(digits)
        return pa.array([_words(int(n)) for n in digits], pa.binary())
    odd, exponents = odds(numbers)
    if odd.dtype != object:
        return _fixed(np.column_stack([exponents, odd]))
    cells = [_words(int(e)) + _words(int(n)) for n, e in zip(odd, exponents, strict=True)]
    return pa.array(cells, pa.binary())


def decoded(column: Any, *, fractional: bool) -> Exact:
    """Return what :func:`encoded` wrote."""
    array = one_array(column)
    width = 2 if fractional else 1
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset :][: len(array) + 1]
    if len(array) and (np.diff(offsets) == 8 * width).all():
        words = np.frombuffer(array.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        table = np.frombuffer(words.tobytes(), "<i8").reshape(-1, width)
        return one_unit(table[:, 1], table[:, 0]) if fractional else Exact(table[:, 0])
    cells = array.to_pylist()
    if not fractional:
        return Exact(_objects([int.from_bytes(cell, "little", signed=True) for cell in cells]))
    digits = _objects([int.from_bytes(cell[8:], "little", signed=True) for cell in cells])
    exponents = [int.from_bytes(cell[:8], "little", signed=True) for cell in cells]
    return one_unit(digits, np.array(exponents, np.int64))


def narrowed(digits: Digits) -> Digits:
    """Return the digits as ``int64`` if they are that."""
    if digits.dtype != object or not len(digits):
        return digits.astype(np.int64)
    fit = digits.min() >= -(2**63) and digits.max() < 2**63
    return digits.astype(np.int64) if fit else digits


def _objects(numbers: list[int]) -> Digits:
    digits = np.empty(len(numbers), object)
    digits[:] = numbers
    return digits


def _words(number: int) -> bytes:
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(8 * (bits // 64 + 1), "little", signed=True)


def _fixed(words: Longs) -> Any:
    width = words[0].nbytes if len(words) else 0
    offsets = np.arange(len(words) + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(words, "<i8").tobytes()
    return pa.Array.from_buffers(
        pa.binary(), len(words), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
    )
