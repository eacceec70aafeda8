"""fsck: silent on a sound location, and it names every byte that is not what was written.

The location under test has one of everything: both layouts, inline and blob parts, errors, a merged
batch, an unsealed write cut by a seal, an evolved schema, rollups with entries before and after
them. The damage is done to copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pytest

from headwater.base.ids import SeqNo
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.batch import Part, Segment
from headwater.persist.blob import FileBlob, MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.commands import AddRollup
from headwater.persist.consensus import MemoryConsensus, SqliteConsensus
from headwater.persist.core import Settings
from headwater.persist.encoding import decode_entry, decode_state, encode_entry, encode_state
from headwater.persist.evolution import DIFF, ERROR_SCHEMA, TIME
from headwater.persist.finding import Finding
from headwater.persist.fsck import Progress, check
from headwater.persist.layout import Layouts
from headwater.persist.location import AppendOutcome, LogEntry
from headwater.persist.log import load
from headwater.persist.maintenance import Maintenance
from headwater.persist.state import CollectionState, State

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
EVOLVED = pa.schema([*SCHEMA, pa.field("f", pa.float64())])
ROWS = 300
FLIPS_MAX = 20
"""Bytes flipped in each object; all of a small one, a seeded sample of a large one."""
EDGE = 6
"""Of these so many at its begin, and as many at its end."""


class StoredLog:
    """A log that is just these entries, as storage would give them back."""

    def __init__(self, entries: tuple[LogEntry, ...]) -> None:
        self.entries = entries

    def head(self) -> SeqNo | None:
        return self.entries[-1].seqno if self.entries else None

    def scan(self, start: SeqNo, limit: int) -> tuple[LogEntry, ...]:
        return tuple(entry for entry in self.entries if entry.seqno >= start)[:limit]

    def append(self, seqno: SeqNo, data: bytes) -> AppendOutcome:
        raise AssertionError("fsck writes nothing")

    def truncate(self, seqno: SeqNo) -> int:
        raise AssertionError("fsck writes nothing")

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Stored:
    """A location as bytes."""

    objects: dict[str, bytes]
    entries: tuple[LogEntry, ...]

    def blob(self) -> MemoryBlob:
        blob = MemoryBlob()
        for key, data in self.objects.items():
            assert blob.create(key, data)
        return blob

    def findings(self) -> list[Finding]:
        return list(check(self.blob(), StoredLog(self.entries), Layouts(*LAYOUTS)))

    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings() if finding.severity == "error"]

    def with_object(self, key: str, data: bytes | None) -> Stored:
        rest = {k: v for k, v in self.objects.items() if k != key}
        return replace(self, objects=rest if data is None else {**rest, key: data})

    def with_entry(self, index: int, data: bytes) -> Stored:
        entries = list(self.entries)
        entries[index] = LogEntry(entries[index].seqno, data)
        return replace(self, entries=tuple(entries))

    def state(self) -> State:
        return load(StoredLog(self.entries), self.blob())


def updates(times: list[int], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "k": pa.array(range(len(times)), pa.int64()),
        "v": pa.array([None if n % 7 == 0 else f"value {n} of some length" for n in times]),
        "f": pa.array([n / 3 for n in range(len(times))], pa.float64()),
    }
    data = [columns[field.name] for field in schema]
    system = [
        pa.field(TIME, pa.int64(), nullable=False),
        pa.field(DIFF, pa.int64(), nullable=False),
    ]
    diffs = pa.array([1] * len(times), pa.int64())
    return pa.table([*data, pa.array(times, pa.int64()), diffs], pa.schema([*schema, *system]))


def write_one_of_everything(client: Client) -> None:
    maintenance = Maintenance(client.core)
    merged, _ = client.create_or_load("merged", SCHEMA)
    for time in range(6):
        merged.compare_and_append(updates([time] * ROWS), time, time + 1).result()
    merged.allow_compaction(4).result()
    assert maintenance.merge_one(merged.id)
    maintenance.collect()
    arranged, _ = client.create_or_load("arranged", SCHEMA, key=("k",), layout="run")
    arranged.compare_and_append(updates([0] * ROWS), 0, 1).result()
    errors = pa.table(
        [
            pa.array(["DIVISION"]),
            pa.array(["by zero"]),
            pa.array([None], pa.string()),
            pa.array([1], pa.int64()),
            pa.array([1], pa.int64()),
        ],
        pa.schema([*ERROR_SCHEMA, *list(updates([]).schema)[-2:]]),
    )
    arranged.compare_and_append(updates([1] * ROWS), 1, 2, errors=errors).result()
    maintenance.roll_up(force=True)

    cut, _ = client.create_or_load("cut", SCHEMA)
    cut.write(updates([n % 4 for n in range(ROWS)])).result()
    cut.write([({"k": 1, "v": "inline"}, 3, 1), ({"k": 2, "v": None}, 0, -1)]).result()
    cut.seal(2).result()
    client.create_or_load("merged", EVOLVED)
    both = client.atomic()
    both.compare_and_append(merged, updates([6] * ROWS, EVOLVED), 6, 7)
    both.compare_and_append(arranged, updates([2] * ROWS), 2, 3)
    both.commit().result()
    # One rollup inside the log that is left, so that it is compared with a replay.
    state = client.core.state
    key = f"rollup/{state.seqno:020d}"
    assert client.core.blob.create(key, encode_state(state))
    client.core.submit(AddRollup(state.seqno, key)).result()
    cut.seal(3).result()


@cache
def sound() -> Stored:
    blob, consensus = MemoryBlob(), MemoryConsensus()
    with open_location(
        blob=blob, consensus=consensus, settings=Settings(maintenance=False), layouts=LAYOUTS
    ) as client:
        write_one_of_everything(client)
    objects = {}
    for info in blob.list():
        data = blob.get(info.key)
        assert data is not None
        objects[info.key] = data
    return Stored(objects, consensus.scan(SeqNo(0), 10_000))


def flipped(data: bytes, index: int) -> bytes:
    return data[:index] + bytes((data[index] ^ 0x10,)) + data[index + 1 :]


def positions(data: bytes, seed: str) -> list[int]:
    if len(data) <= FLIPS_MAX:
        return list(range(len(data)))
    edges = [*range(EDGE), *range(len(data) - EDGE, len(data))]
    return edges + Random(seed).sample(range(EDGE, len(data) - EDGE), FLIPS_MAX - len(edges))


def test_a_sound_location_has_no_findings() -> None:
    stored = sound()
    assert stored.findings() == []
    state = stored.state()
    parts = [part for collection in state.collections.values() for part in collection.parts()]
    # The location has what the other tests are about.
    assert {part.layout for part in parts} == {"inline", "parquet", "run"}
    assert any(part.errors for part in parts)
    assert any(part.window for part in parts)
    assert any(part.consolidated for part in parts)
    assert len(state.rollups) == 2
    assert stored.entries[0].seqno > 0
    assert stored.entries[0].seqno < state.rollups[-1].seqno
    assert any(len(c.schemas) > 1 for c in state.collections.values())


def test_a_flipped_byte_in_any_entry_is_named() -> None:
    stored = sound()
    for index, entry in enumerate(stored.entries):
        for position in positions(entry.data, f"entry {index}"):
            damaged = stored.with_entry(index, flipped(entry.data, position))
            named = [finding.what for finding in damaged.errors()]
            assert f"log entry {entry.seqno}" in named, f"byte {position} of {entry.seqno}"


def test_a_flipped_byte_in_any_object_is_named() -> None:
    stored = sound()
    for key, data in stored.objects.items():
        for position in positions(data, key):
            damaged = stored.with_object(key, flipped(data, position))
            assert any(key in finding.what for finding in damaged.errors()), f"byte {position}"


def test_every_byte_of_an_object_with_padding_is_covered() -> None:
    """An object of several segments: the bytes between them count, too."""
    stored = sound()
    segments: dict[str, list[Segment]] = {}
    for collection in stored.state().collections.values():
        for part in collection.parts():
            if isinstance(part.where, Segment):
                segments.setdefault(part.where.key, []).append(part.where)
    key = next(key for key, found in segments.items() if len({s.offset for s in found}) > 1)
    data = stored.objects[key]
    first, second = sorted(segments[key], key=lambda segment: segment.offset)[:2]
    assert first.length < second.offset, "there is padding"
    for position in range(first.length, second.offset):
        (found,) = stored.with_object(key, flipped(data, position)).errors()
        assert "padding" in found.problem


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_truncated_or_missing_object_is_named(cut: int) -> None:
    stored = sound()
    for key, data in stored.objects.items():
        for damaged in (stored.with_object(key, data[:cut]), stored.with_object(key, None)):
            assert any(key in finding.what for finding in damaged.errors()), key


def test_a_missing_entry_is_named() -> None:
    stored = sound()
    for index in range(1, len(stored.entries) - 1):
        rest = stored.entries[:index] + stored.entries[index + 1 :]
        named = [finding.what for finding in replace(stored, entries=rest).errors()]
        assert f"log entry {stored.entries[index].seqno}" in named


def test_a_log_without_the_rollup_it_rests_on() -> None:
    stored = sound()
    rollups = [key for key in stored.objects if key.startswith("rollup/")]
    rest = {key: data for key, data in stored.objects.items() if key not in rollups}
    damaged = replace(stored, objects=rest)
    assert any(f"rollup {rollups[-1]}" == finding.what for finding in damaged.errors())
    assert damaged.errors()[-1].problem.endswith("objects were not checked")


def test_an_empty_log_beside_objects_is_an_error() -> None:
    (found,) = replace(sound(), entries=()).errors()
    assert found.what == "the log"
    assert Stored({}, ()).findings() == []


def test_one_bad_entry_does_not_hide_what_a_later_rollup_tells() -> None:
    """The replay goes on from the rollup, so a damaged part is found as well."""
    stored = sound()
    before = next(
        index
        for index, entry in enumerate(stored.entries)
        if entry.seqno < stored.state().rollups[-1].seqno
    )
    part = next(key for key in stored.objects if key.startswith("part/"))
    damaged = stored.with_entry(before, b"").with_object(part, b"")
    named = " ".join(finding.what for finding in damaged.errors())
    assert f"log entry {stored.entries[before].seqno}" in named
    assert part in named


# ---- what the log says and the bytes do not --------------------------------------------------


def edited(stored: Stored, edit: Callable[[Part], Part], like: Callable[[Part], bool]) -> Stored:
    """Change one part's description, in valid frames: in the rollups, and in the entries."""
    state = stored.state()
    target = next(
        part
        for collection in state.collections.values()
        for part in collection.parts()
        if like(part)
    )
    changed = edit(target)

    def rewrite(value: object) -> object:
        if value == target:
            return changed
        if isinstance(value, tuple):
            return tuple(rewrite(item) for item in value)
        if isinstance(value, msgspec.Struct) and not isinstance(value, Part):
            fields = msgspec.structs.asdict(value)
            return type(value)(**{name: rewrite(item) for name, item in fields.items()})
        return value

    for index, entry in enumerate(stored.entries):
        rewritten = rewrite(decode_entry(entry.seqno, entry.data))
        stored = stored.with_entry(index, encode_entry(rewritten))  # type: ignore[arg-type]
    for key, data in stored.objects.items():
        if key.startswith("rollup/"):
            rolled = decode_state(key, data)
            for gid, collection in rolled.collections.items():
                new = rewrite(collection)
                assert isinstance(new, CollectionState)
                rolled = msgspec.structs.replace(
                    rolled, collections=rolled.collections.set(gid, new)
                )
            stored = stored.with_object(key, encode_state(rolled))
    return stored


