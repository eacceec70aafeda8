"""Sources to durable: messages and changes per CPU-second, beside the raw client in the same run.

Targets: Kafka JSON 100 k messages, PostgreSQL's log 50 k changes, Debezium JSON 200 k decoded, each
per CPU-second *of the ingesting process* (the broker and the database have their own); a snapshot
at half the speed of ``COPY``. Everything ends durable in a location on this disk, and is counted.

*Raw* is what the client library alone gives: messages consumed and dropped, log messages received
and dropped, rows of COPY received and dropped, ``json.loads`` or fastavro on the same bytes.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from measure import Cost, begin, quick, scratch, show

from headwater.base.clock import SystemClock
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import open_location
from headwater.persist.evolution import TIME
from headwater.storage.avro import Avro, Subject
from headwater.storage.envelope import Debezium, Envelope, Plain, Rows
from headwater.storage.format import Json
from headwater.storage.ingestion import Ingestion
from headwater.storage.outputs import Definition, Output
from headwater.storage.registry import HEADER_BYTES, Registry, framed
from headwater.storage.source import OFFSET, PARTITION, Source
from headwater.storage.sources.pg_copy import _blocks
from headwater.storage.sources.pg_stream import Stream
from headwater.storage.sources.postgres import LOG, Postgres, discover
from headwater.testing.kafka import Broker, kafka_broker, missing
from headwater.testing.schema_registry import schema_registry
from headwater.testing.servers import postgres_server

ORDER = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("customer", pa.int64()),
        pa.field("amount", pa.float64()),
        pa.field("status", pa.string()),
        pa.field("note", pa.string()),
    ]
)
"""Five columns, about 100 bytes as JSON."""

AT_ONCE = 10_000


def order(number: int) -> dict[str, object]:
    status = ("new", "paid", "sent")[number % 3]
    return {
        "id": number,
        "customer": number * 7919 % 100_003,
        "amount": number % 9_973 / 100,
        "status": status,
        "note": f"order number {number}",
    }


@contextmanager
def own_cost() -> Iterator[Cost]:
    """Measure a block of this process alone, all of its threads; servers have their own CPU."""
    found = Cost()
    cpu, wall = time.process_time(), time.perf_counter()
    yield found
    found.wall_s, found.cpu_s = time.perf_counter() - wall, time.process_time() - cpu


def ingested(folder: Path, source: Source, outputs: dict[str, Envelope], rows: int) -> Cost:
    """Ingest all there is in one range; return what it cost, once it was found to be there."""
    definition = Definition("bench", tuple(Output(n, n, e) for n, e in outputs.items()))
    with open_location(folder, layouts=LAYOUTS) as client:
        ingestion = Ingestion(client, definition, source)
        with own_cost() as spent:
            assert ingestion.tick(SystemClock().now_ms())
        found = sum(
            table.num_rows for name in outputs for table in client.reader(name).snapshot().updates()
        )
        assert found == rows, f"{found} rows, not {rows}"
        ingestion.stop()
    return spent


def line(name: str, count: int, spent: Cost, raw: Cost | None = None) -> list[object]:
    rate = count / spent.cpu_s
    share = "" if raw is None else f"{raw.cpu_s / spent.cpu_s:.2f}"
    wall_share = "" if raw is None else f"{raw.wall_s / spent.wall_s:.2f}"
    return [name, f"{rate / 1e3:,.0f}", f"{count / spent.wall_s / 1e3:,.0f}", share, wall_share]


def stamped(values: Sequence[bytes]) -> Iterator[pa.Table]:
    """Yield messages as an envelope gets them, some at once."""
    for first in range(0, len(values), AT_ONCE):
        yield pa.table(
            {
                PARTITION: pa.repeat(pa.scalar("0"), AT_ONCE),
                OFFSET: range(first, first + AT_ONCE),
                "key": pa.nulls(AT_ONCE, pa.binary()),
                "value": pa.array(values[first : first + AT_ONCE], pa.binary()),
                TIME: pa.repeat(pa.scalar(1, pa.int64()), AT_ONCE),
            }
        )


# ---- Debezium --------------------------------------------------------------------------------


def debezium(count: int) -> list[list[object]]:
    values = []
    for number in range(count):
        before, after = order(number), {**order(number), "status": "sent"}
        source = {"version": "2.7", "connector": "postgresql", "ts_ms": number, "table": "orders"}
        change = {"before": before, "after": after, "source": source, "op": "u", "ts_ms": number}
        values.append(json.dumps(change).encode())
    batches = list(stamped(values))
    with own_cost() as raw:
        for value in values:
            json.loads(value)
    envelope = Debezium(Json(ORDER))
    with own_cost() as spent:
        updates = sum(envelope.changes("o", batch).updates.num_rows for batch in batches)
    assert updates == 2 * count
    return [
        line("Debezium JSON: json.loads", count, raw),
        line("Debezium JSON decoded into updates (target 200)", count, spent, raw),
    ]


# ---- Avro ------------------------------------------------------------------------------------

ORDER_AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": ["null", "long"], "default": None},
            {"name": "amount", "type": ["null", "double"], "default": None},
            {"name": "status", "type": ["null", "string"], "default": None},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)


def avro(count: int) -> list[list[object]]:
    """Decode what a registry frames: written with the reader's schema, and with an older one."""
    older = json.loads(ORDER_AVRO)
    older["fields"].pop()
    found = []
    with schema_registry() as registry:
        for name, text in (("", ORDER_AVRO), (" of an older writer", json.dumps(older))):
            number, schema = registry.register("orders-value", text), parse_schema(json.loads(text))
            values = []
            for at in range(count):
                stream = io.BytesIO()
                schemaless_writer(stream, schema, order(at))
                values.append(framed(number, stream.getvalue()))
            with own_cost() as raw:
                for value in values:
                    schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), schema, None)
            subject = Subject(Registry(registry.url), "orders-value")
            envelope = Plain(Avro((ORDER_AVRO,), subject))
            batches = list(stamped(values))
            with own_cost() as spent:
                updates = sum(envelope.changes("o", batch).updates.num_rows for batch in batches)
            assert updates == count
            found += [
                line(f"Avro{name}: schemaless_reader", count, raw),
                line(f"Avro{name} decoded into updates", count, spent, raw),
            ]
    return found


