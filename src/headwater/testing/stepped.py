"""The runtime of persist without threads: the one who waits for an answer does the work.

In production a commit thread takes requests from a queue and two more write parts. Inside
:func:`stepped` a runtime has none of them: requests and parts gather, and are worked off when
somebody asks a future for its result, in an order drawn from a :class:`~random.Random`. So

- a simulation is a function of its seed, and costs no hand-over between threads;
- how many requests end up in one entry is the simulation's choice: it commits a group exactly when
  it looks at one of the answers.

What decides, commits and resolves is the production code, unchanged; only who calls it, and when,
is different. One thread only; runtimes opened inside must not be used outside.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import count
from random import Random
from unittest.mock import patch

from headwater.persist import core
from headwater.persist.commands import Command, Outcome
from headwater.persist.errors import Stopped
from headwater.persist.machine import Machine, _Request
from headwater.persist.metrics import Metrics
from headwater.testing.unreliable import Crash


class _Answer(Future[Outcome]):
    """A future whose owner works until it is done."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Outcome:
        """Do what is left to do, then answer."""
        if not self.done():
            self._work()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Do what is left to do, then answer."""
        if not self.done():
            self._work()
        return super().exception(timeout)


class _Parts:
    """Stands for the pool that writes parts: keeps the work until it is asked for."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.tasks: list[Callable[[], None]] = []

    def submit(self, task: Callable[[], None]) -> None:
        self.tasks.append(task)

    def run_one(self) -> None:
        self.tasks.pop(self._random.randrange(len(self.tasks)))()

    def shutdown(self, wait: bool = True) -> None:
        assert wait, "what was submitted is still to be written"
        while self.tasks:
            self.run_one()


@contextmanager
def stepped(random: Random) -> Iterator[None]:
    """Let every runtime opened inside work without threads."""
    pool = _Parts(random)

    class SteppedMachine(Machine):
        """Commits when somebody waits."""

        def start(self, closed_step: Callable[[], int]) -> None:
            self._closed_step = closed_step

        def submit_prepared(self, prepared: Future[Command]) -> Future[Outcome]:
            if self._stopping:
                raise Stopped() if self.failure is None else self.failure.again()
            request = _Request(prepared, _Answer(self._work))
            self._queue.append(request)
            return request.future

        def stop(self) -> None:
            self._work()
            super().stop()

        def _work(self) -> None:
            with suppress(Crash):  # In production the thread ends here, and so does the process.
                self._run()

        def _next_group(self) -> list[_Request]:
            while self._queue:
                ready = self._queue[0].prepared.done()
                if pool.tasks and (not ready or random.random() < 0.5):
                    pool.run_one()
                else:
                    assert ready, "a request waits for parts that nobody writes"
                    return super()._next_group()
            return []

    tokens = count()  # names that nobody guesses are not needed here, names that repeat are
    counted = Metrics()  # one for all runtimes: making them costs more than a commit
    with (
        patch.object(core, "Machine", SteppedMachine),
        patch.object(core, "Metrics", lambda: counted),
        patch.object(secrets, "token_hex", lambda size: f"{next(tokens):0{2 * size}x}"),
        patch.object(core, "ThreadPoolExecutor", lambda *_, **__: pool),
    ):
        yield
