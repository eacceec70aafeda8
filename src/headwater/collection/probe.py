"""Probes: look up many keys in an arrangement, each at its own time.

For runs ``R1 … Rm`` and probe rows ``(k_i, t_i)``:

    probe = { (i, row, time, diff) : (row, time, diff) in R1 + … + Rm,
              key(row) = k_i,  time <= t_i  (time < t_i if strict),  time < ignore_from }

- Hashes find candidates; the keys are then compared again with SQL equality, because two keys may
  share a hash. NULL matches nothing, unless the comparison is ``<=>`` (``null_safe``).
- ``strict`` is the other half of a delta join: the path of input *i* looks up the inputs before it
  at ``<=`` and those after it at ``<``. ``ignore_from`` is the upper of the step: a shared
  arrangement may be ahead of it.
- The result is ordered by (run, probe row, place in the run). It is not consolidated: an update
  and its retraction both appear.

Cost: per run a binary search for each key within its range of hashes, and the rows found; never the
size of the run. A key with a long history costs its history.

Kept by: this module, against an oracle in ``tests/unit/collection/test_probe.py``.
Relied on by: delta rules in ``compute``, upserts in ``storage``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

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
) -> pa.Table:
    """Return the stored updates of each key at its time, with ``__probe_index`` first.

    ``keys``: as many columns as the runs' key, in its order (names are not looked at). ``at``: one
    time, one per probe row, or ``None`` for all times. ``hashes``: their key hashes where known,
    e.g. computed by Spark. ``columns``: the stored columns wanted; all but ``__hash`` if not given.
    ``schema``: the stored columns of the arrangement, where some runs may be older (a missing
    column reads as NULL) or there may be no run at all.
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
    found = [result.empty_table()]
    for run in runs:
        within = _within(run, hashes, wanted, bounds)
        if len(within):
            found.append(_probe_run(run, key_columns, hashes, within, bounds, null_safe, result))
    return pa.concat_tables(found)


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


def _within(run: Run, hashes: Hashes, wanted: Longs, bounds: Longs) -> Longs:
    """Return the probe rows that a run may answer: those of its hashes, not before its times.

    A large arrangement is many runs, each a range of hashes: without this, every key would be
    searched in every one of them.
    """
    extent, earliest = run.hash_range, run.min_time
    if extent is None or earliest is None:
        return wanted[:0]
    if len(wanted) < len(hashes):
        hashes, bounds = hashes[wanted], bounds[wanted]
    possible = (hashes >= extent[0]) & (hashes <= extent[1])
    possible &= bounds > earliest
    return wanted if possible.all() else wanted[possible]


def _probe_run(
    run: Run,
    keys: Sequence[Any],
    hashes: Hashes,
    wanted: Longs,
    bounds: Longs,
    null_safe: bool | Sequence[bool],
    result: pa.Schema,
) -> pa.Table:
    left, right = run.equal_range(hashes[wanted])
    indices, rows = _pairs(wanted, left, right)
    latest = run.max_time
    if len(rows) and latest is not None and bounds[wanted].min() <= latest:
        early = run.longs(rows, TIME) < bounds[indices]
        indices, rows = indices[early], rows[early]
    stored = set(run.schema.names)
    names = [name for name in result.names[1:] if name in stored]
    # With the keys: but for two that share a hash, what is found is what is wanted.
    needed = tuple(dict.fromkeys((*run.key, *names)))
    taken = dict(zip(needed, run.take(rows, needed), strict=True))
    if len(rows):
        probed = [column.take(pa.array(indices)) for column in keys]
        equal = keys_equal([taken[name] for name in run.key], probed, null_safe=null_safe)
        if not equal.all():
            indices = indices[equal]
            taken = {name: array.filter(pa.array(equal)) for name, array in taken.items()}
    arrays = [
        taken[name] if name in taken else pa.nulls(len(indices), result.field(name).type)
        for name in result.names[1:]
    ]
    return pa.Table.from_arrays([pa.array(indices), *arrays], schema=result)


def _pairs(wanted: Longs, left: Longs, right: Longs) -> tuple[Longs, Longs]:
    """Return every (probe row, stored row) of the ranges, in order."""
    counts = right - left
    indices = np.repeat(wanted, counts)
    shift = left - (np.cumsum(counts) - counts)
    return indices, np.repeat(shift, counts) + np.arange(len(indices))
