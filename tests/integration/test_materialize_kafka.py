"""Into Kafka, exactly once: a driver that dies before or after its n-th call of the client."""

from __future__ import annotations

import dataclasses
import itertools
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from headwater.base.errors import Determinate, InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection.schema import Column, arrow_schema
from headwater.collection.types import scalar
from headwater.materialize.checkpoint import Position, from_checkpoint, from_text
from headwater.materialize.combine import Bound
from headwater.materialize.definition import (
    Binding,
    Definition,
    Endpoint,
    delivered_schema,
    to_spec,
    to_validate,
)
from headwater.materialize.delivery import Delivery, Transaction
from headwater.materialize.drivers import kafka
from headwater.materialize.drivers.kafka_progress import last_checkpoint, progress_topic
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.resources import resource_config
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.evolution import updates_schema
from headwater.testing.kafka import Broker
from tests.integration.materialize_places import FULL, Change, Memory

pytestmark = pytest.mark.server

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])


class Died(Exception):
    """The process is gone."""


class World:
    """One materialization into one topic."""

    def __init__(self, broker: Broker, schema: pa.Schema = SCHEMA, **binding: Any) -> None:
        self.schema = schema
        self.name = f"m{uuid.uuid4().hex[:8]}"
        self.config = {"broker": broker.bootstrap}
        self.binding = Binding("orders", GlobalId(1), f"t-{self.name}", ("k",), **binding)
        self.delivered = delivered_schema(self.binding, schema, hard_delete=True)
        self.bound = Bound(0, self.binding, "orders.v0", self.delivered)
        self.drivers: list[kafka.KafkaDriver] = []

    def driver(self) -> kafka.KafkaDriver:
        self.drivers.append(kafka.KafkaDriver())
        return self.drivers[-1]

    def close(self) -> None:
        for driver in self.drivers:
            driver.close()

    def asked(self, driver: kafka.KafkaDriver) -> tuple[Definition, m.Validate]:
        endpoint = Endpoint("kafka", self.config)
        definition = Definition(self.name, "", endpoint, (self.binding,), ())
        (said,) = driver.respond(m.Spec())
        assert isinstance(said, m.Specified)
        delta = self.binding.delta_updates
        resource = resource_config(said, self.binding.target, delta_updates=delta)
        return definition, to_validate(definition, [resource], [self.delivered])

    def prepared(self) -> MaterializationSpec:
        driver = self.driver()
        definition, question = self.asked(driver)
        (answer,) = driver.respond(question)
        assert isinstance(answer, m.Validated)
        spec = to_spec(definition, question, answer)
        (applied,) = driver.respond(m.Apply(spec, "v1"))
        assert isinstance(applied, m.Applied)
        assert f"create topic {self.binding.target}" in applied.action_description
        (again,) = driver.respond(m.Apply(spec, "v1"))
        assert again == m.Applied()
        return spec

    def opened(self, spec: MaterializationSpec) -> Delivery:
        return Delivery(InProcess(self.driver()), spec, "v1", FULL, Memory(), source=self.name)

    def transact(self, delivery: Delivery, upper: int, *changed: Change) -> None:
        columns: dict[str, list[Any]] = {
            name: [row[at] for row, _ in changed] for at, name in enumerate(self.schema.names)
        }
        columns |= {"__time": [upper - 1] * len(changed), "__diff": [d for _, d in changed]}
        updates = pa.table(columns, schema=updates_schema(self.schema))
        stores = self.bound.combined(updates, upper, FULL).stores(())
        delivery.transact(Transaction.of([stores], Position(upper)))

    def messages(self) -> list[tuple[Any, Any]]:
        """Return what a reader of committed messages sees, partition after partition."""
        own = {
            "group.id": self.name,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
        }
        consumer = Consumer({"bootstrap.servers": self.config["broker"], "log_level": 0, **own})
        try:
            topic = self.binding.target
            known = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            found: list[tuple[Any, Any]] = []
            for number in known:
                consumer.assign([TopicPartition(topic, number, 0)])
                found += _to_the_end(consumer)
            return found
        finally:
            consumer.close()

    def rows(self) -> dict[int, str]:
        """Return the newest value of each key."""
        newest = {key["k"]: value for key, value in self.messages()}
        return {k: value["v"] for k, value in newest.items() if value is not None}

    @property
    def position(self) -> Position | None:
        """Where the broker says that we stand."""
        options = {"bootstrap.servers": self.config["broker"]}
        text = last_checkpoint(options, progress_topic(self.name))
        return None if text is None else from_checkpoint(from_text(text), self.name)


def _to_the_end(consumer: Consumer) -> Iterator[tuple[Any, Any]]:
    while True:
        message = consumer.poll(60.0)
        assert message is not None, "the broker is silent"
        if message.error() is None:
            value = message.value()
            yield json.loads(message.key()), None if value is None else json.loads(value)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            return
        else:
            raise AssertionError(message.error())


@pytest.fixture
def make(broker: Broker) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**binding: Any) -> World:
        made.append(World(broker, **binding))
        return made[-1]

    yield make
    for world in made:
        world.close()


