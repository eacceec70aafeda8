"""What is staged for a Delta table: which columns get a dictionary, and what a commit knows."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")

from headwater.materialize.drivers.delta_staging import Staging
from headwater.materialize.drivers.dictionaries import repeating

SCHEMA = pa.schema(
    [("k", pa.int64()), ("kind", pa.string()), ("text", pa.string()), ("none", pa.string())]
)


def _rows(begin: int, end: int, text: str = "t") -> pa.Table:
    numbers = list(range(begin, end))
    columns = [
        [None if k == 3 else k for k in numbers],
        ["a" if k % 2 else "b" for k in numbers],
        [f"{text}{k}" for k in numbers],
        [None] * len(numbers),
    ]
    return pa.table(columns, schema=SCHEMA)


def _staged(*tables: pa.Table) -> Staging:
    staging = Staging(tables[0])
    for table in tables:
        staging.write(table, pa.repeat(pa.scalar(False), table.num_rows), merge=False)
    return staging


def test_only_what_repeats_itself_gets_a_dictionary() -> None:
    assert list(repeating(_rows(0, 100))) == ["kind", "none"]
    assert list(repeating(_rows(0, 0))) == SCHEMA.names, "of nothing nothing is known"
    file = pq.ParquetFile(pa.BufferReader(_staged(_rows(0, 100)).content()))
    columns = [file.metadata.row_group(0).column(at) for at in range(len(SCHEMA))]
    assert [c.has_dictionary_page for c in columns] == [False, True, False, True]
    assert file.read() == _rows(0, 100)


def test_what_is_known_of_a_file_is_of_all_that_was_written() -> None:
    staging = _staged(_rows(0, 10), _rows(-5, 0))
    staging.content()
    assert json.loads(staging.statistics()) == {
        "numRecords": 15,
        "minValues": {"k": -5, "kind": "a", "text": "t-1"},
        "maxValues": {"k": 9, "kind": "b", "text": "t9"},
        "nullCount": {"k": 1, "kind": 0, "text": 0, "none": 15},
    }


@pytest.mark.parametrize("length", [40, 10_000])
def test_long_texts_have_no_bounds(length: int) -> None:
    """Neither one that the file's statistics still hold, nor one that they do not."""
    staging = _staged(_rows(0, 10), _rows(10, 20, text="x" * length))
    staging.content()
    known = json.loads(staging.statistics())
    assert set(known["minValues"]) == set(known["maxValues"]) == {"k", "kind"}
