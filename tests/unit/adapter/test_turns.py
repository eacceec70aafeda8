"""Turns: every write is committed once, one group at a time, and gates keep others off.

Nothing here waits without a bound: what never comes is named, and not waited for to the end of the
run.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from headwater.adapter.errors import QueryCanceled
from headwater.adapter.group_commit import Committed, TableWrite, Write
from headwater.adapter.limit import Limit
from headwater.adapter.turns import Turns
from headwater.base.ids import GlobalId
from headwater.testing.awaited import until
from tests.seeds import seeds

ROWS = pa.table({"k": pa.array([], pa.int64())})
WAIT_SECONDS = 20
"""How long is waited for what may come from another thread."""
TABLES = 3


def write_of(table: int) -> Write:
    return Write((TableWrite(GlobalId(table), f"t{table}", (), ROWS, []),))


def join_all(threads: Sequence[threading.Thread], turns: Turns) -> None:
    """Wait for all of them, together no longer than for one."""
    deadline = time.monotonic() + WAIT_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    waiting = [thread.name for thread in threads if thread.is_alive()]
    assert not waiting, f"{waiting} wait for ever, with {turns.waiting} writes in no group"


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


@pytest.mark.parametrize("stays_seconds", [0.0, 10.0])
@pytest.mark.parametrize("seed", seeds(3, 200))
def test_every_write_has_its_turn(
    seed: int, stays_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.adapter.turns.STANDBY_SECONDS", stays_seconds)
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
                elif chance.random() < 0.5:
                    told = threading.Event()
                    turns.offer(write, number, told.set)
                    assert told.wait(WAIT_SECONDS), "it was left here, and never told"
                    assert write.outcome is not None, "it is told when it is done"
                else:
                    turns.take(write)
                done.append(write)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    join_all(threads, turns)
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
        until(lambda: turns.waiting == clients, "that all of them wait")
    join_all(threads, turns)
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
        join_all([thread], turns)
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
    taking = threading.Thread(target=lambda: turns.take(write), daemon=True)
    taking.start()
    assert barred.wait(WAIT_SECONDS)
    taking.join(0.1)
    assert taking.is_alive()
    assert tried == [write]
    assert turns.waiting == 1
    barred.clear()
    turns.wake()
    join_all([taking], turns)
    assert tried == [write, write]


def test_writes_that_are_left_here_are_one_group_and_take_no_thread_each() -> None:
    committer = Committer()
    turns = Turns(committer, lambda _: 0.0)
    writes = [write_of(1) for _ in range(5)]
    over = threading.Semaphore(0)
    threads = threading.active_count()
    with turns.exclusive(frozenset((GlobalId(1),))):
        for number, write in enumerate(writes):
            turns.offer(write, number, over.release)
        assert turns.waiting == len(writes)
        assert threading.active_count() == threads
    for _ in writes:
        assert over.acquire(timeout=WAIT_SECONDS)
    assert committer.groups == [writes]


def test_who_was_told_is_waited_for() -> None:
    committer = Committer()
    turns = Turns(committer, lambda _: float(WAIT_SECONDS), float(WAIT_SECONDS))
    rounds, clients = 3, 4
    over = threading.Event()

    def again(number: int, left: int) -> None:
        def told() -> None:
            if left:
                again(number, left - 1)
            elif len(committer.groups) == rounds:
                over.set()

        turns.offer(write_of(1), number, told)

    with turns.exclusive(frozenset((GlobalId(1),))):
        for number in range(clients):
            again(number, rounds - 1)
    assert over.wait(WAIT_SECONDS)
    assert [len(group) for group in committer.groups] == [clients] * rounds


def test_a_write_that_is_left_here_is_given_up_when_its_limit_is_over() -> None:
    committer = Committer()
    turns = Turns(committer)
    cancelled, told = threading.Event(), threading.Event()
    given_up, other = write_of(1), write_of(1)
    others = threading.Event()
    with turns.exclusive(frozenset((GlobalId(1),))):
        turns.offer(given_up, 1, told.set, Limit(0, cancelled))
        turns.offer(other, 2, others.set, Limit(0, threading.Event()))
        turns.wake()
        assert turns.waiting == 2
        cancelled.set()
        turns.wake()
        assert told.wait(WAIT_SECONDS)
        assert isinstance(given_up.outcome, QueryCanceled)
    assert others.wait(WAIT_SECONDS)
    assert committer.groups == [[other]]


def test_whatever_a_commit_raises_the_next_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[BaseException | None] = [SystemExit("of this thread"), None]
    ended = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: ended.set())

    def commit(group: Sequence[Write]) -> None:
        for each in group:
            each.outcome = Committed(1, ())
        if (raised := outcomes.pop(0)) is not None:
            raise raised

    turns = Turns(commit)
    for _ in range(2):
        told = threading.Event()
        turns.offer(write_of(1), 1, told.set)
        assert told.wait(WAIT_SECONDS)
    assert not outcomes
    assert ended.wait(WAIT_SECONDS)


class LeavingStandby(threading.Condition):
    """Its thread is called at the very moment at which it has waited long enough."""

    def __init__(self, lock: threading.Lock, call: Callable[[], None]) -> None:
        super().__init__(lock)
        self._lock_of_turns = lock
        self._call = call
        self.calls = 0

    def wait(self, timeout: float | None = None) -> bool:
        if self.calls:
            return super().wait(timeout)
        self.calls += 1
        self._lock_of_turns.release()
        try:
            self._call()
        finally:
            self._lock_of_turns.acquire()
        return False  # Nobody notified it in time.


def test_who_is_called_while_it_is_about_to_go_leads_nevertheless() -> None:
    committer = Committer()
    turns = Turns(committer, lambda _: 0.0)
    first, second = write_of(1), write_of(1)
    told, told_too = threading.Event(), threading.Event()
    leaving = LeavingStandby(turns._lock, lambda: turns.offer(second, 2, told_too.set))
    turns._standby = leaving
    turns.offer(first, 1, told.set)
    assert told.wait(WAIT_SECONDS), "the first write was never told"
    assert told_too.wait(WAIT_SECONDS), "what came while the thread was leaving has no leader"
    assert leaving.calls == 1
    assert committer.groups == [[first], [second]]
