"""What is Redis's own: chunks and their stage, keys, memory.

What it shares with all authoritative endpoints is in ``test_materialize_drivers``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa
import pytest
from redis import ConnectionError as NoConnection
from redis import RedisError
from redis.connection import Connection

from headwater.base.errors import Determinate, ExternalError, InvalidUsage
from headwater.base.ids import GlobalId
from headwater.materialize.checkpoint import Position, from_checkpoint, from_text
from headwater.materialize.definition import Binding
from headwater.materialize.delivery import Delivery
from headwater.materialize.drivers import redis_guard
from headwater.materialize.drivers.redis_guard import WrongType
from headwater.materialize.protocol import messages as m
from headwater.materialize.selection import FieldRefused
from headwater.testing.redis import FORGETFUL, redis_server
from tests.integration import redis_world
from tests.integration.materialize_places import (
    NAME,
    RedisPlace,
    asked,
    open_delivery,
    prepared,
    transact,
)
from tests.integration.redis_world import BINDING, HISTORY, SCHEMA, VIEWS, deliver_rest, rows_there

pytestmark = pytest.mark.server

place = redis_world.place
small_chunks = redis_world.small_chunks
LOG = Binding("orders", GlobalId(1), "log", ("k",), delta_updates=True)


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
                deliver_rest(place, spec)
            done = cut.count < event
        deliver_rest(place, spec)
        assert rows_there(place) == VIEWS[4], event
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
        seen.append((rows_there(place), place.client.hgetall(f"flow_checkpoints_v1:{NAME}")))
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
    assert rows_there(place) == VIEWS[2]
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
    assert len(rows_there(place)) == rows
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
    assert rows_there(place) == VIEWS[2]
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
        assert rows_there(place) == {1: "a"}
        place.client.config_set("maxmemory", 0)
        delivery = open_delivery(place, spec)
        assert delivery.position == Position(2)
        transact(delivery, SCHEMA, 3, ((2, "b"), 1))
        assert rows_there(place) == {1: "a", 2: "b"}
        delivery.end()
        place.client.config_set("maxmemory", 1 << 30)
        place.client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(InvalidUsage, match="removes rows when its memory is full"):
            prepared(place, [BINDING], [SCHEMA])
