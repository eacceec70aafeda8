"""The world of the nemesis: one location, the processes that use it, and the record of it all.

Every process has its own ports to the same memory, through a storage that may be down, a network
that loses requests and replies, and its own mortality. What is asked of a process is an operation
of the history, from the moment it is asked to the moment its answer is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pyarrow as pa

from headwater.base.clock import ManualClock
from headwater.base.errors import Determinate, HeadwaterError, Indeterminate
from headwater.base.errors import InvalidUsage as Invalid
from headwater.base.retry import RetryPolicy
from headwater.collection.run_layout import LAYOUTS
from headwater.persist import commands as c
from headwater.persist import state as states
from headwater.persist.batch import Part, Times
from headwater.persist.client import (
    Client,
    ReadHandle,
    WriteHandle,
    open_location,
)
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings, Step
from headwater.persist.errors import (
    AlreadyLocked,
    Fenced,
    Stopped,
    WriteBeforeUpper,
)
from headwater.persist.evolution import DIFF, TIME, updates_schema
from headwater.persist.location import Blob
from headwater.persist.log import load
from headwater.persist.maintenance import Maintenance
from headwater.persist.part import INLINE_BYTES_MAX
from headwater.persist.read import Listen, Snapshot, Updates
from headwater.testing import history as h
from headwater.testing.crash import BufferedBlob, Mortal, Stacked
from headwater.testing.unreliable import Crash, Lossy, Outage

SCHEMA: Final = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
UPDATES: Final = updates_schema(SCHEMA)
TIMELINE: Final = "main"
COLLECTIONS: Final = {"a": None, "b": None, "t": TIMELINE}
"""The collections, with the timeline each of them is on."""

KEYED: Final = "b"
"""The one whose parts are keyed runs; those of the others are Parquet."""

BEYOND: Final = 1_000_000
"""A time after all others."""

REENTRANCE: Final = "nemesis"

BIG: Final = 1 + INLINE_BYTES_MAX // 2
"""So often repeated, the shortest text is too long for the log and becomes an object."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a plan."""

    name: str
    seed: int

    def __str__(self) -> str:
        return f"{self.name}:{self.seed}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed asks for."""

    seed: int
    steps: tuple[PlannedStep, ...]
    loss: float
    attempts_max: int
    pipelined: bool
    collections: tuple[str, ...]
    compacted: bool
    """Whether a collection is compacted whole in the end, and read again."""
    threads: bool
    """Whether the runtime has its threads; else it is stepped, and the run is reproducible."""
    synced: bool = True
    """Whether objects survive the crash that comes after their creation."""

    def __str__(self) -> str:
        kinds = [word for word in ("pipelined", "threads") if getattr(self, word)]
        return f"loss {self.loss}, attempts {self.attempts_max} {' '.join(kinds)}"


@dataclass(eq=False)
class Process:
    """A process with the location open."""

    client: Client
    mortal: Mortal
    snapshots: list[tuple[str, Snapshot]] = field(default_factory=list)
    listens: list[tuple[int, str, Listen]] = field(default_factory=list)
    parts: list[tuple[h.Operation, str, Step, tuple[Part, ...]]] = field(default_factory=list)
    unresolved: list[tuple[h.Operation, Future[c.Outcome]]] = field(default_factory=list)

    @property
    def epoch(self) -> int:
        """Which epoch of the role it holds, or held."""
        return int(self.client.core.epoch)


class Nothing(Exception):
    """The step has nothing to do in this situation."""


