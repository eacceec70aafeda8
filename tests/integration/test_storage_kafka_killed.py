"""The ingesting process and a real broker are killed under load: nothing lost, nothing doubled."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.base.clock import SystemClock
from headwater.persist.state import violations
from headwater.testing.kafka import Broker
from tests.integration.kafka_killed import ingest_until_killed, ingestions, open_writer
from tests.integration.kafka_world import numbers, rows

pytestmark = pytest.mark.server

SEED = 20261115


class Load:
    """Numbers, each produced once to some partition, by a producer that survives its broker."""

    def __init__(self, broker: Broker, topic: str, seed: int) -> None:
        self.acknowledged: list[tuple[int, bytes]] = []
        self._stopping = threading.Event()
        self._producer = broker.producer(enable_idempotence=True, linger_ms=5)
        self._topic = topic
        self._random = Random(seed)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                break
            partition = self._random.randrange(3)
            value = b"bad" if number % 50 == 49 else b'{"k": %d, "n": %d}' % (number % 7, number)
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._delivered
            )
            self._producer.poll(0)
            if number % 20 == 0:
                self._stopping.wait(0.01)

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.acknowledged.append((message.partition(), message.value()))

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def killed_again_and_again(broker: Broker, root: Path, kills: str) -> None:
    """Kill, in the order of ``kills``, ``i``: the ingesting process, or ``b``: the broker."""
    context = multiprocessing.get_context("forkserver")
    topic, random = f"t{next(numbers)}", Random(SEED)
    print(f"seed {SEED}")
    broker.create_topic(topic, 3)
    load = Load(broker, topic, SEED)
    try:
        child, told = None, None
        for kill in kills:
            if child is None:
                told, theirs = context.Pipe(duplex=False)
                arguments = (root, broker.bootstrap, topic, theirs)
                child = context.Process(target=ingest_until_killed, args=arguments, daemon=True)
                child.start()
                theirs.close()
            assert told is not None
            for _ in range(random.choice([1, 2, 5])):
                told.recv()
            if kill == "b":
                broker.kill()
                broker.start()
                told.recv()
            else:
                child.kill()
                child.join()
                child = None
                with open_writer(root) as client:
                    assert not list(violations(client.core.state))
        if child is not None:
            child.kill()
            child.join()
    finally:
        load.stop()
    with open_writer(root) as client:
        clock = SystemClock()
        for ingestion in ingestions(client, broker.bootstrap, topic):
            for _ in range(2):  # The first may be what the killed one had bound, and no more.
                while not ingestion.tick(clock.now_ms()):
                    pass
            ingestion.stop()
        good = [value for _, value in load.acknowledged if value != b"bad"]
        found = Counter(
            b'{"k": %d, "n": %d}' % row
            for row, n in rows(client, "plain").items()
            for _ in range(n)
        )
        assert len(good) > 100, "there was hardly any load"
        assert found == Counter(good), "each message once: none lost, none doubled"
        letters = client.reader("plain/dead_letters").snapshot().to_table()
        assert letters.num_rows == len(load.acknowledged) - len(good)
        keyed = rows(client, "keyed")
        assert set(keyed.values()) == {1}
        assert {row[0] for row in keyed} == set(range(7))


def test_kills_under_load(broker: Broker, tmp_path: Path) -> None:
    killed_again_and_again(broker, tmp_path, "b")


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_many_kills_under_load(broker: Broker, tmp_path: Path) -> None:
    random = Random(SEED)
    killed_again_and_again(broker, tmp_path, "".join(random.choice("iib") for _ in range(25)))