class Calls:
    """Counts the moments before and after each call, and lets one of them be the last."""

    def __init__(self) -> None:
        self.left = -1

    def passed(self) -> None:
        if self.left == 0:
            raise Died
        self.left -= 1

    def dying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            self.passed()
            answer = call(*arguments, **named)
            self.passed()
            return answer

        return called


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls()

    class Dying(Producer):  # type: ignore[misc]
        init_transactions = made.dying(Producer.init_transactions)
        begin_transaction = made.dying(Producer.begin_transaction)
        produce = made.dying(Producer.produce)
        commit_transaction = made.dying(Producer.commit_transaction)

    monkeypatch.setattr(kafka, "Producer", Dying)
    return made


def _story(upper: int) -> tuple[list[Change], dict[int, str]]:
    """Return what changes just before a time, and what is there then: one key comes, one changes,
    one goes, for ever."""
    changed: list[Change] = [((upper, f"new {upper}"), 1)]
    if upper > 1:
        changed += [((upper - 1, f"new {upper - 1}"), -1), ((upper - 1, f"old {upper}"), 1)]
    if upper > 2:
        changed += [((upper - 2, f"old {upper - 1}"), -1)]
    there = {upper: f"new {upper}"} | ({upper - 1: f"old {upper}"} if upper > 1 else {})
    return changed, there if upper else {}


def _session(world: World, spec: MaterializationSpec, transactions: int) -> int:
    """Deliver from where we stand, which must be what is there; return where we stand then."""
    delivery = world.opened(spec)
    reached = 0 if delivery.position is None else delivery.position.time
    assert world.rows() == _story(reached)[1]
    for upper in range(reached + 1, reached + 1 + transactions):
        world.transact(delivery, upper, *_story(upper)[0])
    return reached + transactions


def test_killed_before_and_after_the_nth_call(make: Callable[..., World], calls: Calls) -> None:
    world = make()
    spec = world.prepared()
    died = 0
    for number in itertools.count():
        calls.left = number
        try:
            _session(world, spec, 1)
            break
        except Died:
            died += 1
            world.drivers[-1].close()
            calls.left = -1
    calls.left = -1
    reached = _session(world, spec, 1)
    assert world.position == Position(reached)
    assert world.rows() == _story(reached)[1]
    assert died > 8, "there is something to die at"


def test_a_zombie_is_fenced(make: Callable[..., World]) -> None:
    """It has written, and not committed; whoever opens next takes that away for good."""
    world = make()
    spec = world.prepared()
    zombie = world.opened(spec)
    world.transact(zombie, 1, ((1, "a"), 1))
    successor = world.opened(spec)
    assert successor.position == Position(1)
    with pytest.raises(kafka.Fenced, match="opened by another session"):
        world.transact(zombie, 2, ((2, "of the zombie"), 1))
    world.transact(successor, 2, ((2, "b"), 1))
    assert world.rows() == {1: "a", 2: "b"}


def test_delta_updates_are_documents_with_their_op(make: Callable[..., World]) -> None:
    json = arrow_schema([Column("j", scalar("jsonb"))])
    world = make(schema=pa.schema([*SCHEMA, *json]), delta_updates=True)
    delivery = world.opened(world.prepared())
    world.transact(delivery, 1, ((1, "a", '{"x": "y"}'), 1), ((2, None, None), 1))
    world.transact(delivery, 2, ((1, "a", '{"x": "y"}'), -1))
    found = sorted(world.messages(), key=repr)
    assert found == [
        ({"k": 1}, {"k": 1, "_meta/op": "c", "j": {"x": "y"}, "v": "a"}),
        ({"k": 1}, {"k": 1, "_meta/op": "d", "j": {"x": "y"}, "v": "a"}),
        ({"k": 2}, {"k": 2, "_meta/op": "c", "j": None, "v": None}),
    ]


def test_a_backfill_empties_the_topic(make: Callable[..., World]) -> None:
    world = make()
    spec = world.prepared()
    delivery = world.opened(spec)
    world.transact(delivery, 1, ((1, "a"), 1))
    (binding,) = spec.bindings
    anew = dataclasses.replace(spec, bindings=(dataclasses.replace(binding, backfill=1),))
    before: dict[str, Any] = {"last_materialization": spec, "last_version": "v1"}
    (dry,) = world.driver().respond(m.Apply(anew, "v2", dry_run=True, **before))
    assert dry == m.Applied(f"empty topic {world.binding.target}")
    assert world.rows() == {1: "a"}
    list(world.driver().respond(m.Apply(anew, "v2", **before)))
    assert world.messages() == []
    with pytest.raises(kafka.Fenced):
        world.transact(delivery, 2, ((2, "late"), 1))


def test_what_cannot_be_is_refused(make: Callable[..., World]) -> None:
    world = make(reduce=(("v", "lastWriteWins"),))
    with closing(kafka.KafkaDriver()) as driver:
        _, question = world.asked(driver)
        with pytest.raises(InvalidUsage, match="add DELTA UPDATES"):
            list(driver.respond(question))
    world.config = {"broker": "127.0.0.1:1"}
    with closing(kafka.KafkaDriver()) as driver:
        _, question = world.asked(driver)
        with pytest.raises(Determinate, match="cannot ask for the topics of Kafka"):
            list(driver.respond(question))
