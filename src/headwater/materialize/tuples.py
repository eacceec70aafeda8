"""Packed tuples: keys and values as bytes whose order is the order of what they hold.

The FoundationDB tuple layer, as far as Flow uses it. A tuple is the concatenation of its elements:

    null           00
    bytes, string  01 or 02, the bytes with every 00 written as 00 FF, then 00
    integer        14 + n, then |v| in n big-endian bytes (n = 0 for zero);
                   negative: 14 - n, then 256**n - 1 - |v|
    wider than 8   1d, the length, the bytes; negative: 0b and both complemented
    double         21, then the IEEE bits, big-endian: the sign flipped, or all bits if negative
    false, true    26, 27

Invariant:      ``pack(a) < pack(b)`` as bytes iff ``a < b`` element by element, where
                null < bytes < string < integer < double < bool, and a prefix is less than what it
                begins. Integers and doubles are apart: ``1`` and ``1.0`` are different elements.
Kept by:        both encoders here, :func:`pack` for few rows and :func:`pack_columns` for many,
                which are equal byte for byte (a property test, and golden vectors made by
                FoundationDB's own library).
Relied on by:   combining (documents are ordered by packed key), load suppression (a key above the
                greatest one stored cannot exist), key ranges (the hash is of these bytes).

An object or array of a document is a *bytes* element with its compact JSON text; making that text
is the business of whoever projects documents. Nested tuples, UUIDs and versionstamps exist in
FoundationDB and never here: they are refused when decoded.

Why not the library ``foundationdb``: it writes ±(2**64 - 1) in 1 + 1 + 8 bytes (``1d 08 …``), Flow
in 1 + 8 (``1c …``), and two encodings of one key are two keys.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import InvalidUsage

Element = None | bool | int | float | str | bytes
"""What a packed tuple may hold."""

_NULL: Final = 0x00
_BYTES: Final = 0x01
_STRING: Final = 0x02
_WIDE_NEGATIVE: Final = 0x0B
_ZERO: Final = 0x14
_WIDE_POSITIVE: Final = 0x1D
_DOUBLE: Final = 0x21
_FALSE: Final = 0x26
_TRUE: Final = 0x27

_INTEGER_BYTES: Final = 8
_WIDE_BYTES_MAX: Final = 255
_ROWS_AT_ONCE: Final = 1 << 14
"""So many integers are within a processor's cache."""
_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1


