"""Settings of materializations: how often they commit, how much at once, and documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from headwater.base.errors import InvalidUsage
from headwater.collection.collections import Collections
from headwater.materialize.controller import Materializations
from headwater.materialize.definition import (
    CONNECTOR,
    Binding,
    Definition,
    DocumentTaken,
    Endpoint,
    delivered_schema,
    to_validate,
)
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.feed import Feed
from headwater.materialize.key_range import KeyRange
from headwater.materialize.options import InvalidOption, read_binding_settings, read_settings
from headwater.materialize.pace import Pace, Tuning
from headwater.materialize.runtime import Session
from headwater.materialize.status import Status
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.evolution import updates_schema

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


def _append(write: WriteHandle, time: int, *changes: tuple[int, str, int]) -> None:
    columns = [list(column) for column in zip(*changes, strict=True)] or [[], [], []]
    keys, values, diffs = columns
    table = {"k": keys, "v": values, "__time": [time] * len(keys), "__diff": diffs}
    updates = pa.table(table, schema=updates_schema(SCHEMA))
    write.compare_and_append(updates, write.upper, time + 1).result()


def test_a_shard_rests_between_commits() -> None:
    now = [100.0]
    pace = Pace(Tuning(min_duration_ms=2_500), lambda: now[0])
    assert pace.rest_s == 0
    pace.committed()
    assert pace.rest_s == 2.5
    now[0] += 2
    assert pace.rest_s == 0.5
    now[0] += 2
    assert pace.rest_s == 0
    pace = Pace(Tuning(), lambda: now[0])
    pace.committed()
    assert pace.rest_s == 0


def test_what_has_waited_for_long_is_delivered_in_several(client: Client) -> None:
    write, read = client.create_or_load("c", SCHEMA)
    _append(write, 0, (0, "first", 1))
    capability = Collections(client).acquire_read(read.id)
    feed = Feed(client, [("c", capability)], None)
    assert feed.wait(0) == 1
    feed.first_delivered()
    for time in (1_000, 1_050, 2_000, 5_000):
        _append(write, time, (time, "x", 1))
    targets, taken = [], []
    while (target := feed.wait(0)) is not None:
        targets.append(feed.within(target, 100))
        (interval,) = feed.take(targets[-1])
        taken.append([k for t in interval.updates() for k in t["k"].to_pylist()])
    # Times at which nothing changes are skipped; the last target is where the collection is.
    assert taken == [[1_000, 1_050], [2_000], [5_000]]
    assert targets == [1_100, 2_100, 5_001]
    feed.close()


def test_a_materialization_is_tuned(client: Client, tmp_path: Path) -> None:
    _, read = client.create_or_load("c", SCHEMA)
    running = Materializations(client)
    endpoint = Endpoint("sqlite", {"path": str(tmp_path / "e.db")})
    binding = Binding("c", read.id, "target", ("k",))
    running.install("m", endpoint, (binding,), tuning={"spill_bytes": 5})
    running.tune("m", {"min_duration_ms": 7})
    stored = client.core.state.items["materialization/m"]
    assert msgspec.json.decode(stored, type=Definition).tuning == Tuning(7, 0, 5)
    assert running.get("m") is not None
    running.stop()


def test_settings_are_read() -> None:
    assert read_settings({"MAX_DURATION": "5min", "spill_limit": "64MB"}) == {
        "tuning": {"max_duration_ms": 300_000, "spill_bytes": 64 << 20}
    }
    for wrong in (
        {"DELETE": "maybe"},
        {"MIN_DURATION": "soon"},
        {"SPILL_LIMIT": "7"},
        {"SHARDS_IN": "x"},
        {"X": "1"},
    ):
        with pytest.raises(InvalidOption, match=r"cannot be read|no setting"):
            read_settings(wrong)
    with pytest.raises(InvalidOption, match="APPEND_ONLY, DOCUMENT"):
        read_binding_settings({"SHARDS": "2"})


@pytest.mark.parametrize("reduce", [(), (("k", "sum"),)])
def test_documents_beside_columns(
    client: Client, tmp_path: Path, reduce: tuple[tuple[str, str], ...]
) -> None:
    write, read = client.create_or_load("c", SCHEMA)
    capability = Collections(client).acquire_read(read.id)
    key = ("v",) if reduce else ("k",)
    binding = Binding("c", read.id, "target", key, reduce=reduce, document="doc")
    endpoint = Endpoint("sqlite", {"path": str(tmp_path / "e.db")})
    definition = Definition("m", "i", endpoint, (binding,), (capability.to_text(),), False)
    stream = InProcess(SqliteDriver())
    session = Session(client, definition, (capability,), KeyRange.full(), stream)
    _append(write, 1, (1, "a", 1), (2, "b", 1))
    for change in ((), ((1, "a", -1), (7, "a", 1))):
        _append(write, write.upper.only(), *change)
        target = session.feed.wait(0)
        assert target is not None
        session.deliver(target, Status())
    session.end()
    session.close()
    with closing(sqlite3.connect(tmp_path / "e.db")) as db:
        rows = db.execute("SELECT k, v, doc FROM target WHERE \"_meta/op\" <> 'd'").fetchall()
    for k, v, doc in rows:
        found = msgspec.json.decode(doc)
        assert (found["k"], found["v"]) == (k, v)
        assert "_meta/op" not in found
    assert sorted(row[0] for row in rows) == [2, 7]


def test_a_document_is_no_column() -> None:
    binding = Binding("c", 1, "target", ("k",), document="v")  # type: ignore[arg-type]
    with pytest.raises(DocumentTaken, match="otherwise"):
        delivered_schema(binding, SCHEMA, hard_delete=True)
    connector = Definition("m", "", Endpoint(CONNECTOR, {"command": ["x"]}), (binding,), ())
    with pytest.raises(InvalidUsage, match="no column for documents"):
        to_validate(connector, [{}], [SCHEMA])
