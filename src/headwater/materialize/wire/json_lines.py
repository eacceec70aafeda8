"""Messages as JSON, one to a line, by the table of ``schema``.

protobuf's JSON in camel case, with Flow's exception: a field of JSON text stands inline under its
short name (``key_json`` is ``"key":[1]``). Bytes are base64, 64-bit integers are strings,
enumerations are names, times are RFC 3339, defaults are left out. Read liberally: numbers or
strings for integers, names or numbers for enumerations, ``null`` for a default; unknown names are
ignored.

What JSON cannot say: ``unknown`` fields and opaque messages are left out. The explicit zero
checkpoint becomes a checkpoint that is present and empty, which means the same.

A newline inside inline JSON text would end the line too early; the text is then written anew.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import enum
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from headwater.base.decoding import from_json
from headwater.materialize.protocol.machine import Side
from headwater.materialize.protocol.messages import Message
from headwater.materialize.protocol.specs import Timestamp
from headwater.materialize.wire.protobuf import MalformedMessage, NotOnTheWire, envelope_of
from headwater.materialize.wire.schema import (
    REFUSED,
    SCHEMAS,
    Cardinality,
    Field,
    Kind,
    Scalar,
)

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NANOS_DIGITS: Final = 9


def encode(message: Message, side: Side) -> bytes:
    """Return a message of a side as one line of JSON, without the newline."""
    for field in envelope_of(side):
        if field.kind is type(message):
            return msgspec.json.encode({field.in_json: _written(message)})
    raise NotOnTheWire(message, "*")


def decode(line: bytes, side: Side) -> Message:
    """Return the message that a side sent in one line."""
    try:
        envelope = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise MalformedMessage(f"no JSON object: {line[:80]!r}: {error}") from error
    found = [
        (field.kind, envelope[field.in_json])
        for field in envelope_of(side)
        if bytes(envelope.get(field.in_json, msgspec.Raw(b"null"))) != b"null"
    ]
    if len(found) != 1:
        raise MalformedMessage(f"{len(found)} messages in one line: {line[:80]!r}")
    kind, content = found[0]
    assert isinstance(kind, type)
    message: Message = _read(content, kind)
    return message


# Writing.


def _written(value: object) -> dict[str, Any]:
    kind = type(value)
    for name in REFUSED.get(kind, ()):
        if getattr(value, name):
            raise NotOnTheWire(value, name)
    written: dict[str, Any] = {}
    for field in SCHEMAS[kind].fields:
        content = getattr(value, field.name)
        # A message that is there but empty is said; everything else empty is not.
        said = content is not None and content != () if _is_message(field) else bool(content)
        if said and field.kind is not Scalar.OPAQUE:
            written[field.in_json] = _field_written(field, content)
    return written


def _is_message(field: Field) -> bool:
    return not isinstance(field.kind, Scalar) and not issubclass(field.kind, enum.IntEnum)


def _field_written(field: Field, content: Any) -> Any:
    match field.cardinality:
        case Cardinality.ONE:
            return _value_written(field.kind, content)
        case Cardinality.MANY | Cardinality.PACKED:
            return [_value_written(field.kind, item) for item in content]
        case Cardinality.BY_NAME:
            return {name: _value_written(field.kind, item) for name, item in sorted(content)}


def _value_written(kind: Kind, value: Any) -> Any:
    match kind:
        case Scalar.JSON:
            return _inline(value)
        case Scalar.BYTES:
            return base64.b64encode(value).decode()
        case Scalar.INT64 | Scalar.FIXED64:
            return str(value)
        case Scalar.DOUBLE if value != value or value in (float("inf"), float("-inf")):
            return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
        case Scalar():
            return value
        case _ if issubclass(kind, enum.IntEnum):
            return kind(value).name
        case _ if kind is Timestamp:
            return _time_written(value)
        case _:
            return _written(value)


def _inline(text: bytes) -> msgspec.Raw:
    if b"\n" in text or b"\r" in text:
        text = msgspec.json.format(text, indent=-1)
    return msgspec.Raw(text)


def _time_written(time: Timestamp) -> str:
    # isoformat, for strftime writes the year 1 as "1".
    moment = (_EPOCH + dt.timedelta(seconds=time.seconds)).replace(tzinfo=None).isoformat()
    fraction = f".{time.nanos:09d}" if time.nanos else ""
    while fraction.endswith("000"):  # Three, six or nine digits, as protobuf has them.
        fraction = fraction[:-3]
    return f"{moment}{fraction}Z"


# Reading.

_Convert = Callable[[Any], Any]


def _read(content: msgspec.Raw, kind: type) -> Any:
    try:
        return _converted(from_json(content, _shape(kind)), kind)
    except (msgspec.DecodeError, binascii.Error, KeyError, ValueError) as error:
        shown = bytes(content)[:80]
        raise MalformedMessage(f"no {kind.__name__}: {shown!r}: {error}") from error


@cache
def _shape(kind: type) -> Any:
    """Return the type by which msgspec reads a message: inline JSON stays text."""
    if kind is Timestamp:
        return str
    fields = [
        (field.name, _field_shape(field), msgspec.field(name=field.in_json, default=None))
        for field in SCHEMAS[kind].fields
        if field.kind is not Scalar.OPAQUE
    ]
    return msgspec.defstruct(kind.__name__, fields)


def _field_shape(field: Field) -> Any:
    one = _value_shape(field.kind)
    match field.cardinality:
        case Cardinality.ONE:
            # Raw takes everything, null too, and cannot stand in a union.
            return one if one is msgspec.Raw else one | None
        case Cardinality.MANY | Cardinality.PACKED:
            return list[one] | None  # type: ignore[valid-type]
        case Cardinality.BY_NAME:
            return dict[str, one] | None  # type: ignore[valid-type]


def _value_shape(kind: Any) -> Any:
    match kind:
        case Scalar.JSON:
            return msgspec.Raw
        case Scalar.BOOL:
            return bool
        case Scalar.STRING | Scalar.BYTES:
            return str
        case Scalar.DOUBLE:
            return float | str
        case Scalar():
            return int | str
        case _ if issubclass(kind, enum.IntEnum):
            return int | str
        case _:
            return _shape(kind)


def _converted(shaped: Any, kind: type) -> Any:
    if kind is Timestamp:
        return _time_read(shaped)
    values = {}
    for name, (cardinality, convert) in _conversions(kind).items():
        content = getattr(shaped, name)
        if content is None:
            continue
        match cardinality:
            case Cardinality.ONE:
                values[name] = convert(content)
            case Cardinality.MANY | Cardinality.PACKED:
                values[name] = tuple(map(convert, content))
            case Cardinality.BY_NAME:
                values[name] = tuple(sorted((key, convert(v)) for key, v in content.items()))
    return kind(**values)


@cache
def _conversions(kind: type) -> Mapping[str, tuple[Cardinality, _Convert]]:
    return {
        field.name: (field.cardinality, _conversion(field.kind))
        for field in SCHEMAS[kind].fields
        if field.kind is not Scalar.OPAQUE
    }


def _conversion(kind: Kind) -> _Convert:
    match kind:
        case Scalar.JSON:
            return bytes
        case Scalar.BYTES:
            return lambda text: base64.b64decode(text, validate=True)
        case Scalar.DOUBLE:
            return float
        case Scalar.STRING | Scalar.BOOL:
            return lambda value: value
        case Scalar():
            return int
        case _ if issubclass(kind, enum.IntEnum):
            return lambda value: kind[value] if isinstance(value, str) else kind(value)
        case _:
            return lambda shaped: _converted(shaped, kind)


def _time_read(text: str) -> Timestamp:
    whole, _, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    moment = dt.datetime.fromisoformat(whole + rest[len(digits) :])
    seconds = (moment - _EPOCH) // dt.timedelta(seconds=1)
    return Timestamp(seconds, int(digits[:_NANOS_DIGITS].ljust(_NANOS_DIGITS, "0")))
