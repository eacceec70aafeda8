"""The binary form of numeric: digits to the base 10,000, a weight, a sign, a scale.

Worked out in whole numbers, because a ``Decimal`` rounds to its context as soon as one computes
with it. A column is packed from Arrow's own 128-bit integers.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.adapter.errors import OutOfRange

_HEADER = struct.Struct("!hhHh")  # number of groups, weight of the first, sign, scale
_POSITIVE, _NEGATIVE = 0x0000, 0x4000
_BASE: Final = 10_000
_BASE_DIGITS: Final = 4
_DIGITS_MAX: Final = 1_000
"""More than any type of ours holds; a bound on the work one value can make."""


def column_to_binary(array: pa.Array) -> list[bytes | None]:
    """Every value of a decimal column as ``numeric_send`` writes it."""
    scale = array.type.scale
    if not array.type.equals(pa.decimal128(array.type.precision, scale)):
        array = array.cast(pa.decimal128(array.type.precision, scale))
    packed: list[bytes | None] = [number_to_binary(value, scale) for value in _unscaled(array)]
    if array.null_count:
        for index in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)):
            packed[index] = None
    return packed


def _unscaled(array: pa.Array) -> list[int]:
    """The values times ``10 ** scale``; of a NULL, anything."""
    if not len(array):
        return []
    halves = np.frombuffer(array.buffers()[1], "<u8").reshape(-1, 2)
    halves = halves[array.offset : array.offset + len(array)]
    low, high = halves[:, 0], halves[:, 1].view("<i8")
    signed = low.view("<i8")
    if bool(np.all(high == signed >> 63)):  # They fit in 64 bits, as most do.
        small: list[int] = signed.tolist()
        return small
    return [(int(most) << 64) | int(least) for most, least in zip(high, low, strict=True)]


def number_to_binary(unscaled: int, scale: int) -> bytes:
    """``unscaled / 10 ** scale`` as ``numeric_send`` writes it."""
    rest = abs(unscaled) * 10 ** (-scale % _BASE_DIGITS)
    groups: list[int] = []  # the last first
    while rest:
        rest, group = divmod(rest, _BASE)
        groups.append(group)
    weight = len(groups) - -(-scale // _BASE_DIGITS) - 1
    zeros = 0
    while zeros < len(groups) and groups[zeros] == 0:
        zeros += 1
    groups = groups[zeros:][::-1]
    if not groups:
        return _HEADER.pack(0, 0, _POSITIVE, scale)
    sign = _NEGATIVE if unscaled < 0 else _POSITIVE
    return _HEADER.pack(len(groups), weight, sign, scale) + struct.pack(f"!{len(groups)}h", *groups)


def number_from_binary(value: bytes) -> Decimal:
    """``numeric_recv``, without NaN and infinities, which we do not have.

    ``struct.error`` or ``ValueError`` if the bytes have not the form.
    """
    count, weight, sign, scale = _HEADER.unpack_from(value)
    if count < 0 or scale < 0 or len(value) != _HEADER.size + 2 * count:
        raise ValueError("the length of a numeric")
    if sign not in (_POSITIVE, _NEGATIVE):
        raise OutOfRange("numeric", "NaN or infinity")
    groups = struct.unpack_from(f"!{count}h", value, _HEADER.size)
    if count and not (min(groups) >= 0 and max(groups) < _BASE):
        raise ValueError("a digit of a numeric")
    if max(count, abs(weight)) * _BASE_DIGITS > _DIGITS_MAX or scale > _DIGITS_MAX:
        raise OutOfRange("numeric", "a number of more than 1000 digits")
    unscaled = 0
    for group in groups:
        unscaled = unscaled * _BASE + group
    missing = scale - _BASE_DIGITS * (count - weight - 1)
    # PostgreSQL cuts what its own scale does not show.
    unscaled = unscaled * 10**missing if missing >= 0 else unscaled // 10**-missing
    return Decimal((int(sign != _POSITIVE), tuple(map(int, str(unscaled))), -scale))
