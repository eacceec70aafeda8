"""The one loop that commits.

Requests are taken in the order in which they were submitted, decided on the newest state, and
committed as one entry: group commit. A request's future resolves when its entry is durable. Where
it was refused, or is so already and needs no entry, the state that says so is first confirmed to be
the newest, and the role to be still ours: a process that was fenced acknowledges nothing, not even
what is true.

    submit ──▶ queue ──▶ decide all ──▶ append(head + 1) ──▶ resolve futures, publish the state
                             ▲                 │
                             └── lost race ────┘   (read what won, decide again)

After an Indeterminate failure the log itself says what happened: the entry at that sequence number
has our nonce, or another's, or is not there yet and is appended again, byte for byte. Until that is
known nothing else is committed, so nothing overtakes an unresolved request. When the attempts are
used up the futures get the Indeterminate error, and the entry *stays unresolved*: the next request
begins with finding out.

Invariant: at most one entry of ours is in flight. Relied on by: ``Role.last_entry``, which resolves
a lost reply even when the entry itself was truncated away.
"""

from __future__ import annotations

import secrets
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from headwater.base.clock import Clock
from headwater.base.errors import (
    Determinate,
    ExternalError,
    HeadwaterError,
    Indeterminate,
    InvalidUsage,
)
from headwater.base.ids import Epoch, GlobalId, RoleName, SeqNo
from headwater.persist import log, volatile
from headwater.persist.changes import (
    Change,
    Collected,
    Entry,
    ItemSet,
    RoleSet,
    RolledUp,
    TimelineAdvanced,
)
from headwater.persist.commands import Command, Outcome, UpperMismatch
from headwater.persist.decide import decide
from headwater.persist.encoding import decode_entry, encode_entry
from headwater.persist.errors import Corrupt, Fenced, Stopped
from headwater.persist.location import Blob, Committed, Consensus, LostRace
from headwater.persist.metrics import Metrics
from headwater.persist.retries import Attempts, Retries
from headwater.persist.state import State, apply, apply_change
from headwater.persist.volatile import Kept

GROUP_MAX: Final = 512
QUEUE_MAX: Final = 10_000

OfNone = TimelineAdvanced | RoleSet | ItemSet | RolledUp | Collected
"""Changes that are of no collection in particular, as far as background work is concerned."""


@dataclass(slots=True)
class _Request:
    prepared: Future[Command]
    """The command; done at once for most, later where parts are still being written."""
    future: Future[Outcome]
    submitted_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class _InFlight:
    entry: Entry
    data: bytes
    kept: tuple[Kept, ...]
    """What is true once the entry is committed, and is not in it: of volatile collections."""


