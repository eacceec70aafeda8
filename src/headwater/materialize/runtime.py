"""A running materialization: snapshot once, then deltas, each committed with its checkpoint.

Checkpoint ``c``: everything at times before ``c`` has been delivered, for all bindings alike. It
lives in the endpoint. On our side a durable read hold at ``c - 1`` on every input keeps what a
restart will need; it is moved only after the endpoint has confirmed. So at every instant the
endpoint's checkpoint is at or after the hold, and resuming never misses and never repeats:

    open endpoint (fence) ─▶ checkpoint c? ─ none ─▶ deliver the snapshot at t, checkpoint t + 1
                                 └── c ──▶ deliver [c, upper) when inputs have moved, for ever

A collection that has errors at a time is not delivered there: the materialization stays at its last
checkpoint, says why, and goes on once the errors are retracted.
"""

from __future__ import annotations

import threading

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import ExternalError, HeadwaterError
from headwater.collection.capability import ReadCapability
from headwater.collection.collections import Collections
from headwater.materialize.combine import combine
from headwater.materialize.drivers.driver import BindingSpec, Delta, Driver
from headwater.persist.client import Client, ReadHandle
from headwater.persist.errors import CollectionHasErrors
from headwater.persist.evolution import DIFF, TIME, updates_schema
from headwater.persist.read import Updates

RETRY_SECONDS = 1.0


class Materialization:
    """One materialization, run by a thread of its own."""

    def __init__(
        self,
        name: str,
        client: Client,
        driver: Driver,
        inputs: tuple[tuple[BindingSpec, ReadCapability], ...],
    ) -> None:
        self.name = name
        self.error = ""
        self.checkpoint: int | None = None
        self._client = client
        self._collections = Collections(client)
        self._driver = driver
        self._inputs = inputs
        self._holds = {read.id: read for _, read in inputs}
        self._moved = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headwater-{name}", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the transaction in hand."""
        self._stopping.set()
        self._client.core.wake()
        self._thread.join()
        self._driver.close()

    def _run(self) -> None:
        opened = False
        while not self._stopping.is_set():
            try:
                if not opened:
                    self.checkpoint = self._driver.open(
                        self.name, tuple(binding for binding, _ in self._inputs)
                    )
                    opened = True
                self._deliver()
                self.error = ""
            except (ExternalError, CollectionHasErrors) as error:
                # An endpoint that is away may come back, and an error in the data be retracted.
                self.error = str(error)
                self._stopping.wait(RETRY_SECONDS)
            except HeadwaterError as error:
                # Fenced, or a key that is not unique: nothing that trying again would mend.
                self.error = str(error)
                return

    def _deliver(self) -> None:
        """Wait until every input is complete past the checkpoint, and deliver up to there."""
        target = self._client.core.wait(lambda _: self._next_checkpoint(), timeout=0.5)
        if target is None or self._stopping.is_set():
            return
        deltas = tuple(self._delta(binding, read, target) for binding, read in self._inputs)
        self._driver.commit(deltas, target)
        with self._moved:
            self.checkpoint = target
            self._moved.notify_all()
        for gid, hold in self._holds.items():
            if not hold.frontier.is_closed and hold.frontier.only() < target - 1:
                self._holds[gid] = self._collections.downgrade_read(hold, target - 1)

    def _next_checkpoint(self) -> int | None:
        """Return the time before which all inputs are complete, if that is past the checkpoint."""
        if self._stopping.is_set():
            return -1
        uppers = [ReadHandle(self._client.core, read.id).upper for _, read in self._inputs]
        open_uppers = [upper.only() for upper in uppers if not upper.is_closed]
        if not open_uppers:
            return None
        upper = min(open_uppers)
        first = max(read.frontier.only() for _, read in self._inputs) + 1
        return upper if upper > (self.checkpoint or first - 1) else None

    def _delta(self, binding: BindingSpec, read: ReadCapability, target: int) -> Delta:
        handle = ReadHandle(self._client.core, read.id)
        at_target = handle.snapshot(target - 1)
        errors = at_target.errors()
        if errors.num_rows:
            messages = tuple(errors.column("message").to_pylist())
            raise CollectionHasErrors(binding.name, target - 1, messages)
        if self.checkpoint is None:
            snapshot = at_target.to_table()
            times = pa.array([target - 1] * snapshot.num_rows, pa.int64())
            at = snapshot.schema.get_field_index(DIFF)
            return combine(binding, snapshot.add_column(at, TIME, times), target)
        listen = handle.listen(self.checkpoint - 1)
        try:
            tables = []
            while listen.frontier.only() < target:
                event = listen.fetch(timeout=10)
                if isinstance(event, Updates):
                    tables.append(event.ok)
        finally:
            listen.close()
        # The listen may have run ahead of the common target: what is later comes next time.
        updates = pa.concat_tables([updates_schema(binding.schema).empty_table(), *tables])
        return combine(binding, updates.filter(pc.less(updates.column(TIME), target)), target)
