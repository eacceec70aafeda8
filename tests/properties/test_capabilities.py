"""Capabilities against the formalism: a small model, random commands, validate before each.

The model knows who holds what, and says: since is the meet of the readers, upper the meet of the
writers, and both follow only an explicit move. Every command is first validated, which must leave
the state as it is and foretell exactly what the command then does.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from headwater.algebra.frontier import Frontier
from headwater.base.clock import ManualClock
from headwater.base.errors import InvalidUsage
from headwater.collection.capability import Capability, ReadCapability, WriteCapability, from_text
from headwater.collection.collections import Bound, Collections, Description
from headwater.collection.subscription import Subscription
from headwater.persist.batch import Times
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, ReadHandle, open_location
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import (
    AsOfBeforeSince,
    CompactionRegression,
    InvalidBounds,
    InvalidCapability,
    SealRegression,
    UpdateBeyondUpper,
    WriteBeforeUpper,
)
from headwater.persist.maintenance import Maintenance
from headwater.persist.read import Updates
from headwater.persist.state import violations
from headwater.testing.stepped import stepped

pytestmark = pytest.mark.simulation

SCHEMA = pa.schema([pa.field("k", pa.int64())])
NEVER = 2**62  # The model's empty frontier.

times = st.integers(0, 30) | st.just(NEVER)
leases = st.sampled_from([0, 100, 1_000])
changes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 31), st.sampled_from([1, 1, -1])))


def frontier(time: int) -> Times:
    return Frontier.closed() if time == NEVER else Frontier.of(time)


def number(found: Times) -> int:
    return NEVER if found.is_closed else found.only()


@dataclass
class Holder:
    """What the model knows of one capability."""

    at: int
    lease_ms: int
    expires_ms: int

    def expired(self, now_ms: int) -> bool:
        return self.lease_ms > 0 and self.expires_ms <= now_ms


@dataclass
class Model:
    """The formalism, in small."""

    since: int = 0
    upper: int = 0
    readers: dict[str, Holder] = field(default_factory=dict)
    writers: dict[str, Holder] = field(default_factory=dict)
    updates: list[tuple[int, int, int]] = field(default_factory=list)

    def holder(self, capability: Capability, now_ms: int) -> Holder | None:
        holders = self.readers if isinstance(capability, ReadCapability) else self.writers
        found = holders.get(capability.token)
        return None if found is None or found.expired(now_ms) else found

    def move(self, capability: Capability, to: int | None, now_ms: int) -> None:
        """Move (or with ``None`` drop) a capability, sweep the expired, let the frontier follow."""
        holders = self.readers if isinstance(capability, ReadCapability) else self.writers
        if to is None:
            del holders[capability.token]
        else:
            holder = holders[capability.token]
            holder.at, holder.expires_ms = to, now_ms + holder.lease_ms
        for token in [token for token, holder in holders.items() if holder.expired(now_ms)]:
            del holders[token]
        meet = min((holder.at for holder in holders.values()), default=NEVER)
        if holders is self.readers:
            self.since = max(self.since, meet)
        else:
            self.upper = max(self.upper, meet)

    def contents(self, as_of: int) -> Counter[int]:
        found: Counter[int] = Counter()
        for k, time, diff in self.updates:
            if time <= as_of:
                found[k] += diff
        return Counter({k: count for k, count in found.items() if count})


class Capabilities(RuleBasedStateMachine):
    """See the module's docstring."""

    readers = Bundle("readers")
    writers = Bundle("writers")

    def __init__(self) -> None:
        super().__init__()
        self.runtime = ExitStack()
        self.runtime.enter_context(stepped(Random(0)))  # every answer is waited for anyway
        self.clock = ManualClock(1)
        self.blob, self.consensus = MemoryBlob(), MemoryConsensus()
        self.model = Model()
        self.followed: list[tuple[Subscription, int, Counter[int]]] = []
        self.client = self._open()

    def _open(self) -> Client:
        client = open_location(
            blob=self.blob,
            consensus=self.consensus,
            clock=self.clock,
            take_over=True,
            settings=Settings(maintenance=False),
        )
        self.collections = Collections(client)
        return client

    def teardown(self) -> None:
        with self.runtime:
            self.client.core.stop(release=False)

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def attempt(
        self, refusal: type[InvalidUsage] | None, name: str, *args: Any, **more: Any
    ) -> Any:
        """Validate, then execute; both end as the model says. Return what the command returned."""
        before = self.client.core.state
        foretold = self._outcome(lambda: getattr(self.collections.validation, name)(*args, **more))
        assert self.client.core.state is before, "validation changed the state"
        found = self._outcome(lambda: getattr(self.collections, name)(*args, **more))
        told = type(found) if isinstance(found, InvalidUsage) else None
        assert told is refusal, (name, args, found, refusal)
        if isinstance(found, InvalidUsage):
            assert str(foretold) == str(found)
            assert self.client.core.state is before, "a refused command changed the state"
        else:
            assert _frontiers(foretold) == _frontiers(found)
        return found

    @staticmethod
    def _outcome(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except InvalidUsage as refused:
            return refused

    # ---- rules -----------------------------------------------------------------------------------

    @initialize(target=readers, start=st.integers(0, 3))
    def create(self, start: int) -> Any:
        self.id = self.attempt(None, "new_id")
        read, write = self.attempt(None, "create", self.id, Description(SCHEMA, start=start))
        self.model.since = self.model.upper = start
        self._opened(read, start, 0)
        self._opened(write, start, 0)
        self.unclaimed = [write]
        return read

    def _opened(self, capability: Capability, at: int, lease_ms: int) -> None:
        assert number(capability.frontier) == at
        holder = Holder(at, lease_ms, self.now_ms + lease_ms)
        is_read = isinstance(capability, ReadCapability)
        (self.model.readers if is_read else self.model.writers)[capability.token] = holder

    @rule(target=readers, lease_ms=leases)
    def acquire(self, lease_ms: int) -> Any:
        read, write = self.attempt(None, "acquire_capabilities", self.id, lease_ms=lease_ms)
        self._opened(read, self.model.since, lease_ms)
        self._opened(write, self.model.upper, lease_ms)
        self.unclaimed.append(write)
        return read

    @rule(target=writers)
    def writers_of_acquired_pairs(self) -> Any:
        """A rule fills one bundle; the other halves of pairs come out here."""
        found, self.unclaimed = self.unclaimed, []
        return multiple(*found)

    @rule(target=readers, at=st.integers(0, 30), lease_ms=leases)
    def acquire_read(self, at: int, lease_ms: int) -> Any:
        refusal = CompactionRegression if at < self.model.since else None
        found = self.attempt(refusal, "acquire_read", self.id, at=at, lease_ms=lease_ms)
        if refusal:
            return multiple()
        self._opened(found, at, lease_ms)
        return found

    @rule(target=readers, read=readers)
    def clone_read(self, read: ReadCapability) -> Any:
        return self._clone("clone_read", read)

    @rule(target=writers, write=writers)
    def clone_write(self, write: WriteCapability) -> Any:
        return self._clone("clone_write", write)

    def _clone(self, name: str, capability: Capability) -> Any:
        holder = self.model.holder(capability, self.now_ms)
        found = self.attempt(None if holder else InvalidCapability, name, capability)
        if holder is None:
            return multiple()
        holder.expires_ms = self.now_ms + holder.lease_ms
        self._opened(found, holder.at, holder.lease_ms)
        return found

    @rule(read=readers, to=times)
    def downgrade_read(self, read: ReadCapability, to: int) -> None:
        self._downgrade("downgrade_read", read, to, CompactionRegression)

    @rule(write=writers, to=times)
    def downgrade_write(self, write: WriteCapability, to: int) -> None:
        self._downgrade("downgrade_write", write, to, SealRegression)

    def _downgrade(
        self, name: str, capability: Capability, to: int, back: type[InvalidUsage]
    ) -> None:
        holder = self.model.holder(capability, self.now_ms)
        refusal = InvalidCapability if holder is None else back if to < holder.at else None
        self.attempt(refusal, name, capability, frontier(to))
        if refusal is None:
            self.model.move(capability, to, self.now_ms)

    @rule(capability=readers | writers)
    def renew(self, capability: Capability) -> None:
        holder = self.model.holder(capability, self.now_ms)
        name = "renew_read" if isinstance(capability, ReadCapability) else "renew_write"
        self.attempt(None if holder else InvalidCapability, name, capability)
        if holder is not None:
            holder.expires_ms = self.now_ms + holder.lease_ms

    @rule(capability=readers | writers)
    def drop(self, capability: Capability) -> None:
        is_read = isinstance(capability, ReadCapability)
        known = capability.token in (self.model.readers if is_read else self.model.writers)
        valid = self.model.holder(capability, self.now_ms) is not None
        self.attempt(InvalidCapability if known and not valid else None, "drop", capability)
        if valid:
            self.model.move(capability, None, self.now_ms)

    @rule(write=writers, found=changes, by=st.integers(1, 6))
    def update(self, write: WriteCapability, found: list[tuple[int, int, int]], by: int) -> None:
        """An update with its times where they may be."""
        holder = self.model.holder(write, self.now_ms)
        start = NEVER if holder is None else holder.at
        if start < NEVER:
            inside = [(k, start + time % by, diff) for k, time, diff in found]
            self.any_update(write, inside, start + by)

    @rule(write=writers, found=changes, to=times)
    def any_update(
        self, write: WriteCapability, found: list[tuple[int, int, int]], to: int
    ) -> None:
        holder = self.model.holder(write, self.now_ms)
        refusal: type[InvalidUsage] | None = None
        if holder is None:
            refusal = InvalidCapability
        elif not holder.at < to:
            refusal = InvalidBounds
        elif any(time < holder.at for _, time, _ in found):
            refusal = WriteBeforeUpper
        elif any(time >= to for _, time, _ in found):
            refusal = UpdateBeyondUpper
        updates = [({"k": k}, time, diff) for k, time, diff in found]
        self.attempt(refusal, "update_and_downgrade", write, updates, frontier(to))
        if refusal is None:
            self.model.updates.extend(found)
            self.model.move(write, to, self.now_ms)

    @rule(read=readers)
    def subscribe(self, read: ReadCapability) -> None:
        holder = self.model.holder(read, self.now_ms)
        stated = number(read.frontier)
        refusal = None
        if holder is None or stated == NEVER or stated < holder.at:
            refusal = InvalidCapability
        found = self.attempt(refusal, "subscribe_at", read)
        if isinstance(found, Subscription):
            self.followed.append((found, stated, Counter()))

    @rule()
    def follow(self) -> None:
        """Fetch what there is: added up, it is the collection at every upper that is told."""
        going_on = []
        for subscription, as_of, seen in self.followed:
            began = subscription.upper != Frontier.of(0)
            try:
                while (event := subscription.fetch(timeout=0)) is not None:
                    if isinstance(event, Updates):
                        for row in event.ok.to_pylist():
                            seen[row["k"]] += row["__diff"]
                    reached = number(event.upper)
                    assert reached <= self.model.upper
                    expected = self.model.contents(reached - 1)
                    assert Counter({k: n for k, n in seen.items() if n}) == expected
            except AsOfBeforeSince:
                assert not began
                assert as_of < self.model.since
                continue
            going_on.append((subscription, as_of, seen))
        self.followed = going_on

    @rule(by_ms=st.sampled_from([60, 100, 1_000]))
    def time_passes(self, by_ms: int) -> None:
        """Moves no frontier: the invariant below looks."""
        self.clock.set(self.now_ms + by_ms)

    @rule()
    def maintain(self) -> None:
        Maintenance(self.client.core).once()

    @rule()
    def crash(self) -> None:
        """Another process takes over; capabilities are as good there, also as text."""
        self.followed.clear()
        zombie = self.client
        self.client = self._open()
        zombie.core.stop(release=False)

    @rule(target=readers, read=readers)
    def hand_over(self, read: ReadCapability) -> Any:
        found = from_text(read.to_text())
        assert found == read
        return found

    # ---- what always holds ---------------------------------------------------------------------

    @invariant()
    def frontiers_are_the_models(self) -> None:
        if not hasattr(self, "id"):
            return
        expected = Bound(frontier(self.model.since), frontier(self.model.upper))
        assert self.collections.status(self.id) == expected
        assert list(violations(self.client.core.state)) == []

    @invariant()
    def what_is_readable_is_the_models(self) -> None:
        first, last = self.model.since, min(self.model.upper - 1, 40)
        for time in {first, last}:
            if first <= time < self.model.upper and time < NEVER and hasattr(self, "id"):
                table = ReadHandle(self.client.core, self.id).snapshot(time, timeout=0).to_table()
                found = {row["k"]: row["__diff"] for row in table.to_pylist()}
                assert Counter(found) == self.model.contents(time)


def _frontiers(found: Any) -> Any:
    """Return what of a result can be foretold: everything but tokens."""
    if isinstance(found, tuple):
        return tuple(_frontiers(item) for item in found)
    if isinstance(found, ReadCapability | WriteCapability):
        return type(found), found.id, found.frontier
    return None if isinstance(found, Subscription) else found


Capabilities.TestCase.settings = settings(
    max_examples=max(30, settings.default.max_examples // 3 if settings.default else 30),
    stateful_step_count=60,
    deadline=None,
)
TestCapabilities = Capabilities.TestCase


def _found(result: Any) -> list[Any]:
    return list(result.values) if hasattr(result, "values") else [result]


@pytest.mark.parametrize("seed", range(8))
def test_a_long_walk(seed: int) -> None:
    """The same machine, driven far: what needs many right steps in a row is found here."""
    random = Random(int(os.environ.get("SEED", seed)))
    machine = Capabilities()
    try:
        readers: list[Any] = [machine.create(random.randrange(4))]
        writers: list[Any] = list(machine.unclaimed)
        for step in range(250):
            readers, writers = readers[-12:], writers[-8:]
            read, write = random.choice(readers), random.choice(writers)
            by = random.randint(1, 5)
            updates = [
                (random.randrange(4), random.randrange(9), random.choice([1, 1, -1]))
                for _ in range(random.randrange(3))
            ]
            lease = random.choice([0, 100, 1_000])
            near = machine.model.since + random.randrange(5)
            match random.randrange(16):
                case 0:
                    readers += _found(machine.acquire(lease))
                    writers += machine.unclaimed
                    machine.unclaimed = []
                case 1:
                    readers += _found(machine.clone_read(read))
                case 2:
                    writers += _found(machine.clone_write(write))
                case 3 | 4:
                    machine.downgrade_read(read, near)
                case 5:
                    machine.downgrade_write(write, machine.model.upper + by)
                case 6 | 7 | 8:
                    machine.update(write, updates, by)
                case 9:
                    machine.renew(random.choice([read, write]))
                case 10 if min(len(machine.model.readers), len(machine.model.writers)) > 2:
                    machine.drop(random.choice([read, write]))
                case 11:
                    machine.subscribe(read.at(frontier(min(near, 10**6))))
                case 12:
                    machine.follow()
                case 13:
                    machine.time_passes(random.choice([60, 100, 1_000]))
                case 14:
                    machine.maintain()
                case _ if step % 5 == 0:
                    machine.crash()
                case _:
                    readers += _found(machine.acquire_read(near, lease))
            machine.frontiers_are_the_models()
            machine.what_is_readable_is_the_models()
            if machine.model.since == NEVER or machine.model.upper == NEVER:
                break
        machine.follow()
    finally:
        machine.teardown()
