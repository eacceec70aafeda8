"""Keys: which values may be one, when two are equal, and the form in which they are hashed.

A *key* is a tuple of columns. Two keys are compared as Spark SQL's ``=`` compares them (``<=>``
where ``null_safe`` is asked for): NULL equals nothing, ``0.0 = -0.0``, ``NaN = NaN``, and
``1.10 = 1.1`` whatever the precision. That is *SQL equality*; the identity of a stored row, bit by
bit, is another thing (``persist/consolidate.py``).

Every key type has one :class:`KeyForm`. The law that probes rest on:

    a = b  (SQL)  and  form(a) == form(b)   imply   hash(a) == hash(b)

whatever the exact types, so an INT column can be probed with BIGINTs, a DECIMAL(10,2) with
DECIMAL(38,18)s. Where the forms differ (INT against DECIMAL) both sides are cast first, to
:func:`common_key_type`; arrays, structs, maps and calendar intervals have no form and are refused.

Kept by: :func:`key_form`, ``collection/key_hash.py``. Relied on by: keyed runs, probes, and every
plan that arranges or exchanges rows by key.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import InvalidUsage

Mask = npt.NDArray[np.bool_]


class KeyForm(enum.Enum):
    """What a key value is turned into before it is hashed; the SQL name of the hashed type."""

    NULL = "void"
    BOOLEAN = "boolean"
    INTEGER = "bigint"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIME = "time"
    DURATION = "interval day to second"
    STRING = "string"
    BINARY = "binary"


class NotAKey(InvalidUsage):
    """A column whose type cannot be (part of) a key."""

    def __init__(self, type_: pa.DataType, why: str) -> None:
        super().__init__(f"a value of type {type_} cannot be a key: {why}")
        self.type = type_


class NoCommonKeyType(InvalidUsage):
    """Two columns that cannot be compared as keys without a cast the user has to choose."""

    def __init__(self, left: pa.DataType, right: pa.DataType, why: str) -> None:
        super().__init__(f"{left} and {right} cannot be compared as keys: {why}; cast one of them")
        self.left, self.right = left, right


DECIMAL_DIGITS_MAX: Final = 38

_INTEGER_DIGITS: Final = {
    pa.int8(): 3,
    pa.int16(): 5,
    pa.int32(): 10,
    pa.int64(): 20,
    pa.uint8(): 3,
    pa.uint16(): 5,
    pa.uint32(): 10,
}
"""Digits of the decimal an integer is widened to; 20 for 64 bits because Spark says so."""


@lru_cache(maxsize=1024)
def key_form(type_: pa.DataType) -> KeyForm:
    """Return the form in which values of this type are hashed, or raise :class:`NotAKey`."""
    t = pa.types
    if t.is_dictionary(type_):
        return key_form(type_.value_type)
    if t.is_null(type_):
        return KeyForm.NULL
    if t.is_boolean(type_):
        return KeyForm.BOOLEAN
    if type_ in _INTEGER_DIGITS:
        return KeyForm.INTEGER
    if t.is_floating(type_):
        return KeyForm.DOUBLE
    if t.is_decimal(type_):
        return _decimal_form(type_)
    if t.is_date(type_):
        return KeyForm.DATE
    if t.is_timestamp(type_):
        return KeyForm.TIMESTAMP
    if t.is_time(type_):
        return KeyForm.TIME
    if t.is_duration(type_):
        return KeyForm.DURATION
    if t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_):
        return KeyForm.STRING
    if _is_binary(type_):
        return KeyForm.BINARY
    if t.is_nested(type_):
        raise NotAKey(type_, "arrays, structs and maps are refused; use one of their fields")
    raise NotAKey(type_, "it has no hash that Spark and Python agree on; cast it to a string")


def _is_binary(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_binary(type_)
        or t.is_large_binary(type_)
        or t.is_fixed_size_binary(type_)
        or t.is_binary_view(type_)
    )


def _decimal_form(type_: pa.DataType) -> KeyForm:
    if type_.precision > DECIMAL_DIGITS_MAX or type_.scale < 0 or type_.scale > type_.precision:
        raise NotAKey(type_, f"Spark's decimals have at most {DECIMAL_DIGITS_MAX} digits")
    return KeyForm.DECIMAL


@lru_cache(maxsize=1024)
def common_key_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the type to which both sides of ``left = right`` are cast before they are compared.

    Symmetric, and as Spark does it under ANSI; where Spark would round to compare (decimals that
    need more than 38 digits together) or parse (a string against anything else), it is refused.

    >>> common_key_type(pa.int32(), pa.int64()), common_key_type(pa.int32(), pa.decimal128(9, 2))
    (DataType(int64), Decimal128Type(decimal128(12, 2)))
    """
    forms = {key_form(left), key_form(right)}
    if KeyForm.NULL in forms:
        return _widest(right if key_form(left) is KeyForm.NULL else left)
    if len(forms) == 1 and KeyForm.DECIMAL not in forms:
        return _same_form(left, right)
    if forms <= {KeyForm.INTEGER, KeyForm.DECIMAL}:
        return _common_decimal(left, right)
    if forms <= {KeyForm.INTEGER, KeyForm.DECIMAL, KeyForm.DOUBLE}:
        return pa.float64()
    if forms == {KeyForm.DATE, KeyForm.TIMESTAMP}:
        return _widest(left if key_form(left) is KeyForm.TIMESTAMP else right)
    raise NoCommonKeyType(left, right, "there is no common type")


