"""What is Redis's own: chunks and their stage, keys, memory, and a server that forgets.

What it shares with all authoritative endpoints is in ``test_materialize_drivers``.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from redis import ConnectionError as NoConnection
from redis import RedisError
from redis.connection import Connection

from headwater.base.clock import SystemClock
from headwater.base.errors import Determinate, ExternalError, InvalidUsage
from headwater.base.ids import GlobalId, SeqNo
from headwater.materialize.checkpoint import Position, from_checkpoint, from_text
from headwater.materialize.definition import Binding
from headwater.materialize.delivery import Delivery
from headwater.materialize.drivers import redis_guard
from headwater.materialize.drivers.redis_guard import WentBack, WrongType
from headwater.materialize.drivers.sql import Fenced
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.selection import FieldRefused
from headwater.testing.redis import DURABLE, FORGETFUL, PASSWORD, RedisServer, redis_server
from headwater.testing.sql_server import SqlServer
from tests.integration.materialize_places import (
    NAME,
    Change,
    RedisPlace,
    asked,
    open_delivery,
    prepared,
    transact,
)
from tests.integration.test_materialize_tls import Authority
from tests.integration.test_sql_sources import wait_for

pytestmark = pytest.mark.server

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
BINDING = Binding("orders", GlobalId(1), "target", ("k",))
LOG = Binding("orders", GlobalId(1), "log", ("k",), delta_updates=True)


@pytest.fixture
def place(redis: RedisServer) -> Iterator[RedisPlace]:
    with closing(RedisPlace(redis)) as made:
        made.begin_anew("target")
        yield made


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_guard, "CHUNK_ROWS", 2)


def _rows(place: RedisPlace) -> dict[int, str]:
    return dict(place.select(["k", "v"], "target"))


# ---- chunks --------------------------------------------------------------------------------------

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


def _deliver_rest(place: RedisPlace, spec: MaterializationSpec) -> None:
    delivery = open_delivery(place, spec)
    start = 0 if delivery.position is None else delivery.position.time
    assert _rows(place) == VIEWS[start], "what is committed is applied before a session begins"
    for upper, changed in HISTORY:
        if upper > start:
            transact(delivery, SCHEMA, upper, *changed)
    delivery.end()


class Cut:
    """A wire that is cut at its n-th use: before a command is sent, or before its answer is."""

    def __init__(self, patch: pytest.MonkeyPatch, event: int) -> None:
        self.count, self._event = 0, event
        send, read = Connection.send_packed_command, Connection.read_response

        def sending(own: Connection, *args: Any, **options: Any) -> None:
            self._use(own)
            send(own, *args, **options)

        def reading(own: Connection, *args: Any, **options: Any) -> Any:
            answer = read(own, *args, **options)
            self._use(own)
            return answer

        patch.setattr(Connection, "send_packed_command", sending)
        patch.setattr(Connection, "read_response", reading)

    def _use(self, connection: Connection) -> None:
        self.count += 1
        if self.count == self._event:
            connection.disconnect()
            raise NoConnection("cut")


@pytest.mark.usefixtures("small_chunks")
def test_cut_at_every_command_and_at_every_answer(place: RedisPlace) -> None:
    spec = prepared(place, [BINDING], [SCHEMA])
    event, done = 0, False
    while not done:
        event += 1
        place.begin_anew("target")
        with pytest.MonkeyPatch.context() as patch:
            cut = Cut(patch, event)
            with suppress(ExternalError, RedisError):  # The judge's own wire may be cut, too.
                _deliver_rest(place, spec)
            done = cut.count < event
        _deliver_rest(place, spec)
        assert _rows(place) == VIEWS[4], event
        stages = list(place.client.scan_iter(f"headwater_stage:{NAME}:*"))
        assert stages == [], "nothing is left behind"
    assert event > 40


@pytest.mark.usefixtures("small_chunks")
def test_what_a_reader_sees_between_chunks(
    place: RedisPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows of the new checkpoint beside those of the old one, and a field that says so."""
    spec = prepared(place, [BINDING], [SCHEMA])
    seen = []
    apply = redis_guard.Guard._apply_all

    def watched(own: redis_guard.Guard, *args: Any) -> None:
        seen.append((_rows(place), place.client.hgetall(f"flow_checkpoints_v1:{NAME}")))
        apply(own, *args)

    monkeypatch.setattr(redis_guard.Guard, "_apply_all", watched)
    delivery = open_delivery(place, spec)
    transact(delivery, SCHEMA, 2, *HISTORY[0][1])
    ((rows, checkpoints),) = seen
    assert rows == {}
    position = from_checkpoint(
        from_text(checkpoints[b"00000000-ffffffff/checkpoint"].decode()), NAME
    )
    assert position == Position(2)
    assert b"00000000-ffffffff/staged" in checkpoints
    assert _rows(place) == VIEWS[2]
    assert b"00000000-ffffffff/staged" not in place.client.hgetall(f"flow_checkpoints_v1:{NAME}")
    delivery.end()


