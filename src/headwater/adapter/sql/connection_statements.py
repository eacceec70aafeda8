"""The statements about secrets and connections; part of :mod:`.statements`.

A secret's value is never part of a ``repr``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from headwater.adapter.sql.source_statements import OptionValue


@dataclass(frozen=True, slots=True)
class SecretName:
    """``SECRET name`` in the place of a value."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateSecret:
    """``CREATE SECRET [IF NOT EXISTS] name AS 'value'``."""

    name: str
    value: str = field(repr=False)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterSecret:
    """``ALTER SECRET name AS 'value'``."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CreateConnection:
    """``CREATE CONNECTION [IF NOT EXISTS] name TO kind (OPTION value | SECRET name, …)``."""

    name: str
    kind: Literal["postgres", "kafka", "mysql", "redis", "confluent schema registry"]
    options: Mapping[str, OptionValue | SecretName]
    if_not_exists: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))


@dataclass(frozen=True, slots=True)
class ValidateConnection:
    """``VALIDATE CONNECTION name``: connect once, and say how that went."""

    name: str
