"""Iceberg tables as the driver uses them: made, widened, emptied, read by key, and changed once.

A piece of *work* is files of rows that are to become a table's, and files of keys whose rows go
before. It carries an application transaction: the id of whoever made it, and a number. A table has
the greatest number of each id as a property, which changes in the same commit as its rows.

Invariant:      however often, by however many sessions, and in whatever order work is applied, a
                table has it once: :meth:`Tables.apply` reads the table's number first, does nothing
                if that is not below the work's own, and commits upon the very snapshot it read.
                The catalog refuses whoever comes second; pyiceberg would then try again of its own,
                without the question, and is kept from it (:class:`Once`).
Also:           a table has a *generation*, a property of its owner. Emptying a table raises it, and
                work of a former generation changes nothing any more. It always makes a snapshot, so
                that it is ordered with all work.

Rows go by *copy on write*: pyiceberg writes no delete files. Where a key may be, the file's bounds
say; a file with rows of it is written anew without them, together with others of the same commit,
so that small files do not pile up where rows change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import RLock
from typing import Any, Final
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    LessThanOrEqual,
    Reference,
)
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _dataframe_to_data_files,
    parquet_file_to_data_file,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.types import NestedField

from headwater.base.clock import Clock, SystemClock
from headwater.base.errors import Determinate, HeadwaterError
from headwater.materialize.drivers.columns import Column
from headwater.materialize.drivers.iceberg_catalog import failing
from headwater.materialize.drivers.iceberg_files import RowFiles, discard
from headwater.materialize.drivers.iceberg_types import iceberg_type
from headwater.materialize.drivers.typed_rows import stored
from headwater.materialize.joined import joined
from headwater.materialize.projections import packable
from headwater.materialize.tuples import pack_columns

_NEW_TABLE: Final = {
    # Each commit writes all of a table's metadata anew: those before are of no use to anybody.
    "write.metadata.delete-after-commit.enabled": "true",
}
_WRITABLE_VERSION: Final = 2
_ATTEMPTS_MAX: Final = 20
_PAUSE_SECONDS: Final = 0.05
_TURNS: Final[dict[UUID, RLock]] = {}
"""Of each table: whose turn it is in this process. Who is second loses all that it has rewritten,
so shards do not race where they can wait."""


class StagedWorkLost(HeadwaterError):
    """The rows of a committed transaction that are neither staged nor in their table."""

    def __init__(self, file: str, table: str) -> None:
        super().__init__(
            f"what was committed for Iceberg table {table!r} is not in it, and {file} with its "
            "rows is not there: somebody else removed it; BACKFILL to deliver everything anew"
        )


class Work(msgspec.Struct, frozen=True):
    """What is to become of a transaction's files; all that whoever applies them has to know."""

    table: str
    app: str
    version: int
    owner: str
    generation: int
    rows: tuple[str, ...] = ()
    """Files of the table's own columns, which become its own."""
    gone: tuple[str, ...] = ()
    """Files of keys; their rows, if there are any, go before."""


class Once(Transaction):
    """A transaction that is tried once: what it is based on is looked at again before another."""

    def commit_transaction(self) -> Table:
        """Commit; raises ``CommitFailedException`` where another came first."""
        unchanged = AssertTableUUID(uuid=self._table.metadata.table_uuid)
        try:
            self._table._do_commit(self._updates, (*self._requirements, unchanged))
        except CommitFailedException:
            self._table.refresh()
            (producer,) = self._snapshot_producers
            # It may have come through all the same, if somebody on the way repeated it.
            if self._table.metadata.snapshot_by_id(producer.snapshot_id) is None:
                producer._clean_all_uncommitted()
                raise
        return self._table


