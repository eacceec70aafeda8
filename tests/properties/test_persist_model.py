"""Persist's public API against a model that is a few lines of mathematics.

The oracle of a collection is the set of all updates ever acknowledged (``algebra/zset.py``) and two
numbers, since and upper. Whatever is asked, by the writer, by an independent reader, before or
after a crash, a merge, a rollup or a garbage collection, at any time ``t`` in ``[since, upper)``:

    snapshot(t)  =  oracle.at(t), consolidated;   listen  =  oracle between its start and its end

A crash is a runtime that is left behind: a zombie that still believes it owns the location. Its
writes must be refused; its old snapshots must say what they said, or that they cannot.

Three sizes of "inline": parts live in the log, in blob, or (rows are small and large) in both.
Whole lives, and so simulations: they are not of the minute without Spark and servers.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.algebra.frontier import Frontier
from headwater.algebra.zset import Updates, ZSet
from headwater.base.clock import ManualClock
from headwater.base.ids import BatchId
from headwater.persist import log, part, trace
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.commands import AlreadyDone, Done, Outcome, UpperMismatch
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import (
    AsOfBeforeSince,
    CompactionRegression,
    Fenced,
    SealRegression,
    WriteBeforeUpper,
)
from headwater.persist.maintenance import Maintenance
from headwater.persist.read import Listen, Progress, Snapshot
from headwater.persist.read import Updates as Delivered
from headwater.persist.state import violations
from headwater.testing.stepped import stepped

pytestmark = pytest.mark.simulation

SCHEMA = pa.schema([pa.field("k", pa.string()), pa.field("v", pa.string())])
NAMES = ("a", "b")
WAIT_S = 30  # for a future that must come; never reached

Row = str
Batch = list[tuple[Row, int, int]]

# Few rows, near each other in time: what cancels, and what does not yet, is where the bugs are.
rows = st.sampled_from(["ann", "bo", "LARGE"])
batches = st.lists(
    st.tuples(rows, st.integers(0, 4), st.sampled_from([-1, 1])), min_size=1, max_size=4
)
collections = st.sampled_from(NAMES)
disturbances = st.sampled_from(
    ["nothing", "maintain", "collect", "collect", "roll up", "crash", "restart"]
)
"""What happens right after a change, before anybody looks."""


def column(row: Row) -> dict[str, str]:
    """Give some rows so many bytes that they do not fit into the log."""
    return {"k": row, "v": row * 2_000 if row == "LARGE" else row}


@dataclass
class Oracle:
    """What a collection is, by definition."""

    updates: Updates[Row, int] = field(default_factory=Updates.empty)
    upper: int = 0
    since: int = 0
    answers: dict[int, ZSet[Row]] = field(default_factory=dict)
    """What was once answered; must be answered for ever."""

    def readable(self) -> range:
        return range(self.since, self.upper)

    def interesting(self) -> list[int]:
        """Return the readable times at which something changes, and both ends."""
        readable = self.readable()
        if not readable:
            return []
        changes = {time for time in self.updates.times() if time in readable}
        return sorted(changes | {readable[0], readable[-1]})

    def at(self, time: int) -> ZSet[Row]:
        return self.answers.setdefault(time, self.updates.at(time))


@dataclass
class Listening:
    """A listener, and what it has delivered so far."""

    name: str
    start: int
    listen: Listen
    independent: bool
    seen: Updates[Row, int] = field(default_factory=Updates.empty)


def pairs(table: pa.Table) -> list[tuple[Row, int]]:
    return list(zip(table.column("k").to_pylist(), table.column("__diff").to_pylist(), strict=True))


def multiset(table: pa.Table) -> ZSet[Row]:
    found = pairs(table)
    assert len({row for row, _ in found}) == len(found), f"not consolidated: {found}"
    assert all(diff for _, diff in found), f"not consolidated: {found}"
    return ZSet.consolidate(found)


def triples(table: pa.Table) -> Updates[Row, int]:
    return Updates.consolidate(
        (row["k"], row["__time"], row["__diff"]) for row in table.to_pylist()
    )


class PersistModel(RuleBasedStateMachine):
    """Two collections of one location, and everything that may happen to them."""

    inline_bytes_max: ClassVar[int] = part.INLINE_BYTES_MAX
    threads: ClassVar[bool] = True
    """Whether the runtime has its threads; the model waits for every answer either way."""

    def __init__(self) -> None:
        super().__init__()
        self.runtime = ExitStack()
        if not self.threads:
            self.runtime.enter_context(stepped(Random(0)))
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(part, "INLINE_BYTES_MAX", self.inline_bytes_max)
        self.patched.setattr(trace, "MERGE_AT_LEAST", 2)
        self.patched.setattr(trace, "FLOOR_ROWS", 1)
        self.blob = MemoryBlob()
        self.consensus = MemoryConsensus()
        self.clock = ManualClock(1_000)
        self.oracles = {name: Oracle() for name in NAMES}
        self.zombies: list[tuple[Client, dict[str, WriteHandle]]] = []
        self.listening: list[Listening] = []
        self.kept: list[tuple[str, Snapshot]] = []
        self.tokens = 0

    @initialize()
    def start(self) -> None:
        self.open()
        self.independent = self._runtime(read_only=True)

    def _runtime(self, *, read_only: bool) -> Client:
        return open_location(
            blob=self.blob,
            consensus=self.consensus,
            read_only=read_only,
            take_over=not read_only,
            clock=self.clock,
            # Without a cache: an object that is gone is gone.
            settings=Settings(maintenance=False, cache_bytes=0),
        )

    def open(self) -> None:
        self.client = self._runtime(read_only=False)
        self.writes = {name: self.client.create_or_load(name, SCHEMA)[0] for name in NAMES}
        self.maintenance = Maintenance(self.client.core)

    def token(self) -> BatchId:
        self.tokens += 1
        return BatchId(f"token-{self.tokens}")

    def placed(self, name: str, batch: Batch) -> Batch:
        upper = self.oracles[name].upper
        return [(row, upper + offset, diff) for row, offset, diff in batch]

    @staticmethod
    def encoded(batch: Batch) -> list[tuple[Any, int, int]]:
        return [(column(row), time, diff) for row, time, diff in batch]

    # ---- writing -----------------------------------------------------------------------------

    @rule(name=collections, batch=batches)
    def write(self, name: str, batch: Batch) -> None:
        token, placed = self.token(), self.placed(name, batch)
        handle, oracle = self.writes[name], self.oracles[name]
        assert handle.write(self.encoded(placed), token=token).result(WAIT_S) == Done()
        oracle.updates += Updates.consolidate(placed)
        # The reply is lost, the caller tries again.
        again = handle.write(self.encoded(placed), token=token).result(WAIT_S)
        assert again == AlreadyDone()

    @rule(name=collections, distance=st.integers(0, 5))
    def seal(self, name: str, distance: int) -> None:
        oracle = self.oracles[name]
        oracle.upper += distance
        assert self.writes[name].seal(oracle.upper).result(WAIT_S) == Done()

    @rule(
        name=collections,
        batch=batches,
        lag=st.sampled_from([0, 0, 0, 1, 2]),
        disturbance=disturbances,
    )
    def compare_and_append(self, name: str, batch: Batch, lag: int, disturbance: str) -> None:
        """With a lag it must be refused; its writer believed in an old upper."""
        oracle, token = self.oracles[name], self.token()
        lower = max(0, oracle.upper - lag)
        placed = [(row, lower + offset, diff) for row, offset, diff in batch]
        upper = lower + 5

        def append() -> Outcome:
            future = self.writes[name].compare_and_append(
                self.encoded(placed), lower, upper, token=token
            )
            return future.result(WAIT_S)

        outcome = append()
        if lower != oracle.upper:
            assert isinstance(outcome, UpperMismatch)
            assert outcome.current == Frontier.of(oracle.upper)
            return
        assert outcome == Done()
        oracle.updates += Updates.consolidate(placed)
        oracle.upper = upper
        assert append() == AlreadyDone()
        self.disturb(disturbance)

    @rule(first=batches, second=batches, distance=st.integers(1, 4), disturbance=disturbances)
    def atomic(self, first: Batch, second: Batch, distance: int, disturbance: str) -> None:
        """Both collections, the first one twice, and sealed together."""
        upper = max(oracle.upper for oracle in self.oracles.values()) + distance
        group = self.client.atomic()
        for name, batch in (("a", first), ("b", second), ("a", second)):
            placed = self.placed(name, batch)
            group.write(self.writes[name], self.encoded(placed))
            self.oracles[name].updates += Updates.consolidate(placed)
        group.seal(list(self.writes.values()), upper).commit().result(WAIT_S)
        for oracle in self.oracles.values():
            oracle.upper = upper
        self.disturb(disturbance)

    @rule(name=collections, data=st.data(), disturbance=disturbances)
    def allow_compaction(self, name: str, data: st.DataObject, disturbance: str) -> None:
        """Also past the seal."""
        oracle = self.oracles[name]
        oracle.since = data.draw(st.integers(oracle.since, max(oracle.since, oracle.upper + 2)))
        assert self.writes[name].allow_compaction(oracle.since).result(WAIT_S) == Done()
        self.disturb(disturbance)

    @rule(name=collections, batch=batches)
    def what_is_refused_has_no_effect(self, name: str, batch: Batch) -> None:
        oracle, handle = self.oracles[name], self.writes[name]
        if oracle.upper:
            late = [(column("bo"), oracle.upper - 1, 1)]
            with pytest.raises(SealRegression):
                handle.seal(oracle.upper - 1).result(WAIT_S)
            with pytest.raises(WriteBeforeUpper):
                handle.write(late).result(WAIT_S)
            group = self.client.atomic()
            for other in NAMES:
                group.write(self.writes[other], self.encoded(self.placed(other, batch)))
            with pytest.raises(WriteBeforeUpper):
                group.write(handle, late).commit().result(WAIT_S)
        if oracle.since:
            with pytest.raises(CompactionRegression):
                handle.allow_compaction(oracle.since - 1).result(WAIT_S)

    # ---- reading -----------------------------------------------------------------------------

    def snapshot_at_every_time(self, name: str) -> None:
        oracle, mine = self.oracles[name], self.client.reader(name)
        for time in oracle.interesting():
            assert multiset(mine.snapshot(time, 0).to_table()) == oracle.at(time)
        handle = self.independent.reader(name)
        for time in oracle.interesting()[::2]:
            assert multiset(handle.snapshot(time, 0).to_table()) == oracle.at(time)
        if oracle.since:
            with pytest.raises(AsOfBeforeSince):
                handle.snapshot(oracle.since - 1, 0)
        beyond = max(oracle.since, oracle.upper)
        with pytest.raises(TimeoutError):
            handle.snapshot(beyond, 0)

    @rule(
        data=st.data(),
        how=st.sampled_from(["keep", "listen", "listen apart"]),
        compact=st.booleans(),
        disturbance=disturbances,
    )
    def begin_to_read(self, data: st.DataObject, how: str, compact: bool, disturbance: str) -> None:
        """Keep a snapshot, or listen, and pull the history away from under it."""
        readable = [name for name, oracle in self.oracles.items() if oracle.readable()]
        if not readable:
            return
        name = data.draw(st.sampled_from(readable))
        time = data.draw(st.sampled_from(self.oracles[name].interesting()))
        independent = how == "listen apart"
        handle = (self.independent if independent else self.client).reader(name)
        self.oracles[name].at(time)
        snapshot = handle.snapshot(time, 0)
        if how == "keep":
            self.kept.append((name, snapshot))
        else:
            self.listening.append(Listening(name, time, handle.listen(time), independent))
        if compact:
            self._compact_behind(name)
        self.disturb(disturbance)

    def _compact_behind(self, name: str) -> None:
        """Give up all history but the newest, with a reader in the middle of it."""
        oracle = self.oracles[name]
        oracle.since = max(oracle.since, oracle.upper - 1)
        self.writes[name].allow_compaction(oracle.since).result(WAIT_S)

    def snapshots_say_the_same_for_ever(self) -> None:
        """Of this runtime whatever happened since; of a zombie, unless it was compacted away."""
        for name, snapshot in self.kept:
            oracle = self.oracles[name]
            try:
                answer = multiset(snapshot.to_table())
            except AsOfBeforeSince:
                assert snapshot.as_of < oracle.since
                assert snapshot._core is not self.client.core
            else:
                assert answer == oracle.answers[snapshot.as_of]
            if snapshot._core is self.client.core:
                # Its objects are pinned, so not even this needs a second look at the log.
                pieces = [ZSet.consolidate(pairs(table)) for table in snapshot.updates()]
                assert sum(pieces, start=ZSet.empty()) == oracle.answers[snapshot.as_of]

    def hear(self) -> None:
        for listening in list(self.listening):
            oracle = self.oracles[listening.name]
            if listening.independent:
                self.independent.core.refresh()
            try:
                while (event := listening.listen.fetch(0)) is not None:
                    if isinstance(event, Delivered):
                        assert event.ok.num_rows == len(triples(event.ok)), "consolidated"
                        listening.seen += triples(event.ok)
                    else:
                        assert isinstance(event, Progress)
            except AsOfBeforeSince:
                # Nobody holds history for an independent reader; then it says so.
                assert listening.independent
                assert listening.listen.frontier < Frontier.of(oracle.since + 1)
                self.listening.remove(listening)
                continue
            start = Frontier.of(listening.start + 1)
            reached = Frontier.of(max(listening.start + 1, oracle.upper))
            assert listening.listen.frontier == reached
            assert listening.seen == oracle.updates.between(start, reached)

    # ---- what must not change anything -------------------------------------------------------

    @rule(disturbance=disturbances, sweep=st.booleans(), jump_ms=st.integers(-500, 5_000))
    def something_happens(self, disturbance: str, sweep: bool, jump_ms: int) -> None:
        self.clock.set(max(0, self.clock.now_ms() + jump_ms))
        if sweep:
            self.maintenance.sweep()
        self.disturb(disturbance)

    def disturb(self, disturbance: str) -> None:
        match disturbance:
            case "nothing":
                return
            case "maintain":
                self.maintenance.once()
            case "collect":
                self.maintenance.once()
                self.maintenance.collect()  # what waits for more otherwise
            case "roll up":
                self.maintenance.roll_up(force=True)
            case "restart":
                self._forget_listeners()
                self.client.stop()
                self.open()
            case _:
                self._crash()
        self.everything_is_as_it_was()

    def _crash(self) -> None:
        self._forget_listeners()
        self.zombies.append((self.client, self.writes))
        self.open()

    def _forget_listeners(self) -> None:
        self.listening = [one for one in self.listening if one.independent]

    @precondition(lambda self: self.zombies)
    @rule(name=collections, batch=batches)
    def a_zombie_writes(self, name: str, batch: Batch) -> None:
        _, writes = self.zombies[-1]
        with pytest.raises(Fenced):
            writes[name].write(self.encoded(self.placed(name, batch))).result(WAIT_S)

    def everything_is_as_it_was(self) -> None:
        assert log.load(self.consensus, self.blob) == self.client.core.state
        for name in NAMES:
            self.snapshot_at_every_time(name)
        self.snapshots_say_the_same_for_ever()
        self.hear()

    # ---- what always holds -------------------------------------------------------------------

    @invariant()
    def the_state_is_sound(self) -> None:
        state = self.client.core.state
        assert list(violations(state)) == []
        for name, oracle in self.oracles.items():
            collection = state.collections[state.names[name]]
            assert collection.since == Frontier.of(oracle.since)
            assert state.upper(collection) == Frontier.of(oracle.upper)

    def teardown(self) -> None:
        with self.runtime:
            if hasattr(self, "client"):
                self._end()

    def _end(self) -> None:
        try:
            self.everything_is_as_it_was()
            self.kept.clear()
            self._nothing_leaks()
        finally:
            for client, _ in self.zombies:
                client.core.stop(release=False)
            self.client.stop()
            self.independent.stop()
            self.patched.undo()

    def _nothing_leaks(self) -> None:
        """After a take-over every object that nobody refers to can be told, and is gone."""
        self._crash()
        self.maintenance.sweep()
        self.maintenance.collect()
        state = self.client.core.state
        known = set(state.references) | {rollup.key for rollup in state.rollups}
        assert {info.key for info in self.blob.list()} == known


class PersistModelInBlob(PersistModel):
    """Every part is an object."""

    inline_bytes_max = 0
    threads = False


class PersistModelInLog(PersistModel):
    """Every part is in the log."""

    inline_bytes_max = 10**9
    threads = False


FEW = settings(
    max_examples=max(25, settings.default.max_examples // 10),  # type: ignore[union-attr]
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

TestPersistModel = PersistModel.TestCase
TestPersistModel.settings = FEW
TestPersistModelInBlob = PersistModelInBlob.TestCase
TestPersistModelInBlob.settings = FEW
TestPersistModelInLog = PersistModelInLog.TestCase
TestPersistModelInLog.settings = FEW
