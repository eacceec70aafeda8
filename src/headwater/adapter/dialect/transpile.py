"""The door of the dialect: ``to_spark(sql, relations) → Transpiled``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.adapter.dialect.literals import MONTHS
from headwater.adapter.dialect.parser import parse
from headwater.adapter.dialect.query import QueryTranslator
from headwater.adapter.errors import Unsupported
from headwater.collection.schema import type_of
from headwater.collection.types import SqlType

TEXT_MAX: Final = 1_000_000
"""Characters of the query that is written; more is refused."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result: PostgreSQL's name of it, and its type."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class Transpiled:
    """Spark SQL with the meaning the client's text has in PostgreSQL."""

    text: str
    columns: tuple[Column, ...]

    @property
    def types(self) -> tuple[SqlType, ...]:
        """Of the columns."""
        return tuple(column.type for column in self.columns)


def to_spark(sql: str, relations: Mapping[str, pa.Schema | Mapping[str, SqlType]]) -> Transpiled:
    """Translate a query in PostgreSQL's dialect.

    ``relations`` maps the (unqualified) name of every relation it may read to its columns; Spark
    finds them as temporary views by that name. Refusals are ``AdapterError`` with a position.
    """
    known = {
        name: (
            {field.name: type_of(field) for field in columns}
            if isinstance(columns, pa.Schema)
            else columns
        )
        for name, columns in relations.items()
    }
    try:
        text, columns = QueryTranslator(known).query(parse(sql), None, {}, None, top=True)
    except RecursionError:
        raise Unsupported("a query nested this deeply") from None
    if MONTHS in text:
        raise Unsupported(
            "an interval of months as a value",
            hint="Add it to a date or timestamp directly, or use days.",
        )
    if "${" in text:
        raise Unsupported("a name with ${ in it")  # Spark would replace it by a setting
    if len(text) > TEXT_MAX:
        raise Unsupported("a query this large")
    return Transpiled(text, tuple(Column(column.name, column.type) for column in columns))
