"""From a statement that writes to the updates it means, over the rows it matched.

    INSERT   +row for each row given           (ON CONFLICT DO UPDATE: -old +new if there is one)
    UPDATE   -old +new for each row matched
    DELETE   -old for each row matched

Values are stored by PostgreSQL's assignment casts (``sql/values.py``); defaults, NOT NULL and the
width of rows are checked here, expressions calculated (``adapter/calculations.py``), and primary
keys checked when the write commits (``adapter/group_commit.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.adapter.calculations import Calculations, calculated
from headwater.adapter.column_rules import ColumnRules
from headwater.adapter.errors import (
    AffectedTwice,
    NoSuchConstraint,
    NotNullViolation,
    UnknownColumn,
    WrongRowWidth,
)
from headwater.adapter.given import GivenRows
from headwater.adapter.group_commit import TableWrite
from headwater.adapter.key_counts import keys_of
from headwater.adapter.keyed_reads import PROBE_INDEX
from headwater.adapter.pgwire.backend import Result
from headwater.adapter.sql.dml import NEW, PLACE
from headwater.adapter.sql.forms import form_of
from headwater.adapter.sql.statements import (
    Assignment,
    Calculated,
    Computed,
    Constant,
    Delete,
    Excluded,
    Insert,
    OnConflict,
    Returned,
    Update,
    Value,
)
from headwater.adapter.sql.values import (
    assign,
    assign_column,
    check_columns,
    fitted,
    fitted_column,
    stored_columns,
)
from headwater.base.ids import GlobalId


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """The table that is written."""

    id: GlobalId
    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    rules: ColumnRules
    calculations: Calculations

    def stored(self, columns: Sequence[Any]) -> pa.Table:
        """Return the rows of ``columns``, in the table's order, if it takes them."""
        found = list(columns)
        for place, field in enumerate(self.schema):
            if field.name in self.rules.lengths:
                found[place] = fitted_column(found[place], self.rules.lengths[field.name])
            if not field.nullable and found[place].null_count:
                raise NotNullViolation(field.name, self.name)
        return pa.Table.from_arrays(found, schema=self.schema)

    def given(self, columns: Sequence[list[Value]], count: int) -> GivenRows:
        """The same of values, which are encoded later."""
        for values, field in zip(columns, self.schema, strict=True):
            if field.name in self.rules.lengths:
                length = self.rules.lengths[field.name]
                values[:] = [
                    fitted(each, length) if isinstance(each, str) else each for each in values
                ]
            if not field.nullable and None in values:
                raise NotNullViolation(field.name, self.name)
        return GivenRows(self.schema, columns, count)

    def default(self, name: str, count: int) -> Any:
        """Return the column of ``count`` rows that leave it out."""
        field, default = self.schema.field(name), self.rules.defaults.get(name)
        if isinstance(default, Calculated):
            return pa.chunked_array(
                [pa.array(self.calculations.column(default, field, count), field.type)]
            )
        return _repeated(default, field.type, count)


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """What a statement wants written, and how it answers."""

    table: TableWrite
    command: str
    count: int | None
    """How many rows it is about; None: as many as were written in the end."""
    returning: tuple[Returned, ...] | None = None
    returned: pa.Table | None = None
    """The rows of RETURNING; None: those that were written in the end."""

    def result(self, written: pa.Table | None = None) -> Result:
        """Answer, ``written`` being what was committed, where that was known only then."""
        count = self.count
        if count is None:
            count = self.table.num_rows if written is None else written.num_rows
        tag = f"INSERT 0 {count}" if self.command == "INSERT" else f"{self.command} {count}"
        if self.returning is None:
            return Result(tag)
        rows = self.returned
        if rows is None:
            rows = self.table.rows if written is None else written
        return Result.of_table(_returned(rows, self.returning), tag)


def given_rows(statement: Insert, target: Target) -> GivenRows:
    """Return the rows of VALUES, as the table stores them."""
    defaults = target.rules.defaults
    insert = calculated(statement, target.schema, defaults, target.calculations)
    columns = stored_columns(insert, target.schema, defaults)
    return target.given(columns, len(insert.rows))


def selected_rows(statement: Insert, target: Target, selected: pa.Table) -> pa.Table:
    """Return the rows that the query of an INSERT has selected, as the table stores them."""
    named = statement.columns
    if named is None:
        if selected.num_columns > len(target.schema.names):
            raise WrongRowWidth(selected.num_columns, len(target.schema.names))
        named = tuple(target.schema.names[: selected.num_columns])
    check_columns(target.name, named, target.schema)
    if selected.num_columns != len(named):
        raise WrongRowWidth(selected.num_columns, len(named))
    columns = []
    for field in target.schema:
        if field.name in named:
            place = named.index(field.name)
            form = form_of(selected.schema.field(place))
            column = assign_column(selected.column(place), field, form)
        else:
            column = target.default(field.name, selected.num_rows)
        columns.append(column)
    return target.stored(columns)


