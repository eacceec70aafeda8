"""Whose turn it is to commit: one group of writes after another, and gates that keep writes off.

Who waits for its write (:meth:`Turns.take`) and finds nobody committing commits for everybody
(*leads*). Who comes meanwhile waits, and is woken when its write is done, or when it is to lead the
next group; nobody is woken for nothing.

A write may also be left here (:meth:`Turns.offer`): who brings it goes on, and is told when it has
its outcome. Where nobody waits who could lead, a thread does that is there as long as it is needed.
So a group of such writes costs the switches between threads of one, however many are in it.

**Company.** What a commit costs hardly depends on how much is in it, and clients that have just
been answered are likely to come again at once. So the leader waits for who was answered not long
ago (measured by what the last group took, and ``COMPANY_SECONDS_MAX``), but only while somebody
comes: when nobody has for ``QUIET_SECONDS``, the others are doing something else. A client on its
own waits for nobody, and so do clients that come now and then. Who was answered a group earlier is
expected, too: many busy clients would else split into groups that take turns.

**Gates.** :meth:`Turns.exclusive` keeps other writes off some tables while a statement reads and
then writes them; those writes wait, all others go on. Gates are granted in the order in which they
are asked for, and one who has a gate asks for no second, so nobody waits for ever.

**Appointments** (``adapter/appointments.py``) keep writes off, too: ``kept_off`` says which. A
write whose group turns out to be too late for that comes back without an outcome, and waits on. Who
has an appointment waits for nobody here.

Invariant: at most one group is being committed; each write is in one group, after all writes that
were asked for before it and are not kept off.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.adapter.limit import NO_LIMIT, Limit
from headwater.base.ids import GlobalId

if TYPE_CHECKING:
    from headwater.adapter.group_commit import Write

COMPANY_SECONDS_MAX: Final = 0.03
"""For how long after its answer a client is expected to come again, at most."""

QUIET_SECONDS: Final = 0.002
"""How long a leader waits for the next who comes."""

STANDBY_SECONDS: Final = 10.0
"""How long the thread stays that leads where nobody waits."""


def company_seconds(took: float) -> float:
    """Return for how long after a group its clients are expected again.

    >>> company_seconds(0.004), company_seconds(1.0)
    (0.012, 0.03)
    """
    return min(3 * took, COMPANY_SECONDS_MAX)


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """The right to be the only writer of some tables, from a time on."""

    tables: frozenset[GlobalId]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A write in the queue, and whose it is.

    Who waits for it sleeps on ``woken``; who left it here is told by ``tell`` instead.
    """

    write: Write
    whose: Hashable
    limit: Limit
    woken: threading.Condition | None = None
    tell: Callable[[], None] = lambda: None


