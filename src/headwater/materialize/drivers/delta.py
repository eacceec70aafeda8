"""Delta Lake as a driver of the protocol: the recovery log is authoritative, work is applied once.

    <path>/<target>/                                       a Delta table, for everybody to read
    <path>/_staged/<materialization>/<key range>/          what a transaction is about to do

A transaction writes its rows into staged files, one per binding, and says in StartedCommit what is
to become of each (:class:`~.delta_tables.Work`). That commits with the checkpoint. Acknowledge then
applies them, each by one commit of its table: new rows are appended, other changes merged by key. A
file of new rows is written below its table at once, where nobody sees it before the commit; one of
a transaction that never committed is left to ``VACUUM``, like any writer's.
The commit has an application transaction, which is read before: so work is in the table once,
however often a session tries (``delta_tables``). A driver that opens applies first what its state
names, and answers no Load before; other staged files of its key range are of transactions that
never committed, and go.

Delivery is exactly once. A table changes at one moment; several tables do so one after the other.

A Delta table has no primary key, so the driver itself looks whether a new key is there already
*before* the transaction commits: afterwards it could not be taken back.

Whole numbers are ``long``, decimals ``decimal`` of their own digits, times of day and what has
parts are texts (JSON), all else is what Delta calls it. The place is a directory or a bucket
(``s3://…``, with the usual ``AWS_*`` environment variables).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.base.decoding import from_json
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.materialize.drivers.columns import Column, columns_of
from headwater.materialize.drivers.delta_staging import Staging
from headwater.materialize.drivers.delta_tables import Tables, Work, arrow_type, failing, holds
from headwater.materialize.drivers.delta_tables import native_type as native
from headwater.materialize.drivers.lake import (
    Dialect,
    converted,
    found_rows,
    prepared,
    refuse_taken,
    table_constraints,
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
    BindingSpec,
    CollectionSpec,
    ConnectorState,
    MaterializationSpec,
)
from headwater.persist.blob import check_key, open_blob
from headwater.persist.location import Blob

STAGED: Final = "_staged"
_NAME_BYTES: Final = 8
_TARGET: Final = re.compile(r"[A-Za-z0-9._=-]+(?:/[A-Za-z0-9._=-]+)*\Z")
_NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")
"""What Delta's readers cannot have in the name of a column."""


def _unnameable(column: str) -> str | None:
    if set(column) & _NOT_IN_NAMES:
        return "a Delta table has no space and none of ,;{}()= in the name of a column"
    return None


DELTA: Final = Dialect("Delta table", native, arrow_type, holds, _unnameable)


class StagedWorkLost(HeadwaterError):
    """The rows of a committed transaction that are neither staged nor in their table."""

    def __init__(self, staged: str, table: str) -> None:
        super().__init__(
            f"what was committed for Delta table {table!r} is not in it, and {staged} with its "
            "rows is not there: somebody else removed it; BACKFILL to deliver everything anew"
        )


class ShardState(msgspec.Struct, frozen=True):
    """What is remembered of a key range: the staged files that a commit has made due."""

    staged: dict[str, Work] = {}


