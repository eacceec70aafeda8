"""A whole life of a location, in steps that can be told again.

Writes carry their tokens, so whoever reopens the location after a crash tells the same story to its
end. After each crash:

- the state has no violations, and an independent reader finds the same state;
- what was acknowledged is there once; what was not is there entirely or not at all;
- after a sweep no object is left that the log does not refer to;
- the story can be told to its end, and the end is always the same.

Relied on by: the process that is simulated (``test_fail_nth.py``), and the one that is real
(``test_killed_nth.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.clock import ManualClock
from headwater.base.ids import BatchId, RoleName
from headwater.persist import commands as c
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Core, Settings
from headwater.persist.fsck import check
from headwater.persist.layout import Layouts
from headwater.persist.location import Blob, Consensus
from headwater.persist.log import load
from headwater.persist.maintenance import Maintenance
from headwater.persist.part import read_part
from headwater.persist.state import State, violations

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
WIDER = SCHEMA.append(pa.field("w", pa.int64()))
BIG = "big" * 4000
ROLE = RoleName("ingest/1")


Row = tuple[Mapping[str, Any], int, int]


def row(k: int, time: int, diff: int = 1, v: str = "small") -> Row:
    return {"k": k, "v": v}, time, diff


WRITES: dict[str, dict[str, list[Row]]] = {
    "inline": {"a": [row(1, 0), row(2, 4)]},
    "blob": {"a": [row(3, 1, v=BIG)]},
    "append b": {"b": [row(4, 0, v=BIG)]},
    "both": {"a": [row(5, 5, v=BIG)], "b": [row(6, 2)]},
    **{
        f"append a {n}": {"a": [row(10 + n, 6 + n), row(2, 6 + n, -1 if n == 2 else 1)]}
        for n in range(5)
    },
    "late": {"a": [row(20, 30, v=BIG)]},
    "wide": {"a": [row(21, 12)]},
}


def _end() -> Counter[int]:
    end: Counter[int] = Counter()
    for writes in WRITES.values():
        for data, _, diff in writes.get("a", []):
            end[data["k"]] += diff
    return end


END = _end()
"""How often each row of the first collection is there in the end; none of them cancels out."""


def _unheard(name: str) -> None:
    pass


@dataclass
class Life:
    """A location, and what its users were told."""

    blob: Blob = field(default_factory=MemoryBlob)
    log: Consensus = field(default_factory=MemoryConsensus)
    acknowledged: set[str] = field(default_factory=set)
    on_acknowledged: Callable[[str], None] = _unheard

    def open(self, blob: Blob | None = None, log: Consensus | None = None) -> Client:
        return open_location(
            blob=blob or self.blob,
            consensus=log or self.log,
            take_over=True,
            clock=ManualClock(),
            settings=Settings(maintenance=False),
        )

    def tell(self, client: Client) -> None:
        """Do everything; what was done before is recognised."""
        maintenance = Maintenance(client.core)
        a = self._created(client)
        b = self._unless_destroyed(client)
        self._done("inline", a.write(WRITES["inline"]["a"], token=BatchId("inline")))
        self._done("blob", a.write(WRITES["blob"]["a"], token=BatchId("blob")))
        self._at_least(a, 3)
        if b is not None:
            rows = WRITES["append b"]["b"]
            self._done("append b", b.compare_and_append(rows, 0, 2, token=BatchId("append b")))
            both = client.atomic()
            both.write(a, WRITES["both"]["a"], BatchId("both"))
            both.compare_and_append(b, WRITES["both"]["b"], 2, 3, BatchId("both"))
            self._done("both", both.commit())
        epoch = client.core.submit(c.AcquireRole(ROLE, "test", take_over=True)).result()
        assert isinstance(epoch, c.Acquired)
        guarded = (c.AssertRole(ROLE, epoch.epoch), c.SetItem("checkpoint", b"1"))
        client.core.submit(c.Atomic(guarded)).result()
        self._at_least(a, 6)
        for n in range(5):
            name = f"append a {n}"
            append = a.compare_and_append(WRITES[name]["a"], 6 + n, 7 + n, token=BatchId(name))
            self._done(name, append)
        client.core.submit(c.OpenReader(a.id, "reader", "test")).result()
        maintenance.once()
        maintenance.roll_up(force=True)
        a.allow_compaction(8).result()
        client.core.submit(c.DropReader(a.id, "reader")).result()
        a, _ = client.create_or_load("a", WIDER)
        wide = [({**data, "w": 1}, time, diff) for data, time, diff in WRITES["wide"]["a"]]
        self._done("wide", a.write(wide, token=BatchId("wide")))
        late = [({**data, "w": None}, time, diff) for data, time, diff in WRITES["late"]["a"]]
        self._done("late", a.write(late, token=BatchId("late")))
        self._at_least(a, 20)
        self._merge_everything(client, maintenance, a)
        maintenance.collect()
        client.core.submit(c.SetItem("checkpoint", None)).result()
        client.core.submit(c.ReleaseRole(ROLE, epoch.epoch)).result()
        maintenance.roll_up(force=True)
        if b is not None:
            client.destroy("b")
        maintenance.roll_up(force=True)
        maintenance.collect()
        maintenance.sweep()

    @staticmethod
    def _created(client: Client) -> WriteHandle:
        gid = client.core.state.names.get("a")
        if gid is not None:
            return WriteHandle(client.core, gid)  # perhaps with the wider schema already
        return client.create_or_load("a", SCHEMA)[0]

    @staticmethod
    def _unless_destroyed(client: Client) -> WriteHandle | None:
        if "b" in client.core.state.graveyard:
            return None
        return client.create_or_load("b", SCHEMA)[0]

    @staticmethod
    def _at_least(handle: WriteHandle, upper: int) -> None:
        if handle.upper < Frontier.of(upper):
            handle.seal(upper).result()

    @staticmethod
    def _merge_everything(client: Client, maintenance: Maintenance, handle: WriteHandle) -> None:
        collection = client.core.state.collections[handle.id]
        maintenance.merge_batches(collection, collection.batches)

    def _done(self, name: str, answer: Future[c.Outcome]) -> None:
        outcome = answer.result()
        assert isinstance(outcome, c.Done | c.All | c.AlreadyDone), f"{name}: {outcome}"
        self.acknowledged.add(name)
        self.on_acknowledged(name)


def contents(core: Core, name: str) -> Counter[int]:
    """Return how often each row is there, sealed or not."""
    collection = core.state.collections[core.state.names[name]]
    found: Counter[int] = Counter()
    for part in collection.parts():
        updates = read_part(part, collection, fetch=core.cache.fetch, layouts=core.layouts)
        for update in updates.to_pylist():
            found[update["k"]] += update["__diff"]
    return Counter({k: count for k, count in found.items() if count})


def complaints(life: Life, core: Core) -> Iterator[str]:
    """Name what is wrong after a crash."""
    state = core.state
    yield from violations(state)
    if load(life.log, life.blob) != state:
        yield "a fresh reader sees another state"
    for finding in check(life.blob, life.log, Layouts()):
        if finding.severity == "error":
            yield str(finding)
    present = {name: contents(core, name) for name in ("a", "b") if name in state.names}
    destroyed = set(state.graveyard)
    for token, writes in WRITES.items():
        # The first row of a write is its own; the shared row 2 is counted below.
        there = {
            name: present[name][rows[0][0]["k"]] for name, rows in writes.items() if name in present
        }
        if any(count not in (0, 1) for count in there.values()) or len(set(there.values())) > 1:
            yield f"{token}: {there}"
        if token in life.acknowledged and 0 in there.values():
            yield f"{token}: acknowledged and lost"
        if token in life.acknowledged and not there and not {*writes} & destroyed:
            yield f"{token}: acknowledged, and its collection is gone"
    if "a" in present:
        shared = sum(
            diff
            for token, writes in WRITES.items()
            for data, _, diff in writes.get("a", [])
            if data["k"] == 2 and present["a"][writes["a"][0][0]["k"]]
        )
        if present["a"][2] != shared:
            yield f"row 2 is there {present['a'][2]} times, not {shared}"


def leaks(life: Life, state: State) -> Iterator[str]:
    known = {rollup.key for rollup in state.rollups}
    for info in life.blob.list():
        unfinished = info.key.startswith("rollup/") and info.key > max(known, default="")
        if info.key not in {*state.references, *state.garbage, *known} and not unfinished:
            yield f"object {info.key} leaked"


def told_again(life: Life) -> tuple[Client, list[str]]:
    """Open what a crash left and tell the story to its end; return what is wrong on the way."""
    client = life.open()
    found = list(complaints(life, client.core))
    Maintenance(client.core).sweep()
    found += leaks(life, client.core.state)
    found += complaints(life, client.core)
    life.tell(client)
    found += complaints(life, client.core)
    return client, found
