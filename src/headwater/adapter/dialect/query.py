"""Queries: SELECT and its clauses, WITH, set operations, VALUES.

Every column of a query has two names: PostgreSQL's, which the client sees, and the one in the text,
which is unique among its neighbours whatever their case. At the top they are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from headwater.adapter.dialect import recursion, totals
from headwater.adapter.dialect.calls import coerce_known, direction, ordering
from headwater.adapter.dialect.casts import coerce, written_type
from headwater.adapter.dialect.expressions import Expressions
from headwater.adapter.dialect.from_clause import FromClause
from headwater.adapter.dialect.limits import CLAUSES, limit, unbracketed
from headwater.adapter.dialect.literals import identifier
from headwater.adapter.dialect.output_names import output_name, type_name
from headwater.adapter.dialect.refusal import (
    InvalidReference,
    UndefinedColumn,
    only,
    position,
    refuse,
)
from headwater.adapter.dialect.scope import Aliases, Column, Common, Scope
from headwater.adapter.dialect.typed import TEXT, UNKNOWN, Typed, common, scale_is_shown
from headwater.adapter.sql.query import folded
from headwater.adapter.sql.types import length_max
from headwater.collection.types import SqlType

ROW_NUMBER: Final = "row number"


@dataclass(frozen=True, slots=True)
class Output:
    """A column of a SELECT list."""

    name: str
    value: Typed


Relation = tuple[str, tuple[Column, ...]]


class QueryTranslator:
    """Translates one query over ``relations``; see the module."""

    def __init__(self, relations: Mapping[str, Mapping[str, SqlType]]) -> None:
        self._relations = relations
        self.aliases = Aliases()
        self._with_names = Aliases({name.lower() for name in relations})
        self._expressions = Expressions(self)
        self._drafts: dict[int, list[Output]] = {}

    # --- what FROM and expressions need -----------------------------------------------------------

    def stored(self, name: str) -> dict[str, SqlType] | None:
        """The columns of a relation of ours."""
        found = self._relations.get(name)
        return None if found is None else dict(found)

    def nested(self, node: Any, scope: Scope, wanted: list[SqlType] | None = None) -> Relation:
        """A query inside ``scope``."""
        return self.query(node, scope, scope.commons, wanted, top=False)

    def query(
        self,
        node: Any,
        outer: Scope | None,
        commons: Mapping[str, Common],
        wanted: list[SqlType] | None,
        *,
        top: bool,
    ) -> Relation:
        """Text and columns; ``wanted`` are the types that the surroundings need."""
        prefix, commons = self._with(node, outer, commons)
        match node:
            case exp.Select():
                text, columns = self._select(node, Scope(outer, commons), wanted, top=top)
            case exp.SetOperation():
                text, columns = self._set_operation(node, Scope(outer, commons), wanted, top=top)
            case exp.Values():
                text, columns = self.values(node, Scope(outer, commons), wanted)
            case exp.Subquery():
                only(node, "this", "with_", *CLAUSES)
                text, columns = self.query(unbracketed(node), outer, commons, wanted, top=top)
            case _:
                refuse(node, f"{node.key} as a query")
        return prefix + text, columns

    def _with(
        self, node: Any, outer: Scope | None, commons: Mapping[str, Common]
    ) -> tuple[str, Mapping[str, Common]]:
        clause = node.args.get("with_")
        if clause is None:
            return "", commons
        only(clause, "expressions", "recursive")
        word, written = "WITH", []
        for item in clause.expressions:
            only(item, "this", "alias", "materialized")
            alias = item.args["alias"]
            name = folded(alias.this)
            terms = recursion.terms(item.this, name) if clause.args.get("recursive") else None
            first = item.this if terms is None else terms[0]
            text, columns = self.query(first, outer, commons, None, top=False)
            renamed = [folded(column) for column in alias.args.get("columns") or []]
            if len(renamed) > len(columns):
                refuse(item, f'{len(renamed)} column names for "{name}"')
            columns = tuple(
                Column(new, column.written, column.type, column.scale_shown)
                for new, column in zip(renamed, columns, strict=False)
            ) + tuple(columns[len(renamed) :])
            common_query = Common(self._with_names.fresh(name), columns)
            commons = {**commons, name: common_query}
            limit = ""
            if terms is not None:
                types = [column.type for column in columns]
                further, _ = self.query(terms[1], outer, commons, types, top=False)
                text = f"({text}) UNION ALL ({further})"
                word, limit = "WITH RECURSIVE", f" MAX RECURSION LEVEL {recursion.LEVELS_MAX}"
            written.append(f"{identifier(common_query.alias)}{limit} AS ({text})")
        return f"{word} {', '.join(written)} ", commons

    # --- SELECT -----------------------------------------------------------------------------------

    def _select(
        self, node: Any, scope: Scope, wanted: list[SqlType] | None, *, top: bool
    ) -> Relation:
        only(
            node,
            *("with_", "expressions", "from_", "joins", "where", "group", "having", "windows"),
            *("distinct", "order", "limit", "offset"),
        )
        source = self._from(node, scope)
        outputs = self._listed(node, scope, wanted)
        where = self._where(node, scope)
        rest = where + self._group_by(node, scope, outputs) + self._having(node, scope)
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            return self._distinct_on(node, scope, outputs, source + rest, top=top)
        columns = _columns(outputs, top=top)
        order = self._order(node, scope, outputs, distinct=distinct is not None)
        word = "SELECT DISTINCT" if distinct is not None else "SELECT"
        text = f"{word} {_items(outputs, columns)}{source}{rest}"
        if totals.are_missing(node, scope, text, order):
            text += self._totals(node, scope, wanted, columns, source + where)
        return f"{text}{order}{limit(node)}", columns

    def _totals(
        self,
        node: Any,
        scope: Scope,
        wanted: list[SqlType] | None,
        columns: tuple[Column, ...],
        source: str,
    ) -> str:
        """The rows that empty grouping sets have where there are none to be grouped."""
        group = node.args["group"]
        listed = self._listed(node, scope, wanted)
        keys = [self._group_key(key, scope, listed) for key in totals.keys(group)]
        places = {int(key) for key in keys if key.isdigit()}
        scope.absent = frozenset(keys) | {listed[place - 1].value.sql for place in places}
        outputs = [
            Output(output.name, totals.nothing(output.value)) if place in places else output
            for place, output in enumerate(self._listed(node, scope, wanted), 1)
        ]
        having = self._having(node, scope).replace(" HAVING ", " AND ", 1)
        scope.absent = None
        row = f"SELECT {_items(outputs, columns)}{source} HAVING (count(1) = 0){having}"
        return f" UNION ALL {row}" * totals.empty_sets(group)

    def _listed(self, node: Any, scope: Scope, wanted: list[SqlType] | None) -> list[Output]:
        outputs = self._outputs(node, scope)
        if wanted is not None:
            if len(wanted) != len(outputs):
                refuse(node, f"{len(outputs)} columns where {len(wanted)} are wanted")
            outputs = [
                Output(output.name, coerce(output.value, type_))
                for output, type_ in zip(outputs, wanted, strict=True)
            ]
        return [Output(output.name, coerce_known(output.value)) for output in outputs]

    def _from(self, node: Any, scope: Scope) -> str:
        for window in node.args.get("windows") or []:
            scope.windows[folded(window.this)] = window
        clause = node.args.get("from_")
        if clause is None:
            return ""
        joins = node.args.get("joins") or []
        return " FROM " + FromClause(self, self._expressions, scope).translate(clause.this, joins)

    def _outputs(self, node: Any, scope: Scope) -> list[Output]:
        outputs: list[Output] = []
        for item in node.expressions:
            if isinstance(item, exp.Star):
                only(item)
                outputs += [Output(name, value) for name, value in scope.everything(item)]
            elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
                only(item.this)
                qualifier = folded(item.args["table"])
                outputs += [Output(name, value) for name, value in scope.all_of(item, qualifier)]
            else:
                value = item.unalias() if isinstance(item, exp.Alias) else item
                outputs.append(Output(_name(item), self._expressions.translate(value, scope)))
        if not outputs:
            refuse(node, "a query without columns")
        return outputs

    def _where(self, node: Any, scope: Scope) -> str:
        where = node.args.get("where")
        return "" if where is None else f" WHERE {self._expressions.condition(where.this, scope)}"

    def _having(self, node: Any, scope: Scope) -> str:
        having = node.args.get("having")
        if having is None:
            return ""
        return f" HAVING {self._expressions.condition(having.this, scope)}"

    def _group_by(self, node: Any, scope: Scope, outputs: list[Output]) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        only(group, "expressions")
        totals.require_no_window_over_having(node)
        if group.args.get("all") is not None:
            refuse(group, "ALL or DISTINCT of GROUP BY")
        keys = [
            # Alone, Spark takes (a, b) for one key, and () for nothing that it knows.
            f"GROUPING SETS ({key})" if isinstance(item, exp.Tuple) else key
            for item in group.expressions
            for key in (self._grouping(item, scope, outputs),)
        ]
        return f" GROUP BY {', '.join(keys)}"

    def _grouping(self, item: Any, scope: Scope, outputs: list[Output]) -> str:
        """A key, or sets of keys in one another."""
        if isinstance(item, exp.Tuple | exp.Rollup | exp.Cube | exp.GroupingSets):
            parts = (self._grouping(part, scope, outputs) for part in item.expressions)
            return f"{_SETS.get(type(item), '')}({', '.join(parts)})"
        return self._group_key(item, scope, outputs)

    def _group_key(self, item: Any, scope: Scope, outputs: list[Output]) -> str:
        if isinstance(item, exp.Literal) and not item.is_string:
            return str(_ordinal(item, outputs, "GROUP BY"))
        if isinstance(item, exp.Column) and item.args.get("table") is None:
            try:
                return scope.column(item).sql
            except UndefinedColumn:
                named = _named(item, outputs)
                if named is None:
                    raise
                return str(named)
        value = coerce_known(self._expressions.translate(item, scope))
        if value.type.name in ("array", "map", "struct"):
            refuse(item, f"groups of {value.type.postgres}")
        return value.sql

    def _order(self, node: Any, scope: Scope, outputs: list[Output], *, distinct: bool) -> str:
        order = node.args.get("order")
        if order is None:
            return ""
        items = []
        for item in order.expressions:
            place, value = self._order_key(item.this, scope, outputs)
            if place is not None:
                ordering(item, outputs[place - 1].value)  # refuses what has none
                items.append(f"{place} {direction(item)}")
                continue
            if distinct:
                refuse(item, "ORDER BY of what SELECT DISTINCT does not list")
            items.append(ordering(item, value))
        return f" ORDER BY {', '.join(items)}"

    def _order_key(
        self, node: Any, scope: Scope, outputs: list[Output]
    ) -> tuple[int | None, Typed]:
        """The output it names, if any, and its value."""
        if isinstance(node, exp.Literal) and not node.is_string:
            place = _ordinal(node, outputs, "ORDER BY")
            return place, outputs[place - 1].value
        if isinstance(node, exp.Column) and node.args.get("table") is None:
            named = _named(node, outputs)
            if named is not None:
                return named, outputs[named - 1].value
        value = coerce_known(self._expressions.translate(node, scope))
        for place, output in enumerate(outputs, 1):
            if output.value.sql == value.sql:
                return place, value
        return None, value

    def _distinct_on(
        self, node: Any, scope: Scope, outputs: list[Output], source: str, *, top: bool
    ) -> Relation:
        """The first row of each group, by a row number."""
        on = node.args["distinct"].args["on"]
        keys = [self._order_key(key, scope, outputs)[1].sql for key in on.expressions]
        order = node.args.get("order")
        items = [] if order is None else order.expressions
        sorts = [(item, self._order_key(item.this, scope, outputs)[1]) for item in items]
        if any(value.sql not in keys for _, value in sorts[: len(keys)]):
            raise InvalidReference(
                "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                position=position(on),
            )
        # Ties are decided by the whole row: PostgreSQL leaves them open, we do not.
        tie = [f"{o.value.sql} ASC NULLS LAST" for o in outputs if _has_order(o.value.type)]
        within = [ordering(item, value) for item, value in sorts] + tie
        window = f"PARTITION BY {', '.join(keys)} ORDER BY {', '.join(within)}"
        columns = _columns(outputs, top=False)
        hidden = [self.aliases.fresh("order") for _ in sorts]
        number = self.aliases.fresh(ROW_NUMBER)
        listed = [
            _items(outputs, columns),
            *(f"{v.sql} AS {identifier(h)}" for (_, v), h in zip(sorts, hidden, strict=True)),
            f"row_number() OVER ({window}) AS {identifier(number)}",
        ]
        outer = _columns(outputs, top=top)
        chosen = ", ".join(
            f"{identifier(inner.written)} AS {identifier(shown.written)}"
            for inner, shown in zip(columns, outer, strict=True)
        )
        ordered = ", ".join(
            f"{identifier(name)} {direction(item)}"
            for (item, _), name in zip(sorts, hidden, strict=True)
        )
        first = f"WHERE {identifier(number)} = 1"
        numbered = f"SELECT {', '.join(listed)}{source}"
        order_by = f" ORDER BY {ordered}" if ordered else ""
        return f"SELECT {chosen} FROM ({numbered}) {first}{order_by}{limit(node)}", outer  # noqa: S608  # written by rules

    # --- set operations and VALUES ----------------------------------------------------------------

    def _set_operation(
        self, node: Any, scope: Scope, wanted: list[SqlType] | None, *, top: bool
    ) -> Relation:
        only(node, "with_", "this", "expression", "distinct", "order", "limit", "offset")
        outputs = self._draft(node, scope)
        types = wanted or [common(node, [output.value]) for output in outputs]
        if len(types) != len(outputs):
            refuse(node, f"{len(outputs)} columns where {len(types)} are wanted")
        word = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}[type(node)]
        if not node.args.get("distinct"):
            word += " ALL"
        left, _ = self.nested(node.this, scope, types)
        right, _ = self.nested(node.expression, scope, types)
        named = [
            Output(o.name, o.value.of("", t, scale_shown=o.value.scale_shown))
            for o, t in zip(outputs, types, strict=True)
        ]
        order = self._order_by_output(node, named)
        text = f"({left}) {word} ({right})"
        columns = _columns(named, top=top)
        inner = [f"c{place}" for place in range(1, len(named) + 1)]
        alias = self.aliases.fresh("s")
        items = ", ".join(
            f"{identifier(old)} AS {identifier(column.written)}"
            for old, column in zip(inner, columns, strict=True)
        )
        renamed = f"{identifier(alias)}({', '.join(map(identifier, inner))})"
        return f"SELECT {items} FROM ({text}) AS {renamed}{order}{limit(node)}", columns  # noqa: S608  # written by rules

    def _order_by_output(self, node: Any, outputs: list[Output]) -> str:
        order = node.args.get("order")
        if order is None:
            return ""
        items = []
        for item in order.expressions:
            if isinstance(item.this, exp.Literal) and not item.this.is_string:
                place = _ordinal(item.this, outputs, "ORDER BY")
            elif isinstance(item.this, exp.Column) and (named := _named(item.this, outputs)):
                place = named
            else:
                refuse(item, "ORDER BY of what is no column of a set operation")
            ordering(item, outputs[place - 1].value)
            items.append(f"{place} {direction(item)}")
        return f" ORDER BY {', '.join(items)}"

    def _draft(self, node: Any, scope: Scope) -> list[Output]:
        """Names and types of a branch before its surroundings decide what literals are."""
        known = self._drafts.get(id(node))
        if known is not None:
            return known
        match node:
            case exp.SetOperation():
                left, right = self._draft(node.this, scope), self._draft(node.expression, scope)
                if len(left) != len(right):
                    refuse(node, "a set operation of queries with different numbers of columns")
                outputs = [
                    Output(a.name, _united(node, [a.value, b.value]))
                    for a, b in zip(left, right, strict=True)
                ]
            case exp.Subquery():
                outputs = self._draft(node.this, scope)
            case exp.Select() if node.args.get("with_") is None:
                inner = Scope(scope.outer, scope.commons)
                self._from(node, inner)
                outputs = self._outputs(node, inner)
            case _:
                _, columns = self.nested(node, scope)
                outputs = [
                    Output(c.name, Typed("", c.type, node, scale_shown=c.scale_shown))
                    for c in columns
                ]
        self._drafts[id(node)] = outputs
        return outputs

    def values(self, node: Any, scope: Scope, wanted: list[SqlType] | None = None) -> Relation:
        """``VALUES (…), (…)``."""
        only(node, "expressions", "alias", "limit", "offset")
        rows = [
            [self._expressions.translate(item, scope) for item in row.expressions]
            for row in node.expressions
        ]
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            refuse(node, "VALUES lists of different lengths")
        by_column = [[row[place] for row in rows] for place in range(width)]
        types = wanted or [common(node, column) for column in by_column]
        columns = tuple(
            Column(f"column{place}", f"column{place}", type_, scale_is_shown(column, type_))
            for place, (type_, column) in enumerate(zip(types, by_column, strict=True), 1)
        )
        taken = [[coerce(i, t).sql for i, t in zip(row, types, strict=True)] for row in rows]
        written = ", ".join(f"({', '.join(row)})" for row in taken)
        alias = identifier(self.aliases.fresh("v"))
        names = ", ".join(identifier(column.written) for column in columns)
        text = f"SELECT {names} FROM VALUES {written} AS {alias}({names})"  # noqa: S608
        return text + limit(node), columns


def _united(node: Any, operands: list[Typed]) -> Typed:
    if all(operand.type == UNKNOWN for operand in operands):
        return operands[0]
    type_ = common(node, operands)
    return operands[0].of("", type_, scale_shown=scale_is_shown(operands, type_))


def _columns(outputs: list[Output], *, top: bool) -> tuple[Column, ...]:
    taken = Aliases()
    return tuple(
        Column(
            output.name,
            output.name if top else taken.fresh(output.name),
            TEXT if output.value.type == UNKNOWN else output.value.type,
            output.value.scale_shown,
        )
        for output in outputs
    )


def _items(outputs: list[Output], columns: tuple[Column, ...]) -> str:
    return ", ".join(
        f"{output.value.sql} AS {identifier(column.written)}"
        for output, column in zip(outputs, columns, strict=True)
    )


_SETS: Final = {exp.Rollup: "ROLLUP ", exp.Cube: "CUBE ", exp.GroupingSets: "GROUPING SETS "}


def _name(item: Any) -> str:
    if isinstance(item, exp.Alias):
        return folded(item.args["alias"])
    inner = item
    while isinstance(inner, exp.Paren):
        inner = inner.this
    return output_name(item, _cast_name(inner) if isinstance(inner, exp.Cast) else None)


def _cast_name(node: Any) -> str:
    if length_max(node.args["to"]) is not None:
        return "varchar"
    written = written_type(node, node.args["to"])
    return type_name(written.parts[0][1].name if written.name == "array" else written.name)


def _ordinal(node: Any, outputs: list[Output], clause: str) -> int:
    digits = str(node.this)
    if not digits.isdigit() or not 1 <= int(digits) <= len(outputs):
        raise InvalidReference(
            f"{clause} position {digits} is not in select list", position=position(node)
        )
    return int(digits)


def _named(node: Any, outputs: list[Output]) -> int | None:
    name = folded(node.this)
    places = [place for place, output in enumerate(outputs, 1) if output.name == name]
    if len({outputs[place - 1].value.sql for place in places}) > 1:
        raise InvalidReference(f'"{name}" is ambiguous', position=position(node))
    return places[0] if places else None


def _has_order(type_: SqlType) -> bool:
    return type_.name not in ("array", "jsonb", "map", "struct")