class DeltaDriver:
    """A driver for the Delta tables in one place."""

    documentation_url: ClassVar[str] = "https://docs.delta.io"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "title": "A directory, or s3://bucket/prefix"},
            "hardDelete": HARD_DELETE_SCHEMA,
        },
    }
    resource_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["table"],
        "properties": {
            "table": {"type": "string", "title": "Table", "x-collection-name": True},
            "delta_updates": {"type": "boolean", "x-delta-updates": True},
        },
    }

    def __init__(self) -> None:
        self._blob: Blob | None = None
        self._tables = Tables("")
        self._materialization = MaterializationSpec()
        self._columns: tuple[tuple[Column, ...], ...] = ()
        self._hard_delete = True
        self._range = ""
        self._states: dict[str, ShardState] = {}
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
        """Release the place; what is staged and not committed goes when it is opened again."""
        for staging in self._staging.values():
            staging.discard()
        self._staging.clear()
        if self._blob is not None:
            self._blob.close()
            self._blob = None

    @property
    def _place(self) -> Blob:
        assert self._blob is not None
        return self._blob

    def _connect(self, config_json: bytes) -> None:
        if self._blob is None:
            config = msgspec.json.decode(config_json)
            self._hard_delete = bool(config.get("hardDelete", True))
            self._tables = Tables(config["path"])
            self._blob = open_blob(config["path"])

    # Spec, Validate, Apply.

    def _validated(self, request: Validate) -> Validated:
        self._connect(request.config_json)
        bindings = []
        for binding in request.bindings:
            resource = msgspec.json.decode(binding.resource_config_json)
            table, delta = resource["table"], bool(resource.get("delta_updates", False))
            if not _TARGET.match(table) or {".", ".."} & set(table.split("/")):
                raise InvalidUsage(
                    f"{table!r} is no place for a Delta table: use letters, digits and . _ = -"
                )
            if table.split("/")[0] == STAGED:
                raise InvalidUsage(f"{table!r} cannot be delivered into: it is for our own")
            collection = binding.collection or CollectionSpec()
            bindings.append(
                ValidatedBinding(
                    constraints=tuple(
                        table_constraints(self._tables, DELTA, table, collection, delta=delta)
                    ),
                    resource_path=(table,),
                    delta_updates=delta,
                    holds_data=self._tables.find(table) is not None
                    and self._tables.holds_data(table),
                )
            )
        return Validated(tuple(bindings))

    def _prepared(self, request: Apply) -> Applied:
        assert request.materialization is not None
        self._connect(request.materialization.config_json)
        return prepared(self._tables, DELTA, request)

    # Transactions.

    def _open(self, request: Open) -> None:
        assert request.materialization is not None
        assert request.range is not None
        self._materialization = request.materialization
        self._columns = tuple(map(columns_of, request.materialization.bindings))
        self._connect(request.materialization.config_json)
        opened = KeyRange(KeyHash(request.range.key_begin), KeyHash(request.range.key_end))
        self._range = str(opened)
        states = from_json(request.state_json or b"{}", dict[str, ShardState])
        self._states = states
        due = {file for state in states.values() for file in state.staged}
        for found in list(self._place.list(self._directory)):
            if found.key not in due:
                self._place.delete(found.key)

    @property
    def _directory(self) -> str:
        name = blake2b(self._materialization.name.encode(), digest_size=_NAME_BYTES).hexdigest()
        return f"{STAGED}/{name}/{self._range}/"

    def _applied(self) -> ConnectorState | None:
        """Apply what is due; return what need not be remembered any more."""
        done: dict[str, Any] = {}
        # Also that of the range which ours was split from: its work is ours to finish.
        for key_range, state in self._states.items():
            for file, work in state.staged.items():
                self._apply(file, work)
                done.setdefault(key_range, {"staged": {}})["staged"][file] = None
        self._states = {}
        return _patch(done) if done else None

    def _apply(self, file: str, work: Work) -> None:
        if work.added:
            if not self._tables.is_applied(work):
                if self._place.get_range(file, 0, 1) is None:
                    raise StagedWorkLost(file, work.table)
                self._tables.add_file(work, file.removeprefix(f"{work.table}/"))
            return
        content = self._place.get(file)
        if content is not None:
            self._tables.apply(work, pq.read_table(pa.BufferReader(content)))
            self._place.delete(file)
        elif not self._tables.is_applied(work):
            raise StagedWorkLost(file, work.table)

    def _flushed(self) -> Iterator[Response]:
        loads, self._loads = self._loads, {}
        for index, packed in sorted(loads.items()):
            table = self._materialization.bindings[index].resource_path[-1]
            names = [column.name for column in self._columns[index]]
            keys = [column for column in self._columns[index] if column.key]
            wanted = pa.array(packed, pa.large_binary())
            for rows in found_rows(self._tables, DELTA, table, keys, wanted, names):
                yield LoadedMany(index, rows)
        yield Flushed()

    def _store(self, request: StoreMany) -> None:
        binding = self._materialization.bindings[request.binding]
        columns = self._columns[request.binding]
        schema = self._tables.schema(binding.resource_path[-1])
        rows = converted(DELTA, binding.resource_path[-1], request.rows, columns, schema)
        gone = pc.and_(request.delete, self._hard_delete)
        new = pc.and_(pc.invert(request.exists), pc.invert(gone))
        staging = self._staging.get(request.binding)
        if not binding.delta_updates and pc.any(new).as_py():
            if staging is None:
                # Somebody else may have written since we did.
                self._tables.newest(binding.resource_path[-1])
            refuse_taken(
                self._tables,
                DELTA,
                binding.resource_path[-1],
                [column for column in columns if column.key],
                request.keys_packed.filter(new),
                hard_delete=self._hard_delete,
            )
        if staging is None:
            staging = self._staging[request.binding] = self._begun(binding, rows)
        # What is new is only added, unless the row of a key that was deleted softly is there.
        added = binding.delta_updates or (self._hard_delete and pc.all(new).as_py())
        staging.write(rows, gone, merge=not added)

    def _begun(self, binding: BindingSpec, rows: pa.Table) -> Staging:
        """Begin a file: where the table is plain, at a place where it can become the table's."""
        table = binding.resource_path[-1]
        if not _is_key(table) or not self._tables.takes_files(table):
            return Staging(rows)
        file = f"headwater-{secrets.token_hex(_NAME_BYTES)}.parquet"
        directory = self._tables.directory(table)
        return Staging(rows, f"{table}/{file}", None if directory is None else directory / file)

    def _committed(self) -> ConnectorState | None:
        """Stage what was written; return what commits with the checkpoint."""
        if not self._staging:
            return None
        staged: dict[str, Work] = {}
        owner = self._materialization.name
        for index, staging in sorted(self._staging.items()):
            binding = self._materialization.bindings[index]
            table = binding.resource_path[-1]
            app = f"headwater/{owner}/{binding.state_key}/{self._range}"
            assert binding.field_selection is not None
            name = staging.name or f"{self._directory}{secrets.token_hex(_NAME_BYTES)}.parquet"
            with failing(f"cannot write to Delta table {table}"):
                size = staging.settled()
            if size is None:
                content = staging.content()
                self._place.create(name, content)
                size = len(content)
            staged[name] = Work(
                table,
                binding.field_selection.keys,
                staging.merge,
                app,
                self._tables.next_version(table, app),
                owner,
                self._tables.generation(table, owner),
                staging.statistics() if staging.name else "",
                size,
            )
        self._staging.clear()
        self._states = {self._range: ShardState(staged)}
        return _patch(self._states)


def _is_key(table: str) -> bool:
    """Whether our own files can be below a table's directory."""
    try:
        check_key(table)
    except InvalidUsage:
        return False
    return True


def _patch(changed: Mapping[str, Any]) -> ConnectorState:
    return ConnectorState(msgspec.json.encode(changed), merge_patch=True)
