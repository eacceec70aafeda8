"""Protobuf: messages as rows, by the descriptors that a source was made with.

Fields are known by their numbers, so whoever wrote a message, with an older or a newer schema, it
is read with ours: a field that we do not know is passed over, one that was not written is NULL or
its default. So no registry is asked when messages are read; its frame only says which message of
the file follows (a path of positions), which has to be ours.

| Protobuf | column |
|---|---|
| bool, int32, int64, float, double, string, bytes (and their kin) | the same |
| uint32, fixed32; uint64, fixed64 | bigint; numeric(20) |
| an enum | the name of its value, as text |
| google.protobuf.Timestamp | timestamptz |
| google.protobuf.StringValue and its kin | what is in it, or NULL |
| another message, repeated, map | JSON text, members sorted by name |

A field whose absence can be told (``optional``, of a oneof, a message) may be NULL; others are what
proto3 says that they are when nothing was written: 0, false, empty.

The library is an extra (``headwater[protobuf]``): only who has such a source imports this module.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from headwater.base.errors import InvalidUsage
from headwater.storage.format import Row, Undecodable
from headwater.storage.proto_text import parsed
from headwater.storage.registry import HEADER_BYTES, id_of

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    _FIELD.TYPE_BOOL: pa.bool_(),
    _FIELD.TYPE_INT32: pa.int32(),
    _FIELD.TYPE_SINT32: pa.int32(),
    _FIELD.TYPE_SFIXED32: pa.int32(),
    _FIELD.TYPE_INT64: pa.int64(),
    _FIELD.TYPE_SINT64: pa.int64(),
    _FIELD.TYPE_SFIXED64: pa.int64(),
    _FIELD.TYPE_UINT32: pa.int64(),
    _FIELD.TYPE_FIXED32: pa.int64(),
    _FIELD.TYPE_UINT64: pa.decimal128(20, 0),
    _FIELD.TYPE_FIXED64: pa.decimal128(20, 0),
    _FIELD.TYPE_FLOAT: pa.float32(),
    _FIELD.TYPE_DOUBLE: pa.float64(),
    _FIELD.TYPE_STRING: pa.string(),
    _FIELD.TYPE_BYTES: pa.binary(),
    _FIELD.TYPE_ENUM: pa.string(),
}
_OWN: Final = "google.protobuf."
_WRAPPERS: Final = {
    f"{_OWN}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_TEXT: Final = re.compile(r"[{;]")
"""What is in every .proto file that says anything, and neither in hex nor in base64."""
_CONFLUENT: Final = {
    "confluent/meta.proto": "package confluent;",
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type; message Decimal '
    "{ bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
}
"""What Confluent's registry takes for granted: its options, of which we need none, and a type."""
_HEX: Final = re.compile(r"(\\x)?((?:[0-9a-fA-F]{2})+)")

Get = Callable[[Any], Any]


class _Column(NamedTuple):
    field: pa.Field
    get: Get


class _Made(NamedTuple):
    message: Any
    columns: tuple[_Column, ...]
    place: tuple[int, ...]
    """Where the message is in its file, as the frame of a registry says it."""


