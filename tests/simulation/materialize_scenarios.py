"""Scenarios: the bank delivered through one fault, at one message (``materialize_bank``).

Three stages: one shard, two after a split, one after their join; or, into the endpoint whose driver
stages its work, one shard throughout. One fault strikes at the n-th message:

    crash           both sides are gone; what the driver does after its message is not done
    lost reply      the driver does all it was asked to; the runtime never hears of it
    replay          Acknowledge is delivered twice
    stall           the session freezes, and goes on later
    zombie          it freezes, another takes over and commits 0, 1 or 2 times, then it thaws

The judge looks after every fault and at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from headwater.base.errors import HeadwaterError
from headwater.materialize.drivers import sql
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.transport.in_process import InProcess
from headwater.persist import errors as persist_errors
from tests.simulation.materialize_bank import (
    FULL,
    TIMES,
    Bank,
    Shard,
    SharedLog,
    StagingDriver,
    judge,
    spec_of,
)

STEP: Final = 2
FREEZE_SECONDS: Final = 30.0
HALVES = FULL.split()


class Crash(BaseException):
    """The process is gone: nobody catches it and goes on."""


@dataclass(frozen=True)
class Fault:
    """What strikes, and at which message."""

    kind: str
    event: int
    commits: int = 0
    """Of whoever takes over from a frozen session."""


class Faulty(InProcess):
    """A stream in which one thing goes wrong, once in the life of a scenario."""

    def __init__(self, driver: SqliteDriver, scenario: Scenario) -> None:
        super().__init__(driver, self._watched)
        self.driver = driver
        self._scenario = scenario

    def _watched(self, message: m.Message) -> None:
        fault = self._scenario.strikes(message)
        if fault is None:
            return
        match fault.kind:
            case "crash":
                raise Crash
            case "replay" if isinstance(message, m.Acknowledge):
                list(self._driver.respond(message))  # The first of two; what it says is lost.
            case "zombie":
                self._scenario.freeze()
            case _:
                pass  # A replay of what is no Acknowledge.

    def receive(self) -> m.Response:
        response = super().receive()
        if self._scenario.loses(response):
            raise Crash
        return response


class Session(Protocol):
    """One session of a shard."""

    @property
    def time(self) -> int: ...

    def deliver(self, upper: int) -> None: ...

    def settle(self) -> None: ...

    def end(self) -> None: ...


class Scenario:
    """One run, from nothing to the end of the bank's history."""

    gone: tuple[type[BaseException], ...] = (Crash,)
    """What a session ends with whose process is gone."""
    fenced: tuple[type[BaseException], ...] = (sql.Fenced, persist_errors.Fenced)
    """What it ends with if another one has taken over."""

    def __init__(
        self,
        path: Path,
        make: Callable[[], SqliteDriver],
        fault: Fault,
        *,
        deliver_all: bool = False,
    ) -> None:
        self.path, self._make, self.fault = path, make, fault
        self._deliver_all = deliver_all
        self._bank = Bank(fault.event)
        self._log = SharedLog()
        self._spec: MaterializationSpec = spec_of(path, InProcess(make()))
        self._staged = isinstance(make(), StagingDriver)
        self._events = 0
        self.struck = False
        self._frozen, self._thawed = threading.Event(), threading.Event()
        self._replies = 0

    @property
    def events(self) -> int:
        """How many there were that its fault could have struck."""
        return self._replies if self.fault.kind == "lost reply" else self._events

    # What the stream asks.

    def strikes(self, _: m.Message) -> Fault | None:
        here = self._events == self.fault.event and self.fault.kind != "lost reply"
        self._events += 1
        self.struck = self.struck or here
        return self.fault if here else None

    def loses(self, _: m.Response) -> bool:
        here = self._replies == self.fault.event and self.fault.kind == "lost reply"
        self._replies += 1
        self.struck = self.struck or here
        return here

    def freeze(self) -> None:
        self._frozen.set()
        assert self._thawed.wait(FREEZE_SECONDS)

    # What happens.

    def run(self) -> None:
        """Run to the end; raise what the judge sees."""
        if self._staged:
            self._to(FULL, TIMES)
        else:
            self._to(FULL, 2 * STEP)
            for half in HALVES:
                self._to(half, 3 * STEP)
            self._to(FULL, TIMES)
        self._judge()

    def _judge(self) -> None:
        if not self._staged:
            judge(self.path, self._bank)
            return
        entry = self._log.entries.get(FULL)
        time = 0 if entry is None or entry.position is None else entry.position.time
        judge(self.path, self._bank, {FULL: time})

    def _open(self, key_range: KeyRange) -> tuple[Session, Faulty]:
        driver = self._make()
        stream = Faulty(driver, self)
        try:
            return self._shard(key_range, stream), stream
        except BaseException:
            driver.close()
            raise

    def _shard(self, key_range: KeyRange, stream: Faulty) -> Session:
        shard = Shard(self._bank, self._spec, key_range, self._log, stream)
        if self._deliver_all:
            shard.delivered_range = FULL
        return shard

    def _to(self, key_range: KeyRange, until: int) -> None:
        """Bring a range to a time, through whatever happens."""
        for _ in range(3):
            if self.fault.kind == "zombie" and not self.struck:
                done = self._with_a_zombie(key_range, until)
            else:
                done = self._session(key_range, until)
            if done:
                return
        raise AssertionError("it never got to the end")

    def _session(self, key_range: KeyRange, until: int, commits: int | None = None) -> bool:
        """Run a session to a time, or for some commits; return whether it came to its end."""
        stream: Faulty | None = None
        try:
            shard, stream = self._open(key_range)
            while shard.time < until and commits != 0:
                shard.deliver(min(shard.time + STEP, until))
                commits = None if commits is None else commits - 1
            shard.end()
        except self.gone:
            if stream is not None:
                stream.driver.close()
            # Where work is staged the endpoint follows with the next Acknowledged.
            if not self._staged:
                judge(self.path, self._bank)
            return False
        return True

    def _with_a_zombie(self, key_range: KeyRange, until: int) -> bool:
        """Run a session in a thread; if it freezes, let another take over for a while."""
        outcome: list[BaseException | bool] = []
        opened: list[Faulty] = []

        def run() -> None:
            try:
                shard, stream = self._open(key_range)
                opened.append(stream)
                while shard.time < until:
                    shard.deliver(min(shard.time + STEP, until))
                shard.end()
                outcome.append(True)
            except BaseException as error:  # noqa: BLE001 - told to whoever waits for it
                outcome.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive() and not self._frozen.is_set():
            thread.join(0.001)
        if self._frozen.is_set():
            # One that holds the file's lock keeps everybody out: it only stalls.
            if not (opened and opened[0].driver._in_transaction):
                self._taken_over()
                self._session(key_range, until, self.fault.commits)
            self._thawed.set()
        thread.join()
        for stream in opened:
            stream.driver.close()
        (ended,) = outcome
        if isinstance(ended, self.fenced):
            self._judge_settled(key_range)
            return False
        if isinstance(ended, BaseException):
            raise ended
        return True

    def _taken_over(self) -> None:
        """A session is frozen, and another is about to take over."""

    def _judge_settled(self, key_range: KeyRange) -> None:
        if self._staged:
            shard, _ = self._open(key_range)
            shard.settle()
            shard.end()
        self._judge()