def is_large(part: Part) -> bool:
    return isinstance(part.where, Segment) and part.window is None and not part.errors


def with_stats(column: str, **changes: object) -> Callable[[Part], Part]:
    def edit(part: Part) -> Part:
        column_stats = msgspec.structs.replace(part.stats[column], **changes)
        return msgspec.structs.replace(part, stats={**part.stats, column: column_stats})

    return edit


def with_part(**changes: object) -> Callable[[Part], Part]:
    return lambda part: msgspec.structs.replace(part, **changes)


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (with_part(rows=7), "rows, not 7"),
        (with_part(diff_sum=7), "and the log says 7"),
        (with_part(time_max=3_000), "time_max is"),
        (with_stats("k", lower=5), "the log says it is at least 5"),
        (with_stats("k", upper=5), "the log says it is at most 5"),
        (with_stats("v", nulls=5_000), "the log says 5000"),
        (with_stats("v", lower="zz"), "the log says it is at least 'zz'"),
    ],
)
def test_a_description_that_does_not_match_the_part(
    edit: Callable[[Part], Part], problem: str
) -> None:
    found = edited(sound(), edit, is_large).errors()
    assert any(problem in finding.problem for finding in found), found


def test_a_part_that_is_not_consolidated() -> None:
    twice = pa.concat_tables([updates([0] * ROWS)] * 2)
    blob, consensus = MemoryBlob(), MemoryConsensus()
    with open_location(
        blob=blob, consensus=consensus, settings=Settings(maintenance=False)
    ) as client:
        write, _ = client.create_or_load("t", SCHEMA)
        write.compare_and_append(twice, 0, 1).result()
    objects = {info.key: blob.get(info.key) or b"" for info in blob.list()}
    stored = Stored(objects, consensus.scan(SeqNo(0), 100))
    (problem,) = edited(stored, with_part(consolidated=True), is_large).errors()
    assert "not consolidated" in problem.problem


