"""Statements about schemas, as values; part of the union in :mod:`.statements`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "table",
    "view",
    "materialized view",
    "index",
    "materialization",
    "subscription",
    "source",
    "secret",
    "connection",
]


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """``CREATE SCHEMA [IF NOT EXISTS] name``."""

    name: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropSchema:
    """``DROP SCHEMA [IF EXISTS] name, … [CASCADE | RESTRICT]``."""

    names: tuple[str, ...]
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class RenameSchema:
    """``ALTER SCHEMA name RENAME TO new_name``."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class SetSchema:
    """``ALTER kind name SET SCHEMA schema``; ``ALTER TABLE`` moves any relation."""

    kind: Kind
    name: str
    schema: str
