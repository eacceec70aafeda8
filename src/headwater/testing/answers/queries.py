"""Random queries in PostgreSQL's dialect, over the tables of ``world.py``.

    Queries(Random(7)).query()       "SELECT … FROM t AS q1 LEFT JOIN (…) AS q2 ON … WHERE …"

All that a user may put together: joins of every kind, subqueries in FROM, IN, EXISTS and as values,
outer queries that use none of a subquery's columns, CTEs read twice, set operations, FILTER,
DISTINCT, HAVING, grouping sets, windows with ties and frames, LIMIT, VALUES, LATERAL.

Invariant: SQL says what the answer is, as a multiset, and as a list where the query has an order.
Rows between which an order leaves a choice are equal in all that is asked of them. What may fail on
a row stands in the outermost SELECT, above all that could leave rows out, and is of that row: it is
evaluated, whoever answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from headwater.testing.answers.expressions import NUMBERS, WHOLE, Expressions, Scope, Term
from headwater.testing.answers.world import COLUMNS, TYPES, VALUES, Type

_JOINS: Final = ("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
_SETS: Final = ("UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
_FRAMES: Final = (
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
)
FALLIBLE: Final[Mapping[Type, Sequence[str]]] = {
    "int": (
        "10 / {0}",
        "7 % {0}",
        "2.5 / {0}",
        "substr('abc', 1, {0})",
        "({0} * 1000000000)",
        "make_date(2024, {0}, 1)",
        "cast({0} * 20000 as smallint)",
    ),
    "bigint": ("10 / {0}", "cast({0} as int)", "({0} * 4000000000)"),
    "numeric": ("1 / {0}", "cast({0} as numeric(2,2))", "cast({0} * 1000000000 as int)"),
    "float": ("1 / {0}", "sqrt({0})", "cast({0} * 1e10::float8 as int)"),
    "text": (
        "cast({0} as int)",
        "cast({0} as numeric(9,2))",
        "cast({0} as double precision)",
        "cast({0} as boolean)",
        "cast({0} as date)",
        "cast({0} as timestamp)",
        "{0}::bigint",
    ),
    "date": (
        "({0} + 2147483647)",
        "({0} - 2147483647)",
        "({0} - interval '9000 years')",
        "({0} - 10000000 * interval '1 day')",
    ),
}
"""What fails on some values of a column, by its type."""
FAILING: Final = 0.1
"""How many of the queries may."""
OF_JSON: Final = 0.03
"""How many are of jsonb."""
COLUMNS_MAX: Final = 4
DEPTHS: Final = (1, 1, 1, 1, 2, 2, 3)
"""How many SELECTs stand inside each other, at most. Most mistakes are seen in small queries."""

MOST: Final[tuple[Type, ...]] = (*(NUMBERS * 2), "text", "text", *TYPES)
"""Types that most tables have come more often: a column is asked for, not a literal."""


@dataclass(frozen=True, slots=True)
class Query:
    """A text, and whether it says in which order its rows come."""

    sql: str
    is_ordered: bool


@dataclass(frozen=True, slots=True)
class _From:
    """What stands behind FROM, and what may be asked of it."""

    sql: str
    scope: tuple[Term, ...]


class Queries(Expressions):
    """Makes queries; expressions may have subqueries in them."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._last = 0
        self._shared: dict[str, tuple[Type, ...]] = {}
        self._nested = 0

    def _name(self, what: str) -> str:
        self._last += 1
        return f"{what}{self._last}"

    def query(self) -> Query:
        """Return a whole query."""
        if self._is(FAILING):
            return Query(self._failing(), is_ordered=False)
        if self._is(OF_JSON):
            return Query(self._of_json(), is_ordered=False)
        types = self._types(COLUMNS_MAX)
        shared = self._with() if self._is(0.15) else ""
        sql = self.rows(types, self.random.choice(DEPTHS))
        is_ordered = self._is(0.2)
        if is_ordered:
            if " LIMIT " in sql or " ORDER BY " in sql or _is_set(sql):
                sql = f"SELECT * FROM ({sql}) AS {self._name('q')}"  # noqa: S608 - our own texts
            sql += f" ORDER BY {self._every(len(types))}"
            if self._is(0.4):
                sql += f" LIMIT {self.random.choice((0, 1, 2, 3))}"
                if self._is(0.4):
                    sql += " OFFSET 1"
        return Query(shared + sql, is_ordered)

    def _of_json(self) -> str:
        """Return a query of jsonb, which has no order here and few functions."""
        source = self._from(1)
        json = self.column("jsonb", source.scope)
        if json is None:
            return f"SELECT {self.literal('jsonb')} AS c1 FROM {source.sql}"  # noqa: S608 - ours
        text = self.random.choice(
            (
                "SELECT {0} AS c1, count(*) AS c2 FROM {1} GROUP BY {0}",
                "SELECT DISTINCT {0} AS c1 FROM {1}",
                "SELECT coalesce({0}, '7') AS c1, {0} IS NULL AS c2 FROM {1}",
                "SELECT count(DISTINCT {0}) AS c1 FROM {1} WHERE {0} <> '7'",
                "SELECT {0} AS c1 FROM {1} WHERE {0} IN ('7', '[1, null]') UNION SELECT '7'::jsonb",
                "SELECT CASE WHEN {0} = '{{\"a\": 1}}' THEN {0} END AS c1 FROM {1}",
            )
        )
        return text.format(json, source.sql)

    def _failing(self) -> str:
        """Return a query that fails on some rows, if they are there."""
        source = self._from(1)
        made = [text for text in (self._fails(source.scope) for _ in range(4)) if text]
        outputs = made[: self.random.choice((1, 1, 2))] or ["1"]
        where = ""
        if self._is(0.3):
            where = f" WHERE {Expressions.of(self, 'bool', source.scope, 1)}"
        return f"SELECT {_listed(outputs)} FROM {source.sql}{where}"  # noqa: S608 - our own texts

    def _fails(self, scope: Scope) -> str | None:
        """Return an expression that fails on some values of a column."""
        type_ = self.random.choice(list(FALLIBLE))
        column = self.column(type_, scope)
        return None if column is None else self.random.choice(FALLIBLE[type_]).format(column)

    def rows(self, types: Sequence[Type], depth: int) -> str:
        """Return a query whose columns ``c1``, ``c2``, … have these types."""
        kinds: dict[Callable[[Sequence[Type], int], str], int] = {
            self._plain: 6,
            self._grouped: 5,
            self._windowed: 3,
            self._combined: 2 if depth > 1 else 0,
            self._first: 1,
            self._limited: 1,
            self._around: 2 if depth > 1 else 0,
        }
        (make,) = self.random.choices(list(kinds), list(kinds.values()))
        return make(types, depth)

    def _types(self, most: int) -> list[Type]:
        return [self.random.choice(MOST) for _ in range(self.random.randint(1, most))]

    def _every(self, count: int) -> str:
        """Return an order by all columns, in some order and some direction."""
        places = self.random.sample(range(1, count + 1), count)
        ends = ("", "", " DESC", " NULLS FIRST", " DESC NULLS LAST")
        return ", ".join(f"{place}{self.random.choice(ends)}" for place in places)

    # ---- FROM ------------------------------------------------------------------------------

    def _with(self) -> str:
        """Return a WITH; what it names is read like a table afterwards."""
        entries = []
        for _ in range(self.random.choice((1, 1, 2))):
            types, name = self._types(3), self._name("w")
            hint = self.random.choice(("", "", "MATERIALIZED ", "NOT MATERIALIZED "))
            entries.append(f"{name} AS {hint}({self.rows(types, 2)})")
            self._shared[name] = tuple(types)
        return f"WITH {', '.join(entries)} "

    def _item(self, depth: int) -> _From:
        alias = self._name("q")
        if self._shared and self._is(0.5):
            name = self.random.choice(list(self._shared))
            return self._named(f"{name} AS {alias}", alias, self._shared[name])
        if depth > 1 and self._is(0.35):
            types = self._types(3)
            return self._named(f"({self.rows(types, depth - 1)}) AS {alias}", alias, types)
        if self._is(0.06):
            return self._constant(alias)
        table = self.random.choice(list(COLUMNS))
        columns = COLUMNS[table]
        scope = tuple(Term(f"{alias}.{name}", type_) for name, type_ in columns.items())
        return _From(f"{table} AS {alias}", scope)

    def _named(self, sql: str, alias: str, types: Sequence[Type]) -> _From:
        return _From(sql, tuple(Term(f"{alias}.c{n}", t) for n, t in enumerate(types, 1)))

    def _constant(self, alias: str) -> _From:
        types: list[Type] = [self.random.choice(("int", "text", "bool")) for _ in range(2)]
        rows = [
            f"({', '.join(self.random.choice((*VALUES[t], 'NULL')) for t in types)})"
            for _ in range(self.random.randint(1, 3))
        ]
        # The first row says what the columns are.
        first = f"({', '.join(VALUES[type_][0] for type_ in types)})"
        names = ", ".join(f"c{n}" for n in range(1, len(types) + 1))
        listed = ", ".join([first, *rows])
        return self._named(f"(VALUES {listed}) AS {alias}({names})", alias, types)

    def _from(self, depth: int) -> _From:
        found = self._item(depth)
        for _ in range(self.random.choice((0, 0, 0, 1, 1, 2))):
            other = self._item(depth - 1)
            if self._is(0.15):
                word = self.random.choice((" CROSS JOIN ", ", "))
                sql = f"{found.sql}{word}{other.sql}"
                found = _From(sql, (*found.scope, *other.scope))
                if word == ", ":
                    return found  # A JOIN behind it would not see what stands before the comma.
            else:
                word = self.random.choice(_JOINS)
                condition = f"ON {self._on(found.scope, other.scope, equal=word == 'FULL JOIN')}"
                if self._is(0.2) and all(_has_one_key(each.scope) for each in (found, other)):
                    condition = "USING (k)"
                sql = f"{found.sql} {word} {other.sql} {condition}"
                found = _From(sql, (*found.scope, *other.scope))
        if self._is(0.05):
            return self._lateral(found)
        return found

    def _on(self, left: Scope, right: Scope, *, equal: bool) -> str:
        """Return a condition of a join; of a FULL JOIN PostgreSQL wants one that it can merge."""
        pairs = [(a, b) for a in left for b in right if self._meet(a, b)]
        conditions = [
            f"{a.sql} = {b.sql}"
            for a, b in (self.random.sample(pairs, min(len(pairs), 1 + self._is(0.2))))
        ]
        if equal and conditions:
            return " AND ".join(conditions)
        if equal:
            return "true"
        if not conditions or self._is(0.25):
            conditions.append(Expressions.of(self, "bool", (*left, *right), 1))
        return " AND ".join(conditions)

    def _meet(self, left: Term, right: Term) -> bool:
        return left.type == right.type or (left.type in NUMBERS and right.type in NUMBERS)

    def _lateral(self, found: _From) -> _From:
        """Return the same beside a subquery that reads it."""
        alias, inner = self._name("q"), self._item(1)
        pairs = [(a, b) for a in found.scope for b in inner.scope if a.type == b.type]
        where = ""
        if pairs:
            outer, own = self.random.choice(pairs)
            where = f" WHERE {own.sql} = {outer.sql}"
        types: list[Type] = [self.random.choice(TYPES)]
        value = self._aggregate(types[0], inner.scope)
        text = f"(SELECT {value} AS c1 FROM {inner.sql}{where}) AS {alias}"  # noqa: S608 - ours
        sql = f"{found.sql} CROSS JOIN LATERAL {text}"
        return _From(sql, (*found.scope, *self._named("", alias, types).scope))

    def _where(self, scope: Scope, chance: float = 0.5) -> str:
        return f" WHERE {self.of('bool', scope, 2)}" if self._is(chance) else ""

    # ---- SELECT ----------------------------------------------------------------------------

    def _plain(self, types: Sequence[Type], depth: int) -> str:
        source = self._from(depth)
        outputs = [self.of(type_, source.scope, 2) for type_ in types]
        distinct = "DISTINCT " if self._is(0.15) else ""
        where = self._where(source.scope)
        return f"SELECT {distinct}{_listed(outputs)} FROM {source.sql}{where}"  # noqa: S608 - ours

    def _around(self, types: Sequence[Type], depth: int) -> str:
        """Return a query that uses no column of what it reads."""
        sources = [self._item(depth).sql for _ in range(self.random.choice((1, 1, 2)))]
        outputs = [
            "count(*)" if type_ == "bigint" and len(types) == 1 else self.literal(type_)
            for type_ in types
        ]
        return f"SELECT {_listed(outputs)} FROM {', '.join(sources)}"  # noqa: S608 - our own texts

    def _grouped(self, types: Sequence[Type], depth: int) -> str:
        source = self._from(depth)
        ordered = [term for term in source.scope if term.type in TYPES]
        keys = self._keys(source.scope, ordered)
        outputs = []
        for type_ in types:
            own = [key.sql for key in keys if key.type == type_]
            if own and self._is(0.5):
                outputs.append(self.random.choice(own))
            else:
                outputs.append(self._aggregate(type_, source.scope))
        where = self._where(source.scope, 0.35)
        having = f" HAVING {self._having(source.scope)}" if self._is(0.25) else ""
        by = self._by(keys)
        listed = _listed(outputs)
        return f"SELECT {listed} FROM {source.sql}{where}{by}{having}"  # noqa: S608 - our own texts

    def _keys(self, scope: Scope, ordered: Sequence[Term]) -> list[Term]:
        found = self.random.sample(ordered, min(len(ordered), self.random.choice((0, 1, 1, 2))))
        if self._is(0.2):
            found.append(Term(Expressions.of(self, "int", scope, 1), "int"))
        return [key for key in found if any(term.sql in key.sql for term in scope)]

    def _by(self, keys: Sequence[Term]) -> str:
        if not keys:
            return " GROUP BY ()" if self._is(0.1) else ""
        listed = ", ".join(key.sql for key in keys)
        if self._is(0.8):
            return f" GROUP BY {listed}"
        sets = (
            f"ROLLUP ({listed})",
            f"CUBE ({listed})",
            f"GROUPING SETS (({listed}), ())",
            f"GROUPING SETS (({keys[0].sql}), ({listed}), ())",
        )
        return f" GROUP BY {self.random.choice(sets)}"

    def _having(self, scope: Scope) -> str:
        value = self._aggregate(self.random.choice(NUMBERS), scope)
        compared = f"{value} {self.random.choice(('>', '<=', '<>'))} {self.literal('numeric')}"
        return self.random.choice((f"count(*) > {self.random.choice((0, 1, 2))}", compared))

    def _aggregate(self, type_: Type, scope: Scope) -> str:
        """Return an aggregate of this type."""

        def of(wanted: Type) -> str:
            # Not a subquery inside an aggregate: what is correlated with what, few dialects agree.
            return Expressions.of(self, wanted, scope, self.random.choice((0, 0, 1)))

        calls: list[str] = []
        if type_ == "bigint":
            some = self.random.choice(TYPES)
            calls = ["count(*)", f"count({of(some)})", f"count(DISTINCT {of(some)})"]
            calls.append(f"sum({of('int')})")
        elif type_ == "numeric":
            calls = [f"sum({of(self.random.choice(NUMBERS[1:]))})"]
            calls += [f"avg({of(self.random.choice(NUMBERS))})", f"sum(DISTINCT {of('numeric')})"]
        elif type_ == "float":
            calls = [f"sum({of('float')})", f"avg({of('float')})"]
        elif type_ == "bool":
            calls = [f"bool_and({of('bool')})", f"bool_or({of('bool')})", f"every({of('bool')})"]
        elif type_ == "text":
            value = of("text")
            calls = [f"string_agg({value}, ',' ORDER BY {value})"]
        if type_ != "bool":
            calls += [f"min({of(type_)})", f"max({of(type_)})"]
        call = self.random.choice(calls)
        if self._is(0.15):
            call += f" FILTER (WHERE {Expressions.of(self, 'bool', scope, 1)})"
        return call

    def _windowed(self, types: Sequence[Type], depth: int) -> str:
        source = self._from(depth)
        ordered = [term for term in source.scope if term.type in TYPES]
        outputs = [
            self._window(type_, ordered) if self._is(0.6) else self.of(type_, ordered, 1)
            for type_ in types
        ]
        where = self._where(source.scope, 0.3)
        return f"SELECT {_listed(outputs)} FROM {source.sql}{where}"  # noqa: S608 - our own texts

    def _window(self, type_: Type, scope: Sequence[Term]) -> str:
        some = self.random.sample(list(scope), min(len(scope), self.random.choice((0, 1, 1, 2))))
        partition = f"PARTITION BY {', '.join(term.sql for term in some)} " if some else ""
        # By all columns, so that rows which it leaves side by side are equal.
        every = ", ".join(term.sql for term in self.random.sample(list(scope), len(scope)))
        value = Expressions.of(self, type_, scope, 0)
        if type_ in WHOLE and self._is(0.5):
            return self._ranked(type_, scope, partition, every)
        calls = [f"lag({value})", f"lead({value}, 2)", f"first_value({value})"]
        if type_ != "bool":
            calls += [f"max({value})", f"min({value})"]
        if type_ in ("float", "numeric"):
            calls += [f"sum({value})", f"avg({value})"]
        call = self.random.choice(calls)
        if call.startswith(("lag", "lead", "first")):
            return f"{call} OVER ({partition}ORDER BY {every})"
        tied = self.random.choice(list(scope)).sql
        frame = self.random.choice(("", "", *_FRAMES))
        order = f"ORDER BY {every if frame.startswith('ROWS') else tied} {frame}"
        return f"{call} OVER ({partition}{order if frame or self._is(0.7) else ''})"

    def _ranked(self, type_: Type, scope: Sequence[Term], partition: str, every: str) -> str:
        tied = self.random.choice(list(scope)).sql
        descending = self.random.choice(("", " DESC", " DESC NULLS LAST", " NULLS FIRST"))
        calls = (
            f"row_number() OVER ({partition}ORDER BY {every})",
            f"rank() OVER ({partition}ORDER BY {tied}{descending})",
            f"dense_rank() OVER ({partition}ORDER BY {tied}{descending})",
            f"count(*) OVER ({partition}ORDER BY {tied})",
            f"count({tied}) OVER ({partition})",
            f"ntile(2) OVER ({partition}ORDER BY {every})",
        )
        call = self.random.choice(calls)
        return f"cast({call} as {type_})"

    def _combined(self, types: Sequence[Type], depth: int) -> str:
        word = self.random.choice(_SETS)
        left, right = self.rows(types, depth - 1), self.rows(types, depth - 1)
        return f"({left}) {word} ({right})"

    def _first(self, types: Sequence[Type], depth: int) -> str:
        """Return a DISTINCT ON with an order that leaves no choice."""
        source = self._from(depth)
        outputs = [self.of(type_, source.scope, 1) for type_ in types]
        inner = f"SELECT {_listed(outputs)} FROM {source.sql}"  # noqa: S608 - our own texts
        names = [f"c{n}" for n in range(1, len(types) + 1)]
        rest = self.random.sample(names[1:], len(names) - 1)
        by = ", ".join([f"c1{self.random.choice(('', ' DESC'))}", *rest])
        listed = ", ".join(names)
        return (
            f"SELECT DISTINCT ON (c1) {listed} "  # noqa: S608 - our own texts
            f"FROM ({inner}) AS {self._name('q')} ORDER BY {by}"
        )

    def _limited(self, types: Sequence[Type], depth: int) -> str:
        """Return the first rows in an order by all columns."""
        source = self._from(depth)
        outputs = [self.of(type_, source.scope, 1) for type_ in types]
        text = f"SELECT {_listed(outputs)} FROM {source.sql}{self._where(source.scope, 0.3)}"  # noqa: S608
        text += f" ORDER BY {self._every(len(types))} LIMIT {self.random.choice((0, 1, 2, 3))}"
        return text + (" OFFSET 1" if self._is(0.3) else "")

    # ---- subqueries in expressions ---------------------------------------------------------

    def of(self, type_: Type, scope: Scope, depth: int) -> str:
        """Return an expression of this type, which may have a subquery in it."""
        if depth > 0 and self._nested < 2 and self._is(0.08):
            self._nested += 1
            try:
                if type_ == "bool":
                    return self._exists(scope)
                return self._scalar(type_, scope)
            finally:
                self._nested -= 1
        return super().of(type_, scope, depth)

    def _correlated(self, inner: Scope, scope: Scope) -> str:
        """Return a WHERE that may ask for what the outer row has."""
        pairs = [(a, b) for a in scope for b in inner if a.type == b.type and a.type in TYPES]
        conditions = []
        if pairs and self._is(0.6):
            outer, own = self.random.choice(pairs)
            conditions.append(f"{own.sql} = {outer.sql}")
        if self._is(0.3):
            conditions.append(Expressions.of(self, "bool", inner, 1))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _scalar(self, type_: Type, scope: Scope) -> str:
        inner = self._item(1)
        where = self._correlated(inner.scope, scope)
        call = self._aggregate(type_, inner.scope)
        return f"(SELECT {call} FROM {inner.sql}{where})"  # noqa: S608 - our own texts

    def _exists(self, scope: Scope) -> str:
        inner = self._item(1)
        where = self._correlated(inner.scope, scope)
        if self._is(0.4):
            word = self.random.choice(("EXISTS", "NOT EXISTS"))
            return f"({word} (SELECT 1 FROM {inner.sql}{where}))"  # noqa: S608 - our own texts
        type_ = self._met(inner.scope)
        own = Expressions.of(self, type_, inner.scope, 0)
        value = Expressions.of(self, type_, scope, 0)
        how = self.random.choice(("IN", "IN", "NOT IN", "= ANY", "< ALL", ">= ANY"))
        return f"({value} {how} (SELECT {own} FROM {inner.sql}{where}))"  # noqa: S608 - ours


def _has_one_key(scope: Scope) -> bool:
    return sum(term.sql.endswith(".k") for term in scope) == 1


def _listed(outputs: Sequence[str]) -> str:
    return ", ".join(f"{output} AS c{number}" for number, output in enumerate(outputs, 1))


def _is_set(sql: str) -> bool:
    return sql.startswith("(")
