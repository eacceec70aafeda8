"""Couriers: who carries the transactions of a session to the endpoint.

    session     the role, Spec, Validate, Apply, the inputs, up to when they are delivered
    courier     Open, then for each transaction: combining, Load, Store, commit, Acknowledge

A session says *what* is delivered, unread: intervals and snapshots, by reference. Its courier reads
them, combines the keys of its range and carries them to the driver. :class:`Here` does so in the
thread of its caller; it needs no more than the values that it is given, a stream to the driver and
a recovery log, so that it can do the same in a task (``carrying``).

Invariant:      what a courier has said to be committed is in the recovery log, which it reaches by
                :class:`~.recovery.RecoveryLog` alone; whoever keeps that log decides who may.
Relied on by:   the runtime, which does not know where its transactions are carried from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec
import pyarrow as pa

from headwater.collection.difference import Difference
from headwater.materialize import first
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import Bound
from headwater.materialize.combine_job import Combiner
from headwater.materialize.delivery import Delivery, Stream, Transaction
from headwater.materialize.gather import Outgoing, Run, Unread, gather
from headwater.materialize.intent import Intent
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.recovery import RecoveryLog
from headwater.persist.interval import Interval
from headwater.persist.read import Snapshot

Taken = Interval | Difference
"""What an input hands out, unread."""

Check = Callable[[], None]
"""Raises, where a courier is to stop in the middle of reading."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What a courier is entrusted with for a session; a value that can be sent."""

    spec: MaterializationSpec
    version: str
    source: str
    """The name under which the endpoint keeps the checkpoint."""
    key_range: KeyRange
    bound: tuple[Bound, ...]
    spill_bytes: int
    alone: bool
    """Whether there is no other shard that this one should stand with."""
    repeats: bool = False
    """Whether the endpoint may keep what a failed attempt told it (``intent``)."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What became of a transaction."""

    position: Position
    """Everything before it is delivered now."""
    committed: bool
    """Whether that took a transaction; nothing may have been to do."""
    loaded: int = 0
    stored: int = 0
    deleted: int = 0


class Courier(Protocol):
    """Carries the transactions of one session."""

    @property
    def stream(self) -> Stream:
        """A stream to the driver, for what is asked before Open."""
        ...

    @property
    def position(self) -> Position | None:
        """Everything before it is delivered."""
        ...

    def open(self, charge: Charge, recovery: RecoveryLog, check: Check) -> None:
        """Open the key range at the endpoint; whoever had it before is fenced off."""
        ...

    def deliver(self, upper: int, taken: Sequence[Taken], *, with_others: bool) -> Carried:
        """Deliver what was taken of each binding; ``with_others``: they commit there, too."""
        ...

    def first(self, time: int, snapshots: Sequence[Snapshot]) -> Carried:
        """Deliver a part of the inputs as they are at a time, the next one with each call."""
        ...

    def settle(self) -> None:
        """Let the driver apply the last transaction."""
        ...

    def end(self) -> None:
        """End in good order."""
        ...

    def abort(self) -> None:
        """Break off, from any thread; what was not committed never happens."""
        ...


class Here:
    """Carries from where it is called."""

    def __init__(self, stream: Stream, combiner: Combiner | None = None) -> None:
        self.stream = stream
        self._combiner = combiner
        self._first: Iterator[first.Chunk] | None = None

    def open(self, charge: Charge, recovery: RecoveryLog, check: Check) -> None:
        """Open the key range."""
        self._charge, self._recovery, self._check = charge, recovery, check
        self._delivery = Delivery(
            self.stream,
            charge.spec,
            charge.version,
            charge.key_range,
            recovery,
            source=charge.source,
            repeats=charge.repeats,
        )
        if self.position != recovery.entry.position:
            # The endpoint knows better, and whoever splits or joins us looks into the log.
            known = msgspec.structs.replace(recovery.entry, position=self.position, intent=None)
            recovery.commit(known, None)

    @property
    def position(self) -> Position | None:
        """Everything before it is delivered."""
        return self._delivery.position

    def deliver(self, upper: int, taken: Sequence[Unread], *, with_others: bool) -> Carried:
        """Deliver what was taken of each binding."""
        runs = (
            partial(self._gathered, bound, interval, upper)
            for bound, interval in zip(self._charge.bound, taken, strict=True)
        )
        return self._transact(Intent(Position(upper)), runs, with_others=with_others)

    def _gathered(self, bound: Bound, interval: Unread, upper: int, limit: int) -> Run:
        """Combine an interval: in tasks, where that is worth it, or here."""
        own, whole = self._charge.key_range, self._charge.spill_bytes
        if self._combiner is not None and isinstance(interval, Interval):
            # All shards share what tasks make, so it is the same for each: on disk, in any case.
            run = self._combiner.run(bound, interval, upper, own, whole)
            if run is not None:
                return run
        return gather(bound, interval, upper, own, limit, self._check)

    def first(self, time: int, snapshots: Sequence[first.Readable]) -> Carried:
        """Deliver what fits into one transaction of the inputs as they are at first."""
        if self._first is None:
            begun = () if self.position is None else self.position.snapshot
            owed = self._recovery.entry.intent
            parts = [
                first.Part(bound.state_key, bound.binding.key, snapshot)
                for bound, snapshot in zip(self._charge.bound, snapshots, strict=True)
            ]
            self._first = first.chunks(
                parts,
                time + 1,
                dict(begun),
                self._charge.key_range,
                self._charge.spill_bytes,
                self._check,
                owed.position if owed is not None else None,
            )
        chunk = next(self._first)
        runs = (
            partial(self._combined, index, chunk.updates, chunk.position.time)
            for index in tuple(chunk.updates)
        )
        intent = Intent(chunk.position, first=True)
        carried = self._transact(intent, runs, with_others=chunk.is_last)
        if chunk.is_last:
            self._first = None
        return carried

    def _combined(
        self, index: int, given: MutableMapping[int, pa.Table], upper: int, limit: int
    ) -> Run:
        """Combine what is in hand of one binding; it is taken out, and need not be held longer."""
        bound, own = self._charge.bound[index], self._charge.key_range
        return Run.held(bound, bound.ordered(given.pop(index), upper, own), limit)

    def _transact(
        self, intent: Intent, runs: Iterable[Callable[[int], Run]], *, with_others: bool
    ) -> Carried:
        """Deliver some bindings in one transaction, unless it would be for nothing."""
        position, owed = intent.position, self._recovery.entry.intent
        assert owed is None or owed == intent, "what was begun comes first"
        limit, drifts = self._charge.spill_bytes, self._delivery.repeats
        out = Outgoing(runs, limit, repeated=owed is not None, drifts=drifts)
        # Where others commit we do, too, be it nothing: then all stand at one checkpoint. And that
        # a snapshot is whole is worth a transaction if it was begun.
        begun = self.position is not None and bool(self.position.snapshot)
        needed = begun or owed is not None or (with_others and not self._charge.alone)
        if out.empty and not needed:
            return Carried(position, committed=False)
        loads = out.loads(self._delivery.max_key)
        self._delivery.transact(
            Transaction(
                position,
                out.stores,
                loads,
                out.max_keys,
                keep=out.keep,
                intent=None if out.empty else intent,
            )
        )
        return Carried(position, True, out.loaded, out.stored, out.deleted)

    def settle(self) -> None:
        """Let the driver apply the last transaction."""
        self._delivery.settle()

    def end(self) -> None:
        """End in good order."""
        self._delivery.end()

    def abort(self) -> None:
        """Break the stream off."""
        self.stream.abort()