class World:
    """One location in a storm, and who uses it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.history = h.History()
        self.trace: list[str] = []
        self._blob: Blob = BufferedBlob(sync=plan.synced)
        self._log = MemoryConsensus()
        self._clock = ManualClock(1_000)
        self._faults = Random(0)
        self._lossy = Lossy(self._faults, 0.0)
        self._outage = Outage()
        self._random = Random(0)
        self._order = Random(0)
        self._owner: Process | None = None
        self._zombies: list[Process] = []
        self._retriable: list[tuple[h.Operation, Callable[[Client], Future[c.Outcome]]]] = []
        self._retracted: set[int] = set()
        self._held: list[tuple[str, str, int]] = []
        """Read capabilities that were acknowledged: reader, collection, time."""
        self._held_back: set[str] = set()
        """Collections whose since may stay behind what their owner allows."""
        self._clock_ms = 0
        self._rows = 0
        self._listens = 0
        self._problems: list[str] = []

    def _say(self, text: str) -> None:
        self.trace.append(text if len(text) < 160 else text[:157] + "…")

    # ---- processes ---------------------------------------------------------------------------

    def _open(self, *, take_over: bool, reentrance_id: str = REENTRANCE) -> Process:
        mortal = Mortal()
        ports = Stacked(mortal, self._outage, self._lossy)
        client = open_location(
            blob=ports.blob(self._blob),
            consensus=ports.consensus(self._log),
            reentrance_id=reentrance_id,
            take_over=take_over,
            holder="nemesis",
            clock=self._clock,
            settings=self._settings(),
            layouts=LAYOUTS,
        )
        process = Process(client, mortal)
        self.history.observations.append(h.EpochBegan(self.history.tick(), process.epoch))
        self._say(f"  epoch {process.epoch} began")
        return process

    def _settings(self) -> Settings:
        retry = RetryPolicy(first_ms=1, limit_ms=1, attempts_max=self.plan.attempts_max)
        return Settings(maintenance=False, retry=retry, audit_fraction=1.0)

    def _live(self) -> Process:
        """Return the owner; open one where there is none."""
        if self._owner is None:
            with suppress(AlreadyLocked):
                # A dead owner's role is free, ours by reentrance, or has to be taken.
                self._owner = self._open(
                    take_over=self._random.random() < 0.5,
                    reentrance_id=self._random.choice((REENTRANCE, REENTRANCE, "")),
                )
        if self._owner is None:
            raise Nothing
        return self._owner

    def _bury(self, process: Process) -> None:
        process.client.core.stop(release=False)
        self._drain(process)
        for *_, step, _parts in process.parts:
            step.close()
        if process is self._owner:
            self._owner = None
        else:
            self._zombies.remove(process)
        if isinstance(self._blob, BufferedBlob):
            self._blob.power_failure()

    def _handle(self, process: Process, name: str) -> WriteHandle:
        return WriteHandle(process.client.core, process.client.core.state.names[name])

    def _upper(self, process: Process, name: str) -> int:
        return time_of(self._handle(process, name).upper)

    def _see(self, process: Process) -> None:
        """Record the frontiers as this process sees them, and as the log has them."""
        at = self.history.tick()
        core = process.client.core
        fresh = load(self._log, self._blob)
        if fresh.clock_ms < self._clock_ms:
            self._problems.append(f"the log's clock went back to {fresh.clock_ms}")
        self._clock_ms = fresh.clock_ms
        for observer, state in ((f"epoch {process.epoch}", core.state), ("the log", fresh)):
            for collection in state.collections.values():
                self.history.observations.append(
                    h.FrontiersSeen(
                        at,
                        observer,
                        collection.name,
                        time_of(collection.since),
                        time_of(state.upper(collection)),
                        fresh=state is fresh,
                    )
                )
            self._problems.extend(states.violations(state))

    def _maintain(self, process: Process) -> None:
        """Do what the background would; it keeps its failures to itself, so ask for them."""
        maintenance = Maintenance(process.client.core)
        maintenance.once()
        kind = maintenance.last_error.partition(":")[0]
        expected = {"", "Determinate", "Indeterminate", "Stopped", "Fenced"}
        if process in self._zombies:
            expected.add("PartMissing")  # Its successor has merged and collected what it read.
        if kind not in expected:
            self._problems.append(f"maintenance failed: {maintenance.last_error}")

    # ---- asking and being answered -----------------------------------------------------------

    def _submit(
        self,
        process: Process,
        text: str,
        call: Callable[[], Future[c.Outcome]],
        uppers: dict[str, int] | None = None,
        sinces: dict[str, int] | None = None,
        updates: dict[str, tuple[h.Update, ...]] | None = None,
    ) -> h.Operation:
        operation = h.Operation(
            text, process.epoch, self.history.tick(), updates or {}, uppers or {}, sinces or {}
        )
        self.history.operations.append(operation)
        try:
            future = call()
        except (HeadwaterError, Crash) as error:
            # Not even taken: whatever the reason, it is certain that nothing happened.
            self._answer(operation, error, certain=True)
            return operation
        process.unresolved.append((operation, future))
        if not self.plan.pipelined:
            self._drain(process)
        return operation

    def _drain(self, process: Process) -> None:
        """Wait for every answer."""
        for operation, future in process.unresolved:
            error = future.exception()
            self._answer(operation, error if error is not None else future.result())
        process.unresolved.clear()

    def _answer(
        self, operation: h.Operation, answer: c.Outcome | BaseException, *, certain: bool = False
    ) -> None:
        operation.ended = self.history.tick()
        match answer:
            case c.UpperMismatch():
                operation.outcome = h.Outcome.REFUSED
            case Invalid() | Fenced() | Determinate():
                operation.outcome = h.Outcome.REFUSED
            case BaseException():
                operation.outcome = h.Outcome.REFUSED if certain else h.Outcome.UNKNOWN
                if not isinstance(answer, Indeterminate | Stopped | Crash):
                    raise answer
            case _:
                operation.outcome = h.Outcome.ACKNOWLEDGED
        if isinstance(answer, WriteBeforeUpper) and len(operation.updates) == 1:
            operation.late_for = dict.fromkeys(operation.updates, time_of(answer.upper))
        if isinstance(answer, BaseException):
            operation.reason = f"{type(answer).__name__}: {answer}"[:100]
        self._say(f"  {operation}")

    def _asked(
        self, text: str, uppers: dict[str, int] | None = None, sinces: dict[str, int] | None = None
    ) -> None:
        """Record frontiers that may come to be, now or later, without a promise."""
        at = self.history.clock - 1
        asked = h.Operation(text, 0, at, {}, uppers or {}, sinces or {}, h.Outcome.UNKNOWN)
        self.history.operations.append(asked)

    def _allow_compaction(self, process: Process, name: str, since: int) -> None:
        handle, moved = self._handle(process, name), {name: since}
        text = f"allow compaction of {name} to {since}"
        if name in self._held_back:
            self._submit(process, text, lambda: handle.allow_compaction(since))
            self._asked(text, sinces=moved)
        else:
            self._submit(process, text, lambda: handle.allow_compaction(since), sinces=moved)

    # ---- what is read ----------------------------------------------------------------------------

    def _readable(self, process: Process) -> tuple[str, ReadHandle, int]:
        name = self._random.choice(self.plan.collections)
        reader = ReadHandle(process.client.core, process.client.core.state.names[name])
        since, upper = time_of(reader.since), time_of(reader.upper)
        if since >= upper:
            raise Nothing
        return name, reader, self._random.randrange(since, upper)

    def _read(self, name: str, snapshot: Snapshot) -> None:
        self._say(f"  #{self.history.clock + 1} read {name} at {snapshot.as_of}")
        rows = snapshot.to_table().to_pylist()
        self.history.observations.append(
            h.SnapshotRead(
                self.history.tick(),
                name,
                snapshot.as_of,
                tuple(((r["k"], r["v"]), r[DIFF]) for r in rows),
            )
        )

    def _fetch(self, number: int, name: str, listen: Listen) -> None:
        while True:
            lower = time_of(listen.frontier)
            event = listen.fetch(timeout=0)
            if event is None:
                return
            upper = time_of(event.upper)
            if isinstance(event, Updates):
                rows = event.ok.to_pylist()
                updates = tuple(((r["k"], r["v"]), r[TIME], r[DIFF]) for r in rows)
            elif lower == upper:
                continue  # the progress that follows the updates of the same interval
            else:
                updates = ()
            self._say(f"  #{self.history.clock + 1} listen {number} of {name}: [{lower}, {upper})")
            self.history.observations.append(
                h.Delivered(self.history.tick(), number, name, lower, upper, updates)
            )

    def _reader_process(self) -> Client:
        ports = Stacked(self._outage, self._lossy)
        return open_location(
            blob=ports.blob(self._blob),
            consensus=ports.consensus(self._log),
            read_only=True,
            clock=self._clock,
            settings=self._settings(),
            layouts=LAYOUTS,
        )


def time_of(frontier: Times) -> int:
    """Return the frontier as a number; a closed one is beyond all."""
    return BEYOND * 2 if frontier.is_closed else frontier.only()


def to_table(updates: Sequence[h.Update]) -> pa.Table:
    """Return updates as the client takes them."""
    return pa.table(
        [
            pa.array([row[0] for row, _, _ in updates], pa.int64()),
            pa.array([row[1] for row, _, _ in updates], pa.string()),
            pa.array([time for _, time, _ in updates], pa.int64()),
            pa.array([diff for _, _, diff in updates], pa.int64()),
        ],
        schema=UPDATES,
    )