@pytest.mark.usefixtures("small_chunks")
def test_a_stream_has_every_change_once(place: RedisPlace) -> None:
    delivery = open_delivery(place, prepared(place, [LOG], [SCHEMA]))
    transact(delivery, SCHEMA, 2, *(((k, None), 1) for k in range(7)))
    delivery.end()
    assert place.select(["k", "v"], "log") == [(k, None) for k in range(7)]


# ---- keys ----------------------------------------------------------------------------------------


def test_keys_are_texts_that_can_be_typed(place: RedisPlace) -> None:
    schema = pa.schema([pa.field("k", pa.string()), pa.field("b", pa.binary())])
    binding = Binding("orders", GlobalId(1), "target", ("k", "b"))
    delivery = open_delivery(place, prepared(place, [binding], [schema]))
    rows = [("a:b", b"c"), ("a", b"b:c"), ("a%3Ab", b"c"), ("", b"\xff\x00")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.integration.materialize_places.changes", _by(("k", "b")))
        transact(delivery, schema, 2, *((row, 1) for row in rows))
    delivery.end()
    start = len(place.target("target"))
    assert {key[start:] for key in place.keys("target")} == {
        b":a%3Ab:c", b":a:b%3Ac", b":a%253Ab:c", b"::\xff\x00",
    }  # fmt: skip
    found = {place.client.hget(key, "b") for key in place.keys("target")}
    assert found == {b"c", b"b:c", b"\xff\x00"}


def _by(key: tuple[str, ...]) -> Callable[..., Any]:
    from headwater.materialize.changes import changes

    return lambda binding, _, *more: changes(binding, key, *more)


def test_what_others_keep_in_a_hash_stays(place: RedisPlace) -> None:
    delivery = open_delivery(place, prepared(place, [BINDING], [SCHEMA]))
    transact(delivery, SCHEMA, 2, ((1, "a"), 1))
    key = f"{place.target('target')}:1"
    place.client.hset(key, "note", "mine")
    transact(delivery, SCHEMA, 3, ((1, "a"), -1), ((1, None), 1))
    assert place.client.hgetall(key) == {b"k": b"1", b"note": b"mine"}
    delivery.end()


def test_all_keys_are_looked_through_only_for_a_new_target(place: RedisPlace) -> None:
    spec = prepared(place, [BINDING], [SCHEMA])
    transact(open_delivery(place, spec), SCHEMA, 2, ((1, "a"), 1))
    _, question = asked(place, [BINDING], [SCHEMA])

    def scans() -> int:
        return int(place.client.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"])

    for last, known, looked in ((None, True, 1), (spec, None, 0)):
        before = scans()
        (answer,) = place.make().respond(dataclasses.replace(question, last_materialization=last))
        assert isinstance(answer, m.Validated)
        assert (answer.bindings[0].holds_data, min(1, scans() - before)) == (known, looked)


def test_targets_do_not_share_keys(place: RedisPlace) -> None:
    inner = Binding("orders", GlobalId(1), "target:x", ("k",))
    with pytest.raises(InvalidUsage, match="would be among those of"):
        prepared(place, [BINDING, inner], [SCHEMA, SCHEMA])


def test_a_target_stays_what_it_is(place: RedisPlace) -> None:
    prepared(place, [BINDING], [SCHEMA])
    delta = Binding("orders", GlobalId(1), "target", ("k",), delta_updates=True)
    with pytest.raises(InvalidUsage, match="has rows by key already"):
        prepared(place, [delta], [SCHEMA])
    other = pa.schema([SCHEMA.field("k"), pa.field("v", pa.int64())])
    with pytest.raises(FieldRefused, match=r"'v'.*text, not integer"):
        prepared(place, [BINDING], [other])
    by_v = Binding("orders", GlobalId(1), "target", ("v",))
    with pytest.raises(FieldRefused, match=r"primary key is \(k\)"):
        prepared(place, [by_v], [SCHEMA])


# ---- what is wrong -------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("rows", [1, 5], ids=["at once", "staged"])
def test_a_key_of_another_type_is_named_and_nothing_changes(place: RedisPlace, rows: int) -> None:
    spec = prepared(place, [BINDING], [SCHEMA])
    delivery = open_delivery(place, spec)
    foreign = f"{place.target('target')}:{rows - 1}"
    place.client.set(foreign, "theirs")
    with pytest.raises(WrongType, match=f"{foreign}' holds a string"):
        transact(delivery, SCHEMA, 2, *(((k, "a"), 1) for k in range(rows)))
    place.kill()
    assert place.keys("target") == [foreign.encode()]
    place.client.delete(foreign)
    delivery = open_delivery(place, spec)
    assert delivery.position is None
    transact(delivery, SCHEMA, 2, *(((k, "a"), 1) for k in range(rows)))
    assert len(_rows(place)) == rows
    delivery.end()


def _to_the_end(delivery: Delivery) -> None:
    transact(delivery, SCHEMA, 2, *HISTORY[0][1])
    delivery.end()


@pytest.mark.usefixtures("small_chunks")
def test_a_key_taken_between_commit_and_apply_waits(
    place: RedisPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = prepared(place, [BINDING], [SCHEMA])
    foreign, apply = f"{place.target('target')}:3", redis_guard.Guard.apply

    def late(own: redis_guard.Guard) -> None:
        place.client.set(foreign, "theirs")
        apply(own)

    delivery = open_delivery(place, spec)
    with monkeypatch.context() as patch:
        patch.setattr(redis_guard.Guard, "apply", late)
        with pytest.raises(WrongType):
            _to_the_end(delivery)
    place.kill()
    with pytest.raises(WrongType):
        open_delivery(place, spec)
    place.client.delete(foreign)
    delivery = open_delivery(place, spec)
    assert delivery.position == Position(2)
    assert _rows(place) == VIEWS[2]
    delivery.end()


def test_full_memory_and_long_values_change_nothing() -> None:
    with redis_server(FORGETFUL) as server, closing(RedisPlace(server)) as place:
        spec = prepared(place, [BINDING], [SCHEMA])
        delivery = open_delivery(place, spec)
        transact(delivery, SCHEMA, 2, ((1, "a"), 1))
        place.client.config_set("proto-max-bulk-len", 1 << 20)
        place.kill()
        delivery = open_delivery(place, spec)
        with pytest.raises(Determinate, match="raise its proto-max-bulk-len"):
            transact(delivery, SCHEMA, 3, ((2, "x" * (1 << 20)), 1))
        place.kill()
        place.client.config_set("maxmemory", 1 << 20)
        with pytest.raises(Determinate, match=r"OOM|maxmemory"):
            transact(open_delivery(place, spec), SCHEMA, 3, ((2, "b"), 1))
        place.kill()
        assert _rows(place) == {1: "a"}
        place.client.config_set("maxmemory", 0)
        delivery = open_delivery(place, spec)
        assert delivery.position == Position(2)
        transact(delivery, SCHEMA, 3, ((2, "b"), 1))
        assert _rows(place) == {1: "a", 2: "b"}
        delivery.end()
        place.client.config_set("maxmemory", 1 << 30)
        place.client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(InvalidUsage, match="removes rows when its memory is full"):
            prepared(place, [BINDING], [SCHEMA])


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


# ---- a server that forgets, and one that does not ------------------------------------------------


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
        _deliver_rest(place, spec)
        assert _rows(place) == VIEWS[4]


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
                return _rows(place) == rows
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
        assert _rows(place) == {1: "a"}


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
                assert _rows(place) == views[found]
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
        assert _rows(place) == views[final.position.time]


# ---- as a user writes it -------------------------------------------------------------------------


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
            return _rows(place) == rows

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
            assert _rows(place) == {1: "a"}
            place.config = {**place.config, "ssl certificate authority": stranger.ca}
            with pytest.raises(Determinate, match=r"cannot connect.*certificate"):
                prepared(place, [BINDING], [SCHEMA])
