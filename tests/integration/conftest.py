"""The services that the tests of this directory share, and a fresh location on them."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from headwater.testing import mariadb as mariadb_testing
from headwater.testing import redis as redis_testing
from headwater.testing.kafka import Broker, kafka_broker, missing
from headwater.testing.servers import S3Server, postgres_server, s3_server
from tests.integration.mysql_world import World
from tests.integration.shared_location import Cable, Postgres, SharedLocation

BUCKET = "headwater-test"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as dsn:
        yield Postgres(dsn)


@pytest.fixture(scope="session")
def logical() -> Iterator[Postgres]:
    """A PostgreSQL that can be followed; each test has its own schema, publication and slot."""
    with postgres_server() as dsn:
        server = Postgres(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_level = 'logical'")
            connection.execute("ALTER SYSTEM SET max_replication_slots = 64")
        server.stop()
        server.start()
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One Kafka broker for all tests; each has its own topics."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with kafka_broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def mariadb() -> Iterator[mariadb_testing.MariaDb]:
    """One MariaDB for all tests; each has its own schema."""
    reason = mariadb_testing.missing()
    if reason is not None:
        pytest.skip(reason)
    with mariadb_testing.mariadb_server() as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[redis_testing.RedisServer]:
    """One Redis for all tests; each has its own targets."""
    reason = redis_testing.missing()
    if reason is not None:
        pytest.skip(reason)
    with redis_testing.redis_server(redis_testing.FORGETFUL) as server:
        yield server


@pytest.fixture
def world(mariadb: mariadb_testing.MariaDb) -> Iterator[World]:
    """A schema on it."""
    world = World(mariadb)
    yield world
    world.close()


@pytest.fixture(scope="session")
def cable(s3: S3Server) -> Iterator[Cable]:
    port = urlsplit(s3.endpoint).port
    assert port is not None
    with contextlib.closing(Cable(port)) as cable:
        yield cable


@pytest.fixture
def location(
    postgres: Postgres, s3: S3Server, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> SharedLocation:
    environment = {**s3.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{cable.port}"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    name = f"t{uuid.uuid4().hex}"
    separator = "&" if "?" in postgres.dsn else "?"
    return SharedLocation(
        blob=f"s3://{BUCKET}/{name}",
        consensus=f"{postgres.dsn}{separator}headwater_log={name}",
        environment=environment,
        postgres=postgres,
        cable=cable,
    )
