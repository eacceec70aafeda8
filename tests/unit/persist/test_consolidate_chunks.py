"""Identical rows cancel wherever they lie: how a table is cut into chunks says nothing."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from headwater.persist.consolidate import consolidate

VALUES = ["", "a", "east", "12345678", "123456789", "1234567890abcdef", None]


@pytest.mark.parametrize("seed", range(60))
def test_chunks_do_not_matter(seed: int) -> None:
    random = Random(seed)
    print(f"seed {seed}")
    schema = pa.schema(
        [("s", pa.string()), ("n", pa.int64()), ("b", pa.bool_()), ("__diff", pa.int64())]
    )
    rows = [
        {
            "s": random.choice(VALUES[: random.randint(2, len(VALUES))]),
            "n": random.choice([1, None]),
            "b": random.choice([True, None]),
            "__diff": random.choice([1, -1]),
        }
        for _ in range(random.randint(2, 12))
    ]
    pieces = []
    rest = rows
    while rest:
        count = random.randint(1, len(rest))
        pieces.append(pa.Table.from_pylist(rest[:count], schema=schema))
        rest = rest[count:]
    cut = consolidate(pa.concat_tables(pieces))
    whole = consolidate(pa.Table.from_pylist(rows, schema=schema))
    assert cut.to_pylist() == whole.to_pylist()
