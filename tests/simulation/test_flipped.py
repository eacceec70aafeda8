"""A flipped byte in every kind of object: a named error, never wrong rows.

Every byte is flipped where an object is small enough, else many of them. Whatever a reader then
gets is either exactly what was written (a byte nobody needs, such as padding) or a ``Corrupt`` or
``NewerFormat`` that names the object. And an owner that meets a corrupted object goes on with all
the others: nothing live is deleted because of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pytest

from headwater.base.ids import SeqNo
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import Corrupt, NewerFormat
from headwater.persist.location import LogEntry
from headwater.persist.maintenance import Maintenance

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
FLIPS_MAX = 250


@dataclass
class Location:
    """A location on memory ports with one small inline write, parts of both layouts, a rollup."""

    blob: MemoryBlob
    log: MemoryConsensus

    def open(self, *, read_only: bool = False) -> Client:
        return open_location(
            blob=self.blob,
            consensus=self.log,
            read_only=read_only,
            take_over=True,
            layouts=LAYOUTS,
            settings=Settings(maintenance=False),
        )

    def read(self) -> dict[str, list[str]]:
        with self.open(read_only=True) as client:
            return {
                name: sorted(map(repr, client.reader(name).snapshot(4).to_table().to_pylist()))
                for name in ("parquet", "run", "inline")
            }


def build(*, rolled_up: bool) -> Location:
    location = Location(MemoryBlob(), MemoryConsensus())
    with location.open() as client:
        for layout in ("parquet", "run"):
            write, _ = client.create_or_load(layout, SCHEMA, key=("k",), layout=layout)
            rows = [({"k": n, "v": f"{layout} {n} " * 12}, n % 4, 1) for n in range(120)]
            write.compare_and_append(rows, 0, 5).result()
        write, _ = client.create_or_load("inline", SCHEMA)
        write.compare_and_append([({"k": 1, "v": "one"}, 2, 3)], 0, 5).result()
        if rolled_up:
            Maintenance(client.core).roll_up(force=True)
    return location


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    step = max(1, len(data) // FLIPS_MAX)
    for position in range(0, len(data), step):
        yield (
            position,
            data[:position] + bytes((data[position] ^ (1 << position % 8),)) + data[position + 1 :],
        )


def key_of(location: Location, prefix: str) -> str:
    keys = [info.key for info in location.blob.list(prefix)]
    return keys[-1]


def named_error_or_the_truth(location: Location, truth: object, what: str) -> bool:
    """Return whether the flip was noticed; fail if it was neither noticed nor harmless."""
    try:
        found = location.read()
    except (Corrupt, NewerFormat):
        return True
    assert found == truth, what
    return False


@pytest.mark.parametrize("kind", ["rollup", "parquet", "run"])
def test_a_flipped_byte_in_an_object(kind: str) -> None:
    location = build(rolled_up=True)
    truth = location.read()
    if kind == "rollup":
        key = key_of(location, "rollup/")
    else:
        with location.open(read_only=True) as client:
            collection = client.core.state.collections[client.core.state.names[kind]]
            (part,) = [part for batch in collection.batches for part in batch.parts]
            assert part.layout == kind
            key = part.where.key  # type: ignore[union-attr]
    data = location.blob.get(key)
    assert data is not None
    missed = []
    for position, flipped in flips(data):
        location.blob._objects[key] = flipped
        if not named_error_or_the_truth(location, truth, f"byte {position} of {key}"):
            missed.append(position)
    location.blob._objects[key] = data
    assert location.read() == truth
    # Each of these objects is one segment or one frame: all of its bytes are under a checksum.
    assert not missed, f"flips at {missed} of {key} were not noticed"


def test_a_flipped_byte_in_a_log_entry() -> None:
    location = build(rolled_up=False)
    truth = location.read()
    entries = list(location.log._entries)
    for index, entry in enumerate(entries):
        for position, flipped in list(flips(entry.data))[:: max(1, len(entries) // 3)]:
            location.log._entries[index] = LogEntry(SeqNo(entry.seqno), flipped)
            assert named_error_or_the_truth(location, truth, f"byte {position} of {entry.seqno}")
        location.log._entries[index] = entry
    assert location.read() == truth


@pytest.mark.parametrize("cut", [0, 1, 7, 100])
def test_a_truncated_object(cut: int) -> None:
    location = build(rolled_up=True)
    truth = location.read()
    for prefix in ("rollup/", "part/"):
        key = key_of(location, prefix)
        data = location.blob.get(key)
        assert data is not None
        location.blob._objects[key] = data[: len(data) - cut if cut else 0]
        with pytest.raises(Corrupt):
            location.read()
        location.blob._objects[key] = data
    assert location.read() == truth


class NoisyBlob(MemoryBlob):
    """Flips a byte of the next range that is read, on its way."""

    noisy = False

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        data = super().get_range(key, offset, length)
        if data is None or not self.noisy:
            return data
        self.noisy = False
        return bytes((data[0] ^ 1,)) + data[1:]


def test_what_went_wrong_on_its_way_is_read_again() -> None:
    """The cache keeps verified bytes only: the object is whole, and the next read shows it."""
    blob = NoisyBlob()
    location = Location(blob, MemoryConsensus())
    with location.open() as client:
        write, reader = client.create_or_load("c", SCHEMA)
        write.compare_and_append([({"k": 1, "v": "x" * 9000}, 0, 1)], 0, 1).result()
        blob.noisy = True
        with pytest.raises(Corrupt):
            reader.snapshot(0).to_table()
        assert reader.snapshot(0).to_table().num_rows == 1


def test_a_corrupted_part_harms_no_other() -> None:
    """Its collection cannot be merged or read; the others can, and nothing live is deleted."""
    location = build(rolled_up=False)
    truth = location.read()
    key = min(info.key for info in location.blob.list("part/"))
    data = location.blob.get(key)
    assert data is not None
    with location.open() as client:
        location.blob._objects[key] = data[:-1] + bytes((data[-1] ^ 1,))
        for n in range(5, 12):
            for name in ("parquet", "run"):
                write, _ = client.create_or_load(name, SCHEMA, key=("k",), layout=name)
                write.compare_and_append([({"k": n, "v": "x" * 9000}, n, 1)], n, n + 1).result()
        maintenance = Maintenance(client.core)
        for work in (maintenance.once, maintenance.sweep, maintenance.collect):
            with suppress(Corrupt):  # of that part: the others are looked at below
                work()
        live = set(client.core.state.references)
        assert live <= {info.key for info in location.blob.list()}
        with pytest.raises(Corrupt, match=key):
            client.reader("parquet").snapshot().to_table()
        assert client.reader("run").snapshot().to_table().num_rows == 127
    location.blob._objects[key] = data
    assert location.read() == truth