class NotPackable(InvalidUsage):
    """A value or a column that has no place in a packed tuple."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} cannot be packed; cast it to a boolean, integer, double, string or binary"
        )


class MalformedTuple(InvalidUsage):
    """Bytes that are no packed tuple."""

    def __init__(self, packed: bytes, at: int, reason: str) -> None:
        super().__init__(f"no packed tuple: {reason} at byte {at} of {packed.hex(' ')}")


def pack(elements: Sequence[Element]) -> bytes:
    """Return the packed tuple of some elements.

    >>> pack(("foo", 1)).hex(" ")
    '02 66 6f 6f 00 15 01'
    """
    return b"".join(map(_packed, elements))


def unpack(packed: bytes) -> tuple[Element, ...]:
    """Return the elements of a packed tuple.

    >>> unpack(pack((None, True, -256, 1.5, b"a" + bytes(1), "é")))
    (None, True, -256, 1.5, b'a\\x00', 'é')
    """
    return tuple(_elements(packed))


def _packed(element: Element) -> bytes:
    match element:
        case None:
            return b"\x00"
        case bool():
            return b"\x27" if element else b"\x26"
        case bytes():
            return b"\x01" + element.replace(b"\x00", b"\x00\xff") + b"\x00"
        case str():
            return b"\x02" + element.encode().replace(b"\x00", b"\x00\xff") + b"\x00"
        case int():
            return _packed_integer(element)
        case float():
            (bits,) = struct.unpack(">Q", struct.pack(">d", element))
            ordered = bits ^ _ALL if bits & _SIGN else bits | _SIGN
            return b"\x21" + struct.pack(">Q", ordered)
        case _:
            raise NotPackable(f"a {type(element).__name__}")


def _packed_integer(value: int) -> bytes:
    size = (value.bit_length() + 7) // 8
    if size > _WIDE_BYTES_MAX:
        raise NotPackable(f"an integer of {size} bytes")
    written = value if value >= 0 else value + (1 << (8 * size)) - 1
    digits = written.to_bytes(size, "big")
    if size <= _INTEGER_BYTES:
        return bytes((_ZERO + (size if value >= 0 else -size),)) + digits
    return bytes((_WIDE_POSITIVE, size) if value >= 0 else (_WIDE_NEGATIVE, size ^ 0xFF)) + digits


def _elements(packed: bytes) -> Iterator[Element]:
    at, end = 0, len(packed)
    while at < end:
        code, start = packed[at], at + 1
        if code in (_NULL, _FALSE, _TRUE):
            yield None if code == _NULL else code == _TRUE
            at = start
        elif code in (_BYTES, _STRING):
            at = _terminator(packed, start) + 1
            content = packed[start : at - 1].replace(b"\x00\xff", b"\x00")
            try:
                yield content if code == _BYTES else content.decode()
            except UnicodeDecodeError as error:
                raise MalformedTuple(packed, start, "a string that is not UTF-8") from error
        elif code == _DOUBLE:
            at = start + 8
            (ordered,) = struct.unpack(">Q", _exactly(packed, start, at))
            bits = ordered ^ _SIGN if ordered & _SIGN else ordered ^ _ALL
            yield struct.unpack(">d", struct.pack(">Q", bits))[0]
        elif _WIDE_NEGATIVE <= code <= _WIDE_POSITIVE:
            size, negative = abs(code - _ZERO), code < _ZERO
            if code in (_WIDE_NEGATIVE, _WIDE_POSITIVE):
                (length,) = _exactly(packed, start, start + 1)
                size, start = length ^ 0xFF if negative else length, start + 1
            at = start + size
            written = int.from_bytes(_exactly(packed, start, at), "big")
            yield written - (1 << (8 * size)) + 1 if negative else written
        else:
            raise MalformedTuple(packed, at, f"the code {code:02x}, which we never write,")


def _terminator(packed: bytes, start: int) -> int:
    """Return where the 00 stands that is not followed by FF."""
    at = packed.find(b"\x00", start)
    while at != -1 and packed[at + 1 : at + 2] == b"\xff":
        at = packed.find(b"\x00", at + 2)
    if at == -1:
        raise MalformedTuple(packed, start, "a text without its end")
    return at


def _exactly(packed: bytes, start: int, end: int) -> bytes:
    if end > len(packed):
        raise MalformedTuple(packed, start, "an element cut short")
    return packed[start:end]


def pack_columns(columns: Sequence[pa.Array]) -> pa.LargeBinaryArray:
    """Return the packed tuple of each row; columns are Arrow arrays of one length, at least one.

    Equal to :func:`pack` of each row, without a loop over rows.
    """
    packed = [_packed_column(column) for column in columns]
    if len(packed) == 1:
        return packed[0]
    return pc.binary_join_element_wise(*packed, _binary(b""))


def _packed_column(column: pa.Array) -> pa.LargeBinaryArray:
    kind = column.type
    if pa.types.is_null(kind):
        return pa.array([b"\x00"] * len(column), pa.large_binary())
    if pa.types.is_boolean(kind):
        written = pc.if_else(column, _binary(b"\x27"), _binary(b"\x26"))
    elif pa.types.is_integer(kind):
        written = _packed_integers(column)
    elif pa.types.is_floating(kind):
        written = _packed_doubles(column.cast(pa.float64()))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        written = _packed_texts(b"\x02", column.cast(pa.large_string()).cast(pa.large_binary()))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        written = _packed_texts(b"\x01", column.cast(pa.large_binary()))
    else:
        raise NotPackable(f"a column of type {kind}")
    return written.fill_null(_binary(b"\x00")) if column.null_count else written


def _binary(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())


def _packed_texts(code: bytes, texts: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    # Almost no text holds a NUL byte, and looking is far cheaper than replacing.
    if not _content(texts).all():
        texts = pc.replace_substring(texts, pattern=b"\x00", replacement=b"\x00\xff")
    return pc.binary_join_element_wise(_binary(code), texts, _binary(b"\x00"), _binary(b""))


def _content(texts: pa.LargeBinaryArray) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return the bytes of all texts, one after the other."""
    _, offsets, content = texts.buffers()
    if content is None or not len(texts):
        return np.empty(0, np.uint8)
    # Of a slice, only what is its own.
    ends = np.frombuffer(offsets, np.int64, len(texts) + 1, 8 * texts.offset)
    return np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]


