"""Volatile collections: all readers of their process see no difference, and the log nothing."""

from __future__ import annotations

from functools import partial
from random import Random

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId, GlobalId, RoleName, SeqNo
from headwater.base.retry import RetryPolicy
from headwater.persist import evolution, log, part, trace, volatile
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, ReadHandle, WriteHandle, new_token, open_location
from headwater.persist.commands import (
    Advance,
    AlreadyDone,
    CompareAndAppend,
    Created,
    CreateOrLoad,
    Destroy,
    DowngradeReader,
    OpenReader,
)
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.encoding import decode_entry
from headwater.persist.errors import KeptElsewhere, NotVolatile, TimelineMismatch
from headwater.persist.location import Blob, Consensus
from headwater.persist.maintenance import Maintenance
from headwater.persist.state import violations
from headwater.testing.unreliable import LostReply, UnreliableConsensus
from tests.seeds import seeds

SCHEMA = pa.schema([pa.field("k", pa.int64())])
QUIET = Settings(maintenance=False)
PATIENT = Settings(maintenance=False, retry=RetryPolicy(first_ms=1, limit_ms=2, attempts_max=1_000))


def opened(
    blob: Blob, consensus: Consensus, role: str = "server", settings: Settings = QUIET
) -> Client:
    return open_location(
        blob=blob, consensus=consensus, settings=settings, take_over=True, role=RoleName(role)
    )


def made(
    client: Client, name: str, start: int = 0, *, owner: bool = True, volatile: bool = False
) -> GlobalId:
    schema = evolution.to_bytes(SCHEMA)
    command = CreateOrLoad(name, schema, start=start, owner=owner, volatile=volatile)
    outcome = client.core.submit(command).result()
    assert isinstance(outcome, Created)
    return outcome.id


def append(client: Client, gid: GlobalId, rows: list[tuple[int, int, int]], upper: int) -> None:
    handle = WriteHandle(client.core, gid)
    updates = [({"k": k}, time, diff) for k, time, diff in rows]
    handle.compare_and_append(updates, handle.upper, upper).result()


def rows(client: Client, gid: GlobalId, time: int) -> list[tuple[int, int]]:
    table = ReadHandle(client.core, gid).snapshot(time, timeout=60).to_table()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


Ports = tuple[MemoryBlob, MemoryConsensus]


@pytest.fixture
def ports() -> Ports:
    return MemoryBlob(), MemoryConsensus()


def test_what_it_holds_goes_with_the_process_and_who_holds_it_stays(ports: Ports) -> None:
    client = opened(*ports)
    gid = made(client, "v", 3, owner=False, volatile=True)
    client.core.submit(OpenReader(gid, "r", "mine", Frontier.of(3))).result()
    listen = ReadHandle(client.core, gid).listen(3)
    append(client, gid, [(1, 3, 1), (2, 4, 1)], 6)
    append(client, gid, [(1, 6, -1)], 8)
    client.core.submit(DowngradeReader(gid, "r", Frontier.of(5))).result()
    assert [rows(client, gid, time) for time in (5, 6)] == [[(1, 1), (2, 1)], [(2, 1)]]
    event = listen.fetch(60)
    assert event is not None
    listen.close()
    said = [decode_entry(one.seqno, one.data) for one in ports[1].scan(SeqNo(0), 100)]
    assert not [c for entry in said for c in entry.changes if isinstance(c, volatile.KEPT)]

    for rolled_up in (False, True):
        if rolled_up:
            Maintenance(client.core).roll_up(force=True)
        with open_location(blob=ports[0], consensus=ports[1], read_only=True) as reader:
            state = reader.core.state
            assert state == log.load(ports[1], ports[0])
            assert state.upper(state.collections[gid]) == Frontier.of(3)
            assert state.collections[gid].since == Frontier.of(5)
            handle = reader.reader("v")
            for read in (handle.snapshot, partial(handle.snapshot, 6), partial(handle.listen, 6)):
                with pytest.raises(KeptElsewhere, match="'v' is not durable"):
                    read()

    client.core.stop(release=False)
    with opened(*ports) as client:
        state = client.core.state
        held = state.collections[gid]
        assert (held.since, state.upper(held), held.batches) == (Frontier.of(5), Frontier.of(3), ())
        client.core.submit(DowngradeReader(gid, "r", Frontier.of(7))).result()
        assert not list(violations(client.core.state))
        client.core.submit(Destroy("v")).result()
        assert not client.core.state.volatile


def test_it_never_changes_its_kind(ports: Ports) -> None:
    with opened(*ports) as client:
        client.core.submit(Advance("main", 1)).result()
        made(client, "v", volatile=True)
        made(client, "d")
        for name, wanted in (("v", False), ("d", True)):
            with pytest.raises(NotVolatile, match="take another name"):
                client.core.submit(
                    CreateOrLoad(name, evolution.to_bytes(SCHEMA), volatile=wanted)
                ).result()
        with pytest.raises(TimelineMismatch):
            client.core.submit(
                CreateOrLoad("t", evolution.to_bytes(SCHEMA), timeline="main", volatile=True)
            ).result()


