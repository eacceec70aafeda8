"""The 64-bit hash of a key, defined once for the JVM and for Python.

    hash(k1, …, kn) = xxhash64(tag(k1), norm(k1), …, tag(kn), norm(kn))

where ``xxhash64`` is Spark's: XXH64, seed 42, each argument hashed with the hash so far as its
seed, NULL arguments skipped. ``tag`` is BIGINT 0 for NULL and 1 otherwise, so that the skipping
loses nothing. ``norm`` depends on the :class:`~headwater.collection.key.KeyForm` alone:

    boolean, integers      BIGINT
    float, double          DOUBLE; ``-0.0`` hashed as ``0.0``, every NaN as one NaN
    decimal                plain decimal digits without trailing zeros of the fraction: ``1.1``
    date                   BIGINT days since 1970-01-01
    timestamp (both kinds) BIGINT microseconds since 1970-01-01 (UTC)
    time of day            BIGINT nanoseconds since midnight
    day-time interval      BIGINT microseconds
    string, binary         the bytes (UTF-8), no collation

The value is a *signed* 64-bit integer everywhere (Spark's BIGINT, Arrow ``int64``, Parquet), and
"sorted by hash" means signed order everywhere: then a range of hashes is the same range for a
Spark filter, for Parquet statistics and for ``searchsorted``.

Invariant: :func:`key_hash_sql` and :func:`key_hash` agree, for every type and value, and never
change: the hash is stored. Held to it by the vectors in ``tests/formats/key_hash_v1.json`` and,
against a real Spark, by ``tests/spark/test_key_hash.py``. Spark must run with ANSI on and in UTC
(with ANSI off it writes 1E-18 for a small decimal).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headwater.base.errors import InvalidUsage
from headwater.collection.key import KeyForm, key_form

HASH: Final = "__hash"
"""The column that carries the key hash wherever rows are stored or exchanged by key."""

Hashes = npt.NDArray[np.int64]
Seeds = npt.NDArray[np.uint64]

BLOCK_ROWS: Final = 16 * 1024
"""So many rows are hashed at a time: what is computed on the way stays in the processor's cache."""

_SEED: Final = 42
_PRIME_1: Final = np.uint64(0x9E3779B185EBCA87)
_PRIME_2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3: Final = np.uint64(0x165667B19E3779F9)
_PRIME_4: Final = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5: Final = np.uint64(0x27D4EB2F165667C5)
_NAN_BITS: Final = np.int64(0x7FF8000000000000)


def key_hash_sql(columns: Sequence[tuple[str, pa.DataType]]) -> str:
    """Return the Spark SQL text of the key hash of these expressions, a BIGINT that is never NULL.

    >>> key_hash_sql([("k", pa.int32())])
    'xxhash64(if((k) is null, 0L, 1L), cast((k) as bigint))'
    """
    if not columns:
        raise InvalidUsage("a key has at least one column; arrange a single group by a constant")
    arguments = [
        part
        for text, type_ in columns
        for part in (f"if(({text}) is null, 0L, 1L)", _norm_sql(f"({text})", type_))
    ]
    return f"xxhash64({', '.join(arguments)})"


def _norm_sql(value: str, type_: pa.DataType) -> str:
    match key_form(type_):
        case KeyForm.NULL:
            return "cast(null as bigint)"
        case KeyForm.BOOLEAN | KeyForm.INTEGER:
            return f"cast({value} as bigint)"
        case KeyForm.DOUBLE:
            return f"cast({value} as double)"
        case KeyForm.DECIMAL:
            digits = f"cast({value} as string)"
            if _scale(type_) == 0:
                return digits  # nothing to trim: the zeros of 100 are not a fraction's
            return f"rtrim('.', rtrim('0', {digits}))"
        case KeyForm.DATE:
            return f"cast(unix_date({value}) as bigint)"
        case KeyForm.TIMESTAMP:
            return f"unix_micros(cast({value} as timestamp))"
        case KeyForm.TIME | KeyForm.DURATION | KeyForm.STRING | KeyForm.BINARY:
            return value  # Spark hashes a TIME and a day-time interval as the BIGINT it holds


def _scale(type_: pa.DataType) -> int:
    return int((type_.value_type if pa.types.is_dictionary(type_) else type_).scale)


def key_hash(columns: Sequence[Any]) -> Hashes:
    """Return the hash of each row of the key columns (Arrow arrays or chunked arrays)."""
    if not columns:
        raise InvalidUsage("a key has at least one column; arrange a single group by a constant")
    rows = len(columns[0])
    assert all(len(column) == rows for column in columns), "key columns of different length"
    if rows <= BLOCK_ROWS:
        return _block_hash(columns, rows)
    hashes = np.empty(rows, np.int64)
    for start in range(0, rows, BLOCK_ROWS):
        block = [column.slice(start, BLOCK_ROWS) for column in columns]
        hashes[start : start + BLOCK_ROWS] = _block_hash(block, min(BLOCK_ROWS, rows - start))
    return hashes


