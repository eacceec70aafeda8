"""The columns of a resource, as a driver for tables sees them: what a binding's fields become.

A field's type is what the protocol says of it (``projections``), in one of thirteen kinds. A driver
has a native type for each, and says which existing types can hold it. A text column can hold UUIDs
and JSON everywhere: so they were delivered once, and so some want them.

What a binding demands of a table that is there already (:func:`constraints`):

- a key column must be of the table's primary key, which has no others, unless the binding is in
  delta mode, where there is none;
- an existing column must be able to hold its field, or it is *incompatible*: another table, or a
  backfill into a new one, would do;
- a column that must not be NULL and has no default is *required*, also if the collection lacks it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headwater.materialize.protocol.specs import (
    BindingSpec,
    CollectionSpec,
    Constraint,
    ConstraintType,
    Inference,
    Projection,
)


class Kind(enum.Enum):
    """What a column holds."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    DOUBLE = "double"
    DECIMAL = "decimal"
    WHOLE = "integer of any size"
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    LOCAL_TIMESTAMP = "timestamp without time zone"
    JSON = "json"
    UUID = "uuid"


_BY_FORMAT: Mapping[str, Kind] = {
    "number": Kind.DECIMAL,
    "integer": Kind.WHOLE,
    "date": Kind.DATE,
    "time": Kind.TIME,
    "date-time": Kind.TIMESTAMP,
    "local-date-time": Kind.LOCAL_TIMESTAMP,
    "uuid": Kind.UUID,
}


_ALL_NINES: Final = re.compile(r"(?:0|(9+))(?:\.(9+))?")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a binding. Only keys are NOT NULL: a value may become NULL some day."""

    name: str
    kind: Kind
    key: bool
    digits: tuple[int, int] | None = None
    """Of a decimal: how many it has at most, and how many of them behind the point."""


@dataclass(frozen=True, slots=True)
class Existing:
    """A column of a table that is there."""

    native: str
    """The endpoint's name of its type."""
    primary_key: bool
    required: bool
    """Whether it must be given a value."""


def kind_of(inference: Inference | None) -> Kind | None:
    """Return what a field holds; ``None`` if it can only be NULL."""
    types = {*(inference.types if inference else ())} - {"null"}
    if not types:
        return None
    if types == {"boolean"}:
        return Kind.BOOLEAN
    if types == {"integer"}:
        return Kind.INTEGER
    if types <= {"integer", "number"}:
        return Kind.DOUBLE
    if types == {"string"} and inference is not None:
        string = inference.string
        if string is not None and string.content_encoding == "base64":
            return Kind.BYTES
        return _BY_FORMAT.get(string.format if string else "", Kind.TEXT)
    return Kind.JSON


def columns_of(binding: BindingSpec) -> tuple[Column, ...]:
    """Return the columns of a binding: keys in their order, then values."""
    assert binding.collection is not None
    assert binding.field_selection is not None
    by_field = {p.field: p for p in binding.collection.projections}
    keys, values = binding.field_selection.keys, binding.field_selection.values
    columns = (column_of(by_field[field]) for field in (*keys, *values))
    return tuple(replace(column, key=column.name in keys) for column in columns)


def column_of(projection: Projection) -> Column:
    """Return the column of a field."""
    kind = kind_of(projection.inference)
    digits = _digits(projection.inference)
    return Column(projection.field, kind or Kind.TEXT, projection.is_primary_key, digits)


def _digits(inference: Inference | None) -> tuple[int, int] | None:
    """Return the digits of a decimal whose greatest value is all nines."""
    greatest = inference.string.str_maximum if inference and inference.string else ""
    found = _ALL_NINES.fullmatch(greatest)
    if found is None:
        return None
    whole, fraction = (len(part or "") for part in found.groups())
    return whole + fraction, fraction


Holds = Callable[[str, Kind], bool]
"""Whether an existing column of a native type can hold a kind."""


def constraints(
    collection: CollectionSpec, existing: Mapping[str, Existing], holds: Holds, *, delta: bool
) -> Iterator[tuple[str, Constraint]]:
    """Yield what a table demands of a collection's fields; ``existing`` is empty if it is new."""
    keys = tuple(pointer.removeprefix("/") for pointer in collection.key)
    for projection in collection.projections:
        yield projection.field, _constraint(projection, existing, holds, keys, delta=delta)
    fields = {projection.field for projection in collection.projections}
    for name, column in existing.items():
        if column.required and name not in fields:
            yield (
                name,
                Constraint(
                    ConstraintType.FIELD_REQUIRED,
                    "the table has it, NOT NULL and without a default",
                ),
            )


def _constraint(
    projection: Projection,
    existing: Mapping[str, Existing],
    holds: Holds,
    keys: Sequence[str],
    *,
    delta: bool,
) -> Constraint:
    kind = kind_of(projection.inference)
    if kind is None:
        return Constraint(ConstraintType.FIELD_FORBIDDEN, "it can only be NULL")
    if projection.is_primary_key and kind is Kind.JSON:
        return Constraint(
            ConstraintType.FIELD_FORBIDDEN, "an array or object cannot be part of a key"
        )
    column = existing.get(projection.field)
    if column is not None and not holds(column.native, kind):
        return Constraint(
            ConstraintType.INCOMPATIBLE, f"the table's column is {column.native}, not {kind.value}"
        )
    if not projection.is_primary_key:
        if column is not None and column.primary_key and not delta:
            return Constraint(ConstraintType.INCOMPATIBLE, "it is in the table's primary key")
        return Constraint(ConstraintType.FIELD_OPTIONAL, f"can be stored{_as(column)}")
    primary = {name for name, found in existing.items() if found.primary_key}
    if existing and not delta and primary != set(keys):
        shown = f"({', '.join(sorted(primary))})" if primary else "missing"
        return Constraint(ConstraintType.INCOMPATIBLE, f"the table's primary key is {shown}")
    if delta and column is not None and column.primary_key:
        return Constraint(
            ConstraintType.INCOMPATIBLE,
            "the table has a primary key, and delta updates store a key many times",
        )
    return Constraint(ConstraintType.LOCATION_REQUIRED, f"is part of the key{_as(column)}")


def _as(column: Existing | None) -> str:
    return f", as {column.native}" if column is not None and column.native else ""


def json_fields(columns: Iterable[Column]) -> frozenset[str]:
    """Return the columns that are JSON."""
    return frozenset(column.name for column in columns if column.kind is Kind.JSON)
