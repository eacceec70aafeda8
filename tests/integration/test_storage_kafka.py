"""A real broker: exact ranges, whatever a topic does, and what is wrong with it.

One broker for all of them (``make kafka``); each test has its own topics. What makes offsets gap
(transactions, aborts, compaction, deletions) is made by Kafka itself.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from random import Random
from types import SimpleNamespace

import pyarrow as pa
import pytest

from headwater.adapter.errors import AdapterError
from headwater.base.clock import ManualClock, SystemClock
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.storage.dead_letters import Policy
from headwater.storage.decode import Included
from headwater.storage.envelope import Plain, Upsert
from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.format import Bytes, Json, Text
from headwater.storage.ingestion import Ingestion
from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.outputs import Definition, Output
from headwater.storage.runner import Condition, Runner
from headwater.storage.source import HEADERS, TIMESTAMP
from headwater.storage.sources import kafka
from headwater.storage.sources.kafka import OUTPUT, Kafka
from headwater.testing.kafka import Broker
from headwater.testing.sql_server import SqlServer
from tests.integration.docs_pages import typed
from tests.integration.kafka_world import World, numbers, rows
from tests.unit.storage.conformance import CHECKS, Rig, flat

pytestmark = pytest.mark.server

SEED = 20261115
KEY = pa.schema([pa.field("k", pa.int64(), nullable=False)])
VALUE = pa.schema([pa.field("n", pa.int64())])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(broker: Broker, check: Callable[[Rig, Random], None]) -> None:
    print(f"seed {SEED}")
    check(World(broker), Random(SEED))


# ---- what a topic does -----------------------------------------------------------------------


def values(source: Kafka, lower: Offsets, upper: Offsets) -> list[bytes]:
    return [dict(payload)["value"] for _, _, _, payload in flat(source.read(lower, upper))]


def test_read_committed_stops_at_the_first_open_transaction(broker: Broker) -> None:
    world = World(broker, partitions=1)
    source, sees_all = world.source(), world.source(isolation="read_uncommitted")
    before = world.produce(world.plain, 0, 3)
    world.transactional.begin_transaction()
    inside = world.produce(world.transactional, 0, 2)
    after = world.produce(world.plain, 0, 2)
    open_ = source.probe()
    assert open_["0"] == 3
    assert values(source, NOTHING, open_) == before
    assert sees_all.probe()["0"] == 7
    assert values(sees_all, NOTHING, sees_all.probe()) == before + inside + after
    world.transactional.abort_transaction()
    closed = awaited(source, 8)
    assert values(source, open_, closed) == after, "what was aborted was never there"
    world.transactional.begin_transaction()
    world.produce(world.transactional, 0, 1)
    world.transactional.abort_transaction()
    gap = awaited(source, 10)
    assert values(source, closed, gap) == [], "a range may have nothing but gaps in it"
    last = world.produce(world.plain, 0, 1)
    assert values(source, gap, source.probe()) == last
    source.close()
    sees_all.close()


def awaited(source: Kafka, offset: int) -> Offsets:
    """Return the probe at which the end of a transaction is in the log; it is not at once."""
    while source.probe()["0"] < offset:
        pass
    return source.probe()


def test_a_compacted_topic_is_read_to_its_end(broker: Broker) -> None:
    topic = f"t{next(numbers)}"
    compacting = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    broker.create_topic(topic, 1, compacting)
    producer = broker.producer()
    source = Kafka({"bootstrap.servers": broker.bootstrap}, topic)
    rounds = 0
    while True:  # Until Kafka has compacted something: when it does is its own business.
        for key in (b"a", b"b"):
            producer.produce(topic, b"%d" % rounds, key=key)
        producer.flush()
        rounds += 1
        upper = source.probe()
        found = flat(source.read(NOTHING, upper))
        if len(found) < upper["0"]:
            break
    newest = {dict(payload)["key"]: dict(payload)["value"] for *_, payload in found}
    assert newest == {b"a": b"%d" % (rounds - 1), b"b": b"%d" % (rounds - 1)}
    middle = Offsets({**upper, "0": upper["0"] - 1})
    assert values(source, middle, upper) == [b"%d" % (rounds - 1)]
    source.close()


def test_a_topic_made_again_is_another_topic(broker: Broker) -> None:
    world = World(broker, partitions=1)
    world.produce(world.plain, 0, 3)
    source = world.source()
    durable = source.probe()
    broker.delete_topic(world.topic)
    with pytest.raises(TransientError, match="does not exist; create it"):
        source.probe()
    broker.create_topic(world.topic, 1)
    world.produce(broker.producer(), 0, 5)  # More than there was: offsets alone would not tell.
    with pytest.raises(DefiniteError, match=r"made again; drop the source and create it again"):
        source.probe()
    with pytest.raises(DefiniteError, match="made again"):
        flat(source.read(durable, Offsets({**durable, "0": 5})))
    restarted = world.source()
    restarted.commit(durable)  # What a restart knows is what is durable.
    with pytest.raises(DefiniteError, match="made again"):
        restarted.probe()
    source.close()
    restarted.close()


def test_offsets_that_were_deleted_are_a_definite_error(broker: Broker) -> None:
    from confluent_kafka import TopicPartition

    world = World(broker, partitions=1)
    world.produce(world.plain, 0, 10)
    source = world.source()
    upper = source.probe()
    broker_admin = broker.admin()
    place = TopicPartition(world.topic, 0, 6)
    broker_admin.delete_records([place])[place].result()
    assert values(source, NOTHING, upper) == [b"6", b"7", b"8", b"9"], "the snapshot"
    lower = Offsets({**upper, "0": 3})
    with pytest.raises(DefiniteError, match=r"from offset 3 on were deleted .* longer retention"):
        flat(source.read(lower, upper))
    source.close()


def test_the_groups_offsets_are_what_is_durable(broker: Broker) -> None:
    from confluent_kafka import Consumer, TopicPartition

    world = World(broker)
    world.produce(world.plain, 0, 4)
    world.produce(world.plain, 1, 2)
    client, clock = memory_client()
    source = world.source(name="lag")
    ingestion = Ingestion(client, definition("lag", Plain(Text())), source)
    clock.set(1_000)
    assert ingestion.tick(clock.now_ms())
    tool = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "headwater-lag"})
    places = [TopicPartition(world.topic, partition) for partition in range(2)]
    while [place.offset for place in tool.committed(places, timeout=10)] != [4, 2]:
        pass  # In the background: a test that waits for ever has found a source that commits not.
    tool.close()
    ingestion.stop()


# ---- into collections ------------------------------------------------------------------------


def memory_client() -> tuple[Client, ManualClock]:
    clock = ManualClock(1)
    blob, log = MemoryBlob(), MemoryConsensus()
    return open_location(blob=blob, consensus=log, clock=clock, layouts=LAYOUTS), clock


def definition(name: str, envelope: Plain | Upsert) -> Definition:
    return Definition(name, (Output(OUTPUT, name, envelope),))


def test_columns_of_the_message_itself(broker: Broker) -> None:
    world = World(broker, partitions=1)
    world.plain.produce(
        world.topic, b"v", key=b"k", timestamp=1_700_000_000_123, headers=[("h", b"1"), ("h", None)]
    )
    world.plain.produce(world.topic, b"w", key=b"\xff", timestamp=1_700_000_000_123)
    world.plain.flush()
    included = (
        Included("key", "k", pa.string()),
        Included("partition", "p", pa.int32()),
        Included("offset", "o"),
        Included("timestamp", "at"),
        Included("headers", "h"),
    )
    client, clock = memory_client()
    ingestion = Ingestion(
        client,
        definition("own", Plain(Text(), Policy.SKIP, included=included)),
        world.source(include=(TIMESTAMP, HEADERS)),
    )
    clock.set(1_000)
    assert ingestion.tick(clock.now_ms())
    (row,) = client.reader("own").snapshot().to_table().to_pylist()
    assert row["at"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    row.pop("at")
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert row == {"text": "v", "k": "k", "p": 0, "o": 0, "h": headers, "__diff": 1}
    (letter,) = client.reader("own/dead_letters").snapshot().to_table().to_pylist()
    assert (letter["partition"], letter["offset"], letter["value"]) == ("0", 1, b"w")
    assert "key" in letter["reason"]
    ingestion.stop()


def test_an_upsert_over_a_restart(broker: Broker) -> None:
    world = World(broker, partitions=1)
    envelope = Upsert(Json(VALUE), ("k",), key_format=Json(KEY))
    client, clock = memory_client()
    for round_ in range(3):
        for key in range(4):
            value = None if (key + round_) % 4 == 0 else b'{"n": %d}' % (10 * round_ + key)
            world.plain.produce(world.topic, value, key=b'{"k": %d}' % key)
        world.plain.flush()
        ingestion = Ingestion(client, definition("upserted", envelope), world.source())
        clock.set(1_000 * (round_ + 1))
        assert ingestion.tick(clock.now_ms())
        assert ingestion.statistics.messages == 4, "nothing durable is read again"
        ingestion.stop()
    assert rows(client, "upserted") == {(0, 20): 1, (1, 21): 1, (3, 23): 1}


# ---- bad input and outages -------------------------------------------------------------------


def stalled(runner: Runner) -> bool:
    assert runner.status.condition in {Condition.STALLED, Condition.RUNNING}
    return runner.status.condition is Condition.STALLED


def test_an_address_without_a_broker_stalls_with_the_reason(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "REQUEST_TIMEOUT_S", 1.0)
    client, clock = memory_client()
    addresses = iter(["127.0.0.1:1", broker.bootstrap])
    world = World(broker, partitions=1)
    world.produce(world.plain, 0, 2)

    def start() -> Ingestion:
        source = Kafka({"bootstrap.servers": next(addresses)}, world.topic)
        return Ingestion(client, definition("late", Plain(Text())), source)

    runner = Runner(start, clock)
    clock.set(1_000)
    assert runner.once() is not None
    assert stalled(runner)
    assert "no broker answers at 127.0.0.1:1: " in runner.status.why
    assert "Connection refused" in runner.status.why
    assert runner.once() is not None
    assert not stalled(runner)
    assert sum(rows(client, "late").values()) == 2
    assert runner.ingestion is not None
    runner.ingestion.stop()


def test_a_partition_without_offsets_is_waited_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a broker that has just come back: no error, and no offset either."""
    world = World(broker, partitions=1)
    source = world.source()
    asked = source._asked
    lost = SimpleNamespace(offset=-1001)
    monkeypatch.setattr(
        source, "_asked", lambda future: lost if hasattr(asked(future), "offset") else asked(future)
    )
    for ask in (source.probe, lambda: source.estimate(Offsets({"0": 1}))):
        with pytest.raises(TransientError, match=r"partition 0 of topic .* has no offsets yet"):
            ask()
    source.close()


