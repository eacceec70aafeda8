"""Which drivers are built in, and what each can promise.

A driver is added here and in a file of its own. Where a binding goes in the endpoint is said by the
driver's own resource schema (``resources``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.base.errors import InvalidUsage
from headwater.materialize.drivers.parquet import ParquetDriver
from headwater.materialize.drivers.postgres import PostgresDriver
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.drivers.webhook import WebhookDriver
from headwater.materialize.key_range import KeyRange


class Guarantee(enum.Enum):
    """How often a change arrives; effectively once: perhaps again, and then it changes nothing."""

    EXACTLY_ONCE = "exactly once"
    EFFECTIVELY_ONCE = "effectively once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A driver that we have."""

    make: Callable[[], Responder]
    guarantee: Guarantee
    sharded: bool = False
    """Whether several sessions may be at work at once, each for a key range."""
    guard: str = ""
    """What in its configuration, if it is false, takes the guarantee away."""


class NotSharded(InvalidUsage):
    """Several shards into an endpoint that takes one."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"a materialization into {name.upper()} has one shard: its driver takes no key ranges"
        )


class UnknownDriver(InvalidUsage):
    """A driver that we do not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no driver {name!r}; there are {', '.join(sorted(DRIVERS))}")


def _delta() -> Responder:
    try:
        from headwater.materialize.drivers.delta import DeltaDriver
    except ModuleNotFoundError as error:
        raise InvalidUsage(
            "Delta Lake is an extra: install headwater[delta] where this runs"
        ) from error
    return DeltaDriver()


def _duckdb() -> Responder:
    try:
        from headwater.materialize.drivers.duckdb import DuckDbDriver
    except ModuleNotFoundError as error:
        raise InvalidUsage(
            "DuckDB is an extra: install headwater[duckdb] where this runs"
        ) from error
    return DuckDbDriver()


def _iceberg() -> Responder:
    try:
        from headwater.materialize.drivers.iceberg import IcebergDriver
    except ModuleNotFoundError as error:
        raise InvalidUsage(
            "Iceberg is an extra: install headwater[iceberg] where this runs"
        ) from error
    return IcebergDriver()


def _kafka() -> Responder:
    try:
        from headwater.materialize.drivers.kafka import KafkaDriver
    except ModuleNotFoundError as error:
        raise InvalidUsage("Kafka is an extra: install headwater[kafka] where this runs") from error
    return KafkaDriver()


def _mysql() -> Responder:
    try:
        from headwater.materialize.drivers.mysql import MySqlDriver
    except ModuleNotFoundError as error:
        raise InvalidUsage("MySQL is an extra: install headwater[mysql] where this runs") from error
    return MySqlDriver()


def _redis() -> Responder:
    try:
        from headwater.materialize.drivers.redis import RedisDriver
    except ModuleNotFoundError as error:
        raise InvalidUsage("Redis is an extra: install headwater[redis] where this runs") from error
    return RedisDriver()


DRIVERS: Final[Mapping[str, BuiltIn]] = {
    "delta": BuiltIn(_delta, Guarantee.EXACTLY_ONCE, sharded=True),
    "duckdb": BuiltIn(_duckdb, Guarantee.EXACTLY_ONCE, sharded=True),
    "iceberg": BuiltIn(_iceberg, Guarantee.EXACTLY_ONCE, sharded=True),
    "kafka": BuiltIn(_kafka, Guarantee.EXACTLY_ONCE),
    "mysql": BuiltIn(_mysql, Guarantee.EXACTLY_ONCE, sharded=True),
    "parquet": BuiltIn(ParquetDriver, Guarantee.EXACTLY_ONCE, sharded=True),
    "postgres": BuiltIn(PostgresDriver, Guarantee.EXACTLY_ONCE, sharded=True),
    "redis": BuiltIn(_redis, Guarantee.EXACTLY_ONCE, sharded=True, guard="guarded"),
    "sqlite": BuiltIn(SqliteDriver, Guarantee.EXACTLY_ONCE, sharded=True),
    "webhook": BuiltIn(WebhookDriver, Guarantee.AT_LEAST_ONCE, sharded=True),
}


def guarantee(name: str, config: Mapping[str, Any], *, last_write_wins: bool) -> Guarantee:
    """Return what a driver promises for a binding; of somebody else's program nothing is known."""
    if not repeats(name, config):
        return Guarantee.EXACTLY_ONCE
    return Guarantee.EFFECTIVELY_ONCE if last_write_wins else Guarantee.AT_LEAST_ONCE


def repeats(name: str, config: Mapping[str, Any]) -> bool:
    """Whether an endpoint may keep what a failed attempt told it (``intent``).

    Then the attempt is repeated as it was, and a binding in which the last write wins is what it
    would be without the failure.
    """
    built_in = DRIVERS.get(name)
    if built_in is None:
        return True
    unguarded = bool(built_in.guard) and not config.get(built_in.guard, True)
    return unguarded or built_in.guarantee is Guarantee.AT_LEAST_ONCE


def driver(name: str) -> BuiltIn:
    """Return a driver by its name."""
    found = DRIVERS.get(name)
    if found is None:
        raise UnknownDriver(name)
    return found


def check_shards(name: str, shards: int) -> None:
    """Refuse a number of shards that a driver cannot serve; somebody else's may serve any."""
    KeyRange.tiling(shards)
    if shards > 1 and name in DRIVERS and not DRIVERS[name].sharded:
        raise NotSharded(name)
