"""Probes: look up many keys in an arrangement, each at its own time.

For runs ``R1 … Rm`` and probe rows ``(k_i, t_i)``:

    probe = { (i, row, time, diff) : (row, time, diff) in R1 + … + Rm,
              key(row) = k_i,  time <= t_i  (time < t_i if strict),  time < ignore_from }

- Hashes find candidates; the keys are then compared again with SQL equality, because two keys may
  share a hash. NULL matches nothing, unless the comparison is ``<=>`` (``null_safe``).
- ``strict`` is the other half of a delta join: the path of input *i* looks up the inputs before it
  at ``<=`` and those after it at ``<``. ``ignore_from`` is the upper of the step: a shared
  arrangement may be ahead of it.
- The result is in no order, but that the rows which one run has for a key follow each other, oldest
  first. It is not consolidated: an update and its retraction both appear.

Cost: per run a binary search for each key within its range of hashes, and the rows found; never the
size of the run. A key with a long history costs its history.

Where many probe rows have few keys, what is found is the product of both. ``kept`` says which rows
are of no use to whoever asks: where the product is large each row is asked about once, and those
are not paired. It is a hint: what is found may have such rows all the same.

Kept by: this module, against an oracle in ``tests/unit/collection/test_probe.py``.
Relied on by: delta rules in ``compute``, upserts in ``storage``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import InvalidUsage
from headwater.collection.key import keys_equal, require_same_form
from headwater.collection.key_hash import HASH, Hashes, key_hash
from headwater.collection.run import Run, plain_type
from headwater.persist.consolidate import TIME

Longs = npt.NDArray[np.int64]

PROBE_INDEX: Final = "__probe_index"
"""The column that says which probe row a result row belongs to: ``int64``."""

PAIRS_MANY: Final = 65_536
"""From so many pairs of a probe row and a row of a run on, it is asked first which are of use."""


class Kept(NamedTuple):
    """Which stored rows are of use, by these columns of theirs."""

    columns: tuple[str, ...]
    passes: Callable[[pa.Table], npt.NDArray[np.bool_]]


def probe(
    runs: Sequence[Run],
    keys: Sequence[Any] | pa.Table,
    *,
    at: int | Longs | None = None,
    strict: bool = False,
    ignore_from: int | None = None,
    null_safe: bool | Sequence[bool] = False,
    hashes: Hashes | None = None,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    kept: Kept | None = None,
) -> pa.Table:
    """Return the stored updates of each key at its time, with ``__probe_index`` first.

    ``keys``: as many columns as the runs' key, in its order (names are not looked at). ``at``: one
    time, one per probe row, or ``None`` for all times. ``hashes``: their key hashes where known,
    e.g. computed by Spark. ``columns``: the stored columns wanted; all but ``__hash`` if not given.
    ``schema``: the stored columns of the arrangement, where some runs may be older (a missing
    column reads as NULL) or there may be no run at all. ``kept``: its columns are of those wanted.
    """
    key_columns = [
        _one_plain(column) for column in (keys.columns if isinstance(keys, pa.Table) else keys)
    ]
    if not key_columns:
        raise InvalidUsage("a probe needs at least one key column")
    _check_keys(runs, key_columns)
    result = _result_schema(runs, columns, schema)
    wanted = _probe_rows(key_columns, null_safe)
    if hashes is None:
        hashes = key_hash(key_columns)
    bounds = _bounds(at, strict, ignore_from, len(hashes))
    asked = _asked(hashes, bounds, wanted)
    found = [some for run in runs if (some := _probe_run(run, asked, result, kept)) is not None]
    return _equal(found, key_columns, null_safe, result) if found else result.empty_table()


class _Asked(NamedTuple):
    """The probe rows that can match at all, ordered by hash: as runs have theirs."""

    row: Longs
    hash: Hashes
    bound: Longs
    earliest: int
    """The least of the bounds."""


def _one_plain(column: Any) -> Any:
    """Return a key column as rows are taken from it soonest."""
    type_ = plain_type(column.type)
    plain = column if column.type == type_ else column.cast(type_)
    return plain.combine_chunks() if isinstance(plain, pa.ChunkedArray) else plain


def _check_keys(runs: Sequence[Run], keys: Sequence[Any]) -> None:
    for run in runs:
        if len(run.key) != len(keys):
            raise InvalidUsage(f"run {run.name} has the key {run.key}, probed with {len(keys)}")
        for name, column in zip(run.key, keys, strict=True):
            require_same_form(run.schema.field(name).type, column.type)


def _result_schema(
    runs: Sequence[Run], columns: Sequence[str] | None, schema: pa.Schema | None
) -> pa.Schema:
    if schema is None:
        if not runs:
            raise InvalidUsage("a probe of no runs needs the schema of the arrangement")
        schema = pa.unify_schemas([run.schema for run in runs])
    names = [name for name in schema.names if name != HASH] if columns is None else columns
    fields = [schema.field(name).with_nullable(True) for name in names]
    return pa.schema([pa.field(PROBE_INDEX, pa.int64()), *fields])


def _probe_rows(keys: Sequence[Any], null_safe: bool | Sequence[bool]) -> Longs:
    """Return the probe rows that can match at all: no NULL where NULL matches nothing."""
    flags = [null_safe] * len(keys) if isinstance(null_safe, bool) else null_safe
    possible = np.ones(len(keys[0]), np.bool_)
    for column, null_equal in zip(keys, flags, strict=True):
        if not null_equal and column.null_count:
            possible &= np.asarray(pc.is_valid(column), dtype=np.bool_)
    return np.flatnonzero(possible)


def _bounds(at: int | Longs | None, strict: bool, ignore_from: int | None, rows: int) -> Longs:
    """Return for each probe row the time below which a stored update counts."""
    for_ever = np.iinfo(np.int64).max
    if at is None:
        bounds = np.full(rows, for_ever)
    else:
        bounds = np.broadcast_to(np.asarray(at, np.int64), (rows,))
        bounds = bounds if strict else np.minimum(bounds, for_ever - 1) + 1
    return bounds if ignore_from is None else np.minimum(bounds, ignore_from)


def _asked(hashes: Hashes, bounds: Longs, wanted: Longs) -> _Asked:
    hashes = hashes[wanted]
    order = np.argsort(hashes, kind="stable")
    wanted = wanted[order]
    bounds = bounds[wanted]
    return _Asked(wanted, hashes[order], bounds, int(bounds.min()) if len(bounds) else 0)


def _within(run: Run, asked: _Asked) -> _Asked | None:
    """Return the probe rows that a run may answer: those of its hashes, not before its times.

    A large arrangement is many runs, each a range of hashes: without this, every key would be
    searched in every one of them.
    """
    extent, earliest = run.hash_range, run.min_time
    if extent is None or earliest is None:
        return None
    first, end = asked.hash.searchsorted(extent[0]), asked.hash.searchsorted(extent[1], "right")
    if first == end:
        return None
    row, hash_, bound = asked.row[first:end], asked.hash[first:end], asked.bound[first:end]
    if asked.earliest <= earliest:
        late = bound > earliest
        row, hash_, bound = row[late], hash_[late], bound[late]
    return _Asked(row, hash_, bound, asked.earliest) if len(row) else None


class _Found(NamedTuple):
    """The rows of a run whose hashes were asked for."""

    probed: Longs
    key: list[Any]
    columns: list[Any]
    """As the result has them."""


def _probe_run(run: Run, asked: _Asked, result: pa.Schema, kept: Kept | None) -> _Found | None:
    within = _within(run, asked)
    if within is None:
        return None
    left, right = run.equal_range(within.hash)
    if kept is not None and int((right - left).sum()) >= PAIRS_MANY:
        places, rows = _kept_pairs(run, left, right, kept, result)
    else:
        places, rows = _pairs(left, right)
    latest = run.max_time
    if latest is not None and within.earliest <= latest and len(rows):
        early = run.longs(rows, TIME) < within.bound[places]
        places, rows = places[early], rows[early]
    if not len(rows):
        return None
    # With the keys: but for two that share a hash, what is found is what is wanted.
    names = tuple(dict.fromkeys((*run.key, *result.names[1:])))
    taken = dict(zip(names, _taken(run, rows, names, result), strict=True))
    columns = [taken[name] for name in result.names[1:]]
    return _Found(within.row[places], [taken[name] for name in run.key], columns)


def _taken(run: Run, rows: Longs, names: Sequence[str], result: pa.Schema) -> list[Any]:
    """Return these columns of some rows; NULL, where the run is older than the column."""
    stored = set(run.schema.names)
    needed = tuple(name for name in names if name in stored)
    taken = dict(zip(needed, run.take(rows, needed), strict=True))
    return [
        taken[name] if name in stored else pa.nulls(len(rows), result.field(name).type)
        for name in names
    ]


def _kept_pairs(
    run: Run, left: Longs, right: Longs, kept: Kept, result: pa.Schema
) -> tuple[Longs, Longs]:
    """Return the pairs of :func:`_pairs` without the rows that are of no use.

    Ranges are in the order of hashes: equal ones follow each other, others have no row in common.
    """
    other = np.ones(len(left), np.bool_)
    other[1:] = (left[1:] != left[:-1]) | (right[1:] != right[:-1])
    first, number = np.flatnonzero(other), np.cumsum(other) - 1
    _, rows = _pairs(left[first], right[first])
    columns = _taken(run, rows, kept.columns, result)
    passes = kept.passes(pa.table(dict(zip(kept.columns, columns, strict=True))))
    passed = np.concatenate([[0], np.cumsum(passes)])
    ends = np.cumsum(right[first] - left[first])
    begins = ends - (right[first] - left[first])
    places, at = _pairs(passed[begins][number], passed[ends][number])
    return places, rows[passes][at]


def _equal(
    found: Sequence[_Found],
    keys: Sequence[Any],
    null_safe: bool | Sequence[bool],
    result: pa.Schema,
) -> pa.Table:
    """Return what has not just the hash of its probe row, but its key."""
    index = pa.array(np.concatenate([some.probed for some in found]))
    columns = _joined([some.columns for some in found])
    table = pa.Table.from_arrays([index, *columns], schema=result)
    stored = _joined([some.key for some in found])
    equal = keys_equal(stored, [column.take(index) for column in keys], null_safe=null_safe)
    return table if equal.all() else table.filter(pa.array(equal))


def _joined(columns: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the columns of several runs one behind the other, in a chunk for each run."""
    return [pa.chunked_array(list(each)) for each in zip(*columns, strict=True)]


def _pairs(left: Longs, right: Longs) -> tuple[Longs, Longs]:
    """Return every (number of a range, row in it), in order."""
    counts = right - left
    places = np.repeat(np.arange(len(counts)), counts)
    shift = left - (np.cumsum(counts) - counts)
    return places, shift[places] + np.arange(len(places))
