"""What runtime and driver say in the arena protocol; names and fields are Flow's of that time.

    Spec, Validate, Apply                                   each a call of its own
    Open ─▶ Opened ─▶ ( Load* ─▶ Prepare ─▶ Loaded*, Prepared ─▶ Store*, Commit ─▶ Committed ) …

A Load, Loaded or Store holds many documents: their bytes lie one after the other in its *arena*,
and slices say where each begins and ends.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headwater.materialize.protocol.specs import (
    CollectionSpec,
    ConnectorType,
    MaterializationSpec,
)


class ConstraintType(enum.IntEnum):
    """What a driver demands of a field; numbered otherwise than in protocol 3032023."""

    FIELD_REQUIRED = 0
    LOCATION_REQUIRED = 1
    LOCATION_RECOMMENDED = 2
    FIELD_OPTIONAL = 3
    FIELD_FORBIDDEN = 4
    UNSATISFIABLE = 5


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a driver demands of a field, and why."""

    type: ConstraintType = ConstraintType.FIELD_REQUIRED
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes ``[begin, end)`` of an arena."""

    begin: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class SpecRequest:
    """What are you? The configuration may be partial, or empty."""

    endpoint_type: ConnectorType = ConnectorType.INVALID_CONNECTOR_TYPE
    endpoint_spec_json: bytes = b""


@dataclass(frozen=True, slots=True)
class SpecResponse:
    """The schemas of both configurations, and the driver's page."""

    endpoint_spec_schema_json: bytes = b""
    resource_spec_schema_json: bytes = b""
    documentation_url: str = ""


@dataclass(frozen=True, slots=True)
class ValidateRequestBinding:
    """A binding that somebody wishes for."""

    resource_spec_json: bytes = b""
    collection: CollectionSpec | None = None
    field_config_json: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class ValidateRequest:
    """Could this be done?"""

    materialization: str = ""
    endpoint_type: ConnectorType = ConnectorType.INVALID_CONNECTOR_TYPE
    endpoint_spec_json: bytes = b""
    bindings: tuple[ValidateRequestBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class ValidateResponseBinding:
    """What the driver demands of a binding, and where it would go."""

    constraints: tuple[tuple[str, Constraint], ...] = ()
    resource_path: tuple[str, ...] = ()
    delta_updates: bool = False
    holds_data: bool = False


@dataclass(frozen=True, slots=True)
class ValidateResponse:
    """The answer to Validate, a binding each."""

    bindings: tuple[ValidateResponseBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """Make the endpoint ready for this, or say what would be done."""

    materialization: MaterializationSpec | None = None
    version: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ApplyResponse:
    """What was done, or would have been."""

    action_description: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    """Begin a session for one key range."""

    materialization: MaterializationSpec | None = None
    version: str = ""
    key_begin: int = 0
    key_end: int = 0
    driver_checkpoint_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Load:
    """Fetch the documents of these keys, as far as they are there."""

    binding: int = 0
    arena: bytes = b""
    packed_keys: tuple[Slice, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepare:
    """There are no more Loads; this checkpoint will be committed with what is stored."""

    flow_checkpoint: bytes = b""


@dataclass(frozen=True, slots=True)
class Store:
    """Put these documents."""

    binding: int = 0
    arena: bytes = b""
    packed_keys: tuple[Slice, ...] = ()
    packed_values: tuple[Slice, ...] = ()
    docs_json: tuple[Slice, ...] = ()
    exists: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """There are no more Stores: commit."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is begun; a checkpoint, if there is one, overrules the runtime's own."""

    flow_checkpoint: bytes = b""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Documents that were there."""

    binding: int = 0
    arena: bytes = b""
    docs_json: tuple[Slice, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverCheckpoint:
    """The answer to Prepare: every document was sent, and this is to be remembered."""

    driver_checkpoint_json: bytes = b""
    rfc7396_merge_patch: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """What was stored is in the endpoint."""


Request = Open | Load | Prepare | Store | Commit
Response = Opened | Loaded | DriverCheckpoint | Committed
