"""Flow's wire format: golden bytes by Google's library, round trips, malformed input."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol import specs as s
from headwater.materialize.protocol.machine import SIGNALS, Side
from headwater.materialize.wire import json_lines, protobuf
from headwater.materialize.wire.framing import FRAME_BYTES_MAX, Codec, FrameReader, frame
from headwater.materialize.wire.protobuf import MalformedMessage, NotOnTheWire, envelope_of
from headwater.materialize.wire.schema import (
    LEFT_OUT,
    REFUSED,
    REQUEST,
    RESPONSE,
    SCHEMAS,
    Cardinality,
    Scalar,
)
from tests.formats.flow_wire_samples import SAMPLES, golden

GOLDEN = golden()
NAMES = sorted(SAMPLES)


# The table is what protoc read in our files.

_PROTOC_KINDS = {
    Scalar.JSON: "bytes",
    Scalar.OPAQUE: "bytes",
    Scalar.INT64: "int64",
}


def _protoc_kind(kind: Any) -> str:
    if isinstance(kind, Scalar):
        return _PROTOC_KINDS.get(kind, kind.value)
    if issubclass(kind, enum.IntEnum):
        return {
            s.ConnectorType: "flow.MaterializationSpec.ConnectorType",
            s.Exists: "flow.Inference.Exists",
            s.Reduce: "flow.Inference.Reduce",
            s.ConstraintType: "materialize.Response.Validated.Constraint.Type",
        }[kind]
    return SCHEMAS[kind].protobuf_name


_CARDINALITY = {Cardinality.ONE: "one", Cardinality.MANY: "many", Cardinality.BY_NAME: "map"}


def _described(fields: Any) -> list[list[Any]]:
    return [[f.tag, f.name, _protoc_kind(f.kind), _CARDINALITY[f.cardinality]] for f in fields]


def test_the_table_is_what_protoc_read() -> None:
    ours = {schema.protobuf_name: _described(schema.fields) for schema in SCHEMAS.values()}
    ours["materialize.Request"] = _described(REQUEST)
    ours["materialize.Response"] = _described(RESPONSE)
    theirs = dict(GOLDEN["schema"])
    # Two names for one thing: a boundary of a backfill.
    complete = theirs.pop("materialize.Request.Flush.BackfillComplete")
    assert complete == ours["materialize.Request.Flush.BackfillBegin"]
    for fields in theirs.values():
        for field in fields:
            field[2] = field[2].replace("BackfillComplete", "BackfillBegin")
            field[2] = field[2].replace("int32", "int64") if field[1] == "nanos" else field[2]
    assert ours == theirs


def test_every_field_of_every_message_has_its_place() -> None:
    for kind, schema in SCHEMAS.items():
        fields = {field.name for field in dataclasses.fields(kind)} - {"unknown"}
        elsewhere = {*REFUSED.get(kind, ()), *LEFT_OUT.get(kind, ())}
        assert fields == {field.name for field in schema.fields} | elsewhere, kind
        tags = [field.tag for field in schema.fields]
        assert tags == sorted({*tags}), kind
    carried = {field.kind for field in (*REQUEST, *RESPONSE)}
    assert carried == {kind for kind in SIGNALS if "Many" not in kind.__name__}


def test_every_message_has_golden_bytes() -> None:
    assert {*GOLDEN["messages"]} == {*SAMPLES}
    assert {type(message) for _, message in SAMPLES.values()} == {
        field.kind for field in (*REQUEST, *RESPONSE)
    }


# Golden bytes.


@pytest.mark.parametrize("name", NAMES)
def test_protobuf_golden(name: str) -> None:
    side, message = SAMPLES[name]
    expected = bytes.fromhex(GOLDEN["messages"][name]["protobuf"])
    assert protobuf.encode(message, side) == expected
    assert protobuf.decode(expected, side) == message


@pytest.mark.parametrize("name", NAMES)
def test_json_golden(name: str) -> None:
    side, message = SAMPLES[name]
    line = json_lines.encode(message, side)
    assert b"\n" not in line
    assert json.loads(line) == GOLDEN["messages"][name]["json"]
    from_golden = json.dumps(GOLDEN["messages"][name]["json"]).encode()
    assert json.loads(json_lines.encode(json_lines.decode(from_golden, side), side)) == json.loads(
        line
    )
    assert json_lines.decode(line, side) == _without_what_json_lacks(message)


def _without_what_json_lacks(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_without_what_json_lacks, value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    opaque = {f.name for f in SCHEMAS[type(value)].fields if f.kind is Scalar.OPAQUE} | {"unknown"}
    return dataclasses.replace(
        value,
        **{
            field.name: b"" if field.name in opaque else _without_what_json_lacks(content)
            for field in dataclasses.fields(value)
            for content in (getattr(value, field.name),)
        },
    )


# Any message survives.

_JSON_TEXTS = st.sampled_from([b"", b"null", b"[1]", b'{"a":"\xc3\xa9"}', b"42.5"])
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    Scalar.UINT32: st.integers(0, 2**32 - 1),
    Scalar.INT64: st.integers(-(2**63), 2**63 - 1),
    Scalar.FIXED32: st.integers(0, 2**32 - 1),
    Scalar.FIXED64: st.integers(0, 2**64 - 1),
    Scalar.DOUBLE: st.floats(allow_nan=False),
    Scalar.BOOL: st.booleans(),
    Scalar.STRING: st.text(max_size=5),
    Scalar.BYTES: st.binary(max_size=5),
    Scalar.JSON: _JSON_TEXTS,
    Scalar.OPAQUE: st.binary(max_size=5),
}


def _values(kind: Any, depth: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, Scalar):
        return _SCALARS[kind]
    if issubclass(kind, enum.IntEnum):
        return st.sampled_from(list(kind))
    if kind is s.Timestamp:
        seconds = st.integers(-62_135_596_800, 253_402_300_799)
        return st.builds(s.Timestamp, seconds, st.integers(0, 999_999_999))
    fields = {}
    for field in SCHEMAS[kind].fields:
        # In a list or a map there is no leaving out, so no JSON text is absent there.
        one = _values(field.kind, depth - 1) if depth else st.none()
        inside = one.filter(bool) if field.kind is Scalar.JSON else one
        match field.cardinality:
            case Cardinality.ONE:
                is_message = not isinstance(field.kind, Scalar) and not issubclass(
                    field.kind, enum.IntEnum
                )
                fields[field.name] = (
                    st.none() | one if is_message and depth else st.none() if is_message else one
                )
                if not depth and not is_message:
                    fields[field.name] = _values(field.kind, 0)
            case Cardinality.MANY | Cardinality.PACKED:
                fields[field.name] = (
                    st.lists(inside, max_size=2).map(tuple) if depth else st.just(())
                )
            case Cardinality.BY_NAME:
                pairs = st.dictionaries(st.text(max_size=3), inside, max_size=2)
                fields[field.name] = (
                    pairs.map(lambda found: tuple(sorted(found.items()))) if depth else st.just(())
                )
    return st.builds(kind, **fields)


@given(st.data())
def test_round_trips(data: st.DataObject) -> None:
    side = data.draw(st.sampled_from(Side))
    field = data.draw(st.sampled_from(envelope_of(side)))
    message = data.draw(_values(field.kind, 3))
    assert protobuf.decode(protobuf.encode(message, side), side) == message
    line = json_lines.encode(message, side)
    assert json_lines.decode(line, side) == _without_what_json_lacks(message)


# What has no place on the wire.


def test_a_dry_run_is_never_sent_to_a_connector() -> None:
    for codec in Codec:
        with pytest.raises(NotOnTheWire, match="dry_run"):
            frame(m.Apply(dry_run=True), Side.RUNTIME, codec)


def test_information_is_left_out() -> None:
    said = m.Validated((m.ValidatedBinding(holds_data=True),))
    for codec in Codec:
        (read,) = FrameReader(Side.DRIVER, codec).feed(frame(said, Side.DRIVER, codec))
        assert read == m.Validated((m.ValidatedBinding(),))


def test_a_side_has_only_its_own_words() -> None:
    for codec in Codec:
        with pytest.raises(NotOnTheWire):
            frame(m.Opened(), Side.RUNTIME, codec)


# What peers may do.


def test_unknown_fields_are_kept_where_messages_are_passed_on() -> None:
    ours = protobuf.encode_value(s.MaterializationSpec(name="m"))
    newer = ours + bytes.fromhex("7203120161") + bytes.fromhex("a00607")
    read = protobuf.decode_value(newer, s.MaterializationSpec)
    assert read.name == "m"
    assert protobuf.encode_value(read) == newer
    # A Load is acted upon and forgotten.
    assert protobuf.decode_value(b"\x08\x01\xa0\x06\x07", m.Load) == m.Load(1)


def test_the_runtimes_private_field_is_skipped() -> None:
    payload = protobuf.encode(m.Acknowledge(), Side.RUNTIME) + bytes.fromhex("a20606120248691801")
    assert protobuf.decode(payload, Side.RUNTIME) == m.Acknowledge()
    line = b'{"acknowledge":{},"$internal":"EgJIaRgB"}'
    assert json_lines.decode(line, Side.RUNTIME) == m.Acknowledge()


def test_the_explicit_zero_checkpoint() -> None:
    payload = protobuf.encode(m.Opened(s.EXPLICIT_ZERO), Side.DRIVER)
    assert payload.hex() == "2208" + "0a06" + "f8ffffff0f01"
    line = json_lines.encode(m.Opened(s.EXPLICIT_ZERO), Side.DRIVER)
    assert line == b'{"opened":{"runtimeCheckpoint":{}}}'
    assert json_lines.decode(line, Side.DRIVER) == m.Opened(s.Checkpoint())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"load":{"binding":"3"}}', m.Load(3)),
        (b'{ "load" : {"binding":3, "key": [ 1 ] , "later":{}} }', m.Load(3, b"[ 1 ]")),
        (b'{"spec":{"connectorType":8,"config":null}}', m.Spec(s.ConnectorType.IMAGE, b"null")),
        (b'{"flush":{"statePatches":[1]},"load":null}', m.Flush(b"[1]")),
        (
            b'{"flush":{"backfillBegin":[{"at":"2023-08-11T03:00:27+00:00"}]}}',
            m.Flush(backfill_begin=(m.BackfillBoundary(0, s.Timestamp(1691722827)),)),
        ),
        (
            b'{"flush":{"backfillBegin":[{"at":"2023-08-11T05:00:27.25+02:00"}]}}',
            m.Flush(backfill_begin=(m.BackfillBoundary(0, s.Timestamp(1691722827, 250000000)),)),
        ),
    ],
)
def test_json_is_read_liberally(line: bytes, message: m.Message) -> None:
    assert json_lines.decode(line, Side.RUNTIME) == message


@pytest.mark.parametrize("seconds", [-62_135_596_800, -1, 0, 253_402_300_799])
def test_times_of_every_age(seconds: int) -> None:
    said = m.Flush(backfill_begin=(m.BackfillBoundary(1, s.Timestamp(seconds, 1000)),))
    assert json_lines.decode(json_lines.encode(said, Side.RUNTIME), Side.RUNTIME) == said


def test_inline_json_of_several_lines_becomes_one() -> None:
    line = json_lines.encode(m.Loaded(0, b'{\n "a": 1\n}'), Side.DRIVER)
    assert line == b'{"loaded":{"doc":{"a":1}}}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hello", "no JSON object"),
        (b"[1]", "no JSON object"),
        (b"{}", "0 messages"),
        (b'{"loaded":{}}', "0 messages"),
        (b'{"load":{},"flush":{}}', "2 messages"),
        (b'{"load":[]}', "no Load"),
        (b'{"load":{"binding":"x"}}', "no Load"),
        (b'{"load":{"keyPacked":"***"}}', "no Load"),
        (b'{"spec":{"connectorType":"NEW"}}', "no Spec"),
    ],
)
def test_json_that_is_no_message(line: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        json_lines.decode(line, Side.RUNTIME)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("", "0 messages"),
        ("2a00" + "3200", "2 messages"),
        ("2a0108", "cut short"),
        ("2a02", "cut short"),
        ("2801", "wire type 0"),
        ("2a020d01", "field 1 .* cut short"),
        ("12030a0180", "not UTF-8"),
        ("2a0208ff", "cut short"),
        ("2a0c08ffffffffffffffffffff01", "more than ten bytes"),
        ("2b", "wire type 3"),
        ("0a020805", "no ConnectorType"),
        ("2200" + "0000", "field 0"),
        ("2a0a" + "0b", "cut short"),
    ],
)
def test_protobuf_that_is_no_message(payload: str, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        protobuf.decode(bytes.fromhex(payload), Side.RUNTIME)


@given(st.binary(max_size=40), st.sampled_from(Side))
def test_any_bytes_are_a_message_or_refused(payload: bytes, side: Side) -> None:
    for decode in (protobuf.decode, json_lines.decode):
        with contextlib.suppress(MalformedMessage):
            assert isinstance(decode(payload, side), tuple(SIGNALS))


# Framing.


@given(st.data(), st.sampled_from(Codec), st.integers(1, 50))
def test_frames_are_found_however_the_stream_is_cut(
    data: st.DataObject, codec: Codec, size: int
) -> None:
    chosen = data.draw(st.lists(st.sampled_from([n for n in NAMES if n != "store, long"])))
    said = [SAMPLES[name] for name in chosen]
    for side in Side:
        messages = [message for speaker, message in said if speaker is side]
        stream = b"".join(frame(message, side, codec) for message in messages)
        reader = FrameReader(side, codec)
        read = [
            message
            for at in range(0, len(stream), size)
            for message in reader.feed(stream[at : at + size])
        ]
        reader.end()
        if codec is Codec.JSON:
            messages = [_without_what_json_lacks(message) for message in messages]
        assert read == messages


def test_the_length_is_little_endian() -> None:
    assert frame(m.Flush(), Side.RUNTIME, Codec.PROTOBUF).hex() == "02000000" + "3200"
    assert frame(m.Flush(), Side.RUNTIME, Codec.JSON) == b'{"flush":{}}\n'


@pytest.mark.parametrize("codec", Codec)
def test_a_stream_that_ends_within_a_message(codec: Codec) -> None:
    reader = FrameReader(Side.RUNTIME, codec)
    whole = frame(m.Load(1, key_packed=b"x"), Side.RUNTIME, codec)
    assert list(reader.feed(whole[:-2])) == []
    with pytest.raises(MalformedMessage, match="within a message"):
        reader.end()


def test_text_on_standard_output_is_not_waited_for() -> None:
    reader = FrameReader(Side.DRIVER, Codec.PROTOBUF)
    with pytest.raises(MalformedMessage, match="standard output"):
        list(reader.feed(b"    Traceback (most recent call last):"))
    assert int.from_bytes(b"    ", "little") > FRAME_BYTES_MAX


def test_empty_lines_are_no_messages() -> None:
    reader = FrameReader(Side.DRIVER, Codec.JSON)
    assert list(reader.feed(b'\n\r\n{"flushed":{}}\r\n\n')) == [m.Flushed()]
    reader.end()
