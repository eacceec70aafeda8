"""Protobuf: fields as columns, what was not written, frames of a registry, and every mistake."""

from __future__ import annotations

import base64
import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory

from headwater.base.errors import InvalidUsage
from headwater.storage.format import Undecodable
from headwater.storage.protobuf import Protobuf, _descriptor, described
from headwater.storage.registry import framed

F = descriptor_pb2.FieldDescriptorProto


def field(name: str, number: int, type_: int, **more: Any) -> Any:
    return F(name=name, number=number, type=type_, **{"label": F.LABEL_OPTIONAL, **more})


def shop() -> Any:
    """proto3: an enum, nested messages, a map, repeated fields, and what Protobuf itself has."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("NONE", "RED")):
        colour.value.add(name=name, number=number)
    other = file.message_type.add(name="Other")
    other.field.append(field("x", 1, F.TYPE_INT64))
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.extend([field("sku", 1, F.TYPE_STRING), field("n", 2, F.TYPE_INT32)])
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.extend([field("key", 1, F.TYPE_STRING), field("value", 2, F.TYPE_INT64)])
    order.oneof_decl.add(name="_note")
    many = {"label": F.LABEL_REPEATED}
    order.field.extend(
        [
            field("id", 1, F.TYPE_INT64),
            field("big", 2, F.TYPE_UINT64),
            field("colour", 3, F.TYPE_ENUM, type_name=".shop.Colour"),
            field("note", 4, F.TYPE_STRING, proto3_optional=True, oneof_index=0),
            field("at", 5, F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"),
            field("score", 6, F.TYPE_MESSAGE, type_name=".google.protobuf.DoubleValue"),
            field("lines", 7, F.TYPE_MESSAGE, type_name=".shop.Order.Line", **many),
            field("tags", 8, F.TYPE_MESSAGE, type_name=".shop.Order.TagsEntry", **many),
            field("first", 9, F.TYPE_MESSAGE, type_name=".shop.Order.Line"),
            field("raw", 10, F.TYPE_BYTES),
        ]
    )
    return file


def text(*files: Any) -> str:
    found = descriptor_pb2.FileDescriptorSet(file=files)
    return base64.b64encode(found.SerializeToString()).decode()


SHOP = text(shop())
FORMAT = Protobuf(SHOP, "shop.Order")
Order = message_factory.GetMessageClass(_descriptor(SHOP, "shop.Order"))
NOTHING = (0, Decimal(0), "NONE", None, None, None, "[]", "{}", None, b"")


def full() -> Any:
    found = Order(id=1, big=2**64 - 1, colour=1, note="", raw=b"\xff")
    found.at.FromJsonString("2024-01-02T03:04:05.000006Z")
    found.score.value = 0.0
    found.lines.add(sku="a", n=1)
    found.tags["y"], found.tags["x"] = 2, 1
    found.first.sku = "f"
    return found


def test_fields_are_columns() -> None:
    row = pickle.loads(pickle.dumps(FORMAT)).decode(full().SerializeToString())
    assert row == (
        1,
        Decimal(2**64 - 1),
        "RED",
        "",
        dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
        0.0,
        '[{"n":1,"sku":"a"}]',
        '{"x":1,"y":2}',
        '{"n":0,"sku":"f"}',
        b"\xff",
    )
    assert FORMAT.decode(b"") == NOTHING
    for values in zip(row, NOTHING, FORMAT.schema, strict=True):
        pa.array(values[:2], values[2].type)
        assert values[2].nullable == (values[1] is None)


def test_fields_of_a_newer_writer_are_passed_over() -> None:
    other = Order(id=5)
    assert FORMAT.decode(other.SerializeToString() + b"\xa2\x06\x01z")[0] == 5
    assert FORMAT.decode(b"\x18\x07")[2] == "7", "a value of an enum that we do not know"


def test_hex_is_as_good_as_base64() -> None:
    hexed = base64.b64decode(SHOP).hex()
    assert Protobuf(hexed, "shop.Order").schema == FORMAT.schema
    assert Protobuf(f"\\x{hexed}", "shop.Order").schema == FORMAT.schema
    assert Protobuf(SHOP).schema.names == ["x"], "the first message, unless it is said"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x08", "no message Order"),
        (b"\x22\x05ab", "no message Order"),
        (b"\x22\x01\xff", "no message Order"),
        (b"\x2a\x0a\x08" + b"\xff" * 8 + b"\x7f", "no message Order"),
    ],
)
def test_bytes_that_are_no_message(data: bytes, why: str) -> None:
    with pytest.raises(Undecodable, match=why):
        FORMAT.decode(data)


def test_what_proto2_requires() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", syntax="proto2")
    message = file.message_type.add(name="Old")
    message.field.append(field("must", 1, F.TYPE_INT32, label=F.LABEL_REQUIRED))
    with pytest.raises(Undecodable, match="requires: must"):
        Protobuf(text(file), "Old").decode(b"")


def test_the_frame_of_a_registry_says_which_message() -> None:
    format_ = Protobuf(SHOP, "shop.Order", framed=True)
    assert format_.decode(framed(9, b"\x02\x02\x08\x05"))[0] == 5
    assert Protobuf(SHOP, "shop.Other", framed=True).decode(framed(9, b"\x00\x08\x05")) == (5,)
    line = Protobuf(SHOP, "shop.Order.Line", framed=True)
    assert line.decode(framed(9, b"\x04\x02\x00\x0a\x01s")) == ("s", 0)
    for data, why in (
        (framed(9, b"\x00\x08\x05"), r"it is message \[0\] of its schema, and shop.Order"),
        (framed(9, b"\x02"), "before it says which"),
        (b"\x01" + bytes(5), "the first byte is 0x01"),
    ):
        with pytest.raises(Undecodable, match=why):
            format_.decode(data)


def test_files_of_a_registry_import_each_other() -> None:
    user = descriptor_pb2.FileDescriptorProto(name="default", syntax="proto3")
    user.dependency.append("shop.proto")
    user.message_type.add(name="User").field.append(
        field("order", 1, F.TYPE_MESSAGE, type_name=".shop.Order")
    )
    files = [
        (name, base64.b64encode(file.SerializeToString()).decode())
        for name, file in (("shop.proto", shop()), ("", user))
    ]
    assert Protobuf(described(files)).schema.names == ["order"]


@pytest.mark.parametrize(
    ("schema", "message", "why"),
    [
        ("?", "shop.Order", "hex or base64 .protoc --include_imports"),
        (SHOP, "shop.Nothing", "no message 'shop.Nothing', but shop.Other, shop.Order"),
        ("", "", "no message '', but none"),
    ],
)
def test_what_is_no_schema(schema: str, message: str, why: str) -> None:
    with pytest.raises(InvalidUsage, match=why):
        Protobuf(schema, message)


def test_a_file_that_lacks_its_imports() -> None:
    file = shop()
    file.dependency.append("elsewhere.proto")
    with pytest.raises(InvalidUsage, match="lacks 'elsewhere"):
        Protobuf(text(file), "shop.Order")


@pytest.mark.parametrize("given", ["AAAA", "x"])
def test_what_is_neither_descriptor_nor_text(given: str) -> None:
    with pytest.raises(InvalidUsage, match=r"line 1 of 'a\.proto': expected"):
        described([("a.proto", given)])
