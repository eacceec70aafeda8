"""Random plans over columns of every type, and plans that fail on some of their rows.

    plan = typed_plan(Random(7), depth=4)        as ``testing/plans.py``, over TYPED_RELATIONS
    case = failing(Random(7), plan)              an operator over it that some rows make fail

Values are few and mean: NaN, infinities and -0.0, empty texts and arrays, NULLs inside structs and
arrays, the ends of the calendar. Python does not compare them as SQL does, so these plans are held
against Spark only. Arithmetic stays small: what fails, fails where it was put.

A :class:`Failing` plan says by itself where it fails: ``told`` has the same rows, computed so that
nothing fails, and a last column that is true for rows which make ``plan`` fail. Failing expressions
stand at the top, where no rule may leave them out or evaluate them for fewer rows than there are;
what an optimiser does below is its own affair.

Relied on by: ``testing/random_views.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any, ClassVar, Final

from headwater.compute.ir.expression import (
    BOOLEAN,
    AggregateCall,
    Column,
    Expression,
    JoinKey,
    Named,
    WindowCall,
)
from headwater.compute.ir.node import (
    Aggregate,
    Distinct,
    Filter,
    Generate,
    JoinKind,
    Node,
    Project,
    Window,
    reference,
)
from headwater.testing.plans import Plans, combined

STRUCT: Final = "struct<x:double,y:string>"
INTERVAL: Final = "interval day to second"
MONEY: Final = "decimal(9,2)"
WIDE: Final = "decimal(38,9)"

TYPED_RELATIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "k": {"i": "int", "l": "bigint", "f": "float", "d": "double", "s": "string"},
    "m": {
        "n": MONEY,
        "w": WIDE,
        "dt": "date",
        "ts": "timestamp",
        "tn": "timestamp_ntz",
        "i": "int",
        "d": "double",
    },
    "o": {
        "by": "tinyint",
        "sh": "smallint",
        "bn": "binary",
        "tm": "time(6)",
        "iv": INTERVAL,
        "xs": "array<int>",
        "st": STRUCT,
        "mp": "map<string,int>",
        "bo": "boolean",
        "s": "string",
    },
}

TYPED_DOMAINS: Final[Mapping[str, Sequence[tuple[Any, str]]]] = {
    "boolean": ((False, "false"), (True, "true")),
    "tinyint": ((0, "0Y"), (-128, "-128Y"), (127, "127Y")),
    "smallint": ((0, "0S"), (1, "1S"), (-7, "-7S")),
    "int": ((0, "0"), (1, "1"), (2, "2")),
    "bigint": ((0, "0L"), (1, "1L"), (2**53 + 1, "9007199254740993L")),
    "float": ((0.0, "0.0F"), (-0.0, "-0.0F"), (float("nan"), "float('NaN')"), (1.5, "1.5F")),
    "double": (
        (0.0, "0.0D"),
        (-0.0, "-0.0D"),
        (float("nan"), "double('NaN')"),
        (float("inf"), "double('Infinity')"),
        (0.1, "0.1D"),
        (1e300, "1e300D"),
    ),
    MONEY: ((Decimal("0.00"), "0.00"), (Decimal("-1.25"), "-1.25"), (Decimal("99.99"), "99.99")),
    WIDE: (
        (Decimal("0.000000001"), "0.000000001"),
        (Decimal("12345678901234567890.5"), "12345678901234567890.5"),
    ),
    "string": (("", "''"), ("a", "'a'"), ("7", "'7'"), ("ä€😀", "'ä€😀'")),
    "binary": ((b"", "X''"), (b"\x00\xff", "X'00FF'")),
    "date": ((date(1970, 1, 1), "DATE'1970-01-01'"), (date(9999, 12, 31), "DATE'9999-12-31'")),
    "time(6)": ((time(0), "TIME'00:00:00'"), (time(23, 59, 59, 999999), "TIME'23:59:59.999999'")),
    "timestamp": (
        (datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), "TIMESTAMP'1969-12-31 23:59:59.999999Z'"),
        (datetime(2020, 2, 29, tzinfo=UTC), "TIMESTAMP'2020-02-29 00:00:00Z'"),
    ),
    "timestamp_ntz": (
        (datetime(1, 1, 1), "TIMESTAMP_NTZ'0001-01-01 00:00:00'"),  # noqa: DTZ001
        (datetime(2020, 2, 29), "TIMESTAMP_NTZ'2020-02-29 00:00:00'"),  # noqa: DTZ001
    ),
    INTERVAL: (
        (timedelta(0), "INTERVAL '0 00:00:00' DAY TO SECOND"),
        (timedelta(days=-1, microseconds=1), "INTERVAL '-0 23:59:59.999999' DAY TO SECOND"),
    ),
    "array<int>": (([], "CAST(array() AS ARRAY<INT>)"), ([1, None], "array(1, CAST(NULL AS INT))")),
    STRUCT: (
        ({"x": -0.0, "y": None}, "named_struct('x', -0.0D, 'y', CAST(NULL AS STRING))"),
        ({"x": None, "y": "a"}, "named_struct('x', CAST(NULL AS DOUBLE), 'y', 'a')"),
        ({"x": 1.0, "y": "a"}, "named_struct('x', 1.0D, 'y', 'a')"),
    ),
    "map<string,int>": (
        ([("a", 1), ("b", None)], "map('a', 1, 'b', CAST(NULL AS INT))"),
        ([("b", None), ("a", 1)], "map('b', CAST(NULL AS INT), 'a', 1)"),
    ),
}
"""Per type its values, and the texts that Spark reads as them; NULL is one of every type."""

_SUMS: Final = {
    "tinyint": "bigint",
    "smallint": "bigint",
    "int": "bigint",
    "bigint": "bigint",
    "float": "double",
    "double": "double",
    MONEY: "decimal(19,2)",
    WIDE: WIDE,
}
_AVERAGES: Final = {**dict.fromkeys(_SUMS, "double"), MONEY: "decimal(13,6)"}
del _AVERAGES[WIDE]  # What Spark makes of it is rounded to a scale of its own.
_PIECES: Final[Mapping[str, Sequence[tuple[str, tuple[str, ...]]]]] = {
    "int": (("({0} + {1})", ("int", "int")), ("size({0})", ("array<int>",))),
    "bigint": (("({0} - {1})", ("bigint", "int")), ("CAST({0} AS BIGINT)", ("int",))),
    "smallint": (("CAST({0} AS SMALLINT)", ("boolean",)),),
    "float": (("({0} + {1})", ("float", "float")), ("CAST({0} AS FLOAT)", ("int",))),
    "double": (
        ("({0} + {1})", ("double", "double")),
        ("({0} * {1})", ("double", "float")),
        ("(- {0})", ("double",)),
        ("{0}.x", (STRUCT,)),
    ),
    MONEY: (("CAST({0} AS DECIMAL(9,2))", ("int",)),),
    WIDE: (("CAST({0} AS DECIMAL(38,9))", (MONEY,)),),
    "string": (
        ("concat({0}, {1})", ("string", "string")),
        ("substring({0}, 1, 1)", ("string",)),
        ("CAST({0} AS STRING)", ("double",)),
        ("{0}.y", (STRUCT,)),
    ),
    "binary": (("CAST({0} AS BINARY)", ("string",)),),
    "date": (("CAST({0} AS DATE)", ("timestamp",)),),
    "timestamp": (("({0} + {1})", ("timestamp", INTERVAL)),),
    INTERVAL: (("({0} - {1})", ("timestamp", "timestamp")),),
    "array<int>": (("array({0}, {1})", ("int", "int")),),
    STRUCT: (("named_struct('x', {0}, 'y', {1})", ("double", "string")),),
}
"""Per type, texts with holes and the types of what goes into them."""


def typed_plan(random: Random, depth: int = 4) -> Node:
    """Return an operator over :data:`TYPED_RELATIONS`."""
    return TypedPlans(random).node(depth)


@dataclass
class TypedPlans(Plans):
    """Plans over columns of every type."""

    relations: ClassVar[Mapping[str, Mapping[str, str]]] = TYPED_RELATIONS
    numbers: ClassVar[Sequence[str]] = tuple(_SUMS)
    computed: ClassVar[Sequence[str]] = tuple(TYPED_DOMAINS)

    def is_compared(self, column: Column) -> bool:
        """As :meth:`Plans.is_compared`: Spark compares all but maps."""
        return not column.type.startswith("map<")

    def told_apart(self, depth: int) -> Node:
        """As :meth:`Plans.told_apart`: without maps."""
        source = self.node(depth)
        if all(map(self.is_compared, source.columns)):
            return source
        return Project(source, tuple(map(reference, filter(self.is_compared, source.columns))))

    def literal(self, type_: str) -> str:
        """As :meth:`Plans.literal`."""
        values = TYPED_DOMAINS.get(type_, ())
        if not values or self.random.random() < 0.07:
            return f"CAST(NULL AS {type_})"
        text = values[min(self.random.randrange(len(values)) for _ in range(2))][1]
        return f"CAST({text} AS {type_})" if type_.startswith("decimal") else text

    def expression(self, columns: Sequence[Column], type_: str, depth: int = 2) -> Expression:
        """As :meth:`Plans.expression`."""
        column = self.column(columns, type_)
        if column is not None and (depth == 0 or self.random.random() < 0.5):
            return reference(column).expression
        choice = self.random.random()
        if type_ == BOOLEAN and depth > 0:
            return self.condition(columns, depth - 1)
        if depth > 0 and choice < 0.6 and type_ in _PIECES:
            text, types = self.random.choice(_PIECES[type_])
            parts = [self.expression(columns, t, depth - 1) for t in types]
            return combined(text.format(*(part.text for part in parts)), type_, *parts)
        if depth > 0 and choice < 0.8:
            when = self.condition(columns, 0)
            a, b = (self.expression(columns, type_, depth - 1) for _ in range(2))
            text = f"CASE WHEN {when.text} THEN {a.text} ELSE {b.text} END"
            return combined(text, type_, when, a, b)
        return Expression(self.literal(type_), type_, True)

    def key(
        self, kind: JoinKind, left: Sequence[Column], right: Sequence[Column]
    ) -> JoinKey | None:
        """As :meth:`Plans.key`."""
        return super().key(kind, [*filter(self.is_compared, left)], right)

    def generated(self, depth: int) -> Node:
        """As :meth:`Plans.generated`."""
        source = self.node(depth)
        items = self.expression(source.columns, "array<int>", 1)
        made = (Column(self.name("item"), "int", True),)
        generator = combined(f"explode({items.text})", "int", items)
        return Generate(source, generator, made, self.random.random() < 0.5)

    def call(self, columns: Sequence[Column]) -> AggregateCall:
        """As :meth:`Plans.call`."""
        plain = [*filter(self.is_compared, columns)]
        simple = [c for c in plain if c.type in TYPED_DOMAINS and "<" not in c.type]
        numbers = [c for c in plain if c.type in _SUMS]
        functions = ["count", "count_if", "bool_or"]
        functions += ["min", "max", "first", "last", "count"] if plain else []
        functions += ["collect_list", "collect_set", "max_by", "mode"] if simple else []
        functions += ["sum", "sum", "avg", "var_pop", "stddev_samp"] if numbers else []
        function = self.random.choice(functions)
        distinct = False
        arguments: list[Expression] = []
        match function:
            case "count":
                column = self.random.choice(simple) if simple else None
                one = Expression("1", "int", False)
                arguments = [one if column is None else reference(column).expression]
                distinct = column is not None and self.random.random() < 0.4
                type_ = "bigint"
            case "count_if" | "bool_or":
                arguments = [self.condition(columns)]
                type_ = "bigint" if function == "count_if" else BOOLEAN
            case "sum" | "avg" | "var_pop" | "stddev_samp":
                types = {"sum": _SUMS, "avg": _AVERAGES}.get(function, _AVERAGES)
                fitting = [c for c in numbers if c.type in types]
                if not fitting:
                    return self.call(columns)
                column = self.random.choice(fitting)
                arguments = [self.expression(columns, column.type, self.random.choice([0, 1]))]
                distinct = function == "sum" and self.random.random() < 0.2
                type_ = types[column.type] if function in ("sum", "avg") else "double"
            case "max_by":
                value, by = self.random.choice(simple), self.random.choice(simple)
                arguments = [reference(value).expression, reference(by).expression]
                type_ = value.type
            case _:
                some = plain if function in ("min", "max", "first", "last") else simple
                column = self.random.choice(some)
                arguments = [reference(column).expression]
                collected = function.startswith("collect")
                type_ = f"array<{column.type}>" if collected else column.type
        once = "DISTINCT " if distinct else ""
        text = f"{function}({once}{', '.join(a.text for a in arguments)})"
        where = self.condition(columns) if self.random.random() < 0.2 else None
        if where is not None:
            text += f" FILTER (WHERE {where.text})"
        mentioned = {name for e in (*arguments, *([where] if where else [])) for name in e.columns}
        return AggregateCall(
            name=self.name(function),
            function=function,
            text=text,
            type=type_,
            nullable=not function.startswith(("count", "collect")),
            columns=tuple(sorted(mentioned)),
            arguments=tuple(arguments),
            distinct=distinct,
            filter=where,
        )


# ---- plans that fail -------------------------------------------------------------------------


@dataclass(frozen=True)
class Failing:
    """A plan that fails on some rows, and one that tells which."""

    plan: Node
    told: Node
    """The rows of ``plan``; its last column is true for those that make it fail."""


@dataclass(frozen=True)
class _Fault:
    """An expression that fails, the same where it cannot, and when it does."""

    fails: Expression
    safe: Expression
    when: Expression


_FLAG: Final = "fails__1"
_MADE: Final = "made__1"
_GREATEST: Final = 2**63 - 1


def failing(random: Random, plan: Node) -> Failing | None:
    """Return an operator over the plan that fails on some rows; ``None``: no column can fail."""
    fault = _fault(random, plan.columns)
    if fault is None:
        return None
    made = random.choice(_FAILING)(random, plan, fault)
    if random.random() < 0.3 and not any(c.type.startswith("map<") for c in plan.columns):
        made = Failing(Distinct(made.plan), Distinct(made.told))
    return made


def _fault(random: Random, columns: Sequence[Column]) -> _Fault | None:
    fitting = [c for c in columns if c.type in ("int", "bigint", "string")]
    if not fitting:
        return None
    column = random.choice(fitting)
    x = column.name

    def of(text: str, type_: str) -> Expression:
        return Expression(text, type_, True, (x,))

    if column.type == "string":
        safe = f"CAST(try_cast({x} AS INT) AS DOUBLE)"
        return _Fault(
            of(f"CAST(CAST({x} AS INT) AS DOUBLE)", "double"),
            of(safe, "double"),
            of(f"(({x} IS NOT NULL) AND ({safe} IS NULL))", BOOLEAN),
        )
    return _Fault(
        of(f"(10 / {x})", "double"),
        of(f"(10 / nullif({x}, 0))", "double"),
        of(f"({x} <=> 0)", BOOLEAN),
    )


def _projected(_: Random, plan: Node, fault: _Fault) -> Failing:
    outputs = tuple(map(reference, plan.columns))
    told = (*outputs, Named(_MADE, fault.safe), Named(_FLAG, fault.when))
    return Failing(Project(plan, (*outputs, Named(_MADE, fault.fails))), Project(plan, told))


def _filtered(_: Random, plan: Node, fault: _Fault) -> Failing:
    def above(e: Expression) -> Expression:
        return Expression(f"({e.text} > 5)", BOOLEAN, True, e.columns)

    outputs = tuple(map(reference, plan.columns))
    either = Expression(
        f"({above(fault.safe).text} OR {fault.when.text})", BOOLEAN, True, fault.safe.columns
    )
    told = Project(Filter(plan, either), (*outputs, Named(_FLAG, fault.when)))
    return Failing(Filter(plan, above(fault.fails)), told)


def _call(name: str, function: str, argument: Expression, type_: str) -> AggregateCall:
    text = f"{function}({argument.text})"
    return AggregateCall(name, function, text, type_, True, argument.columns, (argument,))


def _summed(random: Random, plan: Node, fault: _Fault) -> Failing:
    """An argument that fails: of what is added up, or of what only the group's rows tell."""
    groups = tuple(c.name for c in plan.columns if "<" not in c.type and random.random() < 0.3)
    function = random.choice(["sum", "max"])
    fails = Aggregate(plan, groups, (_call(_MADE, function, fault.fails, "double"),))
    safe = _call(_MADE, function, fault.safe, "double")
    told = Aggregate(plan, groups, (safe, _call(_FLAG, "bool_or", fault.when, BOOLEAN)))
    return Failing(fails, told)


