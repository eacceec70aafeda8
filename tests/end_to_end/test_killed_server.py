"""A server killed, restarted, frozen and replaced under concurrent clients, over the wire.

What was acknowledged is there, nothing unacknowledged is half there, everything is in one order
that agrees with real time, and times never go back, also where the clock does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.testing.wire_process import Nursery, Serving
from tests.end_to_end.killed_world import LAST, SETUP, World

pytestmark = pytest.mark.server

CLOCKS_MS = (0, 0, -4_000, 2_000, -60_000)
"""What the clock of the next server is off by: set back, mostly."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as opened:
        yield opened


class Story:
    """Servers of one directory, one after another, and the clients of all of them."""

    def __init__(self, nursery: Nursery, root: Path, seed: int) -> None:
        self.nursery = nursery
        self.root = root
        self.random = Random(seed)
        self.serving = nursery.serve(root)
        self.world = World(lambda: self.serving.port, seed)
        self.threads: list[threading.Thread] = []
        with self.world.connect() as connection:
            for statement in SETUP:
                connection.execute(statement)

    def start(self, *, more: str = "") -> None:
        world = self.world
        audited: dict[str, int] = {}
        turns: dict[str, Callable[[Random, Any], None]] = {
            f"lists{more}": world.append,
            f"lists again{more}": world.append,
            f"transfers{more}": world.transfer,
        }
        if not more:
            turns["counts"] = turns["more counts"] = world.count
            turns["shifts"] = turns["more shifts"] = world.shift
            turns["audits"] = lambda _, connection: world.audit(audited, connection)
            self._thread("consumer", world.consume, "consumer")
        for name, turn in turns.items():
            self._thread(name, world.run, name, turn)

    def _thread(self, name: str, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name=name)  # type: ignore[arg-type]
        thread.start()
        self.threads.append(thread)

    def work(self) -> None:
        """Let the clients do something, for a moment of random length."""
        before = len(self.world.history)
        time.sleep(self.random.uniform(0.05, 0.4))
        self.wait(lambda: len(self.world.history) >= before + 3)

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait for the clients, who may have to share their machine with others."""
        deadline = time.monotonic() + 60
        while not done() and not self.world.wrong and time.monotonic() < deadline:
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill -9, and start again, perhaps with another clock."""
        self.serving.kill()
        clock = self.random.choice(CLOCKS_MS)
        self.serving = self.nursery.serve(self.root, clock_ms=clock)

    def replace(self, number: int) -> None:
        """Freeze the server, take its place, and let it go on as if nothing had happened."""
        old = self.serving
        old.freeze()
        # It may have been stopped with the lock of its log taken: then it has to go on first.
        thawing = threading.Timer(3.0, old.thaw)
        thawing.start()
        self.serving = self.nursery.serve(self.root, take_over=True)
        self.start(more=f" {number}")
        self.work()
        thawing.cancel()
        old.thaw()
        old.await_fenced()

    def finish(self) -> None:
        world = self.world
        self.wait(lambda: bool(world.transferred and world.audits and world.as_of))
        self.world.over.set()
        consumer, *others = self.threads
        for thread in (*others, consumer):
            if thread is consumer:
                with self.world.connect() as connection:
                    connection.execute(f"INSERT INTO ledger VALUES ({LAST}, -1, -1, 0)")
            thread.join(120)
            assert not thread.is_alive(), thread.name
        self.world.check()


def run(nursery: Nursery, root: Path, seed: int, rounds: int) -> Serving:
    story = Story(nursery, root, seed)
    world = story.world
    story.start()
    try:
        for number in range(rounds):
            story.work()
            if number % 3 == 1:
                story.replace(number)
            else:
                story.kill()
        story.work()
        story.finish()
    except BaseException:
        world.abandoned = True
        world.over.set()
        raise
    print(
        f"seed {seed}: {len(world.history)} transactions of lists, {world.refused} refused, "
        f"{len(world.transferred)} transfers, {world.audits} audits, {world.lost} connections lost,"
        f" {world.resumed} times resumed, {len(world.counted)} counted, {world.as_of} of them AS OF"
    )
    assert not world.wrong, f"seed {seed}: " + "\n".join(world.wrong[:5])
    assert world.transferred
    assert world.as_of
    assert world.lost
    assert world.audits
    return story.serving


def test_everything_acknowledged_is_there(nursery: Nursery, tmp_path: Path) -> None:
    run(nursery, tmp_path, seed=1, rounds=3).kill()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_kills(nursery: Nursery, tmp_path: Path, seed: int) -> None:
    run(nursery, tmp_path, seed, rounds=12).kill()
