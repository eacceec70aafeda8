"""UUIDs as 16 bytes and as text, many at once.

Inside they are their canonical text (``collection/types``): 36 lower-case characters. An endpoint
with a type of its own has them as bytes.

    uuid_texts(uuid_bytes(t)) == t        for canonical texts t; other spellings become canonical
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BYTES: Final = pa.binary(16)
_LENGTH: Final = 36
_NIL: Final = str(UUID(int=0))
_DASHES: Final = [8, 13, 18, 23]
_DIGITS: Final = [at for at in range(_LENGTH) if at not in _DASHES]
_NO_DIGIT: Final = 255
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_VALUES: Final = np.full(256, _NO_DIGIT, np.uint8)
_VALUES[_HEX] = np.arange(16)


def uuid_bytes(texts: pa.Array) -> pa.FixedSizeBinaryArray:
    """Return the bytes of UUIDs; raises ``ArrowInvalid`` for a text that is none."""
    filled = pc.fill_null(texts.cast(pa.string()), _NIL)
    if not pc.all(pc.equal(pc.binary_length(filled), _LENGTH), min_count=0).as_py():
        return _spelled(texts)
    # As texts of one length they have no offsets, and lie one behind the other.
    laid = filled.cast(pa.binary()).cast(pa.binary(_LENGTH))
    start = laid.offset * _LENGTH
    characters = _numbers(laid.buffers()[1])[start : start + len(laid) * _LENGTH]
    characters = characters.reshape(-1, _LENGTH)
    digits = _VALUES[characters[:, _DIGITS]]
    if (characters[:, _DASHES] != ord("-")).any() or (digits == _NO_DIGIT).any():
        return _spelled(texts)
    packed = (digits[:, 0::2] << 4) | digits[:, 1::2]
    return _with_nulls(packed, _BYTES, texts)


def uuid_texts(values: pa.Array) -> pa.StringArray:
    """Return the canonical texts of UUIDs, given as bytes or as Arrow's own type of them."""
    stored = values.storage if isinstance(values, pa.ExtensionArray) else values
    start = stored.offset * _BYTES.byte_width
    numbers = _numbers(stored.buffers()[1])[start : start + len(stored) * _BYTES.byte_width]
    numbers = numbers.reshape(-1, _BYTES.byte_width)
    characters = np.full((len(stored), _LENGTH), ord("-"), np.uint8)
    characters[:, _DIGITS[0::2]] = _HEX[numbers >> 4]
    characters[:, _DIGITS[1::2]] = _HEX[numbers & 15]
    return _with_nulls(characters, pa.binary(_LENGTH), stored).cast(pa.binary()).cast(pa.string())


def _numbers(buffer: pa.Buffer | None) -> Any:
    return np.frombuffer(buffer if buffer is not None else b"", np.uint8)


def _with_nulls(rows: Any, kind: pa.DataType, like: pa.Array) -> pa.Array:
    """Return rows of bytes as an array that is NULL where another is."""
    valid = pa.array(pc.is_valid(like).to_numpy(zero_copy_only=False))
    bits = valid.buffers()[1] if like.null_count else None
    data = pa.py_buffer(np.ascontiguousarray(rows).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(like), [bits, data])


def _spelled(texts: pa.Array) -> pa.FixedSizeBinaryArray:
    """Return the bytes of UUIDs in any usual spelling, one by one."""
    try:
        return pa.array([None if t is None else UUID(t).bytes for t in texts.to_pylist()], _BYTES)
    except ValueError as error:
        raise pa.ArrowInvalid(f"a text is no uuid: {error}") from error
