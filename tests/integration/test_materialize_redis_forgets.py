"""A Redis that forgets is found out, and one that keeps a log has lost nothing."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from random import Random

import pytest
from redis import RedisError

from headwater.base.clock import SystemClock
from headwater.base.errors import ExternalError
from headwater.materialize.checkpoint import Position
from headwater.materialize.delivery import Delivery
from headwater.materialize.drivers.redis_guard import WentBack
from headwater.materialize.drivers.sql import Fenced
from headwater.testing.redis import DURABLE, FORGETFUL, redis_server
from headwater.testing.sql_server import SqlServer
from tests.integration import redis_world
from tests.integration.materialize_places import (
    Change,
    RedisPlace,
    open_delivery,
    prepared,
    transact,
)
from tests.integration.redis_world import BINDING, HISTORY, SCHEMA, VIEWS, deliver_rest, rows_there
from tests.integration.test_sql_sources import wait_for

pytestmark = pytest.mark.server

small_chunks = redis_world.small_chunks


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("staging", [False, True])
def test_a_server_that_has_forgotten_is_found_out(*, staging: bool) -> None:
    """What was saved is an earlier checkpoint with its rows; delivery goes on from there."""
    with redis_server(FORGETFUL) as server, closing(RedisPlace(server)) as place:
        spec = prepared(place, [BINDING], [SCHEMA])
        delivery = open_delivery(place, spec)
        transact(delivery, SCHEMA, *HISTORY[0][:1], *HISTORY[0][1])
        place.client.save()
        transact(delivery, SCHEMA, *HISTORY[1][:1], *HISTORY[1][1])
        server.kill()
        server.start()
        more = HISTORY[2][1] if staging else HISTORY[2][1][:1]
        with pytest.raises(WentBack, match="another checkpoint"):
            transact(delivery, SCHEMA, 4, *more)
        place.kill()
        assert open_delivery(place, spec).position == Position(2)
        place.kill()
        deliver_rest(place, spec)
        assert rows_there(place) == VIEWS[4]


@pytest.mark.parametrize("retained", ["1 hour", "1 millisecond"])
def test_a_running_materialization_and_a_server_that_forgets(retained: str) -> None:
    """Empty, it is filled anew; at an earlier checkpoint, what came since is delivered again.

    If that cannot be read any more, it is stalled with the reason and the remedy.
    """
    with (
        redis_server(FORGETFUL) as redis,
        closing(RedisPlace(redis)) as place,
        SqlServer(SystemClock()) as server,
    ):
        sql = server.session()
        retain = f"RETAIN HISTORY FOR '{retained}'"
        sql(f"CREATE TABLE t (k bigint PRIMARY KEY, v text) WITH ({retain})")
        sql("INSERT INTO t VALUES (1, 'a')")
        url = f"redis://:not%20a%20''secret''@127.0.0.1:{redis.port}/0"
        target = place.target("target")
        sql(f"CREATE MATERIALIZATION m INTO REDIS (URL '{url}') (t AS \"{target}\" KEY (k))")

        def there(rows: dict[int, str]) -> bool:
            server.timeline.tick()
            with suppress(RedisError):
                return rows_there(place) == rows
            return False

        def told() -> bool:
            server.timeline.tick()
            shards = sql("SELECT last_error FROM hw_catalog.hw_materialization_shards")
            return any("BACKFILL" in (error or "") for (error,) in shards)

        wait_for(lambda: there({1: "a"}))
        redis.kill()
        redis.start()
        sql("INSERT INTO t VALUES (2, 'b')")
        wait_for(lambda: there({1: "a", 2: "b"}))
        place.client.save()
        rows = {1: "a", 2: "b"}
        for k in range(3, 7):
            sql(f"INSERT INTO t VALUES ({k}, 'c')")
            rows[k] = "c"
            wait_for(lambda: there(rows))
        redis.kill()
        redis.start()
        sql("DELETE FROM t WHERE k = 1")
        del rows[1]
        if retained == "1 millisecond":
            wait_for(told)
            sql("ALTER MATERIALIZATION m BACKFILL")
        wait_for(lambda: there(rows))


def test_a_zombie_of_a_forgotten_session_is_fenced() -> None:
    """Its fence is given out again by the server that forgot it; its name is not."""
    with redis_server(FORGETFUL) as server, closing(RedisPlace(server)) as place:
        spec = prepared(place, [BINDING], [SCHEMA])
        zombie = open_delivery(place, spec)
        server.kill()
        server.start()
        owner = open_delivery(place, prepared(place, [BINDING], [SCHEMA]))
        assert [fence for _, fence, _ in place.fences()] == [1]
        with pytest.raises(Fenced):
            transact(zombie, SCHEMA, 2, ((1, "zombie"), 1))
        transact(owner, SCHEMA, 2, ((1, "a"), 1))
        assert rows_there(place) == {1: "a"}


def test_killed_under_load() -> None:
    """With a log that is synced before it answers, nothing that was committed is missing."""
    seed = Random().randrange(1 << 30)
    print("seed", seed)
    random = Random(seed)
    with redis_server(DURABLE) as server, closing(RedisPlace(server)) as place:
        spec = prepared(place, [BINDING], [SCHEMA])
        view: dict[int, str] = {}
        views = {0: dict(view)}
        upper, known = 1, 0
        for _ in range(4):
            killer = threading.Timer(random.uniform(0.05, 0.4), server.kill)
            delivery: Delivery | None = None
            try:
                delivery = open_delivery(place, spec)
                found = 0 if delivery.position is None else delivery.position.time
                assert found >= known, "a transaction that was answered is gone"
                assert rows_there(place) == views[found]
                view, upper = dict(views[found]), max(views) + 1
                killer.start()
                while True:
                    changed: list[Change] = []
                    for key in random.sample(range(6_000), random.choice((3, 3, 5_000))):
                        if key in view:
                            changed.append(((key, view.pop(key)), -1))
                        if random.random() < 0.7:
                            view[key] = f"{upper}"
                            changed.append(((key, view[key]), 1))
                    views[upper] = dict(view)
                    transact(delivery, SCHEMA, upper, *changed)
                    known, upper = upper, upper + 1
            except ExternalError:
                place.kill()
            killer.join()
            server.start()
        final = open_delivery(place, spec)
        assert final.position is not None
        assert final.position.time >= known > 0
        assert rows_there(place) == views[final.position.time]
