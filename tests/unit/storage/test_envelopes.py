"""Formats and envelopes: what comes, what goes, what is a dead letter and why."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.base.errors import InvalidUsage
from headwater.persist.evolution import TIME
from headwater.storage.dead_letters import Policy
from headwater.storage.envelope import (
    Changes,
    Debezium,
    Plain,
)
from headwater.storage.format import Bytes, Csv, Format, Json, JsonText, Text, Undecodable
from headwater.storage.source import MESSAGE, PLACE

ROW = pa.schema(
    [
        pa.field("n", pa.int32(), nullable=False),
        pa.field("s", pa.string()),
        pa.field("d", pa.decimal128(6, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("on", pa.date32()),
        pa.field("ok", pa.bool_()),
        pa.field("f", pa.float64()),
    ]
)
FULL = (
    7,
    "x",
    Decimal("1.50"),
    dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    dt.date(2024, 1, 2),
    True,
    0.5,
)

GOOD: list[tuple[Format, bytes, tuple[Any, ...]]] = [
    (
        Json(ROW),
        b'{"n":7,"s":"x","d":"1.50","at":"2024-01-02T03:04:05Z","on":"2024-01-02","ok":true,"f":0.5}',
        FULL,
    ),
    (Json(ROW), b'{"n": 7, "unknown": [1]}', (7, *[None] * 6)),
    (Csv(ROW), b"7,x,1.50,2024-01-02T03:04:05Z,2024-01-02,true,0.5", FULL),
    (Csv(ROW), b'7,"a ""b"", c",,,,,', (7, 'a "b", c', *[None] * 5)),
    (Csv(ROW, delimiter=";"), b"7;;;;;;", (7, "", *[None] * 5)),
    (Text(), "grün".encode(), ("grün",)),
    (Bytes(), b"\xff\x00", (b"\xff\x00",)),
    (JsonText(), b' {"a": [1, 2]}', (' {"a": [1, 2]}',)),
]

BAD: list[tuple[Format, bytes, str]] = [
    (Json(ROW), b"no json", "malformed"),
    (Json(ROW), b"[1]", "Expected `object`, got `array`"),
    (Json(ROW), b"{}", "missing required field `n`"),
    (Json(ROW), b'{"n": null}', r"Expected `int`, got `null` - at `\$.n`"),
    (Json(ROW), b'{"n": 2147483648}', "<= 2147483647"),
    (Json(ROW), b'{"n": 1, "d": "12345.678"}', "column 'd': 12345.678 is no decimal"),
    (Json(ROW), b'{"n": 1, "at": "yesterday"}', "Invalid RFC3339"),
    (Json(ROW), b'{"n": 1, "s": "\xff"}', "Invalid|utf-8"),
    (Csv(ROW), b"7,x", "2 fields, and 7 columns"),
    (Csv(ROW), b"x,,,,,,", "column 'n': Expected `int`"),
    (Csv(ROW), b",,,,,,", "column 'n' is empty, and NOT NULL"),
    (Csv(ROW), b'7,"open,,,,,', "unexpected end of data"),
    (Text(), b"\xff", "utf-8"),
    (JsonText(), b"{", "truncated"),
]


@pytest.mark.parametrize(("format_", "data", "row"), GOOD)
def test_decoded(format_: Format, data: bytes, row: tuple[Any, ...]) -> None:
    assert format_.decode(data) == row
    for value, column in zip(row, format_.schema, strict=True):
        pa.array([value], column.type)


@pytest.mark.parametrize(("format_", "data", "why"), BAD)
def test_undecodable(format_: Format, data: bytes, why: str) -> None:
    with pytest.raises(Undecodable, match=why):
        format_.decode(data)


def test_a_type_that_no_format_has_is_refused_at_once() -> None:
    with pytest.raises(InvalidUsage, match="column 'x': type duration"):
        Json(pa.schema([pa.field("x", pa.duration("s"))]))


# ---- envelopes -------------------------------------------------------------------------------

V = pa.schema([pa.field("v", pa.int64(), nullable=False)])
K = pa.schema([pa.field("k", pa.int64(), nullable=False)])


def stamped(*found: tuple[int, bytes | None, bytes | None]) -> pa.Table:
    """Return messages ``(time, key, value)`` at the offsets 0, 1, …"""
    schema = pa.schema([*PLACE, *MESSAGE, pa.field(TIME, pa.int64(), nullable=False)])
    rows = [
        {"__partition": "p", "__offset": n, "key": key, "value": value, TIME: time}
        for n, (time, key, value) in enumerate(found)
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def summary(changes: Changes) -> tuple[list[str], list[str], list[int]]:
    """Return updates, errors, and the offsets of dead letters."""
    updates = []
    for row in changes.updates.to_pylist():
        data = ",".join(str(v) for name, v in row.items() if not name.startswith("__"))
        updates.append(f"{data}@{row['__time']}:{row['__diff']:+}")
    errors = [
        f"{row['context']}@{row['__time']}:{row['__diff']:+}" for row in changes.errors.to_pylist()
    ]
    return updates, errors, changes.letters.column("offset").to_pylist()


def test_every_message_is_a_row_or_a_dead_letter() -> None:
    found = stamped(
        (1, None, b'{"v": 1}'), (1, None, b"?"), (2, None, None), (2, None, b'{"v": 1}')
    )
    assert summary(Plain(Json(V)).changes("o", found)) == (
        ["1@1:+1", "1@2:+1"],
        ["None@1:+1", "None@2:+1"],
        [1, 2],
    )
    skipped = Plain(Json(V), Policy.SKIP).changes("o", found)
    assert summary(skipped) == (["1@1:+1", "1@2:+1"], [], [1, 2])
    letter = skipped.letters.to_pylist()[0]
    assert letter["value"] == b"?"
    assert (letter["output"], letter["partition"]) == ("o", "p")
    assert "malformed" in letter["reason"]


def test_debezium_says_what_went_and_what_came() -> None:
    changes = Debezium(Json(V)).changes(
        "o",
        stamped(
            (1, None, b'{"before": null, "after": {"v": 1}, "op": "r"}'),
            (2, None, b'{"payload": {"before": {"v": 1}, "after": {"v": 2}, "op": "u"}}'),
            (3, None, b'{"before": {"v": 2}, "after": null, "op": "d"}'),
            (3, b"k", None),
            (4, None, b'{"before": null, "after": {"v": 3}, "op": "u"}'),
            (4, None, b'{"before": null, "after": {"v": 3}, "op": "x"}'),
            (4, None, b'{"before": null, "after": {"v": "3"}, "op": "c"}'),
        ),
    )
    updates, errors, letters = summary(changes)
    assert sorted(updates) == ["1@1:+1", "1@2:-1", "2@2:+1", "2@3:-1"]
    assert len(errors) == 3
    assert letters == [4, 5, 6]
    assert "REPLICA IDENTITY FULL" in changes.letters.column("reason").to_pylist()[0]
