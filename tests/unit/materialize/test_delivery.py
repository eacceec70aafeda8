"""Delivery through the protocol: exactly once, whichever event is the last before a crash.

A collection changes at random; a materialization delivers it into SQLite, in one shard or several.
The n-th message fails, for every n, and the endpoint is judged after every crash: the rows of each
key range are the view at the time that the range's checkpoint names. The judge reads the file.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pytest

from headwater.materialize.changes import NotUnique, NullKey, changes
from headwater.materialize.checkpoint import Position, from_checkpoint, from_text
from headwater.materialize.delivery import Delivery, Transaction
from headwater.materialize.drivers.fences import CannotJoin
from headwater.materialize.drivers.responder import NotServed, Responder
from headwater.materialize.drivers.sql import Fenced, KeyTaken
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.key_range import KeyHash, KeyRange, key_hash
from headwater.materialize.projections import collection_spec
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.machine import OutOfTurn
from headwater.materialize.protocol.specs import (
    BindingSpec,
    ConstraintType,
    FieldSelection,
    MaterializationSpec,
)
from headwater.materialize.recovery import RecoveryEntry
from headwater.materialize.transport.in_process import InProcess, Watch
from headwater.materialize.tuples import pack
from headwater.persist.evolution import updates_schema
from tests.seeds import seeds
from tests.simulation.planted_drivers import (
    CheckpointAfterData,
    CheckpointBeforeData,
    CommitsDuringStore,
    DropsADocument,
    SkipsTheFence,
)

pytestmark = pytest.mark.usefixtures("sqlite_without_fsync")

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("v", pa.string()),
        pa.field("n", pa.int64()),
    ]
)
NAME = "acme/sink"
TIMES = 12
FULL = KeyRange.full()
HALVES = FULL.split()


HASHES = {key: key_hash(pack((key,))) for key in range(6)}


class Crash(Exception):
    """The process is gone."""


class Source:
    """A collection with a history: at most one row per key at every time."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.updates: list[tuple[tuple[int, str, int], int, int]] = []
        rows: dict[int, tuple[int, str, int]] = {}
        for time in range(TIMES):
            for _ in range(random.randint(0, 4)):
                key = random.randint(0, 5)
                if key in rows:
                    self.updates.append((rows.pop(key), time, -1))
                if random.random() < 0.7:
                    rows[key] = (key, f"at {time}", random.randint(0, 9))
                    self.updates.append((rows[key], time, 1))

    def table(self, lower: int, upper: int) -> pa.Table:
        chosen = [u for u in self.updates if lower <= u[1] < upper]
        columns = {name: [row[at] for row, _, _ in chosen] for at, name in enumerate(SCHEMA.names)}
        columns |= {"__time": [u[1] for u in chosen], "__diff": [u[2] for u in chosen]}
        return pa.table(columns, schema=updates_schema(SCHEMA))

    def view(self, upper: int, key_range: KeyRange) -> list[tuple[int, str, int]]:
        counts: Counter[tuple[int, str, int]] = Counter()
        for row, time, diff in self.updates:
            if time < upper and key_range.owns(HASHES[row[0]]):
                counts[row] += diff
        assert all(count in (0, 1) for count in counts.values())
        return sorted(row for row, count in counts.items() if count)


class Memory:
    """A recovery log that survives crashes of the process."""

    def __init__(self) -> None:
        self.entry = RecoveryEntry()

    def commit(self, entry: RecoveryEntry, acknowledged: Position | None) -> None:
        assert acknowledged is None or entry.position is not None
        self.entry = entry


def _spec(path: Path) -> MaterializationSpec:
    binding = BindingSpec(
        resource_config_json=b'{"table":"target"}',
        resource_path=("target",),
        collection=collection_spec("orders", SCHEMA, ["k"]),
        field_selection=FieldSelection(keys=("k",), values=("n", "v")),
    )
    return MaterializationSpec(
        name=NAME, config_json=msgspec.json.encode({"path": str(path)}), bindings=(binding,)
    )


def _apply(path: Path) -> None:
    stream = InProcess(SqliteDriver())
    stream.send(m.Apply(_spec(path), "v1"))
    assert isinstance(stream.receive(), m.Applied)
    stream.end()


def _open(path: Path, key_range: KeyRange, driver: Responder, watch: Watch) -> Delivery:
    return Delivery(InProcess(driver, watch), _spec(path), "v1", key_range, Memory())


def _deliver(delivery: Delivery, source: Source, key_range: KeyRange, upper: int) -> None:
    lower = 0 if delivery.position is None else delivery.position.time
    stores = changes(0, ["k"], source.table(lower, upper), upper, key_range)
    delivery.transact(Transaction.of([stores], Position(upper)))


