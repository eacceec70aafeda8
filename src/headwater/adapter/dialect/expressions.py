"""Expressions: a node of the tree → Spark SQL with its type. What has no method here is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from sqlglot import exp

from headwater.adapter.dialect import calls, numerics, operators, patterns, totals
from headwater.adapter.dialect.aggregates import AGGREGATES, aggregate
from headwater.adapter.dialect.casts import cast, coerce, written_type
from headwater.adapter.dialect.literals import number, signed
from headwater.adapter.dialect.number_functions import NUMBER_FUNCTIONS, element, same_type
from headwater.adapter.dialect.quantified import contained, is_condition, quantified
from headwater.adapter.dialect.refusal import IN_SPARK, only, refuse, refused, remedy
from headwater.adapter.dialect.scope import Aliases, Column, Scope
from headwater.adapter.dialect.signatures import Function, Signature, call
from headwater.adapter.dialect.text_functions import TEXT_FUNCTIONS, trimmed
from headwater.adapter.dialect.time_functions import TIME_FUNCTIONS, extract
from headwater.adapter.dialect.to_char import TO_CHAR
from headwater.adapter.dialect.typed import (
    BOOLEAN,
    DATE,
    INTEGER,
    TEXT,
    TIMESTAMPTZ,
    UNKNOWN,
    Typed,
    cast_sql,
    common,
    scale_is_shown,
)
from headwater.adapter.sql.query import folded, is_user
from headwater.adapter.sql.types import length_max
from headwater.collection.types import SqlType, array

FUNCTIONS: Final[dict[str, Function]] = {
    **TEXT_FUNCTIONS,
    **NUMBER_FUNCTIONS,
    **TIME_FUNCTIONS,
    "to_char": TO_CHAR,
}

_USERS: Final[dict[str, Function]] = dict.fromkeys(
    ("current_user", "session_user", "current_role", "user"), (Signature((TEXT,), TEXT, "{0}"),)
)
"""What ``adapter/acting.py`` writes where a query has the words: the user as an argument."""

STEPS_MAX: Final = 100_000


class Queries(Protocol):
    """Who translates the queries inside expressions."""

    aliases: Aliases

    def nested(
        self, node: Any, scope: Scope, wanted: list[SqlType] | None = None
    ) -> tuple[str, tuple[Column, ...]]:
        """The text and columns of a query inside ``scope``."""
        ...


class Expressions:
    """Translates expressions; one per query text."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._steps = 0

    def translate(self, node: Any, scope: Scope) -> Typed:
        """``node`` as Spark SQL, in ``scope``."""
        assert node is not None, "the parser refuses a text that leaves out an expression"
        self._steps += 1
        if self._steps > STEPS_MAX:
            refuse(node, "a query this large")
        method = _METHODS.get(type(node))
        if is_user(node):
            refuse(node, "current_user in a view", _SAME_FOR_ALL)
        if isinstance(node, _JSON):
            refuse(node, "an operator of jsonb", "In Spark's dialect: get_json_object(j, '$.a').")
        if method is None:
            refuse(node, f"{node.key} expression", IN_SPARK)
        value = method(self, node, scope)
        return totals.nothing(value) if value.sql in (scope.absent or ()) else value

    def condition(self, node: Any, scope: Scope) -> str:
        """A boolean, for WHERE and its like."""
        return operators.boolean(self.translate(node, scope)).sql

    def _both(self, node: Any, scope: Scope) -> tuple[Typed, Typed]:
        return self.translate(node.this, scope), self.translate(node.expression, scope)

    # --- leaves -----------------------------------------------------------------------------------

    def _literal(self, node: Any, _scope: Scope) -> Typed:
        if node.is_string:
            return Typed("", UNKNOWN, node, str(node.this))
        return number(node, str(node.this))

    def _raw_string(self, node: Any, _scope: Scope) -> Typed:
        return Typed("", UNKNOWN, node, str(node.this))

    def _boolean(self, node: Any, _scope: Scope) -> Typed:
        return Typed("TRUE" if node.this else "FALSE", BOOLEAN, node)

    def _null(self, node: Any, _scope: Scope) -> Typed:
        return Typed("NULL", UNKNOWN, node)

    def _column(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "table", "db", "catalog")
        if isinstance(node.this, exp.Star):
            refuse(node, "* in this place")
        return scope.column(node)

    def _paren(self, node: Any, scope: Scope) -> Typed:
        return self.translate(node.this, scope)

    # --- operators --------------------------------------------------------------------------------

    def _arithmetic(self, node: Any, scope: Scope) -> Typed:
        return operators.arithmetic(node, _ARITHMETIC[type(node)], *self._both(node, scope))

    def _bitwise(self, node: Any, scope: Scope) -> Typed:
        return operators.bitwise(node, _BITWISE[type(node)], *self._both(node, scope))

    def _compare(self, node: Any, scope: Scope) -> Typed:
        operator = _COMPARISONS[type(node)]
        right = node.expression
        called = str(right.this).lower() if isinstance(right, exp.Anonymous) else ""
        if isinstance(right, exp.Any | exp.All) or (called == "all" and right.expressions):
            return self._quantified(node, operator, scope)
        if isinstance(node.this, exp.Tuple):
            return self._rows(node, operator, node.this, right, scope)
        return operators.compare(node, operator, *self._both(node, scope))

    def _rows(self, node: Any, operator: str, left: Any, right: Any, scope: Scope) -> Typed:
        if operator != "=" or not isinstance(right, exp.Tuple):
            refuse(node, "this comparison of rows", "Compare column by column.")
        if len(left.expressions) != len(right.expressions):
            refuse(node, "a comparison of rows of different widths")
        pairs = zip(left.expressions, right.expressions, strict=True)
        equal = [
            operators.compare(node, "=", self.translate(a, scope), self.translate(b, scope)).sql
            for a, b in pairs
        ]
        return Typed(f"({' AND '.join(equal)})", BOOLEAN, node)

    def _quantified(self, node: Any, operator: str, scope: Scope) -> Typed:
        right = node.expression
        every = not isinstance(right, exp.Any)
        inner = right.expressions[0] if isinstance(right, exp.Anonymous) else right.this
        if isinstance(inner, exp.Subquery | exp.Query):
            if (operator, every) not in (("=", False), ("<>", True)):
                return self._some_or_all(node, operator, inner, scope, every=every)
            return self._in_query(node, node.this, inner, scope, negated=every)
        values = self.translate(inner, scope)
        if values.type.name != "array":
            refuse(node, f"ANY or ALL of {values.type.postgres}")
        left = self.translate(node.this, scope)
        name = self._queries.aliases.fresh("e")
        test = operators.compare(node, operator, left, Typed(name, values.type.parts[0][1], node))
        return Typed(
            f"{'forall' if every else 'exists'}({values.sql}, {name} -> {test.sql})", BOOLEAN, node
        )

    def _negative(self, node: Any, scope: Scope) -> Typed:
        digits = signed(node)
        if digits is not None:
            return number(node, digits)
        return operators.negated(node, self.translate(node.this, scope))

    def _and_or(self, node: Any, scope: Scope) -> Typed:
        left, right = (operators.boolean(side).sql for side in self._both(node, scope))
        return Typed(
            f"({left} {'AND' if isinstance(node, exp.And) else 'OR'} {right})", BOOLEAN, node
        )

    def _not(self, node: Any, scope: Scope) -> Typed:
        return Typed(f"(NOT {self.condition(node.this, scope)})", BOOLEAN, node)

    def _is(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "expression", "negate")
        operand = self.translate(node.this, scope)
        negation = "NOT " if node.args.get("negate") else ""
        match node.expression:
            case exp.Null():
                value = coerce(operand, TEXT) if operand.type == UNKNOWN else operand
                return Typed(f"({value.sql} IS {negation}NULL)", BOOLEAN, node)
            case exp.Boolean():
                word = "TRUE" if node.expression.this else "FALSE"
                tested = operators.boolean(operand).sql
                return Typed(f"({tested} IS {negation}{word})", BOOLEAN, node)
            case _:
                raise refused(node, "this IS test")

    def _distinct_from(self, node: Any, scope: Scope) -> Typed:
        same = isinstance(node, exp.NullSafeEQ)
        return operators.distinct_from(node, *self._both(node, scope), same=same)

    def _between(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "low", "high", "symmetric", "negate")
        value, low, high = (
            self.translate(part, scope) for part in (node.this, node.args["low"], node.args["high"])
        )

        def within(lower: Typed, upper: Typed) -> str:
            at_least = operators.compare(node, ">=", value, lower).sql
            return f"({at_least} AND {operators.compare(node, '<=', value, upper).sql})"

        sql = within(low, high)
        if node.args.get("symmetric"):
            sql = f"({sql} OR {within(high, low)})"
        return Typed(f"(NOT {sql})" if node.args.get("negate") else sql, BOOLEAN, node)

    def _like(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "expression", "negate")
        return self._pattern(node, scope, "\\")

    def _escape(self, node: Any, scope: Scope) -> Typed:
        if not isinstance(node.this, exp.Like | exp.ILike) or not node.expression.is_string:
            refuse(node, "this ESCAPE")
        return self._pattern(node.this, scope, str(node.expression.this))

    def _pattern(self, node: Any, scope: Scope, escape: str) -> Typed:
        if isinstance(node.expression, exp.Any | exp.All):
            refuse(node, "LIKE ANY")
        operand, pattern = self._both(node, scope)
        found = patterns.like(node, operand, pattern, escape, fold=isinstance(node, exp.ILike))
        return found if not node.args.get("negate") else found.of(f"(NOT {found.sql})", BOOLEAN)

    def _regex(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "expression")
        fold = isinstance(node, exp.RegexpILike)
        return patterns.regex(node, *self._both(node, scope), fold=fold)

    def _concatenate(self, node: Any, scope: Scope) -> Typed:
        return operators.concatenated(node, *self._both(node, scope))

    def _in(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "expressions", "query")
        query = node.args.get("query")
        if query is not None:
            return self._in_query(node, node.this, query, scope, negated=False)
        if isinstance(node.this, exp.Tuple):
            rows = [self._rows(node, "=", node.this, row, scope).sql for row in node.expressions]
            return Typed(f"({' OR '.join(rows)})", BOOLEAN, node)
        operand = self.translate(node.this, scope)
        listed = [self.translate(item, scope) for item in node.expressions]
        return operators.one_of(node, operand, listed)

    def _in_query(
        self, node: Any, operand_node: Any, query: Any, scope: Scope, *, negated: bool
    ) -> Typed:
        operand, text = self._beside_query(node, operand_node, query, scope)
        if not is_condition(node):
            name = self._queries.aliases.fresh("q")
            return contained(node, operand, text, name, negated=negated)
        word = "NOT IN" if negated else "IN"
        return Typed(f"({operand.sql} {word} ({text}))", BOOLEAN, node)

    def _some_or_all(
        self, node: Any, operator: str, query: Any, scope: Scope, *, every: bool
    ) -> Typed:
        operand, text = self._beside_query(node, node.this, query, scope)
        name = self._queries.aliases.fresh("q")

        def value(aggregate: str) -> str:
            return f"(SELECT {aggregate} FROM ({text}) AS {name} (y))"  # noqa: S608 - translated

        return quantified(node, operator, operand, value, every=every)

    def _beside_query(
        self, node: Any, operand_node: Any, query: Any, scope: Scope
    ) -> tuple[Typed, str]:
        """An operand, and the query of the values that it is compared with, both of one type."""
        if isinstance(operand_node, exp.Tuple):
            refuse(node, "rows IN a query", "Use EXISTS.")
        operand = self.translate(operand_node, scope)
        text, columns = self._queries.nested(query, scope)
        if len(columns) != 1:
            refuse(node, "IN a query of several columns")
        type_ = common(node, [operand, Typed("", columns[0].type, node)])
        if columns[0].type != type_:  # Else of queries in one another each would be read again.
            text, _ = self._queries.nested(query, scope, [type_])
        return coerce(operand, type_), text

    # --- queries and cases ------------------------------------------------------------------------

    def _subquery(self, node: Any, scope: Scope) -> Typed:
        text, columns = self._queries.nested(node, scope)
        if len(columns) != 1:
            refuse(node, "a subquery of several columns as a value")
        return Typed(f"({text})", columns[0].type, node, scale_shown=columns[0].scale_shown)

    def _exists(self, node: Any, scope: Scope) -> Typed:
        text, _ = self._queries.nested(node.this, scope)
        return Typed(f"(EXISTS ({text}))", BOOLEAN, node)

    def _case(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "ifs", "default")
        operand = None if node.this is None else self.translate(node.this, scope)
        conditions = []
        for branch in node.args["ifs"]:
            if operand is None:
                conditions.append(self.condition(branch.this, scope))
            else:
                value = self.translate(branch.this, scope)
                conditions.append(operators.compare(branch, "=", operand, value).sql)
        values = [self.translate(branch.args["true"], scope) for branch in node.args["ifs"]]
        if node.args.get("default") is not None:
            values.append(self.translate(node.args["default"], scope))
        taken = same_type(node, values)
        text = "".join(
            f" WHEN {condition} THEN {value.sql}"
            for condition, value in zip(conditions, taken, strict=False)
        )
        if len(taken) > len(conditions):
            text += f" ELSE {taken[-1].sql}"
        shown = scale_is_shown(values, taken[0].type)
        value = Typed(f"(CASE{text} END)", taken[0].type, node, scale_shown=shown)
        return numerics.chosen(value, conditions, values)

    def _cast(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "to")
        length = length_max(node.args["to"])
        if length is not None:
            # What is too long is cut, unlike where it is stored.
            text = cast(self.translate(node.this, scope), TEXT)
            return text.of(f"substring({text.sql}, 1, {length})", TEXT)
        type_ = written_type(node, node.args["to"])
        empty = isinstance(node.this, exp.Array) and not node.this.expressions
        if empty and type_.name == "array":
            element = cast_sql("NULL", type_.parts[0][1])
            return Typed(f"slice(array({element}), 1, 0)", type_, node)
        return cast(self.translate(node.this, scope), type_)

    def _array(self, node: Any, scope: Scope) -> Typed:
        only(node, "expressions")
        if not node.expressions:
            refuse(node, "an empty array of no type", "Cast it: ARRAY[]::integer[].")
        taken = same_type(node, [self.translate(item, scope) for item in node.expressions])
        if taken[0].type.name == "array":
            refuse(node, "an array of arrays")
        return Typed(f"array({', '.join(t.sql for t in taken)})", array(taken[0].type), node)

    def _element(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "expressions")
        if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
            refuse(node, "a slice of an array")
        values = self.translate(node.this, scope)
        return element(node, values, self.translate(node.expressions[0], scope))

    # --- calls ------------------------------------------------------------------------------------

    def _dot(self, node: Any, scope: Scope) -> Typed:
        named = isinstance(node.this, exp.Identifier) and folded(node.this) == "pg_catalog"
        if not named or not isinstance(node.expression, exp.Anonymous):
            refuse(node, "this qualified name")
        return self.translate(node.expression, scope)

    def _call(self, node: Any, scope: Scope) -> Typed:
        name = calls.function_name(node)
        if name in AGGREGATES:
            return self._aggregate(node, scope)
        if name == "grouping":
            return self._grouping(node, scope)
        function = FUNCTIONS.get(name) or _USERS.get(name)
        if function is None:
            refuse(node, f"function {name}", remedy(name))
        return call(node, name, function, [self.translate(a, scope) for a in node.expressions])

    def _aggregate(self, node: Any, scope: Scope) -> Typed:
        found = calls.aggregate_call(self, node, scope)
        value = aggregate(found)
        return value if scope.absent is None else totals.of_no_rows(found.name, value)

    def _window(self, node: Any, scope: Scope) -> Typed:
        return aggregate(calls.window_call(self, node, scope))

    # --- syntax of its own ------------------------------------------------------------------------

    def _substring(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "start", "length")
        parts = (node.this, node.args.get("start"), node.args.get("length"))
        arguments = [self.translate(part, scope) for part in parts if part is not None]
        if len(arguments) > 1 and arguments[1].type in (UNKNOWN, TEXT):
            refuse(node, "substring by a regular expression")
        return call(node, "substring", FUNCTIONS["substring"], arguments)

    def _trim(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "position", "expression")
        parts = [node.this, node.args.get("expression")]
        arguments = [self.translate(part, scope) for part in parts if part is not None]
        return trimmed(node, node.args.get("position") or "BOTH", arguments)

    def _position(self, node: Any, scope: Scope) -> Typed:
        only(node, "this", "substr")
        arguments = [self.translate(part, scope) for part in (node.this, node.args["substr"])]
        return call(node, "position", FUNCTIONS["strpos"], arguments)

    def _extract(self, node: Any, scope: Scope) -> Typed:
        return extract(node, str(node.this.name), self.translate(node.expression, scope))

    def _at_time_zone(self, node: Any, scope: Scope) -> Typed:
        zone = self.translate(node.args["zone"], scope)
        if zone.literal is None:
            refuse(node, "a time zone that is no literal")
        return operators.at_utc(node, self.translate(node.this, scope), zone.literal)

    def _now(self, node: Any, _scope: Scope) -> Typed:
        only(node)
        if isinstance(node, exp.CurrentDate):
            return Typed("current_date()", DATE, node)
        return Typed("current_timestamp()", TIMESTAMPTZ, node)

    def _grouping(self, node: Any, scope: Scope) -> Typed:
        """A bit for each key, the last one the least: whether the row is no group of it."""
        if not node.expressions:
            refuse(node, "grouping of nothing")
        bits = [f"grouping({self.translate(key, scope).sql})" for key in node.expressions]
        bits = bits if scope.absent is None else ["1"] * len(bits)
        text = bits[0]
        for bit in bits[1:]:
            text = f"({text} * 2 + {bit})"
        return Typed(cast_sql(text, INTEGER), INTEGER, node)


