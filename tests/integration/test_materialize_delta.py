"""Delta Lake, exactly once: a fault at every message, sessions in each other's way, real tables.

The bank of the consistency suite is delivered by a ``sum`` binding, a log and the accounts as they
are. The judge reads the tables itself, with delta-rs alone: as soon as a session's driver has
acknowledged, they are the oracle's at the time of the recovery log's checkpoint.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from headwater.base.errors import Determinate, HeadwaterError, InvalidUsage
from headwater.base.ids import GlobalId
from headwater.materialize.changes import changes
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import Bound, by_key
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
from headwater.materialize.drivers.delta import STAGED, DeltaDriver, StagedWorkLost
from headwater.materialize.drivers.delta_staging import statistics_json
from headwater.materialize.drivers.delta_tables import Tables, Work
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.drivers.sql import KeyTaken
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.selection import FieldRefused
from headwater.materialize.splits import inherited
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.wire.framing import Codec
from headwater.persist.blob import open_blob
from headwater.persist.errors import Fenced
from headwater.persist.evolution import updates_schema
from headwater.testing.servers import S3Server
from tests.integration.materialize_places import Memory, OverTheWire
from tests.simulation.materialize_bank import ACCOUNTS, FULL, NAME, TIMES, Bank, SharedLog
from tests.simulation.materialize_bank import SCHEMA as BOOKINGS

pytestmark = pytest.mark.server

Row = tuple[Any, ...]
STEP = 2

SUMS = Binding("bank", GlobalId(1), "sums", ("account",), reduce=(("amount", "sum"),))
LOG = Binding("bank", GlobalId(1), "log", ("account", "seq"), delta_updates=True)
ACCOUNT = pa.schema([pa.field("account", pa.string(), nullable=False), ("balance", pa.int64())])
STANDS = Binding("accounts", GlobalId(2), "accounts", ("account",))
BINDINGS = (SUMS, LOG, STANDS)
SCHEMAS = (BOOKINGS, BOOKINGS, ACCOUNT)


def _spec(
    url: str,
    bindings: Sequence[Binding] = BINDINGS,
    schemas: Sequence[pa.Schema] = SCHEMAS,
    *,
    hard_delete: bool = True,
    backfill: int = 0,
    last: MaterializationSpec | None = None,
    make: Callable[[], Responder] = DeltaDriver,
) -> MaterializationSpec:
    """Return the spec of a materialization, validated and applied."""
    definition = Definition(
        NAME, "", Endpoint("delta", {"path": url}), tuple(bindings), (),
        hard_delete=hard_delete, backfill=backfill,
    )  # fmt: skip
    resources = [{"table": b.target, "delta_updates": b.delta_updates} for b in bindings]
    delivered = [
        delivered_schema(b, s, hard_delete=hard_delete)
        for b, s in zip(bindings, schemas, strict=True)
    ]
    asked = to_validate(definition, resources, delivered)
    with closing(make()) as driver:
        stream = InProcess(driver)
        stream.send(asked)
        answer = stream.receive()
        assert isinstance(answer, m.Validated)
        spec = to_spec(definition, asked, answer)
        stream.send(m.Apply(spec, "v1", last_materialization=last))
        assert isinstance(stream.receive(), m.Applied)
    return spec


def _read(url: str, table: str, *columns: str) -> list[Row]:
    found = pa.table(DeltaTable(f"{url}/{table}").scan(columns=list(columns)))
    return sorted(zip(*(found[c].to_pylist() for c in columns), strict=True), key=repr)


def _accounts(bank: Bank, lower: int, upper: int) -> pa.Table:
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


def _judge(url: str, bank: Bank, upper: int) -> None:
    expected = {a: bank.balance(a, upper) for a in ACCOUNTS}
    stand = sorted((a, b) for a, b in expected.items() if b is not None)
    assert _read(url, "sums", "account", "amount") == stand
    assert _read(url, "accounts", "account", "balance") == stand
    log = [(b.account, b.seq, b.amount, b.balance) for b in bank.bookings if b.time < upper]
    assert _read(url, "log", "account", "seq", "amount", "balance") == sorted(log, key=repr)


class Crash(Exception):
    """The process is gone."""


class Faulty(InProcess):
    """A stream in which the n-th event goes wrong."""

    def __init__(self, driver: Responder, fault: str, left: list[int]) -> None:
        super().__init__(driver, self._watched)
        self._fault, self._left = fault, left

    def _struck(self) -> bool:
        self._left[0] -= 1
        return self._left[0] == -1

    def _watched(self, message: m.Message) -> None:
        if self._fault == "lost reply" or not self._struck():
            return
        if self._fault == "crash":
            raise Crash
        if isinstance(message, m.Acknowledge):
            list(self._driver.respond(message))

    def receive(self) -> m.Response:
        response = super().receive()
        if self._fault == "lost reply" and self._struck():
            raise Crash
        return response


class Session:
    """One session of the bank's delivery."""

    def __init__(
        self,
        url: str,
        spec: MaterializationSpec,
        bank: Bank,
        log: SharedLog,
        stream: InProcess,
        key_range: KeyRange = FULL,
    ) -> None:
        self._url, self._bank, self._range = url, bank, key_range
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
        _judge(self._url, self._bank, self.time)

    def deliver(self, upper: int) -> None:
        updates = self._bank.updates(self.time, upper)
        accounts = _accounts(self._bank, self.time, upper)
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


