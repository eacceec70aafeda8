"""Drivers of lakes: the recovery log is authoritative, and work is applied once.

    Store        ─▶ rows are staged where nobody sees them             :meth:`LakeDriver._stage`
    StartCommit  ─▶ StartedCommit names the work that is due, which
                    commits with the checkpoint                        :meth:`LakeDriver._ended`
    Acknowledge  ─▶ the work is applied, then it is forgotten          :meth:`LakeDriver._apply`

A driver that opens applies first what its state names, and answers no Load before. ``_apply`` does
nothing for work that its table has already, so work is there once, however often a session tries.

Delivery is exactly once. A table changes at one moment; several tables do so one after the other.

A table of a lake has no primary key that anybody enforces, so the driver itself looks whether a new
key is there already *before* the transaction commits: afterwards it could not be taken back.

What a lake does in its own way are the abstract methods; how its tables are compared, prepared and
scanned is ``lake``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.materialize.drivers.columns import Column, columns_of
from headwater.materialize.drivers.lake import (
    Dialect,
    Tables,
    converted,
    found_rows,
    prepared,
    refuse_taken,
    table_constraints,
    table_of,
)
from headwater.materialize.drivers.responder import NotServed, specified
from headwater.materialize.key_range import KeyHash, KeyRange
from headwater.materialize.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Applied,
    Apply,
    Flush,
    Flushed,
    Load,
    LoadedMany,
    LoadMany,
    Open,
    Opened,
    Request,
    Response,
    Spec,
    StartCommit,
    StartedCommit,
    Store,
    StoreMany,
    Validate,
    Validated,
    ValidatedBinding,
)
from headwater.materialize.protocol.specs import (
    BindingSpec,
    CollectionSpec,
    ConnectorState,
    MaterializationSpec,
)

Work = TypeVar("Work", bound=msgspec.Struct)


class Discarded(Protocol):
    """The rows of one binding in the transaction in hand."""

    def discard(self) -> None:
        """Leave nothing behind."""
        ...


Staging = TypeVar("Staging", bound=Discarded)


class ShardState(msgspec.Struct, Generic[Work], frozen=True):
    """What is remembered of a key range: the work that a commit has made due, by its name."""

    staged: dict[str, Work] = {}


class LakeDriver(ABC, Generic[Work, Staging]):
    """A driver for the tables of one lake."""

    documentation_url: ClassVar[str]
    config_schema: ClassVar[Mapping[str, Any]]
    resource_schema: ClassVar[Mapping[str, Any]]
    dialect: ClassVar[Dialect]

    def __init__(self) -> None:
        self._materialization = MaterializationSpec()
        self._columns: tuple[tuple[Column, ...], ...] = ()
        self._hard_delete = True
        self._range = ""
        self._states: dict[str, ShardState[Work]] = {}
        self._loads: dict[int, list[bytes]] = {}
        self._staging: dict[int, Staging] = {}

    def respond(self, request: Request) -> Iterator[Response]:
        """Act upon a request; yield the responses to it."""
        match request:
            case Spec():
                yield specified(self)
            case Validate():
                yield self._validated(request)
            case Apply():
                yield self._prepared(request)
            case Open():
                self._open(request)
                yield Opened()
            case Acknowledge():
                yield Acknowledged(self._applied())
            case LoadMany():
                self._loads.setdefault(request.binding, []).extend(request.keys_packed.to_pylist())
            case Flush():
                yield from self._flushed()
            case StoreMany():
                self._store(request)
            case StartCommit():
                yield StartedCommit(self._committed())
            case Load() | Store():
                raise NotServed(request)

    def close(self) -> None:
        """Release the lake; what is staged and not committed goes."""
        for staging in self._staging.values():
            staging.discard()
        self._staging.clear()

    # What each lake does in its own way.

    @property
    @abstractmethod
    def _tables(self) -> Tables:
        """The tables, once we are connected."""

    @abstractmethod
    def _connect(self, config: Mapping[str, Any]) -> None:
        """Open the lake, unless it is open."""

    @abstractmethod
    def _path(self, resource: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parts of a table's name; refuse what cannot be one."""

    @abstractmethod
    def _remembered(self, state_json: bytes) -> dict[str, ShardState[Work]]:
        """Return the states of all key ranges."""

    def _tidy(self) -> None:
        """Remove what sessions before us staged and never committed, if that is ours to do."""

    @abstractmethod
    def _stage(
        self, index: int, rows: pa.Table, gone: pa.BooleanArray, new: pa.BooleanArray
    ) -> None:
        """Write rows in their table's types where nobody sees them; some go, some are new."""

    @abstractmethod
    def _ended(self, binding: BindingSpec, staging: Staging) -> Iterator[tuple[str, Work]]:
        """Make durable what was staged; yield what is to become of it, by a name of its own."""

    @abstractmethod
    def _apply(self, name: str, work: Work) -> None:
        """Let a table have some work, unless it has it."""

    # What is the same for all: Validate, Apply.

    def _configure(self, config_json: bytes) -> None:
        config = msgspec.json.decode(config_json)
        self._hard_delete = bool(config.get("hardDelete", True))
        self._connect(config)

    def _validated(self, request: Validate) -> Validated:
        self._configure(request.config_json)
        bindings = []
        for binding in request.bindings:
            resource = msgspec.json.decode(binding.resource_config_json)
            path = self._path(resource)
            table, delta = ".".join(path), bool(resource.get("delta_updates", False))
            collection = binding.collection or CollectionSpec()
            bindings.append(
                ValidatedBinding(
                    constraints=tuple(
                        table_constraints(
                            self._tables, self.dialect, table, collection, delta=delta
                        )
                    ),
                    resource_path=path,
                    delta_updates=delta,
                    holds_data=self._tables.find(table) is not None
                    and self._tables.holds_data(table),
                )
            )
        return Validated(tuple(bindings))

    def _prepared(self, request: Apply) -> Applied:
        assert request.materialization is not None
        self._configure(request.materialization.config_json)
        return prepared(self._tables, self.dialect, request)

    # Transactions.

    def _open(self, request: Open) -> None:
        assert request.materialization is not None
        assert request.range is not None
        self._materialization = request.materialization
        self._columns = tuple(map(columns_of, request.materialization.bindings))
        self._configure(request.materialization.config_json)
        self._range = str(
            KeyRange(KeyHash(request.range.key_begin), KeyHash(request.range.key_end))
        )
        self._states = self._remembered(request.state_json or b"{}")
        self._tidy()

    def _applied(self) -> ConnectorState | None:
        """Apply what is due; return what need not be remembered any more."""
        done: dict[str, Any] = {}
        # Also that of the range which ours was split from: its work is ours to finish.
        for key_range, state in self._states.items():
            for name, work in state.staged.items():
                self._apply(name, work)
                done.setdefault(key_range, {"staged": {}})["staged"][name] = None
        self._states = {}
        return _patch(done) if done else None

    def _flushed(self) -> Iterator[Response]:
        loads, self._loads = self._loads, {}
        for index, packed in sorted(loads.items()):
            table = table_of(self._materialization.bindings[index])
            names = [column.name for column in self._columns[index]]
            keys, wanted = self._keys(index), pa.array(packed, pa.large_binary())
            for rows in found_rows(self._tables, self.dialect, table, keys, wanted, names):
                yield LoadedMany(index, rows)
        yield Flushed()

    def _keys(self, index: int) -> list[Column]:
        return [column for column in self._columns[index] if column.key]

    def _store(self, request: StoreMany) -> None:
        index = request.binding
        binding = self._materialization.bindings[index]
        table = table_of(binding)
        gone = pc.and_(request.delete, self._hard_delete)
        new = pc.and_(pc.invert(request.exists), pc.invert(gone))
        if not binding.delta_updates and pc.any(new).as_py():
            if index not in self._staging:
                # Somebody else may have written since we did.
                self._tables.newest(table)
            refuse_taken(
                self._tables,
                self.dialect,
                table,
                self._keys(index),
                request,
                new,
                hard_delete=self._hard_delete,
            )
        schema = self._tables.schema(table)
        rows = converted(self.dialect, table, request.rows, self._columns[index], schema)
        self._stage(index, rows, gone, new)

    def _committed(self) -> ConnectorState | None:
        """End what was staged; return what commits with the checkpoint."""
        staged: dict[str, Work] = {}
        for index, staging in sorted(self._staging.items()):
            staged.update(self._ended(self._materialization.bindings[index], staging))
        self._staging.clear()
        if not staged:
            return None
        self._states = {self._range: ShardState(staged)}
        return _patch(self._states)


def _patch(changed: Mapping[str, Any]) -> ConnectorState:
    return ConnectorState(msgspec.json.encode(changed), merge_patch=True)
