"""The arena protocol's messages with their fields and tags, for the codec of ``wire/protobuf``.

The same as the files in ``wire/proto/arena``, as a table; a test holds the one against the other as
``protoc`` read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.materialize.arena import messages as a
from headwater.materialize.protocol import specs as s
from headwater.materialize.wire.schema import Cardinality, Field, MessageSchema, Scalar

_U32, _F32, _BOOL = Scalar.UINT32, Scalar.FIXED32, Scalar.BOOL
_STRING, _BYTES, _JSON = Scalar.STRING, Scalar.BYTES, Scalar.JSON
_MANY, _BY_NAME, _PACKED = Cardinality.MANY, Cardinality.BY_NAME, Cardinality.PACKED

SCHEMAS: Final[Mapping[type, MessageSchema]] = {
    a.Constraint: MessageSchema(
        "materialize.Constraint", (Field(2, "type", a.ConstraintType), Field(3, "reason", _STRING))
    ),
    a.Slice: MessageSchema("flow.Slice", (Field(1, "begin", _U32), Field(2, "end", _U32))),
    a.SpecRequest: MessageSchema(
        "materialize.SpecRequest",
        (Field(1, "endpoint_type", s.ConnectorType), Field(2, "endpoint_spec_json", _JSON)),
    ),
    a.SpecResponse: MessageSchema(
        "materialize.SpecResponse",
        (
            Field(1, "endpoint_spec_schema_json", _JSON),
            Field(2, "resource_spec_schema_json", _JSON),
            Field(3, "documentation_url", _STRING),
        ),
    ),
    a.ValidateRequestBinding: MessageSchema(
        "materialize.ValidateRequest.Binding",
        (
            Field(1, "resource_spec_json", _JSON),
            Field(2, "collection", s.CollectionSpec),
            Field(3, "field_config_json", _JSON, _BY_NAME),
        ),
    ),
    a.ValidateRequest: MessageSchema(
        "materialize.ValidateRequest",
        (
            Field(1, "materialization", _STRING),
            Field(2, "endpoint_type", s.ConnectorType),
            Field(3, "endpoint_spec_json", _JSON),
            Field(4, "bindings", a.ValidateRequestBinding, _MANY),
        ),
    ),
    a.ValidateResponseBinding: MessageSchema(
        "materialize.ValidateResponse.Binding",
        (
            Field(1, "constraints", a.Constraint, _BY_NAME),
            Field(2, "resource_path", _STRING, _MANY),
            Field(3, "delta_updates", _BOOL),
            Field(100, "holds_data", _BOOL),
        ),
    ),
    a.ValidateResponse: MessageSchema(
        "materialize.ValidateResponse", (Field(1, "bindings", a.ValidateResponseBinding, _MANY),)
    ),
    a.ApplyRequest: MessageSchema(
        "materialize.ApplyRequest",
        (
            Field(1, "materialization", s.MaterializationSpec),
            Field(2, "version", _STRING),
            Field(3, "dry_run", _BOOL),
        ),
    ),
    a.ApplyResponse: MessageSchema(
        "materialize.ApplyResponse", (Field(1, "action_description", _STRING),)
    ),
    a.Open: MessageSchema(
        "materialize.TransactionRequest.Open",
        (
            Field(1, "materialization", s.MaterializationSpec),
            Field(2, "version", _STRING),
            Field(3, "key_begin", _F32),
            Field(4, "key_end", _F32),
            Field(5, "driver_checkpoint_json", _JSON),
        ),
    ),
    a.Load: MessageSchema(
        "materialize.TransactionRequest.Load",
        (
            Field(1, "binding", _U32),
            Field(2, "arena", _BYTES),
            Field(3, "packed_keys", a.Slice, _MANY),
        ),
    ),
    a.Prepare: MessageSchema(
        "materialize.TransactionRequest.Prepare", (Field(1, "flow_checkpoint", _BYTES),)
    ),
    a.Store: MessageSchema(
        "materialize.TransactionRequest.Store",
        (
            Field(1, "binding", _U32),
            Field(2, "arena", _BYTES),
            Field(3, "packed_keys", a.Slice, _MANY),
            Field(4, "packed_values", a.Slice, _MANY),
            Field(5, "docs_json", a.Slice, _MANY),
            Field(6, "exists", _BOOL, _PACKED),
        ),
    ),
    a.Commit: MessageSchema("materialize.TransactionRequest.Commit", ()),
    a.Opened: MessageSchema(
        "materialize.TransactionResponse.Opened", (Field(1, "flow_checkpoint", _BYTES),)
    ),
    a.Loaded: MessageSchema(
        "materialize.TransactionResponse.Loaded",
        (
            Field(1, "binding", _U32),
            Field(2, "arena", _BYTES),
            Field(3, "docs_json", a.Slice, _MANY),
        ),
    ),
    a.DriverCheckpoint: MessageSchema(
        "flow.DriverCheckpoint",
        (Field(1, "driver_checkpoint_json", _JSON), Field(2, "rfc7396_merge_patch", _BOOL)),
    ),
    a.Committed: MessageSchema("materialize.TransactionResponse.Committed", ()),
}

REQUEST: Final = (
    Field(1, "open", a.Open),
    Field(2, "load", a.Load),
    Field(3, "prepare", a.Prepare),
    Field(4, "store", a.Store),
    Field(5, "commit", a.Commit),
)
"""What the runtime says; exactly one is set."""

RESPONSE: Final = (
    Field(1, "opened", a.Opened),
    Field(2, "loaded", a.Loaded),
    Field(3, "prepared", a.DriverCheckpoint),
    Field(4, "committed", a.Committed),
)
"""What the driver says; exactly one is set."""
