"""A bank, delivered: accounts with matched transfers, and a judge who reads the endpoint.

Every transfer takes from one account what it gives to another, so all balances add up to zero at
every time. The collection has two rows per transfer, each with the balance that its account has
after it, known to the oracle. Two bindings deliver it:

    balances    KEY (account) REDUCE (amount sum)       what the endpoint made of the amounts
    log         KEY (account, seq) DELTA UPDATES        every row, once

The judge knows nothing of runtimes and drivers: each key stands at the checkpoint of the narrowest
range that owns it; then its balance is the oracle's at that time, its rows of the log are those
before that time, each once, and the last of them says the same balance.
"""

from __future__ import annotations

import pickle
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa

from headwater.base.ids import GlobalId
from headwater.materialize.checkpoint import Position, from_checkpoint, from_text
from headwater.materialize.combine import Bound
from headwater.materialize.definition import (
    Binding,
    Definition,
    Endpoint,
    delivered_schema,
    to_spec,
    to_validate,
)
from headwater.materialize.delivery import Delivery, Stream, Transaction
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.key_range import KeyHash, KeyRange, key_hash
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import ConnectorState, MaterializationSpec
from headwater.materialize.recovery import RecoveryEntry
from headwater.materialize.tuples import pack
from headwater.persist.errors import Fenced
from headwater.persist.evolution import updates_schema

