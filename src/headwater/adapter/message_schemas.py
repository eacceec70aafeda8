"""Schemas of messages: what ``USING …`` says, asked for once, when a source is made.

The subject of a topic's values is ``<topic>-value``, of its keys ``<topic>-key``, as producers
register them unless they are told otherwise. The newest schema of the subject becomes the reader's
schema of the source and stays so (``storage/message_schema.py``).
"""

from __future__ import annotations

import pyarrow as pa

from headwater.adapter.connections import Connections, connection
from headwater.adapter.errors import InvalidDefinition
from headwater.adapter.object_errors import ConnectionFailed
from headwater.adapter.sql.source_statements import Encoding, KeyFormat, SchemaFrom
from headwater.persist import evolution
from headwater.persist.state import State
from headwater.storage import registry
from headwater.storage.definition import Decoding
from headwater.storage.errors import TransientError
from headwater.storage.message_schema import Described, MessageSchema, format_of, kept, nowhere

_REGISTRY = "confluent schema registry"


def decoding(
    state: State,
    encoding: Encoding,
    columns: pa.Schema | None,
    topic: str,
    reached: Connections,
) -> Decoding:
    """Return how messages become rows, where a schema or a format of the key says it.

    Without a ``topic`` there are no subjects, and the parser has refused to ask for one.
    """
    assert encoding.format != "parquet"
    reader = key_reader = None
    key_format = encoding.key_format
    if encoding.schema is not None:
        assert encoding.format in ("avro", "protobuf")
        reader = _schema(state, encoding.format, encoding.schema, f"{topic}-value", reached)
        if encoding.envelope == "upsert" and not encoding.key and key_format is None:
            key_format = KeyFormat(encoding.format, SchemaFrom(encoding.schema.registry))
    key = encoding.key
    if key_format is not None:
        if key_format.schema is not None:
            assert key_format.format in ("avro", "protobuf")
            given = key_format.schema
            key_reader = _schema(state, key_format.format, given, f"{topic}-key", reached)
            read = format_of(key_format.format, key_reader, nowhere, alone="key")
            key = tuple(read.schema.names)
        else:
            key = ("key",)
    return Decoding(
        encoding.envelope,
        b"" if columns is None else evolution.to_bytes(columns),
        encoding.format,
        key,
        delimiter=encoding.delimiter,
        policy=encoding.on_error,
        included=encoding.included,
        reader=reader,
        key_format="" if key_format is None else key_format.format,
        key_reader=key_reader,
    )


def uses(decoding: Decoding) -> tuple[str, ...]:
    """Return the ids of the connections that messages need to be read."""
    schemas = (decoding.reader, decoding.key_reader)
    return tuple(dict.fromkeys(each.registry for each in schemas if each and each.registry))


def _schema(
    state: State, kind: Described, given: SchemaFrom, subject: str, reached: Connections
) -> MessageSchema:
    if given.registry is None:
        return MessageSchema((given.text,), given.message)
    used = connection(state, given.registry, _REGISTRY).id
    asked = registry.connected(reached(used), "CREATE SOURCE")
    try:
        form = "serialized" if kind == "protobuf" else ""
        found = asked.latest(subject, form)
        referred = [] if found is None else list(asked.referred(found, form))
    except TransientError as error:
        what = f'connection "{given.registry}"'
        raise ConnectionFailed(what, error.why, _REGISTRY) from error
    if found is None:
        side = subject.rpartition("-")[2]
        raise InvalidDefinition(
            f'the schema registry has no subject "{subject}"',
            hint=f"Register the schema of the topic's {side}s there, or say how they are written: "
            + (
                f"FORMAT {kind.upper()} USING SCHEMA '…'."
                if side == "value"
                else "KEY FORMAT TEXT VALUE FORMAT …; ENVELOPE UPSERT (KEY (…)) of the value."
            ),
        )
    if found.schema_type != kind.upper():
        raise InvalidDefinition(
            f'subject "{subject}" has a schema of {found.schema_type}, not of {kind.upper()}',
            hint=f"FORMAT {found.schema_type} …",
        )
    return MessageSchema(kept(kind, found.schema, referred), given.message, used, subject)
