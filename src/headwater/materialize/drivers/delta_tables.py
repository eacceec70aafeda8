"""Delta tables as the driver uses them: made, widened, emptied, read by key, and changed once.

A piece of *work* is a file of staged rows and what is to become of them in one table: they are
merged or appended, or the file itself becomes one of the table's. It carries an application
transaction: the id of whoever made it, and a number. A table remembers the greatest
number of each id in the same commit as the rows.

Invariant:      however often, by however many sessions, and in whatever order work is applied, a
                table has it once: :meth:`Tables.apply` reads the table's number first, does nothing
                if that is not below the work's own, and commits upon the very version it read.
                delta-rs refuses the second of two concurrent commits with one id; it does *not*
                refuse a later commit with a number that is there already, hence the question first.
Also:           a table has a *generation*, the number of the id of its owner. Emptying a table
                raises it, and work of a former generation changes nothing any more. Every commit
                names it, so that it is ordered with the emptying.

Names are quoted in every expression. A table is read by its own engine (``scan``), as a stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Field
from deltalake.transaction import AddAction

from headwater.base.clock import Clock, SystemClock
from headwater.base.errors import Determinate, Indeterminate
from headwater.materialize.drivers.columns import Column, Kind
from headwater.materialize.drivers.delta_files import engine_properties

GONE: Final = "__headwater_delete"
"""The column of staged rows that says which are to be removed."""

_S3_OPTIONS: Final = {
    "conditional_put": "etag",  # A commit must not go over another's.
    "allow_http": "true",  # Which of the two it is, the endpoint's address says.
}
_COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")
_ATTEMPTS_MAX: Final = 20
_PAUSE_SECONDS: Final = 0.05

_NATIVE: Final[Mapping[Kind, tuple[str, pa.DataType]]] = {
    Kind.BOOLEAN: ("boolean", pa.bool_()),
    Kind.INTEGER: ("long", pa.int64()),
    Kind.DOUBLE: ("double", pa.float64()),
    Kind.TEXT: ("string", pa.string()),
    Kind.BYTES: ("binary", pa.binary()),
    Kind.DATE: ("date", pa.date32()),
    Kind.TIME: ("string", pa.string()),
    Kind.TIMESTAMP: ("timestamp", pa.timestamp("us", "UTC")),
    Kind.LOCAL_TIMESTAMP: ("timestamp_ntz", pa.timestamp("us")),
    Kind.JSON: ("string", pa.string()),
    Kind.UUID: ("string", pa.string()),
}
_PLAIN_VERSION: Final = 2
"""The last version of Delta's protocol in which writers had nothing to do but to write rows."""
_PLAIN_FEATURES: Final = frozenset({"timestampNtz", "appendOnly", "invariants"})
_NOT_PLAIN: Final = ("delta.constraints.", "delta.columnMapping.", "delta.generat")
_DIGITS: Final[Mapping[Kind, tuple[int, int]]] = {Kind.DECIMAL: (38, 9), Kind.WHOLE: (38, 0)}
"""Of a decimal of which nothing is said."""


class Work(msgspec.Struct, frozen=True):
    """What is to become of a file of staged rows; all that whoever applies it has to know."""

    table: str
    keys: tuple[str, ...]
    merge: bool
    """Whether keys of it may be in the table; else its rows are only added."""
    app: str
    version: int
    owner: str
    generation: int
    added: str = ""
    """Of a file that is to become one of the table's: its statistics, as Delta has them."""
    size: int = 0
    """And how many bytes it has."""


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a new column."""
    if column.kind in _DIGITS:
        return pa.decimal128(*(column.digits or _DIGITS[column.kind]))
    return _NATIVE[column.kind][1]


def native_type(column: Column) -> str:
    """Return Delta's name of the type of a new column."""
    if column.kind in _DIGITS:
        precision, scale = column.digits or _DIGITS[column.kind]
        return f"decimal({precision},{scale})"
    return _NATIVE[column.kind][0]


def holds(native: str, column: Column) -> bool:
    """Return whether an existing column of a type can hold all values of a column of ours."""
    if not native.startswith("decimal(") or column.kind not in _DIGITS:
        return native == native_type(column)
    precision, scale = map(int, native.removeprefix("decimal(").rstrip(")").split(","))
    ours, fraction = column.digits or _DIGITS[column.kind]
    return scale >= fraction and precision - scale >= ours - fraction


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Tell what delta-rs refused, or where it broke."""
    try:
        yield
    except CommitFailedError as error:
        raise Indeterminate(f"{what}: {_told(error)}") from error
    except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
        raise Determinate(f"{what}: {_told(error)}") from error
    except BaseException as error:
        # A panic of its native code is no Exception; unconverted it would end the whole thread.
        if type(error).__name__ == "PanicException":
            raise Indeterminate(f"{what}: delta-rs broke off: {error}") from error
        raise


def _told(error: Exception) -> str:
    """Return an error's words in one line, without the colors that they may have."""
    return " ".join(_COLORS.sub("", str(error)).split())


