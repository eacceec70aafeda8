"""Expressions that stand where a value does, evaluated by PostgreSQL itself: the shadow.

``INSERT … VALUES (now(), 2 * 3)`` and ``DEFAULT gen_random_uuid()`` read no relation, so that
their meaning needs no Spark and no translation: the shadow is asked, as the role that may read
nothing and write nothing, once for all expressions of a statement. What it answers is stored by
the same assignment casts as a literal (``sql/values.py``).

Invariant: an expression that is *steady* has one value in one statement, however many rows have
it; any other has one for each row.

Relied on by: the coordinator, for INSERT; ``adapter/writes.py`` and ``adapter/copy_in.py``, for
defaults; sessions, which have a default calculated once before a table is made with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

import pyarrow as pa

from headwater.adapter.catalog_queries import CatalogQueries
from headwater.adapter.errors import TypeMismatch, Unsupported
from headwater.adapter.shadow.errors import AnswerTooLarge, PostgresRejected
from headwater.adapter.sql import text, types
from headwater.adapter.sql.forms import form_of, name_of
from headwater.adapter.sql.statements import (
    Calculated,
    CreateTable,
    Insert,
    Keyword,
    Value,
    Written,
)
from headwater.adapter.sql.values import assign

ROWS_AT_ONCE: Final = 20_000
"""How many rows of a default the shadow is asked for at once: its answers are bounded."""

_INTEGERS: Final = {types.INT2.oid, types.INT4.oid, types.INT8.oid}
_FLOATS: Final = {types.FLOAT4.oid, types.FLOAT8.oid}
_FORMS: Final = {2950: "uuid", 3802: "jsonb", 114: "jsonb"}
_TEXTS: Final = {types.TEXT.oid, 19, 1042, 1043}  # And name, char(n), varchar.


class Calculations:
    """The calculations of one server; without a shadow they are refused."""

    def __init__(self, queries: CatalogQueries | None) -> None:
        self._queries = queries

    def values(self, wanted: Sequence[tuple[Calculated, pa.Field]]) -> list[Value]:
        """Return what these columns store for these expressions, in their order."""
        places: dict[object, int] = {}
        asked: list[Calculated] = []
        found: list[int] = []
        for number, (each, _) in enumerate(wanted):
            place = places.setdefault(each.sql if each.is_steady else number, len(asked))
            if place == len(asked):
                asked.append(each)
            found.append(place)
        if not asked:
            return []
        # One question, as there is one ``now()``.
        told = self._ask(f"VALUES {', '.join(f'({_told(each)})' for each in asked)}")
        return [
            _stored(*told[place], field) for place, (_, field) in zip(found, wanted, strict=True)
        ]

    def column(self, wanted: Calculated, field: pa.Field, count: int) -> list[Value]:
        """Return what ``count`` rows store for an expression."""
        if wanted.is_steady:
            return self.values([(wanted, field)]) * count
        found: list[Value] = []
        while len(found) < count:
            rows = min(ROWS_AT_ONCE, count - len(found))
            query = f"SELECT {_told(wanted)} FROM generate_series(1, {rows})"  # noqa: S608 - parsed
            found += [_stored(*told, field) for told in self._ask(query)]
        return found

    def check(self, table: CreateTable) -> None:
        """Refuse a default that cannot be calculated, or not stored in its column."""
        self.values(
            [
                (column.default, field)
                for column, field in zip(table.columns, table.schema, strict=True)
                if isinstance(column.default, Calculated)
            ]
        )

    def _ask(self, query: str) -> list[tuple[str | None, int]]:
        if self._queries is None:
            raise Unsupported(
                "an expression where a value stands",
                detail="PostgreSQL would calculate it, and there is none beside this session.",
                hint="Write INSERT … SELECT: that is computed by Spark.",
            )
        try:
            return [(value, int(oid or 0)) for value, oid in self._queries.rows(query)]
        except AnswerTooLarge:
            raise Unsupported(
                "so many expressions where values stand", hint="Write several statements, or COPY."
            ) from None
        except PostgresRejected as said:
            # Its position counts in a text that nobody wrote.
            raise PostgresRejected(
                said.primary, said.sqlstate, detail=said.detail, hint=said.hint
            ) from None


def _told(each: Calculated) -> str:
    return f"({each.sql})::text, pg_typeof({each.sql})::oid::text"


def _stored(told: str | None, oid: int, field: pa.Field) -> Value:
    if told is None:
        return None
    form = form_of(field)
    read_as = _FORMS.get(oid)
    is_text = pa.types.is_string(field.type) and form is None
    if (oid in _TEXTS and not is_text) or (form is not None and read_as not in (None, form)):
        # A calculated text has a type, unlike a literal: there is no assignment cast from it.
        raise TypeMismatch(name_of(field), read_as or "text")
    return assign(_read(told, oid), field.type, form)


def _read(told: str, oid: int) -> Value:
    if oid in _INTEGERS:
        return int(told)
    if oid in _FLOATS:
        return float(told)
    if oid == types.NUMERIC.oid:
        return Decimal(told)
    known = types.arrow_of_oid(oid)
    return told if known is None else text.from_text(told, known)


def calculated(
    insert: Insert,
    schema: pa.Schema,
    defaults: Mapping[str, Value | Calculated],
    calculations: Calculations,
) -> Insert:
    """Return an INSERT of VALUES with nothing left to calculate, defaults included."""
    rows = _with_defaults(insert, schema, defaults)
    columns = _named(rows, schema)
    wanted = [
        (value, schema.field(name))
        for row in rows.rows
        for name, value in zip(columns, row, strict=False)
        if isinstance(value, Calculated) and name in schema.names
    ]
    if not wanted:
        return insert
    values = iter(calculations.values(wanted))
    filled = tuple(
        tuple(
            next(values) if isinstance(value, Calculated) and name in schema.names else value
            for name, value in zip(columns, row, strict=False)
        )
        + row[len(columns) :]
        for row in rows.rows
    )
    return replace(rows, rows=filled)


def _with_defaults(
    insert: Insert, schema: pa.Schema, defaults: Mapping[str, Value | Calculated]
) -> Insert:
    """The same with every default that is calculated written out."""
    calculable = {name: each for name, each in defaults.items() if isinstance(each, Calculated)}
    if not calculable:
        return insert
    named = _named(insert, schema)
    left_out = tuple(name for name in calculable if name not in named)

    def complete(row: tuple[Written, ...]) -> tuple[Written, ...]:
        if len(row) != len(named):
            return row  # Of a wrong width: refused where rows are counted.
        given = (
            calculable.get(name, value) if isinstance(value, Keyword) else value
            for name, value in zip(named, row, strict=True)
        )
        return (*given, *(calculable[name] for name in left_out))

    return replace(insert, columns=named + left_out, rows=tuple(map(complete, insert.rows)))


def _named(insert: Insert, schema: pa.Schema) -> tuple[str, ...]:
    if insert.columns is not None:
        return insert.columns
    # As in PostgreSQL, a shorter row fills the first columns.
    return tuple(schema.names[: max((len(row) for row in insert.rows), default=0)])
