"""Messages of the arena protocol that have golden bytes: each of them, full and empty.

``arena_wire_v1.json`` holds for each its protobuf bytes, made by Google's own library from our
``.proto`` files, and what ``protoc`` understood of these. ``python -m
tests.formats.arena_wire_samples`` writes the file again where ``grpcio-tools`` is installed. The
bytes are Flow's: a line never changes.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from headwater.materialize.arena import messages as a
from headwater.materialize.arena.tables import REQUEST, RESPONSE
from headwater.materialize.protocol import specs as s
from tests.formats.flow_wire_samples import COLLECTION, MATERIALIZATION
from tests.formats.google_messages import fill

PATH = Path(__file__).with_name("arena_wire_v1.json")
PROTO = Path(__file__).parents[2] / "src" / "headwater" / "materialize" / "wire" / "proto"

SLICES = (a.Slice(0, 2), a.Slice(2, 2), a.Slice(2, 300))

SAMPLES: dict[str, Any] = {
    "spec": a.SpecRequest(s.ConnectorType.LOCAL, b'{"partial":true}'),
    "spec, answered": a.SpecResponse(b'{"type":"object"}', b"{}", "https://example.com/sink"),
    "validate": a.ValidateRequest(
        "acme/sink",
        s.ConnectorType.IMAGE,
        b'{"path":"x"}',
        (
            a.ValidateRequestBinding(
                b'{"table":"t"}', COLLECTION, (("a", b"1"), ("b", b'{"cast":"text"}'))
            ),
            a.ValidateRequestBinding(),
        ),
    ),
    "validated": a.ValidateResponse(
        (
            a.ValidateResponseBinding(
                (
                    ("a", a.Constraint(a.ConstraintType.UNSATISFIABLE, "was a text")),
                    ("b", a.Constraint()),
                ),
                ("public", "t"),
                True,
                True,
            ),
            a.ValidateResponseBinding(),
        )
    ),
    "apply": a.ApplyRequest(MATERIALIZATION, "v2", True),
    "applied": a.ApplyResponse("CREATE TABLE t (…)"),
    "open": a.Open(MATERIALIZATION, "v2", 0x112233, 0xFFFFFFFF, b'{"state":[1,2]}'),
    "load": a.Load(3, bytes(range(256)) + bytes(44), SLICES),
    "load, empty": a.Load(),
    "prepare": a.Prepare(bytes.fromhex("f8ffffff0f01")),
    "store": a.Store(2, bytes(300), SLICES, SLICES[1:], SLICES[:1], exists=(True, False, True)),
    "store, one": a.Store(0, b"x", (a.Slice(0, 1),), (a.Slice(),), (a.Slice(),), (False,)),
    "commit": a.Commit(),
    "opened": a.Opened(bytes.fromhex("f8ffffff0f01")),
    "opened, none": a.Opened(),
    "loaded": a.Loaded(4, b'{"loaded":"doc"}', (a.Slice(0, 16),)),
    "prepared": a.DriverCheckpoint(b'{"file":"1.parquet"}', True),
    "prepared, none": a.DriverCheckpoint(),
    "committed": a.Committed(),
}
"""Those of a transaction are in their envelope, the others stand alone."""


def golden() -> dict[str, Any]:
    """Return the file: ``messages`` by name of the sample, ``schema`` by name of the message."""
    loaded: dict[str, Any] = json.loads(PATH.read_text("utf-8"))
    return loaded


_MAPS = {"field_config_json", "field_config_json_map", "constraints"}


def _write() -> None:
    protoc = importlib.import_module("grpc_tools.protoc")
    pool_module = importlib.import_module("google.protobuf.descriptor_pool")
    descriptors = importlib.import_module("google.protobuf.descriptor_pb2")
    factory = importlib.import_module("google.protobuf.message_factory")
    included = Path(str(protoc.__file__)).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "compiled"
        files = sorted(f"arena/{path.name}" for path in (PROTO / "arena").glob("*.proto"))
        arguments = [f"-I{PROTO}", f"-I{included}", f"--descriptor_set_out={compiled}"]
        if protoc.main(["protoc", *arguments, "--include_imports", *files]):
            sys.exit("protoc refused our files")
        read = descriptors.FileDescriptorSet.FromString(compiled.read_bytes())
    pool = pool_module.DescriptorPool()
    for file in read.file:
        pool.Add(file)

    def made(name: str) -> Any:
        return factory.GetMessageClass(pool.FindMessageTypeByName(name))()

    messages = {}
    for name, message in SAMPLES.items():
        alone = made(f"materialize.{type(message).__name__}") if _alone(message) else None
        if alone is not None:
            fill(alone, message, _MAPS)
            messages[name] = alone.SerializeToString(deterministic=True).hex()
            continue
        of, kind = next(
            (of, field)
            for of, envelope in (("Request", REQUEST), ("Response", RESPONSE))
            for field in envelope
            if field.kind is type(message)
        )
        envelope = made(f"materialize.Transaction{of}")
        fill(getattr(envelope, kind.name), message, _MAPS)
        messages[name] = envelope.SerializeToString(deterministic=True).hex()
    schema: dict[str, list[list[Any]]] = {}
    for file in read.file:
        if not file.name.startswith("arena/"):
            continue
        todo = [(file.package, kind) for kind in file.message_type]
        while todo:
            scope, kind = todo.pop()
            name = f"{scope}.{kind.name}"
            todo += [(name, nested) for nested in kind.nested_type]
            if not kind.options.map_entry:
                schema[name] = [[field.number, field.name] for field in kind.field]
    parts: dict[str, dict[str, Any]] = {
        "schema": dict(sorted(schema.items())),
        "messages": messages,
    }
    blocks = [
        f'"{part}": {{\n'
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
        + "\n}"
        for part, content in parts.items()
    ]
    PATH.write_text("{\n" + ",\n".join(blocks) + "\n}\n", "utf-8")


def _alone(message: Any) -> bool:
    return type(message).__name__.endswith(("Request", "Response"))


if __name__ == "__main__":
    _write()
