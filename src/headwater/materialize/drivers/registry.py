"""Which drivers are built in, and what each can promise.

A driver is added here and in a file of its own. ``resource`` says where the target of a binding, as
the user wrote it, is to be found in the endpoint.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.base.errors import InvalidUsage
from headwater.materialize.drivers.postgres import PostgresDriver
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.drivers.sqlite import SqliteDriver


class Guarantee(enum.Enum):
    """How often a change arrives."""

    EXACTLY_ONCE = "exactly once"
    EFFECTIVELY_ONCE = "effectively once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A driver that we have."""

    make: Callable[[], Responder]
    resource: Callable[[str], Mapping[str, Any]]
    guarantee: Guarantee


class UnknownDriver(InvalidUsage):
    """A driver that we do not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no driver {name!r}; there are {', '.join(sorted(DRIVERS))}")


def _in_schema(target: str) -> Mapping[str, Any]:
    """``schema.table``, or a table in the default schema."""
    schema, dot, table = target.partition(".")
    return {"schema": schema, "table": table} if dot else {"table": target}


DRIVERS: Final[Mapping[str, BuiltIn]] = {
    "postgres": BuiltIn(PostgresDriver, _in_schema, Guarantee.EXACTLY_ONCE),
    "sqlite": BuiltIn(SqliteDriver, lambda target: {"table": target}, Guarantee.EXACTLY_ONCE),
}


def driver(name: str) -> BuiltIn:
    """Return a driver by its name."""
    found = DRIVERS.get(name)
    if found is None:
        raise UnknownDriver(name)
    return found
