"""A running shard of a materialization: sessions, one after the other, of transactions.

    take the role ─▶ Spec, Validate, Apply ─▶ Open ─▶ deliver, deliver, … ─▶ (failed) wait, again
        └─ epoch in our log              └─ fence in the endpoint

A session begins at the position that the endpoint returns, or the recovery log's, and follows the
inputs from there. A transaction is delivered whenever something has changed; a time at which
nothing changes costs nothing. Everything that a session holds is gone with it: whatever fails, the
next one begins at what is durable.

What may fail, and what becomes of it:

- the endpoint, the driver, or a row that cannot be delivered: the materialization is *stalled*,
  says why, and tries again, later and later: an endpoint comes back, a wrong row is mended;
- a new column of an input: the session ends, and the next one adds it before it delivers;
- errors in an input: stalled at the last time without errors, until they are retracted;
- another session took our role or our fence: *fenced*, for good. It is not ours any more.

Whatever one does, the others go on: each shard has a thread of its own, which carries its sessions
itself (``courier``) or has a task do that (``in_task``). What the shards of one materialization
have to agree about is in ``agreement``, how many there are in ``shards``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from headwater.base.errors import HeadwaterError
from headwater.collection.capability import ReadCapability
from headwater.materialize.agreement import Agreement, BeginAnew
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import ColumnsChanged
from headwater.materialize.combine_job import Combiner
from headwater.materialize.courier import Carried, Charge, Check, Courier, Here
from headwater.materialize.definition import Definition, version_of
from headwater.materialize.delivery import Stream, UnexpectedResponse
from headwater.materialize.drivers.fences import FencedOff
from headwater.materialize.drivers.registry import repeats
from headwater.materialize.feed import Feed
from headwater.materialize.in_task import InTask, ShardTasks
from headwater.materialize.intent import Intent
from headwater.materialize.key_range import KeyRange
from headwater.materialize.pace import Pace
from headwater.materialize.protocol.messages import Applied, Apply
from headwater.materialize.protocol.specs import ConnectorState, MaterializationSpec
from headwater.materialize.recovery import RecoveryEntry, ShardLog
from headwater.materialize.reduction.merge_patch import updated_state
from headwater.materialize.spill import SPILL_BYTES
from headwater.materialize.status import State, Status
from headwater.materialize.streams import Streams, stream_to
from headwater.materialize.validating import validated_spec
from headwater.materialize.wire.protobuf import decode_value, encode_value
from headwater.persist import errors as persist_errors
from headwater.persist.client import Client
from headwater.persist.spark_parts import place_of

LOG: Final = logging.getLogger(__name__)

WAIT_SECONDS: Final = 0.5
DRAIN_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 30.0
STOP_SECONDS: Final = 30.0
MOVE_SECONDS: Final = 30.0
"""How often a thread that carries what a task should looks for one."""


def open_stream(definition: Definition) -> Stream:
    """Return a new stream to the driver of a materialization."""
    return stream_to(definition.endpoint)


class Session:
    """One session of a shard: opened, fed, closed."""

    def __init__(
        self,
        client: Client,
        definition: Definition,
        reads: Sequence[ReadCapability],
        key_range: KeyRange,
        stream: Stream,
        agreement: Agreement | None = None,
        courier: Courier | None = None,
        check: Check = lambda: None,
    ) -> None:
        """``courier``: who carries it, if not we with the stream; ``check`` may break it off."""
        self._key_range = key_range
        self._stream = stream
        self._agreement = agreed = agreement or Agreement()
        oldest = partial(agreed.oldest, key_range)
        self._log = ShardLog(client.core, definition.name, key_range, reads, oldest)
        entry = self._log.entry
        last = decode_value(entry.applied, MaterializationSpec) if entry.applied else None
        spec, bound, _ = validated_spec(client, definition, stream, last, entry.version)
        version = version_of(spec)
        if agreed.applies(key_range):
            self._applied(spec, version, last, self._apply(spec, version, last))
            agreed.applied(version)
        else:
            agreed.wait_applied(version)
            self._applied(spec, version, last, None)
        spill_bytes = definition.tuning.spill_bytes or SPILL_BYTES
        to = definition.endpoint
        charge = Charge(
            spec,
            version,
            definition.source,
            key_range,
            bound,
            spill_bytes,
            agreed.alone,
            repeats(to.driver, to.config),
        )
        self._courier = courier or Here(stream)
        self._courier.open(charge, self._log, check)
        named = [(b.name, read) for b, read in zip(definition.bindings, reads, strict=True)]
        replaced = [binding.was for binding in definition.bindings]
        owed = self.owed
        self.feed = Feed(client, named, self.position, replaced, owed)
        agreed.stands(key_range, self.position, None if owed is None else owed.position.time)

    def _apply(
        self, spec: MaterializationSpec, version: str, last: MaterializationSpec | None
    ) -> ConnectorState | None:
        """Make the endpoint ready; return what the driver wants to remember of it."""
        entry = self._log.entry
        self._stream.send(
            Apply(
                spec,
                version,
                last_materialization=last,
                last_version=entry.version,
                state_json=entry.state_json,
            )
        )
        applied = self._stream.receive()
        if not isinstance(applied, Applied):
            raise UnexpectedResponse(f"{type(applied).__name__} instead of Applied")
        return applied.state

    def _applied(
        self,
        spec: MaterializationSpec,
        version: str,
        last: MaterializationSpec | None,
        update: ConnectorState | None,
    ) -> None:
        """Remember what was applied."""
        entry = self._log.entry
        state = updated_state(entry.state_json, update)
        kept = {binding.state_key for binding in spec.bindings}
        known = last is None or {binding.state_key for binding in last.bindings} == kept
        now = RecoveryEntry(
            # What is delivered anew begins at the beginning.
            entry.position if known else None,
            state,
            tuple((key, greatest) for key, greatest in entry.max_keys if key in kept),
            encode_value(spec),
            version,
            entry.intent if known else None,
        )
        if now != entry:
            self._log.commit(now, None)

    @property
    def position(self) -> Position | None:
        """Everything before it is delivered."""
        return self._courier.position

    @property
    def owed(self) -> Intent | None:
        """What was begun before, and comes first."""
        return self._log.entry.intent

    @property
    def goal(self) -> int | None:
        """The next target, if it is decided: by what was begun, or by where others are."""
        owed = self.owed
        if owed is not None:
            return owed.position.time
        return self._agreement.next_target(self.feed.reached)

    def agrees(self, target: int) -> bool:
        """Whether all shards go to a target; there is none to agree upon if nothing changed."""
        if self.owed is not None:
            return True
        if self.feed.first is not None:
            # One that was begun is delivered to its end; where others are, is the next target.
            self._agreement.propose(self.feed.reached, target)
            return True
        changed = not self._agreement.alone and self.feed.has_before(target)
        return not changed or self._agreement.propose(self.feed.reached, target)

    def deliver(self, target: int, status: Status) -> Status:
        """Deliver everything before ``target``, or a part of the first snapshot; return the status
        after it."""
        if self.feed.first is not None:
            return self._deliver_first(status)
        with_others = self._agreement.next_target(self.feed.reached) == target
        taken = self.feed.take(target)
        carried = self._courier.deliver(target, taken, with_others=with_others)
        return replace(self._counted(carried, status), reached=target)

    def _deliver_first(self, status: Status) -> Status:
        """Deliver what fits into one transaction of the inputs as they are at first."""
        assert self.feed.first is not None
        carried = self._courier.first(self.feed.first, self.feed.snapshots)
        delivered = self._counted(carried, status)
        if carried.position.snapshot:
            return delivered
        self.feed.first_delivered()
        return replace(delivered, reached=carried.position.time)

    def _counted(self, carried: Carried, status: Status) -> Status:
        """Return the status after a transaction, if it took one."""
        if not carried.committed:
            return status
        self._agreement.stands(self._key_range, self.position)
        position = carried.position
        return replace(
            status,
            checkpoint=status.checkpoint if position.snapshot else position.time,
            transactions=status.transactions + 1,
            rows_loaded=status.rows_loaded + carried.loaded,
            rows_stored=status.rows_stored + carried.stored,
            rows_deleted=status.rows_deleted + carried.deleted,
        )

    def settle(self) -> None:
        """Let the driver apply the last transaction."""
        self._courier.settle()

    def end(self) -> None:
        """End in good order."""
        self._courier.end()

    def close(self) -> None:
        """Release what is held for reading."""
        self.feed.close()


class Shard:
    """One key range of a materialization, run by a thread of its own."""

    def __init__(
        self,
        client: Client,
        definition: Definition,
        reads: Sequence[ReadCapability],
        connect: Streams | None = None,
        retry_seconds: float = RETRY_SECONDS,
        key_range: KeyRange | None = None,
        agreement: Agreement | None = None,
        combiner: Combiner | None = None,
        tasks: ShardTasks | None = None,
    ) -> None:
        """``tasks`` may carry its sessions, if that is what the definition says."""
        self.key_range = key_range or KeyRange.full()
        self._combiner = combiner
        self._tasks = tasks
        self.name = f"{definition.name}/{self.key_range}"
        self._agreement = agreement or Agreement((self.key_range,))
        self.status = Status()
        self._client = client
        self._definition = definition
        self._reads = tuple(reads)
        # A driver that cannot be made stalls its own materialization, and no other.
        self._connect = connect or partial(open_stream, definition)
        self._retry_seconds = retry_seconds
        self._looks_at = 0.0
        """When it is looked for a task again."""
        self.courier: Courier | None = None
        """Who carries the session of now, or has carried the last one."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"headwater-{self.name}", daemon=True
        )

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether its thread is at work; it ends when stopped, drained or fenced."""
        return self._thread.is_alive()

    def stopping(self) -> None:
        """Ask it to stop after the transaction in hand."""
        self._stopping.set()
        self._agreement.abandon()
        self._client.core.wake()

    def stop(self) -> None:
        """Stop after the transaction in hand; one that does not end is broken off."""
        self.stopping()
        self._thread.join(STOP_SECONDS)
        courier = self.courier
        if self._thread.is_alive() and courier is not None:
            courier.abort()
        self._thread.join()

    def _run(self) -> None:
        wait = self._retry_seconds
        while not self._stopping.is_set():
            transactions = self.status.transactions
            try:
                if self._session():
                    continue
                break
            except persist_errors.Stopped:
                break
            except (persist_errors.Fenced, FencedOff) as error:
                self.status = replace(self.status, state=State.FENCED, error=str(error))
                return
            except (ColumnsChanged, BeginAnew):
                continue  # The next session adds the columns, or goes where the others are.
            except HeadwaterError as error:
                self._stall(error)
            except Exception as error:
                # A bug of ours or of a library must not end a delivery in silence.
                LOG.exception("materialization %s failed", self.name)
                self._stall(error)
            moved = self.status.transactions > transactions
            wait = self._retry_seconds if moved else min(2 * wait, RETRY_SECONDS_MAX)
            self._stopping.wait(wait)
        self.status = replace(self.status, state=State.STOPPED)

    def _stall(self, error: Exception) -> None:
        told = f"{error}" or type(error).__name__
        if told != self.status.error:
            LOG.warning("materialization %s is stalled: %s", self.name, told)
        self.status = replace(self.status, state=State.STALLED, error=told)

    def _session(self) -> bool:
        """Run a session to its end; return whether another one follows."""
        courier = self.courier = self._hired()
        session: Session | None = None
        try:
            session = Session(
                self._client,
                self._definition,
                self._reads,
                self.key_range,
                courier.stream,
                self._agreement,
                courier,
                self._check,
            )
            again = self._deliver(session)
            session.end()
            return again
        except BaseException:
            # What failed is told; that the stream may not end here is not.
            with suppress(HeadwaterError):
                courier.abort()
            raise
        finally:
            if session is not None:
                session.close()
            self.status = replace(self.status, runs_in="")

    def _hired(self) -> Courier:
        """Return who carries the next session."""
        self._looks_at = time.monotonic() + MOVE_SECONDS
        tasks, place, definition = self._tasks, place_of(self._client.core), self._definition
        if tasks is None or place is None:
            return Here(self._connect(), self._combiner)
        expected = tasks.reserve(definition.tuning.shards_in)
        if expected is None:
            return Here(self._connect(), self._combiner)
        try:
            return InTask(self._connect(), definition.endpoint, tasks, expected, place)
        except BaseException:
            tasks.over(expected)
            raise

    def _check(self) -> None:
        if self._stopping.is_set():
            raise persist_errors.Stopped

    def _deliver(self, session: Session) -> bool:
        """Deliver until the session ends; return whether another one follows, elsewhere."""
        at = session.position
        whole = at is not None and not at.snapshot
        self.status = replace(
            self.status,
            checkpoint=at.time if at and whole else None,
            runs_in="task" if isinstance(self.courier, InTask) else "thread",
        )
        settled = False
        agreed = self._agreement
        tuning = self._definition.tuning
        pace = Pace(tuning)
        while not self._ends(session):
            goal = session.goal
            if agreed.closed and goal is None:
                self._stopping.wait(DRAIN_SECONDS)  # Until the others have begun.
                continue
            if goal is None and pace.rest_s and session.feed.first is None:
                if not settled:
                    session.settle()
                    settled = True
                self._stopping.wait(min(pace.rest_s, WAIT_SECONDS))
                continue
            try:
                target = session.feed.wait(WAIT_SECONDS, partial(self._ends, session), goal)
            except persist_errors.CollectionHasErrors as error:
                # An error in the data may be retracted; the session is as good as it was.
                self._stall(error)
                self._stopping.wait(self._retry_seconds)
                continue
            if target is not None and goal is None and tuning.max_duration_ms:
                target = session.feed.within(target, tuning.max_duration_ms)
            if target is not None and not session.agrees(target):
                continue
            if target is not None:
                delivered = session.deliver(target, self.status)
                committed = delivered.transactions > self.status.transactions
                settled = settled and not committed
                if committed:
                    pace.committed()
                self.status = replace(delivered, state=State.RUNNING, error="")
                if agreed.closed:
                    self._client.core.wake()  # Others may wait for just this.
            elif not settled:
                session.settle()
                settled = True
                self.status = replace(self.status, state=State.RUNNING, error="")
            elif self._moves():
                return True
        return False

    def _moves(self) -> bool:
        """Whether a task may carry now what our thread does, though a task should."""
        tasks = self._tasks
        if tasks is None or isinstance(self.courier, InTask) or time.monotonic() < self._looks_at:
            return False
        self._looks_at = time.monotonic() + MOVE_SECONDS
        wanted = self._definition.tuning.shards_in
        return place_of(self._client.core) is not None and tasks.has_room(wanted)

    def _ends(self, session: Session) -> bool:
        """Whether the session may end: we are stopping, or all shards stand where they shall."""
        return self._stopping.is_set() or self._agreement.is_done(
            self.key_range, session.feed.reached
        )
