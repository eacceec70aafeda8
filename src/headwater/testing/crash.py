"""Processes that die: on command, at their n-th effect, or under a simulated power failure.

A simulated process is a client whose ports stop working at one moment, for all of its threads at
once (:class:`Mortal`). What it had made durable stays; what it had in memory is gone. Its own
threads die of :class:`~headwater.testing.unreliable.Crash`, which is not an error to report:
:func:`quiet_crashes` keeps it from standard error.

**Power.** :class:`BufferedBlob` is a disk with a write cache: an object that was created without a
sync is there until the power fails, and then it is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.location import Blob, Consensus, ObjectInfo
from headwater.testing.unreliable import (
    Crash,
    InterceptedBlob,
    InterceptedConsensus,
    Interceptor,
    Kind,
)

Answer = TypeVar("Answer")
Mode = Literal["before", "after"]


class Mortal:
    """A process that dies when told to, or at an effect still to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: int | None = None
        self._mode: Mode = "before"
        self.dead = False
        self.effects = 0

    def die(self) -> None:
        """Die now."""
        with self._lock:
            self.dead = True

    def die_at(self, effects: int, mode: Mode) -> None:
        """Die at the ``effects``-th effect from now (1 is the next), before or after it."""
        with self._lock:
            self._left, self._mode = effects, mode

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        """Perform the call, unless the process is dead or dies now."""
        # Held while performing: nothing of a process happens after its death.
        with self._lock:
            if self.dead:
                raise Crash(f"dead: {call}")
            if kind is Kind.EFFECT:
                self.effects += 1
                if self._left is not None:
                    self._left -= 1
                    if self._left <= 0:
                        self.dead = True
                        if self._mode == "after":
                            perform()
                        raise Crash(f"died {self._mode}: {call}")
            return perform()

    def may_close(self) -> bool:
        """A dead process closes nothing."""
        return not self.dead


class Stacked:
    """Interceptors around each other, the first one outermost."""

    def __init__(self, *interceptors: Interceptor) -> None:
        self._interceptors = interceptors

    def blob(self, inner: Blob) -> Blob:
        """Return ``inner`` inside all of them."""
        return InterceptedBlob(inner, self)

    def consensus(self, inner: Consensus) -> Consensus:
        """Return ``inner`` inside all of them."""
        return InterceptedConsensus(inner, self)

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        """Let each of them perform the next."""
        for interceptor in reversed(self._interceptors):
            perform = partial(interceptor, kind, call, perform)
        return perform()

    def may_close(self) -> bool:
        """Close only if none objects."""
        return all(interceptor.may_close() for interceptor in self._interceptors)


@contextmanager
def quiet_crashes() -> Iterator[None]:
    """Let threads die of a simulated crash in silence; any other death is reported as ever."""
    report = threading.excepthook

    def hook(died: threading.ExceptHookArgs) -> None:
        if died.exc_type is not Crash:
            report(died)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = report


class BufferedBlob:
    """Memory with a volatile write cache: only what is synced survives :meth:`power_failure`."""

    def __init__(self, *, sync: bool) -> None:
        self._inner = MemoryBlob()
        self._sync = sync
        self._volatile: set[str] = set()

    def power_failure(self) -> None:
        """Lose every object that was created and not synced."""
        for key in self._volatile:
            self._inner.delete(key)
        self._volatile.clear()

    def get(self, key: str) -> bytes | None:
        """Return the object; the cache is read through."""
        return self._inner.get(key)

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Return a range of the object."""
        return self._inner.get_range(key, offset, length)

    def create(self, key: str, data: bytes) -> bool:
        """Create the object; durable only if this disk syncs."""
        created = self._inner.create(key, data)
        if created and not self._sync:
            self._volatile.add(key)
        return created

    def delete(self, key: str) -> bool:
        """Delete the object."""
        self._volatile.discard(key)
        return self._inner.delete(key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List the objects."""
        return self._inner.list(prefix)

    def local_path(self, key: str) -> Path | None:
        """Nothing here is a file."""
        return self._inner.local_path(key)

    def close(self) -> None:
        """Nothing to release."""
