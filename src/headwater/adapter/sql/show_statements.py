"""``SHOW``, as values; part of the union in :mod:`.statements`."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.adapter.sql.schema_statements import Kind


@dataclass(frozen=True, slots=True)
class Show:
    """``SHOW name``: the value of a session variable, name in lower case."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowTables:
    """``SHOW TABLES [FROM schema]``; None: of every one."""

    schema: str | None = None


@dataclass(frozen=True, slots=True)
class ShowObjects:
    """``SHOW {VIEWS | MATERIALIZATIONS | OBJECTS | …} [FROM schema]``; None: of every one."""

    kind: Kind | None = None
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class ShowSchemas:
    """``SHOW SCHEMAS``."""


@dataclass(frozen=True, slots=True)
class ShowColumns:
    """``SHOW COLUMNS FROM name``."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """``SHOW CREATE kind name``."""

    kind: Kind
    name: str