def test_a_batch_whose_times_are_outside_its_bounds() -> None:
    """Two batches swap their parts in a rollup: it disagrees with the log, then with the parts."""
    stored = sound()
    key = stored.state().rollups[-1].key
    state = decode_state(key, stored.objects[key])
    collection = state.collections[state.names["arranged"]]
    first, second, *rest = collection.batches
    shifted = msgspec.structs.replace(
        collection,
        batches=(
            msgspec.structs.replace(first, parts=second.parts),
            msgspec.structs.replace(second, parts=first.parts),
            *rest,
        ),
    )
    changed = msgspec.structs.replace(
        state, collections=state.collections.set(collection.id, shifted)
    )
    index = next(i for i, entry in enumerate(stored.entries) if entry.seqno == state.seqno)
    damaged = stored.with_object(key, encode_state(changed))
    assert any(
        "differs from the replayed log in collections" in f.problem for f in damaged.errors()
    )
    # Without the log before it, the rollup is all there is.
    damaged = replace(damaged, entries=damaged.entries[index + 1 :])
    problems = [finding.problem for finding in damaged.errors()]
    assert any("before the batch's lower" in problem for problem in problems), problems
    assert any("not before the batch's upper" in problem for problem in problems), problems


def test_an_unknown_layout_is_said_to_be_unchecked() -> None:
    stored = sound()
    found = list(check(stored.blob(), StoredLog(stored.entries), Layouts()))
    assert found
    assert all("only its checksum was checked" in finding.problem for finding in found)


