"""inspect: what a location holds, told without the secrets and without touching anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.clock import ManualClock
from headwater.base.errors import Determinate
from headwater.base.retry import RetryPolicy
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.commands import Advance, OpenReader, OpenWriter
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.inspect import GroupReport, Report, inspect
from headwater.persist.maintenance import Maintenance

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
SECRET = "0123456789abcdef"
ROWS = 300


def updates(time: int) -> pa.Table:
    system = [
        pa.field("__time", pa.int64(), nullable=False),
        pa.field("__diff", pa.int64(), nullable=False),
    ]
    return pa.table(
        [
            pa.array(range(ROWS), pa.int64()),
            pa.array([f"a value of some length {n}" for n in range(ROWS)]),
            pa.array([time] * ROWS, pa.int64()),
            pa.array([1] * ROWS, pa.int64()),
        ],
        pa.schema([*SCHEMA, *system]),
    )


@pytest.fixture
def blob() -> MemoryBlob:
    return MemoryBlob()


@pytest.fixture
def client(blob: MemoryBlob) -> Client:
    return open_location(
        blob=blob,
        consensus=MemoryConsensus(),
        settings=Settings(maintenance=False),
        clock=ManualClock(1_000),
        layouts=LAYOUTS,
        holder="the test",
    )


def test_an_empty_location(client: Client) -> None:
    with client:
        report = inspect(client.core)
    assert (report.seqno, report.clock_ms) == (0, 1_000)
    (role,) = report.roles
    assert (role.name, role.epoch, role.held, role.holder) == ("server", 1, True, "the test")
    empty = (report.collections, report.rollups, report.leaked, report.missing)
    assert not any(empty)
    assert report.sizes.log.objects == 1
    assert report.retry is None


def test_a_collection(client: Client) -> None:
    with client:
        client.core.submit(Advance("wall", 5)).result()
        client.create_or_load("on time", SCHEMA, timeline="wall")
        write, _ = client.create_or_load("t", SCHEMA, key=("k",), layout="run")
        for time in range(3):
            write.compare_and_append(updates(time), time, time + 1).result()
        write.compare_and_append([({"k": 1, "v": None}, 3, 1)], 3, 4).result()
        write.write([({"k": 2, "v": "x"}, 9, 1)]).result()
        write.allow_compaction(2).result()
        core = client.core
        core.submit(OpenReader(write.id, SECRET, "a view", lease_ms=50)).result()
        core.submit(OpenWriter(write.id, SECRET[::-1], "an ingestion")).result()
        clock = core.clock
        assert isinstance(clock, ManualClock)
        clock.set(2_000)
        client.create_or_load("later", SCHEMA)
        report = inspect(core)
        assert report.destroyed == ()
        client.destroy("later")
        assert inspect(core).destroyed == ("later",)

    assert [(t.name, t.upper) for t in report.timelines] == [("wall", 5)]
    follower, found, _ = report.collections
    assert (follower.timeline, follower.upper, follower.since) == ("wall", (5,), (5,))
    assert (found.name, found.layout, found.key, found.codec) == ("t", "run", ("k",), "arrow v1")
    assert found.schema == ("k: int64 not null", "v: string")
    assert (found.since, found.upper) == ((2,), (4,))
    assert [(b.lower, b.upper, b.parts, b.rows) for b in found.batches] == [
        ((0,), (1,), 1, ROWS),
        ((1,), (2,), 1, ROWS),
        ((2,), (3,), 1, ROWS),
        ((3,), (4,), 1, 1),
    ]
    assert (found.unsealed_writes, found.unsealed_rows, found.rows) == (1, 1, 3 * ROWS + 2)
    assert found.bytes == report.sizes.referenced.bytes > 0
    assert found.inline_bytes > 0
    readers = {(r.id, r.purpose, r.frontier, r.lease_ms, r.expired) for r in found.readers}
    assert readers == {("owner", "owner", (2,), 0, False), ("012345", "a view", (2,), 50, True)}
    (writer,) = found.writers
    assert (writer.id, writer.purpose, writer.frontier) == ("fedcba", "an ingestion", (4,))


def test_no_secret_is_told(client: Client) -> None:
    with client:
        write, _ = client.create_or_load("t", SCHEMA)
        client.core.submit(OpenReader(write.id, SECRET, "a view")).result()
        told = msgspec.json.encode(inspect(client.core))
    assert SECRET[:6].encode() in told
    assert SECRET[:7].encode() not in told


def test_a_closed_frontier_is_empty(client: Client) -> None:
    with client:
        write, _ = client.create_or_load("t", SCHEMA)
        write.seal(None).result()
        (found,) = inspect(client.core).collections
    assert found.upper == tuple(Frontier[int].closed()) == ()


def test_every_object_is_in_one_group(client: Client, blob: MemoryBlob) -> None:
    with client:
        write, _ = client.create_or_load("t", SCHEMA)
        for time in range(4):
            write.compare_and_append(updates(time), time, time + 1).result()
        maintenance = Maintenance(client.core)
        assert maintenance.merge_one(write.id)
        maintenance.roll_up(force=True)
        epoch = client.core.epoch
        for key in (
            f"part/server/{epoch - 1}-1-aa",
            f"part/server/{epoch}-{10**6}-bb",
            "part/nobody/1-1-cc",
            "notes.txt",
        ):
            blob.create(key, b"12345")
        report = inspect(client.core)
        assert report.sizes.referenced.objects == 1
        assert report.sizes.garbage.objects == 4
        assert [o.key for o in report.leaked] == [f"part/server/{epoch - 1}-1-aa"]
        assert [o.key for o in report.unfinished] == [
            "part/nobody/1-1-cc",
            f"part/server/{epoch}-{10**6}-bb",
        ]
        assert [o.key for o in report.foreign] == ["notes.txt"]
        assert report.sizes.foreign == GroupReport(1, 5)
        (rollup,) = report.rollups
        assert rollup.bytes == report.sizes.rollups.bytes > 0
        assert sum(1 for _ in blob.list()) == sum(
            group.objects
            for name, group in _groups(report).items()
            if name not in {"log", "temporary"}
        )

        referenced = next(iter(client.core.state.references))
        blob.delete(referenced)
        blob.delete(rollup.key)
        assert inspect(client.core).missing == tuple(sorted((referenced, rollup.key)))


def _groups(report: Report) -> dict[str, GroupReport]:
    return {name: getattr(report.sizes, name) for name in type(report.sizes).__slots__}


def test_a_report_can_be_sent_and_read_back(client: Client) -> None:
    with client:
        write, _ = client.create_or_load("t", SCHEMA)
        write.compare_and_append(updates(0), 0, 1).result()
        report = inspect(client.core)
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


class FailingBlob(MemoryBlob):
    """Refuses to create objects until told otherwise."""

    fails = True

    def create(self, key: str, data: bytes) -> bool:
        if self.fails:
            raise Determinate("the disk is full")
        return super().create(key, data)


def test_a_failing_storage_is_shown_while_it_fails() -> None:
    blob = FailingBlob()
    patient = replace(
        Settings(maintenance=False), retry=RetryPolicy(first_ms=1, limit_ms=2, attempts_max=10**9)
    )
    with open_location(blob=blob, consensus=MemoryConsensus(), settings=patient) as client:
        write, _ = client.create_or_load("t", SCHEMA)
        assert inspect(client.core).retry is None
        pending = write.write(updates(0))
        while (retry := inspect(client.core).retry) is None or retry.attempts < 3:
            assert not pending.done()
        assert retry.cause == "Determinate: the disk is full"
        assert retry.next_try_ms > 0
        blob.fails = False
        pending.result()
        assert inspect(client.core).retry is None


def test_a_reader_inspects_beside_a_writer(tmp_path: Path) -> None:
    with open_location(tmp_path) as writer:
        write, _ = writer.create_or_load("t", SCHEMA)
        with open_location(tmp_path, read_only=True) as reader:
            write.compare_and_append(updates(0), 0, 1).result()
            report = inspect(reader.core)
            assert report == inspect(writer.core)
