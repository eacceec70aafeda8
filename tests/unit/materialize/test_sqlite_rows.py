"""Many rows by one statement: SQLite has every one of them, and a row that is refused is named."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from headwater.materialize.drivers.sql import KeyTaken
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.projections import collection_spec
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import (
    BindingSpec,
    FieldSelection,
    MaterializationSpec,
    RangeSpec,
)
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.tuples import pack_columns

WIDE = tuple(f"c{number}" for number in range(40))
"""So many columns that not many rows of them fit into a statement."""


@pytest.fixture(params=[("v",), WIDE], ids=["narrow", "wide"])
def columns(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture
def stream(tmp_path: Path, columns: tuple[str, ...]) -> Iterator[InProcess]:
    schema = pa.schema([pa.field("k", pa.int64(), False), *((c, pa.int64()) for c in columns)])
    binding = BindingSpec(
        resource_config_json=b'{"table":"target"}',
        resource_path=("target",),
        collection=collection_spec("rows", schema, ["k"]),
        field_selection=FieldSelection(keys=("k",), values=columns),
    )
    config = msgspec.json.encode({"path": str(tmp_path / "e.db")})
    spec = MaterializationSpec(name="m", config_json=config, bindings=(binding,))
    stream = InProcess(SqliteDriver())
    stream.send(m.Apply(spec, "v1"))
    stream.receive()
    stream.send(m.Open(spec, "v1", RangeSpec(0, 2**32 - 1, 0, 2**32 - 1)))
    for _ in (m.Opened, m.Acknowledged):
        stream.receive()
    yield stream
    stream.abort()


def _put(
    stream: InProcess, columns: tuple[str, ...], keys: range, value: int, *, exists: bool
) -> None:
    """Store rows, all of them new, or all of them there."""
    numbers = pa.array(keys, pa.int64())
    values = [pa.repeat(pa.scalar(value), len(numbers)) for _ in columns]
    rows = pa.table([numbers, *values], names=["k", *columns])
    there, never = (pa.repeat(pa.scalar(flag), len(numbers)) for flag in (exists, False))
    stream.send(m.Acknowledge())
    stream.send(m.Flush())
    stream.receive()
    stream.send(m.StoreMany(0, pack_columns([numbers]), rows, there, never))
    stream.send(m.StartCommit())
    for _ in (m.StartedCommit, m.Acknowledged):
        stream.receive()


def _rows(tmp_path: Path, columns: tuple[str, ...]) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(tmp_path / "e.db")) as db:
        return db.execute(f"SELECT k, {columns[-1]} FROM target ORDER BY k").fetchall()


@pytest.mark.parametrize("count", [1, 23, 24, 31, 32, 33, 96, 100])
def test_every_row_is_there(
    stream: InProcess, columns: tuple[str, ...], count: int, tmp_path: Path
) -> None:
    _put(stream, columns, range(count), 1, exists=False)
    assert _rows(tmp_path, columns) == [(key, 1) for key in range(count)]
    # What is said to be there and is not, is put anew.
    _put(stream, columns, range(count + 50), 2, exists=True)
    assert _rows(tmp_path, columns) == [(key, 2) for key in range(count + 50)]


def test_a_key_that_is_taken_is_named_and_nothing_is_written(
    stream: InProcess, columns: tuple[str, ...], tmp_path: Path
) -> None:
    _put(stream, columns, range(77, 78), 1, exists=False)
    with pytest.raises(KeyTaken, match="'k': 77"):
        _put(stream, columns, range(100), 2, exists=False)
    assert _rows(tmp_path, columns) == [(77, 1)]