class Tables:
    """The tables below one directory or bucket prefix."""

    def __init__(self, root: str, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._root = root.rstrip("/")
        self._options = _S3_OPTIONS if root.startswith("s3://") else None
        self._open: dict[str, DeltaTable] = {}

    def _uri(self, table: str) -> str:
        return f"{self._root}/{table}"

    def directory(self, table: str) -> Path | None:
        """Return where a table is on this machine; ``None``: it is somewhere else."""
        return None if self._options is not None or "://" in self._root else Path(self._uri(table))

    def find(self, table: str) -> DeltaTable | None:
        """Return a table as we saw or left it last; ``None`` if there is none."""
        if table not in self._open:
            with failing(f"cannot read Delta table {self._uri(table)}"):
                try:
                    found = DeltaTable(self._uri(table), storage_options=self._options)
                except TableNotFoundError:
                    return None
                self._open[table] = found
        return self._open[table]

    def named(self, table: str) -> DeltaTable:
        """Return a table that must be there."""
        found = self.find(table)
        if found is None:
            raise Determinate(
                f"the Delta table {self._uri(table)} is not there any more; somebody removed it: "
                "BACKFILL the materialization to deliver it anew"
            )
        return found

    def newest(self, table: str) -> DeltaTable:
        """Return a table as it is now."""
        self._open.pop(table, None)
        return self.named(table)

    def types(self, table: str) -> Mapping[str, str]:
        """Return Delta's type of each column; of what has parts only its name."""
        described = msgspec.json.decode(self.named(table).schema().to_json())
        kinds = {field["name"]: field["type"] for field in described["fields"]}
        return {n: k if isinstance(k, str) else k["type"] for n, k in kinds.items()}

    def required(self, table: str) -> frozenset[str]:
        """Return the columns that must not be NULL."""
        described = msgspec.json.decode(self.named(table).schema().to_json())
        return frozenset(f["name"] for f in described["fields"] if not f["nullable"])

    def schema(self, table: str) -> pa.Schema:
        """Return the columns of a table as Arrow has them."""
        return pa.schema(self.named(table).schema())

    def holds_data(self, table: str) -> bool:
        """Return whether a table has rows."""
        first = self.schema(table).names[:1]
        return any(batch.num_rows for batch in self.scan(table, first, None))

    def has_files(self, table: str) -> bool:
        """Return whether there is anything to scan."""
        return bool(self.named(table).file_uris())

    def create(self, table: str, columns: Sequence[Column]) -> None:
        """Make a table; only its key must not be NULL."""
        schema = pa.schema([pa.field(c.name, arrow_type(c), nullable=not c.key) for c in columns])
        with failing(f"cannot create Delta table {self._uri(table)}"):
            self._open[table] = DeltaTable.create(
                self._uri(table), schema, storage_options=self._options
            )

    def add(self, table: str, columns: Sequence[Column]) -> None:
        """Add columns to a table, nullable."""
        fields = [Field.from_arrow(pa.field(c.name, arrow_type(c))) for c in columns]
        with failing(f"cannot add columns to Delta table {self._uri(table)}"):
            self.newest(table).alter.add_columns(fields)
        self.newest(table)

    def generation(self, table: str, owner: str) -> int:
        """Return how often a table was emptied for an owner."""
        return self.named(table).transaction_version(owner) or 0

    def empty(self, table: str, owner: str) -> None:
        """Remove all rows and begin a new generation, in one commit."""

        def commit() -> None:
            found = self.newest(table)
            following = Transaction(owner, (found.transaction_version(owner) or 0) + 1)
            commit = CommitProperties(app_transactions=[following])
            if found.file_uris():
                found.delete(commit_properties=commit)
            else:  # A deletion of nothing would be no commit.
                nothing = pa.schema(found.schema()).empty_table()
                write_deltalake(found, nothing, mode="append", commit_properties=commit)
            self._open.pop(table, None)

        self._committing(table, commit)

    def next_version(self, table: str, app: str) -> int:
        """Return the number of the next work; all that was before has been applied."""
        known = self.named(table).transaction_version(app)
        return 0 if known is None else known + 1

    def is_applied(self, work: Work) -> bool:
        """Return whether a table has some work already, or was emptied since."""
        found = self.newest(work.table)
        known = found.transaction_version(work.app)
        generation = found.transaction_version(work.owner) or 0
        return generation != work.generation or (known is not None and known >= work.version)

    def takes_files(self, table: str) -> bool:
        """Whether a file may become one of a table's as it is: nothing is to be checked or kept
        beside its rows, and it is not divided."""
        found = self.named(table)
        metadata, protocol = found.metadata(), found.protocol()
        features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
        return (
            not metadata.partition_columns
            and not any(name.startswith(_NOT_PLAIN) for name in metadata.configuration)
            and (protocol.min_writer_version <= _PLAIN_VERSION or features <= _PLAIN_FEATURES)
            and "delta.invariants" not in found.schema().to_json()
        )

    def add_file(self, work: Work, path: str) -> None:
        """Let a file below a table's directory be one of its own, unless it is."""

        def commit(found: DeltaTable, marks: CommitProperties) -> None:
            now = self._clock.now_ms()
            added = AddAction(path, work.size, {}, now, data_change=True, stats=work.added)
            found.create_write_transaction(
                [added], "append", found.schema(), commit_properties=marks
            )

        self._apply(work, commit)

    def apply(self, work: Work, rows: pa.Table) -> None:
        """Let a table have some work, unless it has it."""

        def commit(found: DeltaTable, commit: CommitProperties) -> None:
            if work.merge:
                _merge(found, work.keys, rows, commit)
            else:
                added = _widened(rows, pa.schema(found.schema()))
                write_deltalake(found, added, mode="append", commit_properties=commit)

        self._apply(work, commit)

    def _apply(self, work: Work, change: Callable[[DeltaTable, CommitProperties], None]) -> None:
        def commit() -> None:
            if not self.is_applied(work):
                app = Transaction(work.app, work.version)
                marks = [app, Transaction(work.owner, work.generation)]
                found = self.named(work.table)  # The version that was looked at.
                change(found, CommitProperties(app_transactions=marks))
                if found.transaction_version(work.app) != work.version:
                    # Not every commit is seen by the handle that made it: look afresh.
                    self._open.pop(work.table, None)

        self._committing(work.table, commit)

    def _committing(self, table: str, commit: Callable[[], None]) -> None:
        """Commit upon the newest version, at which ``commit`` looks; where another came first,
        repeat."""
        with failing(f"cannot commit to Delta table {self._uri(table)}"):
            for attempt in range(_ATTEMPTS_MAX):
                try:
                    commit()
                    return
                except CommitFailedError:
                    if attempt + 1 == _ATTEMPTS_MAX:
                        raise
                    self._clock.sleep(_PAUSE_SECONDS * (attempt + 1))

    def scan(
        self, table: str, columns: Sequence[str], bounds: tuple[str, Any, Any] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, at least those with a column within bounds."""
        predicate = None
        if bounds is not None:
            column, least, greatest = bounds
            name = quoted(column)
            predicate = f"{name} >= {_literal(least)} AND {name} <= {_literal(greatest)}"
        with failing(f"cannot read Delta table {self._uri(table)}"):
            reader = self.named(table).scan(columns=list(columns), predicate=predicate)
            # The engine has texts as views, of which Arrow's functions know little.
            kinds = self.schema(table)
            wanted = pa.schema([kinds.field(column) for column in columns])
            for batch in pa.RecordBatchReader.from_stream(reader):
                yield batch.cast(wanted)


def _widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with all columns of a table, which may have got some since they were staged."""
    columns = [
        rows[f.name] if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _merge(
    found: DeltaTable, keys: Sequence[str], rows: pa.Table, commit: CommitProperties
) -> None:
    same = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
    goes = pc.any(rows[GONE]).as_py()
    # What is said of no row need not be looked at in each.
    source, plain = (rows if goes else rows.drop_columns([GONE])), rows.drop_columns([GONE])
    put = {quoted(n): f"s.{quoted(n)}" for n in plain.column_names}
    # If it is not streamed, the bounds of its keys keep it from files that have none of them. Not
    # so with decimals: delta-rs has their bounds as doubles, and would miss rows that are there.
    exact = all(rows.schema.field(key).type in (pa.int64(), pa.string()) for key in keys)
    merge = found.merge(
        source,
        same,
        "s",
        "t",
        writer_properties=engine_properties(plain),
        streamed_exec=not exact,
        commit_properties=commit,
    )
    gone = f"s.{quoted(GONE)}"
    if goes:
        merge = merge.when_matched_delete(predicate=gone)
    stays = f"NOT {gone}" if goes else None
    merge.when_matched_update(put).when_not_matched_insert(put, predicate=stays).execute()


def quoted(name: str) -> str:
    """Return a name as expressions have it."""
    return '"' + name.replace('"', '""') + '"'


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    assert isinstance(value, int)
    return str(value)
