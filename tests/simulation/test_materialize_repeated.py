"""What was begun at an endpoint that forgets nothing is repeated as it was, under every fault.

Real sessions (``runtime``) over a real log, one after the other: one shard, two after a split, one
after their join. One fault strikes at the n-th event; events are the protocol's messages, and each
request before and after the receiver has taken it:

    crash           both sides are gone
    lost reply      the driver has done what it was asked to; the runtime never hears of it
    zombie          the process is given up; what it was still about to send arrives after 0, 1 or 2
                    commits of its successor. Only who knows idempotency keys can bear that

Each defect must be seen in at least one of them: without the intent a row that came in a failed
attempt, and went before the next one, stays for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec
import pytest

from headwater.materialize.agreement import Agreement
from headwater.materialize.checkpoint import Position
from headwater.materialize.drivers import webhook
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.recovery import RecoveryEntry, ShardLog, entry_of
from headwater.materialize.runtime import Session
from headwater.materialize.splits import reshape
from headwater.materialize.status import Status
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from tests.simulation.materialize_receivers import (
    History,
    Hook,
    KeyedAnew,
    KeyValue,
    Receiver,
    Reduced,
    Request,
    Strict,
    Told,
    defined,
)
from tests.simulation.materialize_scenarios import is_seen

_NUMBERS = count()


@dataclass(frozen=True)
class Fault:
    """What strikes, and at which event."""

    kind: str
    event: int = 0
    commits: int = 0
    """After how many of its successor a zombie goes on."""


class Crash(BaseException):
    """The process is gone: nobody catches it and goes on."""


class Faulty(InProcess):
    """A stream that reports what happens on it."""

    def __init__(self, driver: Hook, scenario: Scenario) -> None:
        super().__init__(driver, scenario.message)
        self._scenario = scenario

    def receive(self) -> m.Response:
        response = super().receive()
        self._scenario.reply()
        return response


class Scenario(Told):
    """One run, from nothing to the end of a history."""

    def __init__(self, client: Client, make: Callable[[Told], Hook], fault: Fault) -> None:
        self.fault = fault
        self.name = f"m{next(_NUMBERS)}"
        self._client, self._make = client, make
        self._history = History(client, self.name, fault.event)
        self.receiver = Receiver()
        bindings = make(self).bindings(self._history)
        self.receiver.judges_by_key = fault.kind != "zombie"
        self.receiver.judges_once = len(bindings) > 1
        self._definition, self._reads = defined(client, self.name, bindings)
        self.events = 0
        self.struck = False
        self._late: list[Request] | None = None
        self._commits_left = 0

    # What streams and drivers report.

    @property
    def frozen(self) -> list[Request] | None:
        return self._late if self.struck and self._commits_left < 0 else None

    def _strikes(self) -> bool:
        here = not self.struck and self.events == self.fault.event
        self.events += 1
        self.struck = self.struck or here
        return here

    def event(self) -> None:
        if self.fault.kind != "lost reply" and self._strikes():
            if self.fault.kind == "crash":
                raise Crash
            self._late, self._commits_left = [], -1

    def message(self, _: m.Message) -> None:
        self.event()
        if self.frozen is not None:
            raise Crash

    def reply(self) -> None:
        if self.fault.kind == "lost reply" and self._strikes():
            raise Crash

    # What happens.

    def run(self) -> None:
        """Run to the end; raise what the judge sees."""
        core, ranges = self._client.core, KeyRange.tiling(1)
        for shards, steps in ((1, 4), (2, 2), (1, 2)):
            if len(ranges) != shards:
                reshape(core, self.name, shards)
                ranges = KeyRange.tiling(shards)
            agreement = Agreement(ranges)
            for _ in range(steps):
                self._history.go_on()
                for each in ranges:
                    self._to_the_end(each, agreement)
            while len({entry_of(core, self.name, each).position for each in ranges}) > 1:
                # One that went on through a fault has seen more than the other.
                for each in ranges:
                    self._to_the_end(each, agreement)
        self._thaw()
        self.receiver.judge(self._history.views[-1], ranges[0])

    def _to_the_end(self, key_range: KeyRange, agreement: Agreement) -> None:
        try:
            self._session(key_range, agreement)
        except Crash:
            self._commits_left = self.fault.commits
            for _ in range(2):
                self._history.go_on()
            self._session(key_range, agreement)

    def _session(self, key_range: KeyRange, agreement: Agreement) -> None:
        driver = self._make(self)
        stream = Faulty(driver, self)
        session = Session(self._client, self._definition, self._reads, key_range, stream, agreement)
        try:
            while True:
                target = session.feed.wait(0, no_later=session.goal)
                if target is None or not session.agrees(target):
                    break
                session.deliver(target, Status())
                assert session.position is not None
                self.receiver.judge(self._history.views[session.position.time], key_range)
                self._committed()
            session.end()
        finally:
            session.close()

    def _committed(self) -> None:
        if self._late is not None:
            self._commits_left -= 1
            if self._commits_left < 0:
                self._thaw()

    def _thaw(self) -> None:
        late, self._late = self._late or [], None
        for path, body, key in late:
            self.receiver.post(path, body, key)


ZOMBIES = tuple(Fault("zombie", commits=commits) for commits in range(3))
FAULTS = (Fault("crash"), Fault("lost reply"))
STRIDE = 131
"""Every so manieth event is struck each time; all of them in ``make soak``."""


def scenarios(
    client: Client,
    make: Callable[[Told], Hook],
    faults: Sequence[Fault],
    stride: int = 1,
    begin: int = 0,
) -> Iterator[Scenario]:
    """Yield a scenario for every fault at every event; each is to be run before the next."""
    for number, kind in enumerate(faults):
        event = begin + number % stride
        while True:
            scenario = Scenario(client, make, Fault(kind.kind, event, kind.commits))
            yield scenario
            event += stride
            if not scenario.struck or event >= scenario.events:
                break  # There are not so many events.


@pytest.fixture
def client() -> Iterator[Client]:
    where = open_location(
        blob=MemoryBlob(), consensus=MemoryConsensus(), settings=Settings(maintenance=False)
    )
    with where as opened:
        yield opened


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "BODY_BYTES", 80)  # Two documents fit into a request.


@pytest.mark.parametrize("stride", [STRIDE, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("make", "fault"),
    [
        *((Hook, fault) for fault in (*FAULTS, *ZOMBIES)),
        *((KeyValue, fault) for fault in FAULTS),
        *((Strict, fault) for fault in FAULTS),
        (Reduced, FAULTS[0]),
    ],
)
def test_every_fault_at_every_event(
    client: Client, make: Callable[[Told], Hook], fault: Fault, stride: int
) -> None:
    runs = repeated = 0
    for scenario in scenarios(client, make, (fault,), stride, begin=stride // 2):
        try:
            scenario.run()
        except BaseException:
            print(f"fault {scenario.fault}")
            raise
        runs += 1
        repeated += scenario.receiver.repeated
    assert runs * stride > 50, "there is something to strike"
    assert repeated or stride > 1 or make is not Hook, "some requests came again"


# ---- defects -------------------------------------------------------------------------------------


@pytest.fixture
def _forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the log forget what was begun."""
    commit = ShardLog.commit

    def forgetting(log: ShardLog, entry: RecoveryEntry, acknowledged: Position | None) -> None:
        commit(log, msgspec.structs.replace(entry, intent=None), acknowledged)

    monkeypatch.setattr(ShardLog, "commit", forgetting)


@pytest.mark.usefixtures("_forgets")
def test_an_intent_that_is_forgotten_is_seen(client: Client) -> None:
    assert is_seen(scenarios(client, KeyValue, FAULTS, begin=50)), "a row stays that is gone"


@pytest.mark.soak
@pytest.mark.usefixtures("_forgets")
@pytest.mark.parametrize(
    ("make", "faults"), [(Hook, FAULTS), (Hook, ZOMBIES[2:]), (KeyValue, FAULTS)]
)
def test_it_is_seen_everywhere(
    client: Client, make: Callable[[Told], Hook], faults: Sequence[Fault]
) -> None:
    assert is_seen(scenarios(client, make, faults))


def test_other_keys_for_the_same_request_are_seen(client: Client) -> None:
    assert is_seen(scenarios(client, KeyedAnew, FAULTS, begin=15))
