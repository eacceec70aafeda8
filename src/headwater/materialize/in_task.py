"""Shards as tasks: sessions that are carried by a Spark task, and commit through this process.

    this process                                 a task, on any machine of the cluster
    role, epoch, recovery log, inputs            driver, combining, transactions (``carrying``)
    InTask ◀──────────── channel ──────────────▶ Here

:class:`ShardTasks` is what a process has of it: where tasks reach it, how they are run, and how
many there may be. A session is registered under an id that nobody can guess; the first task that
knows its secret gets it, once. Whoever comes later waits until the session is over:
Spark takes an attempt that ends well for the result of the task, and would end the other one.

Invariant:      no task commits. What a task asks for is committed by its session, in the epoch that
                the session has taken; if that is not the newest any more it is refused
                (``recovery``), and the endpoint's fence was raised by the Open of whoever came
                after it.
                Sessions in tasks take at most half of Spark's slots: the rest are for the views.
                Who finds none is carried by its thread, and looks for one now and then.
Kept by:        :class:`ShardTasks`, :class:`InTask`.
Relied on by:   shards (``runtime``); what follows a failure is the same wherever it was.
"""

from __future__ import annotations

import logging
import pickle
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Final

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.materialize import carrying, channel
from headwater.materialize.channel import Channel, ChannelClosed, hang_up
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine_job import Tasks
from headwater.materialize.courier import Carried, Charge, Check, Taken
from headwater.materialize.definition import Endpoint
from headwater.materialize.delivery import Stream
from headwater.materialize.disclosing import Disclosing
from headwater.materialize.pace import TASKS
from headwater.materialize.recovery import RecoveryLog
from headwater.materialize.sent import sent, sent_snapshot
from headwater.persist.interval import Interval
from headwater.persist.read import Snapshot
from headwater.persist.spark_parts import Place

LOG: Final = logging.getLogger(__name__)

ARRIVE_SECONDS: Final = 120.0
"""How long a task may wait for a slot before that is told."""
LEAVE_SECONDS: Final = 30.0
"""How long the end of a task that has nothing more to do is waited for."""

Carry = Callable[[str, int, bytes, bytes, str], bytes]
"""What a task runs: ``carrying.carry``, or a test's."""


class NoTask(HeadwaterError):
    """Spark has not begun a task for a shard."""

    def __init__(self, why: object) -> None:
        super().__init__(
            f"no task has begun to carry this shard: {why}; see whether Spark's executors have "
            "free slots and reach this process (--spark-host), or say WITH (SHARDS_IN 'threads')"
        )


class TaskGone(HeadwaterError):
    """The task that carried a shard has ended, and was not asked to."""

    def __init__(self, why: object) -> None:
        super().__init__(f"the task that carried this shard is gone ({why}); another one follows")


