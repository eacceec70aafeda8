"""Ports that fail on purpose: by a seed, at the n-th effect, or while a switch is on.

Every decorator is an *interceptor*: a function around each call of either port. What a fault
means is the contract's own distinction, and no more:

- **request lost**: nothing happened, the caller gets Indeterminate;
- **reply lost**: it happened, the caller gets Indeterminate;
- **refused**: nothing happened, the caller gets Determinate;
- **crash**: the process is gone, before or after the effect; nothing it calls works any more.

Reads have no effect, so for them the first two are the same to the caller. ``close`` never
fails, and does nothing in a crashed process: what the process held is for its successor.

A fault in ``list`` surfaces at the first element, as with a store that answers in pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from random import Random
from threading import Lock
from typing import Literal, Protocol, TypeVar

from headwater.base.errors import Determinate, Indeterminate
from headwater.base.ids import SeqNo
from headwater.persist.location import AppendOutcome, Blob, Consensus, LogEntry, ObjectInfo

Answer = TypeVar("Answer")


class Kind(Enum):
    """Whether a call can change anything outside."""

    READ = "read"
    EFFECT = "effect"


class Interceptor(Protocol):
    """Stands around every call: may perform it, and may raise before or after."""

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        """Perform the call named ``call``, or not."""
        ...

    def may_close(self) -> bool:
        """Whether ``close`` still reaches the port inside."""
        ...


class InterceptedBlob:
    """A blob with an interceptor around each call."""

    def __init__(self, inner: Blob, interceptor: Interceptor) -> None:
        self._inner = inner
        self._around = interceptor

    def get(self, key: str) -> bytes | None:
        """Return the object, if the call gets through."""
        return self._around(Kind.READ, f"get {key}", lambda: self._inner.get(key))

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Return a range of the object, if the call gets through."""
        return self._around(
            Kind.READ, f"get_range {key}", lambda: self._inner.get_range(key, offset, length)
        )

    def create(self, key: str, data: bytes) -> bool:
        """Create the object, if the call gets through."""
        return self._around(Kind.EFFECT, f"create {key}", lambda: self._inner.create(key, data))

    def delete(self, key: str) -> bool:
        """Delete the object, if the call gets through."""
        return self._around(Kind.EFFECT, f"delete {key}", lambda: self._inner.delete(key))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List the objects, if the call gets through."""
        yield from self._around(
            Kind.READ, f"list {prefix}", lambda: tuple(self._inner.list(prefix))
        )

    def local_path(self, key: str) -> Path | None:
        """Return the object's path, if the call gets through."""
        return self._around(Kind.READ, f"local_path {key}", lambda: self._inner.local_path(key))

    def close(self) -> None:
        """Close the blob inside, unless the process is dead."""
        if self._around.may_close():
            self._inner.close()


class InterceptedConsensus:
    """A consensus with an interceptor around each call."""

    def __init__(self, inner: Consensus, interceptor: Interceptor) -> None:
        self._inner = inner
        self._around = interceptor

    def head(self) -> SeqNo | None:
        """Return the head, if the call gets through."""
        return self._around(Kind.READ, "head", self._inner.head)

    def append(self, seqno: SeqNo, data: bytes) -> AppendOutcome:
        """Append the entry, if the call gets through."""
        return self._around(Kind.EFFECT, f"append {seqno}", lambda: self._inner.append(seqno, data))

    def scan(self, start: SeqNo, limit: int) -> tuple[LogEntry, ...]:
        """Return entries, if the call gets through."""
        return self._around(Kind.READ, f"scan {start}", lambda: self._inner.scan(start, limit))

    def truncate(self, seqno: SeqNo) -> int:
        """Truncate the log, if the call gets through."""
        return self._around(Kind.EFFECT, f"truncate {seqno}", lambda: self._inner.truncate(seqno))

    def close(self) -> None:
        """Close the consensus inside, unless the process is dead."""
        if self._around.may_close():
            self._inner.close()


