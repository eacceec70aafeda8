"""What the definition of a table says of its columns beyond the schema: defaults and lengths.

The schema of a collection has types and NOT NULL. The rest is kept where the user wrote it, in the
statement that made the table; a rename or a move rewrites that (``adapter/alterations.py``), so it
is never out of date. Relied on by everything that writes rows into a table (``adapter/writes.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from headwater.adapter.sql.parse import parse
from headwater.adapter.sql.statements import Calculated, CreateTable, Value


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """By name of the column."""

    defaults: Mapping[str, Value | Calculated]
    """What a row that leaves it out gets."""
    lengths: Mapping[str, int]
    """How many characters it takes; those that are not here take any number."""


@lru_cache(maxsize=1024)
def column_rules(create_sql: str) -> ColumnRules:
    """The rules of the table that this statement made."""
    (statement,) = parse(create_sql)
    assert isinstance(statement, CreateTable)
    return ColumnRules(
        {column.name: column.default for column in statement.columns},
        {column.name: column.length_max for column in statement.columns if column.length_max},
    )