@dataclass(frozen=True, slots=True)
class Protobuf:
    """One message of a FileDescriptorSet (hex or base64), or of a text, by the names of its
    fields."""

    files: str
    message: str = ""
    """Its full name; empty: the first of the last file."""
    framed: bool = False
    """Whether the frame of a registry stands before each message."""
    _made: _Made = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = _descriptor(self.files, self.message)
        columns = tuple(_column(each) for each in found.fields)
        made = _Made(message_factory.GetMessageClass(found), columns, _place(found))
        object.__setattr__(self, "_made", made)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as what it is made of."""
        return Protobuf, (self.files, self.message, self.framed)

    @property
    def schema(self) -> pa.Schema:
        """The fields of the message."""
        return pa.schema([column.field for column in self._made.columns])

    def decode(self, data: bytes) -> Row:
        """Return the values of the fields."""
        made = self._made
        found = made.message()
        try:
            found.ParseFromString(self._bare(data) if self.framed else data)
            if not found.IsInitialized():
                lacking = ", ".join(found.FindInitializationErrors())
                raise Undecodable(f"it lacks what its schema requires: {lacking}")
            return tuple([column.get(found) for column in made.columns])
        except (DecodeError, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise Undecodable(f"no message {made.message.DESCRIPTOR.name}: {error}") from error

    def _bare(self, data: bytes) -> bytes:
        id_of(data)
        at, count = _number(data, HEADER_BYTES)
        place = [] if count else [0]  # One zero alone says the first message.
        for _ in range(count):
            at, each = _number(data, at)
            place.append(each)
        if tuple(place) != self._made.place:
            own = self._made.message.DESCRIPTOR.full_name
            raise Undecodable(f"it is message {place} of its schema, and {own} is another")
        return data[at:]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return where a zigzag varint ends, and what it says."""
    found = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Undecodable("it ends before it says which message it is")
        byte = data[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return at, (found >> 1) ^ -(found & 1)


# ---- descriptors ---------------------------------------------------------------------------------


def described(files: list[tuple[str, str]]) -> str:
    """Return a FileDescriptorSet of a registry's files: names, and descriptors or their texts."""
    found = descriptor_pb2.FileDescriptorSet()
    for name, text in files:
        found.file.append(_file(name, text))
    return base64.b64encode(found.SerializeToString(deterministic=True)).decode()


def _file(name: str, text: str) -> Any:
    """Return a file that a registry has: a descriptor in base64 (Confluent's), or its text."""
    found = descriptor_pb2.FileDescriptorProto()
    try:
        found.ParseFromString(base64.b64decode(text, validate=True))
    except (DecodeError, binascii.Error, ValueError):
        return parsed(name, text)
    found.name = name
    return found


def _files(text: str) -> Any:
    if _TEXT.search(text):
        return descriptor_pb2.FileDescriptorSet(file=[parsed("", text)])
    found = descriptor_pb2.FileDescriptorSet()
    try:
        hexed = _HEX.fullmatch(text.strip())
        data = bytes.fromhex(hexed[2]) if hexed else base64.b64decode(text, validate=True)
        found.ParseFromString(data)
    except (DecodeError, binascii.Error, ValueError) as error:
        raise InvalidUsage(
            "the schema of FORMAT PROTOBUF is the text of a .proto file, or, with all that it "
            "imports, a FileDescriptorSet in hex or base64 "
            "(protoc --include_imports --descriptor_set_out=FILE, then base64 FILE)"
        ) from error
    return found


def _descriptor(text: str, message: str) -> Any:
    found = _files(text)
    pool = descriptor_pool.DescriptorPool()
    files = {each.name: each for each in found.file}
    for each in found.file:
        _add(pool, each, files, set())
    names = [f"{e.package}.{m.name}".lstrip(".") for e in found.file for m in e.message_type]
    wanted = message
    if not wanted and found.file:
        last = found.file[-1]
        wanted = next((f"{last.package}.{m.name}".lstrip(".") for m in last.message_type), "")
    try:
        return pool.FindMessageTypeByName(wanted)
    except KeyError as error:
        there = ", ".join(names) or "none"
        raise InvalidUsage(f"the schema has no message {wanted!r}, but {there}") from error


def _add(pool: Any, file: Any, files: dict[str, Any], seen: set[str]) -> None:
    """Put a file into a pool, behind all that it imports."""
    if file.name in seen:
        return
    seen.add(file.name)
    for name in file.dependency:
        _add(pool, files.get(name) or _well_known(name, file.name), files, seen)
    try:
        pool.Add(file)
    except TypeError as error:
        raise InvalidUsage(f"the schema's file {file.name!r} is none: {error}") from error


def _well_known(name: str, user: str) -> Any:
    """Return a file that comes with Protobuf itself."""
    from google.protobuf import (  # noqa: F401 - they are in the pool once they are imported
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    found = descriptor_pb2.FileDescriptorProto()
    if name in _CONFLUENT:
        return parsed(name, _CONFLUENT[name])
    try:
        descriptor_pool.Default().FindFileByName(name).CopyToProto(found)
    except KeyError as error:
        raise InvalidUsage(
            f"the schema lacks {name!r}, which {user!r} imports: protoc --include_imports"
        ) from error
    return found


def _place(found: Any) -> tuple[int, ...]:
    path: list[int] = []
    while found.containing_type is not None:
        path.insert(0, list(found.containing_type.nested_types).index(found))
        found = found.containing_type
    top = list(found.file.message_types_by_name.values())
    return (top.index(found), *path)


# ---- columns -------------------------------------------------------------------------------------


def _column(each: Any) -> _Column:
    name = each.name
    type_, value = _kept(each)
    if each.is_repeated or not each.has_presence:
        return _Column(pa.field(name, type_, nullable=False), lambda m: value(getattr(m, name)))
    return _Column(
        pa.field(name, type_), lambda m: value(getattr(m, name)) if m.HasField(name) else None
    )


def _kept(each: Any) -> tuple[pa.DataType, Get]:
    if each.is_repeated:
        return pa.string(), lambda found: _json(_several(each, found))
    if each.message_type is None:
        return _TYPES[each.type], _scalar(each)
    name = each.message_type.full_name
    if name == f"{_OWN}Timestamp":
        return pa.timestamp("us", "UTC"), lambda found: found.ToDatetime(dt.UTC)
    if name in _WRAPPERS:
        inner = each.message_type.fields_by_name["value"]
        convert = _scalar(inner)
        return _TYPES[inner.type], lambda found: convert(found.value)
    return pa.string(), lambda found: _json(_plain(each, found))


def _scalar(each: Any) -> Get:
    if each.enum_type is not None:
        names = {number: value.name for number, value in each.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    if _TYPES[each.type] == pa.decimal128(20, 0):
        return decimal.Decimal
    return _same


def _same(value: Any) -> Any:
    return value


def _several(each: Any, found: Any) -> Any:
    kind = each.message_type
    if kind is None or not kind.GetOptions().map_entry:
        return [_plain(each, value) for value in found]
    value_of = kind.fields_by_name["value"]
    return {
        str(k).lower() if isinstance(k, bool) else str(k): _plain(value_of, v)
        for k, v in found.items()
    }


def _plain(each: Any, value: Any) -> Any:
    """Return a value as what JSON has for it."""
    if each.message_type is None:
        return value if each.enum_type is None else _scalar(each)(value)
    if each.message_type.full_name.startswith(_OWN):
        return json_format.MessageToDict(value)
    return {
        inner.name: _several(inner, getattr(value, inner.name))
        if inner.is_repeated
        else _plain(inner, getattr(value, inner.name))
        for inner in value.DESCRIPTOR.fields
        if inner.is_repeated or not inner.has_presence or value.HasField(inner.name)
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
