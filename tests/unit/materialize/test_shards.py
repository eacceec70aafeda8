"""Shards of one materialization: they meet, are split and joined, and keep to their own keys.

The judge reads the endpoint alone: each key stands at the checkpoint of the narrowest range that
owns it, and its row is that of the view just before. It looks at every moment at which something
was committed, in one transaction, while the shards go on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.materialize import first, gather, runtime
from headwater.materialize.agreement import Agreement, BeginAnew, NotReady
from headwater.materialize.checkpoint import Position, from_checkpoint, from_text
from headwater.materialize.combine import Bound
from headwater.materialize.controller import PREFIX, Materializations
from headwater.materialize.definition import Binding, Definition, Endpoint
from headwater.materialize.drivers import registry
from headwater.materialize.drivers.registry import DRIVERS, NotSharded, check_shards
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.key_range import InvalidShards, KeyHash, KeyRange, key_hash, tiles
from headwater.materialize.protocol import messages as m
from headwater.materialize.recovery import RecoveryEntry, item_key
from headwater.materialize.shards import Materialization
from headwater.materialize.splits import NotDrained, inherited, next_shards, reshape, shards_of
from headwater.materialize.status import State
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.tuples import pack
from headwater.persist.client import Client, ReadHandle, WriteHandle, open_location
from headwater.persist.evolution import updates_schema
from tests.seeds import seeds

pytestmark = pytest.mark.usefixtures("sqlite_without_fsync")

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
WAIT_SECONDS = 60.0
FULL = KeyRange.full()
LOW, HIGH = FULL.split()
KEYS = range(12)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


# ---- what is decided purely ----------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 64])
def test_ranges_of_shards_tile(shards: int) -> None:
    ranges = KeyRange.tiling(shards)
    assert len(ranges) == shards
    assert tiles(ranges)
    assert list(ranges) == sorted(ranges)


def test_numbers_of_shards() -> None:
    for wrong in (0, -1, 65):
        with pytest.raises(InvalidShards, match="1 to 64"):
            KeyRange.tiling(wrong)
    assert [next_shards(*pair) for pair in ((1, 3), (3, 1), (2, 6), (3, 2))] == [3, 1, 6, 1]


def test_shards_meet_at_the_newest_target() -> None:
    agreed = Agreement((LOW, HIGH))
    agreed.stands(LOW, None)
    assert agreed.propose(reached=0, target=5)
    agreed.stands(HIGH, Position(3))
    assert agreed.next_target(3) == 5
    assert not agreed.propose(reached=3, target=9), "one goes where the other is"
    agreed.stands(LOW, Position(5))
    assert not agreed.aligned
    agreed.stands(HIGH, Position(5))
    assert agreed.aligned
    assert agreed.next_target(5) is None
    assert agreed.propose(reached=7, target=9), "times without changes lie between"


def test_a_closed_agreement_ends_where_all_stand() -> None:
    agreed = Agreement((LOW, HIGH))
    agreed.stands(LOW, Position(5))
    agreed.close()
    assert not agreed.is_done(LOW, 5), "the other may stand later"
    agreed.stands(HIGH, Position(7))
    assert not agreed.propose(reached=7, target=9)
    assert agreed.is_done(HIGH, 7)
    assert not agreed.is_done(LOW, 6)
    with pytest.raises(BeginAnew):
        agreed.is_done(LOW, 8)
    agreed.stands(LOW, Position(7))
    assert agreed.is_done(LOW, 8)


def test_only_the_first_shard_applies_and_the_others_wait() -> None:
    agreed = Agreement((LOW, HIGH))
    assert [agreed.applies(each) for each in (LOW, HIGH)] == [True, False]
    agreed.applied("v1")
    with pytest.raises(NotReady):
        agreed.wait_applied("v2", seconds=0.01)
    agreed.wait_applied("v1", seconds=0)


def test_holds_follow_the_last_shard() -> None:
    agreed = Agreement((LOW, HIGH))
    assert agreed.oldest(LOW, 5) is None, "nothing is known of the other"
    assert agreed.oldest(HIGH, 3) is None, "one moves them"
    assert agreed.oldest(LOW, 6) == 3


def test_what_a_range_inherits() -> None:
    entries = {
        LOW: RecoveryEntry(Position(5), b'{"a":{"n":1}}', (("x", b"1"), ("y", b"1")), b"s", "v"),
        HIGH: RecoveryEntry(Position(5), b'{"b":{"n":2}}', (("x", b"2"),), b"s", "v"),
    }
    joined = inherited(entries, FULL)
    assert joined.position == Position(5)
    assert msgspec.json.decode(joined.state_json) == {"a": {"n": 1}, "b": {"n": 2}}
    assert joined.max_keys == (("x", b"2"),), "of y one knows nothing, so all must be loaded"
    assert inherited({FULL: joined}, LOW) == joined
    with pytest.raises(NotDrained, match="drain them first"):
        inherited({**entries, HIGH: RecoveryEntry(Position(6))}, FULL)


def test_a_split_in_the_log_leaves_nothing_behind(client: Client) -> None:
    reshape(client.core, "m", 4)
    assert shards_of(client.core, "m") == 4
    reshape(client.core, "m", 1)
    left = {key for key in client.core.state.items if "/m/" in key}
    assert left == {item_key("m", FULL), "materialization-shard/m/shards"}


def test_what_takes_no_key_ranges_has_one_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {**DRIVERS, "sqlite": replace(DRIVERS["sqlite"], sharded=False)}
    monkeypatch.setattr(registry, "DRIVERS", alone)
    check_shards("sqlite", 1)
    with pytest.raises(NotSharded, match="SQLITE has one shard"):
        check_shards("sqlite", 2)
    check_shards("connector", 2)


# ---- at work -------------------------------------------------------------------------------------


class Place:
    """A collection with a history, its endpoint, and the judge."""

    def __init__(self, client: Client, path: Path, seed: int) -> None:
        self.client, self.path = client, path
        self.write: WriteHandle
        self.read: ReadHandle
        self.write, self.read = client.create_or_load("c", SCHEMA, key=("k",))
        self.views: dict[int, dict[int, str]] = {0: {}}
        """The view before each time."""
        self._random = Random(seed)
        self._time = 0

    def change(self) -> int:
        """Write one more time; return the upper after it."""
        view = dict(self.views[self._time])
        updates: list[tuple[int, str, int]] = []
        for k in self._random.sample(KEYS, self._random.randint(1, 4)):
            if k in view:
                updates.append((k, view.pop(k), -1))
            if not updates or self._random.random() < 0.7:
                view[k] = f"{self._time}.{k}"
                updates.append((k, view[k], 1))
        columns: dict[str, list[Any]] = {
            "k": [k for k, _, _ in updates],
            "v": [v for _, v, _ in updates],
            "__time": [self._time] * len(updates),
            "__diff": [diff for _, _, diff in updates],
        }
        table = pa.table(columns, schema=updates_schema(SCHEMA))
        self.write.compare_and_append(table, self._time, self._time + 1).result()
        self._time += 1
        self.views[self._time] = view
        return self._time

    def judge(self) -> dict[KeyRange, int]:
        """Compare the endpoint with the view; return where each range stands."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            db.execute("BEGIN")
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone():
                return {}
            rows = dict(db.execute('SELECT k, v FROM "rows"').fetchall())
            fences = db.execute("SELECT key_begin, key_end, checkpoint FROM flow_checkpoints_v1")
            standing = {
                KeyRange(KeyHash(begin), KeyHash(end)): _time(text)
                for begin, end, text in fences.fetchall()
            }
        for k in KEYS:
            owners = [each for each in standing if each.owns(key_hash(pack((k,))))]
            at = standing[min(owners, key=lambda each: each.end - each.begin)] if owners else 0
            assert rows.get(k) == self.views[at].get(k), f"key {k} at {at}"
        return standing

    def stands_at(self, time: int) -> bool:
        standing = self.judge()
        narrow = [r for r in standing if not any(r.covers(o) and o != r for o in standing)]
        return tiles(narrow) and {standing[each] for each in narrow} == {time}


