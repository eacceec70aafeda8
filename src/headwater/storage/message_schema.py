"""By which schema messages are read: what a source keeps of it, and the formats made of that.

A :class:`MessageSchema` is part of a source's durable definition. It holds the reader's schema
itself, as it was when the source was made, so the columns of the source depend on nobody; and,
where messages name the schema of their writer, which connection leads to the registry that knows
it. The libraries behind these formats are extras: they are asked for here, by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from headwater.base.errors import InvalidUsage
from headwater.storage.format import Changing, Format
from headwater.storage.registry import Registry

Described = Literal["avro", "protobuf"]
"""The formats that have their columns from a schema."""

Registries = Callable[[str], Registry]
"""From the id of a connection to the registry behind it."""


class MessageSchema(msgspec.Struct, frozen=True):
    """The reader's schema of keys or values."""

    texts: tuple[str, ...]
    """Of Avro: schemas, each behind those it uses. Of Protobuf: a FileDescriptorSet in base64."""
    message: str = ""
    """Of Protobuf: which message of the files."""
    registry: str = ""
    """The id of the connection to the writers' schemas; without one messages are records alone."""
    subject: str = ""


def nowhere(_: str) -> Registry:
    """Return a registry for those who only want to know the columns."""
    return Registry("")


def format_of(
    kind: Described, schema: MessageSchema, registries: Registries, *, alone: str
) -> Format:
    """Return what reads such messages; one column ``alone`` where they are no records."""
    if kind == "protobuf":
        try:
            from headwater.storage.protobuf import Protobuf
        except ModuleNotFoundError as error:
            raise _missing("PROTOBUF", "protobuf") from error
        return Protobuf(schema.texts[-1], schema.message, bool(schema.registry))
    registry = registries(schema.registry) if schema.registry else None
    try:
        from headwater.storage.avro import Avro, Subject
    except ModuleNotFoundError as error:
        raise _missing("AVRO", "avro") from error
    subject = None if registry is None else Subject(registry, schema.subject)
    return Avro(schema.texts, subject, alone)


def changes_of(schema: MessageSchema, registries: Registries) -> Changing:
    """Return what reads Debezium's changes in Avro."""
    registry = registries(schema.registry) if schema.registry else None
    try:
        from headwater.storage.avro import AvroChanges, Subject
    except ModuleNotFoundError as error:
        raise _missing("AVRO", "avro") from error
    subject = None if registry is None else Subject(registry, schema.subject)
    return AvroChanges(schema.texts, subject)


def kept(kind: Described, own: str, referred: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the texts to keep of a schema that is registered, and of those that it refers to."""
    if kind == "avro":
        return (*(text for _, text in referred), own)
    try:
        from headwater.storage.protobuf import described
    except ModuleNotFoundError as error:
        raise _missing("PROTOBUF", "protobuf") from error
    return (described([*referred, ("", own)]),)


def _missing(format_: str, extra: str) -> InvalidUsage:
    return InvalidUsage(f"FORMAT {format_} needs an extra: pip install 'headwater[{extra}]'")
