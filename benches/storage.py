"""Sources to durable: messages and changes per CPU-second, beside the raw client in the same run.

Targets: Kafka JSON 100 k messages, PostgreSQL's log 50 k changes, Debezium JSON 200 k decoded, each
per CPU-second *of the ingesting process* (the broker and the database have their own); a snapshot
of five million rows at half the speed of ``COPY``. Everything ends durable in a location on this
disk, and is counted.

*Raw* is what the client library alone gives: messages consumed and dropped, log messages received
and dropped, rows of COPY received and dropped, ``json.loads`` or fastavro on the same bytes.

*MiB* is by how much the anonymous memory of the process grew at most while a backlog was ingested
in one range: it should be that of some batches, not of the backlog. (Upserts: ``upsert.py``.)

Names choose some: ``storage.py formats kafka postgres mysql``.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from measure import Cost, arguments, begin, scratch, show

from headwater.base.clock import SystemClock
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import open_location
from headwater.persist.evolution import TIME
from headwater.storage.avro import Avro, Subject
from headwater.storage.envelope import Debezium, Envelope, Plain, Rows
from headwater.storage.format import Json
from headwater.storage.ingestion import Ingestion
from headwater.storage.keyed_changes import Keyed
from headwater.storage.offsets import Offsets
from headwater.storage.outputs import Definition, Output
from headwater.storage.registry import HEADER_BYTES, Registry, framed
from headwater.storage.source import OFFSET, PARTITION, Source
from headwater.storage.sources.pg_copy import _blocks
from headwater.storage.sources.pg_stream import Stream
from headwater.storage.sources.pg_types import lsn
from headwater.storage.sources.postgres import LOG, Postgres, discover
from headwater.testing import mariadb
from headwater.testing.kafka import Broker, kafka_broker, missing
from headwater.testing.process_tree import anonymous_mib
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


class Spent(Cost):
    """What a block cost this process, and by how much it grew at most."""

    grown_mib: float | None = None


@contextmanager
def own_cost() -> Iterator[Spent]:
    """Measure a block of this process alone, all of its threads; servers have their own CPU."""
    found = Spent()
    cpu, wall = time.process_time(), time.perf_counter()
    yield found
    found.wall_s, found.cpu_s = time.perf_counter() - wall, time.process_time() - cpu


@contextmanager
def ingesting_cost() -> Iterator[Spent]:
    """The same, with its memory."""
    over, largest = threading.Event(), [0.0]
    pa.default_memory_pool().release_unused()
    before = anonymous_mib("self")

    def watch() -> None:
        while not over.wait(0.05):
            largest[0] = max(largest[0], anonymous_mib("self") - before)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with own_cost() as found:
            yield found
    finally:
        over.set()
        watching.join()
    found.grown_mib = largest[0]


def ingested(folder: Path, source: Source, outputs: dict[str, Envelope], rows: int) -> Spent:
    """Ingest all there is in one range; return what it cost, once it was found to be there."""
    definition = Definition("bench", tuple(Output(n, n, e) for n, e in outputs.items()))
    with open_location(folder, layouts=LAYOUTS) as client:
        ingestion = Ingestion(client, definition, source)
        with ingesting_cost() as spent:
            assert ingestion.tick(SystemClock().now_ms())
        found = sum(
            table.num_rows for name in outputs for table in client.reader(name).snapshot().updates()
        )
        assert found == rows, f"{found} rows, not {rows}"
        ingestion.stop()
    return spent


def changed(
    folder: Path,
    source: Source,
    table: str,
    envelope: Envelope | Keyed,
    probes: tuple[Offsets, Offsets],
    updates: int,
) -> Spent:
    """Ingest the second of two ranges, which changes rows; return what it cost."""
    definition = Definition("cdc", (Output(table, "changed", envelope),))
    with open_location(folder, layouts=LAYOUTS) as client:
        told = iter(probes)
        source.probe = lambda: next(told)  # type: ignore[method-assign]
        ingestion = Ingestion(client, definition, source)
        assert ingestion.tick(SystemClock().now_ms())
        before = ingestion.statistics.updates
        with ingesting_cost() as spent:
            assert ingestion.tick(SystemClock().now_ms() + 1)
        assert ingestion.statistics.updates - before == updates
        ingestion.stop()
    return spent


def line(name: str, count: int, spent: Spent, raw: Spent | None = None) -> list[object]:
    rate = count / spent.cpu_s
    share = "" if raw is None else f"{raw.cpu_s / spent.cpu_s:.2f}"
    wall_share = "" if raw is None else f"{raw.wall_s / spent.wall_s:.2f}"
    grown = "" if spent.grown_mib is None else f"{spent.grown_mib:,.0f}"
    per_second = f"{count / spent.wall_s / 1e3:,.0f}"
    return [name, f"{rate / 1e3:,.0f}", per_second, share, wall_share, grown]


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


def _changed_upstream(dsn: str, status: str, changes: int) -> Offsets:
    """Update rows, a thousand in a transaction; return where the log is then."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for low in range(0, changes, 1_000):
            connection.execute(
                f"UPDATE orders SET status = '{status}' WHERE id > {low} AND id <= {low + 1_000}"
            )
        found = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert found is not None
    return Offsets({LOG: lsn(found[0])})