class Machine:
    """Decides and commits for one role of one location."""

    def __init__(
        self,
        consensus: Consensus,
        blob: Blob,
        *,
        role: RoleName,
        clock: Clock,
        state: State,
        retries: Retries,
        metrics: Metrics,
        on_commit: Callable[[State], None],
    ) -> None:
        self.role = role
        self.epoch = Epoch(0)
        self.failure: HeadwaterError | None = None
        self.written_bytes = 0
        """Bytes of all entries that this process committed."""
        self._consensus = consensus
        self._blob = blob
        self._clock = clock
        self._state = state
        self._retries = retries
        self._metrics = metrics
        self._on_commit = on_commit
        self._closed_step: Callable[[], int] = lambda: 0
        self._unresolved: _InFlight | None = None
        self._touched: set[GlobalId] | None = None
        self._touching = threading.Lock()
        self._queue: deque[_Request] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="headwater-commit", daemon=True)

    @property
    def state(self) -> State:
        """The newest state this process has seen."""
        return self._state

    def take_touched(self) -> set[GlobalId] | None:
        """Return which collections changed since the last call; ``None``: any may have."""
        with self._touching:
            touched, self._touched = self._touched, set()
            return touched

    def start(self, closed_step: Callable[[], int]) -> None:
        """Begin to take requests in the background."""
        self._closed_step = closed_step
        self._thread.start()

    def submit(self, command: Command) -> Future[Outcome]:
        """Queue a command; its place in the order is taken when this returns."""
        prepared: Future[Command] = Future()
        prepared.set_result(command)
        return self.submit_prepared(prepared)

    def submit_prepared(self, prepared: Future[Command]) -> Future[Outcome]:
        """Queue a command whose parts are still being written; it keeps its place meanwhile."""
        request = _Request(prepared, Future())
        # From here on nobody can cancel it: that could come between the commit and its answer.
        request.future.set_running_or_notify_cancel()
        # A callback runs in the thread that empties the queue: it must not wait for itself.
        may_wait = threading.current_thread() is not self._thread
        with self._wake:
            while may_wait and len(self._queue) >= QUEUE_MAX and not self._stopping:
                self._wake.wait()
            if self._stopping:
                raise Stopped() if self.failure is None else self.failure.again()
            self._queue.append(request)
            self._wake.notify_all()
        return request.future

    def stop(self) -> None:
        """Finish what was submitted, take nothing new."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    # ---- the loop ----------------------------------------------------------------------------

    def _run(self) -> None:
        while group := self._next_group():
            try:
                self.commit(group)
            except Fenced as error:
                self._fail(error, group)
            except ExternalError as error:
                self._resolve(group, [error] * len(group))
                if self._retries.given_up:
                    # We are stopping, and storage stayed away: what is behind fares no better.
                    self._fail(Stopped(f"the runtime stopped while storage failed: {error}"), [])
            except BaseException as error:
                # A bug, or a corrupted log: nothing more can be promised by this process.
                failure = Stopped(f"the runtime failed: {type(error).__name__}: {error}")
                # The place as text: the frames themselves would keep alive what they have in hand.
                # The whole traceback is that of the thread, which ends by it.
                *_, (frame, line) = traceback.walk_tb(error.__traceback__)
                failure.add_note(f"{type(error).__name__} in {frame.f_code.co_qualname}, {line}")
                self._fail(failure, group)
                if not isinstance(error, HeadwaterError):
                    raise

    def _next_group(self) -> list[_Request]:
        with self._wake:
            while not self._queue:
                if self._stopping:
                    return []
                self._wake.wait()
            first = self._queue[0]
        # Wait outside the lock: others may go on submitting behind it.
        first.prepared.exception()
        group: list[_Request] = []
        with self._wake:
            while self._queue and len(group) < GROUP_MAX and self._queue[0].prepared.done():
                group.append(self._queue.popleft())
            self._wake.notify_all()
        return group

    def _fail(self, failure: HeadwaterError, group: list[_Request]) -> None:
        with self._wake:
            self.failure = failure.again()
            self._stopping = True
            group.extend(self._queue)
            self._queue.clear()
            self._wake.notify_all()
        self._resolve(group, [failure.again() for _ in group])

    @staticmethod
    def _resolve(group: list[_Request], results: list[Outcome | BaseException]) -> None:
        for request, result in zip(group, results, strict=True):
            if request.future.done():
                continue
            if isinstance(result, BaseException):
                request.future.set_exception(result)
            else:
                request.future.set_result(result)

    def commit_now(self, command: Command) -> Outcome:
        """Commit one command in the calling thread, before :meth:`start`."""
        prepared: Future[Command] = Future()
        prepared.set_result(command)
        request = _Request(prepared, Future())
        self.commit([request])
        return request.future.result()

    def commit(self, group: list[_Request]) -> None:
        """Decide and commit a group; every future of it is resolved when this returns."""
        try:
            self._commit(group)
        except _Unwritable as error:
            if len(group) == 1:
                self._resolve(group, [InvalidUsage(f"the request cannot be written: {error}")])
                return
            # One of them is to blame: alone, it harms nobody.
            for request in group:
                self.commit([request])

    def _commit(self, group: list[_Request]) -> None:
        retry = self._retries.attempts("commit", promised=True)
        self._settle(retry)
        confirmed = False
        while True:
            if self.epoch:
                self._check_epoch()
            now_ms = max(self._state.clock_ms, self._clock.now_ms())
            results, changes = self._decide(group, now_ms)
            refused = any(isinstance(r, HeadwaterError | UpperMismatch) for r in results)
            if (refused or not changes) and not confirmed:
                # What no append will confirm must be said of the newest state, not of an old one.
                confirmed = True
                if self._catch_up(retry):
                    continue
            if not changes:
                break
            if self._append(self._entry(changes, now_ms), retry):
                break
            confirmed = True
        self._resolve(group, results)
        self._metrics.requests.inc(len(group))
        now_s = time.monotonic()
        for request in group:
            self._metrics.commit_seconds.observe(now_s - request.submitted_s)

    def _decide(
        self, group: list[_Request], now_ms: int
    ) -> tuple[list[Outcome | BaseException], tuple[Change, ...]]:
        state, changes = self._state, list[Change]()
        results: list[Outcome | BaseException] = []
        for request in group:
            failure = request.prepared.exception()
            if failure is not None:
                results.append(failure)
                continue
            try:
                decision = decide(state, request.prepared.result(), now_ms)
                after = decision.after
                if after is None:
                    after = state
                    for change in decision.changes:
                        after = apply_change(after, change)
            except Exception as error:  # noqa: BLE001 - a request that is no request: its own fault
                # Deciding is pure: whatever it raised, nothing has changed, and the rest may go on.
                results.append(error)
                continue
            state = after
            changes.extend(decision.changes)
            results.append(decision.outcome)
        return results, tuple(changes)

    def _entry(self, decided: tuple[Change, ...], now_ms: int) -> _InFlight:
        state = self._state
        changes, kept = volatile.split(state, decided)
        entry = Entry(
            seqno=SeqNo(state.seqno + 1),
            nonce=secrets.token_hex(8),
            role=self.role,
            epoch=self._entry_epoch(changes),
            clock_ms=now_ms,  # the one the decisions were made by
            rollup=_newest_rollup(state, changes),
            closed_step=self._closed_step(),
            changes=changes,
        )
        return _InFlight(entry, _readable(entry), kept)

    def _entry_epoch(self, changes: tuple[Change, ...]) -> Epoch:
        for change in changes:
            if isinstance(change, RoleSet) and change.role == self.role:
                return change.value.epoch
        return self.epoch

    def _check_epoch(self) -> None:
        current = self._state.roles.get(self.role)
        if current is None or current.epoch != self.epoch:
            holder = "nobody" if current is None else current.holder
            raise Fenced(self.role, self.epoch, self._state.epoch(self.role), holder)

    # ---- meeting the log ---------------------------------------------------------------------

    def _append(self, in_flight: _InFlight, retry: Attempts) -> bool:
        """Append an entry; whether it is ours that stands there. The state is caught up."""
        while True:
            try:
                outcome = self._consensus.append(in_flight.entry.seqno, in_flight.data)
            except Determinate as error:
                self._metrics.failures.labels("determinate").inc()
                if not retry.again(error):
                    retry.over()
                    raise
                continue
            except Indeterminate as error:
                self._metrics.failures.labels("indeterminate").inc()
                self._unresolved = in_flight
                if not retry.again(error):
                    raise
                committed = self._settle(retry)
                if committed is None:
                    raise Indeterminate(
                        f"entry {in_flight.entry.seqno} was truncated after a take-over"
                    ) from error
                return committed
            retry.over()
            match outcome:
                case Committed():
                    self._retries.room.has()
                    self._advance_to(in_flight)
                    return True
                case LostRace(head):
                    self._metrics.races_lost.inc()
                    self._check_ahead(head)
                    self._catch_up(retry)
                    return False

    def _settle(self, retry: Attempts) -> bool | None:
        """Find out what became of the entry in flight, if there is one; whether it committed.

        ``None``: nobody can say. It was truncated away by a successor, which took the role over and
        with it the memory of our newest entry.
        """
        while self._unresolved is not None:
            in_flight = self._unresolved
            try:
                before = self._state
                stored = self._consensus.scan(in_flight.entry.seqno, 1)
                if stored and stored[0].seqno == in_flight.entry.seqno:
                    ours = (
                        decode_entry(stored[0].seqno, stored[0].data).nonce == in_flight.entry.nonce
                    )
                    if ours:
                        self._unresolved = None
                        retry.over()
                        self._advance_to(in_flight)
                        return True
                elif not stored:
                    # Not there (yet): the same bytes again can only commit once.
                    outcome = self._consensus.append(in_flight.entry.seqno, in_flight.data)
                    if isinstance(outcome, Committed):
                        self._unresolved = None
                        retry.over()
                        self._advance_to(in_flight)
                        return True
                    self._check_ahead(outcome.head)
                    continue
                # Another's entry is there, or ours was truncated away: the role remembers.
                state = log.follow(self._consensus, self._blob, before)
                role = state.roles.get(self.role)
                ours = role is not None and role.last_entry == in_flight.entry.nonce
                self._publish(volatile.with_kept(state, in_flight.kept if ours else ()))
                self._unresolved = None
                retry.over()
                if ours:
                    return True
                truncated = stored[0].seqno != in_flight.entry.seqno
                if truncated and role is not None and role.epoch != in_flight.entry.epoch:
                    return None
                return False
            except ExternalError as error:
                self._metrics.failures.labels("unresolved").inc()
                if not retry.again(error):
                    raise Indeterminate(
                        f"entry {in_flight.entry.seqno} is unresolved: {error}"
                    ) from error
        return False

    def _check_ahead(self, head: SeqNo | None) -> None:
        """Refuse a log that has lost what it had: losing races against it would never end."""
        if head is None or head < self._state.seqno:
            raise Corrupt(
                "the log",
                f"it ends at entry {head}, though entry {self._state.seqno} was committed "
                f"(was a backup restored while we ran?)",
            )

    def _catch_up(self, retry: Attempts) -> bool:
        """Read what others committed; whether there was anything."""
        while True:
            try:
                state = log.follow(self._consensus, self._blob, self._state)
            except ExternalError as error:
                self._metrics.failures.labels("read").inc()
                if not retry.again(error):
                    raise
                continue
            retry.over()
            moved = state.seqno != self._state.seqno
            self._publish(state)
            return moved

    def _advance_to(self, in_flight: _InFlight) -> None:
        self._metrics.entries.inc()
        self._metrics.entry_bytes.inc(len(in_flight.data))
        self.written_bytes += len(in_flight.data)
        entry, kept = in_flight.entry, in_flight.kept
        touched = {change.id for change in entry.changes if not isinstance(change, OfNone)}
        touched.update(change.id for change in kept)
        self._publish(volatile.with_kept(apply(self._state, entry), kept), touched)

    def _publish(self, state: State, touched: set[GlobalId] | None = None) -> None:
        if state.seqno == self._state.seqno:
            return
        with self._touching:
            if touched is None or self._touched is None:
                self._touched = None  # Others have written, or nobody has asked yet.
            else:
                self._touched |= touched
        self._state = state
        self._on_commit(state)


class _Unwritable(Exception):
    """An entry that could not be read back."""


def _readable(entry: Entry) -> bytes:
    """Return the bytes of an entry that is known to be readable.

    A value of a wrong type may well be encoded, and would then keep everybody from opening the
    location for ever. Reading it back costs little beside making it durable.
    """
    try:
        data = encode_entry(entry)
        decode_entry(entry.seqno, data)
    except (Corrupt, TypeError, ValueError, OverflowError) as error:
        raise _Unwritable(str(error)) from error
    return data


def _newest_rollup(state: State, changes: tuple[Change, ...]) -> SeqNo:
    """Return where an entry sends whoever finds it at the head; -1 for the beginning of the log.

    The entry that announces a rollup counts it already: as soon as it is committed the log may be
    truncated up to that rollup, and this entry may stay the head for ever.
    """
    announced = [change.seqno for change in changes if isinstance(change, RolledUp)]
    known = [rollup.seqno for rollup in state.rollups[-1:]]
    return max(announced + known, default=SeqNo(-1))
