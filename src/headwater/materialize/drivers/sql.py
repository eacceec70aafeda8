"""Drivers of SQL databases: the endpoint is authoritative, with a fence per key range.

Table ``flow_checkpoints_v1`` (Flow's name and columns) lies beside the delivered tables. One
transaction of the endpoint holds the rows, the new checkpoint and the assertion of the fence; it is
open from the first Store, or from StartCommit, to the commit: nothing is open while keys are
loaded. It begins with the question whether the fence is still ours, so that a zombie takes nothing
that it finds for an error of the data, and ends with the assertion that it is.

Acknowledged is said as soon as the commit is complete, which here is before StartedCommit is
answered. Delivery is exactly once.

How a row is stored follows from what is said of it:

    exists false    inserted; if the key is there already, two rows have it: refused, by name
    exists true     put in the place of the old row (or anew, if somebody removed that)
    delete          removed; or, with soft deletes, put with its mark
    delta mode      inserted; there is no key

This module is what all such databases share; what a statement looks like is the business of the
one file of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa

from headwater.base.errors import InvalidUsage
from headwater.materialize.checkpoint import from_text, to_text
from headwater.materialize.drivers.columns import (
    Column,
    Existing,
    Kind,
    columns_of,
    constraints,
)
from headwater.materialize.drivers.fences import FencedOff, FenceRow, Installed, install
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
    EXPLICIT_ZERO,
    BindingSpec,
    Checkpoint,
    CollectionSpec,
    MaterializationSpec,
)
from headwater.materialize.tuples import Element, unpack

CHECKPOINTS: Final = "flow_checkpoints_v1"

STATUS: Final = "headwater_status"
"""A view of the checkpoints, for readers of the endpoint: whether all shards stand at one time."""

SELECT_STATUS: Final = """
SELECT c.materialization, count(*) AS shards,
  count(DISTINCT c.checkpoint) = 1 AND sum(c.key_end - c.key_begin + 1) = 4294967296 AS aligned
FROM {checkpoints} AS c
WHERE NOT EXISTS (SELECT 1 FROM {checkpoints} AS n WHERE n.materialization = c.materialization
  AND n.key_begin >= c.key_begin AND n.key_end <= c.key_end
  AND n.key_end - n.key_begin < c.key_end - c.key_begin)
