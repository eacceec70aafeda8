"""What clients send: every payload is a message or a refusal, and nothing else."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.adapter.errors import ProtocolError
from headwater.adapter.pgwire import frontend, messages
from headwater.adapter.pgwire.frontend import decode, payload_bytes_max

TAGS = b"PBDECHSQdcfpFX"


@pytest.mark.parametrize(
    ("tag", "payload", "message"),
    [
        (b"Q", b"select 1\0", frontend.Query("select 1")),
        (b"P", b"s\0select $1\0\0\1\0\0\0\x17", frontend.Parse("s", "select $1", (23,))),
        (
            b"B",
            b"p\0s\0\0\1\0\1\0\2\0\0\0\1x\xff\xff\xff\xff\0\1\0\0",
            frontend.Bind("p", "s", (1,), (b"x", None), (0,)),
        ),
        (b"D", b"Ss\0", frontend.Describe("statement", "s")),
        (b"D", b"P\0", frontend.Describe("portal", "")),
        (b"E", b"p\0\0\0\0\5", frontend.Execute("p", 5)),
        (b"C", b"Pp\0", frontend.Close("portal", "p")),
        (b"S", b"", frontend.Sync()),
        (b"H", b"", frontend.Flush()),
        (b"d", b"\0any", frontend.CopyData(b"\0any")),
        (b"c", b"", frontend.CopyDone()),
        (b"f", b"why\0", frontend.CopyFail("why")),
        (b"p", b"secret\0", frontend.Password(b"secret\0")),
        (b"X", b"", frontend.Terminate()),
    ],
)
def test_messages(tag: bytes, payload: bytes, message: frontend.FrontendMessage) -> None:
    assert decode(tag, payload) == message
    for shorter in range(len(payload)):
        if tag in b"dp":
            continue  # Any bytes are theirs.
        with pytest.raises(ProtocolError):
            decode(tag, payload[:shorter])
    if tag not in b"dp":
        with pytest.raises(ProtocolError):
            decode(tag, payload + b"\0")


@pytest.mark.parametrize(
    ("tag", "payload"),
    [
        (b"Q", b"\xff\0"),
        (b"P", b"\0\0\xff\xff"),
        (b"B", b"\0\0\0\1\0\2\0\0\0\0"),  # there is no third format
        (b"B", b"\0\0\0\2\0\0\0\0\0\1\xff\xff\xff\xff\0\0"),  # two formats for one parameter
        (b"B", b"\0\0\0\0\0\1\x7f\xff\xff\xff\0\0"),
        (b"B", b"\0\0\0\0\0\1\xff\xff\xff\xfe\0\0"),  # a negative length that is not NULL's
        (b"D", b"X\0"),
        (b"z", b""),
    ],
)
def test_refused(tag: bytes, payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(tag, payload)


@given(st.sampled_from([bytes([tag]) for tag in TAGS]), st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(tag: bytes, payload: bytes) -> None:
    try:
        decode(tag, payload)
    except ProtocolError as refused:
        assert refused.sqlstate == "08P01"  # noqa: PT017


def test_what_carries_no_values_is_short() -> None:
    assert payload_bytes_max(b"S", 1 << 20) == 10_000
    assert payload_bytes_max(b"Q", 1 << 20) == 1 << 20
    with pytest.raises(ProtocolError):
        payload_bytes_max(b"!", 1 << 20)


def test_a_zero_byte_in_an_error_does_not_shift_what_follows() -> None:
    sent = messages.error_response({"M": "a\0b", "D": "\ud800"})
    assert sent == b"E" + struct.pack("!i", len(sent) - 1) + b"Mab\0D?\0\0"
