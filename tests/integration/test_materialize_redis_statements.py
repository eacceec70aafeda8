"""Materializations into Redis as a user writes them, and the ways to reach one."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from headwater.base.clock import SystemClock
from headwater.base.errors import Determinate, InvalidUsage
from headwater.base.ids import SeqNo
from headwater.testing.redis import FORGETFUL, PASSWORD, redis_server
from headwater.testing.sql_server import SqlServer
from tests.integration import redis_world
from tests.integration.materialize_places import (
    RedisPlace,
    asked,
    open_delivery,
    prepared,
    transact,
)
from tests.integration.redis_world import BINDING, SCHEMA, rows_there
from tests.integration.test_materialize_tls import Authority
from tests.integration.test_sql_sources import wait_for

pytestmark = pytest.mark.server

place = redis_world.place


def test_passwords_and_addresses(place: RedisPlace) -> None:
    right = place.config
    for wrong, told in (
        ({"password": "no"}, r"cannot connect to Redis.*(WRONGPASS|invalid)"),
        ({"url": "http://h"}, "no address of a Redis"),
        ({"database": "x"}, "is a number"),
        ({"ssl mode": "preferred"}, "no SSL MODE"),
    ):
        place.config = {**right, **wrong}
        _, question = asked(place, [BINDING], [SCHEMA])
        with pytest.raises((Determinate, InvalidUsage), match=told) as refused:
            list(place.make().respond(question))
        assert PASSWORD not in str(refused.value)


def test_as_a_user_writes_it(place: RedisPlace) -> None:
    """A connection, a dry run, two shards, sums, a stream; and the password is in no log."""
    host, port, at = place.config["host"], place.config["port"], place.prefix
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(
            f"CREATE SECRET pw AS '{PASSWORD.replace(chr(39), chr(39) * 2)}'; "
            f"CREATE CONNECTION r TO REDIS (HOST '{host}', PORT {port}, PASSWORD SECRET pw); "
            "VALIDATE CONNECTION r"
        )
        sql("CREATE TABLE t (k bigint PRIMARY KEY, v text NOT NULL, n bigint)")
        sql("INSERT INTO t VALUES (1, 'a', 5), (2, 'a', 6), (3, 'b', 7)")
        into = (
            f'INTO REDIS CONNECTION r (t AS "{at}-rows" KEY (k), '
            f't AS "{at}-sums" KEY (v) REDUCE (n sum), '
            f't AS "{at}-log" KEY (k) DELTA UPDATES) WITH (SHARDS 2)'
        )
        found = sql(f"VALIDATE MATERIALIZATION m {into}")
        assert ("guarantee", f"t AS {at}-rows", None, "exactly once") in found
        assert place.client.hget("headwater_bindings_v1", f"{at}-rows") is None
        sql(f"CREATE MATERIALIZATION m {into}")

        def there(table: str, columns: list[str], rows: list[tuple[Any, ...]]) -> bool:
            server.timeline.tick()
            return place.select(columns, table) == rows

        wait_for(lambda: there("sums", ["v", "n"], [("a", 11), ("b", 7)]))
        sql("DELETE FROM t WHERE k = 3; UPDATE t SET n = 1 WHERE k = 1")
        wait_for(lambda: there("sums", ["v", "n"], [("a", 7)]))
        wait_for(lambda: there("rows", ["k", "n"], [(1, 1), (2, 6)]))
        wait_for(lambda: len(place.select(["k"], "log")) == 6)
        sql("ALTER MATERIALIZATION m BACKFILL")
        wait_for(lambda: there("rows", ["k", "n"], [(1, 1), (2, 6)]))
        wait_for(lambda: len(place.select(["k"], "log")) == 2)
        log = server.client.core.consensus.scan(SeqNo(0), 100_000)
        assert PASSWORD.encode() not in b"".join(entry.data for entry in log)
        sql("DROP MATERIALIZATION m")


def test_without_a_guard(place: RedisPlace) -> None:
    """It is delivered, says what it does not promise, and keeps no checkpoint there."""
    host, port, at = place.config["host"], place.config["port"], place.prefix
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        before = set(place.client.scan_iter("flow_checkpoints_v1:u*"))
        sql("CREATE SECRET url AS 'redis://:not%20a%20''secret''@" + f"{host}:{port}/0'")
        sql("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        sql("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
        into = (
            "INTO REDIS (URL SECRET url, GUARDED 'false') "
            f'(t AS "{at}-target" KEY (k), t AS "{at}-log" KEY (k) DELTA UPDATES)'
        )
        found = sql(f"VALIDATE MATERIALIZATION m {into}")
        assert ("guarantee", f"t AS {at}-target", None, "effectively once") in found
        assert ("guarantee", f"t AS {at}-log", None, "at least once") in found
        sql(f"CREATE MATERIALIZATION m {into}")

        def there(rows: dict[int, str | None]) -> bool:
            server.timeline.tick()
            return rows_there(place) == rows

        wait_for(lambda: there({1: "a", 2: None}))
        sql("DELETE FROM t WHERE k = 1; UPDATE t SET v = 'b' WHERE k = 2")
        wait_for(lambda: there({2: "b"}))
        wait_for(lambda: len(place.select(["k"], "log")) == 5)
        assert set(place.client.scan_iter("flow_checkpoints_v1:u*")) == before
        sql("DROP MATERIALIZATION m")


def test_by_tls(tmp_path: Any) -> None:
    authority, stranger = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    certificate, key = authority.signed("server")
    with redis_server(FORGETFUL) as plain:
        port = plain.port
        plain.stop()
        tls = {"tls-port": str(port), "port": "0", "tls-cert-file": certificate}
        plain.settings = {**tls, "tls-key-file": key, "tls-auth-clients": "no"}
        plain.authority = authority.ca
        plain.start()
        with closing(RedisPlace(plain)) as place:
            delivery = open_delivery(place, prepared(place, [BINDING], [SCHEMA]))
            transact(delivery, SCHEMA, 2, ((1, "a"), 1))
            assert rows_there(place) == {1: "a"}
            place.config = {**place.config, "ssl certificate authority": stranger.ca}
            with pytest.raises(Determinate, match=r"cannot connect.*certificate"):
                prepared(place, [BINDING], [SCHEMA])