def _same_form(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if key_form(left) is KeyForm.TIMESTAMP and (left.tz is None) != (right.tz is None):
        # The session's zone is UTC, so the cast changes the meaning and not the microseconds.
        return pa.timestamp("us", "UTC")
    return _widest(left)


def _widest(type_: pa.DataType) -> pa.DataType:
    match key_form(type_):
        case KeyForm.INTEGER:
            return pa.int64()
        case KeyForm.DOUBLE:
            return pa.float64()
        case KeyForm.DATE:
            return pa.date32()
        case KeyForm.TIMESTAMP:
            return pa.timestamp("us") if type_.tz is None else pa.timestamp("us", "UTC")
        case KeyForm.TIME:
            return pa.time64("ns")
        case KeyForm.DURATION:
            return pa.duration("us")
        case KeyForm.STRING:
            return pa.string()
        case KeyForm.BINARY:
            return pa.binary()
        case KeyForm.BOOLEAN | KeyForm.NULL:
            return type_.value_type if pa.types.is_dictionary(type_) else type_
        case KeyForm.DECIMAL:
            type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
            return pa.decimal128(type_.precision, type_.scale)


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    (whole_left, scale_left), (whole_right, scale_right) = _digits(left), _digits(right)
    scale = max(scale_left, scale_right)
    precision = max(whole_left, whole_right) + scale
    if precision > DECIMAL_DIGITS_MAX:
        raise NoCommonKeyType(
            left, right, f"together they need {precision} digits, of {DECIMAL_DIGITS_MAX}"
        )
    return pa.decimal128(precision, scale)


def _digits(type_: pa.DataType) -> tuple[int, int]:
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    return _INTEGER_DIGITS[type_], 0


@lru_cache(maxsize=1024)
def require_same_form(stored: pa.DataType, probed: pa.DataType) -> None:
    """Refuse to look up keys whose hashes could not agree although the values are equal."""
    common = common_key_type(stored, probed)
    forms = {key_form(stored), key_form(probed)} - {KeyForm.NULL}
    if len(forms) > 1:
        raise NoCommonKeyType(stored, probed, f"they are hashed differently; {common} fits both")


def keys_equal(
    left: Sequence[Any], right: Sequence[Any], *, null_safe: bool | Sequence[bool] = False
) -> Mask:
    """Compare two equally long lists of key columns row by row with SQL equality.

    ``null_safe`` (for all columns, or one flag each) makes NULL equal to NULL, as ``<=>`` does.
    """
    assert len(left) == len(right), "keys of different width"
    flags = [null_safe] * len(left) if isinstance(null_safe, bool) else list(null_safe)
    equal: Mask = np.ones(len(left[0]) if left else 0, dtype=np.bool_)
    for a, b, null_equal in zip(left, right, flags, strict=True):
        equal &= _column_equal(a, b, null_equal)
    return equal


def _column_equal(left: Any, right: Any, null_equal: bool) -> Mask:
    type_ = common_key_type(left.type, right.type)
    left = left if left.type == type_ else left.cast(type_)
    right = right if right.type == type_ else right.cast(type_)
    if pa.types.is_null(type_):
        return np.full(len(left), null_equal, dtype=np.bool_)
    same = pc.equal(left, right)
    if pa.types.is_floating(type_):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    same = pc.fill_null(same, False) if same.null_count else same
    mask: Mask = np.asarray(same, dtype=np.bool_)
    if null_equal and left.null_count and right.null_count:
        mask |= np.asarray(pc.and_(pc.is_null(left), pc.is_null(right)), dtype=np.bool_)
    return mask
