"""``CREATE SOURCE``, read by recursive descent; the grammar is in :mod:`.source_statements`."""

from __future__ import annotations

from typing import Final, Literal

from headwater.adapter.errors import InvalidDefinition, Unsupported
from headwater.adapter.sql import connections, objects, statements
from headwater.adapter.sql.column_lists import columns_of
from headwater.adapter.sql.connection_statements import SecretName
from headwater.adapter.sql.names import written
from headwater.adapter.sql.options import read_options
from headwater.adapter.sql.source_statements import (
    Connected,
    CreateSource,
    Encoding,
    Files,
    Included,
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


_FORMATS: Final[tuple[Literal["json", "csv", "text", "bytes", "parquet"], ...]] = (
    "json",
    "csv",
    "text",
    "bytes",
    "parquet",
)
_CONNECTED: Final[tuple[tuple[str, Literal["postgres", "kafka", "mysql"]], ...]] = (
    ("POSTGRES", "postgres"),
    ("MYSQL", "mysql"),
    ("KAFKA", "kafka"),
)
_NONE: Final = "none"
_INCLUDED: Final[tuple[Included, ...]] = ("key", "partition", "offset", "timestamp", "headers")


def create_source(source: Source) -> statements.Statement:
    """``CREATE SOURCE …``."""
    cursor = Cursor(source)
    cursor.expect("CREATE", "SOURCE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.relation()
    columns = columns_of(cursor) if cursor.peek("(") else None
    cursor.expect("FROM")
    upstream = _upstream(cursor)
    encoding = _encoding(cursor) if cursor.accept("FORMAT") else None
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
    if encoding is None:
        return
    _check_included(upstream, encoding)
    needs = encoding.format in ("csv", "parquet") or encoding.envelope == "debezium"
    if needs and not has_columns:
        raise InvalidDefinition(
            f"FORMAT {encoding.format.upper()} needs columns here",
            hint="CREATE SOURCE name (column type, …) FROM …",
        )
    if has_columns and encoding.format in ("text", "bytes"):
        raise InvalidDefinition(f"FORMAT {encoding.format.upper()} has one column of its own")
    if encoding.envelope == "debezium" and encoding.format != "json":
        raise InvalidDefinition("ENVELOPE DEBEZIUM is of FORMAT JSON")
    if encoding.envelope != "none" and encoding.format == "parquet":
        raise InvalidDefinition("FORMAT PARQUET has rows, and no other envelope than NONE")


def _check_included(upstream: Upstream, encoding: Encoding) -> None:
    what = [each for each, _ in encoding.included]
    if what and not isinstance(upstream, Connected | Webhook):
        raise InvalidDefinition("INCLUDE belongs to a source of KAFKA or WEBHOOK")
    if isinstance(upstream, Webhook) and not {"key", "partition"}.isdisjoint(what):
        raise InvalidDefinition("a request has TIMESTAMP, HEADERS and OFFSET to INCLUDE")
    if what and encoding.envelope == "debezium":
        raise InvalidDefinition("a row of ENVELOPE DEBEZIUM comes and goes by several messages")
    if "key" in what and encoding.envelope == "upsert":
        raise InvalidDefinition("the key of ENVELOPE UPSERT is in its columns already")


def _encoding(cursor: Cursor) -> Encoding:
    format_ = next((f for f in _FORMATS if cursor.accept(f.upper())), None)
    if format_ is None:
        there = ", ".join(_FORMATS).upper()
        raise Unsupported(f"FORMAT {cursor.identifier().upper()}", detail=f"There are {there}.")
    header, delimiter = False, ","
    if format_ == "csv":
        header = cursor.accept("WITH", "HEADER")
        if cursor.accept("DELIMITED", "BY"):
            delimiter = cursor.string()
            if len(delimiter) != 1:
                raise InvalidDefinition("fields are delimited by one character")
    included = _included(cursor) if cursor.accept("INCLUDE") else ()
    envelope, key = _envelope(cursor) if cursor.accept("ENVELOPE") else (_NONE, ())
    on_error: Literal["fail", "skip"] = "fail"
    if cursor.accept("ON", "ERROR"):
        if cursor.accept("SKIP"):
            on_error = "skip"
        else:
            cursor.expect("FAIL")
    return Encoding(format_, header, delimiter, envelope, key, on_error, included)


def _included(cursor: Cursor) -> tuple[tuple[Included, str], ...]:
    """``KEY [AS name], PARTITION [AS name], …``."""
    found: list[tuple[Included, str]] = []
    while not found or cursor.accept(","):
        what = next((each for each in _INCLUDED if cursor.accept(each.upper())), None)
        if what is None:
            there = ", ".join(_INCLUDED).upper()
            raise InvalidDefinition(
                f"INCLUDE {cursor.identifier().upper()} is nothing of a message",
                hint=f"There are {there}.",
            )
        found.append((what, cursor.identifier() if cursor.accept("AS") else what))
    return tuple(found)


def _envelope(
    cursor: Cursor,
) -> tuple[Literal["none", "upsert", "debezium"], tuple[str, ...]]:
    if cursor.accept("NONE"):
        return "none", ()
    if cursor.accept("DEBEZIUM"):
        return "debezium", ()
    cursor.expect("UPSERT", "(", "KEY")
    key = cursor.names()
    cursor.expect(")")
    return "upsert", key


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
        name = cursor.relation() if cursor.accept("AS") else written((parts[-1],))
        if any(name == other.name for other in found):
            raise InvalidDefinition(f'two tables of the source are called "{name}"')
        found.append(TableReference(".".join(parts), name))
    cursor.expect(")")
    return tuple(found)
