"""A system view: its columns, what they mean, and how its rows come about.

Relied on by: the reference page, which is written from these values, and whoever answers queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from headwater.adapter.system.seen import Seen

Type = Literal["text", "bigint", "integer", "boolean", "timestamptz"]

ARROW: Final[dict[Type, pa.DataType]] = {
    "text": pa.string(),
    "bigint": pa.int64(),
    "integer": pa.int32(),
    "boolean": pa.bool_(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    type: Type
    about: str
    """What it says: the middle of a sentence, for the reference."""


@dataclass(frozen=True, slots=True)
class SystemView:
    """One relation of the system's."""

    name: str
    about: str
    columns: tuple[Column, ...]
    rows: Callable[[Seen], Iterable[Row]]

    @property
    def schema(self) -> pa.Schema:
        """The columns, as Arrow has them."""
        return pa.schema([pa.field(column.name, ARROW[column.type]) for column in self.columns])

    def table(self, seen: Seen) -> pa.Table:
        """Return its rows."""
        rows = list(self.rows(seen))
        arrays = [
            pa.array([row[place] for row in rows], field.type)
            for place, field in enumerate(self.schema)
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)


OBJECT: Final = (
    Column("object_id", "text", "id of the object; never reused"),
    Column("name", "text", "its name now, with its schema unless that is `public`"),
    Column("kind", "text", "`table`, `view`, `materialized view`, …"),
)
"""How every view about objects begins."""
