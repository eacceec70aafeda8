"""Avro and Protobuf over a real broker, by SQL alone; the registry speaks Confluent's interface.

What bytes become is tested without any of this (``tests/unit/storage/test_avro.py``).
"""

from __future__ import annotations

import base64
import io
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2

from headwater.adapter.errors import AdapterError
from headwater.base.clock import SystemClock
from headwater.storage.registry import framed
from headwater.testing.kafka import Broker
from headwater.testing.schema_registry import SchemaRegistry, schema_registry
from headwater.testing.sql_server import SqlServer
from tests.integration.docs_pages import typed

pytestmark = pytest.mark.server

KEY = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]})
AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


def order(*more: Any) -> str:
    fields = [{"name": "id", "type": "long"}, {"name": "amount", "type": AMOUNT}, *more]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


FIRST = order()
SECOND = order({"name": "note", "type": ["null", "string"], "default": None})
BROKEN = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
)


def written(schema: str, value: Any) -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(json.loads(schema)), value)
    return stream.getvalue()


class Topic:
    """A topic whose producer registers what it writes."""

    def __init__(self, broker: Broker, registry: SchemaRegistry) -> None:
        self.name = f"t{uuid.uuid4().hex}"
        self._registry = registry
        self._producer = broker.producer()
        broker.create_topic(self.name)

    def send(self, schema: str, value: Any, key: Any = None) -> None:
        number = self._registry.register(f"{self.name}-value", schema)
        bytes_ = None if value is None else framed(number, written(schema, value))
        if key is None:
            self.raw(bytes_)
            return
        key_number = self._registry.register(f"{self.name}-key", KEY)
        self.raw(bytes_, framed(key_number, written(KEY, key)))

    def raw(self, value: bytes | None, key: bytes | None = None) -> None:
        self._producer.produce(self.name, value, key=key)
        self._producer.flush()


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry(credentials=("me", "hunter2")) as found:
        yield found


@pytest.fixture(scope="module")
def server(broker: Broker, registry: SchemaRegistry) -> Iterator[SqlServer]:
    with SqlServer(SystemClock()) as found:
        sql = found.session()
        sql("CREATE SECRET pw AS 'hunter2'")
        sql(f"CREATE CONNECTION kafka TO KAFKA (BROKER '{broker.bootstrap}')")
        sql(
            f"CREATE CONNECTION csr TO CONFLUENT SCHEMA REGISTRY "
            f"(URL '{registry.url}', USERNAME 'me', PASSWORD SECRET pw)"
        )
        yield found


def source(topic: Topic, name: str, rest: str) -> str:
    return f"CREATE SOURCE {name} FROM KAFKA CONNECTION kafka (TOPIC '{topic.name}') {rest}"


AVRO = "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION csr"
PROTOBUF = "FORMAT PROTOBUF USING CONFLUENT SCHEMA REGISTRY CONNECTION csr"


def test_a_topic_whose_schema_grows(
    broker: Broker, registry: SchemaRegistry, server: SqlServer
) -> None:
    topic = Topic(broker, registry)
    topic.send(FIRST, {"id": 1, "amount": Decimal("1.50")}, {"id": 1})
    topic.send(SECOND, {"id": 2, "amount": Decimal("2.00"), "note": "n"}, {"id": 2})
    sql = server.session()
    sql("VALIDATE CONNECTION csr")
    sql(source(topic, "every", f"{AVRO} INCLUDE OFFSET AS at ON ERROR SKIP"))
    sql(source(topic, "newest", f"{AVRO} ENVELOPE UPSERT"))
    server.ingestions.tick()
    rows = [(1, Decimal("1.50"), None), (2, Decimal("2.00"), "n")]
    assert sql("SELECT id, amount, note FROM every") == rows
    assert sql("SELECT * FROM newest") == rows
    # A column that came after the sources is of no row of theirs; a key without a value is gone.
    wider = order(
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "more", "type": "int"},
    )
    topic.send(wider, {"id": 1, "amount": Decimal("3.00"), "note": "w", "more": 5}, {"id": 1})
    topic.send(FIRST, None, {"id": 2})
    # What is no record is a dead letter, and of an upsert the value of its key.
    key_of_3 = framed(registry.register(f"{topic.name}-key", KEY), written(KEY, {"id": 3}))
    topic.raw(framed(4_000, b"\x02"), key_of_3)
    topic.raw(b"plain", key_of_3)
    server.ingestions.tick()
    assert sql("SELECT id, at FROM every") == [(1, 0), (1, 2), (2, 1)]
    reasons: dict[int, str] = dict(sql('SELECT "offset", reason FROM every_errors'))
    assert sorted(reasons) == [3, 4, 5]
    assert "no schema with id 4000" in reasons[4]
    assert "the first byte is 0x70, not 0" in reasons[5]
    with pytest.raises(AdapterError, match="the first byte is 0x70"):
        sql("SELECT * FROM newest")
    topic.send(FIRST, None, {"id": 3})
    server.ingestions.tick()
    assert sql("SELECT * FROM newest") == [(1, Decimal("3.00"), "w")], (
        "and goes with the next value"
    )
    sql("DROP SOURCE every")
    sql("DROP SOURCE newest")
    # docs/sources/formats.md, with this registry and this topic.
    ((_, page),) = typed("docs/sources/formats.md")
    page = page.replace("CONNECTION csr", "CONNECTION theirs").replace("'…'", "'hunter2'")
    page = page.replace("https://registry:8081", registry.url).replace("'headwater'", "'me'")
    sql(page.replace("TOPIC 'orders'", f"TOPIC '{topic.name}'"))
    sql("DROP SOURCE orders")


