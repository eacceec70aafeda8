"""Delivery into SQLite: exactly once, whatever is killed between which two effects."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headwater.collection.collections import Collections
from headwater.materialize.combine import KeyNotUnique, combine
from headwater.materialize.controller import Materializations
from headwater.materialize.drivers.driver import BindingSpec, Delta, FencedOut
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.persist.client import Client, ReadHandle, WriteHandle, open_location
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema
from tests.seeds import seeds

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
BINDING = BindingSpec("b", "target", SCHEMA, ("k",))
WAIT_SECONDS = 30.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


def _rows(path: Path, table: str = "target") -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return sorted(db.execute(f"SELECT k, v FROM {table}").fetchall(), key=repr)


def _updates(*triples: tuple[tuple[int | None, str], int, int]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([row[0] for row, _, _ in triples], pa.int64()),
            "v": pa.array([row[1] for row, _, _ in triples], pa.string()),
            "__time": pa.array([time for _, time, _ in triples], pa.int64()),
            "__diff": pa.array([diff for _, _, diff in triples], pa.int64()),
        },
        schema=updates_schema(SCHEMA),
    )


def test_the_net_change_of_an_interval() -> None:
    delta = combine(
        BINDING,
        _updates(
            ((1, "a"), 5, -1), ((1, "b"), 5, 1),  # updated
            ((2, "x"), 5, 1), ((2, "x"), 6, -1),  # came and went
            ((3, "y"), 6, -1),  # gone
            ((None, "n"), 6, 1),
        ),
        7,
    )  # fmt: skip
    assert sorted(delta.put.to_pylist(), key=repr) == [{"k": 1, "v": "b"}, {"k": None, "v": "n"}]
    assert delta.removed.to_pylist() == [{"k": 3}]


def test_two_rows_of_one_key_are_refused() -> None:
    with pytest.raises(KeyNotUnique, match="must be unique"):
        combine(BINDING, _updates(((1, "a"), 5, 1), ((1, "b"), 5, 1)), 7)
    with pytest.raises(KeyNotUnique):
        combine(BINDING, _updates(((1, "a"), 5, 2)), 7)


def test_a_zombie_is_fenced_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "e.db"
    zombie, owner = SqliteDriver(path), SqliteDriver(path)
    assert zombie.open("m", (BINDING,)) is None
    put = pa.table({"k": [1], "v": ["zombie"]}, schema=SCHEMA)
    nothing = SCHEMA.empty_table().select(["k"])
    assert owner.open("m", (BINDING,)) is None
    with pytest.raises(FencedOut, match="nothing was written"):
        zombie.commit((Delta(BINDING, nothing, put),), 9)
    assert _rows(path) == []
    owner.commit((Delta(BINDING, nothing, put),), 9)
    assert _rows(path) == [(1, "zombie")]
    zombie.close()
    owner.close()


class _Crash(Exception):
    """The process is gone."""


class _CrashingDriver:
    """Dies before or after its n-th commit."""

    def __init__(self, inner: SqliteDriver, dies_at: int, *, after: bool) -> None:
        self._inner, self._left, self._after = inner, dies_at, after

    def open(self, name: str, bindings: tuple[BindingSpec, ...]) -> int | None:
        return self._inner.open(name, bindings)

    def commit(self, deltas: tuple[Delta, ...], checkpoint: int) -> None:
        self._left -= 1
        if self._left <= 0 and not self._after:
            raise _Crash
        self._inner.commit(deltas, checkpoint)
        if self._left <= 0:
            raise _Crash

    def close(self) -> None:
        self._inner.close()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("seed", seeds(3, 60))
def test_delivery_is_exactly_once_over_crashes(
    client: Client, tmp_path: Path, seed: int, *, after: bool
) -> None:
    """Random updates; the deliverer dies at every second commit, before it or after it."""
    print(f"seed {seed}")
    random = Random(seed)
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    collections = Collections(client)
    hold = collections.acquire_read(read.id, purpose="test")
    model: dict[int, str] = {}
    for time in range(1, 25):
        updates = []
        for k in random.sample(range(6), random.randint(0, 3)):
            if k in model:
                updates.append(((k, model.pop(k)), time, -1))
            if random.random() < 0.7:
                model[k] = f"{time}.{k}"
                updates.append(((k, model[k]), time, 1))
        write.compare_and_append(_updates(*updates), write.upper, time + 1).result()
        driver = _CrashingDriver(SqliteDriver(endpoint), random.randint(1, 2), after=after)
        _deliver_until_crash(client, driver, read, hold)
    _deliver(client, SqliteDriver(endpoint), read, hold)
    assert _rows(endpoint) == sorted(model.items(), key=repr)


def _deliver(client: Client, driver: object, read: ReadHandle, hold: object) -> None:
    from headwater.materialize.runtime import Materialization

    running = Materialization("m", client, driver, ((BINDING, hold),))  # type: ignore[arg-type]
    running.checkpoint = driver.open("m", (BINDING,))  # type: ignore[attr-defined]
    try:
        target = read.upper.only()
        while running.checkpoint is None or running.checkpoint < target:
            running._deliver()
    finally:
        driver.close()  # type: ignore[attr-defined]


def _deliver_until_crash(
    client: Client, driver: _CrashingDriver, read: ReadHandle, hold: object
) -> None:
    try:
        _deliver(client, driver, read, hold)
    except _Crash:
        return


def _eventually(condition: object) -> None:
    from time import monotonic, sleep

    assert callable(condition)
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, "it never came"
        sleep(0.02)


def test_it_runs_stops_resumes_and_is_dropped(tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    with open_location(tmp_path / "data") as client:
        write, read = client.create_or_load("c", SCHEMA, key=("k",))
        write.compare_and_append(_updates(((1, "a"), 1, 1)), 0, 2).result()
        running = Materializations(client)
        running.create("m", endpoint, (("c", read.id, "target", ("k",)),))
        _eventually(lambda: endpoint.exists() and _rows_or_none(endpoint) == [(1, "a")])
        running.stop()
        write.compare_and_append(_updates(((1, "a"), 2, -1), ((1, "b"), 2, 1)), 2, 3).result()
    with open_location(tmp_path / "data") as client:
        running = Materializations(client)
        running.start()
        _eventually(lambda: _rows_or_none(endpoint) == [(1, "b")])
        running.drop("m")
        assert not [key for key in client.core.state.items if key.startswith("materialization/")]
        (collection,) = client.core.state.collections.values()
        assert list(collection.readers) == ["owner"]


def _rows_or_none(endpoint: Path) -> list[tuple[object, ...]] | None:
    try:
        return _rows(endpoint)
    except sqlite3.OperationalError:
        return None


def test_errors_stop_a_delivery_until_they_are_retracted(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client)
    running.create("m", endpoint, (("c", read.id, "target", ("k",)),))
    failed = pa.table(
        {"condition": ["X"], "message": ["division by zero"], "context": [None],
         "__time": [1], "__diff": [1]},
        schema=updates_schema(ERROR_SCHEMA),
    )  # fmt: skip
    _append(write, _updates(((1, "a"), 1, 1)), 0, 2, failed)
    materialization = running.get("m")
    assert materialization is not None
    _eventually(lambda: "division by zero" in materialization.error)
    assert _rows_or_none(endpoint) in (None, [])
    mended = failed.set_column(3, "__time", pa.array([2], pa.int64())).set_column(
        4, "__diff", pa.array([-1], pa.int64())
    )
    _append(write, _updates(((2, "b"), 2, 1)), 2, 3, mended.cast(updates_schema(ERROR_SCHEMA)))
    _eventually(lambda: _rows_or_none(endpoint) == [(1, "a"), (2, "b")])
    running.stop()


def _append(write: WriteHandle, ok: pa.Table, lower: int, upper: int, errors: pa.Table) -> None:
    write.compare_and_append(ok, lower, upper, errors=errors).result()
