"""The decoder of pgoutput: messages made by hand, and every way to cut them off."""

from __future__ import annotations

import struct
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.storage.sources.pg_changes import Changes, Misfit
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
    (b"I" + OID + b"N" + row("1", None), Insert(7, ("1", None))),
    (b"U" + OID + b"N" + row("1"), Update(7, None, False, ("1",))),
    (b"U" + OID + b"K" + row("1") + b"N" + row("2"), Update(7, ("1",), False, ("2",))),
    (b"U" + OID + b"O" + row("ü") + b"N" + row(UNCHANGED), Update(7, ("ü",), True, (UNCHANGED,))),
    (b"D" + OID + b"O" + row("1"), Delete(7, ("1",), True)),
    (b"D" + OID + b"K" + row("1"), Delete(7, ("1",), False)),
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
    changes = Changes(TABLES, "wal")
    for message in (RELATION, *messages):
        changes.add(message, first, last)
    found = []
    for records in changes.records():
        if records.clears is not None:
            found.append(f"clears at {records.clears[1]}")
        found += [
            f"{r['id']},{r['v']}@{r['__offset']}:{r['__diff']:+}" for r in records.table.to_pylist()
        ]
    return found


def test_columns_are_found_by_name_and_others_ignored() -> None:
    assert gathered(Begin(10, 1), Insert(7, ("x", "9", "1")), Commit(10, 20)) == ["1,x@10:+1"]


def test_only_transactions_of_the_range_count() -> None:
    story = [
        message
        for place in (10, 20, 30)
        for message in (
            Begin(place, 1),
            Insert(7, ("x", None, str(place))),
            Commit(place, place + 1),
        )
    ]
    assert gathered(*story, first=20, last=30) == ["20,x@20:+1"]


def test_an_unchanged_large_value_is_the_one_before() -> None:
    update = Update(7, ("large", None, "1"), True, (UNCHANGED, None, "2"))
    assert gathered(Begin(10, 1), update) == ["1,large@10:-1", "2,large@10:+1"]
    with pytest.raises(Misfit, match="a large value was not sent"):
        gathered(Begin(10, 1), Insert(7, (UNCHANGED, None, "1")))


def test_without_the_row_that_goes_nothing_can_be_said() -> None:
    for message in (
        Update(7, None, False, ("x", None, "1")),
        Delete(7, (None, None, "1"), False),
    ):
        with pytest.raises(Misfit, match=r"ALTER TABLE s\.t REPLICA IDENTITY FULL"):
            gathered(Begin(10, 1), message)


def test_truncate_takes_back_the_range_and_asks_for_the_rest() -> None:
    found = gathered(
        Begin(10, 1),
        Insert(7, ("x", None, "1")),
        Begin(20, 2),
        Delete(7, ("old", None, "5"), True),
        Truncate((7,)),
        Insert(7, ("y", None, "2")),
    )
    assert found == [
        "clears at 20",
        "1,x@10:+1",
        "5,old@20:-1",
        "1,x@20:-1",
        "5,old@20:+1",
        "2,y@20:+1",
    ]


def test_a_second_truncate_takes_back_only_what_came_between() -> None:
    found = gathered(
        Begin(10, 1), Truncate((7,)), Insert(7, ("x", None, "1")), Begin(20, 2), Truncate((7,))
    )
    assert found == ["clears at 10", "1,x@10:+1", "1,x@20:-1"]


# ---- types -----------------------------------------------------------------------------------


def test_types() -> None:
    assert arrow_type(1700, ((12 << 16) | 2) + 4) == pa.decimal128(12, 2)
    assert arrow_type(1700, -1) == BARE_NUMERIC
    assert arrow_type(999_999, -1) == pa.string()
    assert column_of(["t", None, "f"], pa.bool_()).to_pylist() == [True, None, False]
    assert column_of(["\\xff00", None], pa.binary()).to_pylist() == [b"\xff\x00", None]
    for texts, type_ in (
        (["x"], pa.int32()),
        (["infinity"], pa.timestamp("us")),
        (["1e60"], BARE_NUMERIC),
    ):
        with pytest.raises(Unreadable):
            column_of(texts, type_)