def insert(statement: Insert, target: Target, rows: pa.Table | GivenRows) -> Planned:
    """Plan an INSERT whose conflicts, if it may have any, are left out."""
    skip = statement.on_conflict is not None and bool(target.key)
    if statement.on_conflict is not None:
        check_conflict_key(statement.on_conflict, target)
    write = TableWrite(
        target.id, target.name, target.key, rows, [1] * rows.num_rows, skip_existing=skip
    )
    count = None if skip else rows.num_rows
    return Planned(write, "INSERT", count, statement.returning)


def upsert(
    statement: Insert,
    target: Target,
    rows: pa.Table,
    existing: pa.Table,
    computed: pa.Table | None,
) -> Planned:
    """Plan an INSERT that updates the rows it conflicts with: ``existing``, by probe index.

    ``computed``: the values of expressions for those rows, by their places (``sql/dml.py``).
    """
    assert statement.on_conflict is not None
    check_conflict_key(statement.on_conflict, target)
    keys = keys_of(rows, target.key)
    if len(set(keys)) != len(keys):
        raise AffectedTwice
    places = existing.column(PROBE_INDEX)
    old = existing.select(target.schema.names).cast(target.schema)
    excluded = rows.take(places)
    if computed is not None:
        order = pc.index_in(places.combine_chunks(), computed.column(PLACE).combine_chunks())
        computed = computed.take(order)
    new = _assigned_rows(statement.on_conflict.assignments, target, old, excluded, computed)
    fresh = rows.take(
        pc.indices_nonzero(
            pc.invert(pc.is_in(pa.array(range(len(keys)), pa.int64()), places.combine_chunks()))
        )
    )
    written = pa.concat_tables([old, new, fresh])
    diffs = [-1] * old.num_rows + [1] * (new.num_rows + fresh.num_rows)
    write = TableWrite(target.id, target.name, target.key, written, diffs)
    returned = pa.concat_tables([new, fresh])
    return Planned(write, "INSERT", rows.num_rows, statement.returning, returned)


def update(statement: Update, target: Target, matched: pa.Table) -> Planned:
    """Plan an UPDATE of the rows matched, beside which stand the values computed for them."""
    old = matched.select(target.schema.names).cast(target.schema)
    new = _assigned_rows(statement.assignments, target, old, None, matched)
    write = TableWrite(
        target.id,
        target.name,
        target.key,
        pa.concat_tables([old, new]),
        [-1] * old.num_rows + [1] * new.num_rows,
    )
    return Planned(write, "UPDATE", old.num_rows, statement.returning, new)


def delete(statement: Delete, target: Target, matched: pa.Table) -> Planned:
    """Plan a DELETE of the rows matched."""
    old = matched.select(target.schema.names).cast(target.schema)
    write = TableWrite(target.id, target.name, target.key, old, [-1] * old.num_rows)
    return Planned(write, "DELETE", old.num_rows, statement.returning, old)


def check_returning(returning: Sequence[Returned] | None, target: Target) -> None:
    """Refuse what cannot be returned, before anything is written."""
    for each in returning or ():
        if each.column not in ("*", *target.schema.names):
            raise UnknownColumn(each.column, target.name, target.schema.names)


def check_conflict_key(on_conflict: OnConflict, target: Target) -> None:
    """Refuse a conflict target that is not the primary key."""
    if on_conflict.key and set(on_conflict.key) != set(target.key):
        raise NoSuchConstraint
    if on_conflict.assignments and not on_conflict.key:
        raise NoSuchConstraint
    check_columns(target.name, [each.column for each in on_conflict.assignments], target.schema)


def _assigned_rows(
    assignments: Sequence[Assignment],
    target: Target,
    old: pa.Table,
    excluded: pa.Table | None,
    matched: pa.Table | None,
) -> pa.Table:
    check_columns(target.name, [each.column for each in assignments], target.schema)
    columns: dict[str, Any] = {name: old.column(name) for name in target.schema.names}
    for number, each in enumerate(assignments):
        field = target.schema.field(each.column)
        match each.value:
            case Constant(value):
                stored = assign(value, field.type, form_of(field))
                new = _repeated(stored, field.type, old.num_rows)
            case Excluded(column):
                if column not in target.schema.names:
                    raise UnknownColumn(column, "excluded")
                assert excluded is not None, "the parser knows excluded in ON CONFLICT alone"
                form = form_of(target.schema.field(column))
                new = assign_column(excluded.column(column), field, form)
            case Computed(sql):
                assert matched is not None, f"{sql} was evaluated"
                name = NEW.format(number)
                form = form_of(matched.schema.field(name))
                new = assign_column(matched.column(name), field, form)
            case _:
                new = target.default(each.column, old.num_rows)
        columns[each.column] = new
    return target.stored([columns[name] for name in target.schema.names])


def _repeated(value: Value, type_: pa.DataType, count: int) -> Any:
    return pa.chunked_array([pa.array([value] * count, type_)])


def _returned(rows: pa.Table, returning: Sequence[Returned]) -> pa.Table:
    arrays, fields = [], []
    for each in returning:
        for column in rows.schema.names if each.column == "*" else [each.column]:
            arrays.append(rows.column(column))
            name = column if each.column == "*" else each.name
            fields.append(rows.schema.field(column).with_name(name).with_nullable(True))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
