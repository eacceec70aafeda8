"""Histories of concurrent clients, checked for strict serializability; also across take-overs.

Clients are threads with sessions of their own; every read and write is by primary key, so nothing
here is slow enough to keep them apart.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from random import Random

import pytest

from headwater.adapter.errors import SerializationFailure, WriteInThePast
from headwater.base.clock import SystemClock
from headwater.base.errors import HeadwaterError
from headwater.testing.serial_order import Happened, violation
from headwater.testing.sql_server import SqlServer, SqlSession
from tests.seeds import seeds

KEYS = ("a0", "a1", "b0", "b1")  # of table a and of table b


# ---- the checker itself --------------------------------------------------------------------------


def test_the_checker_accepts_what_is_in_order() -> None:
    history = [
        Happened(0, 1, appends={"a0": 1}),
        Happened(2, 3, reads={"a0": (1,)}, appends={"a0": 2}),
        Happened(2, 5, reads={"a0": (1,)}),
        Happened(4, None, appends={"a0": 3}),
    ]
    assert violation(history, {"a0": (1, 2, 3)}) is None
    assert violation(history, {"a0": (1, 2)}) is None


@pytest.mark.parametrize(
    ("history", "final", "what"),
    [
        ([Happened(0, 1, appends={"a": 1})], {"a": ()}, "lost"),
        (
            [Happened(0, 1, appends={"a": 1}), Happened(2, 3, reads={"a": ()})],
            {"a": (1,)},
            "cycle",  # A stale read.
        ),
        (
            [
                Happened(0, 9, reads={"a": (), "b": ()}, appends={"a": 1}),
                Happened(0, 9, reads={"a": (), "b": ()}, appends={"b": 2}),
            ],
            {"a": (1,), "b": (2,)},
            "cycle",  # Write skew.
        ),
        (
            [
                Happened(0, 9, appends={"a": 1, "b": 2}),
                Happened(0, 9, reads={"a": (1,), "b": ()}),
            ],
            {"a": (1,), "b": (2,)},
            "cycle",  # Half of a transaction.
        ),
        ([Happened(0, 1, reads={"a": (5,)})], {"a": (4,)}, "no beginning"),
    ],
)
def test_the_checker_finds_what_is_not(
    history: list[Happened], final: dict[str, tuple[int, ...]], what: str
) -> None:
    found = violation(history, final)
    assert found is not None
    assert what in found


# ---- clients -------------------------------------------------------------------------------------


class Lists:
    """Lists in two tables, some servers one after another, and what the clients saw."""

    def __init__(self) -> None:
        self.server = SqlServer(SystemClock())
        self.stopped: list[SqlServer] = []
        self.elements = itertools.count(1)
        self.history: list[Happened] = []
        self.refused = 0
        sql = self.server.session()
        for table in "ab":
            sql(f"CREATE TABLE {table} (k bigint PRIMARY KEY, v text)")
            sql(f"INSERT INTO {table} VALUES (0, ''), (1, '')")

    def read(self, sql: SqlSession, key: str) -> tuple[int, ...]:
        ((text,),) = sql(f"SELECT v FROM {key[0]} WHERE k = {key[1]}")
        return tuple(int(element) for element in text.split(",") if element)

    def take_over(self) -> None:
        self.stopped.append(self.server)
        self.server = SqlServer(SystemClock(), on=self.server, take_over=True)

    def stop(self) -> None:
        for server in (*self.stopped, self.server):
            server.stop()

    def transaction(self, random: Random, sql: SqlSession) -> None:
        """Read some lists, perhaps append to some of those, at most one of each table."""
        keys = random.sample(KEYS, random.randint(1, 3))
        chosen = {key[0]: key for key in keys if random.random() < 0.5}
        appends = {key: next(self.elements) for key in chosen.values()}
        begin, reads = time.monotonic(), {}
        try:
            if len(keys) > 1 or appends:
                sql("BEGIN")
            for key in keys:
                reads[key] = self.read(sql, key)
            for key, element in appends.items():
                text = ",".join(map(str, (*reads[key], element)))
                sql(f"UPDATE {key[0]} SET v = '{text}' WHERE k = {key[1]}")
            if len(keys) > 1 or appends:
                sql("COMMIT")
        except SerializationFailure:
            sql("ROLLBACK")
            self.refused += 1
            return
        except HeadwaterError:
            # Its server is gone: what it had asked to write may be there or not.
            self.history.append(Happened(begin, None, {}, appends))
            raise
        self.history.append(Happened(begin, time.monotonic(), reads, appends))

    def append_as_of(self, random: Random, sql: SqlSession) -> None:
        """Append to a list at a time of one's own, which is now or soon."""
        key, element = random.choice(KEYS), next(self.elements)
        begin = time.monotonic()
        when = SystemClock().now_ms() + random.randint(0, 4)
        try:
            ((text,),) = sql(
                f"UPDATE {key[0]} SET v = CASE v WHEN '' THEN '{element}' ELSE v || ',{element}'"
                f" END WHERE k = {key[1]} RETURNING v AS OF {when}"
            )
        except (SerializationFailure, WriteInThePast):
            self.refused += 1
            return
        except HeadwaterError:
            self.history.append(Happened(begin, None, {}, {key: element}))
            raise
        elements = tuple(map(int, text.split(",")))
        assert elements[-1] == element
        self.history.append(Happened(begin, time.monotonic(), {key: elements[:-1]}, {key: element}))


