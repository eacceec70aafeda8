"""Rows by pieces: bounded in rows and bytes, pulled when asked, let go when closed."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire import Column, Passed
from headwater.adapter.pgwire.rows import (
    PIECE_BYTES,
    PIECE_ROWS_MAX,
    RowStream,
    row_description,
    row_encoder,
)

COLUMNS = (Column("s", pa.string()),)
ENCODE = row_encoder(COLUMNS, ())


def batch(count: int, width: int = 1) -> pa.RecordBatch:
    return pa.record_batch({"s": pa.array(["x" * width] * count, pa.string())})


def taken(rows: RowStream, rows_max: int = 10_000) -> list[int]:
    """The numbers of rows of all pieces."""
    counts = []
    while True:
        piece = rows.take(rows_max, ENCODE)
        counts.append(piece.rows)
        assert len(piece.data) <= 2 * PIECE_BYTES
        if piece.ended:
            return counts


def test_a_piece_has_not_too_many_rows_and_not_too_many_bytes() -> None:
    assert max(taken(RowStream(COLUMNS, [batch(5 * PIECE_ROWS_MAX)]))) == PIECE_ROWS_MAX
    wide = taken(RowStream(COLUMNS, [batch(50, 100_000)]))
    assert sum(wide) == 50
    assert 1 < max(wide) <= 10
    assert taken(RowStream(COLUMNS, [batch(3, 2_000_000 - 100)]), 1) == [1, 1, 1]
    assert taken(RowStream(COLUMNS, [batch(7)]), 3) == [3, 3, 1]


def test_of_a_list_the_end_is_known_of_a_stream_it_is_found() -> None:
    assert taken(RowStream(COLUMNS, [batch(2), batch(1)])) == [2, 1]
    assert taken(RowStream(COLUMNS, iter([batch(2), batch(1)]))) == [2, 1, 0]
    assert taken(RowStream(COLUMNS, [])) == [0]
    assert taken(RowStream(COLUMNS, [batch(0)])) == [0]


def test_a_batch_without_rows_says_nothing_yet() -> None:
    assert taken(RowStream(COLUMNS, iter([batch(0), batch(1), batch(0)]))) == [0, 1, 0, 0]


def test_batches_are_pulled_when_they_are_asked_for_and_let_go_when_closed() -> None:
    pulled: list[str] = []

    def stream() -> Iterator[pa.RecordBatch]:
        try:
            for number in range(3):
                pulled.append(str(number))
                yield batch(1)
        finally:
            pulled.append("closed")

    rows = RowStream(COLUMNS, stream())
    assert pulled == []
    rows.take(1, ENCODE)
    assert pulled == ["0"]
    rows.close()
    assert pulled == ["0", "closed"]
    assert rows.take(1, ENCODE).ended


def test_formats_must_be_none_one_or_all() -> None:
    two = (Column("a", pa.int32()), Column("b", pa.int32()))
    for formats in ((), (1,), (0, 1)):
        row_encoder(two, formats)
        row_description(two, formats)
    for refuse in (row_encoder, row_description):
        with pytest.raises(AdapterError):
            refuse((*two, Column("c", pa.int32())), (0, 1))


def test_a_passed_column_is_described_as_it_was_told() -> None:
    column = Column("relname", pa.string(), passed=Passed(19, 64))
    assert row_description((column,), ())[-18:] == bytes.fromhex(
        "00000000 0000 00000013 0040 ffffffff 0000"
    )
    sent = row_encoder((column,), (1,))(pa.record_batch({"relname": ["t"]}))
    assert sent == b"D\0\0\0\x0b\0\1\0\0\0\1t"


def test_a_column_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(AdapterError) as refused:
        row_description((Column("u", pa.uint64()),), ())
    assert refused.value.sqlstate == "0A000"