def _judge(path: Path, source: Source) -> None:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT k, v, n FROM target").fetchall()
        fences = db.execute(
            "SELECT key_begin, key_end, checkpoint FROM flow_checkpoints_v1 "
            "ORDER BY key_end - key_begin"
        ).fetchall()
    owned: set[int] = set()
    for begin, end, text in fences:
        key_range = KeyRange(KeyHash(begin), KeyHash(end))
        position = from_checkpoint(from_text(text), NAME)
        expected = source.view(0 if position is None else position.time, key_range)
        # A wider row owns what no narrower row does.
        mine = {key for key, found in HASHES.items() if key_range.owns(found)} - owned
        owned |= mine
        assert sorted(r for r in rows if r[0] in mine) == [r for r in expected if r[0] in mine]


def _failing_at(event: int) -> tuple[Watch, Iterator[int]]:
    count = iter(range(1_000_000))

    def watch(_: m.Message) -> None:
        if next(count) == event:
            raise Crash

    return watch, count


def _run_until_done(
    path: Path, source: Source, key_range: KeyRange, watch: Watch, driver: type[SqliteDriver]
) -> None:
    """Deliver everything, restarting after the crash; judge the endpoint then."""
    for _ in range(3):
        connector = driver()
        try:
            delivery = _open(path, key_range, connector, watch)
            start = 0 if delivery.position is None else delivery.position.time
            for upper in range(start + 4, TIMES + 1, 4):
                _deliver(delivery, source, key_range, upper)
            _judge(path, source)
            delivery.end()
            return
        except Crash:
            connector.close()
            _judge(path, source)
    raise AssertionError("it crashed more than once")


def _events(tmp_path: Path, source: Source) -> int:
    path = tmp_path / "counted.db"
    _apply(path)
    watch, count = _failing_at(-1)
    _run_until_done(path, source, FULL, watch, SqliteDriver)
    return next(count)


def _every_event(tmp_path: Path, driver: type[SqliteDriver], seed: int = 7) -> None:
    source = Source(seed)
    for event in range(_events(tmp_path, source)):
        path = tmp_path / f"{event}.db"
        _apply(path)
        watch, count = _failing_at(event)
        for key_range in HALVES:
            _run_until_done(path, source, key_range, watch, driver)
        assert next(count) > event, "the event never came"


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_the_nth_event_fails(tmp_path: Path, seed: int) -> None:
    _every_event(tmp_path, SqliteDriver, seed)


@pytest.mark.soak
@pytest.mark.parametrize(
    "defect", [CheckpointAfterData, CheckpointBeforeData, CommitsDuringStore, DropsADocument]
)
def test_planted_defects_are_caught(tmp_path: Path, defect: type[SqliteDriver]) -> None:
    with pytest.raises(AssertionError):
        _every_event(tmp_path, defect)


def _nothing(_: m.Message) -> None:
    return


def _zombie_thaws(path: Path, source: Source, driver: type[SqliteDriver]) -> bool:
    """A zombie stands at time 3 while another goes on to 7; return whether it was fenced."""
    _apply(path)
    zombie = _open(path, FULL, driver(), _nothing)
    _deliver(zombie, source, FULL, 3)
    owner = _open(path, FULL, driver(), _nothing)
    _deliver(owner, source, FULL, 7)
    fenced = False
    try:
        _deliver(zombie, source, FULL, 5)
    except Fenced:
        fenced = True
    _judge(path, source)
    with suppress(Fenced):
        _deliver(owner, source, FULL, TIMES)
    _judge(path, source)
    return fenced


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_a_zombie_changes_nothing(tmp_path: Path, seed: int) -> None:
    assert _zombie_thaws(tmp_path / "e.db", Source(seed), SqliteDriver)


def test_a_zombie_that_ignores_its_fence_is_seen(tmp_path: Path) -> None:
    try:
        fenced = _zombie_thaws(tmp_path / "e.db", Source(0), SkipsTheFence)
    except (AssertionError, KeyTaken):
        fenced = False
    assert not fenced


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_splits_and_joins_in_the_middle(tmp_path: Path, seed: int) -> None:
    path, source, random = tmp_path / "e.db", Source(seed), Random(seed)
    _apply(path)
    live = {FULL: _open(path, FULL, SqliteDriver(), _nothing)}
    for upper in range(1, TIMES + 1):
        for key_range, delivery in live.items():
            _deliver(delivery, source, key_range, upper)
        _judge(path, source)
        if random.random() < 0.5:  # All stand at one time: split one, or join all.
            if len(live) > 1 and random.random() < 0.5:
                parents = list(live.values())
                live = {FULL: _open(path, FULL, SqliteDriver(), _nothing)}
            else:
                chosen = random.choice(list(live))
                parents = [live.pop(chosen)]
                for half in chosen.split():
                    live[half] = _open(path, half, SqliteDriver(), _nothing)
            for parent in parents:
                with pytest.raises(Fenced):
                    _deliver(parent, source, FULL, upper)
            assert all(d.position == Position(upper) for d in live.values())
            _judge(path, source)


