"""A bank in a lake: its bindings, sessions that fail, and a judge that reads the tables.

The lake is Delta Lake or Iceberg, in a directory or a bucket (:class:`Lake`). The judge reads with
the lake's own client, and of Iceberg also the files that a snapshot names, without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergTable

from headwater.base.ids import GlobalId
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import Bound
from headwater.materialize.definition import (
    Binding,
    Definition,
    Endpoint,
    delivered_schema,
    to_spec,
    to_validate,
)
from headwater.materialize.delivery import Delivery
from headwater.materialize.delivery import Transaction as Delivered
from headwater.materialize.drivers.delta import STAGED, DeltaDriver
from headwater.materialize.drivers.iceberg import IcebergDriver
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.blob import open_blob
from headwater.persist.evolution import updates_schema
from tests.integration.faulty_stream import Crash, Faulty
from tests.integration.materialize_places import Memory
from tests.simulation.materialize_bank import ACCOUNTS, FULL, NAME, TIMES, Bank, SharedLog
from tests.simulation.materialize_bank import SCHEMA as BOOKINGS

Row = tuple[Any, ...]
STEP = 2

SUMS = Binding("bank", GlobalId(1), "sums", ("account",), reduce=(("amount", "sum"),))
LOG = Binding("bank", GlobalId(1), "log", ("account", "seq"), delta_updates=True)
ACCOUNT = pa.schema([pa.field("account", pa.string(), nullable=False), ("balance", pa.int64())])
STANDS = Binding("accounts", GlobalId(2), "accounts", ("account",))
BINDINGS = (SUMS, LOG, STANDS)
SCHEMAS = (BOOKINGS, BOOKINGS, ACCOUNT)


class Lake(Protocol):
    """Where tables are, as everybody sees them."""

    @property
    def driver(self) -> str: ...

    @property
    def config(self) -> Mapping[str, str]: ...

    def make(self) -> Responder:
        """Return a driver."""
        ...

    def rows(self, table: str) -> pa.Table:
        """Return what a table has."""
        ...

    def create(self, table: str, schema: pa.Schema) -> None:
        """Let somebody else make a table."""
        ...

    def append(self, table: str, rows: pa.Table) -> None:
        """Let somebody else write to a table."""
        ...

    def left_behind(self) -> list[str]:
        """Return what is staged where only the driver takes it away."""
        ...


class DeltaLake:
    """Delta tables below a directory or a bucket's prefix."""

    driver: ClassVar[str] = "delta"

    def __init__(self, url: Path | str) -> None:
        self.url = str(url)
        self.config = {"path": self.url}

    def make(self) -> Responder:
        return DeltaDriver()

    def rows(self, table: str) -> pa.Table:
        return pa.table(DeltaTable(f"{self.url}/{table}").scan())

    def create(self, table: str, schema: pa.Schema) -> None:
        DeltaTable.create(f"{self.url}/{table}", schema)

    def append(self, table: str, rows: pa.Table) -> None:
        write_deltalake(f"{self.url}/{table}", rows, mode="append")

    def left_behind(self) -> list[str]:
        with closing(open_blob(self.url)) as blob:
            return [found.key for found in blob.list(f"{STAGED}/")]


class IcebergLake:
    """Iceberg tables whose catalog is an SQLite file in a directory."""

    driver: ClassVar[str] = "iceberg"

    def __init__(
        self, directory: Path | str, warehouse: str = "", more: Mapping[str, str] | None = None
    ) -> None:
        Path(directory).mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{directory}/catalog.db"
        self.config = {"uri": uri, "warehouse": warehouse or str(directory)}
        self._more = more or {}

    def make(self) -> Responder:
        return IcebergDriver()

    @contextmanager
    def catalog(self) -> Iterator[SqlCatalog]:
        with closing(SqlCatalog("default", **self.config, **self._more)) as catalog:
            yield catalog

    def table(self, table: str) -> IcebergTable:
        with self.catalog() as catalog:
            return catalog.load_table(f"default.{table}")

    def rows(self, table: str) -> pa.Table:
        found = self.table(table)
        rows = found.scan().to_arrow()
        tasks = list(found.scan().plan_files())
        if not any(task.delete_files for task in tasks):
            counts = [_footer_rows(found, task.file.file_path) for task in tasks]
            assert counts == [task.file.record_count for task in tasks]
            assert sum(counts) == rows.num_rows
        return rows

    def create(self, table: str, schema: pa.Schema) -> None:
        with self.catalog() as catalog:
            catalog.create_namespace_if_not_exists("default")
            catalog.create_table(f"default.{table}", schema)

    def append(self, table: str, rows: pa.Table) -> None:
        with self.catalog() as catalog:
            catalog.load_table(f"default.{table}").append(rows)

    def left_behind(self) -> list[str]:
        return []


def _footer_rows(found: IcebergTable, file: str) -> int:
    with found.io.new_input(file).open() as stream:
        return int(pq.read_metadata(stream).num_rows)


LAKES: Mapping[str, Callable[[Path], Lake]] = {"delta": DeltaLake, "iceberg": IcebergLake}


