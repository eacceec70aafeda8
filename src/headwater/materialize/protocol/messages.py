"""What the two sides of a materialization say to each other.

Requests are imperative and come from the runtime, responses are past tense and come from the
driver. Each is a frozen value with the fields of Flow's protocol 3032023; nothing here knows how
it is carried, or when it may be said (``machine``).

    Spec → Specified    Validate → Validated    Apply → Applied     in any number
    Open → Opened                                                   begins a session
    Acknowledge, Load*, Flush, Store*, StartCommit                  each transaction, runtime
    Acknowledged, Loaded*, Flushed, StartedCommit                   each transaction, driver

The documents of one transaction are many, so three messages have a form that holds a run of them:
``LoadMany``, ``LoadedMany``, ``StoreMany`` stand for as many ``Load``, ``Loaded``, ``Store``. They
exist in process, where a column costs less than its rows, and become single messages on Flow's
wire.

What document 001 asks for is here too: Validate's answer says whether the resource holds data
already (``holds_data``), and Apply can be a dry run, which changes nothing and describes what it
would do. Neither exists in protocol 3032023; ``wire`` says what becomes of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.materialize.protocol.specs import (
    Checkpoint,
    CollectionSpec,
    ConnectorState,
    ConnectorType,
    Constraint,
    MaterializationSpec,
    ProjectionConstraint,
    RangeSpec,
    SerPolicy,
    Timestamp,
)

PROTOCOL: Final = 3032023
"""The number by which a connector says that it speaks this protocol."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What are you? The configuration may be partial, or empty."""

    connector_type: ConnectorType = ConnectorType.INVALID_CONNECTOR_TYPE
    config_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Specified:
    """The driver's description of itself: the schemas of its two configurations, and its page."""

    protocol: int = 0
    config_schema_json: bytes = b""
    resource_config_schema_json: bytes = b""
    documentation_url: str = ""
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class ValidateBinding:
    """A binding that somebody wishes for."""

    resource_config_json: bytes = b""
    collection: CollectionSpec | None = None
    field_config_json_map: tuple[tuple[str, bytes], ...] = ()
    backfill: int = 0
    group_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Validate:
    """Could this be done, in the light of what was there before?"""

    name: str = ""
    connector_type: ConnectorType = ConnectorType.INVALID_CONNECTOR_TYPE
    config_json: bytes = b""
    bindings: tuple[ValidateBinding, ...] = ()
    last_materialization: MaterializationSpec | None = None
    last_version: str = ""


@dataclass(frozen=True, slots=True)
class ValidatedBinding:
    """What the driver demands of a binding, and where it would go."""

    constraints: tuple[tuple[str, Constraint], ...] = ()
    resource_path: tuple[str, ...] = ()
    delta_updates: bool = False
    ser_policy: SerPolicy | None = None
    case_insensitive_fields: bool = False
    projection_constraints: tuple[ProjectionConstraint, ...] = ()
    holds_data: bool | None = None
    """Whether the resource has rows already; ``None`` where the driver does not say."""


@dataclass(frozen=True, slots=True)
class Validated:
    """The answer to Validate, a binding each."""

    bindings: tuple[ValidatedBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class Apply:
    """Make the endpoint ready for this; may be asked again, and then must change nothing."""

    materialization: MaterializationSpec | None = None
    version: str = ""
    dry_run: bool = False
    last_materialization: MaterializationSpec | None = None
    last_version: str = ""
    state_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done (or would have been); empty if nothing was to do."""

    action_description: str = ""
    state: ConnectorState | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """Begin a session for one key range."""

    materialization: MaterializationSpec | None = None
    version: str = ""
    range: RangeSpec | None = None
    state_json: bytes = b""
    sealed_config_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is begun; a checkpoint, if there is one, overrules the runtime's own."""

    runtime_checkpoint: Checkpoint | None = None
    disable_load_optimization: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The last transaction is committed in the recovery log."""

    state_patches_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The last transaction is committed, and applied, in the endpoint."""

    state: ConnectorState | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Fetch the document of a key, if there is one."""

    binding: int = 0
    key_json: bytes = b""
    key_packed: bytes = b""


@dataclass(frozen=True, slots=True)
class LoadMany:
    """Many Loads of one binding."""

    binding: int
    keys_packed: pa.LargeBinaryArray


@dataclass(frozen=True, slots=True)
class Loaded:
    """A document that was there."""

    binding: int = 0
    doc_json: bytes = b""


@dataclass(frozen=True, slots=True)
class LoadedMany:
    """Many Loadeds of one binding: the rows that were there, with the columns of the binding."""

    binding: int
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class BackfillBoundary:
    """A source of a binding began, or completed, to tell everything anew."""

    binding: int = 0
    at: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class Flush:
    """There are no more Loads: answer what is open."""

    state_patches_json: bytes = b""
    backfill_begin: tuple[BackfillBoundary, ...] = ()
    backfill_complete: tuple[BackfillBoundary, ...] = ()
    runtime_checkpoint: Checkpoint | None = None
    """With which StartCommit will be said: the arena protocol says it beforehand."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """Every document that is there has been sent."""

    state: ConnectorState | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """Put, or delete, the document of a key; ``exists`` says whether it was there before."""

    binding: int = 0
    key_json: bytes = b""
    key_packed: bytes = b""
    values_json: bytes = b""
    values_packed: bytes = b""
    doc_json: bytes = b""
    exists: bool = False
    delete: bool = False


@dataclass(frozen=True, slots=True)
class StoreMany:
    """Many Stores of one binding, ascending by packed key: rows, and two flags for each."""

    binding: int
    keys_packed: pa.LargeBinaryArray
    rows: pa.Table
    exists: pa.BooleanArray
    delete: pa.BooleanArray


@dataclass(frozen=True, slots=True)
class StartCommit:
    """There are no more Stores: begin to commit, with this checkpoint."""

    runtime_checkpoint: Checkpoint | None = None
    state_patches_json: bytes = b""


@dataclass(frozen=True, slots=True)
class StartedCommit:
    """All Stores are processed, the commit is under way; the state commits with the checkpoint."""

    state: ConnectorState | None = None


Unary = Spec | Validate | Apply
Request = Unary | Open | Acknowledge | Load | LoadMany | Flush | Store | StoreMany | StartCommit
UnaryResponse = Specified | Validated | Applied
Transacted = Acknowledged | Loaded | LoadedMany | Flushed | StartedCommit
Response = UnaryResponse | Opened | Transacted
Message = Request | Response
