"""What messages tell of keys: one table of a batch, decoded column by column, and its newest rows.

    told(batch)    ->  of each message: its key, and that it has a row then, or none, or an error
    newest(tables) ->  of each key, at each time, what was told last: by (offset, partition)

Both are functions of the messages alone, so they may be done anywhere, in a task as in the server's
process, in batches of any size: ``newest`` of the newest of some is the newest of all of them. What
it does to the output is another matter, because that depends on the output
(``storage/upsert_range.py``).

A message whose key cannot be read tells of no key: a dead letter, and with ``Policy.FAIL`` an error
that stays. One whose value cannot be read is a dead letter, and the error of its key.

Rows are ordered by the hash of their key; two keys that share a hash are kept apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.collection.key import keys_equal
from headwater.collection.key_hash import HASH, key_hash
from headwater.persist.consolidate import column_longs
from headwater.persist.evolution import DIFF, TIME, updates_schema
from headwater.storage.decode import Decoded, arrays_of, decode_all
from headwater.storage.envelope import (
    NO_KEY,
    Changes,
    Refusals,
    Upsert,
    messages,
    refuse,
)
from headwater.storage.reclock import Longs
from headwater.storage.source import OFFSET, PARTITION

TOLD: Final = "__told"
ERROR: Final = "__error"
NOTHING, ROW, BAD = range(3)
"""What a key has then: no row, the row of the other columns, or an error."""

NO_VALUE: Final = "a message without a value has no key in it"

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Told:
    """What a batch tells, and what comes of the messages that tell of no key."""

    table: pa.Table
    refused: Changes


def told(envelope: Upsert, output: str, stamped: pa.Table) -> Told:
    """Return what the messages of a batch tell."""
    found = Refusals()
    read = _by_key if envelope.key_format is not None else _by_value
    fit, columns, what, errors = read(envelope, stamped, found)
    columns |= {each.name: each.column(fit) for each in envelope.included}
    system = {
        OFFSET: fit.column(OFFSET),
        PARTITION: fit.column(PARTITION),
        TOLD: pa.array(what),
        ERROR: pa.array(errors, pa.string()),
        TIME: fit.column(TIME),
        DIFF: pa.repeat(pa.scalar(1, pa.int64()), fit.num_rows),
    }
    schema = told_schema(envelope)
    arrays = [*(columns[name] for name in envelope.schema.names), *system.values()]
    return Told(pa.Table.from_arrays(arrays, schema=schema), found.changes(output, envelope.schema))


def told_schema(envelope: Upsert) -> pa.Schema:
    """Return the columns of what messages tell: any of the output's may be missing."""
    return pa.schema(
        [
            *(column.with_nullable(True) for column in envelope.schema),
            pa.field(OFFSET, pa.int64()),
            pa.field(PARTITION, pa.string()),
            pa.field(TOLD, pa.int8()),
            pa.field(ERROR, pa.string()),
            *list(updates_schema(pa.schema([]))),
        ]
    )


_Read = tuple[pa.Table, dict[str, Any], npt.NDArray[np.int8], list[str | None]]


def _by_value(envelope: Upsert, stamped: pa.Table, found: Refusals) -> _Read:
    """Read messages whose key is in their value."""
    values = stamped.column("value").to_pylist()
    missing = [(place, NO_VALUE) for place, value in enumerate(values) if value is None]
    decoded = decode_all(envelope.format, values, missing)
    fit = _fit(envelope, stamped, decoded, found)
    schema = envelope.format.schema
    columns = dict(zip(schema.names, arrays_of(decoded.columns, schema), strict=True))
    return fit, columns, np.full(fit.num_rows, ROW, np.int8), [None] * fit.num_rows


def _by_key(envelope: Upsert, stamped: pa.Table, found: Refusals) -> _Read:
    """Read messages with a key of their own, and with a value or without."""
    assert envelope.key_format is not None
    keys = stamped.column("key").to_pylist()
    missing = [(place, NO_KEY) for place, key in enumerate(keys) if key is None]
    decoded = decode_all(envelope.key_format, keys, missing)
    fit = _fit(envelope, stamped, decoded, found)
    schema = envelope.key_format.schema
    columns = dict(zip(schema.names, arrays_of(decoded.columns, schema), strict=True))
    what = np.full(fit.num_rows, ROW, np.int8)
    errors: list[str | None] = [None] * fit.num_rows
    values = fit.column("value").to_pylist()
    places = np.flatnonzero([value is not None for value in values])
    what[[value is None for value in values]] = NOTHING
    read = decode_all(envelope.format, [values[place] for place in places])
    if read.refused:
        refused = [int(places[place]) for place, _ in read.refused]
        for message, place, (_, reason) in zip(
            messages(fit.take(refused)), refused, read.refused, strict=True
        ):
            letter = message.dead(reason)
            found.letters.append(letter)
            # Whatever the policy: the old value is not the value any more.
            what[place], errors[place] = BAD, letter.message
    there = places if read.kept is None else places[read.kept]
    for column, values_ in zip(envelope.format.schema, read.columns, strict=True):
        if column.name not in envelope.key:
            columns[column.name] = _spread(values_, column.type, there, fit.num_rows)
    return fit, columns, what, errors