_JSON: Final = (
    exp.JSONExtract, exp.JSONExtractScalar, exp.JSONBExtract, exp.JSONBExtractScalar,
    exp.JSONBContains, exp.JSONBContainsTopKey,
)  # fmt: skip
_SAME_FOR_ALL: Final = (
    "A view is the same for everybody: compare with current_user where it is read."
)
_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_COMPARISONS: Final = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}

_BITWISE: Final = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "#"}

Method = Callable[[Expressions, Any, Scope], Typed]
E_ = Expressions
_METHODS: Final[dict[type, Method]] = {
    exp.Literal: E_._literal,
    exp.RawString: E_._raw_string,
    exp.ByteString: E_._raw_string,  # E'…', its escapes read by sqlglot
    exp.Boolean: E_._boolean,
    exp.Null: E_._null,
    exp.Column: E_._column,
    exp.Paren: E_._paren,
    **dict.fromkeys(_ARITHMETIC, E_._arithmetic),
    **dict.fromkeys(_BITWISE, E_._bitwise),
    **dict.fromkeys(_COMPARISONS, E_._compare),
    exp.Neg: E_._negative,
    exp.And: E_._and_or,
    exp.Or: E_._and_or,
    exp.Not: E_._not,
    exp.Is: E_._is,
    exp.NullSafeEQ: E_._distinct_from,
    exp.NullSafeNEQ: E_._distinct_from,
    exp.Between: E_._between,
    exp.Like: E_._like,
    exp.ILike: E_._like,
    exp.Escape: E_._escape,
    exp.RegexpLike: E_._regex,
    exp.RegexpILike: E_._regex,
    exp.DPipe: E_._concatenate,
    exp.In: E_._in,
    exp.Subquery: E_._subquery,
    exp.Exists: E_._exists,
    exp.Case: E_._case,
    exp.Cast: E_._cast,
    exp.Array: E_._array,
    exp.Bracket: E_._element,
    exp.Dot: E_._dot,
    exp.Anonymous: E_._call,
    exp.Filter: E_._aggregate,
    exp.Window: E_._window,
    exp.Substring: E_._substring,
    exp.Trim: E_._trim,
    exp.StrPosition: E_._position,
    exp.Extract: E_._extract,
    exp.AtTimeZone: E_._at_time_zone,
    exp.CurrentDate: E_._now,
    exp.CurrentTimestamp: E_._now,
}
NODES: Final = tuple(sorted(node.__name__ for node in _METHODS))
"""Every kind of expression that is allowed."""
