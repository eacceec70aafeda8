"""The formats of COPY: what is written, what is read, however it is cut into pieces."""

from __future__ import annotations

import csv
import io
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire import Column
from headwater.adapter.pgwire.copy_format import CopyFormat, of_options
from headwater.adapter.pgwire.copy_in import decoder
from headwater.adapter.pgwire.copy_out import CopyEncoder

COLUMNS = (Column("a", pa.int64()), Column("b", pa.string()))
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-9, 9),
        st.none()
        | st.text(st.sampled_from("ab\\\n\r\t\v,\"'N.;é \b"), max_size=6)
        | st.sampled_from(["\\.", "\\N", "", "NULL", '"', ",", "\r\n"]),
    ),
    max_size=6,
)
FORMATS = [
    {},
    {"delimiter": ";"},
    {"delimiter": ","},
    {"format": "csv"},
    {"format": "csv", "delimiter": ";", "quote": "'", "escape": "\\", "null": "NULL"},
    {"format": "csv", "header": "true", "delimiter": "\t"},
    {"format": "binary"},
]


def written(rows: Sequence[tuple[Any, ...]], chosen: CopyFormat, columns: Any = COLUMNS) -> bytes:
    """The data of all CopyData messages."""
    encoder = CopyEncoder(columns, chosen)
    arrays = [
        pa.array([row[index] for row in rows], column.type) for index, column in enumerate(columns)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
    messages = encoder.begin() + encoder.encode(batch) + encoder.end()
    data, at = b"", 0
    while at < len(messages):
        tag, length = struct.unpack_from("!ci", messages, at)
        assert tag == b"d"
        data += messages[at + 5 : at + 1 + length]
        at += 1 + length
    return data


def read(data: bytes, chosen: CopyFormat, cuts: Sequence[int] = (), columns: Any = COLUMNS) -> Any:
    """The rows of the data, fed in pieces that end at ``cuts``."""
    decoding = decoder(columns, chosen)
    rows: list[tuple[Any, ...]] = []
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    batches = [decoding.feed(data[start:end]) for start, end in pairwise(places)]
    for batch in (*batches, decoding.finish()):
        if batch is not None:
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return rows


@pytest.mark.parametrize("options", FORMATS, ids=str)
@given(rows=ROWS, cuts=st.lists(st.integers(0, 200), max_size=4))
def test_what_was_copied_out_is_copied_in_however_it_is_cut(
    options: dict[str, str], rows: list[tuple[Any, ...]], cuts: list[int]
) -> None:
    data = written(rows, of_options(options, to_client=True))
    assert read(data, of_options(options, to_client=False), cuts) == rows


def test_text_is_written_as_postgresql_writes_it() -> None:
    rows = [(1, "a\tb\\\n"), (None, None), (2, "")]
    assert written(rows, CopyFormat()) == b"1\ta\\tb\\\\\\n\n\\N\t\\N\n2\t\n"
    semicolon = of_options({"delimiter": ";", "null": "-"}, to_client=True)
    assert written([(1, "a;b"), (2, None)], semicolon) == b"1;a\\;b\n2;-\n"


def test_csv_is_written_as_postgresql_writes_it() -> None:
    rows = [(1, 'say "hi"'), (None, ""), (2, None), (3, "a,b\nc"), (4, "plain")]
    chosen = of_options({"format": "csv", "header": True}, to_client=True)
    assert written(rows, chosen) == (b'a,b\n1,"say ""hi"""\n,""\n2,\n3,"a,b\nc"\n4,plain\n')
    forced = of_options({"format": "csv", "force_quote": ("b",)}, to_client=True)
    assert written([(1, "x"), (2, None)], forced) == b'1,"x"\n2,\n'
    alone = (Column("b", pa.string()),)
    assert written([("\\.",)], of_options({"format": "csv"}, to_client=True), alone) == b'"\\."\n'


@given(ROWS)
def test_other_programs_read_our_csv(rows: list[tuple[Any, ...]]) -> None:
    data = written(rows, of_options({"format": "csv"}, to_client=True)).decode()
    seen = [tuple(row) for row in csv.reader(io.StringIO(data, newline=""), strict=True)]
    assert seen == [("" if a is None else str(a), "" if b is None else b) for a, b in rows]


def test_binary_is_written_as_postgresql_writes_it() -> None:
    chosen = of_options({"format": "binary"}, to_client=True)
    header = b"PGCOPY\n\xff\r\n\0" + bytes(8)
    row = struct.pack("!hiq", 2, 8, 7) + struct.pack("!i", 1) + b"x"
    assert written([(7, "x")], chosen) == header + row + b"\xff\xff"
    assert written([], chosen) == header + b"\xff\xff"


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"1\ta\n\\.\n2\tb\n", [(1, "a")]),
        (b"1\ta\r\n2\tb\r\n", [(1, "a"), (2, "b")]),
        (b"1\ta\n2\tb", [(1, "a"), (2, "b")]),  # the last line need not end
        (b"1\ta\\\nb\n", [(1, "a\nb")]),  # an escaped line end is data
        (b"1\t\\x41\\101\\q\\\\N\n", [(1, "AAq\\N")]),
        (b"1\t\\\tb\n", [(1, "\tb")]),  # so is an escaped delimiter
        (b"", []),
    ],
)
def test_text_is_read_as_postgresql_reads_it(data: bytes, rows: list[Any]) -> None:
    for cut in range(len(data) + 1):
        assert read(data, CopyFormat(), [cut]) == rows