def test_a_join_of_ranges_at_different_times_is_refused(tmp_path: Path) -> None:
    path, source = tmp_path / "e.db", Source(1)
    _apply(path)
    for upper, half in enumerate(HALVES, 2):
        _deliver(_open(path, half, SqliteDriver(), _nothing), source, half, upper)
    with pytest.raises(CannotJoin):
        _open(path, FULL, SqliteDriver(), _nothing)
    _judge(path, source)


# Unary requests.


def test_spec_validate_and_apply(tmp_path: Path) -> None:
    path = tmp_path / "e.db"
    spec = _spec(path)
    stream = InProcess(SqliteDriver())
    stream.send(m.Spec())
    specified = stream.receive()
    assert isinstance(specified, m.Specified)
    assert specified.protocol == m.PROTOCOL
    assert msgspec.json.decode(specified.config_schema_json)["required"] == ["path"]

    nested = pa.schema([*SCHEMA, pa.field("l", pa.list_(pa.int64()))])
    wish = m.ValidateBinding(b'{"table":"target"}', collection_spec("orders", nested, ["k"]))
    stream.send(m.Validate(NAME, config_json=spec.config_json, bindings=(wish,)))
    validated = stream.receive()
    assert isinstance(validated, m.Validated)
    (binding,) = validated.bindings
    assert {name: constraint.type for name, constraint in binding.constraints} == {
        "k": ConstraintType.LOCATION_REQUIRED,
        "l": ConstraintType.FIELD_OPTIONAL,
        "n": ConstraintType.FIELD_OPTIONAL,
        "v": ConstraintType.FIELD_OPTIONAL,
    }
    assert (binding.resource_path, binding.holds_data) == (("target",), False)

    stream.send(m.Apply(spec, "v1", dry_run=True))
    would = stream.receive()
    assert isinstance(would, m.Applied)
    assert 'CREATE TABLE "target"' in would.action_description
    stream.send(m.Apply(spec, "v1"))
    assert stream.receive() == would  # A dry run had done nothing.
    stream.send(m.Apply(spec, "v1"))
    assert stream.receive() == m.Applied()
    stream.end()


def test_the_driver_says_what_it_does_not_serve(tmp_path: Path) -> None:
    path = tmp_path / "e.db"
    _apply(path)
    stream = InProcess(SqliteDriver())
    delivery = Delivery(stream, _spec(path), "v1", FULL, Memory())
    delivery.settle()
    with pytest.raises(NotServed, match="serves no Load"):
        stream.send(m.Load(0, key_packed=b"\x14"))


def test_the_transport_keeps_the_table() -> None:
    with pytest.raises(OutOfTurn):
        InProcess(SqliteDriver()).send(m.Flush())


# Changes.


def _updates(*triples: tuple[tuple[int | None, str, int], int, int]) -> pa.Table:
    columns = {name: [row[at] for row, _, _ in triples] for at, name in enumerate(SCHEMA.names)}
    columns |= {"__time": [t for _, t, _ in triples], "__diff": [d for _, _, d in triples]}
    schema = updates_schema(pa.schema([pa.field(f.name, f.type) for f in SCHEMA]))
    return pa.table(columns, schema=schema)


def test_the_net_change_of_an_interval() -> None:
    stores = changes(
        3,
        ["k"],
        _updates(
            ((2, "b", 0), 5, -1), ((2, "c", 0), 6, 1),  # updated
            ((-1, "x", 0), 5, 1), ((-1, "x", 0), 6, -1),  # came and went
            ((300, "gone", 0), 6, -1),
            ((1, "new", 0), 6, 1),
        ),
        7,
        FULL,
    )  # fmt: skip
    assert stores.binding == 3
    assert stores.rows.to_pylist() == [
        {"k": 1, "v": "new", "n": 0},
        {"k": 2, "v": "c", "n": 0},
        {"k": 300, "v": "gone", "n": 0},
    ]
    assert stores.keys_packed.to_pylist() == [pack((key,)) for key in (1, 2, 300)]
    assert stores.exists.to_pylist() == [False, True, True]
    assert stores.delete.to_pylist() == [False, False, True]


def test_keys_that_are_not_unique_or_null_are_named() -> None:
    with pytest.raises(NotUnique, match=r"\(1,\)"):
        changes(0, ["k"], _updates(((1, "a", 0), 5, 1), ((1, "b", 0), 5, 1)), 7, FULL)
    with pytest.raises(NotUnique, match=r"\(1,\)"):
        changes(0, ["k"], _updates(((1, "a", 0), 5, 2)), 7, FULL)
    with pytest.raises(NullKey, match="'k'"):
        changes(0, ["k"], _updates(((None, "a", 0), 5, 1)), 7, FULL)


def test_nothing_changed() -> None:
    stores = changes(0, ["k"], _updates(), 7, HALVES[0])
    assert stores.rows.num_rows == len(stores.exists) == len(stores.delete) == 0
