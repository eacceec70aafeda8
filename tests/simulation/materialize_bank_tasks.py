"""The bank, delivered by sessions that tasks carry: threads in the place of Spark's, all else real.

A :class:`TaskShard` is what ``materialize_bank.Shard`` is, over ``in_task``: it commits in its own
epoch of the shared log, and a thread that has nothing of it but an address and a secret reads the
bank's collection, combines and speaks to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from headwater.base.ids import GlobalId
from headwater.materialize.carrying import carry
from headwater.materialize.courier import Charge
from headwater.materialize.definition import Endpoint
from headwater.materialize.delivery import Stream
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.in_task import InTask, ShardTasks
from headwater.materialize.key_range import KeyRange
from headwater.materialize.pace import TASKS
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.client import Client
from headwater.persist.interval import Interval
from headwater.persist.spark_parts import place_of
from tests.simulation.materialize_bank import BOUND, NAME, SCHEMA, TIMES, Bank, SharedLog

LEAVE_SECONDS = 60.0
SPILL_BYTES = 64 << 20


class BankFile:
    """The histories of banks as collections, one for each seed."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._ids: dict[int, GlobalId] = {}

    def interval(self, bank: Bank, lower: int, upper: int) -> Interval:
        """Return what happened in a bank."""
        if bank.seed not in self._ids:
            write, read = self.client.create_or_load(f"bank {bank.seed}", SCHEMA)
            write.compare_and_append(bank.updates(0, TIMES), 0, TIMES).result()
            self._ids[bank.seed] = read.id
        return Interval(self.client.core, self._ids[bank.seed], lower, upper)


class ExecutorLost(Exception):
    """What Spark says of a task that ended with its process."""


def in_a_thread(work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
    """Run what would be sent to an executor; who ends there is gone without a word."""
    try:
        return [one(f"attempt {number}") for number, one in enumerate(work)]
    except Exception:
        raise
    except BaseException as gone:
        raise ExecutorLost("the executor is lost") from gone


class TaskShard:
    """One session of a shard, carried by a task."""

    def __init__(
        self,
        file: BankFile,
        bank: Bank,
        spec: MaterializationSpec,
        key_range: KeyRange,
        log: SharedLog,
        stream: Stream,
        begun: Callable[[TaskShard], None] = lambda _: None,
    ) -> None:
        """``stream``: to the task's driver; ``begun`` is told of it before anything is opened."""
        self._file, self._bank = file, bank
        to_driver = partial(carry, connect=lambda _: stream)
        self._tasks = ShardTasks(in_a_thread, "127.0.0.1", lambda: 2, carry=to_driver)
        expected = self._tasks.reserve(TASKS)
        place = place_of(file.client.core)
        assert expected is not None
        assert place is not None
        self._expected = expected
        asked = InProcess(SqliteDriver())
        self._courier = InTask(asked, Endpoint("sqlite", {}), self._tasks, expected, place)
        charge = Charge(spec, "v1", NAME, key_range, BOUND, SPILL_BYTES, True)
        begun(self)
        with self._or_abort():
            self._courier.open(charge, log.opened(key_range), lambda: None)

    @property
    def time(self) -> int:
        return 0 if self._courier.position is None else self._courier.position.time

    def deliver(self, upper: int) -> None:
        with self._or_abort():
            interval = self._file.interval(self._bank, self.time, upper)
            self._courier.deliver(upper, [interval] * len(BOUND), with_others=False)

    def settle(self) -> None:
        with self._or_abort():
            self._courier.settle()

    def end(self) -> None:
        with self._or_abort():
            self._courier.end()
        self._tasks.close()

    def abandon(self) -> None:
        """Give the session up; its task does not know, and may be in the middle of anything."""
        self._courier.abort()

    @contextmanager
    def _or_abort(self) -> Iterator[None]:
        """Do as the runtime does when anything fails; then wait until nobody does anything."""
        try:
            yield
        except BaseException:
            self._courier.abort()
            assert self._expected.ended.wait(LEAVE_SECONDS)
            self._tasks.close()
            raise
