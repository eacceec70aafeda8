"""Random plans over the small relations of ``testing/relations.py``.

    plan = random_plan(Random(7), depth=4)          an operator of ``compute/ir``, well formed

Plans compose every operator that has a rule, with keys of several types, NULLs, computed keys,
residuals, shared subplans (read twice under other names) and subplans that use the same names
inside. Every text is Spark SQL *and* of the small part that ``testing/expressions.py`` knows, so
that the same plans can be run here and on Spark. The same seed gives the same plan.

Relied on by: the tests of the lowering, on the model and on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

from headwater.compute.ir.expression import (
    BOOLEAN,
    AggregateCall,
    Column,
    Comparison,
    Expression,
    Field,
    JoinKey,
    Named,
    SortKey,
    WindowCall,
)
from headwater.compute.ir.node import (
    Aggregate,
    Bag,
    Distinct,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Project,
    Scan,
    TopK,
    Union,
    Values,
    Window,
    reference,
)
from headwater.testing.relations import DOMAINS, PAIR, RELATIONS

_WHOLE_FRAME: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def random_plan(random: Random, depth: int = 4) -> Node:
    """Return an operator with at most so many operators above each other, give or take a few."""
    return Plans(random).node(depth)


# ---- plans -----------------------------------------------------------------------------------


@dataclass
class Plans:
    """One plan in the making; who knows other types or functions overrides how they are made."""

    random: Random
    _last: int = 0
    _made: list[Node] = field(default_factory=list)

    relations: ClassVar[Mapping[str, Mapping[str, str]]] = RELATIONS
    numbers: ClassVar[Sequence[str]] = ("int", "bigint", "double")
    computed: ClassVar[Sequence[str]] = ("int", "bigint", "string", "boolean", "double")
    """The types of columns that a projection computes."""

    def is_compared(self, column: Column) -> bool:
        """Whether conditions, keys of an order and calls may look at a column."""
        return column.type != PAIR

    def told_apart(self, depth: int) -> Node:
        """Return an operator whose rows can be told apart by all its columns."""
        return self.node(depth)

    def name(self, what: str) -> str:
        """Return a name that the plan does not have yet."""
        self._last += 1
        return f"{what}_{self._last}"

    def node(self, depth: int) -> Node:
        """Return an operator of any kind over others."""
        if depth <= 0 or self.random.random() < 0.08:
            return self._leaf()
        if self._made and self.random.random() < 0.06:
            return self.random.choice(self._made)
        kinds = {
            self._filter: 4,
            self._project: 4,
            self._join: 9,
            self._aggregate: 5,
            self._union: 2,
            self._distinct: 2,
            self._bag: 1,
            self._top: 2,
            self._numbered: 1,
            self._expand: 1,
            self.generated: 1,
            self._values: 1,
        }
        (make,) = self.random.choices(list(kinds), list(kinds.values()))
        made: Node = make(depth - 1)
        self._made.append(made)
        return made

    # ---- leaves ----------------------------------------------------------------------------

    def _leaf(self) -> Node:
        leaf = self._scan()
        if self.random.random() < 0.3:
            leaf = Filter(leaf, self.condition(leaf.columns, 0))
        if self.random.random() < 0.2:
            leaf = self._projected(leaf)
        return leaf

    def _scan(self) -> Node:
        relation = self.random.choice(list(self.relations))
        types = self.relations[relation]
        wanted = [f for f in types if self.random.random() < 0.8] or list(types)[:1]
        fields = (Field(f, Column(self.name(f), types[f], True)) for f in wanted)
        return Scan(relation, tuple(fields))

    def _values(self, _: int) -> Node:
        columns = (Column(self.name("v"), "int", True), Column(self.name("w"), "string", True))
        rows = tuple(
            (self.literal("int"), self.literal("string"))
            for _ in range(self.random.choice([0, 1, 2, 3]))
        )
        return Values(columns, rows)

    # ---- expressions -----------------------------------------------------------------------

    def literal(self, type_: str) -> str:
        """Return a text that is a value of this type."""
        value = self.random.choice(DOMAINS[type_])
        if value is None:
            return f"CAST(NULL AS {type_})"
        if type_ == "string":
            return f"'{value}'"
        if type_ == "boolean":
            return str(value).lower()
        if type_ == PAIR:
            return "named_struct('x', CAST(1 AS INT), 'y', 'a')"
        return str(value) if type_ == "int" else f"CAST({value} AS {type_.upper()})"

    def column(self, columns: Sequence[Column], type_: str) -> Column | None:
        """Return a column of this type, if there is one."""
        fitting = [column for column in columns if column.type == type_]
        return self.random.choice(fitting) if fitting else None

    def expression(self, columns: Sequence[Column], type_: str, depth: int = 2) -> Expression:
        """Return something of this type."""
        column = self.column(columns, type_)
        if column is not None and (depth == 0 or self.random.random() < 0.5):
            return reference(column).expression
        choice = self.random.random()
        if type_ == BOOLEAN and depth > 0:
            return self.condition(columns, depth - 1)
        if type_ in self.numbers and depth > 0 and choice < 0.5:
            a, b = (self.expression(columns, type_, depth - 1) for _ in range(2))
            return combined(f"({a.text} {self.random.choice('+-*')} {b.text})", type_, a, b)
        if type_ == "bigint" and choice < 0.7:
            narrow = self.column(columns, "int")
            if narrow is not None:
                inner = reference(narrow).expression
                return combined(f"CAST({inner.text} AS BIGINT)", type_, inner)
        if depth > 0 and choice < 0.85 and type_ != PAIR:
            when = self.condition(columns, 0)
            a, b = (self.expression(columns, type_, depth - 1) for _ in range(2))
            text = f"CASE WHEN {when.text} THEN {a.text} ELSE {b.text} END"
            return combined(text, type_, when, a, b)
        return Expression(self.literal(type_), type_, True)

    def condition(self, columns: Sequence[Column], depth: int = 1) -> Expression:
        """Return something that is true, false or unknown."""
        plain = [column for column in columns if self.is_compared(column)]
        if depth > 0 and self.random.random() < 0.3:
            a, b = (self.condition(columns, depth - 1) for _ in range(2))
            return combined(
                f"({a.text} {self.random.choice(['AND', 'OR'])} {b.text})", BOOLEAN, a, b
            )
        if depth > 0 and self.random.random() < 0.15:
            a = self.condition(columns, depth - 1)
            return combined(f"(NOT {a.text})", BOOLEAN, a)
        if not plain:
            return Expression(self.random.choice(["true", "(1 = 1)"]), BOOLEAN, True)
        column = self.random.choice(plain)
        a = reference(column).expression
        if self.random.random() < 0.15:
            negated = self.random.choice(["", "NOT "])
            return combined(f"({a.text} IS {negated}NULL)", BOOLEAN, a)
        b = self.expression(columns, column.type, 0)
        if self.random.random() < 0.4:
            b = Expression(self.literal(column.type), column.type, True)
        operators = ["=", "=", "<=>"]
        operators += ["<", ">=", "<="] if column.type in self.numbers else []
        return combined(f"({a.text} {self.random.choice(operators)} {b.text})", BOOLEAN, a, b)

    # ---- operators -------------------------------------------------------------------------

    def _filter(self, depth: int) -> Node:
        # A bare comparison over a join is what rules look for: an equality, a rejected NULL.
        if self.random.random() < 0.4:
            join = self._join(depth - 1)
            return Filter(join, self.condition(join.columns, 0))
        source = self.node(depth)
        return Filter(source, self.condition(source.columns))

    def _project(self, depth: int) -> Node:
        return self._projected(self.node(depth))

    def _projected(self, source: Node) -> Node:
        outputs = [reference(c) for c in source.columns if self.random.random() < 0.7]
        for _ in range(self.random.randint(0, 2)):
            type_ = self.random.choice(self.computed)
            outputs.append(Named(self.name("x"), self.expression(source.columns, type_)))
        if source.columns and self.random.random() < 0.3:
            column = self.random.choice(source.columns)
            outputs.append(Named(self.name("again"), reference(column).expression))
        if not outputs and self.random.random() < 0.8:
            outputs = [reference(c) for c in source.columns]
        return Project(source, tuple(outputs))

    def _apart(self, left: Node, right: Node) -> Node:
        """Return the right side with names that the left does not have."""
        taken = {column.name for column in left.columns}
        if not taken & {column.name for column in right.columns}:
            return right
        return Project(
            right,
            tuple(Named(self.name("other"), reference(c).expression) for c in right.columns),
        )

    def _join(self, depth: int) -> Node:
        left = self.node(depth)
        other = self.node(depth if self.random.random() < 0.4 else 0)
        # With itself: the same names are used on both sides, below.
        right = self._apart(left, left if self.random.random() < 0.1 else other)
        kinds: dict[JoinKind, int] = {
            "inner": 8,
            "left": 3,
            "right": 1,
            "full": 1,
            "semi": 2,
            "anti": 3,
        }
        (kind,) = self.random.choices(list(kinds), list(kinds.values()))
        keys: list[JoinKey] = []
        for _ in range(self.random.choice([0, 1, 1, 1, 2, 2])):
            # A column that is compared twice relates the others to each other.
            again = keys and self.random.random() < 0.4
            shared = [c for c in left.columns if again and c.name in keys[0].left.columns]
            key = self.key(kind, shared or left.columns, right.columns)
            if key is not None:
                keys.append(key)
        if kind in ("semi", "anti") and self.random.random() < 0.3:
            keys = [JoinKey(key.left, key.right, "=?") for key in keys[:1]]
            if self.random.random() < 0.8:
                return Join(left, right, kind, tuple(keys))
        residual = None
        if self.random.random() < (0.25 if keys else 0.7):
            residual = self.condition((*left.columns, *right.columns))
        return Join(left, right, kind, tuple(keys), residual)

    def key(
        self, kind: JoinKind, left: Sequence[Column], right: Sequence[Column]
    ) -> JoinKey | None:
        """Return what a join compares, if the sides have something alike."""
        comparisons: list[Comparison] = ["=", "=", "=", "<=>"]
        if kind in ("semi", "anti"):
            comparisons.append("=?")
        comparison: Comparison = self.random.choice(comparisons)
        a = self.random.choice(left) if left else None
        if a is None:
            return None
        if a.type in ("int", "bigint") and self.random.random() < 0.5:
            sides = [self._wide(a), self._wide(self.column(right, "int"))]
            other = self.column(right, "bigint")
            if other is not None and self.random.random() < 0.6:
                sides[1] = reference(other).expression
            if sides[0] is not None and sides[1] is not None:
                return JoinKey(sides[0], sides[1], comparison)
        b = self.column(right, a.type)
        if b is None:
            return None
        x, y = reference(a).expression, reference(b).expression
        if self.random.random() < 0.15 and a.type != PAIR:
            x = self.expression(left, a.type)
        if self.random.random() < 0.15 and a.type != PAIR:
            y = self.expression(right, a.type)
        return JoinKey(x, y, comparison)

    def _wide(self, column: Column | None) -> Expression | None:
        if column is None:
            return None
        inner = reference(column).expression
        if column.type == "bigint":
            return inner
        return combined(f"CAST({inner.text} AS BIGINT)", "bigint", inner)

    def _aggregate(self, depth: int) -> Node:
        source = self.told_apart(depth)
        groups = tuple(c.name for c in source.columns if self.random.random() < 0.35)
        calls = tuple(self.call(source.columns) for _ in range(self.random.randint(0, 3)))
        if not groups and not calls:
            calls = (self.call(source.columns),)
        return Aggregate(source, groups, calls)

    def call(self, columns: Sequence[Column]) -> AggregateCall:
        """Return a call of an aggregate function."""
        function = self.random.choice(
            [
                "count",
                "count",
                "sum",
                "sum",
                "avg",
                "min",
                "max",
                "first",
                "last",
                "bool_or",
                "bool_and",
            ]
        )
        plain = [c for c in columns if self.is_compared(c)]
        numbers = [c for c in plain if c.type in self.numbers]
        distinct = function in ("count", "sum", "max") and self.random.random() < 0.25
        argument: Expression
        if function in ("sum", "avg"):
            type_ = self.random.choice(numbers).type if numbers else "bigint"
            argument = self.expression(columns, type_, self.random.choice([0, 0, 1]))
        elif function in ("bool_or", "bool_and"):
            argument = self.condition(columns)
        elif plain and (distinct or self.random.random() < 0.8):
            argument = reference(self.random.choice(plain)).expression
        else:
            argument = Expression("1", "int", False)
        type_ = argument.type
        if function == "count":
            type_ = "bigint"
        elif function == "sum":
            type_ = "double" if argument.type == "double" else "bigint"
        elif function == "avg":
            type_ = "double"
        where = self.condition(columns) if self.random.random() < 0.2 else None
        text = f"{function}({'DISTINCT ' if distinct else ''}{argument.text})"
        mentioned = set(argument.columns)
        if where is not None:
            text += f" FILTER (WHERE {where.text})"
            mentioned.update(where.columns)
        return AggregateCall(
            name=self.name(function),
            function=function,
            text=text,
            type=type_,
            nullable=function != "count",
            columns=tuple(sorted(mentioned)),
            arguments=(argument,),
            distinct=distinct,
            filter=where,
        )

    def _as(self, source: Node, types: Sequence[str]) -> Node:
        """Return the node with columns of these types."""
        outputs = tuple(
            Named(self.name("col"), self.expression(source.columns, type_, 0)) for type_ in types
        )
        return Project(source, outputs)

    def _union(self, depth: int) -> Node:
        first = self.node(depth)
        types = [column.type for column in first.columns]
        others = [self._as(self.node(depth - 1), types) for _ in range(self.random.randint(1, 2))]
        if self.random.random() < 0.2:
            others[0] = first
        columns = tuple(Column(self.name("of"), type_, True) for type_ in types)
        return Union((first, *others), columns)

    def _bag(self, depth: int) -> Node:
        left = self.told_apart(depth)
        right = self._as(self.node(depth - 1), [column.type for column in left.columns])
        return Bag(self.random.choice(["intersect", "except"]), left, right)

    def _distinct(self, depth: int) -> Node:
        return Distinct(self.told_apart(depth))

    def _order(self, columns: Sequence[Column]) -> tuple[SortKey, ...]:
        plain = [column for column in columns if self.is_compared(column)]
        keys: list[SortKey] = []
        for _ in range(self.random.randint(0, 2) if plain else 0):
            column = self.random.choice(plain)
            by = self.expression(columns, column.type, self.random.choice([0, 0, 1]))
            # To Spark, ORDER BY 1 is the first column.
            by = by if by.columns else reference(column).expression
            keys.append(SortKey(by, self.random.random() < 0.5, self.random.random() < 0.5))
        return tuple(keys)

    def _top(self, depth: int) -> Node:
        source = self.node(depth)
        limit = self.random.choice([None, 0, 1, 2, 3])
        return TopK(source, self._order(source.columns), limit, self.random.choice([0, 0, 1]))

    def _numbered(self, depth: int) -> Node:
        source = self.told_apart(depth)
        partition = tuple(
            reference(column).expression for column in source.columns if self.random.random() < 0.3
        )
        name = self.name("place")
        call = WindowCall(name, "row_number", "row_number()", _WHOLE_FRAME, "int", False)
        order = self._order(source.columns)
        if not order:
            order = (SortKey(Expression("1", "int", False)),)
        window = Window(source, partition, order, (call,))
        k, operator = self.random.randint(1, 2), self.random.choice(["<=", "<", "="])
        return Filter(window, Expression(f"({name} {operator} {k})", BOOLEAN, False, (name,)))

    def _expand(self, depth: int) -> Node:
        source = self.node(depth)
        types = [self.random.choice(["int", "string", "bigint"]) for _ in range(2)]
        rows = tuple(
            tuple(self.expression(source.columns, type_, 1) for type_ in types)
            for _ in range(self.random.randint(1, 3))
        )
        return Expand(source, rows, tuple(Column(self.name("ex"), t, True) for t in types))

    def generated(self, depth: int) -> Node:
        """Return each row of another operator several times."""
        source = self.node(depth)
        items = [
            self.expression(source.columns, "int", 1) for _ in range(self.random.randint(1, 2))
        ]
        text = f"explode(array({', '.join(item.text for item in items)}))"
        generator = combined(text, "int", *items)
        return Generate(source, generator, (Column(self.name("item"), "int", True),))


def combined(text: str, type_: str, *parts: Expression) -> Expression:
    """Return a text that was put together from these parts."""
    columns = tuple(sorted({name for part in parts for name in part.columns}))
    return Expression(text, type_, True, columns)