class Turns:
    """The order in which the writes of one location commit."""

    def __init__(
        self,
        commit: Callable[[Sequence[Write]], None],
        company: Callable[[float], float] = company_seconds,
        quiet: float = QUIET_SECONDS,
        kept_off: Callable[[Write], bool] = lambda _: False,
    ) -> None:
        self._commit = commit
        self._kept_off = kept_off
        self._company_seconds = company
        self._quiet_seconds = quiet
        self._lock = threading.Lock()
        self._queue: list[_Waiting] = []
        self._gates: list[Gate] = []
        self._granted = threading.Condition(self._lock)
        self._led = False
        """Whether somebody gathers a group, or commits one, or is called to."""
        self._standby = threading.Condition(self._lock)
        self._stands_by = False
        """Whether there is a thread for what nobody waits for."""
        self._is_called = False
        self._in_flight: frozenset[GlobalId] | None = None
        """The tables of the group that is being committed."""
        self._company = threading.Condition(self._lock)
        self._expected: dict[Hashable, float] = {}
        """Who was answered, and until when they are expected again."""
        self._missing: set[Hashable] = set()
        """Those of them for whom the leader waits."""

    @property
    def waiting(self) -> int:
        """How many writes are in no group yet."""
        with self._lock:
            return len(self._queue)

    def take(self, write: Write, limit: Limit = NO_LIMIT) -> None:
        """Have a write committed, by this thread or another; it has its outcome afterwards."""
        with self._lock:
            woken = threading.Condition(self._lock)
            mine = _Waiting(write, threading.get_ident(), limit, woken)
            self._enqueue(mine)
            while True:
                group = self._await_turn(mine, woken)
                if group is None:
                    return
                self._lead(group)

    def offer(
        self, write: Write, whose: Hashable, tell: Callable[[], None], limit: Limit = NO_LIMIT
    ) -> None:
        """Have a write committed by another thread, and ``tell`` called there afterwards.

        Does not wait. ``whose``: who is expected again once it is told. When its limit is over,
        somebody has to :meth:`wake` those who wait.
        """
        with self._lock:
            self._enqueue(_Waiting(write, whose, limit, tell=tell))
            if not self._led and self._ready():
                self._call()

    def wake(self) -> None:
        """Let whoever waits look again."""
        over = []
        with self._lock:
            for each in self._queue:
                if each.woken is not None:
                    each.woken.notify()
                elif each.limit.is_over():
                    over.append(each)
            self._queue = [each for each in self._queue if each not in over]
            self._pass_on()
        for each in over:
            each.write.outcome = each.limit.error()
            each.tell()

    def _enqueue(self, mine: _Waiting) -> None:
        self._queue.append(mine)
        if self._missing:
            self._missing.discard(mine.whose)
            if not self._missing:
                self._company.notify()

    def _await_turn(self, mine: _Waiting, woken: threading.Condition) -> list[_Waiting] | None:
        """Wait until a write is done (None), or there is a group to commit."""
        limit = mine.limit
        while mine.write.outcome is None:
            if not self._led and self._ready():
                self._led = True
                if group := self._gathered():
                    return group
            if mine in self._queue and limit.is_over():
                self._queue.remove(mine)
                self._pass_on()
                raise limit.error()
            woken.wait(limit.rest_s())
        return None

    def _gathered(self) -> list[_Waiting]:
        """Return the group that its leader commits; none if a gate came in between."""
        self._gather()
        group = _together(self._ready())
        self._queue = [each for each in self._queue if each not in group]
        self._led = bool(group)
        return group

    def _ready(self) -> list[_Waiting]:
        return [each for each in self._queue if not self._is_barred(each.write)]

    def _gather(self) -> None:
        """Wait for those who are expected, while somebody comes."""
        if any(each.write.gate is not None for each in self._queue):
            return  # Others wait for it.
        now = time.monotonic()
        self._expected = {whose: end for whose, end in self._expected.items() if end > now}
        self._missing = {*self._expected} - {each.whose for each in self._queue}
        until, came = max(self._expected.values(), default=now), -1
        while self._missing and came != len(self._queue) and time.monotonic() < until:
            came = len(self._queue)
            self._company.wait(self._quiet_seconds)
        self._missing = set()

    def _lead(self, group: list[_Waiting]) -> None:
        """Commit a group, not holding the lock meanwhile; wake those who wait for it."""
        self._in_flight = frozenset(gid for each in group for gid in each.write.touches)
        began = time.monotonic()
        self._lock.release()
        try:
            try:
                self._commit([each.write for each in group])
            finally:
                _tell(group)
        finally:
            self._lock.acquire()
            ended = time.monotonic()
            until = ended + self._company_seconds(ended - began)
            self._expected.update((each.whose, until) for each in group)
            self._in_flight, self._led = None, False
            self._queue[:0] = [each for each in group if each.write.outcome is None]
            for each in group:
                if each.woken is not None:
                    each.woken.notify()
            self._pass_on()

    def _pass_on(self) -> None:
        """Somebody may have to lead, or may have its gate."""
        if not self._led and (ready := self._ready()):
            if (woken := ready[0].woken) is not None:
                woken.notify()
            else:
                self._call()
        self._granted.notify_all()

    # ---- where nobody waits ------------------------------------------------------------------

    def _call(self) -> None:
        """Let the thread lead that stands by."""
        self._led = self._is_called = True
        if not self._stands_by:
            self._stands_by = True
            threading.Thread(target=self._stand_by, name="headwater-turns", daemon=True).start()
        self._standby.notify()

    def _stand_by(self) -> None:
        with self._lock:
            try:
                while self._is_called or self._standby.wait(STANDBY_SECONDS):
                    if self._is_called:
                        self._is_called = False
                        if group := self._gathered():
                            self._lead(group)
            finally:
                self._stands_by = False
                if self._is_called:
                    self._call()  # While it was about to go.

    def _is_barred(self, write: Write) -> bool:
        if self._kept_off(write):
            return True
        if write.gate is not None:
            assert write.touches <= write.gate.tables, "a gate covers what it was taken for"
            return False  # Whoever else asks for these tables is behind it.
        return any(not gate.tables.isdisjoint(write.touches) for gate in self._gates)

    # ---- gates -------------------------------------------------------------------------------

    @contextmanager
    def exclusive(self, tables: frozenset[GlobalId], limit: Limit = NO_LIMIT) -> Iterator[Gate]:
        """Keep everybody else from writing ``tables``; what was written before is readable."""
        gate = Gate(tables)
        with self._lock:
            # From here on nobody begins to write them; who is at it is waited for.
            self._gates.append(gate)
        try:
            with self._lock:
                while not self._is_granted(gate):
                    if limit.is_over():
                        raise limit.error()
                    self._granted.wait(limit.rest_s())
            yield gate
        finally:
            with self._lock:
                self._gates.remove(gate)
                self._pass_on()

    def _is_granted(self, gate: Gate) -> bool:
        before = self._gates[: self._gates.index(gate)]
        if not all(gate.tables.isdisjoint(other.tables) for other in before):
            return False
        return self._in_flight is None or gate.tables.isdisjoint(self._in_flight)


def _tell(group: list[_Waiting]) -> None:
    for each in group:
        if each.write.outcome is not None:
            each.tell()


def _together(waiting: list[_Waiting]) -> list[_Waiting]:
    """Return those at the front that commit as one group: who defines something is alone."""
    for place, each in enumerate(waiting):
        if each.write.defines is not None:
            return waiting[: max(place, 1)]
    return waiting
