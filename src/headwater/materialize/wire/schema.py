"""The wire's schema: each message of the protocol with its fields, tags and names in JSON.

The same as the files in ``proto/``, as a table; a test holds the one against the other as
``protoc`` read it. Both codecs follow this table and know no message by name.

Invariant:      every field of every frozen message is in the table, except those named in
                :data:`REFUSED` and :data:`LEFT_OUT`, and ``unknown``.
Kept by:        ``tests/unit/materialize/test_wire.py``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol import specs as s


class Scalar(enum.Enum):
    """A value that is no message."""

    UINT32 = "uint32"
    INT64 = "int64"
    FIXED32 = "fixed32"
    FIXED64 = "fixed64"
    DOUBLE = "double"
    BOOL = "bool"
    STRING = "string"
    BYTES = "bytes"
    JSON = "JSON text: bytes in protobuf, inline in JSON"
    OPAQUE = "a message that we only pass on: its bytes in protobuf, absent in JSON"


class Cardinality(enum.Enum):
    """How many values a field has."""

    ONE = "one"
    MANY = "many"
    BY_NAME = "a map from strings"
    PACKED = "many, one byte each, in one piece"


Kind = Scalar | type[enum.IntEnum] | type
"""What a field holds: a scalar, an enumeration, or a message by its class."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message."""

    tag: int
    name: str
    kind: Kind
    cardinality: Cardinality = Cardinality.ONE
    json_name: str = ""

    @property
    def in_json(self) -> str:
        """Return the field's name in JSON."""
        if self.json_name:
            return self.json_name
        first, *others = self.name.removesuffix("_json").split("_")
        return first + "".join(word.capitalize() for word in others)


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """A message: its name in protobuf, the class of its values, its fields by ascending tag."""

    protobuf_name: str
    fields: tuple[Field, ...]


def _many(tag: int, name: str, kind: Kind, json_name: str = "") -> Field:
    return Field(tag, name, kind, Cardinality.MANY, json_name)


def _by_name(tag: int, name: str, kind: Kind, json_name: str = "") -> Field:
    return Field(tag, name, kind, Cardinality.BY_NAME, json_name)


_U32, _I64, _F32, _F64 = Scalar.UINT32, Scalar.INT64, Scalar.FIXED32, Scalar.FIXED64
_DOUBLE, _BOOL, _STRING, _BYTES = Scalar.DOUBLE, Scalar.BOOL, Scalar.STRING, Scalar.BYTES
_JSON, _OPAQUE = Scalar.JSON, Scalar.OPAQUE

_FIELD_CONFIG: Final = "fieldConfig"

