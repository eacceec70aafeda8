"""Adding JSON numbers.

Integers stay integers, between ``-2**63`` and ``2**64 - 1``; an integer and a float make a float; a
float must stay finite. A string that holds a number is added exactly, with as many digits as it
takes, and stays a string, also when the other side is a number.

Invariant: on integers and on strings, addition is associative and commutative and has an inverse,
           so a
sum can absorb retractions (:func:`times`). On floats it is so up to rounding; a sum over a view
that must be exact uses a decimal, which is delivered as a string.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable
from typing import Final

from headwater.materialize.reduction.value import Json, is_number

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**64 - 1
_DIGITS_MAX: Final = 10_000

# Exact, or an error: a sum that is silently rounded is wrong for ever after.
_EXACT: Final = decimal.Context(
    prec=_DIGITS_MAX,
    Emax=_DIGITS_MAX,
    Emin=-_DIGITS_MAX,
    traps=[decimal.Inexact, decimal.Overflow, decimal.Underflow, decimal.InvalidOperation],
)
_Operation = Callable[[decimal.Decimal, decimal.Decimal], decimal.Decimal]
_NUMERIC: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,5})?", re.ASCII)


class NotANumber(ValueError):
    """A value that cannot be added."""


class TooLarge(ValueError):
    """A sum that JSON cannot hold."""


def add(left: Json, right: Json) -> Json:
    """Return the sum of two numbers; raise :class:`NotANumber` or :class:`TooLarge`.

    >>> add(1, 2), add(1, 0.5), add("1.50", 2), add("9" * 25, "1")
    (3, 1.5, '3.50', '10000000000000000000000000')
    """
    for value in (left, right):
        if not is_numeric(value):
            raise NotANumber(value)
    if isinstance(left, str) or isinstance(right, str):
        return _exactly(_EXACT.add, _decimal(left), _decimal(right))
    total = left + right
    if isinstance(total, float):
        if not math.isfinite(total):
            raise TooLarge(total)
    elif not INTEGER_MIN <= total <= INTEGER_MAX:
        raise TooLarge(total)
    return total


def times(value: Json, diff: int) -> Json:
    """Return what a number is worth that occurs ``diff`` times, negative if it is taken away."""
    if not is_numeric(value):
        raise NotANumber(value)
    if isinstance(value, str):
        return _exactly(_EXACT.multiply, _decimal(value), decimal.Decimal(diff))
    product = value * diff
    if isinstance(product, float) and not math.isfinite(product):
        raise TooLarge(product)
    return product


def is_numeric(value: Json) -> bool:
    """Whether a value is a finite number, or a string that holds one."""
    if isinstance(value, str):
        return _NUMERIC.fullmatch(value) is not None
    return is_number(value) and math.isfinite(value)


def _decimal(value: Json) -> decimal.Decimal:
    # A float means the number its shortest text says, as in the document it came from.
    try:
        return _EXACT.create_decimal(repr(value) if isinstance(value, float) else str(value))
    except decimal.DecimalException as error:
        raise TooLarge(value) from error


def _exactly(how: _Operation, left: decimal.Decimal, right: decimal.Decimal) -> str:
    try:
        return f"{how(left, right):f}"
    except decimal.DecimalException as error:
        raise TooLarge(f"{left} and {right}") from error