@pytest.mark.parametrize(
    ("data", "options", "rows"),
    [
        (b'1,""\n2,\n', {}, [(1, ""), (2, None)]),
        (b'1,a"b,c"d\n', {}, [(1, "ab,cd")]),  # a quote may begin anywhere
        (b'1,"x\ny"\n', {}, [(1, "x\ny")]),
        (b"1,x\n\\.\n2,y\n", {}, [(1, "x")]),
        (b'1,"x"', {}, [(1, "x")]),
        (b"1,", {}, [(1, None)]),
        (b'"1",', {}, [(1, None)]),
        (b"a,b\r\n1,x\r\n", {"header": "true"}, [(1, "x")]),
        (b"a,b\n1,x\n", {"header": "match"}, [(1, "x")]),
        (b"1,\n", {"force_not_null": ("b",)}, [(1, "")]),
        (b'1,""\n', {"force_null": ("b",)}, [(1, None)]),
        (b"1,'a\\'b\\\\c\\d'\n", {"quote": "'", "escape": "\\"}, [(1, "a'b\\c\\d")]),
    ],
)
def test_csv_is_read_as_postgresql_reads_it(
    data: bytes, options: dict[str, Any], rows: list[Any]
) -> None:
    chosen = of_options({"format": "csv", **options}, to_client=False)
    for cut in range(len(data) + 1):
        assert read(data, chosen, [cut]) == rows


@pytest.mark.parametrize(
    ("options", "data", "sqlstate", "detail"),
    [
        ({}, b"1\n", "22P04", "Line 1."),
        ({}, b"1\ta\tb\n", "22P04", "Line 1."),
        ({}, b"1\ta\nx\tb\n", "22P02", "Line 2, column a."),
        ({}, b"1\t\xff\n", "22021", None),
        ({}, b"1\t\0\n", "22021", None),
        ({"format": "csv"}, b'1,"open\n', "22P04", "Line 1."),
        ({"format": "csv", "header": "true"}, b"a,b\n1,x\ny,x\n", "22P02", "Line 3, column a."),
        ({"format": "csv", "header": "match"}, b"a,c\n", "22P04", None),
        ({"format": "binary"}, b"not a header at all", "22P04", None),
        ({"format": "binary"}, b"", "22P04", None),
        ({"format": "binary"}, b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\1", "22P04", None),
        ({"format": "binary"}, b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\2\0\0", "22P04", None),
        ({"format": "binary"}, b"PGCOPY\n\xff\r\n\0\0\1\0\0" + bytes(4), "22P04", None),
        ({"format": "binary"}, b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\xff\xffmore", "22P04", None),
        (
            {"format": "binary"},
            b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\2\0\0\0\1x\xff\xff\xff\xff",
            "22P03",
            None,
        ),
    ],
)
def test_what_has_not_its_form_is_refused_where_it_stands(
    options: dict[str, str], data: bytes, sqlstate: str, detail: str | None
) -> None:
    with pytest.raises(AdapterError) as refused:
        read(data, of_options(options, to_client=False))
    assert refused.value.sqlstate == sqlstate
    if detail is not None:
        assert refused.value.detail == detail


def test_a_row_without_end_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwater.adapter.pgwire.copy_lines.ROW_BYTES_MAX", 1000)
    for options in ({}, {"format": "csv"}):
        decoding = decoder(COLUMNS, of_options(options, to_client=False))
        fed = (decoding.feed(b'"' * 11) for _ in range(200))
        with pytest.raises(AdapterError, match="more than 1000 bytes"):
            list(fed)


@pytest.mark.parametrize(
    ("options", "to_client", "sqlstate"),
    [
        ({"format": "xml"}, True, "22023"),
        ({"colour": "red"}, True, "42601"),
        ({"format": "binary", "delimiter": ","}, True, "42601"),
        ({"quote": "'"}, True, "42601"),  # not in text
        ({"delimiter": "ab"}, True, "0A000"),
        ({"delimiter": "a"}, True, "22023"),
        ({"delimiter": "\n"}, True, "22023"),
        ({"format": "csv", "delimiter": '"'}, True, "22023"),
        ({"null": "a\tb"}, True, "22023"),
        ({"format": "csv", "force_null": "*"}, True, "42601"),
        ({"format": "csv", "force_quote": "*"}, False, "42601"),
        ({"header": "match"}, True, "42601"),
        ({"encoding": "latin1"}, True, "0A000"),
        ({"header": "maybe"}, True, "42601"),
    ],
)
def test_options_that_contradict_are_refused(
    options: dict[str, Any], to_client: bool, sqlstate: str
) -> None:
    with pytest.raises(AdapterError) as refused:
        of_options(options, to_client=to_client)
    assert refused.value.sqlstate == sqlstate