# ---- Kafka -----------------------------------------------------------------------------------


def kafka(folder: Path, broker: Broker, count: int) -> list[list[object]]:
    from confluent_kafka import Consumer, TopicPartition

    from headwater.storage.sources.kafka import OUTPUT, Kafka

    broker.create_topic("orders", 4)
    producer = broker.producer(linger_ms=50, queue_buffering_max_messages=count + 1)
    for number in range(count):
        value = json.dumps(order(number)).encode()
        producer.produce("orders", value, key=b"%d" % number, partition=number % 4)
        producer.poll(0)
    producer.flush()
    address = {"bootstrap.servers": broker.bootstrap}
    consumer = Consumer({**address, "group.id": "raw", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", partition, 0) for partition in range(4)])
    with own_cost() as raw:
        left = count
        while left:
            for message in consumer.consume(AT_ONCE, 0.1):
                message.value()
                left -= 1
    consumer.close()
    source = Kafka(address, "orders")
    spent = ingested(folder / "kafka", source, {OUTPUT: Plain(Json(ORDER))}, count)
    return [
        line("Kafka: consumed and dropped", count, raw),
        line("Kafka JSON to durable (target 100)", count, spent, raw),
    ]


# ---- PostgreSQL ------------------------------------------------------------------------------


def _table(dsn: str, rows: int) -> dict[str, pa.Schema]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, amount float8, "
            "status text, note text)"
        )
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        connection.execute(
            "INSERT INTO orders SELECT n, n * 7919 % 100003, n % 9973 / 100.0, 'new', "
            f"'order number ' || n FROM generate_series(1::bigint, {rows}) n"
        )
        connection.execute("CREATE PUBLICATION bench FOR TABLE orders")
        connection.execute("VACUUM ANALYZE orders")
    return discover(dsn, "bench")


def postgres(folder: Path, dsn: str, rows: int, changed: int) -> list[list[object]]:
    tables = _table(dsn, rows)
    envelopes: dict[str, Envelope] = {name: Rows(schema) for name, schema in tables.items()}
    with psycopg.connect(dsn, autocommit=True) as connection:
        command = b"COPY (SELECT id, customer, amount, status, note FROM orders) TO STDOUT"
        command += b" (FORMAT csv)"
        with own_cost() as raw_copy:
            assert sum(map(len, _blocks(connection.pgconn, command))) == rows
    source = Postgres(dsn, "bench", "bench", tables)
    copied = ingested(folder / "snapshot", source, envelopes, rows)
    # Changes: the second range of another source, whose first is not counted.
    source = Postgres(dsn, "bench", "changes", tables)
    first = source.probe()
    with psycopg.connect(dsn, autocommit=True) as connection:
        for low in range(0, changed, 1_000):
            connection.execute(
                f"UPDATE orders SET status = 'paid' WHERE id > {low} AND id <= {low + 1_000}"
            )
    last = source.probe()
    stream = Stream(dsn, "changes", "bench", first[LOG])
    with own_cost() as raw_stream:
        messages = sum(1 for _ in stream.read(last[LOG]))
    stream.close()
    assert messages >= changed
    definition = Definition(
        "cdc", (Output("public.orders", "orders", Rows(tables["public.orders"])),)
    )
    with open_location(folder / "cdc", layouts=LAYOUTS) as client:
        probes = iter([first, last])
        source.probe = lambda: next(probes)  # type: ignore[method-assign]
        ingestion = Ingestion(client, definition, source)
        assert ingestion.tick(SystemClock().now_ms())
        before = ingestion.statistics.updates
        with own_cost() as spent:
            assert ingestion.tick(SystemClock().now_ms() + 1)
        assert ingestion.statistics.updates - before == 2 * changed
        ingestion.stop()
    return [
        line("PostgreSQL's log: received and dropped", changed, raw_stream),
        line("PostgreSQL's log to durable (target 50)", changed, spent, raw_stream),
        line("COPY: received and dropped", rows, raw_copy),
        line("snapshot to durable (target 0.50 of COPY)", rows, copied, raw_copy),
    ]


def main() -> None:
    small = quick()
    count = 100_000 if small else 1_000_000
    begin(f"Sources: {count:,} messages, changes and rows")
    with scratch() as folder:
        found = debezium(count) + avro(count)
        if missing() is None:
            with kafka_broker() as broker:
                found += kafka(folder, broker, count)
        else:
            print(missing())
        with postgres_server(logical=True) as dsn:
            found += postgres(folder, dsn, 3 * count, count)
    show(
        "Thousands per CPU-second of the ingesting process, and per second",
        ["", "k/CPU-s", "k/s", "x raw CPU", "x raw"],
        found,
    )


if __name__ == "__main__":
    main()
