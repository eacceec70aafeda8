"""A long topic upserted by Spark tasks, seen by psql, on a disk and in S3, killed in between.

There are so many messages that tasks read a range and fold it, and the second range meets the keys
of the first. What is answered in the end is what the newest message of each key says, however often
the server was killed.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from signal import SIGKILL, SIGTERM
from typing import Any

import psycopg
import pytest

from headwater.cli.exit_status import ExitStatus
from headwater.storage.tasks import MESSAGES_MIN
from headwater.storage.written_by_tasks import FOLD_MIN
from headwater.testing.kafka import Broker
from headwater.testing.servers import S3Server
from tests.end_to_end.served import Served
from tests.integration.conftest import BUCKET
from tests.integration.kafka_world import numbers

pytestmark = [
    *(pytest.mark.spark, pytest.mark.server, pytest.mark.soak),
    pytest.mark.timeout(1_800),
]

SEED = 20261116
DEADLINE_SECONDS = 900.0
MESSAGES = MESSAGES_MIN + 50_000
KEYS = FOLD_MIN + 60_000
PARTITIONS = 4
KILL_SECONDS = (3.0, 12.0)
"""Within which moments of a start it is killed."""

SOURCE = """
    CREATE CONNECTION kafka TO KAFKA (BROKER '{broker}');
    CREATE SOURCE newest (k bigint, v bigint) FROM KAFKA CONNECTION kafka (TOPIC '{topic}')
        FORMAT JSON ENVELOPE UPSERT (KEY (k));
    CREATE MATERIALIZED VIEW kept AS SELECT count(*) AS n, sum(v) AS s, sum(k) AS ks FROM newest;
"""
ANSWER = "SELECT count(*), sum(v), sum(k) FROM newest"


class Topic:
    """A topic, and what an upsert of it is."""

    def __init__(self, broker: Broker, random: Random) -> None:
        self.name = f"t{next(numbers)}"
        self.rows: dict[int, int] = {}
        self._broker, self._random = broker, random
        broker.create_topic(self.name, PARTITIONS)

    def grow(self) -> None:
        """Write a long range: most keys, some of them gone again."""
        producer = self._broker.producer(linger_ms=50, queue_buffering_max_messages=1_000_000)
        keys = list(range(KEYS))
        self._random.shuffle(keys)
        keys += self._random.choices(keys, k=MESSAGES - KEYS)
        for number, k in enumerate(keys):
            gone = self._random.random() < 0.05
            v = self._random.randrange(1_000_000)
            value = None if gone else b'{"k": %d, "v": %d}' % (k, v)
            key = b'{"k": %d}' % k
            producer.produce(self.name, value, key, partition=k % PARTITIONS)
            if gone:
                self.rows.pop(k, None)
            else:
                self.rows[k] = v
            if number % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(120) == 0

    @property
    def answer(self) -> tuple[int, int, int]:
        return len(self.rows), sum(self.rows.values()), sum(self.rows)


def of_tasks(data: Path) -> set[str]:
    """Return the objects in a directory that tasks have written: their attempts have parts."""
    return {path.name for path in (data / "blob").glob("part/*/*") if "." in path.name}


def awaited(served: Served, expected: tuple[Any, ...]) -> None:
    """Wait until the source, and the view of it, are what they are to be."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    found: list[Any] = []
    while time.monotonic() < deadline:
        with suppress(psycopg.Error):  # Spark is not there yet.
            found = [tuple(row) for row in served.run(ANSWER)]
            if found == [expected]:
                kept = served.run("SELECT n, s, ks FROM kept")
                assert kept == found
                return
        time.sleep(0.5)
    raise AssertionError(f"{found}, not {expected}: {served.run('SELECT * FROM hw_sources')}")


@pytest.mark.parametrize("where", ["disk", "s3"])
def test_killed_while_tasks_fold(broker: Broker, s3: S3Server, tmp_path: Path, where: str) -> None:
    print(f"seed {SEED}")
    random = Random(f"{SEED}/{where}")
    topic = Topic(broker, random)
    topic.grow()
    environment = {"HEADWATER_LOG_LEVEL": "warning"}
    if where == "s3":
        environment |= {
            **s3.environment,
            "HEADWATER_BLOB": f"s3://{BUCKET}/folded",
            "HEADWATER_CONSENSUS": f"sqlite://{tmp_path}/log.db",
        }
    served = Served(environment, tmp_path / "data")
    served.run(SOURCE.format(broker=broker.bootstrap, topic=topic.name))
    for _ in range(2):
        time.sleep(random.uniform(*KILL_SECONDS))
        served.end(SIGKILL)
        served = Served(environment, tmp_path / "data")
        awaited(served, topic.answer)
        # They stay until a merge has taken them and nobody reads them any more.
        assert of_tasks(tmp_path / "data") or where == "s3"
        topic.grow()
    time.sleep(random.uniform(*KILL_SECONDS))
    awaited(served, topic.answer)
    said = subprocess.run(
        ["psql", "-h", "127.0.0.1", "-p", str(served.port), "-U", "headwater", "-XAtc", ANSWER],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "|".join(map(str, topic.answer)) + "\n"
    status, told = served.end(SIGTERM)
    assert status == ExitStatus.OK, told
    assert "tasks could not" not in told