def _packed_integers(column: pa.Array) -> pa.LargeBinaryArray:
    unsigned = pa.types.is_unsigned_integer(column.type)
    plain = column.cast(pa.uint64() if unsigned else pa.int64())
    values = (plain.fill_null(0) if plain.null_count else plain).to_numpy(zero_copy_only=False)
    contents, offsets = [np.empty(0, np.uint8)], np.zeros(len(values) + 1, np.int64)
    for start in range(0, len(values), _ROWS_AT_ONCE):
        block = values[start : start + _ROWS_AT_ONCE]
        ends = offsets[start + 1 : start + 1 + len(block)]
        least, greatest = int(block.min()), int(block.max())
        if least > 0 and _bytes_of(least) == (width := _bytes_of(greatest)):
            # As it mostly is where integers ascend.
            contents.append(_of_width(block, width))
            ends[:] = np.arange(1, 1 + len(block)) * (1 + width)
        else:
            content, size = _of_widths(block)
            contents.append(content)
            np.cumsum(1 + size, out=ends)
        ends += offsets[start]
    return _from_rows(np.concatenate(contents), offsets, column)


def _bytes_of(value: int) -> int:
    return (value.bit_length() + 7) // 8


def _of_width(
    positive: np.ndarray[tuple[int], np.dtype[np.int64 | np.uint64]], width: int
) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return integers that all need so many bytes."""
    rows = np.empty((len(positive), 1 + width), np.uint8)
    rows[:, 0] = _ZERO + width
    # The least byte first, wherever we run; and column by column, of which there are few.
    written = positive.astype("<u8", copy=False).view(np.uint8).reshape(-1, _INTEGER_BYTES)
    for place in range(width):
        rows[:, width - place] = written[:, place]
    return rows.reshape(-1)


def _of_widths(
    block: np.ndarray[tuple[int], np.dtype[np.int64 | np.uint64]],
) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return integers, each as its code and as many of its last bytes as it needs; and these."""
    negative = block < 0
    bits = block.view(np.uint64)
    # Two's complement modulo 2**64, so that the least int64 needs no wider type.
    magnitude = np.where(negative, ~bits + np.uint64(1), bits) if negative.any() else bits
    size = np.zeros(len(block), np.int64)
    for place in range(0, int(magnitude.max()).bit_length(), 8):
        size += magnitude >= np.uint64(1 << place)
    rows = np.empty((len(size), 1 + _INTEGER_BYTES), np.uint8)
    rows[:, 0] = np.where(negative, _ZERO - size, _ZERO + size)
    rows[:, 1:] = (
        np.where(negative, ~magnitude, magnitude).astype(">u8").view(np.uint8).reshape(-1, 8)
    )
    at = np.arange(1 + _INTEGER_BYTES)
    return rows[(at == 0) | (at > _INTEGER_BYTES - size[:, None])], size


def _packed_doubles(column: pa.Array) -> pa.LargeBinaryArray:
    bits = column.fill_null(0.0).to_numpy(zero_copy_only=False).view(np.uint64)
    negative = bits >> np.uint64(63) != 0
    ordered = np.where(negative, ~bits, bits | np.uint64(_SIGN)).astype(">u8")
    rows = np.empty((len(bits), 9), np.uint8)
    rows[:, 0] = _DOUBLE
    rows[:, 1:] = ordered.view(np.uint8).reshape(-1, 8)
    return _from_rows(rows.reshape(-1), np.arange(len(bits) + 1) * 9, column)


def _from_rows(
    content: np.ndarray[tuple[int], np.dtype[np.uint8]],
    offsets: np.ndarray[tuple[int], np.dtype[np.int64]],
    like: pa.Array,
) -> pa.LargeBinaryArray:
    """Return an array of the given contents, null where ``like`` is."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content))]
    written = pa.Array.from_buffers(pa.large_binary(), len(like), buffers)
    return pc.if_else(like.is_valid(), written, None) if like.null_count else written
