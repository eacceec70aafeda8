"""Keyed runs as a layout of persist: segments that can be probed where they lie.

The segment of a part is exactly the bytes of one run (``collection/run.py``), sorted by key hash
and time, so whoever has the part's descriptor maps the segment and probes it. To persist itself it
is a layout like any other: the hash is added when a part is encoded and left out when it is
decoded; rows, times and diffs are those that were given, in the run's order.

A collection of this layout has a key; an ordered one is sorted by its key itself, a number.
Register both where a location is opened:

    open_location(directory, layouts=LAYOUTS)

Relied on by: ``compute`` (arrangements), merges, fsck.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from headwater.collection.key_hash import HASH
from headwater.collection.run import Run, in_order, write_run
from headwater.persist.errors import Corrupt
from headwater.persist.layout import Layout


class RunLayout:
    """One keyed run per part."""

    name: Final = "run"

    def encode(self, updates: pa.Table, key: tuple[str, ...]) -> bytes:
        """Return the bytes of the run of these updates."""
        return write_run(updates, key)

    def decode(self, data: Any, schema: pa.Schema, what: str) -> pa.Table:
        """Return the updates of a run, every byte verified."""
        return _decoded(data, schema, what)


class OrderedRunLayout:
    """One ordered run per part."""

    name: Final = "ordered_run"

    def encode(self, updates: pa.Table, key: tuple[str, ...]) -> bytes:
        """Return the bytes of the ordered run of these updates."""
        return write_run(in_order(updates, key), key)

    def decode(self, data: Any, schema: pa.Schema, what: str) -> pa.Table:
        """Return the updates of a run, every byte verified."""
        return _decoded(data, schema, what)


def _decoded(data: Any, schema: pa.Schema, what: str) -> pa.Table:
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    updates = Run.open(buffer).table()
    missing = [name for name in schema.names if name not in updates.column_names]
    if missing or updates.num_columns != len(schema) + 1 or HASH not in updates.column_names:
        raise Corrupt(what, f"it has columns {updates.column_names}, not {schema.names}")
    return updates.select(schema.names).cast(schema)


RUNS: Final = frozenset({RunLayout.name, OrderedRunLayout.name})
"""The layouts whose segments are runs."""

LAYOUTS: Final[tuple[Layout, ...]] = (RunLayout(), OrderedRunLayout())
"""What to pass as ``layouts`` wherever a location is opened."""