def _time(text: str) -> int:
    checkpoint = from_text(text)
    if not checkpoint.sources:
        return 0
    position = from_checkpoint(checkpoint, checkpoint.sources[0][0].split("/", 1)[1])
    assert position is not None
    return position.time


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, "it never came"
        sleep(0.01)


def _installed(place: Place, shards: int) -> tuple[Materializations, Materialization]:
    running = Materializations(place.client, retry_seconds=0.02)
    binding = Binding("c", place.read.id, "rows", ("k",))
    running.install("m", Endpoint("sqlite", {"path": str(place.path)}), (binding,), shards=shards)
    found = running.get("m")
    assert found is not None
    return running, found


def test_two_shards_stand_together_when_nothing_changes(client: Client, tmp_path: Path) -> None:
    place = Place(client, tmp_path / "e.db", 1)
    running, found = _installed(place, 2)
    for _ in range(4):
        upper = place.change()
        _eventually(lambda upper=upper: place.stands_at(upper))  # type: ignore[misc]
    # The endpoint may show a transaction before its status does.
    _eventually(lambda: (found.status.aligned, found.status.checkpoint) == (True, upper))
    assert found.status.shards == 2
    assert all(shard.status.rows_stored for shard in found.shards), "each has its own keys"
    running.stop()
    assert found.status.state is State.STOPPED


def test_a_time_at_which_nothing_changes_is_no_target(client: Client, tmp_path: Path) -> None:
    place = Place(client, tmp_path / "e.db", 1)
    running, found = _installed(place, 2)
    upper = place.change()
    _eventually(lambda: place.stands_at(upper))
    _eventually(lambda: found.status.reached == upper)
    empty = updates_schema(SCHEMA).empty_table()
    before = client.core.state.seqno
    place.write.compare_and_append(empty, upper, upper + 3).result()
    _eventually(lambda: found.status.reached == upper + 3)
    assert client.core.state.seqno == before + 1
    running.stop()


