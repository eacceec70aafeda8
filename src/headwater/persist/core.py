"""The runtime of one location in one process: what all handles of it share.

It keeps the newest state this process has seen, tells waiters when that moves, hands out step
numbers for part names, and knows what this process is reading (``persist/in_use.py``), so that its
own garbage collection and merges leave that alone.

Two kinds: a **writer** owns a role and commits through its :class:`~.machine.Machine`; a **reader**
follows the log and writes nothing anywhere. A reader looks at the log when somebody waits, every
``poll_ms``; one that the writer notifies (``persist/notify.py``) looks when it is told to.

Stopping never waits for the thread that asks for it: asked by a thread of the runtime itself (a
callback of a future dropped the last client, say), it goes on in a thread of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

from headwater.base.clock import Clock, SystemClock
from headwater.base.errors import ExternalError, HeadwaterError
from headwater.base.ids import Epoch, RoleName
from headwater.base.retry import RetryPolicy, RetryState
from headwater.persist import log
from headwater.persist.backlog import Backlog
from headwater.persist.batch import Part, Segment
from headwater.persist.cache import CACHE_BYTES_DEFAULT, SegmentCache
from headwater.persist.commands import Acquired, AcquireRole, Command, Outcome, ReleaseRole
from headwater.persist.errors import Fenced, ReadOnly, Stopped
from headwater.persist.in_use import InUse
from headwater.persist.layout import Layouts
from headwater.persist.location import Blob, Consensus
from headwater.persist.machine import Machine
from headwater.persist.metrics import Metrics
from headwater.persist.part import PartName, Pending, write_parts
from headwater.persist.retries import Retries
from headwater.persist.state import State
from headwater.persist.steps import Steps

LOG: Final = logging.getLogger(__name__)

SERVER = RoleName("server")

THREADS: Final = "headwater-"
"""How the names of all threads of a runtime begin."""

DROP_WAIT_S: Final = 5.0
"""How long the drop of the last client waits for the end of the runtime. Bounded, because it may
happen in any thread at any allocation, also where that thread holds a lock which the end needs."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a runtime behaves; every number has its unit in its name."""

    cache_bytes: int = CACHE_BYTES_DEFAULT
    poll_ms: int = 100
    """How often an independent reader looks at the log."""
    notified_poll_ms: int = 1_000
    """How often a reader looks that is connected to the writer: entries of other roles, and
    messages that got lost."""
    notify: bool = False
    """Whether a writer tells readers of new entries; it listens on ``notify_host`` then."""
    notify_host: str = "127.0.0.1"
    rollup_entries: int = 512
    rollup_bytes: int = 4 * 1024 * 1024
    maintenance: bool = True
    """Merges, rollups and garbage collection in the background. Never needed for correctness."""
    child_merge_rows: int = 100_000
    """Merges of more updates than this run in a child process, away from our interpreter lock."""
    audit_fraction: float = 0.01
    """Share of parts skipped by statistics that are read anyway, to prove the skip right."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    pending_bytes: int = 256 * 1024 * 1024
    """How many bytes of updates may wait to be written; whoever submits more waits, too."""
    stop_ms: int = 10_000
    """How long a stop goes on retrying what was submitted before, while storage fails."""


def this_process() -> str:
    """Describe this process, for whoever finds the lock taken."""
    return f"pid {os.getpid()} on {socket.gethostname()}"


class Core:
    """One location, in one process."""

    def __init__(
        self,
        blob: Blob,
        consensus: Consensus,
        *,
        read_only: bool,
        clock: Clock | None = None,
        settings: Settings | None = None,
        layouts: Layouts | None = None,
    ) -> None:
        self.blob = blob
        self.consensus = consensus
        self.read_only = read_only
        self.clock = clock or SystemClock()
        self.settings = settings or Settings()
        self.layouts = layouts or Layouts()
        self.metrics = Metrics()
        self.retries = Retries(
            self.settings.retry, self.clock, self.metrics, stop_ms=self.settings.stop_ms
        )
        self.cache = SegmentCache(blob, self.metrics, self.settings.cache_bytes)
        self.in_use = InUse()
        self.machine: Machine | None = None
        self.clients: set[int] = set()
        self.notified = False
        """Whether the writer tells us of new entries, just now."""
        self.on_stop: list[Callable[[], None]] = []
        self._state = State()
        self._moved = threading.Condition()
        self._listeners: list[Callable[[State], None]] = []
        self._stopped = False
        self._finishing: threading.Thread | None = None
        self._finished = threading.Event()
        self._prepare = ThreadPoolExecutor(2, thread_name_prefix="headwater-parts")
        self._backlog = Backlog(self.settings.pending_bytes)
        self.steps = Steps()

    # ---- opening and stopping ----------------------------------------------------------------

    def open_reader(self) -> None:
        """Load the state; from then on :meth:`refresh` follows the log."""
        self._publish(self.retrying(lambda: log.load(self.consensus, self.blob)))

    def open_writer(self, role: RoleName, holder: str, reentrance_id: str, take_over: bool) -> None:
        """Load the state, take the role, and begin to commit."""
        if self.read_only:
            raise ReadOnly
        state = self.retrying(lambda: log.load_to_write(self.consensus, self.blob))
        self._publish(state)
        machine = Machine(
            self.consensus,
            self.blob,
            role=role,
            clock=self.clock,
            state=state,
            retries=self.retries,
            metrics=self.metrics,
            on_commit=self._publish,
        )
        outcome = machine.commit_now(AcquireRole(role, holder, reentrance_id, take_over))
        assert isinstance(outcome, Acquired)
        machine.epoch = outcome.epoch
        self.machine = machine
        machine.start(self.steps.closed)

    @property
    def stopped(self) -> bool:
        """Whether no new work is taken."""
        return self._stopped

    def stop(self, *, release: bool = True) -> None:
        """Finish pending work, release the role, take nothing new. Safe to call again."""
        if not self._close_door():
            self._await_end()
            return
        if threading.current_thread().name.startswith(THREADS):
            self._finish_apart(release)
        else:
            self._finish(release)

    def drop(self) -> None:
        """Stop because nobody is left to ask for anything; see ``DROP_WAIT_S``."""
        if not self._close_door():
            return
        finishing = self._finish_apart(release=True)
        if not threading.current_thread().name.startswith(THREADS):
            finishing.join(DROP_WAIT_S)

    def _close_door(self) -> bool:
        """Take nothing new from now on; whether that is news."""
        with self._moved:
            if self._stopped:
                return False
            self._stopped = True
            self._moved.notify_all()
        self.retries.hurry()
        return True

    def _finish_apart(self, release: bool) -> threading.Thread:
        # Not a daemon: the interpreter waits for it, and with it for what was promised.
        finishing = threading.Thread(
            target=self._finish, args=(release,), name=f"{THREADS}stop", daemon=False
        )
        finishing.start()
        return finishing

    def _await_end(self) -> None:
        """Wait for an end that somebody else brings about, unless it needs this thread."""
        current = threading.current_thread()
        if current is not self._finishing and not current.name.startswith(THREADS):
            self._finished.wait()

    def _finish(self, release: bool) -> None:
        self._finishing = threading.current_thread()
        try:
            self._end(release)
        finally:
            self._finished.set()

    def _end(self, release: bool) -> None:
        for hook in reversed(self.on_stop):
            try:
                hook()
            except Exception:
                # The role is still to be given back, and the ports to be closed.
                LOG.exception("a hook failed while the runtime stopped")
        # Parts still being written finish: their futures were promised.
        self._prepare.shutdown(wait=True)
        machine = self.machine
        if machine is not None:
            if release and machine.failure is None:
                # If this fails the role stays held: its reentrance id, or a take-over, frees it.
                with contextlib.suppress(HeadwaterError):
                    machine.submit(ReleaseRole(machine.role, machine.epoch)).result()
            machine.stop()
        self.blob.close()
        self.consensus.close()

    # ---- state -------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The newest state this process has seen."""
        return self._state

    @property
    def epoch(self) -> Epoch:
        """Our epoch; 0 for a reader."""
        return Epoch(0) if self.machine is None else self.machine.epoch

    @property
    def keeps_volatile(self) -> bool:
        """Whether volatile collections are kept here; who only reads the log knows nothing."""
        return self.machine is not None

    @property
    def retry_state(self) -> RetryState | None:
        """What is failing just now: attempts, cause, next try."""
        return self.retries.state

    def subscribe(self, listener: Callable[[State], None]) -> None:
        """Call ``listener`` with every new state, in the committing thread: be quick."""
        self._listeners.append(listener)

    def _publish(self, state: State) -> None:
        with self._moved:
            if state.seqno <= self._state.seqno:
                return
            self._state = state
            self._moved.notify_all()
        for listener in self._listeners:
            try:
                listener(state)
            except Exception:
                # The entry is durable, and whoever asked for it is still to be told so.
                LOG.exception("a listener failed at entry %d", state.seqno)

    def look(self) -> State:
        """Return the newest state a caller may expect to see: what every writer was told is in it.

        A writer's own state has that; a reader looks at the log.
        """
        return self._state if self.machine is not None else self.refresh()

    def wake(self) -> None:
        """Let every waiter look again."""
        with self._moved:
            self._moved.notify_all()

    def refresh(self) -> State:
        """Return the newest state of the location itself, by a linearizable read of the log."""
        return self._refresh(None)

    def _refresh(self, deadline: float | None) -> State:
        def follow() -> State:
            return log.follow(self.consensus, self.blob, self._state)

        state = self.retrying(follow, deadline=deadline)
        if self.machine is None:
            self._publish(state)
        return state

    def confirm(self) -> State:
        """Return the newest state of the location, and be sure that the role is still ours.

        What is answered from it is then not from the past: a fenced process is told so here.
        """
        state = self.refresh()
        machine = self.machine
        if machine is not None and state.epoch(machine.role) != machine.epoch:
            holder = state.roles[machine.role].holder
            raise Fenced(machine.role, machine.epoch, state.epoch(machine.role), holder)
        return state

    def wait(
        self, ready: Callable[[State], Result | None], timeout: float | None = None
    ) -> Result | None:
        """Wait until ``ready(state)`` is not None and return it; None when time is up."""
        # How long a thread is blocked has nothing to do with what time it is (``base/clock.py``).
        deadline = None if timeout is None else time.monotonic() + timeout
        # Whether what we have seen is all we can know without looking at the log ourselves.
        current = self.machine is not None
        while True:
            found = ready(self._state)
            if found is not None:
                return found
            if self._stopped:
                raise Stopped
            if not current:
                self._refresh(deadline)
                current = True
                continue
            with self._moved:
                if self._stopped:
                    raise Stopped
                if self.machine is not None and self.machine.failure is not None:
                    raise self.machine.failure.again()
                if ready(self._state) is None:
                    rest = None if deadline is None else deadline - time.monotonic()
                    if rest is not None and rest <= 0:
                        return None
                    tick = self._look_again_s()
                    told = self._moved.wait(tick if rest is None else min(rest, tick))
                    current = told or self.machine is not None

    def _look_again_s(self) -> float:
        """How long to wait for news before looking anyway."""
        if self.machine is not None:
            return 1.0
        settings = self.settings
        return (settings.notified_poll_ms if self.notified else settings.poll_ms) / 1000

    def retrying(
        self,
        call: Callable[[], Result],
        *,
        promised: bool = False,
        deadline: float | None = None,
    ) -> Result:
        """Run an idempotent call against storage until it succeeds or attempts are used up.

        ``promised``: somebody was told that this will be done, so a stop waits for it (a while).
        ``deadline``, in monotonic seconds: when the caller wants the failure rather than wait.
        """
        retry = self.retries.attempts(object(), promised=promised)
        try:
            while True:
                try:
                    return call()
                except ExternalError as error:
                    self.metrics.failures.labels("retried").inc()
                    if not retry.again(error, deadline):
                        raise
        finally:
            retry.over()

    def fetch(self, segment: Segment) -> Any:
        """Return a buffer with the segment's bytes; ``None`` if its object is gone."""
        return self.retrying(lambda: self.cache.fetch(segment))

    # ---- committing --------------------------------------------------------------------------

    def submit(self, command: Command) -> Future[Outcome]:
        """Queue a command."""
        return self._machine().submit(command)

    def submit_parts(
        self, pending: Sequence[Pending], command: Callable[[tuple[Part, ...]], Command]
    ) -> Future[Outcome]:
        """Queue a command whose parts are written meanwhile; it keeps its place in the order."""
        machine = self._machine()
        size = sum(item.updates.nbytes for item in pending)
        if size <= 4096:
            return machine.submit(command(self.write_parts(pending)))
        prepared: Future[Command] = Future()
        # Our own threads make room for others; they must not wait for it.
        self._backlog.take(size, wait=not threading.current_thread().name.startswith(THREADS))
        step = self.steps.take()

        def close(_: object = None) -> None:
            self.steps.close(step)
            self._backlog.give_back(size)

        try:
            future = machine.submit_prepared(prepared)
        except BaseException:
            close()
            raise
        future.add_done_callback(close)

        def prepare() -> None:
            try:
                if self.retries.given_up:
                    raise Stopped("the runtime stopped while storage failed")
                prepared.set_result(command(self.write_parts(pending, step)))
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                prepared.set_exception(error)

        try:
            self._prepare.submit(prepare)
        except RuntimeError:
            # The pool closed since we looked: a stop has begun, or the interpreter ends. The place
            # in the order is taken, so whoever is behind waits for it: write here and now.
            prepare()
        return future

    def write_parts(self, pending: Sequence[Pending], step: int | None = None) -> tuple[Part, ...]:
        """Write parts under a step of ours; invisible until a command refers to them."""
        if not pending:
            return ()
        machine = self.machine
        if machine is None:
            raise ReadOnly
        # Not refused while stopping: what was submitted before is still to be written.
        name = PartName(machine.role, machine.epoch, step or 0, secrets.token_hex(8))
        return self.retrying(
            lambda: write_parts(pending, blob=self.blob, name=name, layouts=self.layouts),
            promised=True,
        )

    def _machine(self) -> Machine:
        if self.machine is None:
            raise ReadOnly
        if self._stopped:
            raise Stopped
        return self.machine

    # ---- steps: which part names are still in use --------------------------------------------

    def step(self) -> Step:
        """Open a step: parts written under it are safe from the sweep until it is closed."""
        return Step(self, self.steps.take())

    def is_open(self, name: PartName) -> bool:
        """Whether parts of this name may still be committed, by us."""
        machine = self.machine
        if machine is None or (name.role, name.epoch) != (machine.role, machine.epoch):
            return False
        return self.steps.is_open(name.step)

    def pin(self, parts: Iterable[Part]) -> Callable[[], None]:
        """Keep the objects of ``parts`` from our own garbage collection until released."""
        return self.in_use.pin(parts)


class Step:
    """A piece of work that writes parts and then commits, or does not."""

    def __init__(self, core: Core, number: int) -> None:
        self._core = core
        self.number = number

    def name(self, attempt: str | None = None) -> PartName:
        """Return a part name under this step; a task gives its own attempt."""
        machine = self._core.machine
        assert machine is not None
        return PartName(machine.role, machine.epoch, self.number, attempt or secrets.token_hex(8))

    def write(self, pending: Sequence[Pending]) -> tuple[Part, ...]:
        """Write parts under this step."""
        return self._core.write_parts(pending, self.number)

    def discard(self, keys: Iterable[str]) -> None:
        """Have these objects of the step deleted when it is closed; they hold no parts."""
        self._core.steps.discard(keys)

    def close(self) -> None:
        """The step's parts are committed, or will never be."""
        self._core.steps.close(self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
