"""Messages as protobuf, by the table of ``schema``.

Written as ``protoc``'s own encoders write it: fields ascend by tag, defaults are left out, a
message that is present but empty is written with length 0, maps ascend by key. So two equal
messages have equal bytes, and golden bytes can be compared.

Read as protobuf demands: fields in any order, of a repeated scalar or message the last one counts,
what is not known is skipped, or kept in ``unknown`` where the message has it.

What is malformed raises :class:`MalformedMessage`: a connector that prints to its standard output
must not be taken for one that speaks.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from headwater.base.errors import HeadwaterError
from headwater.materialize.protocol.machine import Side
from headwater.materialize.protocol.messages import Message
from headwater.materialize.wire.schema import (
    REFUSED,
    REQUEST,
    RESPONSE,
    SCHEMAS,
    Cardinality,
    Field,
    Kind,
    MessageSchema,
    Scalar,
)

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_VARINT_BITS_MAX: Final = 70
_U64: Final = (1 << 64) - 1
_U32: Final = (1 << 32) - 1


class MalformedMessage(HeadwaterError):
    """Bytes that are no message of the protocol."""


class NotOnTheWire(HeadwaterError):
    """A message that protocol 3032023 has no words for."""

    def __init__(self, message: object, field: str) -> None:
        super().__init__(
            f"{type(message).__name__}.{field} cannot be sent to a connector: protocol 3032023 "
            "has no such field, and the connector would act as if it were not set"
        )


def envelope_of(side: Side) -> tuple[Field, ...]:
    """Return the envelope in which a side speaks."""
    return REQUEST if side is Side.RUNTIME else RESPONSE


def encode(message: Message, side: Side) -> bytes:
    """Return a message of a side, in its envelope, without framing."""
    return encode_in(message, envelope_of(side))


def encode_in(message: Any, envelope: tuple[Field, ...]) -> bytes:
    """Return a message in an envelope."""
    tag = _tags(envelope).get(type(message))
    if tag is None:
        raise NotOnTheWire(message, "*")
    return _delimited(tag, encode_value(message))


def decode(payload: bytes, side: Side) -> Message:
    """Return the message that a side sent; exactly one must be in the envelope."""
    message: Message = decode_in(payload, envelope_of(side))
    return message


def decode_in(payload: bytes, envelope: tuple[Field, ...]) -> Any:
    """Return the one message that is in an envelope."""
    found: list[Any] = []
    by_tag = {field.tag: field for field in envelope}
    for tag, wire_type, value, _ in _fields(payload):
        field = by_tag.get(tag)
        if field is None:
            continue
        if wire_type != _BYTES:
            raise MalformedMessage(f"field {field.name} has wire type {wire_type}")
        assert isinstance(field.kind, type)
        found.append(decode_value(value, field.kind))
    if len(found) != 1:
        raise MalformedMessage(f"{len(found)} messages in one envelope of {len(payload)} bytes")
    return found[0]


def encode_value(message: Any) -> bytes:
    """Return the bytes of any value of the schema, without envelope."""
    kind: type = type(message)
    for name in REFUSED.get(kind, ()):
        if getattr(message, name):
            raise NotOnTheWire(message, name)
    written = b"".join([write(getattr(message, name)) for name, write in _writers(kind)])
    return written + getattr(message, "unknown", b"")


def decode_value(payload: bytes, kind: type) -> Any:
    """Return a value of the schema from its bytes."""
    readers, keeps_unknown = _readers(kind)
    values: dict[str, Any] = {}
    unknown: list[bytes] = []
    for tag, wire_type, value, raw in _fields(payload):
        reader = readers.get(tag)
        if reader is None:
            unknown.append(raw)
            continue
        field, expected, read = reader
        if field.cardinality is Cardinality.PACKED:
            # A peer may also write each of them alone.
            packed = value if wire_type == _BYTES else bytes((value,))
            values.setdefault(field.name, []).extend(map(bool, packed))
            continue
        if wire_type != expected:
            raise MalformedMessage(
                f"{kind.__name__}.{field.name} has wire type {wire_type}, not {expected}"
            )
        if field.cardinality is Cardinality.ONE:
            values[field.name] = read(value)
        else:
            values.setdefault(field.name, []).append(read(value))
    for field, _, _ in readers.values():
        if field.name in values and field.cardinality is not Cardinality.ONE:
            many = values[field.name]
            if field.cardinality is Cardinality.BY_NAME:
                many = sorted(dict(many).items())
            values[field.name] = tuple(many)
    if keeps_unknown:
        values["unknown"] = b"".join(unknown)
    return kind(**values)


@cache
def _tags(envelope: tuple[Field, ...]) -> Mapping[Kind, int]:
    return {field.kind: field.tag for field in envelope}


def _fields_of(kind: type) -> tuple[Field, ...]:
    schema = SCHEMAS.get(kind) or _others()[kind]
    return schema.fields


@cache
def _others() -> Mapping[type, MessageSchema]:
    # That protocol is written in terms of this one.
    from headwater.materialize.arena.tables import SCHEMAS as ARENA

    return ARENA


# Writing: for each class, a list of functions from a field's value to its bytes, made once.

_Write = Callable[[Any], bytes]


@cache
def _writers(kind: type) -> list[tuple[str, _Write]]:
    return [(field.name, _field_writer(field)) for field in _fields_of(kind)]


def _field_writer(field: Field) -> _Write:
    match field.cardinality:
        case Cardinality.ONE:
            return _single_writer(field.tag, field.kind, keep_default=False)
        case Cardinality.MANY:
            item = _single_writer(field.tag, field.kind, keep_default=True)
            return lambda values: b"".join(map(item, values))
        case Cardinality.PACKED:
            return lambda values: _delimited(field.tag, bytes(values)) if values else b""
        case Cardinality.BY_NAME:
            value_of = _single_writer(2, field.kind, keep_default=True)

            def entries(pairs: tuple[tuple[str, Any], ...]) -> bytes:
                return b"".join(
                    [
                        _delimited(field.tag, _delimited(1, name.encode()) + value_of(value))
                        for name, value in sorted(pairs)
                    ]
                )

            return entries


def _single_writer(tag: int, kind: Kind, *, keep_default: bool) -> _Write:
    """Return a writer of one value; ``keep_default`` in lists and maps, which have no gaps."""
    wire_type = _wire_type(kind)
    head = _varint(tag << 3 | wire_type)
    if not isinstance(kind, Scalar) and not issubclass(kind, enum.IntEnum):
        return lambda value: b"" if value is None else _delimited(tag, encode_value(value))
    body = _body_writer(kind)
    if keep_default:
        return lambda value: head + body(value)
    if kind is Scalar.DOUBLE:
        # Minus zero is equal to the default and is not the default.
        return lambda value: b"" if struct.pack("<d", value) == bytes(8) else head + body(value)
    return lambda value: head + body(value) if value else b""


def _body_writer(kind: Kind) -> _Write:
    match kind:
        case Scalar.STRING:
            return lambda value: _with_length(value.encode())
        case Scalar.BYTES | Scalar.JSON | Scalar.OPAQUE:
            return _with_length
        case Scalar.FIXED32:
            return lambda value: struct.pack("<I", value)
        case Scalar.FIXED64:
            return lambda value: struct.pack("<Q", value)
        case Scalar.DOUBLE:
            return lambda value: struct.pack("<d", value)
        case _:
            return lambda value: _varint(int(value) & _U64)


def _with_length(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _delimited(tag: int, content: bytes) -> bytes:
    return _varint(tag << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


# Reading.

_Read = Callable[[Any], Any]


@cache
def _readers(kind: type) -> tuple[Mapping[int, tuple[Field, int, _Read]], bool]:
    by_tag = {}
    for field in _fields_of(kind):
        if field.cardinality is Cardinality.BY_NAME:
            by_tag[field.tag] = (field, _BYTES, _entry_reader(field.kind))
        else:
            by_tag[field.tag] = (field, _wire_type(field.kind), _reader(field.kind))
    return by_tag, "unknown" in {field.name for field in dataclasses.fields(kind)}


def _entry_reader(kind: Kind) -> _Read:
    read, expected = _reader(kind), _wire_type(kind)

    def entry(payload: bytes) -> tuple[str, Any]:
        name, value = "", None
        for tag, wire_type, content, _ in _fields(payload):
            if tag == 1 and wire_type == _BYTES:
                name = _text(content)
            elif tag == 2 and wire_type == expected:
                value = read(content)
        # An absent value is the default: empty bytes, or an empty message.
        return name, read(b"") if value is None else value

    return entry


def _reader(kind: Kind) -> _Read:
    match kind:
        case Scalar.STRING:
            return _text
        case Scalar.BYTES | Scalar.JSON | Scalar.OPAQUE:
            return bytes
        case Scalar.BOOL:
            return bool
        case Scalar.DOUBLE:
            return lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]
        case Scalar.INT64:
            return lambda value: value - (1 << 64) if value >> 63 else value
        case Scalar.UINT32:
            return lambda value: value & _U32
        case Scalar.FIXED32 | Scalar.FIXED64:
            return int
        case _ if issubclass(kind, enum.IntEnum):
            return lambda value: _member(kind, value)
        case _:
            return lambda content: decode_value(content, kind)


def _member(kind: type[enum.IntEnum], value: int) -> enum.IntEnum:
    try:
        return kind(value)
    except ValueError as error:
        raise MalformedMessage(f"{value} is no {kind.__name__} that we know") from error


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"a string that is not UTF-8: {content[:40]!r}") from error


def _wire_type(kind: Kind) -> int:
    match kind:
        case Scalar.FIXED32:
            return _FIXED32
        case Scalar.FIXED64 | Scalar.DOUBLE:
            return _FIXED64
        case Scalar.UINT32 | Scalar.INT64 | Scalar.BOOL:
            return _VARINT
        case Scalar():
            return _BYTES
        case _:
            return _VARINT if issubclass(kind, enum.IntEnum) else _BYTES


def _fields(payload: bytes) -> list[tuple[int, int, Any, bytes]]:
    """Return ``(tag, wire type, value, all bytes)`` of each field."""
    found = []
    at, end = 0, len(payload)
    while at < end:
        start = at
        head, at = _read_varint(payload, at)
        tag, wire_type = head >> 3, head & 7
        value: int | bytes
        if wire_type == _VARINT:
            value, at = _read_varint(payload, at)
        elif wire_type == _BYTES:
            length, at = _read_varint(payload, at)
            value, at = payload[at : at + length], at + length
        elif wire_type == _FIXED32:
            value, at = int.from_bytes(payload[at : at + 4], "little"), at + 4
        elif wire_type == _FIXED64:
            value, at = int.from_bytes(payload[at : at + 8], "little"), at + 8
        else:
            raise MalformedMessage(f"wire type {wire_type} at byte {start}")
        if at > end or not tag:
            raise MalformedMessage(f"field {tag} at byte {start} of {end} is cut short or empty")
        found.append((tag, wire_type, value, payload[start:at]))
    return found


def _read_varint(payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < _VARINT_BITS_MAX:
        if at >= len(payload):
            raise MalformedMessage(f"a number is cut short at byte {at}")
        digit = payload[at]
        at += 1
        value |= (digit & 0x7F) << shift
        if digit < 0x80:
            return value & _U64, at
        shift += 7
    raise MalformedMessage(f"a number of more than ten bytes before byte {at}")
