"""Format 1 of the log, of rollups and of whole locations stays readable, and damage is noticed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.errors import HeadwaterError
from headwater.base.ids import SeqNo
from headwater.persist import encoding
from headwater.persist.blob import FileBlob, MemoryBlob
from headwater.persist.changes import Change, Entry
from headwater.persist.client import Client, open_location
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.encoding import (
    ENTRY,
    ROLLUP,
    decode_entry,
    decode_state,
    encode_entry,
    encode_state,
    frame,
)
from headwater.persist.errors import (
    AlreadyLocked,
    CollectionHasErrors,
    Corrupt,
    DestroyedCollection,
    NewerFormat,
)
from headwater.persist.maintenance import Maintenance
from headwater.persist.state import violations
from tests.formats import persist_v1_location as location_v1
from tests.formats import persist_v1_samples as v1

REWRITE = bool(os.environ.get("REWRITE"))
QUIET = Settings(maintenance=False)
SEQNO = SeqNo(42)


# ---- golden bytes ----------------------------------------------------------------------------


def golden(name: str, encoded: bytes) -> list[bytes]:
    """Return every form that was ever written; the last one is what is written now."""
    stored = v1.load()
    forms = stored.get(name, [])
    if forms[-1:] != [encoded.hex()] and REWRITE:
        forms = [*forms, encoded.hex()]
        v1.store({**stored, name: forms})
    assert forms[-1:] == [encoded.hex()], f"the bytes of {name} are new: REWRITE=1 adds them"
    return [bytes.fromhex(form) for form in forms]


def test_every_kind_of_change_has_a_sample() -> None:
    kinds = {type(change) for changes in v1.CHANGES.values() for change in changes}
    assert kinds == set(get_args(Change))


@pytest.mark.parametrize("kind", v1.CHANGES)
def test_entries(kind: str) -> None:
    entry = v1.entry(v1.CHANGES[kind])
    for data in golden(f"entry {kind}", encode_entry(entry)):
        assert decode_entry(SEQNO, data) == entry


def test_rollup() -> None:
    for data in golden("rollup", encode_state(v1.STATE)):
        assert decode_state("rollup", data) == v1.STATE
    assert list(violations(v1.STATE)) == []


# ---- a whole location ------------------------------------------------------------------------


@pytest.fixture
def location(tmp_path: Path) -> Path:
    if REWRITE and not v1.LOCATION.exists():
        location_v1.write(tmp_path / "golden")
        location_v1.pack(tmp_path / "golden", v1.LOCATION)
    location_v1.unpack(v1.LOCATION, tmp_path / "location")
    return tmp_path / "location"


def content(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def check(client: Client) -> None:
    orders = client.reader("orders")
    assert (orders.since, orders.upper) == (Frontier.of(6), Frontier.of(21))
    for time, rows in location_v1.ORDERS.items():
        found = orders.snapshot(time).to_table().drop_columns(["__diff"]).to_pylist()
        assert sorted(found, key=lambda row: row["k"]) == rows
    with pytest.raises(CollectionHasErrors, match=location_v1.FAILED):
        client.reader("failed").snapshot(2).to_table()
    with pytest.raises(DestroyedCollection):
        client.reader("doomed")
    assert client.reader("table").upper == Frontier.of(110)
    state = client.core.state
    assert state.items["catalog/1"] == b"value"
    assert "reader-1" in state.collections[orders.id].readers
    assert list(violations(state)) == []


def test_a_location_of_format_1_can_be_read_and_is_not_touched(location: Path) -> None:
    before = content(location)
    with open_location(location, read_only=True) as client:
        check(client)
    assert content(location) == before


def test_a_location_of_format_1_can_be_taken_over_and_written(location: Path) -> None:
    with pytest.raises(AlreadyLocked, match="pid 1 on golden"):
        open_location(location)
    with open_location(location, take_over=True, settings=QUIET) as client:
        check(client)
        write, read = client.create_or_load("orders", location_v1.SECOND, key=("k",))
        write.seal(30).result()
        now = [*location_v1.ORDERS[20], location_v1.UNSEALED]
        maintenance = Maintenance(client.core)
        garbage = set(client.core.state.garbage)
        assert garbage
        maintenance.sweep()
        maintenance.once()
        maintenance.roll_up(force=True)
        assert not garbage & {info.key for info in FileBlob(location / "blob").list()}
        rows = sorted((row for row, _ in read.snapshot(29).rows()), key=lambda row: row["k"])
        assert rows == now
    with open_location(location, read_only=True) as client:
        assert len(client.reader("orders").snapshot(29).rows()) == 3


# ---- damage ----------------------------------------------------------------------------------

Decode = Callable[[bytes], object]
ONE_ENTRY = encode_entry(v1.entry(v1.CHANGES["write"]))
ONE_ROLLUP = encode_state(v1.STATE)


def decode_the_entry(data: bytes) -> Entry:
    return decode_entry(SEQNO, data)


def decode_the_rollup(data: bytes) -> object:
    return decode_state("rollup/42", data)


FRAMES = pytest.mark.parametrize(
    ("what", "data", "decode"),
    [
        ("log entry 42", ONE_ENTRY, decode_the_entry),
        ("rollup rollup/42", ONE_ROLLUP, decode_the_rollup),
    ],
    ids=["entry", "rollup"],
)


@FRAMES
def test_a_flipped_bit_anywhere_is_noticed(what: str, data: bytes, decode: Decode) -> None:
    for position in range(len(data)):
        for bit in (0, 7):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises((Corrupt, NewerFormat), match=what):
                decode(bytes(damaged))


@FRAMES
def test_a_cut_or_longer_frame_is_noticed(what: str, data: bytes, decode: Decode) -> None:
    for length in range(len(data)):
        with pytest.raises(Corrupt, match=what):
            decode(data[:length])
    with pytest.raises(Corrupt, match=what):
        decode(data + b"\0")


def test_a_frame_is_not_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Corrupt, match="do not begin with"):
        decode_the_entry(ONE_ROLLUP)
    with pytest.raises(Corrupt, match="says that it is entry 42"):
        decode_entry(SeqNo(41), ONE_ENTRY)
    with pytest.raises(Corrupt, match="log entry 42"):
        decode_the_entry(frame(ENTRY, b"\xc1 no msgpack"))
    with pytest.raises(Corrupt, match="rollup"):
        decode_the_rollup(frame(ROLLUP, b"\x93\x01\x02\x03"))
    monkeypatch.setattr(encoding, "VERSION", 0)
    version_0 = frame(ENTRY, b"")
    monkeypatch.undo()
    with pytest.raises(Corrupt, match="version 0"):
        decode_the_entry(version_0)


# ---- a newer format --------------------------------------------------------------------------


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes, bytes], bytes]:
    """Frame bytes as a later version would: our checksum, another body."""

    def framed(magic: bytes, body: bytes) -> bytes:
        with monkeypatch.context() as later:
            later.setattr(encoding, "VERSION", encoding.VERSION + 1)
            return frame(magic, body)

    return framed


def refused(blob: MemoryBlob, consensus: MemoryConsensus) -> None:
    for read_only in (True, False):
        before = (dict(blob._objects), list(consensus._entries))
        with pytest.raises(NewerFormat, match=r"format version 2.*reads up to 1.*upgrade"):
            open_location(
                blob=blob,
                consensus=consensus,
                read_only=read_only,
                take_over=not read_only,
                settings=QUIET,
            )
        assert (dict(blob._objects), list(consensus._entries)) == before, "nothing was touched"


def test_a_newer_entry_is_refused_and_nothing_is_touched(
    newer: Callable[[bytes, bytes], bytes],
) -> None:
    blob, consensus = MemoryBlob(), MemoryConsensus()
    with open_location(blob=blob, consensus=consensus, settings=QUIET) as client:
        client.create_or_load("t", location_v1.FIRST)
    consensus.append(SeqNo(consensus._entries[-1].seqno + 1), newer(ENTRY, b"of the future"))
    refused(blob, consensus)


def test_a_newer_rollup_is_refused_and_nothing_is_touched(
    newer: Callable[[bytes, bytes], bytes],
) -> None:
    blob, consensus = MemoryBlob(), MemoryConsensus()
    with open_location(blob=blob, consensus=consensus, settings=QUIET) as client:
        client.create_or_load("t", location_v1.FIRST)
        Maintenance(client.core).roll_up(force=True)
        (rollup,) = client.core.state.rollups
    blob._objects[rollup.key] = newer(ROLLUP, b"of the future")
    refused(blob, consensus)


def test_a_newer_log_file_is_refused_and_not_touched(location: Path) -> None:
    log = sqlite3.connect(location / "log.db")
    log.execute("PRAGMA user_version = 2")
    log.close()
    before = content(location)
    for read_only in (True, False):
        with pytest.raises(HeadwaterError, match="log format 2, this Headwater knows 1"):
            open_location(location, read_only=read_only, settings=QUIET)
    assert {name: data for name, data in content(location).items() if name in before} == before
