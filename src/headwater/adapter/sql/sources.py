"""``CREATE SOURCE``, read by recursive descent; the grammar is in :mod:`.source_statements`."""

from __future__ import annotations

from typing import Final, Literal

from headwater.adapter.errors import InvalidDefinition, Unsupported
from headwater.adapter.sql import connections, objects, statements
from headwater.adapter.sql.column_lists import columns_of
from headwater.adapter.sql.connection_statements import SecretName
from headwater.adapter.sql.formats import check_encoding, read_encoding
from headwater.adapter.sql.names import written
from headwater.adapter.sql.options import read_options
from headwater.adapter.sql.source_statements import (
    Connected,
    CreateSource,
    Encoding,
    Files,
    LoadGenerator,
    TableReference,
    Upstream,
    Webhook,
)
from headwater.adapter.sql.tokens import Cursor, Source

_GENERATORS: Final[
    tuple[
        tuple[tuple[str, ...], Literal["counter", "auction", "key value", "nexmark", "tpch"]], ...
    ]
] = (
    (("COUNTER",), "counter"),
    (("AUCTION",), "auction"),
    (("KEY", "VALUE"), "key value"),
    (("NEXMARK",), "nexmark"),
    (("TPCH",), "tpch"),
)


_CONNECTED: Final[tuple[tuple[str, Literal["postgres", "kafka", "mysql"]], ...]] = (
    ("POSTGRES", "postgres"),
    ("MYSQL", "mysql"),
    ("KAFKA", "kafka"),
)


def create_source(source: Source) -> statements.Statement:
    """``CREATE SOURCE …``."""
    cursor = Cursor(source)
    cursor.expect("CREATE", "SOURCE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.relation()
    columns = columns_of(cursor) if cursor.peek("(") else None
    cursor.expect("FROM")
    upstream = _upstream(cursor)
    encoding = read_encoding(cursor)
    schemas = cursor.names() if cursor.accept("FOR", "SCHEMAS") else ()
    tables = () if schemas else _tables(cursor)
    retain_ms = objects.retention(cursor) if cursor.accept("WITH") else None
    cursor.finish()
    _check(upstream, encoding, columns is not None)
    return CreateSource(
        name, upstream, tables, columns, encoding, if_not_exists, retain_ms, schemas
    )


def _check(upstream: Upstream, encoding: Encoding | None, has_columns: bool) -> None:
    """Refuse clauses that do not belong to an upstream, and the lack of one that does."""
    decodes = isinstance(upstream, Files | Webhook) or (
        isinstance(upstream, Connected) and upstream.kind == "kafka"
    )
    if not decodes and (encoding is not None or has_columns):
        raise InvalidDefinition("columns and FORMAT belong to a source of FILES, KAFKA or WEBHOOK")
    if decodes and encoding is None:
        raise InvalidDefinition("a source of FILES, KAFKA or WEBHOOK needs a FORMAT")
    if encoding is not None:
        check_encoding(upstream, encoding, has_columns)


def _upstream(cursor: Cursor) -> Upstream:
    if cursor.accept("LOAD", "GENERATOR"):
        for words, kind in _GENERATORS:
            if cursor.accept(*words):
                return LoadGenerator(kind, read_options(cursor) if cursor.peek("(") else {})
        there = ", ".join(" ".join(words) for words, _ in _GENERATORS)
        raise Unsupported(
            f"LOAD GENERATOR {cursor.identifier().upper()}", detail=f"There are {there}."
        )
    if cursor.accept("FILES"):
        return Files(read_options(cursor))
    if cursor.accept("WEBHOOK"):
        return _webhook(cursor)
    for word, kind_ in _CONNECTED:
        if cursor.accept(word):
            cursor.expect("CONNECTION")
            named = cursor.relation()
            options = {} if kind_ == "mysql" and not cursor.peek("(") else read_options(cursor)
            return Connected(kind_, named, options)
    raise Unsupported(
        f"a source FROM {cursor.identifier().upper()}",
        detail="There is LOAD GENERATOR, FILES, WEBHOOK, and POSTGRES, MYSQL and KAFKA CONNECTION.",
    )


def _webhook(cursor: Cursor) -> Webhook:
    given = read_options(cursor, connections.secret_name) if cursor.peek("(") else {}
    secret = given.pop("hmac", None)
    if isinstance(secret, SecretName):
        return Webhook(secret.name, given)
    if secret is not None:
        raise InvalidDefinition("HMAC is a secret", hint="CREATE SECRET s AS '…'; HMAC SECRET s.")
    return Webhook(None, given)


def _tables(cursor: Cursor) -> tuple[TableReference, ...] | None:
    """``FOR ALL TABLES | FOR TABLES (reference [AS name], …)``; the schemas are read before."""
    if not cursor.accept("FOR"):
        return None
    if cursor.accept("ALL", "TABLES"):
        return ()
    cursor.expect("TABLES", "(")
    found: list[TableReference] = []
    while not found or cursor.accept(","):
        parts = cursor.parts()
        # The name of something new: no reference to an object.
        name = written(cursor.parts() if cursor.accept("AS") else (parts[-1],))
        if any(name == other.name for other in found):
            raise InvalidDefinition(f'two tables of the source are called "{name}"')
        found.append(TableReference(".".join(parts), name))
    cursor.expect(")")
    return tuple(found)
