"""A real schema registry (Apicurio's) is asked as the one of the other tests is."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from headwater.storage.avro import Avro, Subject
from headwater.storage.format import Undecodable
from headwater.storage.message_schema import kept
from headwater.storage.protobuf import Protobuf
from headwater.storage.registry import Registry, framed
from headwater.testing import apicurio

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def registry() -> Iterator[apicurio.Apicurio]:
    reason = apicurio.missing()
    if reason is not None:
        pytest.skip(reason)
    with apicurio.apicurio_registry() as found:
        yield found


def record(name: str, *fields: tuple[str, Any]) -> str:
    described = [{"name": field, "type": type_} for field, type_ in fields]
    return json.dumps({"type": "record", "name": name, "fields": described})


def written(number: int, schema: str, value: Any, *used: str) -> bytes:
    stream = io.BytesIO()
    named: dict[str, Any] = {}
    for each in used:
        parse_schema(json.loads(each), named_schemas=named)
    schemaless_writer(stream, parse_schema(json.loads(schema), named_schemas=named), value)
    return framed(number, stream.getvalue())


def test_schemas_are_found_by_subject_and_by_id(registry: apicurio.Apicurio) -> None:
    asked = Registry(registry.url)
    asked.check()
    assert asked.latest("nobody-value") is None
    assert asked.by_id(99_999) is None
    old = record("Order", ("id", "int"))
    new = record("Order", ("id", "long"), ("note", ["null", "string"]))
    new = new.replace('["null", "string"]', '["null", "string"], "default": null')
    subject = "a/b orders-value"
    first, second = registry.register(subject, old), registry.register(subject, new)
    latest = asked.latest(subject)
    assert latest is not None
    assert (latest.schema_type, latest.id) == ("AVRO", second)
    format_ = Avro((latest.schema,), Subject(asked, subject))
    assert format_.decode(written(first, old, {"id": 1})) == (1, None)
    assert format_.decode(written(second, new, {"id": 2, "note": "n"})) == (2, "n")
    with pytest.raises(Undecodable, match="no schema with id 99999"):
        format_.decode(framed(99_999, b"\x02"))


def test_schemas_refer_to_others(registry: apicurio.Apicurio) -> None:
    asked = Registry(registry.url)
    part, whole = record("Part", ("x", "int")), record("Whole", ("part", "Part"))
    registry.register("part", part)
    refers = [{"name": "Part", "subject": "part", "version": 1}]
    number = registry.register("whole-value", whole, references=refers)
    latest = asked.latest("whole-value")
    assert latest is not None
    texts = kept("avro", latest.schema, list(asked.referred(latest)))
    format_ = Avro(texts, Subject(asked, "whole-value"))
    assert format_.decode(written(number, whole, {"part": {"x": 5}}, part)) == ('{"x":5}',)


def test_the_text_of_protobuf_is_as_good_as_its_descriptor(registry: apicurio.Apicurio) -> None:
    """This one has no descriptors, whatever it is asked for."""
    asked = Registry(registry.url)
    part = 'syntax = "proto3"; package shop; message Part { int32 x = 1; }'
    registry.register("part.proto", part, "PROTOBUF")
    text = 'syntax = "proto3"; package shop; import "part.proto"; '
    text += "message Item { int64 id = 1; Part part = 2; }"
    refers = [{"name": "part.proto", "subject": "part.proto", "version": 1}]
    number = registry.register("items-value", text, "PROTOBUF", refers)
    latest = asked.latest("items-value", "serialized")
    assert latest is not None
    assert latest.schema_type == "PROTOBUF"
    (files,) = kept("protobuf", latest.schema, list(asked.referred(latest, "serialized")))
    item = framed(number, b"\0\x08\x07\x12\x02\x08\x05")
    assert Protobuf(files, framed=True).decode(item) == (7, '{"x":5}')
