"""What a materialization is, as the protocol describes it: values shared by many messages.

Field names are those of Flow's protobuf messages (``materialize/wire`` gives them their tags), so
that a reader of Flow's documentation finds them here. Conventions:

- ``*_json`` is JSON text as bytes, empty where absent; nobody parses it who does not need to.
- A map is a tuple of pairs in the order of its keys: a value, comparable and hashable.
- Every field has protobuf's default (zero, empty, ``None`` for a message), because that is what a
  peer means by leaving it out.
- ``unknown`` holds fields that a newer peer wrote and we do not know, as they came. It is on
  messages that are kept or passed on; elsewhere unknown fields are dropped.

``partition_template`` and its like are specifications of Gazette, Flow's broker. We only pass them
on: they are opaque bytes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class ConnectorType(enum.IntEnum):
    """How a connector is run."""

    INVALID_CONNECTOR_TYPE = 0
    IMAGE = 8
    LOCAL = 9
    DEKAF = 10


class Exists(enum.IntEnum):
    """Whether a location of a document is there, by its schema."""

    INVALID = 0
    MUST = 1
    MAY = 2
    IMPLICIT = 3
    CANNOT = 4


class Reduce(enum.IntEnum):
    """The reduction strategy of a location, as far as inference knows it."""

    REDUCE_UNSET = 0
    REDUCE_MULTIPLE = 1
    REDUCE_APPEND = 2
    REDUCE_FIRST_WRITE_WINS = 3
    REDUCE_LAST_WRITE_WINS = 4
    REDUCE_MAXIMIZE = 5
    REDUCE_MERGE = 6
    REDUCE_MINIMIZE = 7
    REDUCE_SET = 8
    REDUCE_SUM = 9
    REDUCE_JSON_SCHEMA_MERGE = 10


class ConstraintType(enum.IntEnum):
    """What a driver demands of a field; a field without any constraint is forbidden."""

    INVALID = 0
    FIELD_REQUIRED = 1
    LOCATION_REQUIRED = 2
    LOCATION_RECOMMENDED = 3
    FIELD_OPTIONAL = 4
    FIELD_FORBIDDEN = 5
    INCOMPATIBLE = 6
    UNSATISFIABLE = 7


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time, to the nanosecond."""

    seconds: int = 0
    nanos: int = 0


@dataclass(frozen=True, slots=True)
class StringInference:
    """What a schema says of the strings at a location."""

    content_type: str = ""
    format: str = ""
    max_length: int = 0
    content_encoding: str = ""
    str_minimum: str = ""
    str_maximum: str = ""


@dataclass(frozen=True, slots=True)
class NumericInference:
    """What a schema says of the numbers at a location."""

    has_minimum: bool = False
    minimum: float = 0.0
    has_maximum: bool = False
    maximum: float = 0.0


@dataclass(frozen=True, slots=True)
class ArrayInference:
    """What a schema says of the arrays at a location."""

    min_items: int = 0
    has_max_items: bool = False
    max_items: int = 0
    item_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inference:
    """What a schema says of a location; ``types`` are JSON's seven."""

    types: tuple[str, ...] = ()
    string: StringInference | None = None
    title: str = ""
    description: str = ""
    default_json: bytes = b""
    secret: bool = False
    exists: Exists = Exists.INVALID
    numeric: NumericInference | None = None
    array: ArrayInference | None = None
    enum_json_vec: tuple[bytes, ...] = ()
    reduce: Reduce = Reduce.REDUCE_UNSET
    content_media_type: str = ""
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class Projection:
    """A location of a document as a named field."""

    ptr: str = ""
    field: str = ""
    explicit: bool = False
    is_partition_key: bool = False
    is_primary_key: bool = False
    inference: Inference | None = None


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """The source of documents; projections stand strictly ascending by field."""

    name: str = ""
    key: tuple[str, ...] = ()
    uuid_ptr: str = ""
    partition_fields: tuple[str, ...] = ()
    projections: tuple[Projection, ...] = ()
    ack_template_json: bytes = b""
    write_schema_json: bytes = b""
    partition_template: bytes = b""
    read_schema_json: bytes = b""
    derivation: bytes = b""
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class FieldSelection:
    """Which fields a binding delivers: keys in their order, values sorted, the whole document."""

    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    document: str = ""
    field_config_json_map: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SerPolicy:
    """Where long values are cut when they are written; 0 is nowhere. Keys are never cut."""

    str_truncate_after: int = 0
    nested_obj_truncate_after: int = 0
    array_truncate_after: int = 0


@dataclass(frozen=True, slots=True)
class BindingSpec:
    """One collection delivered into one resource."""

    resource_config_json: bytes = b""
    resource_path: tuple[str, ...] = ()
    collection: CollectionSpec | None = None
    field_selection: FieldSelection | None = None
    delta_updates: bool = False
    partition_selector: bytes = b""
    journal_read_suffix: str = ""
    priority: int = 0
    not_before: Timestamp | None = None
    not_after: Timestamp | None = None
    backfill: int = 0
    state_key: str = ""
    ser_policy: SerPolicy | None = None
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class MaterializationSpec:
    """A materialization: an endpoint and its bindings."""

    name: str = ""
    connector_type: ConnectorType = ConnectorType.INVALID_CONNECTOR_TYPE
    config_json: bytes = b""
    bindings: tuple[BindingSpec, ...] = ()
    shard_template: bytes = b""
    recovery_log_template: bytes = b""
    inactive_bindings: tuple[BindingSpec, ...] = ()
    triggers_json: bytes = b""
    created_at: str = ""
    sync_schedule_json: bytes = b""
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class RangeSpec:
    """A shard's part: inclusive key hashes, and clocks, of which a materialization takes all."""

    key_begin: int = 0
    key_end: int = 0
    r_clock_begin: int = 0
    r_clock_end: int = 0


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """A driver's state: a whole one, or an RFC 7396 patch of the one before."""

    updated_json: bytes = b""
    merge_patch: bool = False


@dataclass(frozen=True, slots=True)
class ProducerState:
    """How far one producer of a journal was read."""

    last_ack: int = 0
    begin: int = 0


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """A producer and its state."""

    id: bytes = b""
    state: ProducerState | None = None


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """How far one journal was read."""

    read_through: int = 0
    producers: tuple[ProducerEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a runtime stands. A driver keeps it and gives it back, and never looks inside."""

    sources: tuple[tuple[str, CheckpointSource], ...] = ()
    ack_intents: tuple[tuple[str, bytes], ...] = ()
    unknown: bytes = b""


EXPLICIT_ZERO: Final = Checkpoint(unknown=bytes.fromhex("f8ffffff0f01"))
"""*From the very beginning*, said by a driver: unlike no checkpoint, it overrules the recovery log.

The greatest field number of protobuf with the value 1: bytes that are not empty, in a checkpoint
that is. So an endpoint which was emptied can demand everything anew.
"""


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a driver demands of a field, and why."""

    type: ConstraintType = ConstraintType.INVALID
    reason: str = ""
    folded_field: str = ""


@dataclass(frozen=True, slots=True)
class ProjectionConstraint:
    """A field and a constraint of it; a field may have several."""

    field: str = ""
    constraint: Constraint | None = None