# ---- what costs only room --------------------------------------------------------------------


def test_objects_nobody_refers_to_are_warnings() -> None:
    stored = sound()
    state = stored.state()
    epoch = state.epoch(next(iter(state.roles)))
    for key, problem in (
        (f"part/server/{epoch - 1}-3-abc", "never committed"),
        (f"part/server/{epoch}-{10**9}-abc", "being written"),
        ("notes.txt", "not a name"),
    ):
        (found,) = stored.with_object(key, b"x").findings()
        assert found.severity == "warning"
        assert key in found.what
        assert problem in found.problem


def test_temporary_files_are_warnings(tmp_path: Path) -> None:
    open_location(tmp_path).stop()
    blob = FileBlob(tmp_path / "blob")
    (tmp_path / "blob" / "~temporary").mkdir(exist_ok=True)
    (tmp_path / "blob" / "~temporary" / "0123").write_bytes(b"half")
    consensus = SqliteConsensus(tmp_path / "log.db", read_only=True)
    (found,) = check(blob, consensus, Layouts())
    assert (found.severity, found.what) == ("warning", "temporary file ~temporary/0123")


def test_progress_reaches_the_end() -> None:
    stored = sound()
    seen: list[Progress] = []
    assert not list(check(stored.blob(), StoredLog(stored.entries), Layouts(*LAYOUTS), seen.append))
    assert seen[0].bytes_done == 0
    assert seen[-1].bytes_done == seen[-1].bytes_total > 0
    assert [p.parts_done for p in seen] == list(range(len(seen)))


# ---- beside a writer -------------------------------------------------------------------------


class Meanwhile(MemoryBlob):
    """A blob during whose next read somebody else is at work."""

    work: Callable[[], None] | None = None

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        work, self.work = self.work, None
        if work is not None:
            work()
        return super().get_range(key, offset, length)


def test_what_a_writer_collects_meanwhile_is_not_missing() -> None:
    blob, consensus = Meanwhile(), MemoryConsensus()
    with open_location(
        blob=blob, consensus=consensus, settings=Settings(maintenance=False)
    ) as client:
        write, _ = client.create_or_load("t", SCHEMA)
        for time in range(5):
            write.compare_and_append(updates([time] * ROWS), time, time + 1).result()
        maintenance = Maintenance(client.core)
        maintenance.roll_up(force=True)

        def work() -> None:
            assert maintenance.merge_one(write.id)
            maintenance.roll_up(force=True)
            write.seal(6).result()
            maintenance.roll_up(force=True)
            maintenance.collect()

        blob.work = work
        assert list(check(blob, consensus, Layouts())) == []
        assert blob.work is None
        assert not client.core.state.garbage
