"""Iceberg as a driver of the protocol: the recovery log is authoritative, work is applied once.

A transaction writes its rows into files below their tables, where nobody sees them, and the keys
whose rows change or go into others. StartedCommit says what is to become of them
(:class:`~.iceberg_tables.Work`). That commits with the checkpoint. Acknowledge then applies it,
each table by one commit of the catalog: files of rows become the table's, and rows of the keys go.
The commit carries an application transaction, which is read before: so work is in the table once,
however often a session tries (``iceberg_tables``). A driver that opens applies first what its state
names, and answers no Load before. Files of a transaction that never committed are left to
``remove_orphan_files``, like any writer's.

Delivery is exactly once. A table changes at one moment; several tables do so one after the other.

An Iceberg table has no primary key that anybody enforces, so the driver itself looks whether a new
key is there already *before* the transaction commits: afterwards it could not be taken back.

Whole numbers are ``long``, decimals ``decimal`` of their own digits, what has parts is a text
(JSON), all else is what Iceberg calls it. Which catalog it is, ``iceberg_catalog`` tells.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from headwater.base.decoding import from_json
from headwater.base.errors import InvalidUsage
from headwater.materialize.drivers.columns import Column, columns_of
from headwater.materialize.drivers.iceberg_catalog import CONFIG_SCHEMA, failing, open_catalog
from headwater.materialize.drivers.iceberg_files import RowFiles
from headwater.materialize.drivers.iceberg_tables import Tables, Work
from headwater.materialize.drivers.iceberg_types import arrow_type, holds, native_type
from headwater.materialize.drivers.lake import (
    Dialect,
    converted,
    found_rows,
    prepared,
    refuse_taken,
    table_constraints,
    table_of,
)
from headwater.materialize.drivers.responder import NotServed, specified
from headwater.materialize.drivers.sql import HARD_DELETE_SCHEMA
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
    CollectionSpec,
    ConnectorState,
    MaterializationSpec,
)

NAMESPACE: Final = "default"
"""Of a table that is given without one."""
_NAME_BYTES: Final = 8
_PART: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
ICEBERG: Final = Dialect("Iceberg table", native_type, arrow_type, holds, lambda _: None)


class ShardState(msgspec.Struct, frozen=True):
    """What is remembered of a key range: the work that a commit has made due."""

    staged: dict[str, Work] = {}


class _Staging:
    """The files of one binding in the transaction in hand."""

    def __init__(self, rows: RowFiles, gone: RowFiles) -> None:
        self.rows, self.gone = rows, gone


class IcebergDriver:
    """A driver for the Iceberg tables of one catalog."""

    documentation_url: ClassVar[str] = "https://iceberg.apache.org"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["uri"],
        "properties": {**CONFIG_SCHEMA, "hardDelete": HARD_DELETE_SCHEMA},
    }
    resource_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["table"],
        "properties": {
            "namespace": {"type": "string", "title": "Namespace", "x-schema-name": True},
            "table": {"type": "string", "title": "Table", "x-collection-name": True},
            "delta_updates": {"type": "boolean", "x-delta-updates": True},
        },
    }

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._opened: Tables | None = None
        self._namespace = NAMESPACE
        self._materialization = MaterializationSpec()
        self._columns: tuple[tuple[Column, ...], ...] = ()
        self._hard_delete = True
        self._range = ""
        self._states: dict[str, ShardState] = {}
        self._loads: dict[int, list[bytes]] = {}
        self._staging: dict[int, _Staging] = {}

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
        """Release the catalog; what is written and not committed goes."""
        for staging in self._staging.values():
            staging.rows.discard()
            staging.gone.discard()
        self._staging.clear()
        if self._catalog is not None:
            self._catalog.close()
        self._catalog = self._opened = None

    @property
    def _tables(self) -> Tables:
        assert self._opened is not None
        return self._opened

    def _connect(self, config_json: bytes) -> None:
        if self._opened is None:
            config = msgspec.json.decode(config_json)
            self._hard_delete = bool(config.get("hardDelete", True))
            self._namespace = config.get("namespace") or NAMESPACE
            self._catalog = open_catalog(config)
            self._opened = Tables(self._catalog)

    # Spec, Validate, Apply.

    def _validated(self, request: Validate) -> Validated:
        self._connect(request.config_json)
        bindings = []
        for binding in request.bindings:
            resource = msgspec.json.decode(binding.resource_config_json)
            path = self._path(resource)
            table, delta = ".".join(path), bool(resource.get("delta_updates", False))
            collection = binding.collection or CollectionSpec()
            bindings.append(
                ValidatedBinding(
                    constraints=tuple(
                        table_constraints(self._tables, ICEBERG, table, collection, delta=delta)
                    ),
                    resource_path=path,
                    delta_updates=delta,
                    holds_data=self._tables.find(table) is not None
                    and self._tables.holds_data(table),
                )
            )
        return Validated(tuple(bindings))

    def _path(self, resource: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parts of a table's name; what is before the last dot is its namespace."""
        namespace = resource.get("namespace") or self._namespace
        parts = tuple(f"{namespace}.{resource['table']}".split("."))
        # A part becomes a directory of the warehouse.
        if not all(map(_PART.match, parts)):
            raise InvalidUsage(
                f"{'.'.join(parts)!r} is no name for an Iceberg table: use letters, digits, _ and "
                "-, and dots between namespaces"
            )
        return parts

    def _prepared(self, request: Apply) -> Applied:
        assert request.materialization is not None
        self._connect(request.materialization.config_json)
        return prepared(self._tables, ICEBERG, request)

    # Transactions.

    def _open(self, request: Open) -> None:
        assert request.materialization is not None
        assert request.range is not None
        self._materialization = request.materialization
        self._columns = tuple(map(columns_of, request.materialization.bindings))
        self._connect(request.materialization.config_json)
        self._range = str(
            KeyRange(KeyHash(request.range.key_begin), KeyHash(request.range.key_end))
        )
        self._states = from_json(request.state_json or b"{}", dict[str, ShardState])

    def _applied(self) -> ConnectorState | None:
        """Apply what is due; return what need not be remembered any more."""
        done: dict[str, Any] = {}
        # Also that of the range which ours was split from: its work is ours to finish.
        for key_range, state in self._states.items():
            for name, work in state.staged.items():
                self._tables.apply(work)
                done.setdefault(key_range, {"staged": {}})["staged"][name] = None
        self._states = {}
        return _patch(done) if done else None

    def _flushed(self) -> Iterator[Response]:
        loads, self._loads = self._loads, {}
        for index, packed in sorted(loads.items()):
            table = table_of(self._materialization.bindings[index])
            names = [column.name for column in self._columns[index]]
            keys = [column for column in self._columns[index] if column.key]
            wanted = pa.array(packed, pa.large_binary())
            for rows in found_rows(self._tables, ICEBERG, table, keys, wanted, names):
                yield LoadedMany(index, rows)
        yield Flushed()

    def _store(self, request: StoreMany) -> None:
        binding = self._materialization.bindings[request.binding]
        table, columns = table_of(binding), self._columns[request.binding]
        keys = [column for column in columns if column.key]
        gone = pc.and_(request.delete, self._hard_delete)
        new = pc.and_(pc.invert(request.exists), pc.invert(gone))
        staging = self._staging.get(request.binding)
        if staging is None:
            # Somebody else may have written since we did.
            found = self._tables.newest(table)
            staging = _Staging(RowFiles(found), RowFiles(found))
            self._staging[request.binding] = staging
        if not binding.delta_updates and pc.any(new).as_py():
            refuse_taken(
                self._tables,
                ICEBERG,
                table,
                keys,
                request.keys_packed.filter(new),
                hard_delete=self._hard_delete,
            )
        rows = converted(ICEBERG, table, request.rows, columns, self._tables.schema(table))
        with failing(f"cannot write to Iceberg table {table}"):
            staging.rows.write(rows.filter(pc.invert(gone)))
            if not binding.delta_updates:
                # What is new replaces nothing, unless the row of a key that was deleted softly.
                replaced = pc.invert(new) if self._hard_delete else pc.is_valid(new)
                names = [column.name for column in keys]
                staging.gone.write(rows.select(names).filter(replaced))

    def _committed(self) -> ConnectorState | None:
        """End the files; return what commits with the checkpoint."""
        staged: dict[str, Work] = {}
        owner = self._materialization.name
        for index, staging in sorted(self._staging.items()):
            binding = self._materialization.bindings[index]
            table = table_of(binding)
            app = f"{owner}/{binding.state_key}/{self._range}"
            with failing(f"cannot write to Iceberg table {table}"):
                rows, gone = staging.rows.ended(), staging.gone.ended()
            if rows or gone:
                staged[secrets.token_hex(_NAME_BYTES)] = Work(
                    table,
                    app,
                    self._tables.next_version(table, app),
                    owner,
                    self._tables.generation(table, owner),
                    rows,
                    gone,
                )
        self._staging.clear()
        if not staged:
            return None
        self._states = {self._range: ShardState(staged)}
        return _patch(self._states)


def _patch(changed: Mapping[str, Any]) -> ConnectorState:
    return ConnectorState(msgspec.json.encode(changed), merge_patch=True)
