"""The bytes of the arena protocol are those that an independent encoder makes of our files."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from headwater.materialize.arena import messages as a
from headwater.materialize.arena.tables import REQUEST, RESPONSE, SCHEMAS
from headwater.materialize.wire.protobuf import decode_in, decode_value, encode_in, encode_value
from tests.formats.arena_wire_samples import SAMPLES, golden

GOLDEN = golden()
ENVELOPES = {field.kind: each for each in (REQUEST, RESPONSE) for field in each}


def test_the_table_is_what_protoc_read() -> None:
    ours = {
        schema.protobuf_name: [[field.tag, field.name] for field in schema.fields]
        for schema in SCHEMAS.values()
    }
    ours["materialize.TransactionRequest"] = [[field.tag, field.name] for field in REQUEST]
    ours["materialize.TransactionResponse"] = [[field.tag, field.name] for field in RESPONSE]
    assert ours == GOLDEN["schema"]
    for kind, schema in SCHEMAS.items():
        assert [f.name for f in dataclasses.fields(kind)] == [f.name for f in schema.fields]


def test_every_message_has_golden_bytes() -> None:
    assert {*GOLDEN["messages"]} == {*SAMPLES}
    nested = (a.Constraint, a.Slice, a.ValidateRequestBinding, a.ValidateResponseBinding)
    assert {type(message) for message in SAMPLES.values()} == {*SCHEMAS} - {*nested}


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_golden(name: str) -> None:
    message = SAMPLES[name]
    expected = bytes.fromhex(GOLDEN["messages"][name])
    envelope: Any = ENVELOPES.get(type(message))
    if envelope is None:
        assert encode_value(message) == expected
        assert decode_value(expected, type(message)) == message
    else:
        assert encode_in(message, envelope) == expected
        assert decode_in(expected, envelope) == message


def test_flags_may_also_come_one_by_one() -> None:
    assert decode_value(bytes.fromhex("300130003001"), a.Store).exists == (True, False, True)
