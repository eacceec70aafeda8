"""Tables of a lake as a driver meets them: without a primary key, and with an engine that scans.

What Delta Lake and Iceberg have in common, whatever a table is called there (:class:`Dialect`): how
a binding is compared with a table that is there, how tables are prepared, how the rows of some keys
are found by a scan, and how rows get the table's types. Which files there are, and how they become
the table's, is each driver's own.

Nothing of it commits but :func:`prepared`, whose every step may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as Mapped
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import Determinate
from headwater.materialize.drivers.columns import (
    Column,
    Existing,
    column_of,
    columns_of,
    constraints,
)
from headwater.materialize.drivers.sql import KeyTaken, backfilled
from headwater.materialize.drivers.typed_rows import stored, typed
from headwater.materialize.joined import joined
from headwater.materialize.projections import OP, packable
from headwater.materialize.protocol.messages import Applied, Apply, StoreMany
from headwater.materialize.protocol.specs import (
    BindingSpec,
    CollectionSpec,
    Constraint,
    ConstraintType,
)
from headwater.materialize.tuples import pack_columns, unpack


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a lake calls things."""

    noun: str
    """What a table is in what we say."""
    native: Callable[[Column], str]
    """Its name for the type of a new column."""
    arrow: Callable[[Column], pa.DataType]
    holds: Callable[[str, Column], bool]
    """Whether an existing column of a type can hold all values of a column of ours."""
    unnameable: Callable[[str], str | None]
    """Why a column cannot have a name; ``None``: it can."""

    def described(self, columns: Iterable[Column]) -> str:
        """Return columns as they are told to people."""
        return ", ".join(f"{column.name} {self.native(column)}" for column in columns)