class Lossy:
    """Loses requests, loses replies and refuses, each ``rate / 3`` of the time, by ``random``."""

    def __init__(self, random: Random, rate: float) -> None:
        assert 0 <= rate <= 1
        self._random = random
        self.rate = rate  # may be set to 0 to let a test come to its end

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        """Perform the call, or fail as the next random number says."""
        del kind  # all calls fail alike
        # One number per call whatever comes of it, so that the calls before decide nothing else.
        chance = self._random.random()
        if chance < self.rate / 3:
            raise Indeterminate(f"injected: the request was lost: {call}")
        if chance < self.rate * 2 / 3:
            raise Determinate(f"injected: refused: {call}")
        answer = perform()
        if chance < self.rate:
            raise Indeterminate(f"injected: the reply was lost: {call}")
        return answer

    def may_close(self) -> bool:
        """Closing always works."""
        return True


class UnreliableBlob(InterceptedBlob):
    """A blob behind a bad network."""

    def __init__(self, inner: Blob, random: Random, rate: float) -> None:
        super().__init__(inner, Lossy(random, rate))


class UnreliableConsensus(InterceptedConsensus):
    """A consensus behind a bad network."""

    def __init__(self, inner: Consensus, random: Random, rate: float) -> None:
        super().__init__(inner, Lossy(random, rate))


class Crash(BaseException):
    """The process died here. Not an ``Exception``: no handler may survive its own death."""


class FailNth:
    """A process that dies at its ``n``-th effect (from 1), ``before`` or ``after`` performing it.

    Effects (create, delete, append, truncate) are counted over all ports it wraps. For "fail the
    n-th effect, for every n", run with ``n = 1, 2, …`` until ``crashed`` stays ``False``::

        process = FailNth(n, "after")
        blob, log = process.blob(memory_blob), process.consensus(memory_log)
    """

    def __init__(self, n: int, mode: Literal["before", "after"]) -> None:
        assert n >= 1
        self._n = n
        self._mode = mode
        self._lock = Lock()
        self.effects = 0
        self.crashed = False

    def blob(self, inner: Blob) -> Blob:
        """Return ``inner`` as this process uses it."""
        return InterceptedBlob(inner, self)

    def consensus(self, inner: Consensus) -> Consensus:
        """Return ``inner`` as this process uses it."""
        return InterceptedConsensus(inner, self)

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        """Perform the call, unless the process is dead or dies now."""
        # Held while performing: when a thread dies at its effect, no other thread of the same
        # process may still be about to perform a later one.
        with self._lock:
            if self.crashed:
                raise Crash(f"dead since effect {self._n}: {call}")
            if kind is Kind.EFFECT:
                self.effects += 1
                if self.effects == self._n:
                    self.crashed = True
                    if self._mode == "after":
                        perform()
                    raise Crash(f"{self._mode} effect {self._n}: {call}")
            return perform()

    def may_close(self) -> bool:
        """A dead process closes nothing."""
        return not self.crashed


class LostReply:
    """Loses the reply of one effect, once it is armed; before its caller looks, others move on."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._then = then
        self.armed = False

    def consensus(self, inner: Consensus) -> Consensus:
        """Put it around a log."""
        return InterceptedConsensus(inner, self)

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        """Perform it; raise if this is the one."""
        answer = perform()
        if self.armed and kind is Kind.EFFECT:
            self.armed = False
            self._then()
            raise Indeterminate(f"the reply of {call} was lost")
        return answer

    def may_close(self) -> bool:
        """Whether closing still closes: it does."""
        return True


class Outage:
    """A switch: while it is on, every call of the ports it wraps fails and does nothing."""

    def __init__(self) -> None:
        self._failure: type[Determinate | Indeterminate] | None = None

    def begin(self, failure: type[Determinate | Indeterminate] = Indeterminate) -> None:
        """From now on every call raises ``failure``."""
        self._failure = failure

    def end(self) -> None:
        """From now on every call gets through."""
        self._failure = None

    def blob(self, inner: Blob) -> Blob:
        """Return ``inner`` behind the switch."""
        return InterceptedBlob(inner, self)

    def consensus(self, inner: Consensus) -> Consensus:
        """Return ``inner`` behind the switch."""
        return InterceptedConsensus(inner, self)

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        """Perform the call, unless the switch is on."""
        del kind  # all calls fail alike
        failure = self._failure
        if failure is not None:
            raise failure(f"injected: storage is down: {call}")
        return perform()

    def may_close(self) -> bool:
        """Closing always works."""
        return True