GROUP BY c.materialization"""
"""A range that was split since owns nothing any more: the rows within it do."""

LOAD_ROWS: Final = 20_000
"""How many keys are loaded at once."""

HARD_DELETE_SCHEMA: Final = {
    "type": "boolean",
    "title": "Whether a deleted key's row is removed; else it is marked in _meta/op",
    "default": True,
}


def table_config(place: str = "") -> dict[str, Any]:
    """Return what a table's configuration has; ``place``: the database's word for a name space."""
    within = {place: {"type": "string", "title": place.capitalize(), "x-schema-name": True}}
    return {
        "type": "object",
        "required": ["table"],
        "properties": {
            **(within if place else {}),
            "table": {"type": "string", "title": "Table", "x-collection-name": True},
            "delta_updates": {"type": "boolean", "x-delta-updates": True},
        },
    }


class Fenced(FencedOff):
    """Another session has opened our key range, or a part of it; nothing was written."""

    def __init__(self, materialization: str, row: FenceRow) -> None:
        super().__init__(
            f"materialization {materialization!r}: the key range {row.key_range} was opened by "
            f"another session; our fence {row.fence} is no longer valid, and nothing was written"
        )


class KeyTaken(InvalidUsage):
    """A new row has the key of one that is there."""

    def __init__(self, resource: Sequence[str], key: object) -> None:
        super().__init__(
            f"a new row has the key {key}, which table {'.'.join(resource)!r} has already: "
            "two rows have this key, or somebody else wrote it; choose key columns that identify "
            "a row"
        )


class SqlDriver(ABC):
    """One database, for one stream."""

    documentation_url: ClassVar[str]
    config_schema: ClassVar[Mapping[str, Any]]
    resource_schema: ClassVar[Mapping[str, Any]]

    def __init__(self) -> None:
        self._materialization = MaterializationSpec()
        self._columns: tuple[tuple[Column, ...], ...] = ()
        self._row: FenceRow | None = None
        self._hard_delete = True
        self._loads: dict[int, list[pa.LargeBinaryArray]] = {}

    def respond(self, request: Request) -> Iterator[Response]:
        """Act upon a request; yield the responses to it."""
        match request:
            case Spec():
                yield specified(self)
            case Validate():
                yield self._validated(request)
            case Apply():
                yield self._applied(request)
            case Open():
                yield Opened(self._opened(request))
                # Whatever was committed is in the database, and there is nothing else to apply.
                yield Acknowledged()
            case Acknowledge():
                return
            case LoadMany():
                self._loads.setdefault(request.binding, []).append(request.keys_packed)
            case Flush():
                yield from self._flushed()
            case StoreMany():
                self._store(request)
            case StartCommit():
                self._commit(request.runtime_checkpoint or Checkpoint())
                yield StartedCommit()
                yield Acknowledged()
            case Load() | Store():
                raise NotServed(request)

    @abstractmethod
    def close(self) -> None:
        """Release the endpoint; an open transaction is rolled back by it."""

    # What each database does in its own way.

    @abstractmethod
    def _connect(self, config: Mapping[str, Any]) -> None:
        """Connect, unless we are connected."""

    @abstractmethod
    def _resource_path(self, resource: Mapping[str, Any]) -> tuple[str, ...]:
        """Return where a resource is."""

    @abstractmethod
    def _existing(self, path: Sequence[str]) -> Mapping[str, Existing]:
        """Return the columns of a table; none if there is no table."""

    @abstractmethod
    def _holds_data(self, path: Sequence[str]) -> bool:
        """Return whether an existing table has rows."""

    @abstractmethod
    def _holds(self, native: str, kind: Kind) -> bool:
        """Return whether a column of a native type can hold a kind."""

    @abstractmethod
    def _checkpoints_missing(self) -> Iterator[str]:
        """Yield the statements that make the table of checkpoints, if it is not there."""

    @abstractmethod
    def _create_table(self, binding: BindingSpec, columns: Sequence[Column]) -> str:
        """Return the statement that makes a table."""

    @abstractmethod
    def _add_column(self, path: Sequence[str], column: Column) -> str:
        """Return the statement that adds a column, nullable."""

    @abstractmethod
    def _empty_table(self, path: Sequence[str]) -> str:
        """Return the statement that removes all rows."""

    @abstractmethod
    def _raise_fences(self, name: str) -> str:
        """Return the statement that raises all fences of a materialization."""

    @abstractmethod
    def _execute_all(self, statements: Sequence[str]) -> None:
        """Execute statements in one transaction."""

    @abstractmethod
    def _install(self, name: str, opened: KeyRange) -> Installed:
        """Decide the fence and write what was decided, in one transaction that excludes others."""

    @abstractmethod
    def _select(
        self, binding: BindingSpec, columns: Sequence[Column], keys: Sequence[tuple[Element, ...]]
    ) -> pa.Table:
        """Return the rows of some keys, as far as they are there."""

    @abstractmethod
    def _store(self, request: StoreMany) -> None:
        """Write rows, within the transaction."""

    @abstractmethod
    def _commit(self, checkpoint: Checkpoint) -> None:
        """Move the checkpoint if the fence is ours, and commit; else write nothing."""

    # What is the same for all.

    def _validated(self, request: Validate) -> Validated:
        self._connect(msgspec.json.decode(request.config_json))
        bindings = []
        for binding in request.bindings:
            resource = msgspec.json.decode(binding.resource_config_json)
            path = self._resource_path(resource)
            existing = self._existing(path)
            delta = bool(resource.get("delta_updates", False))
            collection = binding.collection or CollectionSpec()
            bindings.append(
                ValidatedBinding(
                    constraints=tuple(constraints(collection, existing, self._holds, delta=delta)),
                    resource_path=path,
                    delta_updates=delta,
                    case_insensitive_fields=True,
                    holds_data=bool(existing) and self._holds_data(path),
                )
            )
        return Validated(tuple(bindings))

    def _applied(self, request: Apply) -> Applied:
        assert request.materialization is not None
        self._connect(msgspec.json.decode(request.materialization.config_json))
        statements = list(self._checkpoints_missing())
        emptied = backfilled(request)
        if emptied:
            # With the rows goes the right of whoever delivered them to add others.
            statements += [self._raise_fences(request.materialization.name)]
            statements += [self._empty_table(path) for path in emptied if self._existing(path)]
        for binding in request.materialization.bindings:
            columns = columns_of(binding)
            existing = self._existing(binding.resource_path)
            if not existing:
                statements.append(self._create_table(binding, columns))
                continue
            statements += [
                self._add_column(binding.resource_path, column)
                for column in columns
                if column.name not in existing
            ]
        if not request.dry_run and statements:
            self._execute_all(statements)
        return Applied(";\n".join(statements))

    def _opened(self, request: Open) -> Checkpoint:
        assert request.materialization is not None
        assert request.range is not None
        self._materialization = request.materialization
        self._columns = tuple(map(columns_of, request.materialization.bindings))
        config = msgspec.json.decode(request.materialization.config_json)
        self._hard_delete = bool(config.get("hardDelete", True))
        self._connect(config)
        opened = KeyRange(KeyHash(request.range.key_begin), KeyHash(request.range.key_end))
        self._row = self._install(request.materialization.name, opened).row
        return from_text(self._row.checkpoint)

    def _flushed(self) -> Iterator[Response]:
        loads, self._loads = self._loads, {}
        for index, asked in sorted(loads.items()):
            binding = self._materialization.bindings[index]
            keys = pa.chunked_array(asked, pa.large_binary())
            for start in range(0, len(keys), LOAD_ROWS):
                packed = keys.slice(start, LOAD_ROWS).to_pylist()
                rows = self._select(binding, self._columns[index], [unpack(key) for key in packed])
                if rows.num_rows:
                    yield LoadedMany(index, rows)
        yield Flushed()

    def _ours(self) -> tuple[str, int, int, int]:
        """Return what our row is found by, as long as its fence is ours."""
        assert self._row is not None
        own = self._row.key_range
        return self._materialization.name, own.begin, own.end, self._row.fence

    def _fenced(self) -> Fenced:
        assert self._row is not None
        return Fenced(self._materialization.name, self._row)


def backfilled(request: Apply) -> list[tuple[str, ...]]:
    """Return the tables that were delivered, and are to be delivered anew."""
    assert request.materialization is not None
    last = request.last_materialization or MaterializationSpec()
    before = {binding.resource_path: binding.backfill for binding in last.bindings}
    return [
        binding.resource_path
        for binding in request.materialization.bindings
        if binding.backfill > before.get(binding.resource_path, binding.backfill)
    ]


def decide_fence(rows: Sequence[tuple[int, int, int, str]], opened: KeyRange) -> Installed:
    """Decide the fence of a range, given the rows ``(begin, end, fence, checkpoint)``."""
    found = [
        FenceRow(KeyRange(KeyHash(begin), KeyHash(end)), fence, checkpoint)
        for begin, end, fence, checkpoint in rows
    ]
    return install(found, opened, to_text(EXPLICIT_ZERO))
