"""Statements about materializations, as values; part of :mod:`.statements`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from headwater.adapter.sql.connection_statements import SecretName


@dataclass(frozen=True, slots=True)
class Binding:
    """``view AS "target" KEY (columns) [REDUCE (column strategy, …)] [DELTA UPDATES] [WITH (…)]``.

    One collection delivered to one resource of the endpoint.
    """

    view: str
    target_table: str
    key: tuple[str, ...]
    reduce: tuple[tuple[str, str], ...] = ()
    delta_updates: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateMaterialization:
    """``CREATE MATERIALIZATION name INTO endpoint (OPTION 'value', …) (binding, …) [WITH (…)]``.

    Names of options and settings are in capitals, as written in the documentation
    (``materialize/options``).
    """

    name: str
    endpoint: str
    options: Mapping[str, str | SecretName]
    bindings: tuple[Binding, ...]
    if_not_exists: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    connection: str | None = None
    """``INTO endpoint CONNECTION name (binding, …)``, in the place of options."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))


@dataclass(frozen=True, slots=True)
class SetMaterialization:
    """``ALTER MATERIALIZATION name SET (SETTING value, …)``."""

    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TurnMaterialization:
    """``ALTER MATERIALIZATION name PAUSE | RESUME | BACKFILL``."""

    name: str
    action: Literal["pause", "resume", "backfill"]


@dataclass(frozen=True, slots=True)
class ValidateMaterialization:
    """``VALIDATE MATERIALIZATION name INTO …``: what CREATE would do, and nothing is done."""

    create: CreateMaterialization