class Tables:
    """The tables of one catalog, by their names with dots."""

    def __init__(self, catalog: Catalog, clock: Clock | None = None) -> None:
        self._catalog = catalog
        self._clock = clock or SystemClock()
        self._open: dict[str, Table] = {}

    def find(self, table: str) -> Table | None:
        """Return a table as we saw or left it last; ``None`` if there is none."""
        if table not in self._open:
            with failing(f"cannot read Iceberg table {table}"):
                try:
                    found = self._catalog.load_table(table)
                except (NoSuchTableError, NoSuchNamespaceError):
                    return None
            if found.format_version > _WRITABLE_VERSION:
                raise Determinate(
                    f"Iceberg table {table} is of format version {found.format_version}, and "
                    f"pyiceberg writes none above {_WRITABLE_VERSION}"
                )
            self._open[table] = found
        return self._open[table]

    def named(self, table: str) -> Table:
        """Return a table that must be there."""
        found = self.find(table)
        if found is None:
            raise Determinate(
                f"the Iceberg table {table} is not there any more; somebody removed it: "
                "BACKFILL the materialization to deliver it anew"
            )
        return found

    def newest(self, table: str) -> Table:
        """Return a table as it is now."""
        self._open.pop(table, None)
        return self.named(table)

    def types(self, table: str) -> Mapping[str, str]:
        """Return Iceberg's type of each column."""
        return {field.name: str(field.field_type) for field in self.named(table).schema().fields}

    def required(self, table: str) -> frozenset[str]:
        """Return the columns that must not be NULL."""
        return frozenset(f.name for f in self.named(table).schema().fields if f.required)

    def schema(self, table: str) -> pa.Schema:
        """Return the columns of a table as Arrow has them, with Iceberg's ids."""
        return schema_to_pyarrow(self.named(table).schema())

    def holds_data(self, table: str) -> bool:
        """Return whether a table has rows."""
        first = self.schema(table).names[:1]
        return any(batch.num_rows for batch in self.scan(table, first, None))

    def has_files(self, table: str) -> bool:
        """Return whether there is anything to scan."""
        with failing(f"cannot read Iceberg table {table}"):
            return any(True for _ in self.named(table).scan().plan_files())

    def create(self, table: str, columns: Sequence[Column]) -> None:
        """Make a table, and the namespace it is in; only its key must not be NULL."""
        fields = [
            NestedField(at, column.name, iceberg_type(column), required=column.key)
            for at, column in enumerate(columns, 1)
        ]
        *namespace, _ = table.split(".")
        with failing(f"cannot create Iceberg table {table}"):
            for depth in range(1, len(namespace) + 1):
                if not self._catalog.namespace_exists(tuple(namespace[:depth])):
                    self._catalog.create_namespace_if_not_exists(tuple(namespace[:depth]))
            self._catalog.create_table(table, Schema(*fields), properties=_NEW_TABLE)
        self.newest(table)

    def add(self, table: str, columns: Sequence[Column]) -> None:
        """Add columns to a table, nullable."""
        found = self.newest(table)
        with (
            failing(f"cannot add columns to Iceberg table {table}"),
            found.update_schema() as update,
        ):
            for column in columns:
                update.add_column((column.name,), iceberg_type(column))
        self.newest(table)

    # What was applied.

    def generation(self, table: str, owner: str) -> int:
        """Return how often a table was emptied for an owner."""
        return _number(self.named(table), _generation(owner))

    def next_version(self, table: str, app: str) -> int:
        """Return the number of the next work; all that was before has been applied."""
        return _number(self.named(table), _applied(app)) + 1

    def is_applied(self, work: Work) -> bool:
        """Return whether a table has some work already, or was emptied since."""
        found = self.newest(work.table)
        return (
            _number(found, _generation(work.owner)) != work.generation
            or _number(found, _applied(work.app)) >= work.version
        )

    def empty(self, table: str, owner: str) -> None:
        """Remove all rows and begin a new generation, in one commit."""

        def commit() -> None:
            found = self.newest(table)
            transaction = Once(found)
            update = transaction.update_snapshot().overwrite()
            for task in found.scan().plan_files():
                update.delete_data_file(task.file)
            update.commit()
            transaction.set_properties(
                {_generation(owner): str(_number(found, _generation(owner)) + 1)}
            )
            transaction.commit_transaction()

        self._committing(table, commit)

    def apply(self, work: Work) -> None:
        """Let a table have some work, unless it has it."""

        def commit() -> None:
            if not self.is_applied(work):
                self._apply(self.named(work.table), work)  # The very snapshot that was looked at.
            discard(self.named(work.table), work.gone)

        try:
            self._committing(work.table, commit)
        except StagedWorkLost:
            if not self.is_applied(work):  # Else somebody else did, and needed it no more.
                raise

    def _apply(self, found: Table, work: Work) -> None:
        kept, made = RowFiles(found), list[str]()
        try:
            transaction = Once(found)
            snapshot = transaction.update_snapshot()
            update = snapshot.overwrite() if work.gone else snapshot.fast_append()
            for task in self._without(found, work, kept):
                update.delete_data_file(task.file)
            for file in self._becoming(found, (*work.rows, *kept.ended()), work, made):
                update.append_data_file(file)
            update.commit()
            transaction.set_properties({_applied(work.app): str(work.version)})
            transaction.commit_transaction()
        except (CommitFailedException, HeadwaterError, FileNotFoundError):
            kept.discard()
            discard(found, made)
            raise
        if made:  # The table is divided, and has others in their place.
            discard(found, (*work.rows, *kept.files))

    def _committing(self, table: str, commit: Callable[[], None]) -> None:
        """Commit upon the newest snapshot, at which ``commit`` looks; where another came first,
        repeat."""
        turn = _TURNS.setdefault(self.named(table).metadata.table_uuid, RLock())
        with failing(f"cannot commit to Iceberg table {table}"):
            for attempt in range(_ATTEMPTS_MAX):
                try:
                    with turn:
                        commit()
                    return
                except CommitFailedException:
                    if attempt + 1 == _ATTEMPTS_MAX:
                        raise
                    self._clock.sleep(_PAUSE_SECONDS * (attempt + 1))

    def _becoming(
        self, found: Table, files: Sequence[str], work: Work, made: list[str]
    ) -> Iterator[DataFile]:
        """Yield files as a commit has them; those of a table that is divided are ``made`` anew."""
        for file in files:
            try:
                if found.spec().is_unpartitioned():
                    yield parquet_file_to_data_file(found.io, found.metadata, file)
                    continue
                rows = _read(found, file)
            except FileNotFoundError as error:
                raise StagedWorkLost(file, work.table) from error
            schema = schema_to_pyarrow(found.schema())
            for data_file in _dataframe_to_data_files(
                found.metadata, _widened(rows, schema), found.io
            ):
                made.append(data_file.file_path)
                yield data_file

    # Rows that go.

    def _without(self, found: Table, work: Work, kept: RowFiles) -> Iterator[FileScanTask]:
        """Yield the files with rows that go, after all their other rows have been kept."""
        if not work.gone:
            return
        try:
            keys = pa.concat_tables([_read(found, file) for file in work.gone])
        except FileNotFoundError as error:
            raise StagedWorkLost(", ".join(work.gone), work.table) from error
        schema = schema_to_pyarrow(found.schema())
        keys = keys.cast(pa.schema([schema.field(name) for name in keys.column_names]))
        going = _Going(keys)
        for task in found.scan(row_filter=going.bounds()).plan_files():
            parts = [going.among(b) for b in _rows_of(found, task, keys.column_names)]
            goes = pa.chunked_array(parts, pa.bool_())
            if not pc.any(goes).as_py():
                continue
            at = 0
            for batch in _rows_of(found, task, schema.names):
                stays = pc.invert(joined(goes.slice(at, batch.num_rows)))
                kept.write(pa.Table.from_batches([batch]).filter(stays).cast(schema))
                at += batch.num_rows
            yield task

    def scan(
        self, table: str, columns: Sequence[str], bounds: tuple[str, Any, Any] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, at least those with a column within bounds."""
        found = self.named(table)
        kinds = schema_to_pyarrow(found.schema(), include_field_ids=False)
        wanted = pa.schema([kinds.field(column) for column in columns])
        within = AlwaysTrue() if bounds is None else _within(*bounds)
        with failing(f"cannot read Iceberg table {table}"):
            for task in found.scan(row_filter=within).plan_files():
                for batch in _rows_of(found, task, columns):
                    yield batch.select(list(columns)).cast(wanted)


class _Going:
    """Keys whose rows go, in the types of their table."""

    def __init__(self, keys: pa.Table) -> None:
        self._names = keys.column_names
        self._kind = keys.column(0).type
        self._first = stored(joined(keys.column(0)))
        self._bounded = pa.types.is_integer(self._kind) or pa.types.is_large_string(self._kind)
        self._exact = self._bounded or self._kind == pa.uuid()
        # One column whose values are equal just if they look the same need not be packed.
        self._plain = self._exact and keys.num_columns == 1
        self._packed = None if self._plain else _packed(keys)

    def bounds(self) -> BooleanExpression:
        """Return where rows of the keys can be."""
        if not self._bounded:
            return AlwaysTrue()
        least, greatest = pc.min_max(self._first).values()
        return _within(self._names[0], least.as_py(), greatest.as_py())

    def among(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return which rows go."""
        first = stored(rows.column(self._names[0]).cast(self._kind))
        if self._plain:
            return pc.is_in(first, value_set=self._first)
        if not self._exact:
            return pc.is_in(_packed(rows.select(self._names)), value_set=self._packed)
        near = pc.is_in(first, value_set=self._first)
        few = pa.Table.from_batches([rows.select(self._names)]).filter(near)
        goes = pc.is_in(_packed(few), value_set=self._packed)
        return pc.replace_with_mask(near, near, goes)


def _packed(keys: pa.Table | pa.RecordBatch) -> pa.LargeBinaryArray:
    return pack_columns([packable(joined(column)) for column in keys.columns])


def _within(column: str, least: Any, greatest: Any) -> BooleanExpression:
    term = Reference(column)
    return And(
        GreaterThanOrEqual(term=term, value=least), LessThanOrEqual(term=term, value=greatest)
    )


def _rows_of(found: Table, task: FileScanTask, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of all live rows of a file, in the file's order."""
    ids = [found.schema().find_field(column).field_id for column in columns]
    wanted = Schema(*(field for field in found.schema().fields if field.field_id in ids))
    return ArrowScan(found.metadata, found.io, wanted, AlwaysTrue()).to_record_batches([task])


def _read(found: Table, file: str) -> pa.Table:
    with found.io.new_input(file).open() as stream:
        return pq.read_table(stream)


def _widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with all columns of a table, which may have got some since they were staged."""
    columns = [
        rows[f.name] if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)


def _applied(app: str) -> str:
    return f"headwater.applied.{app}"


def _generation(owner: str) -> str:
    return f"headwater.generation.{owner}"


def _number(found: Table, name: str) -> int:
    return int(found.properties.get(name, "0"))
