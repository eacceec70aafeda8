"""What every driver of an authoritative endpoint must do; run against the real ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.base.errors import Determinate
from headwater.base.ids import GlobalId
from headwater.materialize.changes import changes
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import Bound
from headwater.materialize.definition import Binding, delivered_schema, to_spec
from headwater.materialize.delivery import Delivery, Transaction
from headwater.materialize.drivers.sql import Fenced, KeyTaken
from headwater.materialize.protocol import messages as m
from headwater.materialize.selection import FieldRefused
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.tuples import pack
from tests.integration import driven
from tests.integration.driven import (
    BINDING,
    FULL,
    SCHEMA,
    Row,
    opened,
    spec_of,
    transact,
    updates_of,
)
from tests.integration.materialize_places import Place, asked, prepared

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("sqlite_without_fsync")]

place = driven.place
database = driven.database


# ---- Spec, Validate, Apply -----------------------------------------------------------------------


def test_it_describes_itself(place: Place) -> None:
    stream = InProcess(place.make())
    stream.send(m.Spec())
    said = stream.receive()
    assert isinstance(said, m.Specified)
    assert said.protocol == m.PROTOCOL
    assert said.documentation_url
    required = msgspec.json.decode(said.config_schema_json).get("required", ())
    assert set(required) <= set(place.config)
    assert place.located in msgspec.json.decode(said.resource_config_schema_json)["required"]
    stream.end()


def test_apply_is_idempotent_and_a_dry_run_does_nothing(place: Place) -> None:
    definition, question = asked(place, [BINDING], [SCHEMA])
    stream = InProcess(place.make())
    stream.send(question)
    answer = stream.receive()
    assert isinstance(answer, m.Validated)
    assert not answer.bindings[0].holds_data
    spec = to_spec(definition, question, answer)
    would: m.Response | None = None
    if place.in_process:  # Flow's wire has no word for it, and refuses to say another.
        stream.send(m.Apply(spec, "v1", dry_run=True))
        would = stream.receive()
    stream.send(m.Apply(spec, "v1"))
    did = stream.receive()
    assert isinstance(did, m.Applied)
    assert place.creates in did.action_description
    assert would in (None, did)
    stream.send(m.Apply(spec, "v1"))
    assert stream.receive() == m.Applied()
    stream.end()
    assert place.select(["k", "v", "n"], "target") == []


def test_new_columns_are_added(place: Place) -> None:
    delivery = opened(place, spec_of(place))
    transact(delivery, 2, ((1, "a", 1), 1, 1))
    delivery.end()
    wider = pa.schema([*SCHEMA, pa.field("w", pa.float64())])
    spec = prepared(place, [BINDING], [wider])
    delivery = opened(place, spec)
    assert delivery.position == Position(2)
    store = changes(0, ["k"], updates_of(wider, ((2, "b", 2, 0.5), 2, 1)), 3, FULL)
    delivery.transact(Transaction.of([store], Position(3)))
    delivery.end()
    assert place.select(["k", "w"], "target") == [(1, None), (2, 0.5)]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("CREATE TABLE target (k TEXT PRIMARY KEY, v TEXT, n BIGINT)", "'k'.*not integer"),
        ("CREATE TABLE target (k INTEGER, v TEXT, n INTEGER)", "primary key is missing"),
        ("CREATE TABLE target (n INTEGER PRIMARY KEY, k INTEGER, v TEXT)", "primary key is .n"),
        (
            "CREATE TABLE target (k INTEGER PRIMARY KEY, v TEXT, n INTEGER, z TEXT NOT NULL)",
            "'z' is required",
        ),
    ],
)
def test_a_table_of_another_shape_is_refused_with_the_reason(
    database: Place, table: str, reason: str
) -> None:
    if database.driver == "mysql":
        table = table.replace("TEXT PRIMARY", "VARCHAR(9) PRIMARY")
    integer = "INTEGER" if database.driver == "sqlite" else "BIGINT"
    database.execute(table.replace("INTEGER", integer))
    with pytest.raises(FieldRefused, match=reason):
        spec_of(database)


def test_an_endpoint_that_is_away_says_so(place: Place, tmp_path: Path) -> None:
    spec = spec_of(place)
    away = {
        "sqlite": {"path": "/dev/null/e.db"},
        "duckdb": {"path": "/dev/null/e.db"},
        "mysql": {"host": "127.0.0.1", "port": "1", "user": "nobody"},
        "postgres": {"dsn": f"host={tmp_path} user=nobody"},
        "redis": {"host": "127.0.0.1", "port": "1"},
    }
    config = msgspec.json.encode(away[place.driver])
    stream = InProcess(place.make())
    with pytest.raises(Determinate, match=r"cannot (open|connect)"):
        stream.send(m.Apply(replace(spec, config_json=config)))
    stream.abort()


def test_a_backfill_empties_the_table_and_fences_who_delivered(place: Place) -> None:
    spec = spec_of(place)
    delivery = opened(place, spec)
    transact(delivery, 2, ((1, "a", 1), 1, 1))
    anew = replace(spec, bindings=(replace(spec.bindings[0], backfill=1),))
    stream = InProcess(place.make())
    for last in (spec, spec, anew):  # It may be asked again before it is known to be done.
        stream.send(m.Apply(anew, "v2", last_materialization=last, last_version="v1"))
        applied = stream.receive()
        assert isinstance(applied, m.Applied)
        assert bool(applied.action_description) == (last is spec)
    stream.end()
    assert place.select(["k"], "target") == []
    with pytest.raises(Fenced):
        transact(delivery, 3, ((2, "b", 1), 2, 1))
    assert place.select(["k"], "target") == []


def test_load_finds_what_is_there_and_nothing_is_open_meanwhile(place: Place) -> None:
    delivery = opened(place, spec_of(place))
    transact(delivery, 2, *(((k, f"v{k}", k), 1, 1) for k in (1, 2, 3)))
    found: list[Any] = []

    def stores(loaded: Any) -> list[m.StoreMany]:
        assert place.writable_by_others()
        for message in loaded[0]:
            if isinstance(message, m.LoadedMany):
                found.extend(message.rows.to_pylist())
            else:
                found.append(msgspec.json.decode(message.doc_json))
        return []

    keys = pa.array([pack((k,)) for k in (1, 3, 9)], pa.large_binary())
    delivery.transact(Transaction(Position(3), stores, (m.LoadMany(0, keys),)))
    assert sorted(row["k"] for row in found) == [1, 3]
    assert place.writable_by_others()
    delivery.end()


def test_insert_update_delete(place: Place) -> None:
    delivery = opened(place, spec_of(place))
    transact(delivery, 2, *(((k, "old", k), 1, 1) for k in (1, 2, 3)))
    transact(
        delivery, 3,
        ((1, "old", 1), 2, -1), ((1, "new", 1), 2, 1), ((2, "old", 2), 2, -1), ((4, "x", 4), 2, 1),
    )  # fmt: skip
    assert place.select(["k", "v"], "target") == [(1, "new"), (3, "old"), (4, "x")]
    # Somebody removed a row: it is put anew; and what is gone is gone.
    place.remove("target", (3, 4))
    transact(delivery, 4, ((3, "old", 3), 3, -1), ((3, "y", 3), 3, 1), ((4, "x", 4), 3, -1))
    assert place.select(["k", "v"], "target") == [(1, "new"), (3, "y")]
    delivery.end()


@pytest.mark.parametrize("hard_delete", [True, False])
def test_a_second_row_of_a_key_is_refused_by_name(place: Place, *, hard_delete: bool) -> None:
    spec = spec_of(place, hard_delete=hard_delete)
    bound = Bound(0, BINDING, "x", delivered_schema(BINDING, SCHEMA, hard_delete=hard_delete))

    def transact(delivery: Delivery, upper: int, *triples: tuple[Row, int, int]) -> None:
        combined = bound.combined(updates_of(SCHEMA, *triples), upper, FULL)
        delivery.transact(Transaction.of([combined.stores(())], Position(upper)))

    delivery = opened(place, spec)
    transact(delivery, 2, ((41, "a", 1), 1, 1), ((42, "a", 1), 1, 1))
    for more in ((), (((41, "a", 1), 2, -1), ((41, "b", 1), 2, 1))):
        with pytest.raises(KeyTaken, match="42"):
            transact(delivery, 3, ((42, "b", 1), 2, 1), *more)
        place.kill()
        delivery = opened(place, spec)
        assert delivery.position == Position(2)
    assert [row[0] for row in place.select(["k", "v"], "target")] == [41, 42]


def test_soft_deletes_mark_and_revive(place: Place) -> None:
    spec = spec_of(place, hard_delete=False)
    bound = Bound(0, BINDING, "x", delivered_schema(BINDING, SCHEMA, hard_delete=False))
    delivery = opened(place, spec)
    for upper, triples in enumerate(
        [
            [((1, "a", 1), 1, 1), ((2, "b", 2), 1, 1)],
            [((1, "a", 1), 2, -1), ((2, "b", 2), 2, -1), ((2, "c", 2), 2, 1)],
            [((1, "d", 1), 3, 1)],
        ],
        2,
    ):
        combined = bound.combined(updates_of(SCHEMA, *triples), upper, FULL)
        delivery.transact(Transaction.of([combined.stores(())], Position(upper)))
        rows = place.select(["k", "v", "_meta/op"], "target")
        if upper == 3:
            assert rows == [(1, "a", "d"), (2, "c", "u")]
    assert rows == [(1, "d", "c"), (2, "c", "u")]
    delivery.end()


def test_names_are_never_spliced_into_statements(place: Place) -> None:
    name = 'a"b; DROP TABLE x; -- %s {0} é'
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False), pa.field("%(x)s", pa.string())])
    binding = Binding("orders", GlobalId(1), name, (name,))
    spec = prepared(place, [binding], [schema])
    delivery = opened(place, spec)
    for upper, triples in enumerate(
        [[((1, "'); --"), 1, 1)], [((1, "'); --"), 2, -1), ((1, "%s"), 2, 1), ((2, "x"), 2, 1)]], 2
    ):
        store = changes(0, [name], updates_of(schema, *triples), upper, FULL)
        delivery.transact(Transaction.of([store], Position(upper)))
    delivery.end()
    assert place.select([name, "%(x)s"], name) == [(1, "%s"), (2, "x")]