def test_a_registry_that_is_away_stalls_and_goes_on(
    broker: Broker, registry: SchemaRegistry, server: SqlServer
) -> None:
    topic = Topic(broker, registry)
    topic.send(FIRST, {"id": 1, "amount": Decimal(1)})
    sql = server.session()
    sql(source(topic, "away", AVRO))
    registry.away = True
    try:
        server.ingestions.tick()
        ((status, why),) = sql("SELECT status, detail FROM hw_sources WHERE name = 'away'")
        assert status == "stalled"
        assert f"schema registry at {registry.url}" in why
        assert "hunter2" not in why
    finally:
        registry.away = False
    server.ingestions.tick()
    assert sql("SELECT id, amount FROM away") == [(1, Decimal("1.00"))]
    assert sql("SELECT * FROM away_errors") == []
    # What can never be read stops nothing, and says where it parts.
    topic.send(BROKEN, {"id": "x"})
    topic.send(FIRST, {"id": 2, "amount": Decimal(2)})
    server.ingestions.tick()
    ((reason,),) = sql("SELECT reason FROM away_errors")
    assert f"subject '{topic.name}-value', schema id" in reason
    assert "column 'id': string cannot be read as long" in reason
    with pytest.raises(AdapterError, match="string cannot be read as long"):
        sql("SELECT id FROM away")
    sql("DROP SOURCE away")


MISTAKES = [
    ("FORMAT AVRO", "needs a schema"),
    ("FORMAT AVRO USING SCHEMA '{'", "an Avro schema is JSON"),
    ("FORMAT AVRO (SHEMA 'long')", "takes no option SHEMA"),
    ("FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION kafka", "goes to kafka"),
    ("FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION nobody", "does not exist"),
    (AVRO, 'has no subject ".*-value"'),
    ("FORMAT AVRO USING SCHEMA '\"long\"' ENVELOPE UPSERT", "needs a key"),
    ("FORMAT AVRO USING SCHEMA '\"long\"' ENVELOPE UPSERT (KEY (x))", "is among"),
    ("FORMAT AVRO USING SCHEMA '\"long\"' ENVELOPE DEBEZIUM", "before, after"),
    ("KEY FORMAT CSV VALUE FORMAT TEXT ENVELOPE UPSERT", "KEY FORMAT CSV is none"),
    ("KEY FORMAT TEXT VALUE FORMAT TEXT", "belongs to ENVELOPE UPSERT"),
    ("KEY FORMAT TEXT VALUE FORMAT TEXT ENVELOPE UPSERT (KEY (k))", "read by KEY FORMAT"),
    ("FORMAT PROTOBUF USING SCHEMA 'AA=='", "which message"),
]


def test_mistakes_are_named_with_their_remedy(
    broker: Broker, registry: SchemaRegistry, server: SqlServer
) -> None:
    topic, sql = Topic(broker, registry), server.session()
    for rest, why in MISTAKES:
        with pytest.raises(AdapterError, match=why):
            sql(source(topic, "x", rest))
    with pytest.raises(AdapterError, match="has the columns of its schema"):
        sql(source(topic, "x (a int)", AVRO))
    for options, why in (
        ("USERNAME 'u'", "needs the option URL"),
        ("URL 'ftp://h'", "begins with http"),
        ("URL 'http://u:p@h'", "no password in it"),
        ("URL 'http://h', PASSWORD 'p'", "PASSWORD is a secret"),
    ):
        with pytest.raises(AdapterError, match=why):
            sql(f"CREATE CONNECTION c2 TO CONFLUENT SCHEMA REGISTRY ({options})")
    sql("CREATE CONNECTION shut TO CONFLUENT SCHEMA REGISTRY (URL 'http://127.0.0.1:9')")
    with pytest.raises(AdapterError, match='connection "shut" cannot be made'):
        sql("VALIDATE CONNECTION shut")
    with pytest.raises(AdapterError, match='connection "shut" cannot be made'):
        sql(source(topic, "x", "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION shut"))


