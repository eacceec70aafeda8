"""What the server says: each function is one message of PostgreSQL's protocol 3, as bytes.

Pure, and complete for what we send. The layout is ``tag, int32 length of the rest, payload``; the
tags are named here and nowhere else. The golden recordings in ``tests/end_to_end`` hold the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

AUTHENTICATION = b"R"
BACKEND_KEY_DATA = b"K"
BIND_COMPLETE = b"2"
CLOSE_COMPLETE = b"3"
COMMAND_COMPLETE = b"C"
COPY_DATA = b"d"
COPY_DONE = b"c"
COPY_IN_RESPONSE = b"G"
COPY_OUT_RESPONSE = b"H"
DATA_ROW = b"D"
EMPTY_QUERY_RESPONSE = b"I"
ERROR_RESPONSE = b"E"
NEGOTIATE_PROTOCOL_VERSION = b"v"
NO_DATA = b"n"
NOTICE_RESPONSE = b"N"
PARAMETER_DESCRIPTION = b"t"
PARAMETER_STATUS = b"S"
PARSE_COMPLETE = b"1"
PORTAL_SUSPENDED = b"s"
READY_FOR_QUERY = b"Z"
ROW_DESCRIPTION = b"T"

_OK, _SASL, _SASL_CONTINUE, _SASL_FINAL = 0, 10, 11, 12

_INT32 = struct.Struct("!i")
_UINT16 = struct.Struct("!H")
_FIELD = struct.Struct("!ihIhih")  # table, column, type, size, modifier, format


@dataclass(frozen=True, slots=True)
class Field:
    """A column as a RowDescription tells it."""

    name: str
    oid: int
    size: int
    modifier: int
    format: int


def message(tag: bytes, payload: bytes = b"") -> bytes:
    """Any message."""
    return tag + _INT32.pack(len(payload) + 4) + payload


def authentication_ok() -> bytes:
    """The client is who it says."""
    return message(AUTHENTICATION, _INT32.pack(_OK))


def authentication_sasl(mechanisms: Sequence[str]) -> bytes:
    """The mechanisms of which the client may choose."""
    names = b"".join(name.encode("ascii") + b"\0" for name in mechanisms)
    return message(AUTHENTICATION, _INT32.pack(_SASL) + names + b"\0")


def authentication_sasl_continue(challenge: bytes) -> bytes:
    """The server's first message of the exchange."""
    return message(AUTHENTICATION, _INT32.pack(_SASL_CONTINUE) + challenge)


def authentication_sasl_final(outcome: bytes) -> bytes:
    """The server's proof that it knows the verifier."""
    return message(AUTHENTICATION, _INT32.pack(_SASL_FINAL) + outcome)


def negotiate_protocol_version(minor: int, unknown_options: Sequence[str]) -> bytes:
    """The newest minor version we speak, and the protocol options we do not know."""
    names = b"".join(_string(name) for name in unknown_options)
    # The documentation says the minor version; PostgreSQL sends, and libpq reads, the whole number.
    version = (3 << 16) | minor
    return message(
        NEGOTIATE_PROTOCOL_VERSION, _INT32.pack(version) + _INT32.pack(len(unknown_options)) + names
    )


def parameter_status(name: str, value: str) -> bytes:
    """The value of a variable that clients follow."""
    return message(PARAMETER_STATUS, _string(name) + _string(value))


def backend_key_data(pid: int, secret: bytes) -> bytes:
    """What a client must show to cancel."""
    return message(BACKEND_KEY_DATA, _INT32.pack(pid) + secret)


def ready_for_query(transaction_status: bytes) -> bytes:
    """The server waits; the transaction is I(dle), T (open) or E (failed)."""
    return message(READY_FOR_QUERY, transaction_status)


def row_description(fields: Sequence[Field]) -> bytes:
    """The columns of the rows that follow."""
    parts = [_UINT16.pack(len(fields))]
    for field in fields:
        parts.append(_string(field.name))
        parts.append(_FIELD.pack(0, 0, field.oid, field.size, field.modifier, field.format))
    return message(ROW_DESCRIPTION, b"".join(parts))


def parameter_description(oids: Sequence[int]) -> bytes:
    """The types of a statement's parameters."""
    return message(
        PARAMETER_DESCRIPTION, _UINT16.pack(len(oids)) + struct.pack(f"!{len(oids)}I", *oids)
    )


def command_complete(tag: str) -> bytes:
    """A statement is done."""
    return message(COMMAND_COMPLETE, _string(tag))


def copy_in_response(formats: Sequence[int]) -> bytes:
    """The client may send the rows of a COPY."""
    return _copy_response(COPY_IN_RESPONSE, formats)


def copy_out_response(formats: Sequence[int]) -> bytes:
    """The rows of a COPY follow."""
    return _copy_response(COPY_OUT_RESPONSE, formats)


def _copy_response(tag: bytes, formats: Sequence[int]) -> bytes:
    overall = bytes([1 if any(formats) else 0])
    return message(
        tag, overall + _UINT16.pack(len(formats)) + struct.pack(f"!{len(formats)}h", *formats)
    )


def copy_data(row: bytes) -> bytes:
    """A piece of a COPY."""
    return message(COPY_DATA, row)


def error_response(fields: Mapping[str, str]) -> bytes:
    """An error: fields by PostgreSQL's one-letter codes."""
    return message(ERROR_RESPONSE, _coded(fields))


def notice_response(fields: Mapping[str, str]) -> bytes:
    """A warning or notice, with the fields of an error."""
    return message(NOTICE_RESPONSE, _coded(fields))


def _coded(fields: Mapping[str, str]) -> bytes:
    coded = (code.encode("ascii") + _string(value) for code, value in fields.items())
    return b"".join(coded) + b"\0"


def _string(value: str) -> bytes:
    # A zero byte would end the string early and shift all that follows.
    return value.replace("\0", "").encode("utf-8", "replace") + b"\0"


PARSE_COMPLETE_MESSAGE = message(PARSE_COMPLETE)
BIND_COMPLETE_MESSAGE = message(BIND_COMPLETE)
CLOSE_COMPLETE_MESSAGE = message(CLOSE_COMPLETE)
COPY_DONE_MESSAGE = message(COPY_DONE)
EMPTY_QUERY_MESSAGE = message(EMPTY_QUERY_RESPONSE)
NO_DATA_MESSAGE = message(NO_DATA)
PORTAL_SUSPENDED_MESSAGE = message(PORTAL_SUSPENDED)
