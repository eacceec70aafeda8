"""The timeline's oracle: which time a statement happens at.

Its state is the timeline of the log (``upper``: every time before it is complete), so it is as
durable and as ordered as everything else. The four rules:

1. times never decrease: also over a restart, a take-over, or a clock that is set back, because
   ``upper`` never does;
2. a write is strictly after every read before it: a read is at ``upper - 1``, a write at
   ``t >= upper``;
3. a read is at a time its inputs still have (``adapter/timestamps.py``, ``adapter/holds.py``);
4. a write is not before the upper of its target: tables follow the timeline.

A write's entry advances the timeline to ``t + 1``: whoever reads after the acknowledgement reads
at ``t`` or later. All writes of one entry are at one time, and precede the reads at that time.

Times follow the clock and are not ahead of it: a write that would be waits, for
``WAIT_MAX_MS`` at the most. If the clock was set back further than that, the timeline goes on from
where it was.

A table that a statement is going to write at a time of its own (``adapter/appointments.py``) is not
completed past that: where the timeline goes on, the table stays behind, by a write capability.

A strictly serializable read is confirmed by a linearizable read of the log, so that a fenced server
cannot answer from the past. Concurrent reads share one: each joins a confirmation that has not
begun yet, never one that has, because what was acknowledged in between would not be in it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

from headwater.adapter.appointments import Appointments
from headwater.algebra.frontier import Frontier
from headwater.base.clock import Clock
from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.persist.batch import Times
from headwater.persist.client import Client
from headwater.persist.commands import (
    Advance,
    Atomic,
    Command,
    DowngradeWriter,
    DropWriter,
    OpenWriter,
    Seal,
)
from headwater.persist.core import Core
from headwater.persist.state import CollectionState, State

LOG: Final = logging.getLogger(__name__)

DEFAULT: Final = "default"
WAIT_MAX_MS: Final = 50
TICK_SECONDS: Final = 1.0

APPOINTED: Final = "as-of"
"""The write capability by which a table stays behind for an appointment."""


NOBODY: Final = Appointments()


def write_time(upper: int, now_ms: int, waited_ms: int) -> int | None:
    """Return the time of a write; None: wait for the clock, a millisecond at a time.

    >>> write_time(upper=10, now_ms=12, waited_ms=0), write_time(upper=10, now_ms=9, waited_ms=0)
    (12, None)
    >>> write_time(upper=10, now_ms=9, waited_ms=50), write_time(upper=1000, now_ms=9, waited_ms=0)
    (10, 1000)
    """
    if now_ms >= upper:
        return now_ms
    return None if upper - now_ms <= WAIT_MAX_MS and waited_ms < WAIT_MAX_MS else upper


def advanced(
    state: State,
    upper: int,
    appointments: Appointments = NOBODY,
    written: Collection[GlobalId] = (),
) -> tuple[Command, ...]:
    """Return the commands that move the timeline, and what does not just follow it.

    Tables with writes due are sealed, ``written`` among them (those that get some in the same
    entry). What somebody has an appointment to write before ``upper`` is completed up to there.
    Where others have write capabilities, these say how far a table is.
    """
    timeline = state.timelines[DEFAULT]
    due: list[GlobalId] = []
    commands: list[Command] = []
    for gid in sorted({*timeline.apart, *written, *appointments.tables}):
        collection = state.collections.get(gid)
        if collection is None or collection.writers.keys() - {APPOINTED}:
            continue
        held, first = APPOINTED in collection.writers, appointments.first(gid)
        if first is not None and first < upper:
            commands += _kept_back(state, collection, Frontier.of(first))
            continue
        if held:
            commands.append(DropWriter(gid, APPOINTED))
        if held or gid in written or collection.unsealed.time_min < upper:
            due.append(gid)
    seal = (Seal(tuple(due), Frontier.of(upper)),) if due else ()
    return (*commands, *seal, Advance(DEFAULT, upper))


def _kept_back(state: State, table: CollectionState, first: Times) -> Iterator[Command]:
    """Yield what completes a table up to its first appointment, and no further."""
    held = table.writers.get(APPOINTED)
    if held is None:
        if state.upper(table) < first:
            yield Seal((table.id,), first)
        yield OpenWriter(table.id, APPOINTED, "a statement that writes AS OF", first)
    elif held.frontier < first:
        yield DowngradeWriter(table.id, APPOINTED, first)


class Timeline:
    """The default timeline of a location."""

    def __init__(self, client: Client, clock: Clock, tick_seconds: float = TICK_SECONDS) -> None:
        self._core = client.core
        self._clock = clock
        self.tick_seconds = tick_seconds
        self._turn = threading.Lock()
        self._confirmed = Confirmations(client.core)
        self.appointments = NOBODY
        """Changed by who has the turn."""
        self._stopping = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="headwater-tick", daemon=True)
        self.also: Callable[[State, int], tuple[Command, ...]] = lambda _state, _upper: ()
        """What a tick commits beside the advance: retention, by who keeps it."""
        if DEFAULT not in client.core.state.timelines:
            client.core.submit(Advance(DEFAULT, clock.now_ms())).result()

    name: Final = DEFAULT

    def moved(self, upper: int) -> tuple[Command, ...]:
        """Return the commands that move it, for somebody who has the turn."""
        return advanced(self._core.state, upper, self.appointments)

    @property
    def upper(self) -> int:
        """Every time before it is complete for every table."""
        return self._core.state.timelines[DEFAULT].upper

    def start(self) -> None:
        """Let time go on also when nobody writes."""
        self._ticker.start()

    def stop(self) -> None:
        """Stop ticking."""
        self._stopping.set()
        if self._ticker.is_alive():
            self._ticker.join()

    def read_time(self) -> int:
        """Return the time of a strictly serializable read, confirmed."""
        return self._confirmed().timelines[DEFAULT].upper - 1

    @contextmanager
    def write_turn(self) -> Iterator[int]:
        """Take the turn to write, at the time that is given: commit to ``time + 1`` inside.

        One at a time: between the choice of a time and its commit nobody else writes.
        """
        with self._turn:
            waited = 0
            while (time := write_time(self.upper, self._clock.now_ms(), waited)) is None:
                self._clock.sleep(0.001)
                waited += 1
            yield time

    def reach(self, time: int) -> None:
        """Let everything before ``time`` be complete, which the clock has come to."""
        with self._turn:
            if self.upper < time:
                self._core.submit(Atomic(self.moved(time))).result()

    def tick(self) -> None:
        """Let the timeline follow the clock, in one entry; nothing if it is ahead."""
        with self._turn:
            now, state = self._clock.now_ms(), self._core.state
            if now > self.upper:
                commands = (*self.moved(now), *self.also(state, now))
                self._core.submit(Atomic(commands)).result()

    def _tick(self) -> None:
        while not self._stopping.wait(self.tick_seconds):
            try:
                self.tick()
            except HeadwaterError:
                # Fenced, stopped, or storage fails: whoever asks for something is told so.
                if self._core.stopped or self._core.machine is None or self._core.machine.failure:
                    return
            except Exception:
                # A bug, and still no reason for time to stand still for everybody.
                LOG.exception("a tick failed; the next one comes")


class Confirmations:
    """Linearizable reads of the log, shared by those who ask at the same time."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._joining = threading.Lock()
        self._reading = threading.Lock()
        self._next: Future[State] | None = None

    def __call__(self) -> State:
        """Return a state that has everything acknowledged before this call."""
        with self._joining:
            batch, leads = self._next, self._next is None
            if batch is None:
                batch = self._next = Future()
        if leads:
            with self._reading:
                with self._joining:
                    self._next = None  # Who comes from here on is in the next one.
                try:
                    batch.set_result(self._core.confirm())
                except BaseException as error:  # noqa: BLE001 - each who waits is told
                    batch.set_exception(error)
        failure = batch.exception()
        if isinstance(failure, HeadwaterError) and not leads:
            raise failure.again()
        return batch.result()