def run_clients(count: int, client: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            client(number)
        except BaseException as error:  # noqa: BLE001 - told below, in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.simulation
@pytest.mark.parametrize("seed", seeds(1, 40))
def test_appends_to_lists_are_strictly_serializable(seed: int) -> None:
    print(f"seed {seed}")
    lists = Lists()

    def client(number: int) -> None:
        random, sql = Random(f"{seed}/{number}"), lists.server.session()
        for _ in range(20):
            lists.transaction(random, sql)

    try:
        run_clients(5, client)
        sql = lists.server.session()
        final = {key: lists.read(sql, key) for key in KEYS}
        assert violation(lists.history, final) is None
        assert sum(len(elements) for elements in final.values()) > 10
    finally:
        lists.stop()


@pytest.mark.simulation
@pytest.mark.parametrize("seed", seeds(1, 40))
def test_they_are_also_across_take_overs(seed: int) -> None:
    print(f"seed {seed}")
    lists = Lists()
    moving = threading.Lock()

    def client(number: int) -> None:
        random = Random(f"{seed}/{number}")
        server = lists.server
        sql = server.session()
        for turn in range(24):
            if number == 0 and turn in (6, 14):
                with moving:
                    lists.take_over()
            try:
                lists.transaction(random, sql)
            except HeadwaterError:
                with moving:
                    sql = lists.server.session()

    try:
        run_clients(4, client)
        sql = lists.server.session()
        final = {key: lists.read(sql, key) for key in KEYS}
        assert violation(lists.history, final) is None
        assert any(each.end is None for each in lists.history), "no server was lost on anybody"
    finally:
        lists.stop()


@pytest.mark.simulation
@pytest.mark.parametrize("seed", seeds(1, 40))
def test_they_are_also_with_writes_as_of(seed: int) -> None:
    """Times that are chosen are not before what was answered, so they are in order with it."""
    print(f"seed {seed}")
    lists = Lists()
    lists.server.timeline.start()
    moving = threading.Lock()
    kept = 0

    def client(number: int) -> None:
        nonlocal kept
        random = Random(f"{seed}/{number}")
        sql = lists.server.session()
        for turn in range(16):
            if number == 0 and turn == 8:
                with moving:
                    lists.take_over()
                    lists.server.timeline.start()
            try:
                if random.random() < 0.5:
                    lists.append_as_of(random, sql)
                    kept += 1
                else:
                    lists.transaction(random, sql)
            except HeadwaterError:
                with moving:
                    sql = lists.server.session()

    try:
        run_clients(4, client)
        sql = lists.server.session()
        final = {key: lists.read(sql, key) for key in KEYS}
        assert violation(lists.history, final) is None
        assert kept > 8
    finally:
        lists.stop()


@pytest.mark.simulation
def test_transfers_keep_the_sum_at_every_time() -> None:
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql("CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)")
        sql("INSERT INTO accounts VALUES (0, 100), (1, 100), (2, 100)")
        started = server.timeline.upper - 1
        done = []

        def transfer(number: int) -> None:
            random, own = Random(number), server.session()
            for _ in range(12):
                source, target = random.sample(range(3), 2)
                amount = random.randint(1, 30)
                try:
                    own("BEGIN")
                    ((a,),) = own(f"SELECT balance FROM accounts WHERE id = {source}")
                    ((b,),) = own(f"SELECT balance FROM accounts WHERE id = {target}")
                    own(
                        f"INSERT INTO accounts VALUES ({source}, {a - amount}),"
                        f" ({target}, {b + amount})"
                        " ON CONFLICT (id) DO UPDATE SET balance = excluded.balance"
                    )
                    own("COMMIT")
                    done.append(server.timeline.upper - 1)
                except SerializationFailure:
                    own("ROLLBACK")

        run_clients(4, transfer)
        assert done
        for moment in sorted({started, *done})[::4]:
            assert sql(f"SELECT sum(balance) FROM accounts AS OF {moment}") == [(300,)]
        assert sql("SELECT count(*) FROM accounts") == [(3,)]


def test_write_skew_is_refused() -> None:
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql("CREATE TABLE doctors (id bigint PRIMARY KEY, on_call boolean)")
        sql("INSERT INTO doctors VALUES (1, true), (2, true)")

        def leave(number: int) -> None:
            own = server.session()
            for _ in range(5):
                try:
                    own("BEGIN")
                    calls = [
                        own(f"SELECT on_call FROM doctors WHERE id = {each}") for each in (1, 2)
                    ]
                    if calls == [[(True,)], [(True,)]]:
                        own(f"UPDATE doctors SET on_call = false WHERE id = {number + 1}")
                    own("COMMIT")
                except SerializationFailure:
                    own("ROLLBACK")

        run_clients(2, leave)
        assert len(sql("SELECT id FROM doctors WHERE on_call")) == 1
