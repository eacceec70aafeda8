"""``FORMAT … INCLUDE … ENVELOPE … ON ERROR …``: the part of ``CREATE SOURCE`` about messages.

FORMAT f | KEY FORMAT f VALUE FORMAT f
f: JSON | CSV … | TEXT | BYTES | PARQUET | AVRO schema | PROTOBUF [MESSAGE 'm'] schema
schema: USING CONFLUENT SCHEMA REGISTRY CONNECTION name | USING SCHEMA '…' | (SCHEMA '…')
"""

from __future__ import annotations

from typing import Final, Literal

from headwater.adapter.errors import InvalidDefinition, Unsupported
from headwater.adapter.sql.options import read_options, refuse_others, text
from headwater.adapter.sql.source_statements import (
    Connected,
    Encoding,
    Files,
    Included,
    KeyFormat,
    SchemaFrom,
    Upstream,
    Webhook,
)
from headwater.adapter.sql.tokens import Cursor

Name = Literal["json", "csv", "text", "bytes", "parquet", "avro", "protobuf"]

_FORMATS: Final[tuple[Name, ...]] = ("json", "csv", "text", "bytes", "parquet", "avro", "protobuf")
_NONE: Final = "none"
_INCLUDED: Final[tuple[Included, ...]] = ("key", "partition", "offset", "timestamp", "headers")


def read_encoding(cursor: Cursor) -> Encoding | None:
    """Read how messages become rows, if that is next."""
    if cursor.accept("KEY", "FORMAT"):
        name, schema = _format(cursor)
        if name == "csv" or name == "parquet":
            raise InvalidDefinition(
                f"KEY FORMAT {name.upper()} is none of a key",
                hint="There are JSON, TEXT, BYTES, AVRO and PROTOBUF.",
            )
        cursor.expect("VALUE", "FORMAT")
        return _encoding(cursor, KeyFormat(name, schema))
    return _encoding(cursor, None) if cursor.accept("FORMAT") else None


def _encoding(cursor: Cursor, key_format: KeyFormat | None) -> Encoding:
    format_, schema = _format(cursor)
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
    return Encoding(
        format_, header, delimiter, envelope, key, on_error, included, schema, key_format
    )


def _format(cursor: Cursor) -> tuple[Name, SchemaFrom | None]:
    name = next((f for f in _FORMATS if cursor.accept(f.upper())), None)
    if name is None:
        there = ", ".join(_FORMATS).upper()
        raise Unsupported(f"FORMAT {cursor.identifier().upper()}", detail=f"There are {there}.")
    if name == "avro":
        return name, _schema(cursor, "AVRO")
    if name == "protobuf":
        message = cursor.string() if cursor.accept("MESSAGE") else ""
        found = _schema(cursor, "PROTOBUF")
        if found.registry is None and not message:
            raise InvalidDefinition(
                "FORMAT PROTOBUF needs to know which message of its schema is meant",
                hint="FORMAT PROTOBUF MESSAGE 'package.Name' USING SCHEMA '…'",
            )
        return name, SchemaFrom(found.registry, found.text, message)
    return name, None


def _schema(cursor: Cursor, format_: str) -> SchemaFrom:
    if cursor.peek("("):
        what = f"FORMAT {format_}"
        given = read_options(cursor)
        refuse_others(what, given, ("schema",))
        return SchemaFrom(text=text("schema", given, what))
    if not cursor.accept("USING"):
        raise InvalidDefinition(
            f"FORMAT {format_} needs a schema",
            hint="USING CONFLUENT SCHEMA REGISTRY CONNECTION name, or USING SCHEMA '…'.",
        )
    if cursor.accept("SCHEMA"):
        return SchemaFrom(text=cursor.string())
    cursor.expect("CONFLUENT", "SCHEMA", "REGISTRY", "CONNECTION")
    return SchemaFrom(cursor.relation())


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
    cursor.expect("UPSERT")
    if not cursor.accept("("):
        return "upsert", ()
    cursor.expect("KEY")
    key = cursor.names()
    cursor.expect(")")
    return "upsert", key


# ---- what belongs together -----------------------------------------------------------------------


def check_encoding(upstream: Upstream, encoding: Encoding, has_columns: bool) -> None:
    """Refuse clauses that contradict each other, or lack another."""
    _check_included(upstream, encoding)
    _check_schema(upstream, encoding, has_columns)
    _check_key(upstream, encoding)
    described = encoding.schema is not None
    needs = encoding.format in ("csv", "parquet") or encoding.envelope == "debezium"
    if needs and not has_columns and not described:
        raise InvalidDefinition(
            f"FORMAT {encoding.format.upper()} needs columns here",
            hint="CREATE SOURCE name (column type, …) FROM …",
        )
    if has_columns and encoding.format in ("text", "bytes"):
        raise InvalidDefinition(f"FORMAT {encoding.format.upper()} has one column of its own")
    if encoding.envelope == "debezium" and encoding.format not in ("json", "avro"):
        raise InvalidDefinition("ENVELOPE DEBEZIUM is of FORMAT JSON or AVRO")
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


def _check_schema(upstream: Upstream, encoding: Encoding, has_columns: bool) -> None:
    if encoding.schema is None:
        return
    name = encoding.format.upper()
    if isinstance(upstream, Files):
        raise InvalidDefinition(
            f"FORMAT {name} is of messages, and files have lines",
            hint="There are JSON, CSV, TEXT, BYTES and PARQUET.",
        )
    if isinstance(upstream, Webhook) and encoding.schema.registry is not None:
        raise InvalidDefinition(
            "a request is of no topic, so there is no subject of it in a registry",
            hint=f"FORMAT {name} … USING SCHEMA '…'.",
        )
    if has_columns:
        raise InvalidDefinition(
            f"FORMAT {name} has the columns of its schema", hint="Leave the list of columns out."
        )


def _check_key(upstream: Upstream, encoding: Encoding) -> None:
    key_format, of_value = encoding.key_format, encoding.key
    if key_format is not None:
        if not isinstance(upstream, Connected):
            raise InvalidDefinition("KEY FORMAT belongs to a source of KAFKA")
        if encoding.envelope != "upsert":
            raise InvalidDefinition(
                "KEY FORMAT belongs to ENVELOPE UPSERT",
                hint="INCLUDE KEY has the key beside the value as it is.",
            )
        if of_value:
            raise InvalidDefinition(
                "the key is read by KEY FORMAT, all of it", hint="ENVELOPE UPSERT without KEY (…)."
            )
    registered = encoding.schema is not None and encoding.schema.registry is not None
    if encoding.envelope == "upsert" and not of_value and key_format is None and not registered:
        raise InvalidDefinition(
            "ENVELOPE UPSERT needs a key",
            hint="ENVELOPE UPSERT (KEY (column, …)), or KEY FORMAT … VALUE FORMAT … before it.",
        )