def _spread(values: Sequence[Any], type_: pa.DataType, there: Longs, rows: int) -> pa.Array:
    """Return values at their places among others that have none."""
    array = pa.array(values, type_)
    if len(there) == rows:
        return array
    source = np.zeros(rows, np.int64)
    source[there] = np.arange(len(there))
    without = np.ones(rows, np.bool_)
    without[there] = False
    return array.take(pa.array(source, mask=without))


def _fit(envelope: Upsert, stamped: pa.Table, decoded: Decoded, found: Refusals) -> pa.Table:
    """Return the messages that tell of a key; refuse the others."""
    if decoded.kept is None:
        return stamped
    places = [place for place, _ in decoded.refused]
    refused = zip(messages(stamped.take(places)), decoded.refused, strict=True)
    for message, (_, reason) in refused:
        refuse(found, message, reason, envelope.policy)
    return stamped.take(decoded.kept)


# ---- of what was told, the newest ------------------------------------------------------------


def newest(tables: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """Return of each key, at each time, what was told last; in the order of hash, key and time."""
    table = pa.concat_tables([_hashed(each, key) for each in tables]).combine_chunks()
    hashes, times = column_longs(table, HASH), column_longs(table, TIME)
    later = (_ranks(table.column(PARTITION)), column_longs(table, OFFSET), times)
    order = np.lexsort((*later, hashes))
    ordered = table.take(pa.array(order))
    begins = begins_of(ordered, key)
    met = order[1:][begins[1:] & (hashes[order[1:]] == hashes[order[:-1]])]
    if len(met):  # Keys that share a hash stand among each other.
        order = np.lexsort((*later, _numbers(table, key, np.isin(hashes, hashes[met])), hashes))
        ordered = table.take(pa.array(order))
        begins = begins_of(ordered, key)
    times = times[order]
    last = np.ones(len(times), np.bool_)
    last[:-1] = begins[1:] | (times[1:] != times[:-1])
    return ordered if last.all() else ordered.filter(pa.array(last))


def begins_of(table: pa.Table, key: Sequence[str]) -> Mask:
    """Return where rows, ordered by key, are of another key than the row before."""
    hashes = column_longs(table, HASH)
    begins = np.ones(len(hashes), np.bool_)
    begins[1:] = hashes[1:] != hashes[:-1]
    same = np.flatnonzero(~begins)
    if len(same):
        pairs = [(table.column(name).take(same - 1), table.column(name).take(same)) for name in key]
        left, right = zip(*pairs, strict=True)
        begins[same] = ~keys_equal(left, right, null_safe=True)
    return begins


def _hashed(table: pa.Table, key: Sequence[str]) -> pa.Table:
    if HASH in table.column_names:
        return table
    hashes = pa.array(key_hash([table.column(name) for name in key]))
    return table.append_column(pa.field(HASH, pa.int64(), nullable=False), hashes)


def _ranks(column: Any) -> Longs:
    """Return numbers in the order of texts."""
    encoded = column.combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    texts = encoded.dictionary.to_pylist()
    ranks = np.zeros(max(1, len(texts)), np.int64)
    ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    found: Longs = ranks[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def _numbers(table: pa.Table, key: Sequence[str], chosen: Mask) -> Longs:
    """Return numbers for the chosen rows, the same for equal keys alone; 0 for the others."""
    found: Longs = np.zeros(len(chosen), np.int64)
    numbers: dict[Any, int] = {}
    columns = [table.column(name).filter(pa.array(chosen)).to_pylist() for name in key]
    for place, row in zip(np.flatnonzero(chosen), zip(*columns, strict=True), strict=True):
        same = tuple(["NaN" if value != value else value for value in row])
        found[place] = numbers.setdefault(same, len(numbers))
    return found
