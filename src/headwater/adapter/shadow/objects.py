"""What the shadow shows: the objects of our catalog as PostgreSQL would list them.

Values only. A type is PostgreSQL's own text for it (``numeric(12,2)``); a definition is the query
in PostgreSQL's dialect, or None where the client wrote another one: then the relation is shown
with its columns alone. Two equal objects are mirrored alike, and :func:`digest` says when two
differ. Nothing secret has a place in them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import msgspec
import pyarrow as pa

from headwater.collection.schema import type_of
from headwater.collection.types import NUMERIC_BARE

RelationKind = Literal["table", "view", "materialized view"]


@dataclass(frozen=True, slots=True)
class Schema:
    """A namespace."""

    name: str
    comment: str | None = None

    @property
    def key(self) -> str:
        """What it is known by, among everything mirrored."""
        return f"schema {self.name}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation."""

    name: str
    type: str
    not_null: bool = False
    comment: str | None = None
    default: str | None = None
    """An expression of PostgreSQL's."""

    @classmethod
    def stored(
        cls,
        field: pa.Field,
        comment: str | None = None,
        default: str | None = None,
        length_max: int | None = None,
    ) -> Column:
        """A column as we store it.

        A bare numeric is shown as one; a struct, which is no type of a column there, as jsonb.

        >>> Column.stored(pa.field("price", pa.decimal128(12, 2), nullable=False))
        Column(name='price', type='numeric(12,2)', not_null=True, comment=None, default=None)
        """
        type_ = type_of(field)
        name = "numeric" if type_.args == NUMERIC_BARE else type_.postgres
        if "record" in name:
            name = "jsonb"
        if length_max is not None:
            name = f"varchar({length_max})"
        return cls(field.name, name, not field.nullable, comment, default)


@dataclass(frozen=True, slots=True)
class Index:
    """An index that we keep; PostgreSQL has none on a plain view, and there it is not shown."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A table (a source is one, too), a view, or a materialized view, with its keys."""

    schema: str
    name: str
    kind: RelationKind
    columns: tuple[Column, ...]
    definition: str | None = None
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[Index, ...] = ()
    comment: str | None = None

    @property
    def key(self) -> str:
        """What it is known by, among everything mirrored."""
        return f"relation {self.schema}.{self.name}"


Mirrored = Schema | Relation


def digest(what: Mirrored) -> str:
    """Equal for equal objects, and for no others."""
    return hashlib.sha256(msgspec.json.encode(what)).hexdigest()
