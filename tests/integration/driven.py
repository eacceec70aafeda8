"""What the tests of all authoritative endpoints share: places, and deliveries by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.base.ids import GlobalId
from headwater.materialize.changes import changes
from headwater.materialize.checkpoint import Position
from headwater.materialize.definition import Binding, delivered_schema
from headwater.materialize.delivery import Delivery, Transaction
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.transport.grpc_stream import GrpcStream
from headwater.materialize.transport.in_process import InProcess, Watch
from headwater.materialize.wire.framing import Codec
from headwater.persist.evolution import updates_schema
from tests.integration.materialize_places import (
    NAME,
    DuckDbPlace,
    Memory,
    MySqlPlace,
    Place,
    PostgresPlace,
    RedisPlace,
    SqlitePlace,
    prepared,
)
from tests.integration.shared_location import Postgres

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("v", pa.string()),
        pa.field("n", pa.int64()),
    ]
)
FULL = KeyRange.full()

Row = tuple[Any, ...]


SQL = [
    "sqlite",
    "sqlite json",
    "sqlite grpc",
    "duckdb proto",
    "mysql json",
    "postgres",
    "postgres proto",
]


@pytest.fixture(params=[*SQL, "redis", "redis json"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield from places(request, tmp_path)


@pytest.fixture(params=SQL)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place with tables, which somebody else can make, too."""
    yield from places(request, tmp_path)


def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    kind, _, wire = request.param.partition(" ")
    dial = {"grpc": GrpcStream}.get(wire)
    codec = Codec(wire) if wire and dial is None else None
    made: Place
    if kind == "sqlite":
        made = SqlitePlace(tmp_path, codec, dial)
    elif kind == "duckdb":
        made = DuckDbPlace(tmp_path, codec)
    elif kind == "mysql":
        made = MySqlPlace(request.getfixturevalue("mariadb"), codec)
    elif kind == "redis":
        made = RedisPlace(request.getfixturevalue("redis"), codec)
        made.begin_anew("target")
    else:
        server: Postgres = request.getfixturevalue("postgres")
        made = PostgresPlace(server.dsn, codec)
    with closing(made):
        yield made


BINDING = Binding("orders", GlobalId(1), "target", ("k",))


def spec_of(place: Place, *, hard_delete: bool = True) -> MaterializationSpec:
    delivered = delivered_schema(BINDING, SCHEMA, hard_delete=hard_delete)
    return prepared(place, [BINDING], [delivered], hard_delete=hard_delete)


def _nothing(_: m.Message) -> None:
    return


def opened(
    place: Place, spec: MaterializationSpec, key_range: KeyRange = FULL, watch: Watch = _nothing
) -> Delivery:
    return Delivery(InProcess(place.make(), watch), spec, "v1", key_range, Memory(), source=NAME)


def updates_of(schema: pa.Schema, *triples: tuple[Row, int, int]) -> pa.Table:
    columns: dict[str, list[Any]] = {
        name: [row[at] for row, _, _ in triples] for at, name in enumerate(schema.names)
    }
    columns |= {"__time": [t for _, t, _ in triples], "__diff": [d for _, _, d in triples]}
    return pa.table(columns, schema=updates_schema(schema))


def transact(delivery: Delivery, upper: int, *triples: tuple[Row, int, int]) -> None:
    store = changes(0, ["k"], updates_of(SCHEMA, *triples), upper, FULL)
    delivery.transact(Transaction.of([store], Position(upper)))
