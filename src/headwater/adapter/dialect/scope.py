"""Names: which relations a query sees, and what a column reference means in it.

Every relation of the written text gets an alias of its own, unique in the whole query, and every
column is written with it; so Spark, whose rules of scoping and of upper case differ, has nothing
left to decide. A column has the name the client knows and the name it has in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from headwater.adapter.dialect.literals import identifier
from headwater.adapter.dialect.refusal import (
    AmbiguousColumn,
    UndefinedColumn,
    UndefinedTable,
    position,
    refuse,
)
from headwater.adapter.dialect.typed import Typed
from headwater.adapter.sql.query import folded
from headwater.collection.types import NUMERIC_BARE, SqlType


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation in scope."""

    name: str
    written: str
    """Its name in the text of the query."""
    type: SqlType
    scale_shown: bool = True

    @classmethod
    def stored(cls, name: str, type_: SqlType) -> Column:
        """A column of a relation of ours; a bare numeric shows as many digits as it likes."""
        return cls(name, name, type_, type_.args != NUMERIC_BARE)


@dataclass(frozen=True, slots=True)
class Source:
    """A relation in a FROM clause."""

    name: str
    alias: str
    columns: tuple[Column, ...]
    schema: str | None = None
    """That of a relation of ours that has no alias, where it is written."""

    def is_meant(self, name: str, schema: str | None) -> bool:
        """Whether ``[schema.]name`` can mean it."""
        return name == self.name and (None in (schema, self.schema) or schema == self.schema)

    def reference(self, node: Any, column: Column) -> Typed:
        """``alias.column``."""
        sql = f"{identifier(self.alias)}.{identifier(column.written)}"
        return Typed(sql, column.type, node, scale_shown=column.scale_shown)


@dataclass
class Aliases:
    """The aliases of one finished text; none is given twice, in whatever case."""

    taken: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    """Up to where the numbers behind a name are taken."""

    def fresh(self, name: str) -> str:
        """``name``, or the next free one after it."""
        candidate, count = name, self.counts.get(name.lower(), 1)
        while candidate.lower() in self.taken:
            count += 1
            candidate = f"{name}_{count}"
        self.counts[name.lower()] = count
        self.taken.add(candidate.lower())
        return candidate


@dataclass(frozen=True, slots=True)
class Common:
    """A query of a WITH clause."""

    alias: str
    columns: tuple[Column, ...]


@dataclass
class Scope:
    """What a SELECT sees: its sources, what USING merged, and whatever its surroundings see."""

    outer: Scope | None
    commons: Mapping[str, Common]
    sources: list[Source] = field(default_factory=list)
    merged: dict[str, Typed] = field(default_factory=dict)
    hidden: set[tuple[str, str]] = field(default_factory=set)
    """(alias, column) that a merged column stands for."""
    windows: dict[str, Any] = field(default_factory=dict)
    absent: frozenset[str] | None = None
    """While it is translated over no rows (``totals.py``): the keys of its groups, as texts."""

    def add(self, node: Any, source: Source) -> None:
        """Bring a relation into scope."""
        if any(source.is_meant(other.name, other.schema) for other in self.sources):
            refuse(node, f'table name "{source.name}" specified more than once')
        self.sources.append(source)

    def column(self, node: Any) -> Typed:
        """A column reference."""
        name = folded(node.this)
        qualifier = node.args.get("table")
        scope: Scope | None = self
        while scope is not None:
            found = scope._own(node, name, None if qualifier is None else folded(qualifier))
            if found is not None:
                return found
            scope = scope.outer
        shown = name if qualifier is None else f"{folded(qualifier)}.{name}"
        if qualifier is not None and not self._knows(folded(qualifier)):
            raise UndefinedTable(
                f'missing FROM-clause entry for table "{folded(qualifier)}"',
                position=position(node),
            )
        quoted = shown if qualifier is not None else f'"{shown}"'
        near = get_close_matches(name, self._names(qualifier), n=1)
        raise UndefinedColumn(
            f"column {quoted} does not exist",
            hint=f'Perhaps you meant "{near[0]}".' if near else None,
            position=position(node),
        )

    def _names(self, qualifier: Any) -> list[str]:
        """The columns that a name could have meant."""
        wanted = None if qualifier is None else folded(qualifier)
        found: dict[str, None] = {}
        scope: Scope | None = self
        while scope is not None:
            for source in scope.sources:
                if wanted in (None, source.name):
                    found.update((column.name, None) for column in source.columns)
            scope = scope.outer
        return list(found)

    def _own(self, node: Any, name: str, qualifier: str | None) -> Typed | None:
        if qualifier is None and name in self.merged:
            return self.merged[name]
        found = [
            (source, column)
            for source in self.sources
            if qualifier is None or source.is_meant(qualifier, _schema(node))
            for column in source.columns
            if column.name == name
        ]
        if not found:
            return None
        if len(found) > 1:
            meant = dict.fromkeys(f'"{source.name}"."{name}"' for source, _ in found)
            raise AmbiguousColumn(
                f'column reference "{name}" is ambiguous',
                hint=f"Write {' or '.join(meant)}." if len(meant) > 1 else None,
                position=position(node),
            )
        source, column = found[0]
        return source.reference(node, column)

    def _knows(self, qualifier: str) -> bool:
        scope: Scope | None = self
        while scope is not None:
            if any(source.name == qualifier for source in scope.sources):
                return True
            scope = scope.outer
        return False

    def everything(self, node: Any) -> list[tuple[str, Typed]]:
        """``*``: merged columns first, then each relation's own."""
        found = [(name, merged) for name, merged in self.merged.items()]
        for source in self.sources:
            found += [
                (column.name, source.reference(node, column))
                for column in source.columns
                if (source.alias, column.name) not in self.hidden
            ]
        return found

    def all_of(self, node: Any, qualifier: str) -> list[tuple[str, Typed]]:
        """``t.*``."""
        meant = [each for each in self.sources if each.is_meant(qualifier, _schema(node))]
        if len(meant) > 1:
            raise AmbiguousColumn(
                f'table reference "{qualifier}" is ambiguous', position=position(node)
            )
        if meant:
            return [(c.name, meant[0].reference(node, c)) for c in meant[0].columns]
        raise UndefinedTable(
            f'missing FROM-clause entry for table "{qualifier}"', position=position(node)
        )


def _schema(node: Any) -> str | None:
    """The schema that a reference to a column is written with."""
    schema = node.args.get("db")
    return None if schema is None else folded(schema)
