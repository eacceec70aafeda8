"""The text of a ``.proto`` file is what ``protoc`` has made of it.

The files are those that ship with Spark (its own, Protobuf's, Google's), in its jars as texts; what
``protoc`` made of them is in the Python modules of Spark and of Protobuf.
"""

from __future__ import annotations

import ast
import datetime as dt
import re
import zipfile
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    descriptor_pool,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
)

from headwater.base.errors import InvalidUsage
from headwater.storage.message_schema import kept
from headwater.storage.proto_text import parsed
from headwater.storage.protobuf import Protobuf
from headwater.storage.registry import Registry, framed
from headwater.testing.schema_registry import schema_registry


def _pyspark() -> Path:
    found = util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _texts() -> dict[str, str]:
    (jar,) = (_pyspark() / "jars").glob("spark-connect_*.jar")
    with zipfile.ZipFile(jar) as files:
        return {n: files.read(n).decode() for n in files.namelist() if n.endswith(".proto")}


def _by_protoc() -> dict[str, Any]:
    """What is in the modules that protoc has written; importing them would need more of Spark."""
    found: dict[str, Any] = {}
    for module in (any_pb2, api_pb2, descriptor_pb2, struct_pb2, timestamp_pb2, type_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        found[file.name] = file
    for path in (_pyspark() / "sql/connect/proto").glob("*_pb2.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="AddSerializedFile"), args=[ast.Constant(value=data)]
                ):
                    file = descriptor_pb2.FileDescriptorProto.FromString(data)
                    found[file.name] = file
                case _:
                    pass
    return found


def _resolved(files: Mapping[str, Any], pool: Any, name: str) -> str:
    """Put a file into a pool, behind what it imports; return it with its names looked up."""
    try:
        file = pool.FindFileByName(name)
    except KeyError:
        for imported in files[name].dependency:
            _resolved(files, pool, imported)
        pool.Add(files[name])
        file = pool.FindFileByName(name)
    found = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(found)
    del found.service[:]
    found.ClearField("options")
    # What protoc adds to every field, and what a pool gives back only where somebody added it.
    return re.sub(r"\n *json_name: .*", "", str(found))


def test_texts_are_what_protoc_made_of_them() -> None:
    texts = _texts()
    files = {name: parsed(name, text) for name, text in texts.items()}
    made = _by_protoc()
    ours, theirs = descriptor_pool.DescriptorPool(), descriptor_pool.DescriptorPool()
    for name in texts:
        _resolved(files, ours, name)
    compared = [name for name in made if name in texts and "descriptor" not in name]
    assert len(compared) > 10
    for name in compared:
        assert _resolved(files, ours, name) == _resolved({**files, **made}, theirs, name), name


ODD = """
syntax = "proto2"; // none of it is usual
import public "google/protobuf/timestamp.proto";
package odd.shop;
option java_package = "a" 'b';
option (mine).x = { a: 1 b { c: "}" } };
/* a comment ; { */
message Order {
  extensions 100 to 199, 500 to max [verification = UNVERIFIED];
  reserved 7, 9 to 11; reserved "old", "older";
  option deprecated = true;
  required int64 id = 0x01;
  optional string text = 2 [default = "a\\"\\x41\\n", (mine) = {x: [1, 2]}, deprecated=true];
  repeated .odd.shop.Order.Line lines = 3;
  map<string, Line> by_sku = 4;
  repeated group Extra = 5 { optional int32 n = 1; }
  optional Colour colour = 6 [default = RED];
  oneof what { option (mine) = 1; int32 a = 12; Line b = 13; }
  optional google.protobuf.Timestamp at = 14;
  optional int32 message = 15 [default = -0x10, json_name = "M"];
  message Line { optional string sku = 1; enum Kind { K = 0; } optional Kind kind = 2; }
  enum Colour { option allow_alias = true; RED = 1; ROT = 1; BLUE = -1 [deprecated = true];
    reserved 5 to max; }
  extend Order { optional int32 more = 100; };
}
extend Order { optional string most = 101; }
service Orders { rpc Get (Order) returns (stream Order) { option (x) = { y: "}" }; } }
"""


def test_what_is_rare_in_a_file() -> None:
    pool = descriptor_pool.DescriptorPool()
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    pool.Add(stamp)
    pool.Add(parsed("odd.proto", ODD))
    order = pool.FindMessageTypeByName("odd.shop.Order")
    types = {field.name: field.type for field in order.fields}
    assert len(types) == 10
    assert order.fields_by_name["text"].default_value == 'a"A\n'
    assert order.fields_by_name["message"].default_value == -16
    assert order.fields_by_name["by_sku"].message_type.GetOptions().map_entry
    assert order.fields_by_name["extra"].message_type.full_name == "odd.shop.Order.Extra"
    assert [f.name for f in order.oneofs_by_name["what"].fields] == ["a", "b"]
    assert order.fields_by_name["lines"].message_type.fields_by_name["kind"].enum_type is not None
    assert set(order.extensions_by_name) == {"more"}
    assert order.GetOptions().deprecated
    editions = """edition = "2023"; option features.field_presence = IMPLICIT;
        message M { int32 a = 1; int32 b = 2 [features.field_presence = EXPLICIT]; reserved c; }"""
    schema = Protobuf(editions, "M").schema
    assert [field.nullable for field in schema] == [False, True]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("message M { int32 a = 1 }", "line 1: expected ';', and found '}'"),
        ("message M {\n int32 = 1; }", "line 2: expected a name, and found '='"),
        ("message M {\n", "line 2: expected a name, and found 'the end'"),
        ('syntax = "proto4";', "expected proto2 or proto3"),
        ('edition = "1";', "expected an edition"),
        ("massage M {}", "expected the begin of a definition, and found 'massage'"),
        ("message M { int32 a = 1.5; }", "expected a whole number"),
        ("message M { # }", "'# }' is no Protobuf"),
        ('syntax = "proto3"; message M { Nobody a = 1; }', "Nobody"),
        ('import "b.proto"; message M { optional int32 a = 1; }', "lacks 'b.proto'"),
        ("message M {" * 65, "at most 64 messages"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, why: str) -> None:
    with pytest.raises(InvalidUsage, match=why):
        Protobuf(text, "M")


def test_files_of_a_registry_are_texts() -> None:
    part = 'syntax = "proto3"; package p; message Part { int32 x = 1; }'
    whole = """syntax = "proto3"; import "a/part.proto"; import "confluent/meta.proto";
        import "confluent/type/decimal.proto"; import "google/protobuf/timestamp.proto";
        message Whole { p.Part part = 1; confluent.type.Decimal price = 2
        [(confluent.field_meta).doc = "d"]; google.protobuf.Timestamp at = 3; }"""
    with schema_registry() as registry:
        registry.register("parts", part, "PROTOBUF")
        refers = [{"name": "a/part.proto", "subject": "parts", "version": 1}]
        number = registry.register("t-value", whole, "PROTOBUF", refers)
        asked = Registry(registry.url)
        latest = asked.latest("t-value", "serialized")
        assert latest is not None
        (files,) = kept("protobuf", latest.schema, list(asked.referred(latest, "serialized")))
    found = Protobuf(files, framed=True)
    assert found.schema.names == ["part", "price", "at"]
    data = framed(number, b"\0\x0a\x02\x08\x05\x1a\x02\x08\x01")
    at = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    assert found.decode(data) == ('{"x":5}', None, at)
