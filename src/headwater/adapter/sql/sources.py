"""``CREATE SOURCE``, read by recursive descent; the grammar is in :mod:`.source_statements`."""

from __future__ import annotations

from typing import Final, Literal

from headwater.adapter.errors import InvalidDefinition, Unsupported
from headwater.adapter.sql import objects, statements
from headwater.adapter.sql.options import read_options
from headwater.adapter.sql.source_statements import (
    CreateSource,
    LoadGenerator,
    TableReference,
    Upstream,
)
from headwater.adapter.sql.tokens import Cursor, Source

_GENERATORS: Final[
    tuple[tuple[tuple[str, ...], Literal["counter", "auction", "key value", "nexmark"]], ...]
] = (
    (("COUNTER",), "counter"),
    (("AUCTION",), "auction"),
    (("KEY", "VALUE"), "key value"),
    (("NEXMARK",), "nexmark"),
)


def create_source(source: Source) -> statements.Statement:
    """``CREATE SOURCE …``."""
    cursor = Cursor(source)
    cursor.expect("CREATE", "SOURCE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.relation()
    cursor.expect("FROM")
    upstream = _upstream(cursor)
    tables = _tables(cursor)
    retain_ms = objects.retention(cursor) if cursor.accept("WITH") else None
    cursor.finish()
    return CreateSource(name, upstream, tables, None, if_not_exists, retain_ms)


def _upstream(cursor: Cursor) -> Upstream:
    if cursor.accept("LOAD", "GENERATOR"):
        for words, kind in _GENERATORS:
            if cursor.accept(*words):
                return LoadGenerator(kind, read_options(cursor) if cursor.peek("(") else {})
        there = ", ".join(" ".join(words) for words, _ in _GENERATORS)
        raise Unsupported(
            f"LOAD GENERATOR {cursor.identifier().upper()}", detail=f"There are {there}."
        )
    raise Unsupported(
        f"a source FROM {cursor.identifier().upper()}", detail="There is FROM LOAD GENERATOR."
    )


def _tables(cursor: Cursor) -> tuple[TableReference, ...] | None:
    """``FOR ALL TABLES | FOR TABLES (reference [AS name], …)``."""
    if not cursor.accept("FOR"):
        return None
    if cursor.accept("ALL", "TABLES"):
        return ()
    cursor.expect("TABLES", "(")
    found: list[TableReference] = []
    while not found or cursor.accept(","):
        parts = cursor.parts()
        name = cursor.relation() if cursor.accept("AS") else parts[-1]
        if any(name == other.name for other in found):
            raise InvalidDefinition(f'two tables of the source are called "{name}"')
        found.append(TableReference(".".join(parts), name))
    cursor.expect(")")
    return tuple(found)