def postgres(folder: Path, dsn: str, rows: int, changes: int) -> list[list[object]]:
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
    (schema,) = tables.values()
    source = Postgres(dsn, "bench", "changes", tables)
    first = source.probe()
    last = _changed_upstream(dsn, "paid", changes)
    stream = Stream(dsn, "changes", "bench", first[LOG])
    with own_cost() as raw_stream:
        messages = sum(1 for _ in stream.read(last[LOG]))
    stream.close()
    assert messages >= changes
    name, updates = "public.orders", 2 * changes
    spent = changed(folder / "cdc", source, name, Rows(schema), (first, last), updates)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    source = Postgres(dsn, "bench", "by_key", tables, keys={name: ("id",)})
    first = source.probe()
    last = _changed_upstream(dsn, "sent", changes)
    keyed = Keyed(schema, ("id",))
    by_key = changed(folder / "keyed", source, name, keyed, (first, last), updates)
    return [
        line("PostgreSQL's log: received and dropped", changes, raw_stream),
        line("PostgreSQL's log to durable (target 50)", changes, spent, raw_stream),
        line("the same, found by its key (target 50)", changes, by_key, raw_stream),
        line("COPY: received and dropped", rows, raw_copy),
        line("snapshot to durable (target 0.50 of COPY)", rows, copied, raw_copy),
    ]


# ---- MariaDB ---------------------------------------------------------------------------------


def mysql(folder: Path, server: mariadb.MariaDb, rows: int, changes: int) -> list[list[object]]:
    from pymysql.cursors import SSCursor

    from headwater.storage.sources.my_binlog import POSITION_BITS, header_of
    from headwater.storage.sources.my_copy import end_of_log
    from headwater.storage.sources.my_discover import discover as look
    from headwater.storage.sources.my_stream import Stream as Log
    from headwater.storage.sources.my_wire import packet
    from headwater.storage.sources.mysql import LOG as BINLOG
    from headwater.storage.sources.mysql import MySql

    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("USE shop")
        cursor.execute(
            "CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer bigint, amount double, "
            "status varchar(10), note varchar(40))"
        )
        cursor.execute(
            "INSERT INTO shop.orders SELECT seq, seq * 7919 % 100003, seq % 9973 / 100, 'new', "
            f"CONCAT('order number ', seq) FROM seq_1_to_{rows}"
        )
    config, tables = server.config, look(server.config).tables
    connection = server.connect(cursorclass=SSCursor)
    with own_cost() as raw_copy, connection.cursor() as cursor:
        cursor.execute("SELECT id, customer, amount, status, note FROM shop.orders")
        assert sum(1 for _ in cursor) == rows
    connection.close()
    envelopes: dict[str, Envelope] = {name: Rows(schema) for name, schema in tables.items()}
    copied = ingested(folder / "my", MySql(config, tables), envelopes, rows)
    source = MySql(config, tables)
    first = source.probe()
    with server.connect() as connection, connection.cursor() as cursor:
        for low in range(0, changes, 1_000):
            cursor.execute(
                f"UPDATE shop.orders SET status = 'paid' WHERE id > {low} AND id <= {low + 1_000}"
            )
        end = end_of_log(connection)
    last = source.probe()
    assert end is not None
    log = Log(config, end[0], first[BINLOG])
    position = last[BINLOG] & ((1 << POSITION_BITS) - 1)
    with own_cost() as raw_log:
        while header_of(packet(log._connection)[1:]).behind < position:
            pass
    log.close()
    (schema,) = tables.values()
    spent = changed(
        folder / "my_log", source, "shop.orders", Rows(schema), (first, last), 2 * changes
    )
    return [
        line("MariaDB's log: received and dropped", changes, raw_log),
        line("MariaDB's log to durable", changes, spent, raw_log),
        line("SELECT by PyMySQL: received and dropped", rows, raw_copy),
        line("snapshot of MariaDB to durable", rows, copied, raw_copy),
    ]


def main() -> None:
    parser = arguments()
    parser.add_argument("names", nargs="*", help="some of: formats kafka postgres mysql")
    asked = parser.parse_args()
    count = 100_000 if asked.quick else 1_000_000
    names = asked.names or ["formats", "kafka", "postgres", "mysql"]
    begin(f"Sources: {count:,} messages and changes, {5 * count:,} rows of PostgreSQL's snapshot")
    found: list[list[object]] = []
    with scratch() as folder:
        if "formats" in names:
            found += debezium(count) + avro(count)
        if "kafka" in names and missing() is None:
            with kafka_broker() as broker:
                found += kafka(folder, broker, count)
        if "postgres" in names:
            with postgres_server(logical=True) as dsn:
                found += postgres(folder, dsn, 5 * count, count)
        if "mysql" in names and mariadb.missing() is None:
            with mariadb.mariadb_server(max_binlog_size="1G") as server:
                found += mysql(folder, server, count, count)
    for reason in (missing() if "kafka" in names else None, mariadb.missing()):
        if reason is not None:
            print(reason)
    show(
        "Thousands per CPU-second of the ingesting process, and per second",
        ["", "k/CPU-s", "k/s", "x raw CPU", "x raw", "MiB"],
        found,
    )


if __name__ == "__main__":
    main()
