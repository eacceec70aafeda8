"""Histories of concurrent clients, checked for strict serializability; also across take-overs.

Clients are threads with sessions of their own; every read and write is by primary key, so nothing
here is slow enough to keep them apart.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from random import Random

import pytest

from headwater.adapter import group_commit
from headwater.adapter.errors import SerializationFailure, WriteInThePast
from headwater.adapter.overlay import Overlays
from headwater.adapter.transaction import Transaction
from headwater.base.clock import SystemClock
from headwater.base.errors import HeadwaterError
from headwater.testing.serial_order import Append, Back, Happened, Mark, Read, Step, violation
from headwater.testing.sql_server import SqlServer, SqlSession
from tests.seeds import seeds

KEYS = ("a0", "a1", "b0", "b1")  # of table a and of table b


# ---- the checker itself --------------------------------------------------------------------------


def test_the_checker_accepts_what_is_in_order() -> None:
    history = [
        Happened(0, 1, (Append("a0", 1),)),
        Happened(2, 3, (Read("a0", (1,)), Append("a0", 2), Append("a0", 3), Read("a0", (1, 2, 3)))),
        Happened(2, 5, (Read("a0", (1,)),)),
        Happened(4, None, (Append("a0", 4),)),
        Happened(6, 7, (Append("b0", 5), Mark(), Append("b0", 6), Read("b0", (5, 6)), Back())),
    ]
    assert violation(history, {"a0": (1, 2, 3, 4), "b0": (5,)}) is None
    assert violation(history, {"a0": (1, 2, 3), "b0": (5,)}) is None


@pytest.mark.parametrize(
    ("history", "final", "what"),
    [
        ([Happened(0, 1, (Append("a", 1),))], {"a": ()}, "lost"),
        (
            [Happened(0, 1, (Append("a", 1),)), Happened(2, 3, (Read("a", ()),))],
            {"a": (1,)},
            "cycle",  # A stale read.
        ),
        (
            [
                Happened(0, 9, (Read("a", ()), Read("b", ()), Append("a", 1))),
                Happened(0, 9, (Read("a", ()), Read("b", ()), Append("b", 2))),
            ],
            {"a": (1,), "b": (2,)},
            "cycle",  # Write skew.
        ),
        (
            [
                Happened(0, 9, (Append("a", 1), Append("b", 2))),
                Happened(0, 9, (Read("a", (1,)), Read("b", ()))),
            ],
            {"a": (1,), "b": (2,)},
            "cycle",  # Half of a transaction.
        ),
        (
            [
                Happened(0, 9, (Append("a", 1), Append("a", 2))),
                Happened(0, 9, (Read("a", (1,)),)),
            ],
            {"a": (1, 2)},
            "cycle",  # Half of what it did to one list.
        ),
        (
            [
                Happened(0, 9, (Append("a", 1), Append("a", 3))),
                Happened(0, 9, (Append("a", 2),)),
            ],
            {"a": (1, 2, 3)},
            "cycle",  # Somebody in the middle of it.
        ),
        ([Happened(0, 1, (Read("a", (5,)),))], {"a": (4,)}, "no beginning"),
        ([Happened(0, 1, (Append("a", 1), Read("a", ())))], {"a": (1,)}, "its own"),
        (
            [Happened(0, 1, (Mark(), Append("a", 1), Back(), Read("a", (1,))))],
            {"a": (1,)},
            "nobody appended",  # What was taken back is there.
        ),
        (
            [Happened(0, None, (Append("a", 1), Append("b", 2), Append("a", 3)))],
            {"a": (1,)},
            "lost",
        ),
        (
            [Happened(0, 1, (Append("a", 1),)), Happened(0, 1, (Read("a", ()), Read("a", (1,))))],
            {"a": (1,)},
            "within a transaction",
        ),
    ],
)
def test_the_checker_finds_what_is_not(
    history: list[Happened], final: dict[str, tuple[int, ...]], what: str
) -> None:
    found = violation(history, final)
    assert found is not None
    assert what in found


# ---- clients -------------------------------------------------------------------------------------


TAKE_BACK = "take back"
STEPS = ("read", "read all", "read, append", "append", "append, read", TAKE_BACK)


def elements_of(text: str) -> tuple[int, ...]:
    return tuple(int(element) for element in text.split(",") if element)


def appended(element: int) -> str:
    return f"CASE v WHEN '' THEN '{element}' ELSE v || ',{element}' END"


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
        return elements_of(text)

    def wrong(self) -> str | None:
        """Say what is wrong with all that the clients saw."""
        sql = self.server.session()
        return violation(self.history, {key: self.read(sql, key) for key in KEYS})

    def take_over(self) -> None:
        self.stopped.append(self.server)
        self.server = SqlServer(SystemClock(), on=self.server, take_over=True)

    def stop(self) -> None:
        for server in (*self.stopped, self.server):
            server.stop()

    def transaction(self, random: Random, sql: SqlSession) -> None:
        """Read lists and append to them, in any order; perhaps take some of it back."""
        begin, steps = time.monotonic(), list[Step]()
        try:
            sql("BEGIN")
            for kind in random.choices(STEPS, k=random.randint(1, 5)):
                steps += self.step(random, sql, kind)
            sql("COMMIT")
        except SerializationFailure:
            sql("ROLLBACK")
            self.refused += 1
            return
        except HeadwaterError:
            # Its server is gone: what it had asked to write may be there or not.
            self.history.append(Happened(begin, None, tuple(steps)))
            raise
        self.history.append(Happened(begin, time.monotonic(), tuple(steps)))

    def step(self, random: Random, sql: SqlSession, kind: str) -> Iterator[Step]:
        """Do something in a transaction."""
        key, element = random.choice(KEYS), next(self.elements)
        where = f"WHERE k = {key[1]}"
        match kind:
            case "read":
                yield Read(key, self.read(sql, key))
            case "read all":  # By a query over the table.
                rows = sql(f"SELECT k, v FROM {key[0]} ORDER BY k")
                yield from (Read(f"{key[0]}{k}", elements_of(text)) for k, text in rows)
            case "read, append":
                before = self.read(sql, key)
                yield Read(key, before)
                text = ",".join(map(str, (*before, element)))
                sql(f"UPDATE {key[0]} SET v = '{text}' {where}")
                yield Append(key, element)
            case "append":
                sql(f"UPDATE {key[0]} SET v = {appended(element)} {where}")
                yield Append(key, element)
            case "append, read":
                ((text,),) = sql(f"UPDATE {key[0]} SET v = {appended(element)} {where} RETURNING v")
                yield Append(key, element)
                yield Read(key, elements_of(text))
            case _:
                assert kind == TAKE_BACK
                sql("SAVEPOINT s")
                yield Mark()
                yield from self.step(random, sql, random.choice(("append", "read, append")))
                if random.random() < 0.5:
                    yield Read(key, self.read(sql, key))
                sql("ROLLBACK TO s")
                yield Back()

    def append_as_of(self, random: Random, sql: SqlSession) -> None:
        """Append to a list at a time of one's own, which is now or soon."""
        key, element = random.choice(KEYS), next(self.elements)
        begin = time.monotonic()
        when = SystemClock().now_ms() + random.randint(0, 4)
        try:
            ((text,),) = sql(
                f"UPDATE {key[0]} SET v = {appended(element)} WHERE k = {key[1]} RETURNING v"
                f" AS OF {when}"
            )
        except (SerializationFailure, WriteInThePast):
            self.refused += 1
            return
        except HeadwaterError:
            self.history.append(Happened(begin, None, (Append(key, element),)))
            raise
        steps = (Append(key, element), Read(key, elements_of(text)))
        self.history.append(Happened(begin, time.monotonic(), steps))


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
        for _ in range(12):
            lists.transaction(random, sql)

    try:
        run_clients(5, client)
        assert lists.wrong() is None
        sql = lists.server.session()
        assert sum(len(lists.read(sql, key)) for key in KEYS) > 10
    finally:
        lists.stop()