def _overflown(random: Random, plan: Node, fault: _Fault) -> Failing:
    """A sum that does not fit: it fails as a whole, by the rule and not by a row."""
    groups = tuple(c.name for c in plan.columns if "<" not in c.type and random.random() < 0.3)
    whole = f"CASE WHEN {fault.when.text} THEN {_GREATEST}L ELSE 0L END"
    value = Expression(whole, "bigint", True, fault.when.columns)
    wide = Expression(f"CAST({whole} AS DECIMAL(38,0))", "decimal(38,0)", True, value.columns)
    fails = Aggregate(plan, groups, (_call(_MADE, "sum", value, "bigint"),))
    summed = Aggregate(plan, groups, (_call("wide__1", "sum", wide, "decimal(38,0)"),))
    known = {column.name: column for column in summed.columns}
    over = Expression(f"(wide__1 > {_GREATEST})", BOOLEAN, True, ("wide__1",))
    narrow = Expression("try_cast(wide__1 AS BIGINT)", "bigint", True, ("wide__1",))
    told = (*(reference(known[g]) for g in groups), Named(_MADE, narrow), Named(_FLAG, over))
    return Failing(fails, Project(summed, told))


def _having(random: Random, plan: Node, _: _Fault) -> Failing:
    """A condition on groups that fails on those of two rows."""
    groups = tuple(c.name for c in plan.columns if "<" not in c.type and random.random() < 0.3)
    rows = _call(_MADE, "count", Expression("1", "int", False), "bigint")
    fault = _Fault(
        Expression(f"(10 / ({_MADE} - 2))", "double", True, (_MADE,)),
        Expression(f"(10 / nullif({_MADE} - 2, 0))", "double", True, (_MADE,)),
        Expression(f"({_MADE} = 2)", BOOLEAN, True, (_MADE,)),
    )
    return _filtered(random, Aggregate(plan, groups, (rows,)), fault)


def _windowed(random: Random, plan: Node, fault: _Fault) -> Failing:
    """An argument of a window that fails."""
    if any(c.type.startswith("map<") for c in plan.columns):
        return _projected(random, plan, fault)  # Rows with a map have no order.

    def over(argument: Expression) -> Window:
        text = f"max({argument.text})"
        call = WindowCall(_MADE, "max", text, _WHOLE, "double", True, argument.columns, (argument,))
        return Window(plan, (), (), (call,))

    shown = over(fault.safe)
    outputs = tuple(map(reference, shown.columns))
    return Failing(over(fault.fails), Project(shown, (*outputs, Named(_FLAG, fault.when))))


_WHOLE: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
_FAILING: Final = (_projected, _filtered, _summed, _overflown, _having, _windowed)
