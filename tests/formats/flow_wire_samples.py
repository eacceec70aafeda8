"""Messages that have golden bytes: each message of the protocol, full and empty, and the edges.

``flow_wire_v1.json`` holds for each its protobuf bytes and its JSON, made by Google's own library
from our ``.proto`` files, and what ``protoc`` understood of these. ``python -m
tests.formats.flow_wire_samples`` writes the file again where ``grpcio-tools`` is installed. The
bytes are Flow's: a line never changes.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol import specs as s
from headwater.materialize.protocol.machine import Side
from tests.formats.google_messages import fill

PATH = Path(__file__).with_name("flow_wire_v1.json")
PROTO = Path(__file__).parents[2] / "src" / "headwater" / "materialize" / "wire" / "proto"

COLLECTION = s.CollectionSpec(
    name="acme/orders",
    key=("/region", "/id"),
    uuid_ptr="/_meta/uuid",
    partition_fields=("region",),
    projections=(
        s.Projection(
            ptr="/amount",
            field="amount",
            explicit=True,
            inference=s.Inference(
                types=("integer", "string"),
                string=s.StringInference("text/plain", "date", 12345, "base64", "1", "ä"),
                title="Amount",
                description="what was paid",
                default_json=b'{"a":1}',
                secret=True,
                exists=s.Exists.MUST,
                numeric=s.NumericInference(
                    has_minimum=True, minimum=-1000.5, has_maximum=True, maximum=1e300
                ),
                array=s.ArrayInference(
                    min_items=10, has_max_items=True, max_items=20, item_types=("null",)
                ),
                enum_json_vec=(b'"one"', b"2"),
                reduce=s.Reduce.REDUCE_SUM,
                content_media_type="text/html",
            ),
        ),
        s.Projection(ptr="/id", field="id", is_primary_key=True, is_partition_key=True),
    ),
    ack_template_json=b'{"_meta":{"ack":true}}',
    write_schema_json=b'{"type":"object"}',
    partition_template=bytes.fromhex("0a0161"),
    read_schema_json=b'{"type":["object","null"]}',
    derivation=bytes.fromhex("0a0162"),
)
BINDING = s.BindingSpec(
    resource_config_json=b'{"table":"orders"}',
    resource_path=("public", "orders"),
    collection=COLLECTION,
    field_selection=s.FieldSelection(
        keys=("region", "id"),
        values=("amount",),
        document="flow_document",
        field_config_json_map=(("amount", b'{"cast":"text"}'), ("z/é", b"42.5")),
    ),
    delta_updates=True,
    partition_selector=bytes.fromhex("0a00"),
    journal_read_suffix="materialize/acme/sink/public%2Forders.v1",
    priority=3,
    not_before=s.Timestamp(1691722827),
    not_after=s.Timestamp(1691722828, 250_000_000),
    backfill=1,
    state_key="public%2Forders.v1",
    ser_policy=s.SerPolicy(65536, 1000, 1000),
)
MATERIALIZATION = s.MaterializationSpec(
    name="acme/sink",
    connector_type=s.ConnectorType.LOCAL,
    config_json=b'{"address":"localhost"}',
    bindings=(BINDING, s.BindingSpec()),
    shard_template=bytes.fromhex("0a0163"),
    recovery_log_template=bytes.fromhex("0a0164"),
    inactive_bindings=(s.BindingSpec(backfill=2**32 - 1),),
    triggers_json=b"[{}]",
    created_at="2026-11-15",
    sync_schedule_json=b'{"baseInterval":"4h"}',
)
CHECKPOINT = s.Checkpoint(
    sources=(
        (
            "a/journal;suffix",
            s.CheckpointSource(
                12345,
                (
                    s.ProducerEntry(b"\x03\x09\x08", s.ProducerState(2**64 - 1, -1)),
                    s.ProducerEntry(),
                ),
            ),
        ),
        ("b/journal", s.CheckpointSource(-(2**63))),
    ),
    ack_intents=(("an/ack", b"\x03\x04\x00\xff"),),
)
STATE = s.ConnectorState(b'{"file":"1.parquet"}', merge_patch=True)

SAMPLES: dict[str, tuple[Side, m.Message]] = {
    "spec": (Side.RUNTIME, m.Spec(s.ConnectorType.IMAGE, b'{"partial":true}')),
    "spec, empty": (Side.RUNTIME, m.Spec()),
    "validate": (
        Side.RUNTIME,
        m.Validate(
            "acme/sink",
            s.ConnectorType.DEKAF,
            b"{}",
            (
                m.ValidateBinding(
                    b'{"table":"t"}', COLLECTION, (("a", b"1"), ("b", b'"x"')), 7, ("region", "id")
                ),
                m.ValidateBinding(),
            ),
            MATERIALIZATION,
            "0011",
        ),
    ),
    "apply": (
        Side.RUNTIME,
        m.Apply(MATERIALIZATION, "v2", False, s.MaterializationSpec(), "v1", b'{"a":null}'),
    ),
    "open": (
        Side.RUNTIME,
        m.Open(
            MATERIALIZATION,
            "v2",
            s.RangeSpec(0x112233, 0xFFFFFFFF, 0, 0xFFFFFFFF),
            b'{"state":[1,2]}',
            b'{"sops":{}}',
        ),
    ),
    "acknowledge": (Side.RUNTIME, m.Acknowledge()),
    "acknowledge, patches": (Side.RUNTIME, m.Acknowledge(b'[{"a":1}\t]')),
    "load": (Side.RUNTIME, m.Load(12, b'[42,"hi"]', bytes.fromhex("152a02686900"))),
    "load, zero": (Side.RUNTIME, m.Load(0, b"", b"\x14")),
    "flush": (Side.RUNTIME, m.Flush()),
    "flush, full": (
        Side.RUNTIME,
        m.Flush(
            b'[{"f":1}\t]',
            (m.BackfillBoundary(2, s.Timestamp(1700000000)),),
            (m.BackfillBoundary(3, s.Timestamp(1700000001, 123_456_789)),),
        ),
    ),
    "store": (
        Side.RUNTIME,
        m.Store(
            3, b"[true,null]", b"\x27\x00", b'[3.5,"x"]', b"\x21", b'{"a":{"b":1}}', True, True
        ),
    ),
    "store, long": (
        Side.RUNTIME,
        m.Store(1, key_packed=b"\x14", doc_json=b'"' + b"x" * 16500 + b'"'),
    ),
    "start commit": (Side.RUNTIME, m.StartCommit(CHECKPOINT, b'[{"s":1}\t]')),
    "start commit, empty checkpoint": (Side.RUNTIME, m.StartCommit(s.Checkpoint())),
    "specified": (
        Side.DRIVER,
        m.Specified(m.PROTOCOL, b'{"type":"object"}', b"{}", "https://example.com/sink"),
    ),
    "validated": (
        Side.DRIVER,
        m.Validated(
            (
                m.ValidatedBinding(
                    (
                        ("a", s.Constraint(s.ConstraintType.FIELD_REQUIRED, "is the key")),
                        ("b", s.Constraint()),
                    ),
                    ("public", "t"),
                    True,
                    s.SerPolicy(str_truncate_after=10),
                    True,
                    (
                        s.ProjectionConstraint(
                            "c", s.Constraint(s.ConstraintType.INCOMPATIBLE, "was a text", "C")
                        ),
                    ),
                ),
                m.ValidatedBinding(),
            )
        ),
    ),
    "applied": (Side.DRIVER, m.Applied("CREATE TABLE t (…)", STATE)),
    "applied, nothing": (Side.DRIVER, m.Applied()),
    "opened": (Side.DRIVER, m.Opened(CHECKPOINT, True)),
    "opened, none": (Side.DRIVER, m.Opened()),
    "opened, zero": (Side.DRIVER, m.Opened(s.EXPLICIT_ZERO)),
    "acknowledged": (Side.DRIVER, m.Acknowledged(STATE)),
    "acknowledged, none": (Side.DRIVER, m.Acknowledged()),
    "loaded": (Side.DRIVER, m.Loaded(4, b'{"loaded":"doc","\xc3\xa9":1}')),
    "flushed": (Side.DRIVER, m.Flushed(s.ConnectorState(b"{}"))),
    "started commit": (Side.DRIVER, m.StartedCommit(STATE)),
}


def golden() -> dict[str, Any]:
    """Return the file: ``messages`` by name of the sample, ``schema`` by name of the message."""
    loaded: dict[str, Any] = json.loads(PATH.read_text("utf-8"))
    return loaded


_MAPS = {"field_config_json_map", "sources", "ack_intents", "constraints"}
_OURS_ALONE = {"dry_run", "holds_data"}
_SHORT = {"fieldConfigJsonMap": "fieldConfig", "enumJsonVec": "enum"}


OPAQUE = {
    "partitionTemplate",
    "derivation",
    "partitionSelector",
    "shardTemplate",
    "recoveryLogTemplate",
}


def _as_flow(value: Any, inside: bool = False) -> Any:
    """Turn protobuf's JSON into Flow's: JSON text inline under its short name, nothing opaque."""
    if isinstance(value, list):
        return [_as_flow(item, inside) for item in value]
    if isinstance(value, dict):
        return {
            (_SHORT.get(key) or key.removesuffix("Json")): _as_flow(
                item, inside or key in _SHORT or key.endswith("Json")
            )
            for key, item in value.items()
            if key not in OPAQUE
        }
    return json.loads(base64.b64decode(value)) if inside else value


def _write() -> None:
    protoc = importlib.import_module("grpc_tools.protoc")
    pool_module = importlib.import_module("google.protobuf.descriptor_pool")
    descriptors = importlib.import_module("google.protobuf.descriptor_pb2")
    factory = importlib.import_module("google.protobuf.message_factory")
    json_format = importlib.import_module("google.protobuf.json_format")
    importlib.import_module("google.protobuf.timestamp_pb2")
    included = Path(str(protoc.__file__)).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "compiled"
        files = sorted(path.name for path in PROTO.glob("*.proto"))
        arguments = [f"-I{PROTO}", f"-I{included}", f"--descriptor_set_out={compiled}"]
        if protoc.main(["protoc", *arguments, "--include_imports", *files]):
            sys.exit("protoc refused our files")
        read = descriptors.FileDescriptorSet.FromString(compiled.read_bytes())
    pool = pool_module.DescriptorPool()
    for file in read.file:
        pool.Add(file)
    envelopes = {
        side: factory.GetMessageClass(pool.FindMessageTypeByName(f"materialize.{name}"))
        for side, name in ((Side.RUNTIME, "Request"), (Side.DRIVER, "Response"))
    }
    messages = {}
    for name, (side, message) in SAMPLES.items():
        envelope = envelopes[side]()
        kind = type(message).__name__
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind).strip("_")
        fill(
            getattr(envelope, {"specified": "spec"}.get(snake, snake)), message, _MAPS, _OURS_ALONE
        )
        messages[name] = {
            "protobuf": envelope.SerializeToString(deterministic=True).hex(),
            "json": _as_flow(json_format.MessageToDict(envelope)),
        }
    schema: dict[str, list[list[Any]]] = {}
    todo = [(file.package, kind) for file in read.file for kind in file.message_type]
    while todo:
        scope, kind = todo.pop()
        name = f"{scope}.{kind.name}"
        todo += [(name, nested) for nested in kind.nested_type]
        if kind.options.map_entry:
            continue
        schema[name] = []
        for field in kind.field:
            described = pool.FindMessageTypeByName(name).fields_by_name[field.name]
            target = described.message_type or described.enum_type
            is_map = bool(described.message_type and described.message_type.GetOptions().map_entry)
            if is_map:
                held = described.message_type.fields_by_name["value"]
                target = held.message_type or held.enum_type
                type_number = held.type
            else:
                type_number = field.type
            cardinality = "map" if is_map else "many" if described.is_repeated else "one"
            type_name = descriptors.FieldDescriptorProto.Type.Name(type_number)
            schema[name].append(
                [
                    field.number,
                    field.name,
                    target.full_name if target else type_name.removeprefix("TYPE_").lower(),
                    cardinality,
                ]
            )
    parts: dict[str, dict[str, Any]] = {
        "schema": dict(sorted(schema.items())),
        "messages": messages,
    }
    blocks = [f'"{part}": {{\n{_lines(content)}\n}}' for part, content in parts.items()]
    PATH.write_text("{\n" + ",\n".join(blocks) + "\n}\n", "utf-8")


def _lines(content: dict[str, Any]) -> str:
    return ",\n".join(
        f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in content.items()
    )


if __name__ == "__main__":
    _write()
