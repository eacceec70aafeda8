"""Memory of a delivery follows the spill limit, not the collection: bytes are counted, not guessed.

Counted are the bytes that Arrow has allocated at once, at most, and those of Python and numpy, in a
process that does nothing else. What no count sees is what allocators keep of memory that was given
back to them: ``benches/materialize.py --memory``.
"""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.base.ids import GlobalId
from headwater.materialize.combine import Bound
from headwater.materialize.definition import Binding, delivered_schema
from headwater.materialize.first import Part, chunks
from headwater.materialize.gather import Outgoing, Run, gather
from headwater.materialize.key_range import KeyRange
from headwater.persist.evolution import updates_schema

SCHEMA = pa.schema(
    [pa.field("k", pa.int64()), pa.field("n", pa.int64()), pa.field("name", pa.string())]
)
LIMIT = 1 << 18
AT_ONCE = 1_000
CONSTANT = 1 << 18
"""What is read at once, and what is of no rows."""
FULL = KeyRange.full()


@dataclass
class Rows:
    """So many rows in no order, made while they are read."""

    count: int

    @property
    def schema(self) -> pa.Schema:
        return updates_schema(SCHEMA)

    def updates(self) -> Iterator[pa.Table]:
        for start in range(0, self.count, AT_ONCE):
            keys = (np.arange(start, min(self.count, start + AT_ONCE)) * 7919) % self.count
            k, zeros = pa.array(keys), np.zeros(len(keys), np.int64)
            name = pc.binary_join_element_wise("the name of", k.cast(pa.string()), " ")
            table = pa.table([k, k, name, zeros, zeros + 1], schema=self.schema)
            yield table.take(np.arange(len(keys)))  # What is numpy's is not counted as Arrow's.

    def at_end(self) -> Rows:
        return self


def _bound(**more: object) -> Bound:
    binding = Binding("t", GlobalId(1), "target", ("k",), **more)  # type: ignore[arg-type]
    return Bound(0, binding, "t", delivered_schema(binding, SCHEMA, hard_delete=True))


def _stored(out: Outgoing) -> int:
    return sum(store.rows.num_rows for store in out.stores({}))


def first(rows: Rows, bound: Bound) -> int:
    """Do what a first snapshot does, up to its Stores."""
    stored = 0
    for chunk in chunks([Part("t", ("k",), rows)], 1, {}, FULL, LIMIT):
        for index in tuple(chunk.updates):
            run = partial(_combined, bound, chunk.updates, index)
            stored += _stored(Outgoing([run], LIMIT))
    return stored


def _combined(bound: Bound, given: MutableMapping[int, pa.Table], index: int, limit: int) -> Run:
    return Run.held(bound, bound.ordered(given.pop(index), 1, FULL), limit)


def interval(rows: Rows, bound: Bound) -> int:
    """Do what a transaction does, up to its Stores."""
    return _stored(Outgoing([lambda limit: gather(bound, rows, 1, FULL, limit)], LIMIT))


WORK = {
    "first": (partial(first, bound=_bound()), 20_000),
    "interval": (partial(interval, bound=_bound()), 20_000),
    "reduced": (partial(interval, bound=_bound(reduce=(("n", "sum"),))), 8_000),
}
"""What is done, and with how many rows; documents are some objects each, and slow to count."""


def main(name: str) -> None:
    """Print how many bytes of Arrow, and of all else, were held: with some rows, and many."""
    work, rows = WORK[name]
    work(Rows(100))  # What is made once is made now.
    for count in (rows, 4 * rows):
        if name == "reduced":
            tracemalloc.start()
        assert work(Rows(count)) == count
        print(pa.default_memory_pool().max_memory(), tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


@pytest.mark.parametrize("name", WORK)
def test_bytes_held_follow_the_limit_and_not_the_rows(name: str) -> None:
    command = [sys.executable, "-m", __name__, name]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    few, many = (tuple(map(int, line.split())) for line in ran.stdout.splitlines())
    print(f"limit {LIMIT}: {few} bytes with some rows, {many} with four times as many")
    assert few[0] > LIMIT // 2
    assert many[0] <= 2 * LIMIT
    assert sum(many) <= 2 * LIMIT + CONSTANT
    assert sum(many) <= 1.25 * sum(few)


if __name__ == "__main__":
    main(sys.argv[1])
