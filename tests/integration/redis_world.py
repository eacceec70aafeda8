"""A view in a Redis: its history, what is there after each transaction, and a place for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from headwater.base.ids import GlobalId
from headwater.materialize.definition import Binding
from headwater.materialize.drivers import redis_guard
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.testing.redis import RedisServer
from tests.integration.materialize_places import Change, RedisPlace, open_delivery, transact

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
BINDING = Binding("orders", GlobalId(1), "target", ("k",))


@pytest.fixture
def place(redis: RedisServer) -> Iterator[RedisPlace]:
    with closing(RedisPlace(redis)) as made:
        made.begin_anew("target")
        yield made


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_guard, "CHUNK_ROWS", 2)


def rows_there(place: RedisPlace) -> dict[int, str]:
    return dict(place.select(["k", "v"], "target"))


HISTORY: tuple[tuple[int, tuple[Change, ...]], ...] = (
    (2, tuple(((k, "a"), 1) for k in range(5))),
    (3, (((0, "a"), -1), ((1, "a"), -1), ((1, "b"), 1), ((2, "a"), -1), ((7, "c"), 1))),
    (4, tuple(((k, "d"), 1) for k in range(10, 13))),
)
VIEWS = {
    0: {},
    2: dict.fromkeys(range(5), "a"),
    3: {1: "b", 3: "a", 4: "a", 7: "c"},
    4: {1: "b", 3: "a", 4: "a", 7: "c", 10: "d", 11: "d", 12: "d"},
}


def deliver_rest(place: RedisPlace, spec: MaterializationSpec) -> None:
    delivery = open_delivery(place, spec)
    start = 0 if delivery.position is None else delivery.position.time
    assert rows_there(place) == VIEWS[start], "what is committed is applied before a session begins"
    for upper, changed in HISTORY:
        if upper > start:
            transact(delivery, SCHEMA, upper, *changed)
    delivery.end()