_SPECS: Final[dict[type, MessageSchema]] = {
    s.Timestamp: MessageSchema(
        "google.protobuf.Timestamp",
        (Field(1, "seconds", _I64), Field(2, "nanos", _I64)),
    ),
    s.StringInference: MessageSchema(
        "flow.Inference.String",
        (
            Field(3, "content_type", _STRING),
            Field(4, "format", _STRING),
            Field(6, "max_length", _U32),
            Field(7, "content_encoding", _STRING),
            Field(8, "str_minimum", _STRING),
            Field(9, "str_maximum", _STRING),
        ),
    ),
    s.NumericInference: MessageSchema(
        "flow.Inference.Numeric",
        (
            Field(1, "has_minimum", _BOOL),
            Field(2, "minimum", _DOUBLE),
            Field(3, "has_maximum", _BOOL),
            Field(4, "maximum", _DOUBLE),
        ),
    ),
    s.ArrayInference: MessageSchema(
        "flow.Inference.Array",
        (
            Field(1, "min_items", _U32),
            Field(2, "has_max_items", _BOOL),
            Field(3, "max_items", _U32),
            _many(4, "item_types", _STRING),
        ),
    ),
    s.Inference: MessageSchema(
        "flow.Inference",
        (
            _many(1, "types", _STRING),
            Field(3, "string", s.StringInference),
            Field(4, "title", _STRING),
            Field(5, "description", _STRING),
            Field(6, "default_json", _JSON),
            Field(7, "secret", _BOOL),
            Field(8, "exists", s.Exists),
            Field(9, "numeric", s.NumericInference),
            Field(10, "array", s.ArrayInference),
            _many(11, "enum_json_vec", _JSON, "enum"),
            Field(12, "reduce", s.Reduce),
            Field(14, "content_media_type", _STRING),
        ),
    ),
    s.Projection: MessageSchema(
        "flow.Projection",
        (
            Field(1, "ptr", _STRING),
            Field(2, "field", _STRING),
            Field(3, "explicit", _BOOL),
            Field(4, "is_partition_key", _BOOL),
            Field(5, "is_primary_key", _BOOL),
            Field(6, "inference", s.Inference),
        ),
    ),
    s.CollectionSpec: MessageSchema(
        "flow.CollectionSpec",
        (
            Field(1, "name", _STRING),
            _many(3, "key", _STRING),
            Field(4, "uuid_ptr", _STRING),
            _many(5, "partition_fields", _STRING),
            _many(6, "projections", s.Projection),
            Field(7, "ack_template_json", _JSON),
            Field(8, "write_schema_json", _JSON),
            Field(9, "partition_template", _OPAQUE),
            Field(11, "read_schema_json", _JSON),
            Field(12, "derivation", _OPAQUE),
        ),
    ),
    s.FieldSelection: MessageSchema(
        "flow.FieldSelection",
        (
            _many(1, "keys", _STRING),
            _many(2, "values", _STRING),
            Field(3, "document", _STRING),
            _by_name(4, "field_config_json_map", _JSON, _FIELD_CONFIG),
        ),
    ),
    s.SerPolicy: MessageSchema(
        "flow.SerPolicy",
        (
            Field(1, "str_truncate_after", _U32),
            Field(2, "nested_obj_truncate_after", _U32),
            Field(3, "array_truncate_after", _U32),
        ),
    ),
    s.BindingSpec: MessageSchema(
        "flow.MaterializationSpec.Binding",
        (
            Field(1, "resource_config_json", _JSON),
            _many(2, "resource_path", _STRING),
            Field(3, "collection", s.CollectionSpec),
            Field(4, "field_selection", s.FieldSelection),
            Field(5, "delta_updates", _BOOL),
            Field(7, "partition_selector", _OPAQUE),
            Field(8, "journal_read_suffix", _STRING),
            Field(9, "priority", _U32),
            Field(10, "not_before", s.Timestamp),
            Field(11, "not_after", s.Timestamp),
            Field(12, "backfill", _U32),
            Field(13, "state_key", _STRING),
            Field(14, "ser_policy", s.SerPolicy),
        ),
    ),
    s.MaterializationSpec: MessageSchema(
        "flow.MaterializationSpec",
        (
            Field(1, "name", _STRING),
            Field(2, "connector_type", s.ConnectorType),
            Field(3, "config_json", _JSON),
            _many(4, "bindings", s.BindingSpec),
            Field(5, "shard_template", _OPAQUE),
            Field(6, "recovery_log_template", _OPAQUE),
            _many(9, "inactive_bindings", s.BindingSpec),
            Field(10, "triggers_json", _JSON),
            Field(11, "created_at", _STRING),
            Field(12, "sync_schedule_json", _JSON),
        ),
    ),
    s.RangeSpec: MessageSchema(
        "flow.RangeSpec",
        (
            Field(2, "key_begin", _F32),
            Field(3, "key_end", _F32),
            Field(4, "r_clock_begin", _F32),
            Field(5, "r_clock_end", _F32),
        ),
    ),
    s.ConnectorState: MessageSchema(
        "flow.ConnectorState",
        (Field(1, "updated_json", _JSON), Field(2, "merge_patch", _BOOL)),
    ),
    s.ProducerState: MessageSchema(
        "consumer.ProducerState",
        (Field(1, "last_ack", _F64), Field(2, "begin", _I64)),
    ),
    s.ProducerEntry: MessageSchema(
        "consumer.Checkpoint.ProducerEntry",
        (Field(1, "id", _BYTES), Field(2, "state", s.ProducerState)),
    ),
    s.CheckpointSource: MessageSchema(
        "consumer.Checkpoint.Source",
        (Field(1, "read_through", _I64), _many(2, "producers", s.ProducerEntry)),
    ),
    s.Checkpoint: MessageSchema(
        "consumer.Checkpoint",
        (_by_name(1, "sources", s.CheckpointSource), _by_name(2, "ack_intents", _BYTES)),
    ),
    s.Constraint: MessageSchema(
        "materialize.Response.Validated.Constraint",
        (
            Field(2, "type", s.ConstraintType),
            Field(3, "reason", _STRING),
            Field(4, "folded_field", _STRING),
        ),
    ),
    s.ProjectionConstraint: MessageSchema(
        "materialize.Response.Validated.ProjectionConstraint",
        (Field(1, "field", _STRING), Field(2, "constraint", s.Constraint)),
    ),
}