# ---- planted defects: the checker finds what a server does that has them -------------------------


def skewed(lists: Lists) -> None:
    """Two read both lists of a table and append to one each, at the same time."""
    begin, clients = time.monotonic(), [lists.server.session() for _ in range(2)]
    for sql in clients:
        sql("BEGIN")
    steps = [[Read(k, lists.read(sql, k)) for k in ("a0", "a1")] for sql in clients]
    for number, sql in enumerate(clients):
        sql(f"UPDATE a SET v = {appended(number + 1)} WHERE k = {number}")
    for number, sql in enumerate(clients):
        sql("COMMIT")
        appends = (Append(f"a{number}", number + 1),)
        lists.history.append(Happened(begin, time.monotonic(), (*steps[number], *appends)))


def updated_at_once(lists: Lists) -> None:
    """One reads a list and writes it longer, while another has done the same."""
    begin, slow, quick = time.monotonic(), lists.server.session(), lists.server.session()
    slow("BEGIN")
    before = Read("a0", lists.read(slow, "a0"))
    quick("BEGIN; UPDATE a SET v = '1' WHERE k = 0; COMMIT")
    lists.history.append(Happened(begin, time.monotonic(), (Append("a0", 1),)))
    slow("UPDATE a SET v = '2' WHERE k = 0; COMMIT")
    lists.history.append(Happened(begin, time.monotonic(), (before, Append("a0", 2))))


@pytest.mark.parametrize("story", [skewed, updated_at_once])
def test_without_a_defect_it_is_refused(story: Callable[[Lists], None]) -> None:
    lists = Lists()
    try:
        with pytest.raises(SerializationFailure):
            story(lists)
        assert lists.wrong() is None
    finally:
        lists.stop()


def test_write_skew_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_check_unchanged", lambda *_: None)
    lists = Lists()
    try:
        skewed(lists)
        found = lists.wrong()
        assert found is not None
        assert "cycle" in found
    finally:
        lists.stop()


def test_a_lost_update_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every statement at a time of its own, as PostgreSQL's READ COMMITTED has it."""
    monkeypatch.setattr(Transaction, "having_read", lambda self, *_: self)
    lists = Lists()
    try:
        updated_at_once(lists)
        found = lists.wrong()
        assert found is not None
        assert "append of 1 to a0 is lost" in found
    finally:
        lists.stop()


def test_reads_without_what_was_written_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Overlays, "of", lambda *_: {})
    lists = Lists()
    try:
        sql, steps = lists.server.session(), list[Step]()
        sql("BEGIN")
        for kind in ("append", "read all"):
            steps += lists.step(Random(1), sql, kind)
        lists.history.append(Happened(0, None, tuple(steps)))
        found = lists.wrong()
        assert found is not None
        assert "its own" in found
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
        assert lists.wrong() is None
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
        assert lists.wrong() is None
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
                    own(f"UPDATE accounts SET balance = balance - {amount} WHERE id = {source}")
                    own(f"UPDATE accounts SET balance = balance + {amount} WHERE id = {target}")
                    assert own("SELECT sum(balance) FROM accounts") == [(300,)]
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
