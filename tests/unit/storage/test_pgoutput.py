"""The decoder of pgoutput: messages made by hand, and every way to cut them off."""

from __future__ import annotations

import struct
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.storage.sources import pg_changes
from headwater.storage.sources.misfit import Misfit
from headwater.storage.sources.pg_changes import Changes
from headwater.storage.sources.pg_types import BARE_NUMERIC, Unreadable, arrow_type, column_of
from headwater.storage.sources.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Malformed,
    Message,
    Other,
    Relation,
    RelationColumn,
    Truncate,
    Unchanged,
    Update,
    decode,
)


def value(text: str | Unchanged | None) -> bytes:
    if isinstance(text, Unchanged):
        return b"u"
    if text is None:
        return b"n"
    return b"t" + struct.pack(">I", len(text.encode())) + text.encode()


def row(*values: str | Unchanged | None) -> bytes:
    return struct.pack(">H", len(values)) + b"".join(map(value, values))


OID = struct.pack(">I", 7)
SAMPLES: list[tuple[bytes, Message]] = [
    (b"B" + struct.pack(">QqI", 100, 5, 9), Begin(100, 9)),
    (b"C" + struct.pack(">BQQq", 0, 100, 140, 5), Commit(100, 140)),
    (
        b"R" + OID + b"s\0t\0f" + struct.pack(">H", 1) + b"\x01id\0" + struct.pack(">Ii", 23, -1),
        Relation(7, "s.t", "f", (RelationColumn("id", 23, -1, in_key=True),)),
    ),
    (b"I" + OID + b"N" + row("1", None), Insert(7, (b"1", None))),
    (b"U" + OID + b"N" + row("1"), Update(7, None, False, (b"1",))),
    (b"U" + OID + b"K" + row("1") + b"N" + row("2"), Update(7, (b"1",), False, (b"2",))),
    (
        b"U" + OID + b"O" + row("ü") + b"N" + row(UNCHANGED),
        Update(7, ("ü".encode(),), True, (UNCHANGED,)),
    ),
    (b"D" + OID + b"O" + row("1"), Delete(7, (b"1",), True)),
    (b"D" + OID + b"K" + row("1"), Delete(7, (b"1",), False)),
    (b"T" + struct.pack(">IB", 2, 0) + OID + OID, Truncate((7, 7))),
    (b"O" + struct.pack(">Q", 3) + b"somewhere\0", Other("O")),
]


@pytest.mark.parametrize(("data", "message"), SAMPLES)
def test_decoded(data: bytes, message: Message) -> None:
    assert decode(data) == message


@pytest.mark.parametrize("data", [data for data, message in SAMPLES if message != Other("O")])
def test_a_message_that_is_cut_off_or_too_long_is_refused(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(Malformed):
            decode(data[:length])
    with pytest.raises(Malformed, match="1 bytes behind"):
        decode(data + b"x")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    with suppress(Malformed):
        decode(data)


# ---- changes ---------------------------------------------------------------------------------

TABLES = {"s.t": pa.schema([pa.field("id", pa.int32()), pa.field("v", pa.string())])}
RELATION = Relation(
    7,
    "s.t",
    "f",
    (
        RelationColumn("v", 25, -1, in_key=False),
        RelationColumn("added", 23, -1, in_key=False),
        RelationColumn("id", 23, -1, in_key=True),
    ),
)


def gathered(*messages: Message, first: int = 0, last: int = 1000) -> list[str]:
    changes = Changes(TABLES, "wal", first, last)
    found = []
    for records in changes.records((RELATION, *messages)):
        if records.clears is not None:
            found.append(f"clears at {records.clears[1]}")
        found += [
            f"{r['id']},{r['v']}@{r['__offset']}:{r['__diff']:+}" for r in records.table.to_pylist()
        ]
    return found


def test_columns_are_found_by_name_and_others_ignored() -> None:
    assert gathered(Begin(10, 1), Insert(7, (b"x", b"9", b"1")), Commit(10, 20)) == ["1,x@10:+1"]


def test_only_transactions_of_the_range_count() -> None:
    story = [
        message
        for place in (10, 20, 30)
        for message in (
            Begin(place, 1),
            Insert(7, (b"x", None, b"%d" % place)),
            Commit(place, place + 1),
        )
    ]
    assert gathered(*story, first=20, last=30) == ["20,x@20:+1"]


def test_an_unchanged_large_value_is_the_one_before() -> None:
    update = Update(7, (b"large", None, b"1"), True, (UNCHANGED, None, b"2"))
    assert gathered(Begin(10, 1), update) == ["1,large@10:-1", "2,large@10:+1"]
    with pytest.raises(Misfit, match="a large value was not sent"):
        gathered(Begin(10, 1), Insert(7, (UNCHANGED, None, b"1")))


def test_without_the_row_that_goes_nothing_can_be_said() -> None:
    for message in (
        Update(7, None, False, (b"x", None, b"1")),
        Delete(7, (None, None, b"1"), False),
    ):
        with pytest.raises(Misfit, match=r"ALTER TABLE s\.t REPLICA IDENTITY FULL"):
            gathered(Begin(10, 1), message)


def test_truncate_asks_the_output_for_what_it_has_once_it_has_it() -> None:
    found = gathered(
        Begin(10, 1),
        Insert(7, (b"x", None, b"1")),
        Begin(20, 2),
        Delete(7, (b"old", None, b"5"), True),
        Truncate((7,)),
        Insert(7, (b"y", None, b"2")),
        Begin(30, 3),
        Truncate((7,)),
    )
    assert found == [
        "1,x@10:+1",
        "5,old@20:-1",
        "clears at 20",
        "2,y@20:+1",
        "clears at 30",
    ]


def test_a_large_range_is_handed_over_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pg_changes, "ROWS_AT_ONCE", 3)
    story: list[Message] = [Begin(10, 1), *[Insert(7, (b"x", None, b"%d" % n)) for n in range(8)]]
    changes = Changes(TABLES, "wal", 0, 100)
    sizes = [records.table.num_rows for records in changes.records((RELATION, *story))]
    assert sizes == [3, 3, 2]


def test_undone_is_the_opposite_at_the_beginning() -> None:
    changes = Changes(TABLES, "wal", 0, 100, undo=True)
    story = (RELATION, Begin(10, 1), Insert(7, (b"x", None, b"1")))
    (records,) = changes.records(story)
    (row,) = records.table.to_pylist()
    assert (row["id"], row["__offset"], row["__diff"]) == (1, 0, -1)
    with pytest.raises(Misfit, match="was truncated while its snapshot was taken"):
        list(Changes(TABLES, "wal", 0, 100, undo=True).records((*story, Truncate((7,)))))


# ---- types -----------------------------------------------------------------------------------


def test_types() -> None:
    assert arrow_type(1700, ((12 << 16) | 2) + 4) == pa.decimal128(12, 2)
    assert arrow_type(1700, -1) == BARE_NUMERIC
    assert arrow_type(999_999, -1) == pa.string()
    assert column_of([b"t", None, b"f"], pa.bool_()).to_pylist() == [True, None, False]
    assert column_of([b"\\xff00", None], pa.binary()).to_pylist() == [b"\xff\x00", None]
    for texts, type_ in (
        ([b"x"], pa.int32()),
        ([b"infinity"], pa.timestamp("us")),
        ([b"1e60"], BARE_NUMERIC),
    ):
        with pytest.raises(Unreadable):
            column_of(texts, type_)