def _block_hash(columns: Sequence[Any], rows: int) -> Hashes:
    seeds: Seeds = np.full(rows, _SEED, dtype=np.uint64)
    for position, column in enumerate(columns):
        array = _one_array(column)
        if not array.null_count:
            # Before the first column all seeds are one, and so is what the tag makes of them.
            same = np.ones(1 if position == 0 else rows, np.uint64)
            seeds = np.broadcast_to(_hash_long(same, seeds[: len(same)]), (rows,))
            seeds = _hash_value(array, seeds, position == 0)
            continue
        present: npt.NDArray[np.bool_] = np.asarray(pc.is_valid(array), dtype=np.bool_)
        seeds = _hash_long(present.astype(np.uint64), seeds)
        seeds[present] = _hash_value(array.filter(pa.array(present)), seeds[present], position == 0)
    return seeds.view(np.int64)


def _one_array(column: Any) -> Any:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if key_form(array.type) in (KeyForm.STRING, KeyForm.BINARY):
        array = array.cast(pa.large_binary())  # Arrow cannot filter its view types
    return array


def _hash_value(array: Any, seeds: Seeds, one_seed: bool) -> Seeds:
    """Hash the values of an array without NULLs; ``one_seed``: all seeds are known to be equal."""
    form = key_form(array.type)
    match form:
        case KeyForm.NULL:
            return seeds
        case KeyForm.STRING | KeyForm.BINARY:
            return _hash_bytes(array, seeds, one_seed)
        case KeyForm.DECIMAL:
            return _hash_bytes(_plain_digits(array).cast(pa.large_binary()), seeds, one_seed)
        case KeyForm.DOUBLE:
            return _hash_long(_double_bits(array), seeds)
        case _:
            return _hash_long(_as_long(array, form), seeds)


def _as_long(array: Any, form: KeyForm) -> Seeds:
    match form:
        case KeyForm.DATE:
            array = array.cast(pa.date32()).cast(pa.int32())
        case KeyForm.TIMESTAMP:
            # Finer than Spark's microseconds: refused by the cast if it would lose anything.
            array = array.cast(pa.timestamp("us", array.type.tz))
        case KeyForm.TIME:
            array = array.cast(pa.time64("ns"))
        case KeyForm.DURATION:
            array = array.cast(pa.duration("us"))
        case _:
            pass
    longs: Hashes = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return longs.view(np.uint64)


def _double_bits(array: Any) -> Seeds:
    doubles: npt.NDArray[np.float64] = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    doubles = doubles + 0.0  # -0.0 + 0.0 is 0.0
    bits = doubles.view(np.int64)
    return np.where(np.isnan(doubles), _NAN_BITS, bits).view(np.uint64)


def _plain_digits(array: Any) -> Any:
    """Write decimals as Spark does under ANSI, then without trailing zeros of the fraction.

    Arrow's own cast to string switches to an exponent for small values, so the digits come from
    the unscaled integer (the same 128 bits read with scale 0) and the point is put in here.
    """
    scale = array.type.scale
    array = array.cast(pa.decimal128(array.type.precision, scale))
    unscaled = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(array), [None, array.buffers()[1]], offset=array.offset
    )
    text = unscaled.cast(pa.string())
    if scale == 0:
        return text
    sign = pc.if_else(pc.starts_with(text, "-"), "-", "")
    digits = pc.ascii_lpad(pc.ascii_ltrim(text, "-"), scale + 1, "0")
    whole = pc.binary_slice(digits.cast(pa.binary()), 0, -scale).cast(pa.string())
    fraction = pc.binary_slice(digits.cast(pa.binary()), -scale).cast(pa.string())
    fraction = pc.ascii_rtrim(fraction, "0")
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    return pc.binary_join_element_wise(sign, whole, point, fraction, "")


def _hash_long(values: Seeds, seeds: Seeds) -> Seeds:
    """XXH64 of eight bytes, a seed per row; unsigned arithmetic wraps as it must."""
    mixed = _rotate(values * _PRIME_2, 31) * _PRIME_1
    hashed = (seeds + _PRIME_5 + np.uint64(8)) ^ mixed
    hashed = _rotate(hashed, 27) * _PRIME_1 + _PRIME_4
    hashed ^= hashed >> np.uint64(33)
    hashed *= _PRIME_2
    hashed ^= hashed >> np.uint64(29)
    hashed *= _PRIME_3
    hashed ^= hashed >> np.uint64(32)
    return hashed


def _rotate(values: Seeds, bits: int) -> Seeds:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _hash_bytes(array: Any, seeds: Seeds, one_seed: bool) -> Seeds:
    if len(array) == 0:
        return seeds
    if one_seed:
        # Equal strings have equal hashes then, and keys repeat: hash each distinct one once.
        encoded = array.dictionary_encode()
        uniques = _each_bytes(encoded.dictionary, [int(seeds[0])] * len(encoded.dictionary))
        indices: npt.NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
        return uniques[indices]
    return _each_bytes(array, seeds.tolist())


def _each_bytes(array: Any, seeds: Iterable[int]) -> Seeds:
    digest = xxhash.xxh64_intdigest
    hashed = [digest(value, seed) for value, seed in zip(array.to_pylist(), seeds, strict=True)]
    return np.array(hashed, dtype=np.uint64)
