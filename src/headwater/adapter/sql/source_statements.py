"""The statements about sources, and what they are made from; part of :mod:`.statements`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import pyarrow as pa

OptionValue = str | int | bool


@dataclass(frozen=True, slots=True)
class LoadGenerator:
    """``LOAD GENERATOR kind [(OPTION value, …)]``; names of options in lower case."""

    kind: Literal["counter", "auction", "key value", "nexmark"]
    options: Mapping[str, OptionValue]

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))


Upstream = LoadGenerator


@dataclass(frozen=True, slots=True)
class TableReference:
    """``reference [AS name]``: one of upstream's tables, and what it is called here."""

    reference: str
    name: str


@dataclass(frozen=True, slots=True)
class CreateSource:
    """``CREATE SOURCE [IF NOT EXISTS] name FROM upstream [FOR …] [WITH (RETAIN HISTORY …)]``.

    ``tables``: those of ``FOR TABLES (…)``; empty for ``FOR ALL TABLES``; None: it says neither.
    """

    name: str
    upstream: Upstream
    tables: tuple[TableReference, ...] | None = None
    columns: pa.Schema | None = None
    if_not_exists: bool = False
    retain_ms: int | None = None
