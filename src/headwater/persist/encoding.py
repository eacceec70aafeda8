"""The bytes of log entries and rollups, and the versions we can read.

    frame := magic 2 bytes | version 1 byte | body (msgpack) | xxh3-64 of all before, 8 bytes BE

Entries have magic ``HE``, rollups ``HR``. A frame is verified before its body is looked at; a
newer version is refused before anything is touched; every older one stays readable (golden bytes
in ``tests/formats``), also beside newer ones in the same log.

- **1**: the first.
- **3**: a collection may be volatile (``persist/volatile.py``). Only entries that create one and
  rollups that have one say so; all others are still written as version 2, which is read by programs
  that know no more.
- **2**: a write capability knows the token of its newest update (``Writer.last_update``). Bodies of
  version 1 are read as they are; the token is then unknown. The number is new all the same: a
  reader of version 1 would drop the field without a word, and refuse the retry it is there for.
"""

from __future__ import annotations

from typing import Any, Final

import immutables
import msgspec
import xxhash

from headwater.base.ids import GlobalId, RoleName, SeqNo
from headwater.persist.batch import Segment
from headwater.persist.changes import CollectionCreated, Entry, Role
from headwater.persist.errors import Corrupt, NewerFormat
from headwater.persist.state import CollectionState, Rollup, State, Timeline
from headwater.persist.unsealed import dec_hook, enc_hook
from headwater.persist.volatile import stripped

ENTRY: Final = b"HE"
ROLLUP: Final = b"HR"
VERSION: Final = 3
"""Everything up to it can be read."""
ORDINARY: Final = 2
"""What is written where nothing is volatile."""


class _Written(msgspec.Struct, frozen=True):
    """The state as it is written: what can be derived is left out."""

    seqno: SeqNo
    clock_ms: int
    next_id: int
    reserved: frozenset[GlobalId]
    roles: dict[RoleName, Role]
    timelines: dict[str, Timeline]
    collections: list[CollectionState]
    graveyard: dict[str, GlobalId]
    items: dict[str, bytes]
    rollups: tuple[Rollup, ...]
    garbage: dict[str, SeqNo]


_encoder = msgspec.msgpack.Encoder()
# Equal states have equal bytes, in every process: a rollup that is written twice is one object.
_state_encoder = msgspec.msgpack.Encoder(enc_hook=enc_hook, order="deterministic")
_entry_decoder = msgspec.msgpack.Decoder(Entry)
_state_decoder = msgspec.msgpack.Decoder(_Written, dec_hook=dec_hook)


def frame(magic: bytes, body: bytes, version: int) -> bytes:
    """Wrap a body so that any change of its bytes is noticed."""
    head = magic + bytes((version,)) + body
    return head + xxhash.xxh3_64_digest(head)


def unframe(magic: bytes, data: bytes, what: str) -> bytes:
    """Return the body of a frame, verified."""
    if len(data) < 11 or data[:2] != magic:
        raise Corrupt(what, f"{len(data)} bytes do not begin with {magic!r}")
    if data[2] > VERSION:
        raise NewerFormat(what, data[2], VERSION)
    if data[2] < 1:
        raise Corrupt(what, "it has format version 0, which never was")
    if xxhash.xxh3_64_digest(data[:-8]) != data[-8:]:
        raise Corrupt(what, "its checksum does not match")
    return data[3:-8]


def _decode(decoder: msgspec.msgpack.Decoder[Any], body: bytes, what: str) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, AssertionError) as error:
        raise Corrupt(what, str(error)) from error


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of an entry."""
    volatile = any(isinstance(c, CollectionCreated) and c.volatile for c in entry.changes)
    return frame(ENTRY, _encoder.encode(entry), VERSION if volatile else ORDINARY)


def decode_entry(seqno: SeqNo, data: bytes) -> Entry:
    """Return the entry stored at ``seqno``."""
    what = f"log entry {seqno}"
    entry: Entry = _decode(_entry_decoder, unframe(ENTRY, data, what), what)
    if entry.seqno != seqno:
        raise Corrupt(what, f"it says that it is entry {entry.seqno}")
    return entry


def encode_state(state: State) -> bytes:
    """Return the bytes of a rollup."""
    written = _Written(
        seqno=state.seqno,
        clock_ms=state.clock_ms,
        next_id=state.next_id,
        reserved=state.reserved,
        roles=dict(state.roles),
        timelines=dict(state.timelines),
        collections=[stripped(state.collections[gid]) for gid in sorted(state.collections)],
        graveyard=dict(state.graveyard),
        items=dict(state.items),
        rollups=state.rollups,
        garbage=dict(state.garbage),
    )
    return frame(ROLLUP, _state_encoder.encode(written), VERSION if state.volatile else ORDINARY)


def decode_state(key: str, data: bytes) -> State:
    """Return the state stored as the rollup ``key``."""
    what = f"rollup {key}"
    written: _Written = _decode(_state_decoder, unframe(ROLLUP, data, what), what)
    references: dict[str, int] = {}
    for collection in written.collections:
        for part in collection.parts():
            if isinstance(part.where, Segment):
                references[part.where.key] = references.get(part.where.key, 0) + 1
    return State(
        seqno=written.seqno,
        clock_ms=written.clock_ms,
        next_id=written.next_id,
        reserved=written.reserved,
        roles=immutables.Map(written.roles),
        timelines=immutables.Map(written.timelines),
        collections=immutables.Map({c.id: c for c in written.collections}),
        graveyard=immutables.Map(written.graveyard),
        items=immutables.Map(written.items),
        rollups=written.rollups,
        garbage=immutables.Map(written.garbage),
        names=immutables.Map({c.name: c.id for c in written.collections}),
        references=immutables.Map(references),
        volatile=frozenset(c.id for c in written.collections if c.volatile_from is not None),
    )
