"""A topic of its own on a real broker, that grows as topics do, for whoever reads it."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random
from typing import Any

from headwater.persist.client import Client
from headwater.storage.sources.kafka import Kafka
from headwater.testing.kafka import Broker

numbers = itertools.count()


class World:
    """A topic that grows: plain messages, transactions committed and aborted, new partitions."""

    snapshots = False

    def __init__(self, broker: Broker, partitions: int = 2) -> None:
        self.broker = broker
        self.topic = f"t{next(numbers)}"
        self.partitions = partitions
        broker.create_topic(self.topic, partitions)
        self.plain = broker.producer()
        self.transactional = broker.producer(transactional_id=self.topic)
        self.transactional.init_transactions()
        self.values = itertools.count()

    def source(self, **options: Any) -> Kafka:
        return Kafka({"bootstrap.servers": self.broker.bootstrap}, self.topic, **options)

    def produce(self, producer: Any, partition: int, count: int = 1) -> list[bytes]:
        values = [b"%d" % next(self.values) for _ in range(count)]
        for value in values:
            producer.produce(self.topic, value, partition=partition)
        producer.flush()
        return values

    def transaction(self, random: Random, *, commit: bool) -> None:
        self.transactional.begin_transaction()
        self.produce(self.transactional, random.randrange(self.partitions), random.randrange(1, 4))
        self.produce(self.transactional, random.randrange(self.partitions), random.randrange(1, 4))
        if commit:
            self.transactional.commit_transaction()
        else:
            self.transactional.abort_transaction()

    def grow(self, random: Random) -> None:
        self.produce(self.plain, random.randrange(self.partitions), random.randrange(1, 9))
        self.transaction(random, commit=random.random() < 0.5)
        if random.random() < 0.3:
            self.more_partitions()

    def more_partitions(self) -> None:
        from confluent_kafka.admin import NewPartitions

        self.partitions += 1
        wanted = NewPartitions(self.topic, self.partitions)
        admin = self.broker.admin()  # Kept: its answers end with it.
        admin.create_partitions([wanted])[self.topic].result()
        for producer in (self.plain, self.transactional):  # Each has its own idea of the topic.
            while len(producer.list_topics(self.topic).topics[self.topic].partitions) < (
                self.partitions
            ):
                pass


def rows(client: Client, name: str) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in client.reader(name).snapshot().to_table().to_pylist():
        diff = row.pop("__diff")
        found[tuple(row.values())] += diff
    return +found
