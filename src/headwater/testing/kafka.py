"""A real Apache Kafka broker for tests: one process, KRaft mode, on this machine only.

The jars are those that ``make kafka`` resolved (``scripts/kafka``); without them there is no broker
and :func:`missing` says why, for the reason of a skip. Nothing here imitates Kafka.

A broker can be killed (``SIGKILL``) and started again on the same ports with the same log, which is
what a crash of the process is: what it has acknowledged is in the page cache, and stays.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headwater.testing.free_ports import free_ports
from headwater.testing.own_process import OwnProcess

JARS: Final = Path(os.environ.get("KAFKA_CACHE", "build/kafka"))
START_TIMEOUT_S: Final = 120

# The first compiler only: a broker that lives for a minute never earns the second one back.
JAVA: Final = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_LOGGING: Final = """status = error
appender.stdout.type = Console
appender.stdout.name = STDOUT
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d %p %c: %m%n
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = STDOUT
"""

_SETTINGS: Final = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={folder}/log
num.network.threads=2
num.io.threads=2
num.partitions=1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=2097152
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
log.retention.ms=-1
file.delete.delay.ms=0
"""


def missing(jars: Path = JARS) -> str | None:
    """Return why there is no broker here; ``None`` if there can be one."""
    if not (jars / "version").exists():
        return f"no Kafka: its jars are not in {jars}; `make kafka` resolves them with Maven"
    if shutil.which("java") is None:
        return "no Kafka: its broker needs Java"
    return None


@dataclass(slots=True)
class Broker(OwnProcess):
    """One broker; ``bootstrap`` is where clients find it, also after a kill and a start."""

    folder: Path
    port: int
    controller: int
    jars: Path = JARS
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def bootstrap(self) -> str:
        """The address of the broker."""
        return f"127.0.0.1:{self.port}"

    def format(self) -> None:
        """Make its empty log, once."""
        settings = _SETTINGS.format(port=self.port, controller=self.controller, folder=self.folder)
        (self.folder / "server.properties").write_text(settings)
        (self.folder / "log4j2.properties").write_text(_LOGGING)
        # Begins with an A: one that began with a dash, as one in 64 does, would be an option.
        chosen = b"\0" + uuid.uuid4().bytes[1:]
        cluster = base64.urlsafe_b64encode(chosen).decode().rstrip("=")
        subprocess.run(
            self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c"),
            check=True,
            capture_output=True,
        )

    def start(self) -> None:
        """Start it and wait until it answers."""
        assert self._process is None, "it runs already"
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(self._java("kafka.Kafka"), stdout=log, stderr=log)
        self.await_answer()

    def await_answer(self) -> None:
        """Wait until clients get an answer."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = (self.folder / "broker.log").read_text()[-2_000:]
                raise RuntimeError(f"the Kafka broker did not start: {tail}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    pass
                if self.admin().list_topics(timeout=5).brokers:
                    return
            except (OSError, KafkaException):
                pass
            time.sleep(0.1)

    def _java(self, program: str, *arguments: str) -> list[str]:
        classpath = f"{self.jars.resolve() / 'lib'}/*"
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        settings = str(self.folder / "server.properties")
        return ["java", *JAVA, logging, "-cp", classpath, program, *arguments, settings]

    # ---- clients -----------------------------------------------------------------------------

    def admin(self) -> Any:
        """Return an administrator's client."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def producer(self, **options: Any) -> Any:
        """Return a producer that waits for its acknowledgements; ``_`` in an option is a dot."""
        from confluent_kafka import Producer

        given = {name.replace("_", "."): value for name, value in options.items()}
        return Producer(
            {"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0, **given}
        )

    def create_topic(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic and wait until clients can use it.

        A broker whose heartbeat was late, as on a machine with much else to do, is told so by its
        controller, and takes no topics until the next one.
        """
        from confluent_kafka import KafkaError, KafkaException, TopicPartition
        from confluent_kafka.admin import NewTopic, OffsetSpec

        admin = self.admin()
        topic = NewTopic(name, partitions, 1, config=dict(settings or {}))
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                admin.create_topics([topic])[name].result()
                break
            except KafkaException as refused:
                fenced = refused.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
                if not fenced or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)
        while len(admin.list_topics(name, timeout=5).topics[name].partitions) != partitions:
            time.sleep(0.02)
        # A partition is told of before its leader knows that it is the leader.
        asked = {TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)}
        while True:
            try:
                for answer in admin.list_offsets(asked).values():
                    answer.result()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        admin = self.admin()
        admin.delete_topics([name], operation_timeout=30)[name].result()
        while name in admin.list_topics(timeout=5).topics:
            time.sleep(0.02)


@contextmanager
def kafka_broker() -> Iterator[Broker]:
    """Run an empty broker; its log is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-kafka-"))
    port, controller = free_ports(2)
    broker = Broker(folder, port, controller)
    try:
        broker.format()
        broker.start()
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
