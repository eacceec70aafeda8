"""Turns: every write is committed once, one group at a time, and gates keep others off."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import pyarrow as pa
import pytest

from headwater.adapter.errors import QueryCanceled
from headwater.adapter.group_commit import Committed, TableWrite, Write
from headwater.adapter.limit import Limit
from headwater.adapter.turns import Turns
from headwater.base.ids import GlobalId
from tests.seeds import seeds

ROWS = pa.table({"k": pa.array([], pa.int64())})
WAIT_SECONDS = 60
TABLES = 3


def write_of(table: int) -> Write:
    return Write((TableWrite(GlobalId(table), f"t{table}", (), ROWS, []),))


class Committer:
    """Notes what is committed together, and that nothing is at the same time."""

    def __init__(self) -> None:
        self.groups: list[list[Write]] = []
        self.held: list[threading.Event] = [threading.Event() for _ in range(TABLES)]
        """For each table whether somebody has it for itself."""
        self._busy = threading.Lock()

    def __call__(self, group: Sequence[Write]) -> None:
        assert self._busy.acquire(blocking=False), "one group at a time"
        for each in group:
            (table,) = each.touches
            assert each.gate is not None or not self.held[table].is_set()
            assert each.outcome is None, "once"
            each.outcome = Committed(len(self.groups), ())
        self.groups.append(list(group))
        self._busy.release()


@pytest.mark.parametrize("seed", seeds(3, 200))
def test_every_write_has_its_turn(seed: int) -> None:
    committer = Committer()
    turns = Turns(committer)
    done: list[Write] = []
    given_up: list[Write] = []
    failures: list[BaseException] = []

    def client(number: int) -> None:
        chance = random.Random(f"{seed}-{number}")
        try:
            for _ in range(20):
                table = chance.randrange(TABLES)
                write = write_of(table)
                if chance.random() < 0.1:
                    with turns.exclusive(frozenset((GlobalId(table),))) as gate:
                        committer.held[table].set()
                        write.gate = gate
                        turns.take(write)
                        committer.held[table].clear()
                elif chance.random() < 0.1:
                    cancelled = threading.Event()
                    cancelled.set()
                    try:
                        turns.take(write, Limit(0, cancelled))
                    except QueryCanceled:
                        given_up.append(write)
                        continue
                else:
                    turns.take(write)
                done.append(write)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive(), "nobody waits for ever"
    assert not failures, failures
    committed = [each for group in committer.groups for each in group]
    assert sorted(map(id, committed)) == sorted(map(id, done))
    assert all(each.outcome is None for each in given_up)
    assert turns.waiting == 0


def test_who_was_answered_together_is_waited_for() -> None:
    committer = Committer()
    turns = Turns(committer, lambda _: float(WAIT_SECONDS), float(WAIT_SECONDS))
    clients = 4

    def client() -> None:
        for _ in range(3):
            turns.take(write_of(1))

    threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
    with turns.exclusive(frozenset((GlobalId(1),))):
        for thread in threads:
            thread.start()
        while turns.waiting < clients:
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join(2 * WAIT_SECONDS)
    assert [len(group) for group in committer.groups] == [clients] * 3


def test_who_comes_alone_waits_for_nobody() -> None:
    committer = Committer()
    turns = Turns(committer, lambda _: float(WAIT_SECONDS), float(WAIT_SECONDS))
    for _ in range(3):
        turns.take(write_of(1))
    assert [len(group) for group in committer.groups] == [1, 1, 1]


def test_who_does_not_come_is_not_waited_for() -> None:
    committer = Committer()
    turns = Turns(committer, lambda _: float(WAIT_SECONDS), quiet=0.0)
    for _ in range(3):  # Each expected again by the next, and gone.
        thread = threading.Thread(target=turns.take, args=(write_of(1),), daemon=True)
        thread.start()
        thread.join(WAIT_SECONDS)
    assert [len(group) for group in committer.groups] == [1, 1, 1]


def test_who_is_kept_off_is_not_tried_and_who_was_too_late_waits_on() -> None:
    tried: list[Write] = []
    barred = threading.Event()

    def commit(group: Sequence[Write]) -> None:
        for each in group:
            tried.append(each)
            if len(tried) == 1:
                barred.set()  # Too late for it, as it turns out: it comes back.
            else:
                each.outcome = Committed(1, ())

    turns = Turns(commit, kept_off=lambda _: barred.is_set())
    write = write_of(0)
    taking = threading.Thread(target=lambda: turns.take(write))
    taking.start()
    assert barred.wait(WAIT_SECONDS)
    taking.join(0.1)
    assert taking.is_alive()
    assert tried == [write]
    assert turns.waiting == 1
    barred.clear()
    turns.wake()
    taking.join(WAIT_SECONDS)
    assert tried == [write, write]