class Tables(Protocol):
    """The tables of a place, by their names."""

    def find(self, table: str) -> Any | None:
        """Return a table as we saw or left it last; ``None`` if there is none."""
        ...

    def newest(self, table: str) -> Any:
        """Return a table as it is now."""
        ...

    def types(self, table: str) -> Mapped[str, str]:
        """Return the lake's type of each column."""
        ...

    def required(self, table: str) -> frozenset[str]:
        """Return the columns that must not be NULL."""
        ...

    def schema(self, table: str) -> pa.Schema:
        """Return the columns of a table as Arrow has them."""
        ...

    def holds_data(self, table: str) -> bool:
        """Return whether a table has rows."""
        ...

    def has_files(self, table: str) -> bool:
        """Return whether there is anything to scan."""
        ...

    def create(self, table: str, columns: Sequence[Column]) -> None:
        """Make a table; only its key must not be NULL."""
        ...

    def add(self, table: str, columns: Sequence[Column]) -> None:
        """Add columns to a table, nullable."""
        ...

    def empty(self, table: str, owner: str) -> None:
        """Remove all rows; what was staged for them changes nothing any more."""
        ...

    def scan(
        self, table: str, columns: Sequence[str], bounds: tuple[str, Any, Any] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, at least those with a column within bounds."""
        ...


def table_of(binding: BindingSpec) -> str:
    """Return the name of a binding's table."""
    return ".".join(binding.resource_path)


def table_constraints(
    tables: Tables, dialect: Dialect, table: str, collection: CollectionSpec, *, delta: bool
) -> Iterator[tuple[str, Constraint]]:
    """Yield what a table demands of a collection's fields, and what the lake does."""
    columns = {p.field: column_of(p) for p in collection.projections}
    existing: dict[str, Existing] = {}
    if tables.find(table) is not None:
        keys = {pointer.removeprefix("/") for pointer in collection.key}
        required = tables.required(table)
        existing = {
            # It has no primary key of its own, and takes any.
            name: Existing(kind, name in keys and not delta, name in required)
            for name, kind in tables.types(table).items()
        }
    for field, constraint in constraints(collection, existing, lambda _, __: True, delta=delta):
        column = columns.get(field)
        unnameable = dialect.unnameable(field)
        if unnameable is not None:
            yield field, Constraint(ConstraintType.FIELD_FORBIDDEN, unnameable)
        elif (
            column is None or field not in existing or dialect.holds(existing[field].native, column)
        ):
            yield field, constraint
        else:
            native = existing[field].native
            reason = f"the table's column is {native}, not {dialect.native(column)}"
            yield field, Constraint(ConstraintType.INCOMPATIBLE, reason)


def prepared(tables: Tables, dialect: Dialect, request: Apply) -> Applied:
    """Make, empty and widen tables as a materialization needs them; a dry run only says so."""
    assert request.materialization is not None
    done = []
    emptied = {".".join(path) for path in backfilled(request)}
    for binding in request.materialization.bindings:
        table, columns = table_of(binding), columns_of(binding)
        if tables.find(table) is None:
            done.append(f"create {dialect.noun} {table} ({dialect.described(columns)})")
            if not request.dry_run:
                tables.create(table, columns)
            continue
        if table in emptied:
            done.append(f"empty {dialect.noun} {table}")
            if not request.dry_run:
                tables.empty(table, request.materialization.name)
        added = [c for c in columns if c.name not in tables.types(table)]
        if added:
            done.append(f"add to {dialect.noun} {table} ({dialect.described(added)})")
            if not request.dry_run:
                tables.add(table, added)
    return Applied(";\n".join(done))


def found_rows(
    tables: Tables,
    dialect: Dialect,
    table: str,
    keys: Sequence[Column],
    packed: pa.LargeBinaryArray,
    columns: Sequence[str],
    first: pa.Array | None = None,
) -> Iterator[pa.Table]:
    """Yield some columns of the rows of some keys, as far as they are there.

    ``first``: the first column of the keys, for who has it: to unpack it takes an object for each.
    """
    # Of the first column alone an engine knows where its values are.
    first = pa.array([unpack(key)[0] for key in packed.to_pylist()]) if first is None else first
    plain = pa.types.is_integer(first.type) or pa.types.is_string(first.type)
    kind = tables.types(table)[keys[0].name]
    bounds = None
    if plain and kind in ("long", "string"):
        bounds = (keys[0].name, pc.min(first).as_py(), pc.max(first).as_py())
    for batch in tables.scan(table, columns, bounds):
        near = batch
        if bounds is not None or kind == "uuid":
            column = batch.column(keys[0].name)
            wanted = stored(typed(first, column.type))
            near = batch.filter(pc.is_in(stored(column), value_set=wanted))
        there = pc.is_in(packed_keys(dialect, keys, near), value_set=packed)
        found = pa.Table.from_batches([near]).filter(there)
        if found.num_rows:
            yield found


def refuse_taken(
    tables: Tables,
    dialect: Dialect,
    table: str,
    keys: Sequence[Column],
    store: StoreMany,
    new: pa.BooleanArray,
    *,
    hard_delete: bool,
) -> None:
    """Refuse those that are new of keys that are there; a row that was deleted softly is none."""
    if not tables.has_files(table):
        return
    packed = store.keys_packed.filter(new)
    first = joined(store.rows.column(keys[0].name)).filter(new)
    names = [column.name for column in keys]
    marks = [] if hard_delete else [OP]
    for found in found_rows(tables, dialect, table, keys, packed, [*names, *marks], first):
        live = found if hard_delete else found.filter(pc.not_equal(found[OP], "d"))
        if live.num_rows:
            raise KeyTaken((table,), live.select(names).slice(0, 1).to_pylist()[0])


def packed_keys(
    dialect: Dialect, keys: Sequence[Column], rows: pa.RecordBatch | pa.Table
) -> pa.LargeBinaryArray:
    """Return the packed keys of rows of a table."""
    # As our own types have them: a table's decimal may have more digits than the key's text.
    return pack_columns([packable(typed(rows.column(c.name), dialect.arrow(c))) for c in keys])


def converted(
    dialect: Dialect, table: str, rows: pa.Table, columns: Sequence[Column], schema: pa.Schema
) -> pa.Table:
    """Return rows in the types of a table; refuse what does not fit."""
    arrays = []
    for column in columns:
        kind = schema.field(column.name).type
        try:
            arrays.append(typed(rows.column(column.name), kind))
        except (pa.ArrowException, ValueError) as error:
            raise Determinate(
                f"cannot write to {dialect.noun} {table}: column "
                f"{column.name!r} has a value that is no {kind}: {error}"
            ) from error
    fields = [schema.field(c.name).with_nullable(not c.key) for c in columns]
    return pa.table(arrays, schema=pa.schema(fields))