NAME = "bank"
FULL = KeyRange.full()
TIMES = 8
ACCOUNTS = ("anna", "bert", "cleo")
SCHEMA = pa.schema(
    [
        pa.field("account", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("amount", pa.int64(), nullable=False),
        pa.field("balance", pa.int64(), nullable=False),
    ]
)
BINDINGS = (
    Binding("bank", GlobalId(1), "balances", ("account",), reduce=(("amount", "sum"),)),
    Binding("bank", GlobalId(1), "log", ("account", "seq"), delta_updates=True),
)
DELIVERED = tuple(delivered_schema(binding, SCHEMA, hard_delete=True) for binding in BINDINGS)
BOUND = tuple(
    Bound(index, binding, f"{binding.target}.v0", schema)
    for index, (binding, schema) in enumerate(zip(BINDINGS, DELIVERED, strict=True))
)


@dataclass(frozen=True)
class Booking:
    """One side of a transfer."""

    time: int
    account: str
    seq: int
    amount: int
    balance: int


class Bank:
    """The history, and what the oracle knows of it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random = Random(seed)
        balances = dict.fromkeys(ACCOUNTS, 0)
        seqs = dict.fromkeys(ACCOUNTS, 0)
        self.bookings: list[Booking] = []
        for time in range(TIMES):
            for _ in range(random.randint(1, 2)):
                giver, taker = random.sample(ACCOUNTS, 2)
                amount = random.randint(1, 9)
                for account, moved in ((giver, -amount), (taker, amount)):
                    balances[account] += moved
                    seqs[account] += 1
                    self.bookings.append(
                        Booking(time, account, seqs[account], moved, balances[account])
                    )

    def updates(self, lower: int, upper: int) -> pa.Table:
        chosen = [b for b in self.bookings if lower <= b.time < upper]
        columns: dict[str, list[Any]] = {
            name: [getattr(booking, name) for booking in chosen] for name in SCHEMA.names
        }
        columns |= {"__time": [b.time for b in chosen], "__diff": [1 for _ in chosen]}
        return pa.table(columns, schema=updates_schema(SCHEMA))

    def balance(self, account: str, upper: int) -> int | None:
        """Return an account's balance before a time; ``None`` if it was never touched."""
        mine = [b.balance for b in self.bookings if b.account == account and b.time < upper]
        return mine[-1] if mine else None


class Wrong(AssertionError):
    """The endpoint is not the view at its checkpoints."""


def judge(path: Path, bank: Bank, standing: Mapping[KeyRange, int] | None = None) -> None:
    """Compare the endpoint with the oracle; ``standing`` is read from the fences by default."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")  # Of one moment: a driver in another thread may still be at work.
        balances = dict(db.execute("SELECT account, amount FROM balances").fetchall())
        log = sorted(db.execute("SELECT account, seq, amount, balance FROM log").fetchall())
        if standing is None:
            standing = dict(_fences(db))
    by_width = sorted(standing.items(), key=lambda item: item[0].end - item[0].begin)

    def checkpoint(*key: str | int) -> int:
        hashed = _hashed(key)
        return next((time for key_range, time in by_width if key_range.owns(hashed)), 0)

    for account in ACCOUNTS:
        expected = bank.balance(account, checkpoint(account))
        if balances.get(account) != expected:
            raise Wrong(f"{account} has {balances.get(account)}, not {expected}")
    expected_log = sorted(
        (b.account, b.seq, b.amount, b.balance)
        for b in bank.bookings
        if b.time < checkpoint(b.account, b.seq)
    )
    if log != expected_log:
        raise Wrong(f"the log is {log}, not {expected_log}")
    if len(set(standing.values())) == 1 and sum(balances.values()):
        raise Wrong(f"money came from nowhere: {balances}")


@cache
def _hashed(key: tuple[str | int, ...]) -> KeyHash:
    return key_hash(pack(key))


def _fences(db: sqlite3.Connection) -> Iterator[tuple[KeyRange, int]]:
    rows = db.execute("SELECT key_begin, key_end, checkpoint FROM flow_checkpoints_v1").fetchall()
    for begin, end, text in rows:
        position = from_checkpoint(from_text(text), NAME)
        yield KeyRange(KeyHash(begin), KeyHash(end)), 0 if position is None else position.time


class SharedLog:
    """The recovery logs of all shards: they survive processes, and know epochs."""

    def __init__(self) -> None:
        self.entries: dict[KeyRange, RecoveryEntry] = {}
        self.epochs: dict[KeyRange, int] = {}

    def opened(self, key_range: KeyRange) -> OpenedLog:
        epoch = self.epochs[key_range] = self.epochs.get(key_range, 0) + 1
        return OpenedLog(self, key_range, epoch)


class OpenedLog:
    """One session's view of its shard's log."""

    def __init__(self, log: SharedLog, key_range: KeyRange, epoch: int) -> None:
        self._log, self._key_range, self._epoch = log, key_range, epoch

    @property
    def entry(self) -> RecoveryEntry:
        return self._log.entries.get(self._key_range, RecoveryEntry())

    def commit(self, entry: RecoveryEntry, acknowledged: Position | None) -> None:
        current = self._log.epochs[self._key_range]
        if current != self._epoch:
            raise Fenced(str(self._key_range), self._epoch, current, "another session")
        assert acknowledged is None or entry.position is not None
        self._log.entries[self._key_range] = entry


def spec_of(path: Path, stream: Stream) -> MaterializationSpec:
    """Return the materialization into a file, validated and applied through a stream."""
    endpoint = Endpoint("sqlite", {"path": str(path)})
    definition = Definition(NAME, "", endpoint, BINDINGS, ())
    resources = [{"table": b.target, "delta_updates": b.delta_updates} for b in BINDINGS]
    asked = to_validate(definition, resources, DELIVERED)
    stream.send(asked)
    validated = stream.receive()
    assert isinstance(validated, m.Validated)
    spec = to_spec(definition, asked, validated)
    stream.send(m.Apply(spec, "v1"))
    assert isinstance(stream.receive(), m.Applied)
    stream.end()
    return spec


class Shard:
    """One session of a shard, as the runtime runs it."""

    def __init__(
        self,
        bank: Bank,
        spec: MaterializationSpec,
        key_range: KeyRange,
        log: SharedLog,
        stream: Stream,
    ) -> None:
        self._bank, self.key_range = bank, key_range
        self.delivered_range = key_range
        """What is delivered; another one than was opened is a defect."""
        self._delivery = Delivery(stream, spec, "v1", key_range, log.opened(key_range), source=NAME)

    @property
    def time(self) -> int:
        return 0 if self._delivery.position is None else self._delivery.position.time

    def deliver(self, upper: int) -> None:
        updates = self._bank.updates(self.time, upper)
        combined = [bound.combined(updates, upper, self.delivered_range) for bound in BOUND]
        loads = [part.load(self._delivery.max_key(part.binding.state_key)) for part in combined]
        self._delivery.transact(
            Transaction(
                Position(upper),
                lambda loaded: [c.stores(loaded.get(c.binding.index, ())) for c in combined],
                tuple(load for load in loads if load is not None),
                tuple((c.binding.state_key, c.max_key) for c in combined if c.max_key),
            )
        )

    def settle(self) -> None:
        self._delivery.settle()

    def end(self) -> None:
        self._delivery.end()


class StagingDriver(SqliteDriver):
    """A driver of the other pattern: the recovery log is authoritative, staged work is applied.

    Stores go into a file of its own; its name is in the driver's state, which commits with the
    checkpoint. Acknowledge applies every file that the state names, each once: the endpoint
    remembers which it has. It says no checkpoint, and answers no Load before that is done.
    """

    def __init__(self) -> None:
        super().__init__()
        self._staged: list[str] = []
        self._pending: list[m.StoreMany] = []

    def respond(self, request: m.Request) -> Iterator[m.Response]:
        match request:
            case m.Open():
                assert request.materialization is not None
                opening = super().respond(request)
                next(opening)
                state = msgspec.json.decode(request.state_json) if request.state_json else {}
                self._staged = sorted(state.get("staged", {}))
                self._open_db.execute("CREATE TABLE IF NOT EXISTS applied (file TEXT PRIMARY KEY)")
                yield m.Opened()
            case m.Acknowledge():
                for file in self._staged:
                    self._apply(file)
                done = {"staged": dict.fromkeys(self._staged)}
                yield m.Acknowledged(ConnectorState(msgspec.json.encode(done), merge_patch=True))
            case m.StoreMany():
                self._pending.append(request)
            case m.StartCommit():
                file = uuid.uuid4().hex
                self._file(file).write_bytes(pickle.dumps(self._pending))
                self._staged, self._pending = [file], []
                staged = {"staged": {file: True}}
                yield m.StartedCommit(ConnectorState(msgspec.json.encode(staged), merge_patch=True))
            case _:
                yield from super().respond(request)

    def _file(self, name: str) -> Path:
        return self._path.with_name(f"{self._path.stem}-{name}")

    def is_applied(self, file: str) -> bool:
        found = self._open_db.execute("SELECT 1 FROM applied WHERE file = ?", (file,))
        return found.fetchone() is not None

    def _begin(self) -> sqlite3.Connection:
        if not self._in_transaction:
            self._open_db.execute("BEGIN IMMEDIATE")
            self._in_transaction = True
        return self._open_db

    def _apply(self, file: str) -> None:
        stores: Sequence[m.StoreMany] = pickle.loads(self._file(file).read_bytes())
        db = self._begin()
        if not self.is_applied(file):
            db.execute("INSERT OR IGNORE INTO applied VALUES (?)", (file,))
            for store in stores:
                self._store(store)
        db.execute("COMMIT")
        self._in_transaction = False
