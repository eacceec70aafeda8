"""FROM: relations, queries, VALUES, functions that return rows, and how they are joined.

``USING`` and ``NATURAL`` are written as conditions, and their merged columns as expressions: which
side a merged column comes from depends on the join, and nothing of it is left to Spark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Protocol

from sqlglot import exp

from headwater.adapter.dialect.casts import coerce
from headwater.adapter.dialect.expressions import Expressions, Queries
from headwater.adapter.dialect.literals import DAY_MICROS, Interval, identifier, string
from headwater.adapter.dialect.operators import compare
from headwater.adapter.dialect.refusal import (
    IN_SPARK,
    UndefinedColumn,
    only,
    position,
    refuse,
)
from headwater.adapter.dialect.scope import Column, Scope, Source
from headwater.adapter.dialect.signatures import no_function
from headwater.adapter.dialect.typed import BIGINT, INTEGER, INTERVAL, Typed, common
from headwater.adapter.errors import UnknownRelation
from headwater.adapter.sql.names import written
from headwater.adapter.sql.query import folded
from headwater.collection.types import SqlType

SERIES_MAX: Final = 1_000_000
"""Rows of a series that depends on another row; it is built as one array."""


class Relations(Queries, Protocol):
    """Queries, and the relations of ours that they may read."""

    def stored(self, name: str) -> dict[str, SqlType] | None:
        """The columns of a relation of ours."""
        ...

    def values(self, node: Any, scope: Scope) -> tuple[str, tuple[Column, ...]]:
        """``VALUES`` as a query."""
        ...


class FromClause:
    """Translates one FROM clause into ``scope``."""

    def __init__(self, relations: Relations, expressions: Expressions, scope: Scope) -> None:
        self._relations = relations
        self._expressions = expressions
        self._scope = scope
        self._comma = False

    def translate(self, first: Any, joins: list[Any]) -> str:
        """The text after the word FROM."""
        text, source = self._item(first)
        self._scope.add(first, source)
        for join in joins:
            text += self._join(join)
        return text

    # --- joins ------------------------------------------------------------------------------------

    def _join(self, join: Any) -> str:
        only(join, "this", "side", "kind", "on", "using", "method")
        side = str(join.args.get("side") or "").upper()
        kind = str(join.args.get("kind") or "").upper()
        method = str(join.args.get("method") or "").upper()
        on, using = join.args.get("on"), join.args.get("using")
        if kind not in ("", "INNER", "OUTER", "CROSS") or method not in ("", "NATURAL"):
            refuse(join, f"{method} {kind} join".strip())
        conditional = on is not None or using or method
        if not conditional and kind != "CROSS":
            self._comma = True
            if side:
                refuse(join, "an outer join without a condition")
        if self._comma and side in ("RIGHT", "FULL"):
            # A comma binds weaker than JOIN: a, b RIGHT JOIN c is a, (b RIGHT JOIN c).
            refuse(join, f"{side} JOIN after a comma", "Write CROSS JOIN or use brackets.")
        lateral = isinstance(join.this, exp.Lateral) or _is_call(join.this)
        if lateral and side in ("RIGHT", "FULL"):
            refuse(join, f"{side} JOIN LATERAL")
        text, source = self._item(join.this)
        if not conditional:
            self._scope.add(join, source)
            return f" CROSS JOIN {text}"
        if on is not None:
            self._scope.add(join, source)
            condition = self._expressions.condition(on, self._scope)
        else:
            names = self._natural(source) if method else [folded(name) for name in using]
            if not names:
                refuse(join, "NATURAL JOIN of relations without a common column")
            condition = self._merge(join, side, source, names)
        return f" {f'{side} ' if side else ''}JOIN {text} ON {condition}"

    def _natural(self, source: Source) -> list[str]:
        known = [name for name, _ in self._scope.everything(None)]
        return [column.name for column in source.columns if column.name in known]

    def _merge(self, join: Any, side: str, source: Source, names: list[str]) -> str:
        """Join on equality of ``names`` and merge them; each is one column from now on."""
        conditions = []
        merged: dict[str, Typed] = {}
        for name in names:
            left = self._scope.column(exp.Column(this=exp.to_identifier(name, quoted=True)))
            found = [column for column in source.columns if column.name == name]
            if len(found) != 1:
                raise UndefinedColumn(
                    f'column "{name}" specified in USING clause does not exist in right table',
                    position=position(join),
                )
            right = source.reference(join, found[0])
            conditions.append(compare(join, "=", left, right).sql)
            type_ = common(join, [left, right])
            left, right = coerce(left, type_), coerce(right, type_)
            chosen = right if side == "RIGHT" else left
            sql = f"coalesce({left.sql}, {right.sql})" if side == "FULL" else chosen.sql
            merged[name] = Typed(sql, type_, join, scale_shown=chosen.scale_shown)
            for other in (*self._scope.sources, source):
                self._scope.hidden.add((other.alias, name))
        self._scope.add(join, source)
        self._scope.merged = {
            **merged,
            **{n: t for n, t in self._scope.merged.items() if n not in merged},
        }
        return " AND ".join(conditions)

    # --- items ------------------------------------------------------------------------------------

    def _item(self, node: Any) -> tuple[str, Source]:
        match node:
            case exp.Subquery():
                only(node, "this", "alias")
                if not isinstance(node.this, exp.Query | exp.Values):
                    refuse(node, "a join in brackets", "Write the joins one after another.")
                return self._query(node, node.this, "", lateral=False)
            case exp.Lateral():
                only(node, "this", "alias", "view", "outer")
                if not isinstance(node.this, exp.Subquery):
                    refuse(node, "LATERAL of what is no query")
                return self._query(node, node.this.this, "LATERAL ", lateral=True)
            case exp.Values():
                return self._query(node, node, "", lateral=False)
            case exp.Unnest():
                only(node, "expressions", "alias")
                return self._unnest(node)
            case _:
                return self._table(node)

    def _table(self, node: Any) -> tuple[str, Source]:
        only(node, "this", "db", "catalog", "alias")
        if isinstance(node.this, exp.Anonymous):
            return self._series(node)
        if not isinstance(node.this, exp.Identifier):
            refuse(node, "this function in FROM", IN_SPARK)
        parts = [folded(part) for part in node.parts]
        common_query = self._scope.commons.get(parts[0]) if len(parts) == 1 else None
        if common_query is not None:
            name, columns = common_query.alias, common_query.columns
        else:
            name = written(parts)
            stored = self._relations.stored(name)
            if stored is None:
                raise UnknownRelation(".".join(parts))
            columns = tuple(Column.stored(name, type_) for name, type_ in stored.items())
        text, source = self._named(node, identifier(name), parts[-1], columns)
        if len(parts) > 1 and node.args.get("alias") is None:
            source = replace(source, schema=parts[-2])
        return text, source

    def _query(self, node: Any, query: Any, prefix: str, *, lateral: bool) -> tuple[str, Source]:
        outer = self._scope if lateral else Scope(self._scope.outer, self._scope.commons)
        if isinstance(query, exp.Values):
            text, columns = self._relations.values(query, outer)
        else:
            text, columns = self._relations.nested(query, outer)
        return self._named(node, f"{prefix}({text})", "unnamed", columns)

    def _named(
        self, node: Any, text: str, name: str, columns: tuple[Column, ...]
    ) -> tuple[str, Source]:
        alias = node.args.get("alias")
        if alias is not None:
            only(alias, "this", "columns")
            name = folded(alias.this) if alias.this is not None else name
            renamed = [folded(column) for column in alias.args.get("columns") or []]
            if len(renamed) > len(columns):
                refuse(node, f'{len(renamed)} column aliases for "{name}"')
            columns = tuple(
                Column(new, column.written, column.type, column.scale_shown)
                for new, column in zip(renamed, columns, strict=False)
            ) + tuple(columns[len(renamed) :])
        source = Source(name, self._relations.aliases.fresh(name), columns)
        return f"{text} AS {identifier(source.alias)}", source

    # --- functions --------------------------------------------------------------------------------

    def _unnest(self, node: Any) -> tuple[str, Source]:
        if len(node.expressions) != 1:
            refuse(node, "unnest of several arrays")
        values = self._expressions.translate(node.expressions[0], self._scope)
        if values.type.name != "array":
            raise no_function(node, "unnest", [values])
        return self._exploded(node, "unnest", values.sql, values.type.parts[0][1])

    def _exploded(self, node: Any, name: str, sql: str, type_: SqlType) -> tuple[str, Source]:
        alias = node.args.get("alias")
        columns = [] if alias is None else [folded(c) for c in alias.args.get("columns") or []]
        called = name if alias is None or alias.this is None else folded(alias.this)
        column = columns[0] if columns else called
        if len(columns) > 1:
            refuse(node, f"several columns of {name}")
        source = Source(
            called,
            self._relations.aliases.fresh(called),
            (Column(column, column, type_, scale_shown=False),),
        )
        lateral = "LATERAL " if self._scope.sources else ""
        text = f"{lateral}explode({sql}) AS {identifier(source.alias)}({identifier(column)})"
        return text, source

    def _series(self, node: Any) -> tuple[str, Source]:
        name = str(node.this.this).lower()
        if name != "generate_series":
            refuse(node, f"function {name} in FROM", IN_SPARK)
        arguments = [self._expressions.translate(a, self._scope) for a in node.this.expressions]
        if len(arguments) not in (2, 3):
            raise no_function(node, name, arguments)
        start, stop = arguments[:2]
        if INTERVAL in [argument.type for argument in arguments[2:]]:
            return self._series_of_times(node, name, arguments)
        type_ = BIGINT if BIGINT in [argument.type for argument in arguments] else INTEGER
        start, stop = coerce(start, type_), coerce(stop, type_)
        step = 1 if len(arguments) == 2 else _literal_integer(node, arguments[2])
        compared = "<=" if step > 0 else ">="
        count = f"(CAST({stop.sql} AS DECIMAL(19,0)) - {start.sql}) / {step}"
        sequence = f"sequence({start.sql}, {stop.sql}, CAST({step} AS {type_.spark.upper()}))"
        return self._exploded(node, name, _bounded(start, stop, compared, count, sequence), type_)

    def _series_of_times(self, node: Any, name: str, arguments: list[Typed]) -> tuple[str, Source]:
        start, stop, step = arguments
        type_ = common(node, [start, stop])
        if type_.name not in ("timestamp", "timestamptz") or step.literal is None:
            raise no_function(node, name, arguments)
        start, stop = coerce(start, type_), coerce(stop, type_)
        if _micros(step) <= 0:
            refuse(node, "a series of months, or backwards", "Use a positive number of days.")
        sequence = f"sequence({start.sql}, {stop.sql}, {step.sql})"
        first, last = (f"unix_micros(CAST({end.sql} AS TIMESTAMP))" for end in (start, stop))
        count = f"({last} - {first}) div {_micros(step)}"
        sql = _bounded(start, stop, "<=", count, sequence)
        return self._exploded(node, name, sql, type_)


def _bounded(start: Typed, stop: Typed, compared: str, count: str, sequence: str) -> str:
    """The array of a series: NULL when it runs the wrong way, an error when it is too long."""
    message = string(f"a series may have {SERIES_MAX} rows here")
    return (
        f"CASE WHEN {start.sql} {compared} {stop.sql} THEN"
        f" CASE WHEN {count} >= {SERIES_MAX} THEN raise_error({message}) ELSE {sequence} END END"
    )


def _literal_integer(node: Any, operand: Typed) -> int:
    digits = operand.sql.strip("()")
    if operand.type != INTEGER or not digits.lstrip("-").isdigit() or int(digits) == 0:
        refuse(node, "a series with a step that is no literal, or zero")
    return int(digits)


def _micros(step: Typed) -> int:
    """The length of a literal interval; 0 if it has months."""
    assert step.literal is not None
    interval = Interval.read(step.node, step.literal)
    return 0 if interval.months else interval.days * DAY_MICROS + interval.micros


def _is_call(node: Any) -> bool:
    return isinstance(node, exp.Unnest) or (
        isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous)
    )