_STATE: Final = (Field(1, "state", s.ConnectorState),)
_BOUNDARY: Final = (Field(1, "binding", _U32), Field(2, "at", s.Timestamp))

_MESSAGES: Final[dict[type, MessageSchema]] = {
    m.Spec: MessageSchema(
        "materialize.Request.Spec",
        (Field(1, "connector_type", s.ConnectorType), Field(2, "config_json", _JSON)),
    ),
    m.ValidateBinding: MessageSchema(
        "materialize.Request.Validate.Binding",
        (
            Field(1, "resource_config_json", _JSON),
            Field(2, "collection", s.CollectionSpec),
            _by_name(3, "field_config_json_map", _JSON, _FIELD_CONFIG),
            Field(4, "backfill", _U32),
            _many(5, "group_by", _STRING),
        ),
    ),
    m.Validate: MessageSchema(
        "materialize.Request.Validate",
        (
            Field(1, "name", _STRING),
            Field(2, "connector_type", s.ConnectorType),
            Field(3, "config_json", _JSON),
            _many(4, "bindings", m.ValidateBinding),
            Field(5, "last_materialization", s.MaterializationSpec),
            Field(6, "last_version", _STRING),
        ),
    ),
    m.Apply: MessageSchema(
        "materialize.Request.Apply",
        (
            Field(1, "materialization", s.MaterializationSpec),
            Field(2, "version", _STRING),
            Field(4, "last_materialization", s.MaterializationSpec),
            Field(5, "last_version", _STRING),
            Field(6, "state_json", _JSON),
        ),
    ),
    m.Open: MessageSchema(
        "materialize.Request.Open",
        (
            Field(1, "materialization", s.MaterializationSpec),
            Field(2, "version", _STRING),
            Field(3, "range", s.RangeSpec),
            Field(4, "state_json", _JSON),
            Field(5, "sealed_config_json", _JSON),
        ),
    ),
    m.Load: MessageSchema(
        "materialize.Request.Load",
        (Field(1, "binding", _U32), Field(2, "key_json", _JSON), Field(3, "key_packed", _BYTES)),
    ),
    m.BackfillBoundary: MessageSchema("materialize.Request.Flush.BackfillBegin", _BOUNDARY),
    m.Flush: MessageSchema(
        "materialize.Request.Flush",
        (
            Field(1, "state_patches_json", _JSON),
            _many(2, "backfill_begin", m.BackfillBoundary),
            _many(3, "backfill_complete", m.BackfillBoundary),
        ),
    ),
    m.Store: MessageSchema(
        "materialize.Request.Store",
        (
            Field(1, "binding", _U32),
            Field(2, "key_json", _JSON),
            Field(3, "key_packed", _BYTES),
            Field(4, "values_json", _JSON),
            Field(5, "values_packed", _BYTES),
            Field(6, "doc_json", _JSON),
            Field(7, "exists", _BOOL),
            Field(8, "delete", _BOOL),
        ),
    ),
    m.StartCommit: MessageSchema(
        "materialize.Request.StartCommit",
        (Field(1, "runtime_checkpoint", s.Checkpoint), Field(2, "state_patches_json", _JSON)),
    ),
    m.Acknowledge: MessageSchema(
        "materialize.Request.Acknowledge", (Field(1, "state_patches_json", _JSON),)
    ),
    m.Specified: MessageSchema(
        "materialize.Response.Spec",
        (
            Field(1, "protocol", _U32),
            Field(2, "config_schema_json", _JSON),
            Field(3, "resource_config_schema_json", _JSON),
            Field(4, "documentation_url", _STRING),
        ),
    ),
    m.ValidatedBinding: MessageSchema(
        "materialize.Response.Validated.Binding",
        (
            _by_name(1, "constraints", s.Constraint),
            _many(2, "resource_path", _STRING),
            Field(3, "delta_updates", _BOOL),
            Field(4, "ser_policy", s.SerPolicy),
            Field(5, "case_insensitive_fields", _BOOL),
            _many(6, "projection_constraints", s.ProjectionConstraint),
        ),
    ),
    m.Validated: MessageSchema(
        "materialize.Response.Validated", (_many(1, "bindings", m.ValidatedBinding),)
    ),
    m.Applied: MessageSchema(
        "materialize.Response.Applied",
        (Field(1, "action_description", _STRING), Field(2, "state", s.ConnectorState)),
    ),
    m.Opened: MessageSchema(
        "materialize.Response.Opened",
        (
            Field(1, "runtime_checkpoint", s.Checkpoint),
            Field(2, "disable_load_optimization", _BOOL),
        ),
    ),
    m.Loaded: MessageSchema(
        "materialize.Response.Loaded", (Field(1, "binding", _U32), Field(2, "doc_json", _JSON))
    ),
    m.Flushed: MessageSchema("materialize.Response.Flushed", _STATE),
    m.StartedCommit: MessageSchema("materialize.Response.StartedCommit", _STATE),
    m.Acknowledged: MessageSchema("materialize.Response.Acknowledged", _STATE),
}

