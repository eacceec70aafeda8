"""Every format of the log, of rollups and of whole locations stays readable; damage is noticed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from headwater.algebra.frontier import Frontier
from headwater.base.ids import SeqNo
from headwater.cli.main import app
from headwater.persist import encoding, trace
from headwater.persist.blob import FileBlob, MemoryBlob
from headwater.persist.changes import Change, Entry
from headwater.persist.client import Client, open_location
from headwater.persist.commands import AlreadyDone, Held, OpenWriter
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
from tests.formats import persist_v2_location as location_v2
from tests.formats import persist_v2_samples as v2
from tests.formats import persist_v3_samples as v3

REWRITE = bool(os.environ.get("REWRITE"))
QUIET = Settings(maintenance=False)
SEQNO = SeqNo(42)


# ---- golden bytes ----------------------------------------------------------------------------


def golden(name: str, encoded: bytes, samples: ModuleType = v2) -> list[bytes]:
    """Return every form that was ever written; the last one is what is written now."""
    stored = samples.load()
    forms = stored.get(name, [])
    if forms[-1:] != [encoded.hex()] and REWRITE:
        forms = [*forms, encoded.hex()]
        samples.store({**stored, name: forms})
    assert forms[-1:] == [encoded.hex()], f"the bytes of {name} are new: REWRITE=1 adds them"
    return [bytes.fromhex(form) for form in forms]


def test_every_kind_of_change_has_a_sample() -> None:
    for samples in (v1, v2):
        kinds = {type(change) for changes in samples.CHANGES.values() for change in changes}
        assert kinds == set(get_args(Change))


@pytest.mark.parametrize("kind", v2.CHANGES)
def test_entries(kind: str) -> None:
    entry = v2.entry(v2.CHANGES[kind])
    for data in golden(f"entry {kind}", encode_entry(entry)):
        assert data[2] == encoding.ORDINARY
        assert decode_entry(SEQNO, data) == entry


def test_rollup() -> None:
    for data in golden("rollup", encode_state(v2.STATE)):
        assert data[2] == encoding.ORDINARY
        assert decode_state("rollup", data) == v2.STATE
    assert list(violations(v2.STATE)) == []


def test_what_is_volatile_is_of_format_3() -> None:
    entry = v3.entry(v3.CREATED)
    for data in golden("entry create", encode_entry(entry), v3):
        assert data[2] == encoding.VERSION == 3
        assert decode_entry(SEQNO, data) == entry
    for data in golden("rollup", encode_state(v3.KEEPING), v3):
        assert data[2] == encoding.VERSION
        assert decode_state("rollup", data) == v3.STATE, "what it holds is not in it"
    assert list(violations(v3.KEEPING)) == list(violations(v3.STATE)) == []


@pytest.mark.parametrize("kind", v1.CHANGES)
def test_entries_of_format_1(kind: str) -> None:
    for form in v1.load()[f"entry {kind}"]:
        assert form[:6] == "484501"
        assert decode_entry(SEQNO, bytes.fromhex(form)) == v1.entry(v1.CHANGES[kind])


def test_a_rollup_of_format_1() -> None:
    for form in v1.load()["rollup"]:
        assert form[:6] == "485201"
        assert decode_state("rollup", bytes.fromhex(form)) == v1.STATE


# ---- a whole location ------------------------------------------------------------------------


@pytest.fixture(params=[v1.LOCATION, v2.LOCATION], ids=["v1", "v2"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if REWRITE and not v2.LOCATION.exists():
        location_v2.write(tmp_path / "golden")
        location_v2.pack(tmp_path / "golden", v2.LOCATION)
    location_v1.unpack(request.param, tmp_path / "location")
    return tmp_path / "location"


@pytest.fixture
def location_of_format_1(tmp_path: Path) -> Path:
    location_v1.unpack(v1.LOCATION, tmp_path / "location")
    return tmp_path / "location"


def versions(root: Path) -> list[int]:
    """Return the format version of each entry of the log, in order."""
    with sqlite3.connect(f"file:{root}/log.db?mode=ro", uri=True) as log:
        return [data[2] for (data,) in log.execute("SELECT data FROM log ORDER BY seqno")]


def fsck(root: Path) -> tuple[int, str]:
    """Return the exit status of ``headwater fsck``, and what it says."""
    ran = CliRunner().invoke(app, ["fsck", str(root)])
    return ran.exit_code, ran.output


SOUND = (0, "0 errors, 0 warnings\n")


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


def rows_at(client: Client, time: int) -> list[dict[str, Any]]:
    found = client.reader("orders").snapshot(time).rows()
    assert all(diff == 1 for _, diff in found)
    return sorted((row for row, _ in found), key=lambda row: row["k"])


def test_a_location_of_an_older_format_can_be_read_and_is_not_touched(location: Path) -> None:
    before = content(location)
    with open_location(location, read_only=True) as client:
        check(client)
    assert fsck(location) == SOUND
    assert content(location) == before


def test_a_location_of_an_older_format_can_be_taken_over_and_written(location: Path) -> None:
    with pytest.raises(AlreadyLocked, match="pid 1 on golden"):
        open_location(location)
    with open_location(location, take_over=True, settings=QUIET) as client:
        check(client)
        write, _ = client.create_or_load("orders", location_v1.SECOND, key=("k",))
        write.seal(30).result()
        now = [*location_v1.ORDERS[20], location_v1.UNSEALED]
        maintenance = Maintenance(client.core)
        garbage = set(client.core.state.garbage)
        assert garbage
        maintenance.sweep()
        maintenance.once()
        maintenance.roll_up(force=True)
        assert not garbage & {info.key for info in FileBlob(location / "blob").list()}
        assert rows_at(client, 29) == now
    with open_location(location, read_only=True) as client:
        assert rows_at(client, 29) == now
    assert fsck(location) == SOUND


def test_entries_of_two_formats_in_one_log(location_of_format_1: Path) -> None:
    """Half-way through an upgrade: the rollup and the first entries are old, the rest is new."""
    location = location_of_format_1
    old = versions(location)
    assert set(old) == {1}
    added = {"k": 5, "v": "new", "w": 1.5}
    with open_location(location, take_over=True, settings=QUIET) as client:
        write, _ = client.create_or_load("orders", location_v1.SECOND, key=("k",))
        write.compare_and_append([(added, 21, 1)], 21, 22).result()
        # An update whose token is only in new bytes, through a capability that is in old ones.
        failed = client.reader("failed").id
        writer = client.core.state.collections[failed].writers["writer-1"]
        assert writer.last_update is None
        moved, _ = client.create_or_load(location_v2.MOVED, location_v1.FIRST)
        client.core.submit(OpenWriter(moved.id, "writer-2", "ingest")).result()
        update = location_v2.last_update(moved.id)
        assert client.core.submit(update).result() == Held(Frontier.of(7))
    assert versions(location)[: len(old)] == old
    assert set(versions(location)[len(old) :]) == {2}
    assert fsck(location) == SOUND
    for merged in (False, True):
        with open_location(location, read_only=True) as client:
            assert rows_at(client, 12) == location_v1.ORDERS[12]
            assert rows_at(client, 20) == location_v1.ORDERS[20]
            assert rows_at(client, 21) == [*location_v1.ORDERS[20], added]
        with open_location(location, settings=QUIET) as client:
            # Read from the log, then from a rollup.
            assert client.core.submit(update).result() == AlreadyDone()
            if not merged:
                write, _ = client.create_or_load("orders", location_v1.SECOND, key=("k",))
                batches = len(client.core.state.collections[write.id].batches)
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr(trace, "MERGE_AT_LEAST", 2)
                    Maintenance(client.core).merge_all()
                assert len(client.core.state.collections[write.id].batches) < batches
                Maintenance(client.core).roll_up(force=True)
                Maintenance(client.core).sweep()
        assert fsck(location) == SOUND
    assert set(versions(location)) == {2}


def test_the_newest_update_is_in_the_golden_location(tmp_path: Path) -> None:
    location_v1.unpack(v2.LOCATION, tmp_path)
    assert set(versions(tmp_path)) == {2}
    with open_location(tmp_path, take_over=True, settings=QUIET) as client:
        moved = client.reader(location_v2.MOVED)
        assert moved.upper == Frontier.of(7)
        update = location_v2.last_update(moved.id)
        assert client.core.submit(update).result() == AlreadyDone()


# ---- damage ----------------------------------------------------------------------------------

Decode = Callable[[bytes], object]
ONE_ENTRY = encode_entry(v2.entry(v2.CHANGES["write"]))
ONE_ROLLUP = encode_state(v2.STATE)


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


def test_a_frame_is_not_taken_for_another() -> None:
    with pytest.raises(Corrupt, match="do not begin with"):
        decode_the_entry(ONE_ROLLUP)
    with pytest.raises(Corrupt, match="says that it is entry 42"):
        decode_entry(SeqNo(41), ONE_ENTRY)
    with pytest.raises(Corrupt, match="log entry 42"):
        decode_the_entry(frame(ENTRY, b"\xc1 no msgpack", encoding.VERSION))
    with pytest.raises(Corrupt, match="rollup"):
        decode_the_rollup(frame(ROLLUP, b"\x93\x01\x02\x03", encoding.VERSION))
    with pytest.raises(Corrupt, match="version 0"):
        decode_the_entry(frame(ENTRY, b"", 0))


# ---- a newer format --------------------------------------------------------------------------


def newer(magic: bytes, body: bytes) -> bytes:
    """Frame bytes as a later version would: our checksum, another body."""
    return frame(magic, body, encoding.VERSION + 1)


def refused(blob: MemoryBlob, consensus: MemoryConsensus) -> None:
    for read_only in (True, False):
        before = (dict(blob._objects), list(consensus._entries))
        with pytest.raises(NewerFormat, match=r"format version 4.*reads up to 3.*upgrade"):
            open_location(
                blob=blob,
                consensus=consensus,
                read_only=read_only,
                take_over=not read_only,
                settings=QUIET,
            )
        assert (dict(blob._objects), list(consensus._entries)) == before, "nothing was touched"


def test_a_newer_entry_is_refused_and_nothing_is_touched() -> None:
    blob, consensus = MemoryBlob(), MemoryConsensus()
    with open_location(blob=blob, consensus=consensus, settings=QUIET) as client:
        client.create_or_load("t", location_v1.FIRST)
    consensus.append(SeqNo(consensus._entries[-1].seqno + 1), newer(ENTRY, b"of the future"))
    refused(blob, consensus)


def test_a_newer_rollup_is_refused_and_nothing_is_touched() -> None:
    blob, consensus = MemoryBlob(), MemoryConsensus()
    with open_location(blob=blob, consensus=consensus, settings=QUIET) as client:
        client.create_or_load("t", location_v1.FIRST)
        Maintenance(client.core).roll_up(force=True)
        (rollup,) = client.core.state.rollups
    blob._objects[rollup.key] = newer(ROLLUP, b"of the future")
    refused(blob, consensus)


def test_a_program_of_format_1_refuses_what_is_written_now(
    location_of_format_1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read it, and drop what it does not know."""
    with open_location(location_of_format_1, take_over=True, settings=QUIET) as client:
        client.create_or_load("t", location_v1.FIRST)
    monkeypatch.setattr(encoding, "VERSION", 1)
    before = content(location_of_format_1)
    for read_only in (True, False):
        with pytest.raises(NewerFormat, match=r"format version 2.*reads up to 1"):
            open_location(location_of_format_1, read_only=read_only, settings=QUIET)
    assert fsck(location_of_format_1)[0] == 1
    assert content(location_of_format_1) == before


def test_a_newer_log_file_is_refused_and_not_touched(location: Path) -> None:
    log = sqlite3.connect(location / "log.db")
    log.execute("PRAGMA user_version = 2")
    log.close()
    before = content(location)
    for read_only in (True, False):
        with pytest.raises(NewerFormat, match=r"format version 2.*reads up to 1.*upgrade"):
            open_location(location, read_only=read_only, settings=QUIET)
    assert {name: data for name, data in content(location).items() if name in before} == before