ZOMBIES: Final = tuple(Fault("zombie", 0, commits) for commits in range(3))
FAULTS: Final = (Fault("crash", 0), Fault("lost reply", 0), Fault("replay", 0), *ZOMBIES)
STRIDE: Final = 25
"""Every so manieth event is struck each time; all of them in ``make soak``."""


def scenarios(
    directory: Path,
    make: Callable[[], SqliteDriver],
    faults: Sequence[Fault] = FAULTS,
    stride: int = 1,
    *,
    kind_of: Callable[..., Scenario] = Scenario,
) -> Iterator[Scenario]:
    """Yield a scenario for every fault at every event; each is to be run before the next."""
    for number, kind in enumerate(faults):
        # Each fault begins elsewhere, so that together they strike more events.
        event = number % stride
        while True:
            path = directory / f"{number}-{event}.db"
            scenario = kind_of(path, make, replace(kind, event=event))
            yield scenario
            event += stride
            if not scenario.struck or event >= scenario.events:
                break  # There are not so many events.


def count_run(found: Iterator[Scenario]) -> int:
    """Run all of them, in none of which anything may be wrong; return how many they are."""
    count = 0
    for scenario in found:
        try:
            scenario.run()
        except BaseException:
            print(f"fault {scenario.fault}")
            raise
        count += 1
    return count


class Judged(Protocol):
    """A run that ends with an error if its judge sees something wrong."""

    @property
    def fault(self) -> object:
        """What strikes."""
        ...

    def run(self) -> object:
        """Run it to its end."""
        ...


def is_seen(found: Iterator[Judged]) -> bool:
    """Whether the judge, or anything else, sees that something is wrong."""
    for scenario in found:
        try:
            scenario.run()
        except (HeadwaterError, AssertionError) as seen:
            print(f"seen by {scenario.fault}: {seen}")
            return True
    return False