def test_its_objects_stay_while_it_has_them_and_no_longer(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "INLINE_BYTES_MAX", 0)
    monkeypatch.setattr(trace, "MERGE_AT_LEAST", 2)
    client = opened(*ports)
    maintenance = Maintenance(client.core)
    gid, twin = made(client, "v", volatile=True), made(client, "d")
    for time in range(6):
        with client.core.step() as step:
            # One object with parts of both, as a step writes it.
            pending = [
                part.Pending(one, 0, "parquet", (), errors=False)
                for one in (updates(time), updates(time))
            ]
            parts = step.write(pending)
            for one, to in zip(parts, (gid, twin), strict=True):
                upper = Frontier.of(time + 1)
                append_one = CompareAndAppend(to, new_token(), Frontier.of(time), upper, (one,))
                client.core.submit(append_one).result()
    assert len(volatile.objects(client.core.state)) == 6
    append(client, gid, [(9, 6, 1)], 7)
    alone = volatile.objects(client.core.state) - set(client.core.state.references)
    assert len(alone) == 1
    # The log lets all of them go; the volatile collection has them still.
    WriteHandle(client.core, twin).allow_compaction(5).result()
    while maintenance.merge_one(twin):
        pass
    before = rows(client, gid, 5)
    maintenance.once()
    maintenance.sweep()
    assert rows(client, gid, 5) == before == rows(client, twin, 5)
    with opened(*ports, role="other") as beside:
        Maintenance(beside.core).sweep()
    assert rows(client, gid, 0) == [(0, 1)]
    WriteHandle(client.core, gid).allow_compaction(6).result()
    while maintenance.merge_one(gid):
        pass
    client.core.submit(Advance("main", 1)).result()
    maintenance.collect()
    assert not alone & {info.key for info in ports[0].list("part/")}, "let go by its merge"
    maintenance.collect()
    kept = volatile.objects(client.core.state) | set(client.core.state.references)
    assert {info.key for info in ports[0].list("part/")} == kept
    client.core.stop(release=False)
    with opened(*ports) as client:
        Maintenance(client.core).sweep()
        left = {info.key for info in ports[0].list("part/")}
        assert left == set(client.core.state.references)


def test_what_it_holds_stays_where_its_entry_was_truncated_away(ports: Ports) -> None:
    """It committed, its reply was lost, and only the role remembers when its writer looks."""
    other = opened(*ports, role="other")

    def truncate() -> None:
        other.core.submit(Advance("main", 1)).result()
        Maintenance(other.core).roll_up(force=True)

    lost = LostReply(truncate)
    client = opened(ports[0], lost.consensus(ports[1]))
    gid = made(client, "v", volatile=True)
    before = client.core.state.seqno
    lost.armed = True
    append(client, gid, [(1, 0, 1)], 1)
    assert ports[1].scan(SeqNo(0), 1)[0].seqno > before + 1, "its own entry cannot be found"
    assert rows(client, gid, 0) == [(1, 1)]
    append(client, gid, [(2, 1, 1)], 2)
    assert rows(client, gid, 1) == [(1, 1), (2, 1)]
    other.stop()
    client.core.stop(release=False)


def updates(time: int) -> pa.Table:
    columns = [[time], [time], [1]]
    return pa.table(columns, schema=evolution.updates_schema(SCHEMA))


@pytest.mark.parametrize("seed", seeds(3, 200))
def test_it_holds_what_a_durable_one_does(
    seed: int, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over lost replies, races with another role, merges, rollups and a log cut under it."""
    print(f"seed {seed}")
    random = Random(seed)
    monkeypatch.setattr(trace, "MERGE_AT_LEAST", 2)
    monkeypatch.setattr(part, "INLINE_BYTES_MAX", random.choice([0, 8192]))
    client = opened(ports[0], UnreliableConsensus(ports[1], random, 0.3), settings=PATIENT)
    other = opened(*ports, role="other")
    core, maintenance = client.core, Maintenance(client.core)
    pair = [made(client, "d"), made(client, "v", volatile=True)]
    time = 0
    for _ in range(30):
        match random.randrange(6):
            case 0 | 1 | 2:
                upper = time + random.randint(1, 3)
                drawn = [
                    (random.randrange(3), random.randrange(time, upper), random.choice([1, -1]))
                    for _ in range(random.randrange(4))
                ]
                token = BatchId(f"t{time}")
                for gid in pair:
                    handle = WriteHandle(core, gid)
                    given = [({"k": k}, at, diff) for k, at, diff in drawn]
                    for answer in (None, AlreadyDone()):
                        outcome = handle.compare_and_append(given, time, upper, token=token)
                        assert answer is None or outcome.result() == answer
                time = upper
            case 3:
                since = random.randint(0, time)
                for gid in pair:
                    held = core.state.collections[gid].since.only()
                    WriteHandle(core, gid).allow_compaction(max(since, held)).result()
            case 4:
                for gid in pair:
                    maintenance.merge_one(gid)
            case _:
                other.core.submit(Advance("main", core.state.clock_ms)).result()
                Maintenance(other.core).roll_up(force=True)
        states = [core.state.collections[gid] for gid in pair]
        assert states[0].own_upper == states[1].own_upper
        for at in range(states[0].since.only(), time):
            assert rows(client, pair[0], at) == rows(client, pair[1], at)
    assert not list(violations(core.state))
    assert volatile.stripped(core.state.collections[pair[1]]) == volatile.stripped(
        log.load(ports[1], ports[0]).collections[pair[1]]
    )
    other.stop()
    client.core.stop(release=False)
