# ruff: noqa: S608 - SQL is what it makes, of texts of its own
"""Random queries that fail on some of their rows, wherever an expression can stand.

    query = failing_query(Random(7), TABLES, depth=2)      as ``testing/random_sql.py``

``testing/typed_plans.py`` puts what fails at the top of a plan, where it can say by itself which
rows fail. Here it is anywhere: in keys and conditions of joins of all kinds, in subqueries (scalar
ones of two rows as well), in branches of UNION, INTERSECT and EXCEPT, in generators, grouping sets,
DISTINCT, the order of LIMIT and of windows, aggregates and their FILTER, bounds on the current
time. Nobody but the product says which rows are evaluated (``compute/catalyst/witness.py``), so
what is held against each other are its own answers: kept, hydrated, recomputed and asked.

Relied on by: ``tests/spark/test_random_failures.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from headwater.testing.random_sql import MONEY, STRUCT, Queries, Query, Types

_FAULTS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "int": (
        ("10 / {0}", "double"),
        ("10 div {0}", "bigint"),
        ("7 % {0}", "int"),
        ("element_at(array(5, 6, 7), {0})", "int"),
        ("make_date(2020, {0}, 1)", "date"),
        ("({0} + 2147483645)", "int"),
        ("CASE WHEN {0} > 1 THEN 10 div ({0} - 3) ELSE 0 END", "bigint"),
        ("if({0} = 0, raise_error('none'), {0})", "int"),
    ),
    "bigint": (("CAST({0} AS INT)", "int"), ("10 / ({0} + 3)", "double")),
    "double": (("1 / ({0} - 3)", "double"), ("CAST(1 / ({0} + 1.5) AS INT)", "int")),
    MONEY: (("CAST({0} AS DECIMAL(2,2))", "decimal(2,2)"), ("10 div ({0} + 0.01)", "bigint")),
    "string": (("CAST(translate({0}, 'ab', '12') AS DOUBLE)", "double"),),
    STRUCT: (("10 div ({0}.a - 2)", "bigint"),),
    "array<int>": (("{0}[1]", "int"),),
}
"""Per type, what fails on some value of it (``random_sql.DOMAINS``), and the type it yields."""


def failing_query(random: Random, tables: Mapping[str, Types], depth: int = 2) -> Query:
    """Return a query over these tables that may fail on some of their rows."""
    return _Failing(random, tables).query(depth)


@dataclass
class _Failing(Queries):
    often: float = 0.12
    """How often an expression is one that may fail."""

    def _fault(self, columns: Types) -> tuple[str, str] | None:
        found = self._of(columns, list(_FAULTS))
        if found is None:
            return None
        text, type_ = self.random.choice(_FAULTS[found[1]])
        return text.format(found[0]), type_

    def _expression(self, columns: Types) -> tuple[str, str]:
        fault = self._fault(columns) if self._is(self.often) else None
        return super()._expression(columns) if fault is None else fault

    def _condition(self, columns: Types, depth: int) -> str:
        fault = self._fault(columns) if self._is(self.often) else None
        if fault is None:
            return super()._condition(columns, depth)
        text, type_ = fault
        if type_ == "date":
            return f"({text} > DATE'2020-01-15')"
        other = self._of(columns, [type_]) if self._is(0.5) else None
        comparison = self.random.choice(["=", "<", ">=", "<>", "<=>"])
        return f"({text} {comparison} {other[0] if other else '2'})"

    def _on(self, left: Types, right: Types) -> str:
        """As it is there, with a key of one side that may fail, or both."""
        text = super()._on(left, right)
        if not self._is(0.35):
            return text
        a, b = self._fault(left), self._fault(right)
        number = ["int", "bigint", "double"]
        here, there = self._of(left, number), self._of(right, number)
        keys = [
            f"{x[0]} {self.random.choice(['=', '=', '<=>', '<'])} {y[0]}"
            for x, y in ((a, there), (here, b), (a, b))
            if x and y and "date" not in (x[1], y[1])
        ]
        if not keys:
            return text
        key = self.random.choice(keys)
        return key if self._is(0.4) else f"{text} AND {key}"

    def _subquery(self, columns: Types, depth: int) -> str:
        """As it is there, or a scalar one that may have two rows, or fail by itself."""
        if not self._is(0.4):
            return super()._subquery(columns, depth)
        inner, found = self._source(depth)
        a, fault = self._of(columns, ["int", "double"]), self._fault(found)
        b = self._of(found, ["int", "double"])
        if a is None or b is None or fault is None or fault[1] == "date":
            return super()._subquery(columns, depth)
        kind = self.random.choice(["two", "two", "aggregate", "correlated", "in", "exists"])
        match kind:
            case "two":
                return f"{a[0]} <= (SELECT {b[0]} FROM {inner} WHERE {self._condition(found, 0)})"
            case "aggregate":
                return f"{a[0]} >= (SELECT max({fault[0]}) FROM {inner})"
            case "correlated":
                return f"{a[0]} >= (SELECT max({fault[0]}) FROM {inner} WHERE {b[0]} = {a[0]})"
            case "in":
                isin = self.random.choice(["IN", "NOT IN"])
                return f"{a[0]} {isin} (SELECT {fault[0]} FROM {inner})"
            case _:
                negated = self.random.choice(["", "NOT "])
                where = f"{fault[0]} > 1 AND {b[0]} = {a[0]}"
                return f"{negated}EXISTS (SELECT 1 FROM {inner} WHERE {where})"

    def _call(self, columns: Types) -> tuple[str, str]:
        fault = self._fault(columns) if self._is(self.often) else None
        if fault is None:
            return super()._call(columns)
        function = self.random.choice(["max", "min", "count", "count(DISTINCT", "collect_list"])
        match function:
            case "count" | "count(DISTINCT":
                return f"{function}{'' if '(' in function else '('} {fault[0]})", "bigint"
            case "collect_list":
                return f"sort_array(collect_list({fault[0]}))", f"array<{fault[1]}>"
            case _:
                return f"{function}({fault[0]})", fault[1]

    def _exploded(self, depth: int) -> Query:
        text, columns = self._from(depth)
        fault = self._fault({c: t for c, t in columns.items() if t == "int"})
        if fault is None or fault[1] == "date":
            return super()._exploded(depth)
        outer = self.random.choice(["", "OUTER "])
        item, name = self._name("i"), self._name("lv")
        view = f" LATERAL VIEW {outer}explode(array(CAST({fault[0]} AS INT), 1)) {name} AS {item}"
        shown, outputs = self._listed([(f"{name}.{item}", "int"), *self._some(columns, 1, 2)])
        return Query(f"SELECT {shown} FROM {text}{view}{self._where(columns)}", outputs)

    def _grouped(self, depth: int) -> Query:
        """As it is there, of a query whose columns, which are the keys, may fail."""
        if not self._is(0.3):
            return super()._grouped(depth)
        inner, alias = self._plain(depth), self._name("g")
        keys = [f"{alias}.{name}" for name in inner.columns][:2]
        by = self.random.choice([", ".join(keys), f"ROLLUP ({', '.join(keys)})"])
        calls = [self._call({f"{alias}.{n}": t for n, t in inner.columns.items()})]
        texts = [(key, inner.columns[key.split(".")[1]]) for key in keys]
        made, outputs = self._listed([*texts, *calls])
        having = f" HAVING 6 / (count(*) - {self.random.choice([2, 3])}) > -9"
        tail = having if self._is(0.5) else ""
        return Query(f"SELECT {made} FROM ({inner.sql}) AS {alias} GROUP BY {by}{tail}", outputs)

    def _at_its_time(self, table: str, moment: str) -> str:
        number = self._of({c: t for c, t in self.tables[table].items() if t == "int"}, ["int"])
        if number is None or not self._is(0.5):
            return super()._at_its_time(table, moment)
        late = f"{moment} + make_dt_interval(0, 0, 0, 7 % {number[0]})"
        return f"(SELECT * FROM {table} WHERE {late} <= now())"
