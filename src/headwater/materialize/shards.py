"""A running materialization: its shards, and how they become more or fewer.

    shards at work ─▶ agreement closed ─▶ all drained to one checkpoint ─▶ one log entry ─▶
    shards of the new ranges at work

What is wanted is in the definition, what is there in the log (``splits``); as long as the two
differ they are brought together, also after a crash anywhere on that way. While a shard is stalled
nothing can be drained, and the others wait for it at their checkpoint: joining what stands apart
would deliver some keys twice or never.

Where one tiling is not made of the other by splits alone, the way leads through one shard of
everything, which opens its range at the endpoint and delivers nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headwater.base.errors import HeadwaterError
from headwater.collection.capability import ReadCapability
from headwater.materialize.agreement import Agreement
from headwater.materialize.combine_job import Combiner, Tasks
from headwater.materialize.definition import Definition
from headwater.materialize.in_task import ShardTasks
from headwater.materialize.key_range import KeyRange
from headwater.materialize.runtime import RETRY_SECONDS, Shard
from headwater.materialize.splits import next_shards, reshape, shards_of
from headwater.materialize.status import State, Status
from headwater.materialize.streams import Streams
from headwater.persist import errors as persist_errors
from headwater.persist.client import Client

LOG: Final = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.02

_WORST_FIRST: Final = (
    State.FENCED,
    State.STALLED,
    State.STARTING,
    State.RUNNING,
    State.STOPPED,
)


class Materialization:
    """One materialization, with a thread for each of its shards."""

    def __init__(
        self,
        client: Client,
        definition: Definition,
        reads: Sequence[ReadCapability],
        connect: Streams | None = None,
        retry_seconds: float = RETRY_SECONDS,
        tasks: Tasks | None = None,
        shard_tasks: ShardTasks | None = None,
    ) -> None:
        """``tasks`` combine what is large; ``shard_tasks`` carry shards, where that is wanted."""
        self.name = definition.name
        self._tasks = tasks
        self._shard_tasks = shard_tasks
        self._client = client
        self._definition = definition
        self._reads = tuple(reads)
        self._connect = connect
        self._retry_seconds = retry_seconds
        self._wanted = definition.shards
        self._before = Status()
        """What the shards of former ranges did."""
        self._reshaping_error = ""
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._reshaper: threading.Thread | None = None
        self._agreement = Agreement()
        self.shards: tuple[Shard, ...] = ()

    def start(self) -> None:
        """Begin to deliver."""
        self._start_shards()
        self.reshape(self._wanted)

    def stop(self) -> None:
        """Stop after the transactions in hand."""
        self._stopping.set()
        with self._lock:
            reshaper = self._reshaper
        if reshaper is not None:
            reshaper.join()
        for shard in self.shards:
            shard.stopping()
        for shard in self.shards:
            shard.stop()

    def reshape(self, shards: int) -> None:
        """Have so many shards, as soon as those there are have been drained."""
        with self._lock:
            self._wanted = shards
            at_work = self._reshaper is not None and self._reshaper.is_alive()
            if at_work or self._stopping.is_set() or len(self.shards) == shards:
                return
            self._reshaper = threading.Thread(
                target=self._reshape, name=f"headwater-{self.name}-reshape", daemon=True
            )
            self._reshaper.start()

    @property
    def status(self) -> Status:
        """How it is as a whole: the worst of its shards, the oldest of their times."""
        shards, agreement = self.shards, self._agreement
        found = [shard.status for shard in shards] or [Status()]
        worst = min(found, key=lambda status: _WORST_FIRST.index(status.state))
        error = next((s.error for s in found if s.state is worst.state and s.error), "")
        drained = worst.state is State.STOPPED and not self._stopping.is_set()
        return replace(
            worst,
            state=State.STARTING if drained else worst.state,
            error=error or self._reshaping_error,
            checkpoint=_oldest([status.checkpoint for status in found]),
            reached=_oldest([status.reached for status in found]),
            transactions=self._before.transactions + sum(s.transactions for s in found),
            rows_loaded=self._before.rows_loaded + sum(s.rows_loaded for s in found),
            rows_stored=self._before.rows_stored + sum(s.rows_stored for s in found),
            rows_deleted=self._before.rows_deleted + sum(s.rows_deleted for s in found),
            shards=len(shards),
            aligned=agreement.aligned,
            ranges=tuple((str(shard.key_range), shard.status) for shard in shards),
        )

    def _start_shards(self) -> None:
        ranges = KeyRange.tiling(shards_of(self._client.core, self.name))
        self._agreement = agreement = Agreement(ranges)
        tasks = self._tasks
        combiner = None if tasks is None else Combiner(self._client.core, tasks, ranges)
        self.shards = tuple(
            Shard(
                self._client,
                self._definition,
                self._reads,
                self._connect,
                self._retry_seconds,
                key_range,
                agreement,
                combiner,
                self._shard_tasks,
            )
            for key_range in ranges
        )
        for shard in self.shards:
            shard.start()

    def _reshape(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                wanted = self._wanted
                if len(self.shards) == wanted:
                    self._reshaper = None
                    return
            try:
                if self._drained():
                    self._change(next_shards(len(self.shards), wanted))
            except persist_errors.Stopped:
                return
            except HeadwaterError as error:
                LOG.warning("materialization %s keeps its shards: %s", self.name, error)
                self._reshaping_error = str(error)
                self._start_shards()
                self._stopping.wait(self._retry_seconds)

    def _drained(self) -> bool:
        """Bring all shards to one checkpoint and let them end; false if we are stopping first."""
        self._agreement.close()
        self._client.core.wake()
        while any(shard.running for shard in self.shards):
            if self._stopping.wait(_LOOK_SECONDS):
                return False
        return not self._stopping.is_set()

    def _change(self, shards: int) -> None:
        if any(shard.status.state is State.FENCED for shard in self.shards):
            # It is not ours any more, and neither are its ranges.
            self._stopping.set()
            return
        reshape(self._client.core, self.name, shards)
        so_far = self.status
        self._before = replace(Status(), **{name: getattr(so_far, name) for name in _COUNTED})
        self._reshaping_error = ""
        self._start_shards()


_COUNTED: Final = ("transactions", "rows_loaded", "rows_stored", "rows_deleted")


def _oldest(times: Sequence[int | None]) -> int | None:
    known = [time for time in times if time is not None]
    return min(known) if len(known) == len(times) else None
