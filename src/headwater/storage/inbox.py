"""An inbox: what others hand us, durable before they are told so, numbered in the order it came.

    append(received)  ->  a future, done when all of them are durable: only then are they answered
    reached           ->  the number that the next one gets; everything before it is durable
    read(lower, upper)    exactly those numbers, in batches
    forget(number)        everything before it is durable elsewhere

It is the upstream of a source whose senders keep nothing (``sources/webhook.py``). The number of a
message is its *sequence*, and the time of its update: the upper of an inbox **is** how far it is,
with no other counter that could differ from it.

**Segments.** An inbox is a row of collections, ``<source>/inbox/<n>``; the last one is written.
After :data:`SEGMENT_BYTES` another is begun, and one whose messages are all forgotten is destroyed:
so what an inbox takes is bounded by what is not ingested yet and a segment, and no message is ever
written again to be retracted. Numbers go on from segment to segment.

**Group commit.** One thread appends: whatever waits, up to :data:`BATCH_BYTES`, is one batch in one
entry of the log. What was handed over together is in one batch, so no probe lies within it.

**Overload.** What waits to be appended, and what is durable here and not ingested yet, are both
bounded: :class:`Overloaded` says so before anything is taken.

One process writes: the one with the role of the location, which every entry asserts.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.base.clock import Clock
from headwater.base.errors import HeadwaterError
from headwater.persist.client import Client, ReadHandle, WriteHandle
from headwater.persist.commands import Destroy, UpperMismatch
from headwater.persist.errors import Stopped
from headwater.persist.evolution import DIFF, TIME, updates_schema
from headwater.persist.state import State
from headwater.persist.stats import Predicate

SEQUENCE: Final = "sequence"
SCHEMA: Final = pa.schema(
    [
        pa.field(SEQUENCE, pa.int64(), nullable=False),
        pa.field("received", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("headers", pa.binary()),
        pa.field("body", pa.binary(), nullable=False),
    ]
)

SEGMENT_BYTES: Final = 16 * 2**20
BATCH_BYTES: Final = 8 * 2**20
WAITING_BYTES_MAX: Final = 64 * 2**20
"""How much may wait to be made durable."""
BACKLOG_MAX: Final = 1_000_000
"""How many messages may be durable here and not ingested."""


class Overloaded(HeadwaterError):
    """More is handed over than is taken out; later there will be room."""


@dataclass(frozen=True, slots=True)
class Received:
    """One message: its bytes, and what was written on it, as JSON, if anybody wants that."""

    body: bytes
    headers: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Waiting:
    messages: tuple[Received, ...]
    done: Future[int]

    @property
    def size(self) -> int:
        return sum(len(each.body) + len(each.headers or b"") for each in self.messages)


class Inbox:
    """The inbox of one source. Safe to use from several threads."""

    def __init__(self, client: Client, source: str, clock: Clock) -> None:
        self.arrived: Callable[[], None] = lambda: None
        """Called when something new is durable."""
        self._client = client
        self._core = client.core
        self._clock = clock
        self._source = source
        self._wake = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._first = min(_numbers(client, source), default=1)
        self._written_bytes = 0
        _, first = client.create_or_load(self._name(self._first), SCHEMA)
        self._forgotten = first.since.only()  # Where it begins: nobody moves that.

    # ---- where it is -------------------------------------------------------------------------

    @property
    def reached(self) -> int:
        """The number of the next message: all before it are durable."""
        state = self._core.state
        return self._upper(state, self._segments(state)[-1])

    def _name(self, number: int) -> str:
        return f"{self._source}/inbox/{number}"

    def _segments(self, state: State) -> list[int]:
        """The numbers of the segments there are; at least one, until the source is dropped."""
        names, number = state.names, self._first
        for _ in range(len(names) + 1):
            if self._name(number) in names:
                break
            number += 1  # Destroyed meanwhile.
        else:
            raise Stopped(f"the inbox of {self._source} is gone")
        self._first, found = number, []
        while self._name(number) in names:
            found.append(number)
            number += 1
        return found

    def _upper(self, state: State, segment: int) -> int:
        return state.upper(state.collections[state.names[self._name(segment)]]).only()

    # ---- appending ---------------------------------------------------------------------------

    def append(self, messages: Sequence[Received]) -> Future[int]:
        """Take messages that came together; the future has the number of the first of them."""
        waiting = _Waiting(tuple(messages), Future())
        size = waiting.size
        with self._wake:
            if self._closed:
                raise Stopped("the inbox is closed")
            if self._waiting and self._waiting_bytes + size > WAITING_BYTES_MAX:
                raise Overloaded("too much waits to be made durable; try again later")
            if self.reached - self._forgotten > BACKLOG_MAX:
                raise Overloaded("too much is not ingested yet; try again later")
            self._waiting.append(waiting)
            self._waiting_bytes += size
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"headwater-inbox-{self._source}", daemon=True
                )
                self._thread.start()
            self._wake.notify_all()
        return waiting.done

    def close(self) -> None:
        """Take nothing more; what waits and is not durable yet is refused."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while batch := self._next():
            try:
                first = self._commit([each for taken in batch for each in taken.messages])
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                for taken in batch:
                    _settle(taken.done, error)
                continue
            for taken in batch:
                _settle(taken.done, first)
                first += len(taken.messages)
            self.arrived()

    def _next(self) -> list[_Waiting]:
        """Wait for messages; return some of those that wait, and nothing once it is closed."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closed)
            batch: list[_Waiting] = []
            size = 0
            while self._waiting and (not batch or size + self._waiting[0].size <= BATCH_BYTES):
                batch.append(self._waiting.popleft())
                size += batch[-1].size
            self._waiting_bytes -= size
            if not self._closed:
                return batch
            rest = [*batch, *self._waiting]
            self._waiting.clear()
        for taken in rest:
            _settle(taken.done, Stopped("the inbox is closed"))
        return []

    def _commit(self, messages: Sequence[Received]) -> int:
        """Append a batch; return the number of its first message."""
        state = self._core.state
        segment = self._segments(state)[-1]
        first = self._upper(state, segment)
        if self._written_bytes >= SEGMENT_BYTES:
            segment += 1
            write, _ = self._client.create_or_load(self._name(segment), SCHEMA, start=first)
            self._written_bytes = 0
        else:
            write = WriteHandle(self._core, state.names[self._name(segment)])
        updates = _updates(messages, first, self._clock.now_ms())
        outcome = write.compare_and_append(updates, first, first + len(messages)).result()
        if isinstance(outcome, UpperMismatch):
            raise Stopped("another process writes this inbox")
        self._written_bytes += updates.nbytes
        return first

    # ---- reading and forgetting --------------------------------------------------------------

    def read(self, lower: int, upper: int) -> Iterator[pa.Table]:
        """Return the messages with numbers in ``[lower, upper)``, in their order."""
        state = self._core.state
        for segment in self._segments(state):
            end = min(upper, self._upper(state, segment))
            if end <= lower:
                continue
            handle = ReadHandle(self._core, state.names[self._name(segment)])
            if handle.since.only() >= end:
                continue  # It begins behind the range.
            wanted = (Predicate(SEQUENCE, ">=", lower), Predicate(SEQUENCE, "<", end))
            rows = handle.snapshot(end - 1).where(*wanted).to_table()
            yield rows.drop_columns([DIFF]).sort_by(SEQUENCE)

    def forget(self, number: int) -> None:
        """Everything before ``number`` is durable elsewhere: destroy the segments it fills."""
        self._forgotten = max(self._forgotten, number)
        state = self._core.state
        for segment in self._segments(state)[:-1]:
            if self._upper(state, segment) <= number:
                self._core.submit(Destroy(self._name(segment))).result()


def _numbers(client: Client, source: str) -> list[int]:
    prefix = f"{source}/inbox/"
    names = client.core.look().names
    return [int(name.removeprefix(prefix)) for name in names if name.startswith(prefix)]


def destroyed(client: Client, source: str) -> tuple[Destroy, ...]:
    """Return what destroys an inbox, if there is one."""
    return tuple(Destroy(f"{source}/inbox/{number}") for number in _numbers(client, source))


def _updates(messages: Sequence[Received], first: int, now_ms: int) -> pa.Table:
    numbers = pa.array(range(first, first + len(messages)), pa.int64())
    received = pa.scalar(now_ms * 1_000, pa.timestamp("us", "UTC"))
    columns = {
        SEQUENCE: numbers,
        "received": pa.repeat(received, len(messages)),
        "headers": pa.array([each.headers for each in messages], pa.binary()),
        "body": pa.array([each.body for each in messages], pa.binary()),
        TIME: numbers,
        DIFF: pa.repeat(pa.scalar(1, pa.int64()), len(messages)),
    }
    return pa.Table.from_pydict(columns, schema=updates_schema(SCHEMA))


def _settle(done: Future[int], with_: int | BaseException) -> None:
    """Tell whoever waits; who does not wait any more has cancelled."""
    with suppress(InvalidStateError):
        if isinstance(with_, BaseException):
            done.set_exception(with_)
        else:
            done.set_result(with_)


__all__ = ["SEQUENCE", "Inbox", "Overloaded", "Received", "destroyed"]