def test_keys_of_another_format(
    broker: Broker, registry: SchemaRegistry, server: SqlServer
) -> None:
    topic, sql = Topic(broker, registry), server.session()
    topic.raw(written(FIRST, {"id": 1, "amount": Decimal(1)}), b"a")
    topic.raw(written(FIRST, {"id": 2, "amount": Decimal(2)}), b"b")
    topic.raw(None, b"a")
    sql(
        source(
            topic,
            "keyed",
            f"KEY FORMAT TEXT VALUE FORMAT AVRO USING SCHEMA '{FIRST}' ENVELOPE UPSERT",
        )
    )
    sql(
        source(
            topic,
            "by_id",
            f"FORMAT AVRO (SCHEMA '{FIRST}') ENVELOPE UPSERT (KEY (id)) ON ERROR SKIP",
        )
    )
    server.ingestions.tick()
    assert sql("SELECT * FROM keyed") == [("b", 2, Decimal("2.00"))]
    assert sql("SELECT id FROM by_id") == [(1,), (2,)]
    assert sql("SHOW CREATE SOURCE keyed")
    sql("DROP SOURCE keyed")
    sql("DROP SOURCE by_id")


def item() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="item.proto", package="shop", syntax="proto3")
    fields = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="Item")
    for number, (name, type_) in enumerate(
        (("id", fields.TYPE_INT64), ("name", fields.TYPE_STRING)), 1
    ):
        message.field.add(name=name, number=number, type=type_, label=fields.LABEL_OPTIONAL)
    return file


def test_protobuf_with_and_without_a_registry(
    broker: Broker, registry: SchemaRegistry, server: SqlServer
) -> None:
    topic, sql = Topic(broker, registry), server.session()
    registered = base64.b64encode(item().SerializeToString()).decode()
    number = registry.register(f"{topic.name}-value", registered, "PROTOBUF")
    files = descriptor_pb2.FileDescriptorSet(file=[item()])
    schema = base64.b64encode(files.SerializeToString()).decode()
    for value in (framed(number, b"\x00\x08\x01\x12\x01a"), b"\x08\x02", b"\x08"):
        topic.raw(value)
    sql(source(topic, "framed", f"{PROTOBUF} ON ERROR SKIP"))
    inline = f"FORMAT PROTOBUF MESSAGE 'shop.Item' USING SCHEMA '{schema}' ON ERROR SKIP"
    sql(source(topic, "bare", inline))
    server.ingestions.tick()
    assert sql("SELECT * FROM framed") == [(1, "a")]
    assert sql('SELECT "offset" FROM framed_errors') == [(1,), (2,)]
    assert sql("SELECT * FROM bare") == [(2, "")]
    for rest, why in (
        (f"{PROTOBUF} ENVELOPE UPSERT", 'no subject ".*-key"'),
        (f"{PROTOBUF} ENVELOPE DEBEZIUM", "FORMAT JSON or AVRO"),
        (AVRO, "has a schema of PROTOBUF"),
        (inline.replace("shop.Item", "shop.Thing"), "no message 'shop.Thing', but shop.Item"),
    ):
        with pytest.raises(AdapterError, match=why):
            sql(source(topic, "x", rest))
    sql("DROP SOURCE framed")
    # The same as texts: what registries have, and what people have at hand.
    text = 'syntax = "proto3"; package shop; message Item { int64 id = 1; string name = 2; }'
    registry.register(f"{topic.name}-value", text, "PROTOBUF")
    sql(source(topic, "framed", f"{PROTOBUF} ON ERROR SKIP"))
    sql(source(topic, "said", inline.replace(schema, text)))
    server.ingestions.tick()
    assert sql("SELECT * FROM framed") == [(1, "a")]
    assert sql("SELECT * FROM said") == [(2, "")]
    with pytest.raises(AdapterError, match="line 1: expected ';', and found 'string'"):
        sql(source(topic, "x", inline.replace(schema, text.replace("1;", "1"))))
    sql("DROP SOURCE said")
    sql("DROP SOURCE framed")
    sql("DROP SOURCE bare")