@dataclass(slots=True)
class Expected:
    """A session and the task that it waits for."""

    id: bytes
    secret: bytes = field(repr=False)
    arrived: queue.SimpleQueue[tuple[Channel, carrying.Arrived]] = field(
        default_factory=queue.SimpleQueue
    )
    taken: bool = False
    later: list[socket.socket] = field(default_factory=list)
    """Who came after the first, until the session is over."""
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when the job is over."""
    failure: str = ""


class ShardTasks:
    """Where and how this process has its shards carried by tasks."""

    def __init__(
        self,
        run: Tasks,
        host: str,
        slots: Callable[[], int],
        *,
        by_default: bool = False,
        carry: Carry = carrying.carry,
    ) -> None:
        """``host``: under which tasks reach this process; ``slots``: how many run at a time."""
        self._run = run
        self._host = host
        self._slots = slots
        self.by_default = by_default
        """Whether shards are carried by tasks unless somebody says otherwise."""
        self._carry = carry
        self._lock = threading.Lock()
        self._expected: dict[bytes, Expected] = {}
        self._listener: socket.socket | None = None

    def reserve(self, wanted: str) -> Expected | None:
        """Register a session; ``None`` if it is no task's, or there are as many as may be.

        ``wanted``: what was said of where its shard shall run (``pace``).
        """
        if not self._serves(wanted):
            return None
        allowed = self._slots() // 2
        id_, secret = map(secrets.token_bytes, (channel.ID_BYTES, channel.SECRET_BYTES))
        expected = Expected(id_, secret)
        with self._lock:
            if len(self._expected) >= allowed:
                return None
            self._expected[id_] = expected
        return expected

    def has_room(self, wanted: str) -> bool:
        """Whether a session would be carried by a task if it began now."""
        return self._serves(wanted) and len(self._expected) < self._slots() // 2

    def _serves(self, wanted: str) -> bool:
        return wanted == TASKS or (not wanted and self.by_default)

    def start(self, expected: Expected) -> None:
        """Have a task carry a session; it arrives by and by."""
        with self._lock:
            port = self._listening()
        work = partial(self._carry, self._host, port, expected.id, expected.secret)
        threading.Thread(
            target=self._run_job, args=(expected, work), name="headwater-shard-task", daemon=True
        ).start()

    def _run_job(self, expected: Expected, work: Callable[[str], bytes]) -> None:
        try:
            self._run([work])
        except Exception as error:  # noqa: BLE001 - Spark raises whatever it has; the session tells
            expected.failure = str(error).strip().partition("\n")[0] or type(error).__name__
        finally:
            expected.ended.set()

    def over(self, expected: Expected) -> None:
        """A session is over: whoever still comes for it is sent away."""
        with self._lock:
            self._expected.pop(expected.id, None)
            later, expected.later = expected.later, []
        while not expected.arrived.empty():
            expected.arrived.get()[0].close()
        for connection in later:
            hang_up(connection)

    def close(self) -> None:
        """Answer nobody any more."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            hang_up(listener)

    def _listening(self) -> int:
        """Return the port at which tasks are answered; begin to, if we do not yet."""
        if self._listener is None:
            family = socket.getaddrinfo(self._host, 0, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((self._host, 0), family=family)
            threading.Thread(
                target=self._listen, args=(self._listener,), name="headwater-shards", daemon=True
            ).start()
        port: int = self._listener.getsockname()[1]
        return port

    def _listen(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # We are closed.
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        """Bring a task to its session, if it knows the secret and nobody was before it."""
        try:
            connection.settimeout(channel.GREETING_SECONDS)
            wanted = channel.received(connection, channel.ID_BYTES)
            with self._lock:
                expected = self._expected.get(wanted)
            if expected is None:
                raise ChannelClosed("the session is over")
            opened = channel.answer(connection, expected.secret)
            # It must prove that it has the secret, and soon.
            late = monotonic() + channel.GREETING_SECONDS
            said = opened.receive(partial(_not_after, late), channel.GREETING_BYTES_MAX)
            arrived = carrying.read_answer(said)
            if not isinstance(arrived, carrying.Arrived):
                raise ChannelClosed("a task did not say who it is")
            self._admit(expected, connection, opened, arrived)
        except (HeadwaterError, OSError) as error:
            LOG.debug("a task was not answered: %s", error)
            hang_up(connection)

    def _admit(
        self,
        expected: Expected,
        connection: socket.socket,
        opened: Channel,
        arrived: carrying.Arrived,
    ) -> None:
        with self._lock:
            if expected.id not in self._expected:
                raise ChannelClosed("the session is over")
            if expected.taken:
                expected.later.append(connection)
                return
            expected.taken = True
            expected.arrived.put((opened, arrived))


def _not_after(time: float) -> None:
    if monotonic() > time:
        raise ChannelClosed("a task did not say who it is")


class InTask:
    """Carries a session by a task; see the module's docstring."""

    def __init__(
        self,
        stream: Stream,
        endpoint: Endpoint,
        tasks: ShardTasks,
        expected: Expected,
        place: Place,
    ) -> None:
        self.stream = stream
        self.position: Position | None = None
        """Everything before it is delivered."""
        self.carrier: carrying.Arrived | None = None
        """The task that carries it."""
        self._endpoint = endpoint
        self._tasks = tasks
        self._place = place
        self._expected = expected
        self._begun = False
        self._channel: Channel | None = None
        self._told_to_stop = False
        self._first_sent = False

    def open(self, charge: Charge, recovery: RecoveryLog, check: Check) -> None:
        """Have a task open the key range."""
        self.stream.end()
        self._begun = True
        self._charge, self._recovery, self._check = charge, recovery, check
        self._tasks.start(self._expected)
        self._channel, self.carrier = self._arrived(self._expected)
        LOG.debug("a shard is carried by %s", self.carrier)
        spec = charge.spec
        if isinstance(self.stream, Disclosing):
            spec = self.stream.disclosed(spec)
        begin = carrying.Begin(replace(charge, spec=spec), self._endpoint, recovery.entry)
        begun = self._ask(begin)
        if not isinstance(begun, carrying.Begun):
            raise TaskGone(f"it said {type(begun).__name__} out of turn")
        self.position = begun.position

    def _arrived(self, expected: Expected) -> tuple[Channel, carrying.Arrived]:
        late = monotonic() + ARRIVE_SECONDS
        while True:
            with suppress(queue.Empty):
                return expected.arrived.get(timeout=channel.POLL_MILLISECONDS / 1_000)
            self._check()
            if expected.ended.is_set() and expected.arrived.empty():
                raise NoTask(expected.failure or "it ended before it began")
            if monotonic() > late:
                raise NoTask(f"none in {ARRIVE_SECONDS:.0f} s")

    def deliver(self, upper: int, taken: Sequence[Taken], *, with_others: bool) -> Carried:
        """Have the task deliver what was taken of each binding."""
        # Pinned until the task has read them.
        ends = [
            one.at_end() if bound.chooses and isinstance(one, Interval) else None
            for bound, one in zip(self._charge.bound, taken, strict=True)
        ]
        parts = tuple(sent(self._place, one, end) for one, end in zip(taken, ends, strict=True))
        return self._carried(carrying.Deliver(upper, parts, with_others))

    def first(self, time: int, snapshots: Sequence[Snapshot]) -> Carried:
        """Have the task deliver the next part of the first snapshot."""
        parts = () if self._first_sent else tuple(sent_snapshot(self._place, s) for s in snapshots)
        carried = self._carried(carrying.First(time, parts))
        self._first_sent = bool(carried.position.snapshot)
        return carried

    def settle(self) -> None:
        """Let the driver apply the last transaction."""
        self._ask(carrying.Settle())

    def end(self) -> None:
        """End in good order."""
        self._ask(carrying.End())
        self.abort()
        # So that its slot is free for whoever comes next.
        self._expected.ended.wait(LEAVE_SECONDS)

    def abort(self) -> None:
        """Break off; the task is told by its channel, if by nothing else."""
        self._tasks.over(self._expected)
        if not self._begun:
            self.stream.abort()
        if self._channel is not None:
            self._channel.close()

    def _carried(self, request: carrying.Deliver | carrying.First) -> Carried:
        done = self._ask(request)
        if not isinstance(done, carrying.Done) or done.carried is None:
            raise TaskGone(f"it said {type(done).__name__} out of turn")
        if done.carried.committed:
            self.position = done.carried.position
        return done.carried

    def _ask(self, request: carrying.Request) -> carrying.Answer:
        """Ask the task for something; commit what it asks for meanwhile."""
        assert self._channel is not None
        try:
            self._channel.send(pickle.dumps(request))
            while True:
                answer = carrying.read_answer(self._channel.receive(self._meanwhile))
                match answer:
                    case carrying.Commit(entry, acknowledged):
                        self._recovery.commit(entry, acknowledged)
                        self._channel.send(pickle.dumps(carrying.Committed()))
                    case carrying.Failed():
                        if answer.trace:
                            LOG.error("a task that carries a shard failed\n%s", answer.trace)
                        raise carrying.error_of(answer)
                    case _:
                        return answer
        except ChannelClosed as error:
            raise TaskGone(self._expected.failure or error.why) from None

    def _meanwhile(self) -> None:
        """Pass on that we are stopping; the task breaks off where that may be."""
        assert self._channel is not None
        if self._told_to_stop:
            return
        try:
            self._check()
        except HeadwaterError:
            self._told_to_stop = True
            self._channel.send(pickle.dumps(carrying.Stop()))


def check_tasks(tasks: ShardTasks | None, place: Place | None) -> None:
    """Refuse shards in tasks where there cannot be any."""
    if tasks is None:
        raise InvalidUsage(
            "SHARDS_IN 'tasks' needs the Spark of a server (headwater serve), and here is none; "
            "leave it out, and shards are threads"
        )
    if place is None:
        raise InvalidUsage(
            "SHARDS_IN 'tasks' needs a location that Spark's tasks can read, and this one is in "
            "the memory of this process; open it in a directory or in an object store"
        )
