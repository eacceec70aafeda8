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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.base.decoding import from_json
from headwater.base.errors import Determinate, HeadwaterError, InvalidUsage
from headwater.materialize.drivers.columns import (
    Column,
    Existing,
    column_of,
    columns_of,
    constraints,
)
from headwater.materialize.drivers.delta_staging import Staging
from headwater.materialize.drivers.delta_tables import Tables, Work, arrow_type, failing, holds
from headwater.materialize.drivers.delta_tables import native_type as native
from headwater.materialize.drivers.responder import NotServed, specified
from headwater.materialize.drivers.sql import HARD_DELETE_SCHEMA, KeyTaken, backfilled
from headwater.materialize.joined import joined
from headwater.materialize.key_range import KeyHash, KeyRange
from headwater.materialize.projections import OP, packable
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
    Constraint,
    ConstraintType,
    MaterializationSpec,
)
from headwater.materialize.tuples import pack_columns, unpack
from headwater.persist.blob import check_key, open_blob
from headwater.persist.location import Blob

STAGED: Final = "_staged"
_NAME_BYTES: Final = 8
_TARGET: Final = re.compile(r"[A-Za-z0-9._=-]+(?:/[A-Za-z0-9._=-]+)*\Z")
_NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")
"""What Delta's readers cannot have in the name of a column."""


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
                    constraints=tuple(self._constraints(table, collection, delta=delta)),
                    resource_path=(table,),
                    delta_updates=delta,
                    holds_data=self._tables.find(table) is not None
                    and self._tables.holds_data(table),
                )
            )
        return Validated(tuple(bindings))

    def _constraints(
        self, table: str, collection: CollectionSpec, *, delta: bool
    ) -> Iterator[tuple[str, Constraint]]:
        columns = {p.field: column_of(p) for p in collection.projections}
        existing: dict[str, Existing] = {}
        if self._tables.find(table) is not None:
            keys = {pointer.removeprefix("/") for pointer in collection.key}
            required = self._tables.required(table)
            existing = {
                # It has no primary key of its own, and takes any.
                name: Existing(kind, name in keys and not delta, name in required)
                for name, kind in self._tables.types(table).items()
            }
        for field, constraint in constraints(collection, existing, lambda _, __: True, delta=delta):
            column = columns.get(field)
            if set(field) & _NOT_IN_NAMES:
                reason = "a Delta table has no space and none of ,;{}()= in the name of a column"
                yield field, Constraint(ConstraintType.FIELD_FORBIDDEN, reason)
            elif column is None or field not in existing or holds(existing[field].native, column):
                yield field, constraint
            else:
                reason = f"the table's column is {existing[field].native}, not {native(column)}"
                yield field, Constraint(ConstraintType.INCOMPATIBLE, reason)

    def _prepared(self, request: Apply) -> Applied:
        assert request.materialization is not None
        self._connect(request.materialization.config_json)
        done = []
        emptied = {path[-1] for path in backfilled(request)}
        for binding in request.materialization.bindings:
            table, columns = binding.resource_path[-1], columns_of(binding)
            if self._tables.find(table) is None:
                done.append(f"create Delta table {table} ({_described(columns)})")
                if not request.dry_run:
                    self._tables.create(table, columns)
                continue
            if table in emptied:
                done.append(f"empty Delta table {table}")
                if not request.dry_run:
                    self._tables.empty(table, request.materialization.name)
            added = [c for c in columns if c.name not in self._tables.types(table)]
            if added:
                done.append(f"add to Delta table {table} ({_described(added)})")
                if not request.dry_run:
                    self._tables.add(table, added)
        return Applied(";\n".join(done))

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
            keys = pa.array(packed, pa.large_binary())
            names = [column.name for column in self._columns[index]]
            for rows in self._find(index, keys, names):
                yield LoadedMany(index, rows)
        yield Flushed()

    def _find(
        self, index: int, packed: pa.LargeBinaryArray, columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        """Yield the rows of some keys, as far as they are there."""
        binding = self._materialization.bindings[index]
        keys = [column for column in self._columns[index] if column.key]
        table = binding.resource_path[-1]
        # Of the first column alone the engine knows where its values are.
        first = pa.array([unpack(key)[0] for key in packed.to_pylist()])
        plain = pa.types.is_integer(first.type) or pa.types.is_string(first.type)
        bounds = None
        if plain and native(keys[0]) in ("long", "string"):
            bounds = (keys[0].name, pc.min(first).as_py(), pc.max(first).as_py())
        for batch in self._tables.scan(table, columns, bounds):
            near = batch
            if bounds is not None:
                column = batch.column(keys[0].name)
                near = batch.filter(pc.is_in(column, value_set=first.cast(column.type)))
            there = pc.is_in(_packed(keys, near), value_set=packed)
            found = pa.Table.from_batches([near]).filter(there)
            if found.num_rows:
                yield found

    def _store(self, request: StoreMany) -> None:
        binding = self._materialization.bindings[request.binding]
        columns = self._columns[request.binding]
        schema = self._tables.schema(binding.resource_path[-1])
        rows = _converted(request.rows, columns, schema, binding)
        gone = pc.and_(request.delete, self._hard_delete)
        new = pc.and_(pc.invert(request.exists), pc.invert(gone))
        staging = self._staging.get(request.binding)
        if not binding.delta_updates and pc.any(new).as_py():
            if staging is None:
                # Somebody else may have written since we did.
                self._tables.newest(binding.resource_path[-1])
            self._refuse_taken(request.binding, request.keys_packed.filter(new))
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

    def _refuse_taken(self, index: int, new: pa.LargeBinaryArray) -> None:
        table = self._materialization.bindings[index].resource_path[-1]
        if not self._tables.named(table).file_uris():
            return
        columns = self._columns[index]
        keys = [column.name for column in columns if column.key]
        marks = [] if self._hard_delete else [OP]
        for found in self._find(index, new, [*keys, *marks]):
            live = found if self._hard_delete else found.filter(pc.not_equal(found[OP], "d"))
            if live.num_rows:
                raise KeyTaken((table,), live.select(keys).slice(0, 1).to_pylist()[0])

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


def _described(columns: Iterable[Column]) -> str:
    return ", ".join(f"{column.name} {native(column)}" for column in columns)


def _packed(keys: Sequence[Column], rows: pa.RecordBatch) -> pa.LargeBinaryArray:
    # As our own types have them: a table's decimal may have more digits than the key's text.
    return pack_columns([packable(rows.column(c.name).cast(arrow_type(c))) for c in keys])


def _converted(
    rows: pa.Table, columns: Sequence[Column], schema: pa.Schema, binding: BindingSpec
) -> pa.Table:
    """Return rows in the types of the table; refuse what does not fit."""
    converted = {}
    for column in columns:
        array = joined(rows.column(column.name))
        kind = schema.field(column.name).type
        try:
            texts = pa.types.is_nested(array.type) or pa.types.is_time(array.type)
            converted[column.name] = (packable(array) if texts else array).cast(kind)
        except (pa.ArrowException, ValueError) as error:
            raise Determinate(
                f"cannot write to Delta table {binding.resource_path[-1]}: column "
                f"{column.name!r} has a value that is no {kind}: {error}"
            ) from error
    fields = [pa.field(c.name, converted[c.name].type, nullable=not c.key) for c in columns]
    return pa.table(list(converted.values()), schema=pa.schema(fields))