def test_a_topic_that_is_not_there_yet_is_waited_for(broker: Broker) -> None:
    client, clock = memory_client()
    topic = f"t{next(numbers)}"

    def start() -> Ingestion:
        source = Kafka({"bootstrap.servers": broker.bootstrap}, topic)
        return Ingestion(client, definition("early", Plain(Bytes())), source)

    runner = Runner(start, clock)
    clock.set(1_000)
    runner.once()
    assert stalled(runner)
    assert f"topic {topic!r} does not exist; create it" in runner.status.why
    broker.create_topic(topic)
    clock.set(2_000)
    runner.once()
    assert not stalled(runner)
    assert runner.ingestion is not None
    runner.ingestion.stop()


def test_pieces_of_a_range_are_the_range(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As tasks read them: each by a process that has nothing but a copy of the source."""
    from confluent_kafka import TopicPartition

    monkeypatch.setattr(kafka, "PIECE_MESSAGES", 4)
    world = World(broker)
    world.produce(world.plain, 0, 11)
    world.produce(world.plain, 1, 5)
    admin, place = broker.admin(), TopicPartition(world.topic, 0, 6)
    admin.delete_records([place])[place].result()
    source = world.source()
    upper = source.probe()
    whole = flat(source.read(NOTHING, upper))
    pieces = source.pieces(NOTHING, upper)
    assert len(pieces) == 4
    assert sum(piece.messages for piece in pieces) == len(whole) == 10
    found = []
    for piece in pieces:
        copied = pickle.loads(pickle.dumps(source))
        found += flat(copied.read(piece.lower, piece.upper))
        copied.close()
    assert sorted(found) == sorted(whole)
    source.close()


# ---- by SQL alone ----------------------------------------------------------------------------


def test_a_topic_by_sql(broker: Broker) -> None:
    world = World(broker, partitions=1)
    for key, value in ((1, b'{"v": "one"}'), (2, b'{"v": "two"}'), (1, None), (3, b"bad")):
        headers = [("h", b"x"), ("h", b"\xff")]
        world.plain.produce(
            world.topic, value, key=b'{"k": %d}' % key, timestamp=1_700_000_000_000, headers=headers
        )
    world.plain.flush()
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(f"CREATE CONNECTION kafka TO KAFKA (BROKER '{broker.bootstrap}')")
        sql("VALIDATE CONNECTION kafka")
        sql(
            f"CREATE SOURCE newest (k bigint, v text) FROM KAFKA CONNECTION kafka "
            f"(TOPIC '{world.topic}') FORMAT JSON INCLUDE OFFSET AS at "
            "ENVELOPE UPSERT (KEY (k)) ON ERROR SKIP"
        )
        sql(
            f"CREATE SOURCE every FROM KAFKA CONNECTION kafka (TOPIC '{world.topic}') FORMAT TEXT "
            "INCLUDE KEY, PARTITION AS p, OFFSET AS o, TIMESTAMP AS at, HEADERS ON ERROR SKIP"
        )
        server.ingestions.tick()
        assert sql("SELECT k, v, at FROM newest") == [(2, "two", 1)]
        first = "SELECT text, key, p, o, at, headers FROM every WHERE o = 0"
        ((text, key, p, o, at, headers),) = sql(first)
        assert (text, key, p, o) == ('{"v": "one"}', '{"k": 1}', 0, 0)
        assert at.timestamp() == 1_700_000_000
        assert headers == '[{"key":"h","value":"x"},{"key":"h","value":"\\\\xff"}]'
        assert sql('SELECT partition, "offset" FROM newest_errors') == [("0", 3)]
        progress: dict[str, int] = dict(sql('SELECT partition, "offset" FROM every_progress'))
        assert progress.pop("0") == 4
        assert list(progress.values()) == [1], "and the topic itself, by its id"
        # More partitions upstream: the same collection, further on.
        where = "SELECT object_id, since, upper FROM hw_frontiers WHERE name = 'every'"
        ((id_, since, upper),) = sql(where)
        world.more_partitions()
        world.plain.produce(world.topic, b"later", partition=1)
        world.plain.flush()
        server.ingestions.tick()
        assert sql("SELECT text, o FROM every WHERE p = 1") == [("later", 0)]
        ((same, since_now, upper_now),) = sql(where)
        assert same == id_
        assert since_now >= since
        assert upper_now > upper
        # docs/sources/kafka.md, with this broker and a topic of its own.
        ((_, page),) = typed("docs/sources/kafka.md")
        secured = re.compile(r"BROKER 'broker:9093',.*?broker_password\)", re.DOTALL)
        page = secured.sub(f"BROKER '{broker.bootstrap}')", page)
        page = page.replace("CONNECTION kafka ", "CONNECTION theirs ")
        sql(page.replace("TOPIC 'orders'", f"TOPIC '{World(broker, partitions=1).topic}'"))
        assert sql("SELECT name FROM hw_sources WHERE name = 'orders'") == [("orders",)]
        for refused in (
            f"(TOPIC '{world.topic}') FORMAT JSON INCLUDE COLOUR",
            f"(TOPIC '{world.topic}') FORMAT TEXT INCLUDE KEY AS text",
            f"(TOPIC '{world.topic}', ISOLATION LEVEL 'none') FORMAT TEXT",
        ):
            with pytest.raises(AdapterError):
                sql(f"CREATE SOURCE x FROM KAFKA CONNECTION kafka {refused}")
