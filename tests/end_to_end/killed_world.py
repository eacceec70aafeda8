"""Clients of a server that is killed, frozen and replaced under them, and what must hold of them.

Each client is a thread with connections of its own; when it loses one it connects to whoever serves
now. What they do:

- *lists*: read lists and append to them, several times in a transaction, and go back to savepoints
  (``testing/serial_order.py`` checks the order, and that each reads what it has written);
- *transfers*: take money from one account and give it to another, by an UPDATE each, look at the
  total in between, and write it down, in one transaction;
- *shifts*: of two on duty one may go, if it saw that the other is there (write skew);
- *counts*: add one to a number, as anybody does or ``AS OF`` a time of their own: no two are told
  the same, and who comes later is told more;
- *audits*: at every time the accounts are what the ledger says, somebody is on duty, and times
  never go back;
- *consumers*: SUBSCRIBE to the ledger, stopping at random, resuming from the last progress.

A transaction that was answered happened. One that lost its server before it sent COMMIT did not
happen; one that lost it afterwards may have, whole.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import psycopg

from headwater.testing.serial_order import Append, Back, Happened, Mark, Read, Step, violation

LISTS: Final = ("a0", "a1", "b0", "b1")
ACCOUNTS: Final = 4
BALANCE: Final = 100
LAST: Final = -1
CONNECT_SECONDS: Final = 60.0

_HISTORY: Final = "WITH (RETAIN HISTORY FOR '1 hour')"
SETUP: Final = (
    f"CREATE TABLE a (k bigint PRIMARY KEY, v text) {_HISTORY}",
    f"CREATE TABLE b (k bigint PRIMARY KEY, v text) {_HISTORY}",
    f"CREATE TABLE account (k bigint PRIMARY KEY, v bigint) {_HISTORY}",
    f"CREATE TABLE ledger (n bigint PRIMARY KEY, s bigint, d bigint, m bigint) {_HISTORY}",
    f"CREATE TABLE duty (k bigint PRIMARY KEY, v boolean) {_HISTORY}",
    "INSERT INTO a VALUES (0, ''), (1, '')",
    "INSERT INTO b VALUES (0, ''), (1, '')",
    f"INSERT INTO account VALUES {', '.join(f'({k}, {BALANCE})' for k in range(ACCOUNTS))}",
    "INSERT INTO duty VALUES (0, true), (1, true)",
    f"CREATE TABLE meter (k bigint PRIMARY KEY, v bigint) {_HISTORY}",
    "INSERT INTO meter VALUES (0, 0)",
)

Connection = psycopg.Connection[Any]


class Lost(Exception):
    """The server is gone, or is no longer the one."""


@dataclass(slots=True)
class Attempt:
    """A transaction on its way."""

    begin: float
    sent_commit: bool = False


@dataclass(slots=True)
class World:
    """What the clients share, and what they saw."""

    port: Callable[[], int]
    seed: int
    over: threading.Event = field(default_factory=threading.Event)
    abandoned: bool = False
    """Nobody will serve any more: the test has failed."""
    numbers: Any = field(default_factory=lambda: itertools.count(1))
    history: list[Happened] = field(default_factory=list)
    never: set[int] = field(default_factory=set)
    """What was appended by transactions that did not come to COMMIT."""
    transferred: set[int] = field(default_factory=set)
    not_transferred: set[int] = field(default_factory=set)
    counted: list[tuple[float, float, int]] = field(default_factory=list)
    """When somebody asked for a number, when it was answered, and which it was."""
    uncertain: int = 0
    """How many numbers were asked for of a server that was lost."""
    as_of: int = 0
    """How many of ``counted`` were at a time of their own."""
    wrong: list[str] = field(default_factory=list)
    refused: int = 0
    lost: int = 0
    audits: int = 0
    resumed: int = 0
    consumed: Counter[Any] = field(default_factory=Counter)

    # ---- connections -------------------------------------------------------------------------

    def connect(self) -> Connection:
        """Connect to whoever serves now, as soon as somebody does."""
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                return psycopg.connect(
                    host="127.0.0.1",
                    port=self.port(),
                    user="headwater",
                    autocommit=True,
                    connect_timeout=10,
                    prepare_threshold=None,
                )
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self.abandoned:
                    raise
                time.sleep(0.01)

    def run(self, name: str, turn: Callable[[Random, Connection], None]) -> None:
        """Take turns until it is over, with a new connection whenever one is lost."""
        random = Random(f"{self.seed}/{name}")
        while not self.over.is_set():
            try:
                connection = self.connect()
            except psycopg.OperationalError as error:
                self.wrong.append(f"{name}: {error!r}")
                return
            try:
                while not self.over.is_set():
                    turn(random, connection)
            except Lost:
                self.lost += 1
            except psycopg.Error as error:
                self.wrong.append(f"{name}: {error!r}")
                return
            finally:
                connection.close()

    def attempt(
        self, connection: Connection, body: Callable[[], bool | None], begin: str = "BEGIN"
    ) -> Attempt | None:
        """Run a transaction; None: it was refused and did not happen. Raises :class:`Lost`."""
        attempt = Attempt(time.monotonic())
        try:
            with losing(attempt):
                connection.execute(begin)
                body()
                attempt.sent_commit = True
                connection.execute("COMMIT")
        except psycopg.errors.SerializationFailure:
            self.refused += 1
            attempt.sent_commit = False  # It is known not to have happened.
            with losing(attempt):
                connection.execute("ROLLBACK")
            return None
        return attempt

    # ---- what they do ------------------------------------------------------------------------

    def append(self, random: Random, connection: Connection) -> None:
        """Read some lists and append to some, several times to one; perhaps take some back."""
        steps: list[Step] = []

        def body() -> None:
            for _ in range(random.randint(1, 4)):
                steps.extend(self._step(random, connection))

        def appended() -> set[int]:
            return {step.element for step in steps if isinstance(step, Append)}

        try:
            done = self.attempt(connection, body)
        except Lost as lost:
            attempt = lost.args[0]
            if attempt.sent_commit:
                self.history.append(Happened(attempt.begin, None, tuple(steps)))
            else:
                self.never.update(appended())
            raise
        if done is not None:
            self.history.append(Happened(done.begin, time.monotonic(), tuple(steps)))
        else:
            self.never.update(appended())

    def _step(self, random: Random, connection: Connection) -> Iterator[Step]:
        key, element = random.choice(LISTS), next(self.numbers)
        match random.choice(("read", "append", "append, read", "take back")):
            case "read":
                yield Read(key, read_list(connection, key))
            case "append":
                append_to(connection, key, element)
                yield Append(key, element)
            case "append, read":
                append_to(connection, key, element)
                yield Append(key, element)
                yield Read(key, read_list(connection, key))
            case _:
                connection.execute("SAVEPOINT s")
                yield Mark()
                append_to(connection, key, element)
                yield Append(key, element)
                connection.execute("ROLLBACK TO s")
                yield Back()

    def transfer(self, random: Random, connection: Connection) -> None:
        """Move money, and write that down."""
        source, target = random.sample(range(ACCOUNTS), 2)
        amount, number = random.randint(1, 9), next(self.numbers)

        def body() -> None:
            for k, change in ((source, -amount), (target, amount)):
                connection.execute(f"UPDATE account SET v = v + {change} WHERE k = {k}")
            (total,) = connection.execute("SELECT sum(v) FROM account").fetchone() or (None,)
            if total != ACCOUNTS * BALANCE:
                self.wrong.append(f"in a transfer there is {total} altogether")
            entry = (number, source, target, amount)
            connection.execute(f"INSERT INTO ledger VALUES {entry}")

        try:
            done = self.attempt(connection, body)
        except Lost as lost:
            if not lost.args[0].sent_commit:
                self.not_transferred.add(number)
            raise
        (self.not_transferred if done is None else self.transferred).add(number)

    def shift(self, random: Random, connection: Connection) -> None:
        """Go if the other is there; come back if one is gone."""
        own = random.randrange(2)

        def body() -> None:
            query = "SELECT v FROM duty WHERE k = "
            seen = [connection.execute(f"{query}{k}").fetchone() for k in (0, 1)]
            there = [row is not None and row[0] for row in seen]
            wanted = not (there[own] and there[1 - own])
            connection.execute(f"UPDATE duty SET v = {wanted} WHERE k = {own}")

        self.attempt(connection, body)

    def count(self, random: Random, connection: Connection) -> None:
        """Add one to a number, perhaps at a time of one's own."""
        clause, begin = "", time.monotonic()
        with losing(Attempt(begin)):
            if random.random() < 0.6:
                told = query_time(connection, "SELECT v FROM meter WHERE k = 0")
                clause = f" AS OF {told + random.choice((1, 50, 200))}"
                connection.execute("SET statement_timeout = '1s'")
        update = f"UPDATE meter SET v = v + 1 WHERE k = 0 RETURNING v{clause}"
        self.uncertain += 1
        try:
            with losing(Attempt(begin)):
                found = connection.execute(update).fetchone()
        except (psycopg.errors.InvalidParameterValue, psycopg.errors.QueryCanceled):
            self.uncertain -= 1  # Its time was over, or did not come: it is not done.
            return
        assert found is not None
        self.uncertain -= 1
        self.counted.append((begin, time.monotonic(), found[0]))
        self.as_of += bool(clause)

    def audit(self, state: dict[str, int], connection: Connection) -> None:
        """Look at everything at one time."""
        found: dict[str, list[Any]] = {}

        def body() -> None:
            for table in ("account", "ledger", "duty"):
                found[table] = connection.execute(f"SELECT * FROM {table}").fetchall()

        known = set(self.transferred)
        self.attempt(connection, body, "BEGIN READ ONLY")
        self.wrong += complaints(found, known)
        with losing(Attempt(0.0)):
            told = query_time(connection, "SELECT v FROM account WHERE k = 0")
        if told < state.get("time", 0):
            self.wrong.append(f"time went back from {state['time']} to {told}")
        state["time"] = told
        self.audits += 1

    # ---- consuming ---------------------------------------------------------------------------

    def consume(self, name: str) -> None:
        """Follow the ledger to its last entry; what was seen and how far are kept together."""
        random = Random(f"{self.seed}/{name}")
        progress: int | None = None
        while not self.consumed[LAST,]:
            try:
                connection = self.connect()
            except psycopg.OperationalError as error:
                self.wrong.append(f"{name}: {error!r}")
                return
            try:
                progress = self._consume(random, connection, progress)
            except psycopg.OperationalError:
                pass
            except psycopg.Error as error:
                self.wrong.append(f"{name}: {error!r}")
                return
            finally:
                connection.close()
            self.resumed += 1

    def _consume(self, random: Random, connection: Connection, progress: int | None) -> int | None:
        how = ")" if progress is None else f", SNAPSHOT false) AS OF {progress - 1}"
        pending: Counter[Any] = Counter()
        started: int | None = None
        query = f"COPY (SUBSCRIBE ledger WITH (PROGRESS{how}) TO STDOUT"
        try:
            with connection.cursor().copy(query) as copy:
                copy.set_types(["int8", "bool", "int8", "int8", "int8", "int8", "int8"])
                for moment, progressed, diff, number, *_ in copy.rows():
                    if progress is not None and moment < progress - 1:
                        self.wrong.append(f"a change at {moment}, resumed at {progress}")
                    if not progressed:
                        pending[number,] += diff
                        continue
                    if started is None:
                        started = moment  # What is at this time is still to come.
                    elif moment > started:
                        self.consumed.update(pending)
                        pending.clear()
                        progress = moment
                    if self.consumed[LAST,] or random.random() < 0.1:
                        raise Lost
        except Lost:
            connection.close()
        except psycopg.Error:
            if not connection.closed and not connection.broken:
                raise
        return progress

    # ---- at the end --------------------------------------------------------------------------

    def check(self) -> None:
        """Read everything once more, and complain."""
        with self.connect() as connection:
            final = {key: read_list(connection, key) for key in LISTS}
            found = {
                table: connection.execute(f"SELECT * FROM {table}").fetchall()
                for table in ("account", "ledger", "duty")
            }
            ((total,),) = connection.execute("SELECT v FROM meter").fetchall()
        self.wrong += miscounted(self.counted, total, self.uncertain)
        problem = violation(self.history, final)
        if problem is not None:
            self.wrong.append(problem)
        there = {element for elements in final.values() for element in elements}
        self.wrong += [f"{e} was not committed and is there" for e in there & self.never]
        self.wrong += complaints(found, self.transferred)
        numbers = {row[0] for row in found["ledger"]}
        self.wrong += [f"transfer {n} did not happen" for n in numbers & self.not_transferred]
        seen = +self.consumed
        if seen != Counter((number,) for number in numbers):
            self.wrong.append(f"consumers saw {len(seen)} of {len(numbers)} entries, or some twice")