def test_splits_and_joins_while_it_goes_on(client: Client, tmp_path: Path) -> None:
    place = Place(client, tmp_path / "e.db", 2)
    running, found = _installed(place, 1)
    place.change()
    for shards in (2, 4, 3, 1):
        running.reshape("m", shards)
        for _ in range(2):
            upper = place.change()
            place.judge()
        _eventually(lambda shards=shards: shards_of(client.core, "m") == shards)  # type: ignore[misc]
        _eventually(lambda upper=upper: place.stands_at(upper))  # type: ignore[misc]
        assert len(found.shards) == shards
    running.stop()
    assert found.status.transactions > 5, "what former shards did counts"


def test_a_stalled_shard_is_not_joined(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(client, tmp_path / "e.db", 3)
    running, found = _installed(place, 2)
    first = place.change()
    _eventually(lambda: place.stands_at(first))
    high = found.shards[1]
    commit = SqliteDriver._commit

    def refusing(self: SqliteDriver, checkpoint: Any) -> None:
        if self._row is not None and self._row.key_range == high.key_range:
            raise sqlite3.OperationalError("the disk is on fire")
        commit(self, checkpoint)

    with monkeypatch.context() as patched:
        patched.setattr(SqliteDriver, "_commit", refusing)
        upper = place.change()
        _eventually(lambda: found.status.state is State.STALLED)
        running.reshape("m", 1)
        _eventually(lambda: not found.shards[0].running or found.shards[0].status.reached == upper)
        assert shards_of(client.core, "m") == 2
        place.judge()
    _eventually(lambda: shards_of(client.core, "m") == 1)
    _eventually(lambda: place.stands_at(upper))
    running.stop()


class Crash(Exception):
    """The process is gone."""


class Failing(InProcess):
    """Breaks at a message, now and then."""

    def __init__(self, driver: Responder, random: Random) -> None:
        super().__init__(driver, self._count)
        self._left = random.randint(8, 60)

    def _count(self, _: m.Message) -> None:
        self._left -= 1
        if self._left == 0:
            raise Crash


@pytest.mark.parametrize("seed", seeds(1, 30))
def test_crashes_splits_and_joins_in_any_order(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams break at any message; the whole runtime is stopped and started in between."""
    print(f"seed {seed}")
    random = Random(seed)
    monkeypatch.setattr(runtime, "open_stream", lambda definition: Failing(SqliteDriver(), random))
    monkeypatch.setattr(runtime.LOG, "exception", lambda *_: None)
    with open_location(tmp_path / "data") as client:
        place = Place(client, tmp_path / "e.db", seed)
        running = Materializations(client, retry_seconds=0.01)
        binding = Binding("c", place.read.id, "rows", ("k",))
        into = Endpoint("sqlite", {"path": str(place.path)})
        with monkeypatch.context() as patched:
            patched.setattr(runtime, "open_stream", lambda definition: InProcess(SqliteDriver()))
            running.install("m", into, (binding,), shards=random.choice((1, 2)))
        upper, wanted = 0, shards_of(client.core, "m")
        for _ in range(8):
            for _ in range(random.randint(1, 3)):
                upper = place.change()
                place.judge()
            if random.random() < 0.5:
                wanted = random.choice((1, 2, 3, 4))
                running.reshape("m", wanted)
            if random.random() < 0.2:
                running.stop()
                place.judge()
                running.start()
        _eventually(lambda: shards_of(client.core, "m") == wanted and place.stands_at(upper))
        running.stop()
        definition = msgspec.json.decode(client.core.state.items[PREFIX + "m"], type=Definition)
        assert definition.shards == wanted


def test_a_driver_that_ignores_key_ranges_is_seen(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shard fences the other off, or takes the other's checkpoint for its own."""
    install = SqliteDriver._install
    monkeypatch.setattr(SqliteDriver, "_install", lambda self, name, _: install(self, name, FULL))
    place = Place(client, tmp_path / "e.db", 5)
    running, found = _installed(place, 2)

    def seen() -> bool:
        place.change()
        try:
            place.judge()
        except AssertionError:
            return True
        return found.status.state is State.FENCED

    _eventually(seen)
    running.stop()


def test_shards_that_ignore_their_ranges_are_seen(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(client, tmp_path / "e.db", 4)
    ordered = Bound.ordered
    monkeypatch.setattr(
        Bound, "ordered", lambda self, updates, upper, _: ordered(self, updates, upper, FULL)
    )
    for module in (first, gather):
        monkeypatch.setattr(module, "owned", lambda updates, *_: updates)
    running, found = _installed(place, 2)
    seen = False
    for _ in range(5):
        upper = place.change()
        try:
            _eventually(lambda upper=upper: _stalled(found) or place.stands_at(upper))  # type: ignore[misc]
        except AssertionError:
            seen = True
        seen = seen or _stalled(found)
        if seen:
            break
    running.stop()
    assert seen


def _stalled(found: Materialization) -> bool:
    return any(shard.status.error for shard in found.shards)