SCHEMAS: Final[Mapping[type, MessageSchema]] = {**_SPECS, **_MESSAGES}
"""Every message by the class of its values."""

REQUEST: Final = (
    Field(1, "spec", m.Spec),
    Field(2, "validate", m.Validate),
    Field(3, "apply", m.Apply),
    Field(4, "open", m.Open),
    Field(5, "load", m.Load),
    Field(6, "flush", m.Flush),
    Field(7, "store", m.Store),
    Field(8, "start_commit", m.StartCommit),
    Field(9, "acknowledge", m.Acknowledge),
)
"""What the runtime says; exactly one is set."""

RESPONSE: Final = (
    Field(1, "spec", m.Specified),
    Field(2, "validated", m.Validated),
    Field(3, "applied", m.Applied),
    Field(4, "opened", m.Opened),
    Field(5, "loaded", m.Loaded),
    Field(6, "flushed", m.Flushed),
    Field(7, "started_commit", m.StartedCommit),
    Field(8, "acknowledged", m.Acknowledged),
)
"""What the driver says; exactly one is set."""

REFUSED: Final[Mapping[type, tuple[str, ...]]] = {m.Apply: ("dry_run",)}
"""Fields without a place on the wire that nobody may lose: encoding one that is set is an error."""

LEFT_OUT: Final[Mapping[type, tuple[str, ...]]] = {
    m.ValidatedBinding: ("holds_data",),
    m.Flush: ("runtime_checkpoint",),
}
"""Fields without a place on the wire that are information only."""
