"""Merges, rollups, garbage: work in the background that is never needed for correctness.

One thread looks after commits at what they touched, and does one thing at a time:

- **merge** what ``persist/trace.py`` asks for: the small merges of a round into one object and, if
  nothing else is written meanwhile, one log entry; a large merge in a child process
  (``persist/merge_child.py``);
- **roll up** when enough entries or bytes have gathered since the last rollup, then truncate the
  log up to it. The larger the state, the rarer: what rollups write stays in proportion to what the
  log writes, and the log stays in proportion to the state;
- **collect** objects that nobody refers to any more: delete them, then forget them in the log (in
  this order, so that a crash in between only deletes again). Not after every merge, for each time
  costs an entry: when many have gathered, or many bytes, or when the first of them has waited a few
  seconds. Meanwhile the log knows them, so that a successor finds them, and begins with them;
- **sweep** after opening, and every now and then: objects under part names of a stale epoch, or of
  a closed step of ours, that the log does not know. Those of open steps are somebody's work in
  progress.

It may be killed at any point, and it may fail: what failed is tried again after the next commit.
What fails for one collection (a corrupted part, say) keeps nothing else from being done.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from headwater.base.errors import ExternalError, HeadwaterError
from headwater.base.ids import GlobalId, SeqNo
from headwater.persist import trace, volatile
from headwater.persist.batch import Batch, Part, Times
from headwater.persist.commands import (
    AddRollup,
    ApplyMerge,
    Done,
    ForgetGarbage,
    Outcome,
)
from headwater.persist.compact import merge, passes
from headwater.persist.core import Core, Settings, Step
from headwater.persist.encoding import encode_state
from headwater.persist.in_use import objects_of
from headwater.persist.log import rollup_key
from headwater.persist.merge_child import ChildRefused, child_for
from headwater.persist.part import PartMissing, PartName, create_object, write_parts
from headwater.persist.state import CollectionState, State

LOG: Final = logging.getLogger(__name__)

GARBAGE_BATCH_MAX: Final = 256
GARBAGE_OBJECTS: Final = 64
GARBAGE_BYTES: Final = 32 * 1024 * 1024
GARBAGE_MS: Final = 5_000
IDLE_SECONDS: Final = 1.0
SWEEP_MS: Final = 10 * 60 * 1000

ROLLUP_BYTES_PER_ENTRY: Final = 2048
"""How much of a rollup one entry of the log may cost, at most."""


def leaked(state: State, keys: list[str]) -> list[str]:
    """Return those of the listed objects that nobody refers to and nobody will (pure)."""
    found = []
    for key in keys:
        if key in state.references or key in state.garbage:
            continue
        name = PartName.parse(key)
        if name is not None:
            role = state.roles.get(name.role)
            if role is None:
                continue
            stale = name.epoch < role.epoch
            closed = name.epoch == role.epoch and 0 < name.step < role.closed_step
            if stale or closed:
                found.append(key)
        elif key.startswith("rollup/") and state.rollups:
            known = {rollup.key for rollup in state.rollups}
            if key not in known and key < rollup_key(state.rollups[0].seqno):
                found.append(key)
    return found


@dataclass(frozen=True, slots=True)
class _LastRollup:
    """The newest rollup we wrote: where, how much we had written before it, and its size."""

    seqno: SeqNo
    written: int
    size: int


def _is_due(entries: int, written: int, last_size: int, settings: Settings) -> bool:
    """Whether the log since the last rollup is worth one of about the same size (pure)."""
    many = entries >= max(settings.rollup_entries, last_size // ROLLUP_BYTES_PER_ENTRY)
    return many or written >= max(settings.rollup_bytes, last_size)


def is_worth_collecting(objects: int, size: int, waited_ms: int) -> bool:
    """Whether garbage is worth the log entry that forgets it (pure).

    ``size`` is what merges let go; of the rest nobody knows it, so that it only waits its time.
    """
    return objects > 0 and (
        objects >= GARBAGE_OBJECTS or size >= GARBAGE_BYTES or waited_ms >= GARBAGE_MS
    )


@dataclass(frozen=True, slots=True)
class _Merge:
    """A merge to be done: adjacent batches of a collection, and how far their times advance."""

    collection: CollectionState
    inputs: tuple[Batch, ...]
    since: Times

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.inputs)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for batch in self.inputs for part in batch.parts)

    def command(self, parts: tuple[Part, ...]) -> ApplyMerge:
        numbers = tuple(batch.no for batch in self.inputs)
        return ApplyMerge(self.collection.id, numbers, self.since, parts)


def _together(merges: Iterable[_Merge], rows_max: int) -> Iterator[list[_Merge]]:
    """Yield merges that share an object and a log entry: small ones; large ones are alone."""
    gathered: list[_Merge] = []
    rows = 0
    for each in merges:
        if each.rows > rows_max:
            yield [each]
            continue
        gathered.append(each)
        rows += each.rows
        if rows > rows_max:
            yield gathered
            gathered, rows = [], 0
    if gathered:
        yield gathered


class Maintenance:
    """The background work of one writer."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._wake = threading.Event()
        self._stop = False
        self._child = child_for(core.blob, core.layouts)
        self._last_rollup = _LastRollup(SeqNo(-1), 0, 0)
        self.last_error: str = ""
        self._due: set[GlobalId] = set()
        """Collections to look at; one stays here while something of it is left undone."""
        self._let_go: set[str] = set()
        """Objects that no log ever knew: what merges took from volatile collections, and what steps
        wrote for themselves."""
        self._let_go_bytes = 0
        """What merges have let go since garbage was last collected, at most."""
        self._no_garbage_ms: int | None = None
        """When there was none, or it was last collected; ``None``: we have not looked yet."""
        self._swept_ms: int | None = None
        self._thread = threading.Thread(target=self._run, name="headwater-maintain", daemon=True)

    def start(self) -> None:
        """Begin, and go on until stopped."""
        self._core.subscribe(lambda _: self._wake.set())
        self._core.on_stop.append(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the piece of work in hand."""
        self._stop = True
        self._wake.set()
        if self._child is not None:
            self._child.stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        self._sweep_when_due()
        while not self._stop and not self._is_over():
            self._wake.wait(IDLE_SECONDS)
            self._wake.clear()
            if not self._stop:
                self.once()
                self._sweep_when_due()

    def _sweep_when_due(self) -> None:
        # Appends that were refused and merges that came too late leave objects behind.
        now_ms = self._core.clock.now_ms()
        if self._swept_ms is None or abs(now_ms - self._swept_ms) >= SWEEP_MS:
            self._swept_ms = now_ms
            self._quietly(self.sweep)

    def _is_over(self) -> bool:
        """Whether the runtime cannot commit any more: it is fenced, or has failed."""
        machine = self._core.machine
        return machine is None or machine.failure is not None

    def _quietly(self, work: Callable[[], object]) -> Exception | None:
        """Do a piece of work; a failure is remembered, and ends nothing but this piece."""
        try:
            work()
            return None
        except (HeadwaterError, PartMissing) as error:
            failure: Exception = error
        except Exception as error:
            # A bug, and still no reason to let the log and the garbage grow without end.
            LOG.exception("maintenance failed")
            failure = error
        self._core.metrics.failures.labels("maintenance").inc()
        self.last_error = f"{type(failure).__name__}: {failure}"
        return failure

    def once(self) -> None:
        """Do everything that is due."""
        merging = True
        while merging and not self._stop:
            # In turn: while writers keep the merges busy for hours, the log must not grow.
            merging = self._merge_round()
            self._quietly(self.roll_up)
            self._quietly(self._collect_when_due)

    # ---- merging -----------------------------------------------------------------------------

    def merge_all(self) -> None:
        """Merge until every collection is well."""
        while not self._stop and self._merge_round():
            pass

    def _merge_round(self) -> bool:
        """Do one merge of every collection that needs one; whether there was any."""
        self._due |= self._touched()
        merged: set[GlobalId] = set()
        undone: set[GlobalId] = set()
        due = filter(None, map(self._next_merge, tuple(self._due)))
        for merges in _together(due, self._core.settings.child_merge_rows):
            if self._stop:
                return bool(merged)
            applied, failed = self._attempt(merges)
            merged |= applied
            undone |= failed
        for gid in self._due - merged - undone:
            current = self._core.state.collections.get(gid)
            # What nobody may read any more goes as soon as the last one here has read it.
            if current is None or not (current.since.is_closed and trace.has_parts(current)):
                self._due.discard(gid)
        return bool(merged)

    def _attempt(self, merges: Sequence[_Merge]) -> tuple[set[GlobalId], set[GlobalId]]:
        """Do merges; return those that were applied, and those to be tried again."""
        applied: set[GlobalId] = set()
        failure = self._quietly(lambda: applied.update(self._merge(merges)))
        if isinstance(failure, ExternalError):  # Storage is away; else it will not mend by itself.
            return applied, {each.collection.id for each in merges}
        if failure is None or len(merges) == 1:
            return applied, set()
        # One that cannot be merged must not keep the others from it.
        outcomes = [self._attempt([each]) for each in merges]
        return set().union(*(a for a, _ in outcomes)), set().union(*(f for _, f in outcomes))

    def _touched(self) -> set[GlobalId]:
        """Return the collections that changed since we last asked."""
        machine = self._core.machine
        # Only the one that runs in the background may ask the machine, which tells it once.
        touched = machine.take_touched() if machine and self._thread.is_alive() else None
        return set(self._core.state.collections) if touched is None else touched

    def merge_one(self, gid: GlobalId) -> bool:
        """Do one merge of a collection, if one is due; whether it was applied."""
        due = self._next_merge(gid)
        return due is not None and bool(self._merge([due]))

    def merge_batches(self, collection: CollectionState, inputs: Sequence[Batch]) -> bool:
        """Merge these adjacent batches; whether it was applied."""
        return bool(self._merge([self._merge_of(collection, inputs)]))

    def _next_merge(self, gid: GlobalId) -> _Merge | None:
        core = self._core
        collection = core.state.collections.get(gid)
        if collection is None or collection.layout not in core.layouts:
            return None
        since = core.in_use.merge_since(gid, collection.since)
        if collection.since.is_closed and not since.is_closed:
            return None  # Somebody in this process is still reading; merging would drop nothing.
        inputs = trace.next_merge(collection, since)
        return self._merge_of(collection, inputs) if inputs else None

    def _merge_of(self, collection: CollectionState, inputs: Sequence[Batch]) -> _Merge:
        since = self._core.in_use.merge_since(collection.id, collection.since)
        for batch in inputs:
            since = since.join(batch.since) if not since.is_closed else since
        return _Merge(collection, tuple(inputs), since)

    def _merge(self, merges: Sequence[_Merge]) -> list[GlobalId]:
        """Write what these merges make, in one object, and commit them; return those applied."""
        core = self._core
        with core.step() as step:
            made = self._merged(merges, step)
            submitted: list[Future[Outcome]] = []
            try:
                for each, parts in zip(merges, made, strict=True):
                    submitted.append(core.submit(each.command(parts)))
            finally:
                # All of them, before the step is closed: until then its object may be committed.
                for answer in submitted:
                    answer.exception()
        applied = []
        for each, outcome in zip(merges, submitted, strict=True):
            if isinstance(outcome.result(), Done):
                core.metrics.merges.inc()
                core.metrics.merged_rows.inc(each.rows)
                self._let_go_bytes += each.size_bytes
                applied.append(each.collection.id)
                if each.collection.volatile_from is not None:
                    self._let_go.update(objects_of(p for b in each.inputs for p in b.parts))
        return applied

    def _merged(self, merges: Sequence[_Merge], step: Step) -> list[tuple[Part, ...]]:
        core = self._core
        if len(merges) == 1 and merges[0].rows > core.settings.child_merge_rows:
            return [self._merged_large(merges[0], step)]
        pending = [
            list(
                chain.from_iterable(
                    passes(
                        each.collection,
                        each.inputs,
                        each.since,
                        fetch=core.fetch,
                        layouts=core.layouts,
                    )
                )
            )
            for each in merges
        ]
        every = list(chain.from_iterable(pending))
        written = iter(write_parts(every, blob=core.blob, name=step.name(), layouts=core.layouts))
        return [tuple(islice(written, len(own))) for own in pending]

    def _merged_large(self, large: _Merge, step: Step) -> tuple[Part, ...]:
        core = self._core
        collection, inputs, since = large.collection, large.inputs, large.since
        if self._child is not None and not since.is_closed:
            # Refused there, it is done here: it works after all, or we see the error itself.
            with contextlib.suppress(ChildRefused):
                return self._child.merge(collection, inputs, since, step.name())
        return merge(
            collection,
            inputs,
            since,
            blob=core.blob,
            fetch=core.fetch,
            layouts=core.layouts,
            name=step.name,
        )

    # ---- rollups -----------------------------------------------------------------------------

    def roll_up(self, *, force: bool = False) -> None:
        """Write a rollup and truncate the log, if enough has gathered."""
        core, state, last = self._core, self._core.state, self._last_rollup
        written = 0 if core.machine is None else core.machine.written_bytes
        newest = state.rollups[-1].seqno if state.rollups else SeqNo(-1)
        entries = state.seqno - max(newest, last.seqno)
        if not force and not _is_due(entries, written - last.written, last.size, core.settings):
            return
        key = rollup_key(state.seqno)
        data = encode_state(state)
        core.retrying(lambda: create_object(core.blob, key, data))
        core.submit(AddRollup(state.seqno, key)).result()
        core.metrics.rollups.inc()
        self._last_rollup = _LastRollup(state.seqno, written, len(data))
        core.retrying(lambda: core.consensus.truncate(SeqNo(state.seqno + 1)))

    # ---- garbage -----------------------------------------------------------------------------

    def _collect_when_due(self) -> None:
        now_ms, since_ms = self._core.clock.now_ms(), self._no_garbage_ms
        self._let_go |= self._core.steps.take_discarded()
        objects = len(self._core.state.garbage) + len(self._let_go)
        # What a predecessor left has waited long enough. Clocks may be set back.
        waited_ms = GARBAGE_MS if since_ms is None else abs(now_ms - since_ms)
        due = is_worth_collecting(objects, self._let_go_bytes, waited_ms)
        if due:
            self.collect()
        if due or not objects:
            self._no_garbage_ms = now_ms

    def collect(self) -> None:
        """Delete unreferenced objects, then forget them in the log."""
        core, state = self._core, self._core.state
        kept = core.in_use.pinned() | volatile.objects(state)
        due = (k for k in state.garbage if k not in kept and self._is_done_with(k))
        self._delete(islice(due, GARBAGE_BATCH_MAX), forget=True)
        # What the log refers to, or has let go, is its own to say.
        self._let_go -= {k for k in self._let_go if k in state.references or k in state.garbage}
        free = (k for k in self._let_go if k not in kept and self._is_done_with(k))
        self._let_go -= self._delete(islice(free, GARBAGE_BATCH_MAX), forget=False)
        self._let_go_bytes = 0

    def _delete(self, keys: Iterable[str], *, forget: bool) -> set[str]:
        """Delete objects that nobody here reads, then forget them in the log; return which."""
        core = self._core
        claimed = core.in_use.claim(keys)
        try:
            for key in claimed:
                core.retrying(lambda key=key: core.blob.delete(key))  # type: ignore[misc]
            if forget and claimed:
                core.submit(ForgetGarbage(tuple(claimed))).result()
        finally:
            core.in_use.unclaim(claimed)
        core.metrics.collected.inc(len(claimed))
        return set(claimed)

    def _is_done_with(self, key: str) -> bool:
        """Whether nothing in the object can be committed any more.

        An object of an open step may have segments whose commit is still to come.
        """
        name = PartName.parse(key)
        return name is None or not self._core.is_open(name)

    def sweep(self) -> None:
        """Delete what was written and never committed."""
        core = self._core
        listed = core.retrying(lambda: [info.key for info in core.blob.list()])
        # Listed first, state second: an object committed in between is then known to the state.
        self._delete(self._deletable(leaked(core.refresh(), listed)), forget=False)

    def _deletable(self, keys: list[str]) -> list[str]:
        """Return those that no volatile collection has, of this process or of another role's.

        Our state is looked at after the one by which they are leaked: a step that is closed there
        was published here before.
        """
        machine, state = self._core.machine, self._core.state
        assert machine is not None, "a writer's work"
        kept = volatile.objects(state)
        return [
            key
            for key in keys
            if key not in kept and not volatile.may_be_kept(state, key, machine.role)
        ]