def _run(url: str, fault: str, event: int, make: Callable[[], Responder] = DeltaDriver) -> bool:
    """Run to the end over one fault; return whether it struck."""
    bank, log, spec, left = Bank(event), SharedLog(), _spec(url, make=make), [event]
    for _ in range(2):
        driver = make()
        try:
            Session(url, spec, bank, log, Faulty(driver, fault, left)).to_the_end()
            break
        except Crash:
            driver.close()
    _judge(url, bank, TIMES)
    with closing(open_blob(url)) as blob:
        assert not list(blob.list(f"{STAGED}/"))
    return left[0] < 0


STRIDE = 13
"""Every so manieth event is struck each time; all of them in ``make soak``."""


@pytest.mark.parametrize("stride", [STRIDE, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("fault", ["crash", "lost reply", "replay"])
def test_every_event(tmp_path: Path, fault: str, stride: int) -> None:
    event = ["crash", "lost reply", "replay"].index(fault)
    while _run(str(tmp_path / str(event)), fault, event):
        event += stride
    assert event > 10


def test_in_a_bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # For the judge; the driver knows.
    # Between the commit in the recovery log and Acknowledge, and in the middle of the next one.
    assert _run("s3://headwater-test/delta", "crash", 14)


@pytest.mark.parametrize("codec", Codec)
def test_over_the_wire(tmp_path: Path, codec: Codec) -> None:
    assert _run(str(tmp_path), "crash", 14, lambda: OverTheWire(DeltaDriver(), codec))


@pytest.mark.parametrize("commits", [0, 1])
def test_a_zombie_applies_nothing_twice(tmp_path: Path, commits: int) -> None:
    """A session that froze between its commit and Acknowledge thaws after others went on."""
    url, bank, log = str(tmp_path), Bank(3), SharedLog()
    spec = _spec(url)
    frozen: list[m.Message] = []

    def freeze(message: m.Message) -> None:
        if isinstance(message, m.Acknowledge) and zombie.time == 2 * STEP:
            frozen.append(message)
            raise Crash

    driver = DeltaDriver()
    zombie = Session(url, spec, bank, log, InProcess(driver, freeze))
    zombie.deliver(STEP)
    with pytest.raises(Crash):
        zombie.deliver(2 * STEP)
    other = Session(url, spec, bank, log, InProcess(DeltaDriver()))
    other.settle()
    for upper in range(3 * STEP, (3 + commits) * STEP, STEP):
        other.deliver(upper)
        other.settle()
    (acknowledge,) = frozen
    assert isinstance(acknowledge, m.Acknowledge)
    list(driver.respond(acknowledge))
    _judge(url, bank, other.time)
    other.to_the_end()
    _judge(url, bank, TIMES)


@pytest.mark.parametrize("how", ["append", "merge", "file"])
def test_two_that_apply_the_same_work_at_once(tmp_path: Path, how: str) -> None:
    """Both have seen that it is not there yet: delta-rs lets one of them commit."""
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    DeltaTable.create(tmp_path / "t", schema)
    rows = pa.table({"k": [1, 2]})
    marked = rows.append_column("__headwater_delete", pa.array([False, False]))
    work = Work("t", ("k",), merge=how == "merge", app="a", version=0, owner="o", generation=0)
    if how == "file":
        pq.write_table(rows, tmp_path / "t" / "f.parquet")
        known = statistics_json(pq.read_metadata(tmp_path / "t" / "f.parquet"), schema)
        size = (tmp_path / "t" / "f.parquet").stat().st_size
        work = msgspec.structs.replace(work, added=known, size=size)

    def apply(tables: Tables) -> None:
        if how == "file":
            tables.add_file(work, "f.parquet")
        else:
            tables.apply(work, marked if work.merge else rows)

    class Beaten(Tables):
        """Another comes first, after it has looked."""

        def is_applied(self, work: Work) -> bool:
            found = super().is_applied(work)
            if not found:
                apply(Tables(str(tmp_path)))
            return found

    apply(Beaten(str(tmp_path)))
    assert _read(str(tmp_path), "t", "k") == [(1,), (2,)]


def test_a_backfill_empties_and_fences(tmp_path: Path) -> None:
    url, bank, log = str(tmp_path), Bank(5), SharedLog()
    spec = _spec(url)
    driver = DeltaDriver()
    zombie = Session(url, spec, bank, log, InProcess(driver))

    def freeze(message: m.Message) -> None:
        if isinstance(message, m.Acknowledge):
            raise Crash

    zombie.deliver(STEP)
    zombie.delivery.settle()
    zombie.delivery._stream._watch = freeze  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        zombie.deliver(2 * STEP)
    # What it has committed is not applied; everything is delivered anew, and then it thaws.
    anew = _spec(url, backfill=1, last=spec)
    assert _read(url, "log", "seq") == _read(url, "accounts", "account") == []
    list(driver.respond(m.Acknowledge()))
    assert _read(url, "log", "seq") == _read(url, "accounts", "account") == []
    entry = log.entries[FULL]
    log.entries[FULL] = msgspec.structs.replace(entry, position=None, max_keys=())
    Session(url, anew, bank, log, InProcess(DeltaDriver())).delivery.settle()
    Session(url, anew, bank, log, InProcess(DeltaDriver())).to_the_end()
    _judge(url, bank, TIMES)


def test_rows_that_somebody_removed_are_missed(tmp_path: Path) -> None:
    url, bank, log, spec = str(tmp_path), Bank(1), SharedLog(), _spec(str(tmp_path))
    driver = DeltaDriver()
    session = Session(url, spec, bank, log, InProcess(driver))
    session.deliver(STEP)
    session.delivery.settle()
    session.delivery._stream._watch = _crash_on_acknowledge  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        session.deliver(2 * STEP)
    with closing(open_blob(url)) as blob:
        for found in list(blob.list(f"{STAGED}/")):
            blob.delete(found.key)
    with pytest.raises(StagedWorkLost, match="somebody else removed it"):
        Session(url, spec, bank, log, InProcess(DeltaDriver())).settle()


def _crash_on_acknowledge(message: m.Message) -> None:
    if isinstance(message, m.Acknowledge):
        raise Crash


def test_shards_split_join_and_commit_at_once(tmp_path: Path) -> None:
    """What the parent has staged its children apply, once; and they write to one table at once."""
    url, bank, log = str(tmp_path), Bank(11), SharedLog()
    spec = _spec(url)
    parent = Session(url, spec, bank, log, InProcess(DeltaDriver()))
    parent.settle()
    parent.delivery._stream._watch = _crash_on_acknowledge  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        parent.deliver(STEP)
    halves = FULL.split()
    for half in halves:
        log.entries[half] = inherited({FULL: log.entries[FULL]}, half)

    def deliver(half: KeyRange) -> None:
        session = Session(url, spec, bank, log, InProcess(DeltaDriver()), half)
        for upper in range(2 * STEP, TIMES - STEP + 1, STEP):
            session.deliver(upper)
        session.delivery.end()

    with ThreadPoolExecutor(len(halves)) as pool:
        list(pool.map(deliver, halves))
    _judge(url, bank, TIMES - STEP)
    log.entries[FULL] = inherited({half: log.entries[half] for half in halves}, FULL)
    Session(url, spec, bank, log, InProcess(DeltaDriver())).to_the_end()
    _judge(url, bank, TIMES)


# ---- defects -------------------------------------------------------------------------------------


class AppliesAgain(Tables):
    """Does not ask the table before it commits."""

    def is_applied(self, work: Work) -> bool:
        self.newest(work.table)
        return False


class AppliesAtOnce(DeltaDriver):
    """Does not wait for the commit."""

    def _committed(self) -> Any:
        state = super()._committed()
        for file, work in self._states.get(self._range).staged.items():  # type: ignore[union-attr]
            content = self._place.get(file)
            assert content is not None
            self._apply(file, work)
            self._place.create(file, content)
        return state


class ForgetsWhatIsDue(DeltaDriver):
    """Takes what it finds staged for the work of a transaction that never committed."""

    def _open(self, request: m.Open) -> None:
        super()._open(replace(request, state_json=b""))


class DropsADocument(DeltaDriver):
    """Loses the last row of several."""

    def _store(self, request: m.StoreMany) -> None:
        kept = max(1, request.rows.num_rows - 1)
        super()._store(
            m.StoreMany(
                request.binding,
                request.keys_packed.slice(0, kept),
                request.rows.slice(0, kept),
                request.exists.slice(0, kept),
                request.delete.slice(0, kept),
            )
        )


class SecondMind(DeltaDriver):
    """Its tables do not ask."""

    def _connect(self, config_json: bytes) -> None:
        super()._connect(config_json)
        self._tables = AppliesAgain(msgspec.json.decode(config_json)["path"])


@pytest.mark.parametrize(
    ("defect", "fault"),
    [
        (SecondMind, "replay"),
        (AppliesAtOnce, "crash"),
        (ForgetsWhatIsDue, "crash"),
        (DropsADocument, "crash"),
    ],
)
def test_planted_defects_are_seen(tmp_path: Path, defect: type[DeltaDriver], fault: str) -> None:
    if defect is SecondMind:
        assert _doubles(tmp_path)
        return

    def seen() -> Iterator[bool]:
        for event in range(10, 60, 2):
            try:
                _run(str(tmp_path / str(event)), fault, event, defect)
                yield False
            except (AssertionError, HeadwaterError):
                yield True

    assert any(seen())


def _doubles(tmp_path: Path) -> bool:
    """Return whether a crash between the table's commit and the deletion of what was staged does
    harm to a driver that does not ask."""
    url, bank, log = str(tmp_path), Bank(3), SharedLog()
    spec = _spec(url)
    # Rows are appended here; a file is in its table once, also if it is added twice.
    DeltaTable(tmp_path / "log").alter.add_constraint({"counted": "seq > 0"})

    def lost(message: m.Message) -> None:
        if isinstance(message, m.Acknowledged):
            raise Crash

    driver = SecondMind()
    session = Session(url, spec, bank, log, InProcess(driver))
    session.settle()
    keep = driver._place.delete
    driver._place.delete = lambda key: True  # type: ignore[method-assign]
    session.delivery._stream._watch = lost  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        session.deliver(STEP)
    driver._place.delete = keep  # type: ignore[method-assign]
    try:
        Session(url, spec, bank, log, InProcess(SecondMind())).to_the_end()
    except AssertionError:
        return True
    return False


# ---- types, shapes, keys -------------------------------------------------------------------------

EVERYTHING = pa.schema(
    [
        pa.field("b", pa.bool_()),
        pa.field("i", pa.int64()),
        pa.field("f", pa.float64()),
        pa.field("d", pa.decimal128(20, 3)),
        pa.field("w", pa.decimal128(38, 0)),
        pa.field("s", pa.string()),
        pa.field("y", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("l", pa.list_(pa.int64())),
        pa.field('Odd"`é', pa.int64()),
    ]
)
MOMENT = dt.datetime(2026, 11, 15, 7, 8, 9, 120_000, tzinfo=dt.UTC)
VALUES: Row = (
    True, -(2**63), 0.1, Decimal("-12.340"), Decimal(10**37), "ü'\"\\\t\x01", b"\x00\xff",
    dt.date(1, 1, 1), MOMENT, MOMENT.replace(tzinfo=None), [1, None], 1,
)  # fmt: skip


def _updates(schema: pa.Schema, *triples: tuple[Row, int, int]) -> pa.Table:
    columns: dict[str, list[Any]] = {
        name: [row[at] for row, _, _ in triples] for at, name in enumerate(schema.names)
    }
    columns |= {"__time": [t for _, t, _ in triples], "__diff": [d for _, _, d in triples]}
    return pa.table(columns, schema=updates_schema(schema))


@pytest.mark.parametrize(
    ("key", "codec"),
    [
        *((key, None) for key in ("b", "i", "f", "d", "w", "s", "y", "day", "at", "local")),
        *((key, Codec.JSON) for key in ("d", "y", "at")),
    ],
)
def test_every_type_goes_there_and_comes_back(
    tmp_path: Path, key: str, codec: Codec | None
) -> None:
    binding = Binding("orders", GlobalId(1), "Target", (key,))
    spec = _spec(str(tmp_path), [binding], [EVERYTHING])
    bound = Bound(0, binding, "x", EVERYTHING)
    driver = DeltaDriver() if codec is None else OverTheWire(DeltaDriver(), codec)
    delivery = Delivery(InProcess(driver), spec, "v1", FULL, Memory(), source=NAME)
    nulls = tuple(VALUES[at] if name == key else None for at, name in enumerate(EVERYTHING.names))
    for number, row in enumerate((VALUES, nulls)):
        store = changes(0, [key], _updates(EVERYTHING, (row, 1, 1)), 2, FULL)
        store = replace(store, exists=pa.array([number > 0]))
        delivery.transact(Delivered.of([store], Position(2 + 2 * number)))
        loaded: list[m.Loaded | m.LoadedMany] = []

        def keep(found: Any, loaded: list[m.Loaded | m.LoadedMany] = loaded) -> list[m.StoreMany]:
            loaded += found.get(0, ())
            return []

        load = m.LoadMany(0, store.keys_packed)
        delivery.transact(Delivered(Position(3 + 2 * number), keep, (load,)))
        assert by_key(bound.loaded_rows(loaded)) == by_key(
            bound.loaded_rows([m.LoadedMany(0, store.rows)])
        )
    delivery.end()
    fields = msgspec.json.decode(DeltaTable(tmp_path / "Target").schema().to_json())["fields"]
    found = {field["name"]: field["type"] for field in fields}
    assert found == {
        "b": "boolean", "i": "long", "f": "double", "d": "decimal(20,3)", "w": "decimal(38,0)",
        "s": "string", "y": "binary", "day": "date", "at": "timestamp", "local": "timestamp_ntz",
        "l": "string", 'Odd"`é': "long",
    }  # fmt: skip


SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
BINDING = Binding("orders", GlobalId(1), "target", ("k",))


def _session(spec: MaterializationSpec, log: Memory) -> Delivery:
    return Delivery(InProcess(DeltaDriver()), spec, "v1", FULL, log, source=NAME)


def test_files_of_new_rows_are_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces: what is new alone becomes a file of the table, what is mixed is merged."""
    monkeypatch.setattr("headwater.materialize.delivery.ROWS_AT_ONCE", 3)
    url, log = str(tmp_path), Memory()
    delivery = _session(_spec(url, [BINDING], [SCHEMA]), log)
    story: list[list[tuple[Row, int, int]]] = [
        [((k, f"v{k}"), 1, 1) for k in range(8)],
        [*(((k, "n"), 2, 1) for k in range(-6, 0)), ((7, "v7"), 2, -1), ((7, "w"), 2, 1)],
    ]
    for upper, triples in enumerate(story, 2):
        store = changes(0, ["k"], _updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([store], Position(upper)))
        delivery.settle()
        files = [Path(file).name for file in DeltaTable(tmp_path / "target").file_uris()]
        if upper == 2:
            (only,) = files
            assert only.startswith("headwater-")
            actions = DeltaTable(tmp_path / "target").get_add_actions(flatten=True)
            (known,) = pa.table(actions).to_pylist()
            assert (known["num_records"], known["min.k"], known["max.k"]) == (8, 0, 7)
            assert (known["min.v"], known["null_count.v"]) == ("v0", 0)
    delivery.end()
    expected = [*((k, "n") for k in range(-6, 0)), *((k, f"v{k}") for k in range(7)), (7, "w")]
    assert sorted(_read(url, "target", "k", "v")) == expected


def test_a_table_that_is_not_plain_gets_rows_not_files(tmp_path: Path) -> None:
    url = str(tmp_path)
    DeltaTable.create(tmp_path / "target", SCHEMA, partition_by=["v"])
    constrained = DeltaTable.create(tmp_path / "t1", SCHEMA)
    constrained.alter.add_constraint({"positive": "k > 0"})
    for target in ("target", "t1", "Upper"):
        delivery = _session(_spec(url, [replace_target(target)], [SCHEMA]), Memory())
        store = changes(0, ["k"], _updates(SCHEMA, ((1, "a"), 1, 1)), 2, FULL)
        delivery.transact(Delivered.of([store], Position(2)))
        delivery.end()
        assert _read(url, target, "k", "v") == [(1, "a")]
        files = [Path(file).name for file in DeltaTable(tmp_path / target).file_uris()]
        assert not any(name.startswith("headwater-") for name in files)


def test_insert_update_delete(tmp_path: Path) -> None:
    url = str(tmp_path)
    delivery = _session(_spec(url, [BINDING], [SCHEMA]), Memory())
    story: list[list[tuple[Row, int, int]]] = [
        [((k, "old"), 1, 1) for k in (1, 2, 3)],
        [((1, "old"), 2, -1), ((1, "new"), 2, 1), ((2, "old"), 2, -1), ((4, "x"), 2, 1)],
        [((5, "only"), 3, 1)],
        [((5, "only"), 4, -1)],
    ]
    for upper, triples in enumerate(story, 2):
        store = changes(0, ["k"], _updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([store], Position(upper)))
    delivery.end()
    assert _read(url, "target", "k", "v") == [(1, "new"), (3, "old"), (4, "x")]


@pytest.mark.parametrize("hard_delete", [True, False])
def test_a_second_row_of_a_key_is_refused_before_it_commits(
    tmp_path: Path, *, hard_delete: bool
) -> None:
    url = str(tmp_path)
    delivered = delivered_schema(BINDING, SCHEMA, hard_delete=hard_delete)
    bound = Bound(0, BINDING, "x", delivered)
    spec, log = _spec(url, [BINDING], [SCHEMA], hard_delete=hard_delete), Memory()

    def transact(delivery: Delivery, upper: int, *triples: tuple[Row, int, int]) -> None:
        combined = bound.combined(_updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([combined.stores(())], Position(upper)))

    delivery = _session(spec, log)
    transact(delivery, 2, ((41, "a"), 1, 1), ((42, "a"), 1, 1))
    for more in ((), (((41, "a"), 2, -1), ((41, "b"), 2, 1))):
        with pytest.raises(KeyTaken, match="42"):
            transact(delivery, 3, ((42, "b"), 2, 1), *more)
        delivery = _session(spec, log)
        assert delivery.position == Position(2)
    # What was wrong is mended, and it goes on.
    transact(delivery, 4, ((42, "a"), 3, -1), ((42, "b"), 3, 1))
    transact(delivery, 5, ((42, "b"), 4, -1))
    transact(delivery, 6, ((42, "c"), 5, 1))
    delivery.end()
    assert _read(url, "target", "k", "v") == [(41, "a"), (42, "c")]


def test_soft_deletes_mark_and_revive(tmp_path: Path) -> None:
    url = str(tmp_path)
    spec = _spec(url, [BINDING], [SCHEMA], hard_delete=False)
    bound = Bound(0, BINDING, "x", delivered_schema(BINDING, SCHEMA, hard_delete=False))
    delivery = _session(spec, Memory())
    for upper, triples in enumerate(
        [[((1, "a"), 1, 1)], [((1, "a"), 2, -1)], [((1, "d"), 3, 1), ((2, "x"), 3, 1)]], 2
    ):
        combined = bound.combined(_updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([combined.stores(())], Position(upper)))
        delivery.settle()
        if upper == 3:
            assert _read(url, "target", "k", "v", "_meta/op") == [(1, "a", "d")]
    delivery.end()
    assert _read(url, "target", "k", "v", "_meta/op") == [(1, "d", "c"), (2, "x", "c")]


def test_new_columns_are_added_also_beside_staged_work(tmp_path: Path) -> None:
    url, log = str(tmp_path), Memory()
    spec = _spec(url, [BINDING], [SCHEMA])
    driver = DeltaDriver()
    delivery = Delivery(InProcess(driver), spec, "v1", FULL, log, source=NAME)
    delivery.settle()
    delivery._stream._watch = _crash_on_acknowledge  # type: ignore[attr-defined]
    store = changes(0, ["k"], _updates(SCHEMA, ((1, "a"), 1, 1)), 2, FULL)
    with pytest.raises(Crash):
        delivery.transact(Delivered.of([store], Position(2)))
    wider = pa.schema([*SCHEMA, pa.field("w", pa.float64())])
    delivery = _session(_spec(url, [BINDING], [wider]), log)
    store = changes(0, ["k"], _updates(wider, ((2, "b", 0.5), 2, 1)), 3, FULL)
    delivery.transact(Delivered.of([store], Position(3)))
    delivery.end()
    assert _read(url, "target", "k", "w") == [(1, None), (2, 0.5)]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([("k", pa.string()), ("v", pa.string())], "'k': the table's column is string, not long"),
        ([("k", pa.int64()), ("v", pa.date32())], "'v': the table's column is date, not string"),
        ([("k", pa.int64()), ("v", pa.list_(pa.string()))], "column is array, not string"),
        (
            [("k", pa.int64()), ("v", pa.string()), pa.field("z", pa.int64(), nullable=False)],
            "'z' is required",
        ),
    ],
)
def test_a_table_of_another_shape_is_refused_with_the_reason(
    tmp_path: Path, fields: list[Any], reason: str
) -> None:
    DeltaTable.create(tmp_path / "target", pa.schema(fields))
    with pytest.raises(FieldRefused, match=reason):
        _spec(str(tmp_path), [BINDING], [SCHEMA])


def test_decimals_must_fit(tmp_path: Path) -> None:
    for at, (precision, scale) in enumerate([(10, 2), (12, 3), (9, 2)]):
        existing = pa.schema([("k", pa.int64()), ("n", pa.decimal128(precision, scale))])
        DeltaTable.create(tmp_path / f"t{at}", existing)
    schema = pa.schema([("k", pa.int64()), ("n", pa.decimal128(10, 2))])
    for at in (0, 1):
        _spec(str(tmp_path), [replace_target(f"t{at}")], [schema])
    with pytest.raises(FieldRefused, match=r"decimal\(9,2\), not decimal\(10,2\)"):
        _spec(str(tmp_path), [replace_target("t2")], [schema])


def replace_target(target: str) -> Binding:
    return msgspec.structs.replace(BINDING, target=target)


def test_names_that_delta_cannot_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FieldRefused, match="no space"):
        _spec(str(tmp_path), [BINDING], [pa.schema([*SCHEMA, ("a b", pa.int64())])])
    for target in ("../out", "a b", "_staged/x", ""):
        with pytest.raises(InvalidUsage):
            _spec(str(tmp_path), [replace_target(target)], [SCHEMA])
    assert not (tmp_path.parent / "out").exists()


def test_a_value_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    url, log = str(tmp_path), Memory()
    spec = _spec(url, [BINDING], [SCHEMA])
    delivery = _session(spec, log)
    huge = pa.table({"k": pa.array([2**63], pa.uint64()), "v": ["b"]})
    no = pa.array([False])
    store = m.StoreMany(0, pa.array([b"\x16\x01"], pa.large_binary()), huge, no, no)
    with pytest.raises(Determinate, match="'k' has a value that is no int64"):
        delivery.transact(Delivered.of([store], Position(3)))
    delivery = _session(spec, log)
    assert delivery.position is None
    delivery.end()
    assert _read(url, "target", "k") == []


def test_a_place_that_is_away_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(HeadwaterError, match="file"):
        _spec(str(tmp_path / "file"), [BINDING], [SCHEMA])
    spec = _spec(str(tmp_path / "there"), [BINDING], [SCHEMA])
    delivery = _session(spec, Memory())
    for found in sorted((tmp_path / "there" / "target").rglob("*"), reverse=True):
        with suppress(OSError):
            found.unlink() if found.is_file() else found.rmdir()
    (tmp_path / "there" / "target").rmdir()
    store = changes(0, ["k"], _updates(SCHEMA, ((1, "a"), 1, 1)), 2, FULL)
    with pytest.raises(HeadwaterError, match="target"):
        delivery.transact(Delivered.of([store], Position(2)))


def test_others_may_write_and_our_marks_stay(tmp_path: Path) -> None:
    """Compaction by somebody else between two transactions is not in the way."""
    url, log = str(tmp_path), Memory()
    delivery = _session(_spec(url, [BINDING], [SCHEMA]), log)
    for upper in range(2, 6):
        store = changes(0, ["k"], _updates(SCHEMA, ((upper, "a"), upper - 1, 1)), upper, FULL)
        delivery.transact(Delivered.of([store], Position(upper)))
        delivery.settle()
        other = DeltaTable(tmp_path / "target")
        other.optimize.compact()
        mark = CommitProperties(app_transactions=[Transaction("somebody else", upper)])
        nothing = pa.schema(other.schema()).empty_table()
        write_deltalake(other, nothing, mode="append", commit_properties=mark)
    delivery.end()
    assert [row[0] for row in _read(url, "target", "k")] == [2, 3, 4, 5]


def test_a_session_that_was_replaced_commits_nothing(tmp_path: Path) -> None:
    url, bank, log = str(tmp_path), Bank(7), SharedLog()
    spec = _spec(url)
    zombie = Session(url, spec, bank, log, InProcess(DeltaDriver()))
    zombie.deliver(STEP)
    owner = Session(url, spec, bank, log, InProcess(DeltaDriver()))
    owner.settle()
    owner.deliver(2 * STEP)
    with pytest.raises(Fenced):
        zombie.deliver(STEP + 1)
    owner.to_the_end()
    _judge(url, bank, TIMES)