def spec_of(
    lake: Lake,
    bindings: Sequence[Binding] = BINDINGS,
    schemas: Sequence[pa.Schema] = SCHEMAS,
    *,
    hard_delete: bool = True,
    backfill: int = 0,
    last: MaterializationSpec | None = None,
    make: Callable[[], Responder] | None = None,
) -> MaterializationSpec:
    """Return the spec of a materialization, validated and applied."""
    definition = Definition(
        NAME, "", Endpoint(lake.driver, dict(lake.config)), tuple(bindings), (),
        hard_delete=hard_delete, backfill=backfill,
    )  # fmt: skip
    resources = [{"table": b.target, "delta_updates": b.delta_updates} for b in bindings]
    delivered = [
        delivered_schema(b, s, hard_delete=hard_delete)
        for b, s in zip(bindings, schemas, strict=True)
    ]
    asked = to_validate(definition, resources, delivered)
    with closing((make or lake.make)()) as driver:
        stream = InProcess(driver)
        stream.send(asked)
        answer = stream.receive()
        assert isinstance(answer, m.Validated)
        spec = to_spec(definition, asked, answer)
        stream.send(m.Apply(spec, "v1", last_materialization=last))
        assert isinstance(stream.receive(), m.Applied)
    return spec


def read_table(lake: Lake, table: str, *columns: str) -> list[Row]:
    found = lake.rows(table)
    return sorted(zip(*(found[c].to_pylist() for c in columns), strict=True), key=repr)


def account_updates(bank: Bank, lower: int, upper: int) -> pa.Table:
    """Return the updates of the collection that has each account's balance."""
    rows: list[tuple[str, int | None, int, int]] = []
    for time in range(lower, upper):
        for account in ACCOUNTS:
            before, now = bank.balance(account, time), bank.balance(account, time + 1)
            if before != now:
                rows += [(account, before, time, -1)] if before is not None else []
                rows.append((account, now, time, 1))
    schema = updates_schema(ACCOUNT)
    columns = [[row[at] for row in rows] for at in range(len(schema))]
    return pa.table(columns, schema=schema)


def judge(lake: Lake, bank: Bank, upper: int) -> None:
    expected = {a: bank.balance(a, upper) for a in ACCOUNTS}
    stand = sorted((a, b) for a, b in expected.items() if b is not None)
    assert read_table(lake, "sums", "account", "amount") == stand
    assert read_table(lake, "accounts", "account", "balance") == stand
    log = [(b.account, b.seq, b.amount, b.balance) for b in bank.bookings if b.time < upper]
    assert read_table(lake, "log", "account", "seq", "amount", "balance") == sorted(log, key=repr)


class Session:
    """One session of the bank's delivery."""

    def __init__(
        self,
        lake: Lake,
        spec: MaterializationSpec,
        bank: Bank,
        log: SharedLog,
        stream: InProcess,
        key_range: KeyRange = FULL,
    ) -> None:
        self._lake, self._bank, self._range = lake, bank, key_range
        opened = log.opened(key_range)
        self.delivery = Delivery(stream, spec, "v1", key_range, opened, source=NAME)
        self._bound = [
            Bound(i, b, s.state_key, delivered_schema(b, schema, hard_delete=True))
            for i, (b, s, schema) in enumerate(zip(BINDINGS, spec.bindings, SCHEMAS, strict=True))
        ]

    @property
    def time(self) -> int:
        return 0 if self.delivery.position is None else self.delivery.position.time

    def settle(self) -> None:
        self.delivery.settle()
        judge(self._lake, self._bank, self.time)

    def deliver(self, upper: int) -> None:
        updates = self._bank.updates(self.time, upper)
        accounts = account_updates(self._bank, self.time, upper)
        combined = [
            bound.combined(table, upper, self._range)
            for bound, table in zip(self._bound, (updates, updates, accounts), strict=True)
        ]
        loads = [c.load(self.delivery.max_key(c.binding.state_key)) for c in combined]
        self.delivery.transact(
            Delivered(
                Position(upper),
                lambda loaded: [c.stores(loaded.get(c.binding.index, ())) for c in combined],
                tuple(load for load in loads if load is not None),
                tuple((c.binding.state_key, c.max_key) for c in combined if c.max_key),
            )
        )

    def to_the_end(self) -> None:
        self.settle()
        for upper in range(self.time + STEP, TIMES + 1, STEP):
            self.deliver(upper)
        self.delivery.end()


def run(lake: Lake, fault: str, event: int, make: Callable[[], Responder] | None = None) -> bool:
    """Run to the end over one fault; return whether it struck."""
    bank, log, spec, left = Bank(event), SharedLog(), spec_of(lake, make=make), [event]
    for _ in range(2):
        driver = (make or lake.make)()
        try:
            Session(lake, spec, bank, log, Faulty(driver, fault, left)).to_the_end()
            break
        except Crash:
            driver.close()
    judge(lake, bank, TIMES)
    assert not lake.left_behind()
    return left[0] < 0


def crash_on_acknowledge(message: m.Message) -> None:
    if isinstance(message, m.Acknowledge):
        raise Crash


def updates(schema: pa.Schema, *triples: tuple[Row, int, int]) -> pa.Table:
    columns: dict[str, list[Any]] = {
        name: [row[at] for row, _, _ in triples] for at, name in enumerate(schema.names)
    }
    columns |= {"__time": [t for _, t, _ in triples], "__diff": [d for _, _, d in triples]}
    return pa.table(columns, schema=updates_schema(schema))


SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
BINDING = Binding("orders", GlobalId(1), "target", ("k",))


def session_of(lake: Lake, spec: MaterializationSpec, log: Memory) -> Delivery:
    return Delivery(InProcess(lake.make()), spec, "v1", FULL, log, source=NAME)


def named_target(target: str) -> Binding:
    return msgspec.structs.replace(BINDING, target=target)