def complaints(found: dict[str, list[Any]], transferred: set[int]) -> list[str]:
    """Say what is wrong with everything at one time."""
    expected = dict.fromkeys(range(ACCOUNTS), BALANCE)
    for _, source, target, amount in found["ledger"]:
        if source >= 0:
            expected[source] -= amount
            expected[target] += amount
    wrong = []
    if dict(found["account"]) != expected:
        wrong.append(f"the accounts are {found['account']}, and the ledger says {expected}")
    missing = transferred - {row[0] for row in found["ledger"]}
    if missing:
        wrong.append(f"acknowledged transfers {sorted(missing)} are lost")
    if not any(there for _, there in found["duty"]):
        wrong.append("nobody is on duty")
    return wrong


def miscounted(counted: list[tuple[float, float, int]], total: int, uncertain: int) -> list[str]:
    """Say what is wrong with the numbers that were told."""
    wrong = []
    numbers = {number for _, _, number in counted}
    if len(numbers) < len(counted):
        wrong.append("two were told the same number")
    if not len(counted) <= total <= len(counted) + uncertain:
        wrong.append(f"{len(counted)} counted, {uncertain} perhaps, and it is {total}")
    for begin, _, number in counted:
        later = max((n for _, end, n in counted if end < begin), default=0)
        if number <= later:
            wrong.append(f"{number} was told after {later}")
    return wrong


def query_time(connection: Connection, query: str) -> int:
    """Return the time at which a query would read."""
    lines = connection.execute(f"EXPLAIN TIMESTAMP FOR {query}").fetchall()
    told = next(row[0] for row in lines if row[0].startswith("query timestamp"))
    return int(told.split()[-1])


def read_list(connection: Connection, key: str) -> tuple[int, ...]:
    """Return a list."""
    row = connection.execute(f"SELECT v FROM {key[0]} WHERE k = {key[1]}").fetchone()
    assert row is not None
    return tuple(int(element) for element in row[0].split(",") if element)


def append_to(connection: Connection, key: str, element: int) -> None:
    """Append to a list."""
    longer = f"CASE v WHEN '' THEN '{element}' ELSE v || ',{element}' END"
    connection.execute(f"UPDATE {key[0]} SET v = {longer} WHERE k = {key[1]}")


@contextmanager
def losing(attempt: Attempt) -> Iterator[None]:
    """Tell the loss of a server from every other failure."""
    try:
        yield
    except psycopg.errors.SerializationFailure:
        raise
    except psycopg.OperationalError as error:
        raise Lost(attempt) from error
