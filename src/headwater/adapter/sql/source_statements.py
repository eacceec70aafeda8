"""The statements about sources, and what they are made from; part of :mod:`.statements`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import pyarrow as pa

OptionValue = str | int | bool
Included = Literal["key", "partition", "offset", "timestamp", "headers"]


def _frozen(options: Mapping[str, OptionValue]) -> Mapping[str, OptionValue]:
    return MappingProxyType(dict(options))


@dataclass(frozen=True, slots=True)
class LoadGenerator:
    """``LOAD GENERATOR kind [(OPTION value, …)]``; names of options in lower case."""

    kind: Literal["counter", "auction", "key value", "nexmark", "tpch"]
    options: Mapping[str, OptionValue]

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", _frozen(self.options))


@dataclass(frozen=True, slots=True)
class Files:
    """``FILES (PATH '…' [, PATTERN '…'])``."""

    options: Mapping[str, OptionValue]

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", _frozen(self.options))


@dataclass(frozen=True, slots=True)
class Connected:
    """``POSTGRES CONNECTION name (PUBLICATION '…') | KAFKA CONNECTION name (TOPIC '…') | …``."""

    kind: Literal["postgres", "kafka", "mysql"]
    connection: str
    options: Mapping[str, OptionValue]

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", _frozen(self.options))


@dataclass(frozen=True, slots=True)
class Webhook:
    """``WEBHOOK (HMAC SECRET name [, OPTION value, …] | UNSIGNED TRUE [, …])``."""

    secret: str | None
    options: Mapping[str, OptionValue]

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", _frozen(self.options))


Upstream = LoadGenerator | Files | Connected | Webhook


@dataclass(frozen=True, slots=True)
class SchemaFrom:
    """``USING CONFLUENT SCHEMA REGISTRY CONNECTION name | [MESSAGE 'm'] USING SCHEMA 'text'``."""

    registry: str | None = None
    text: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class KeyFormat:
    """``KEY FORMAT …``: how the key of a message is read."""

    format: Literal["json", "text", "bytes", "avro", "protobuf"]
    schema: SchemaFrom | None = None


@dataclass(frozen=True, slots=True)
class Encoding:
    """``FORMAT … [INCLUDE …] [ENVELOPE …] [ON ERROR FAIL | SKIP]``: how messages become rows."""

    format: Literal["json", "csv", "text", "bytes", "parquet", "avro", "protobuf"]
    header: bool = False
    delimiter: str = ","
    envelope: Literal["none", "upsert", "debezium"] = "none"
    key: tuple[str, ...] = ()
    """The columns of the key of an upsert."""
    on_error: Literal["fail", "skip"] = "fail"
    included: tuple[tuple[Included, str], ...] = ()
    """``INCLUDE KEY | PARTITION | OFFSET | TIMESTAMP | HEADERS [AS name], …``: of the message."""
    schema: SchemaFrom | None = None
    """Of ``AVRO`` and ``PROTOBUF``: where it is said what is in a message."""
    key_format: KeyFormat | None = None


@dataclass(frozen=True, slots=True)
class TableReference:
    """``reference [AS name]``: one of upstream's tables, and what it is called here."""

    reference: str
    name: str


@dataclass(frozen=True, slots=True)
class CreateSource:
    """``CREATE SOURCE [IF NOT EXISTS] name [(column, …)] FROM upstream …``.

    ``tables``: those of ``FOR TABLES (…)``; empty for ``FOR ALL TABLES``; None: it says neither.
    ``schemas``: those of ``FOR SCHEMAS (…)``, all tables of which are wanted.
    """

    name: str
    upstream: Upstream
    tables: tuple[TableReference, ...] | None = None
    columns: pa.Schema | None = None
    encoding: Encoding | None = None
    if_not_exists: bool = False
    retain_ms: int | None = None
    schemas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnSource:
    """``ALTER SOURCE name PAUSE | RESUME``."""

    name: str
    action: Literal["pause", "resume"]


SourceStatement = CreateSource | TurnSource
