# ruff: noqa: S608 - SQL is what it makes, of texts of its own
"""Random queries as text: what a user may write, through Catalyst and all, over three tables.

    query = random_query(Random(7), TABLES, depth=3)       query.sql, and the types of its columns

``testing/plans.py`` makes plans, and so never meets the front end; these are SQL, and have what
only SQL has: correlated and scalar subqueries, outer queries that use none of their columns, IN and
NOT IN, GROUPING SETS, PIVOT, windows with frames, CTEs that are read twice, lateral views, windows
of time, filters on the current time, and columns of every type.

Answers do not depend on an order that SQL leaves open: what is ordered is so by all columns, lists
are sorted. Doubles are small multiples of 1/4, so that sums of them are exact in any order. Nothing
fails on a row. So Spark itself, which knows nothing of ours, says what the answer is.

Relied on by: ``tests/spark/test_random_sql.py``, ``testing/random_failures.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

Types = Mapping[str, str]

STRUCT: Final = "struct<a:int,b:string>"
INTERVAL: Final = "interval day to second"
MONEY: Final = "decimal(9,2)"

TABLES: Final[Mapping[str, Types]] = {
    "t": {"k": "int", "g": "string", "x": "bigint", "d": "double", "n": MONEY, "b": "boolean"},
    "u": {"k": "int", "h": "string", "y": "int", "ts": "timestamp", "dt": "date"},
    "v": {"k": "bigint", "s": STRUCT, "xs": "array<int>", "nt": "timestamp_ntz", "iv": INTERVAL},
}

DOMAINS: Final[Mapping[str, Sequence[tuple[Any, str]]]] = {
    "boolean": ((True, "true"), (False, "false")),
    "int": ((1, "1"), (2, "2"), (3, "3"), (0, "0")),
    "bigint": ((1, "1L"), (2, "2L"), (-3, "-3L"), (2**53 + 1, "9007199254740993L")),
    "double": ((0.25, "0.25D"), (-1.5, "-1.5D"), (3.0, "3.0D")),
    MONEY: ((Decimal("1.25"), "1.25"), (Decimal("-0.01"), "-0.01"), (Decimal("7.00"), "7.00")),
    "string": (("a", "'a'"), ("b", "'b'"), ("", "''"), ("ä€", "'ä€'")),
    "date": ((date(2020, 2, 29), "DATE'2020-02-29'"), (date(2020, 3, 1), "DATE'2020-03-01'")),
    "timestamp": (
        (datetime(2020, 2, 29, 0, 0, 1, tzinfo=UTC), "TIMESTAMP'2020-02-29 00:00:01Z'"),
        (datetime(2020, 2, 29, 0, 0, 4, tzinfo=UTC), "TIMESTAMP'2020-02-29 00:00:04Z'"),
        (datetime(2020, 2, 29, 0, 0, 11, 500, UTC), "TIMESTAMP'2020-02-29 00:00:11.0005Z'"),
        (datetime(1970, 1, 1, 0, 0, 0, 4_000, UTC), "TIMESTAMP'1970-01-01 00:00:00.004Z'"),
        (datetime(1970, 1, 1, 0, 0, 0, 9_001, UTC), "TIMESTAMP'1970-01-01 00:00:00.009001Z'"),
        (datetime(1969, 12, 31, 23, 59, 59, 0, UTC), "TIMESTAMP'1969-12-31 23:59:59Z'"),
    ),
    "timestamp_ntz": (
        (datetime(2020, 2, 29), "TIMESTAMP_NTZ'2020-02-29 00:00:00'"),  # noqa: DTZ001
        (datetime(2020, 2, 29, 0, 0, 7), "TIMESTAMP_NTZ'2020-02-29 00:00:07'"),  # noqa: DTZ001
    ),
    INTERVAL: (
        (timedelta(seconds=5), "INTERVAL '0 00:00:05' DAY TO SECOND"),
        (timedelta(days=-1), "INTERVAL '-1 00:00:00' DAY TO SECOND"),
    ),
    STRUCT: (
        ({"a": 1, "b": None}, "named_struct('a', 1, 'b', CAST(NULL AS STRING))"),
        ({"a": 2, "b": "a"}, "named_struct('a', 2, 'b', 'a')"),
    ),
    "array<int>": (([], "CAST(array() AS ARRAY<INT>)"), ([1, 2, None], "array(1, 2, NULL)")),
}
"""Per type its values, the frequent ones first, and their texts; NULL is one of every type."""

NOW: Final = "now()"
"""The time of the answer, in the text of a query."""

_ORDERED: Final = ("int", "bigint", "double", MONEY, "string", "date", "timestamp")
_NUMBERS: Final = ("int", "bigint", "double", MONEY)


@dataclass(frozen=True)
class Query:
    """A SELECT, and what its columns are."""

    sql: str
    columns: Types


def random_query(random: Random, tables: Mapping[str, Types], depth: int = 3) -> Query:
    """Return a query over these tables, with about so many SELECTs inside each other."""
    return Queries(random, tables).query(depth)


@dataclass
class Queries:
    """What makes queries; ``random_failures.py`` makes others of it."""

    random: Random
    tables: Mapping[str, Types]
    _last: int = 0
    _shared: dict[str, Query] = field(default_factory=dict)

    def _name(self, what: str) -> str:
        self._last += 1
        return f"{what}{self._last}"

    def _is(self, chance: float) -> bool:
        return self.random.random() < chance

    def query(self, depth: int) -> Query:
        """Return a query of any kind."""
        kinds: dict[Callable[[int], Query], int] = {
            self._select: 4,
            self._grouped: 4,
            self._windowed: 2,
            self._combined: 2,
            self._top: 1,
            self._twice: 1,
            self._pivoted: 1,
            self._exploded: 1,
            self._timed: 1,
            self._around: 1,
        }
        (make,) = self.random.choices(list(kinds), list(kinds.values()))
        return make(depth)

    # ---- what is selected from -------------------------------------------------------------

    def _source(self, depth: int) -> tuple[str, Types]:
        """Return one item of FROM, and its columns, qualified."""
        alias = self._name("q")
        if depth <= 1 or self._is(0.3):
            name = self.random.choice(list(self.tables))
            text, columns = name, self.tables[name]
            moment = self._of(columns, ["timestamp"])
            if moment is not None and self._is(0.3):
                text = self._at_its_time(name, moment[0])
        else:
            inner = self.query(depth - 1)
            text, columns = f"({inner.sql})", inner.columns
        return f"{text} AS {alias}", {f"{alias}.{name}": type_ for name, type_ in columns.items()}

    def _at_its_time(self, table: str, moment: str) -> str:
        """Return the rows of a table whose time has come, and not yet gone."""
        since = f"{moment} <= {NOW}"
        until = f"{NOW} < {moment} + INTERVAL '0.005' SECOND"
        where = self.random.choice([since, until, f"{since} AND {until}"])
        return f"(SELECT * FROM {table} WHERE {where})"

    def _from(self, depth: int) -> tuple[str, Types]:
        text, columns = self._source(depth)
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            other, others = self._source(depth - 1)
            on = self._on(columns, others)
            kinds = ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
            kinds += ["LEFT SEMI JOIN", "LEFT ANTI JOIN"]
            kind = self.random.choice(kinds)
            text = f"{text} {kind} {other} ON {on}"
            if "SEMI" not in kind and "ANTI" not in kind:
                columns = {**columns, **others}
        return text, columns

    def _on(self, left: Types, right: Types) -> str:
        pairs = [
            (a, b)
            for a, of in left.items()
            for b, to in right.items()
            if of == to or {of, to} == {"int", "bigint"}
        ]
        terms = []
        for a, b in self.random.sample(pairs, min(len(pairs), self.random.choice([1, 1, 2]))):
            terms.append(f"{a} {self.random.choice(['=', '=', '=', '<=>'])} {b}")
        if self._is(0.25) or not terms:
            terms.append(self._condition({**left, **right}, 0))
        return " AND ".join(f"({term})" for term in terms)

    # ---- expressions -----------------------------------------------------------------------

    def _literal(self, type_: str) -> str:
        text = self.random.choice(DOMAINS[type_])[1] if type_ in DOMAINS else "NULL"
        return f"CAST({text} AS {type_})"

    def _of(self, columns: Types, types: Sequence[str]) -> tuple[str, str] | None:
        fitting = [(name, type_) for name, type_ in columns.items() if type_ in types]
        return self.random.choice(fitting) if fitting else None

    def _expression(self, columns: Types) -> tuple[str, str]:
        """Return something computed, and its type."""
        name, type_ = self.random.choice(list(columns.items()))
        choice = self.random.random()
        if choice < 0.5:
            return name, type_
        match type_:
            case "int":
                texts = [f"{name} + 1", f"{name} % 2", f"coalesce({name}, 9)"]
                return self.random.choice(texts), type_
            case "double":
                return self.random.choice([f"-{name}", f"abs({name})"]), type_
            case "string":
                return self.random.choice([f"concat({name}, 'z')", f"upper({name})"]), type_
            case "timestamp":
                return self.random.choice([(f"CAST({name} AS DATE)", "date"), (name, type_)])
            case "date":
                return f"date_add({name}, 1)", type_
            case t if t == STRUCT:
                return self.random.choice([(f"{name}.a", "int"), (f"{name}.b", "string")])
            case "array<int>":
                return self.random.choice(
                    [(f"size({name})", "int"), (f"sort_array({name})", type_)]
                )
            case _:
                other = self.random.choice([a for a, t in columns.items() if t == type_])
                condition = self._condition(columns, 0)
                return f"CASE WHEN {condition} THEN {name} ELSE {other} END", type_

    def _condition(self, columns: Types, depth: int) -> str:
        choice = self.random.uniform(0.0 if depth > 0 else 0.42, 1.0)
        if choice < 0.4:
            return self._subquery(columns, depth - 1)
        if choice < 0.5:
            a, b = (self._condition(columns, 0) for _ in range(2))
            return f"({a} {self.random.choice(['AND', 'OR'])} {b})"
        if choice < 0.55:
            return f"(NOT {self._condition(columns, 0)})"
        found = self._of(columns, _ORDERED)
        if found is None:
            name = self.random.choice(list(columns))
            return f"({name} IS {self.random.choice(['', 'NOT '])}NULL)"
        name, type_ = found
        if choice < 0.65:
            return f"({name} IS {self.random.choice(['', 'NOT '])}NULL)"
        if choice < 0.75:
            values = ", ".join(self._literal(type_) for _ in range(2))
            return f"({name} {self.random.choice(['IN', 'NOT IN'])} ({values}))"
        others = [other for other, of in columns.items() if of == type_]
        other = self.random.choice(others) if self._is(0.5) else self._literal(type_)
        return f"({name} {self.random.choice(['=', '<', '>=', '<>', '<=>'])} {other})"

    def _subquery(self, columns: Types, depth: int) -> str:
        """Return a condition that asks another query."""
        inner, found = self._source(depth)
        pairs = [(a, b) for a, of in columns.items() for b, to in found.items() if of == to]
        where = self._condition(found, 0) if self._is(0.4) else "true"
        if not pairs:
            return f"EXISTS (SELECT 1 FROM {inner} WHERE {where})"
        a, b = self.random.choice(pairs)
        match self.random.choice(["exists", "in", "not in", "scalar", "correlated"]):
            case "exists":
                negated = self.random.choice(["", "NOT "])
                return f"{negated}EXISTS (SELECT 1 FROM {inner} WHERE {a} = {b} AND {where})"
            case "in":
                return f"{a} IN (SELECT {b} FROM {inner} WHERE {where})"
            case "not in":
                return f"{a} NOT IN (SELECT {b} FROM {inner} WHERE {where})"
            case "scalar" if columns[a] in _ORDERED:
                return f"{a} >= (SELECT min({b}) FROM {inner} WHERE {where})"
            case "correlated":
                return f"(SELECT count(*) FROM {inner} WHERE {a} = {b} AND {where}) < 2"
            case _:
                return f"{a} IN (SELECT {b} FROM {inner} WHERE {where})"

    # ---- queries ---------------------------------------------------------------------------

    def _listed(self, texts: Sequence[tuple[str, str]]) -> tuple[str, Types]:
        """Return a select list of these expressions, and the columns it has."""
        columns: dict[str, str] = {}
        shown = []
        for text, type_ in texts:
            name = self._name("c")
            columns[name] = type_
            shown.append(f"{text} AS {name}")
        return ", ".join(shown), columns

    def _where(self, columns: Types) -> str:
        return f" WHERE {self._condition(columns, 2)}" if self._is(0.5) else ""

    def _some(self, columns: Types, least: int = 1, most: int = 4) -> list[tuple[str, str]]:
        return [self._expression(columns) for _ in range(self.random.randint(least, most))]

    def _select(self, depth: int) -> Query:
        text, columns = self._from(depth)
        made, outputs = self._listed(self._some(columns))
        once = "DISTINCT " if self._is(0.2) else ""
        return Query(f"SELECT {once}{made} FROM {text}{self._where(columns)}", outputs)

    def _around(self, depth: int) -> Query:
        """Return a query that uses no column of what it reads."""
        sources = [self._source(depth)[0] for _ in range(self.random.choice([1, 1, 2]))]
        made, type_ = self.random.choice([("count(*)", "bigint"), ("1", "int")])
        name = self._name("c")
        return Query(f"SELECT {made} AS {name} FROM {', '.join(sources)}", {name: type_})

    def _call(self, columns: Types) -> tuple[str, str]:
        name, type_ = self.random.choice(list(columns.items()))
        functions = ["count(*)", "count", "count(DISTINCT", "min", "max"]
        functions += ["bool_or"]
        if type_ in _NUMBERS:
            functions += ["sum", "sum", "avg", "sum(DISTINCT", "var_pop", "percentile"]
        if type_ not in _ORDERED:
            functions = ["count(*)", "count", "bool_or"]
        if type_ in ("int", "string"):
            functions += ["collect_list", "collect_set", "max_by"]
        function = self.random.choice(functions)
        where = f" FILTER (WHERE {self._condition(columns, 0)})" if self._is(0.2) else ""
        match function:
            case "count(*)":
                return f"count(*){where}", "bigint"
            case "count":
                return f"count({name}){where}", "bigint"
            case "count(DISTINCT":
                return f"count(DISTINCT {name}){where}", "bigint"
            case "sum" | "sum(DISTINCT":
                once = "DISTINCT " if "DISTINCT" in function else ""
                sums = {"double": "double", MONEY: "decimal(19,2)"}
                wide = f"CAST({name} AS DECIMAL(20,0))" if type_ == "bigint" else name
                to = "decimal(30,0)" if type_ == "bigint" else sums.get(type_, "bigint")
                return f"sum({once}{wide}){where}", to
            case "avg":
                return f"CAST(avg({name}){where} AS DOUBLE)", "double"
            case "var_pop":
                return f"round(var_pop(CAST({name} AS INT) % 7){where}, 6)", "double"
            case "percentile":
                return f"percentile(CAST({name} AS INT), 0.5){where}", "double"
            case "bool_or":
                return f"bool_or({self._condition(columns, 0)}){where}", "boolean"
            case "collect_list" | "collect_set":
                return f"sort_array({function}({name}){where})", f"array<{type_}>"
            case "max_by":
                return f"max_by({name}, {name}){where}", type_
            case _:
                return f"{function}({name}){where}", type_

    def _grouped(self, depth: int) -> Query:
        text, columns = self._from(depth)
        plain = {name: type_ for name, type_ in columns.items() if "<" not in type_}
        keys = self.random.sample(list(plain), min(len(plain), self.random.choice([0, 1, 1, 2, 3])))
        calls = [self._call(columns) for _ in range(self.random.randint(1, 3))]
        texts = [(key, columns[key]) for key in keys] + calls
        made, outputs = self._listed(texts)
        shape = self.random.random()
        by = ""
        if keys:
            all_keys = ", ".join(keys)
            by = f" GROUP BY {all_keys}"
            if shape < 0.12:
                by = f" GROUP BY ROLLUP ({all_keys})"
            elif shape < 0.2:
                by = f" GROUP BY CUBE ({all_keys})"
            elif shape < 0.3:
                sets = ", ".join(f"({key})" for key in keys)
                by = f" GROUP BY GROUPING SETS (({all_keys}), {sets}, ())"
        having = ""
        if self._is(0.2):
            having = f" HAVING {self.random.choice(['count(*) > 1', 'count(*) % 2 = 1'])}"
        return Query(f"SELECT {made} FROM {text}{self._where(columns)}{by}{having}", outputs)

    def _windowed(self, depth: int) -> Query:
        inner = self._plain(depth)
        alias = self._name("w")
        # By all columns: rows that tie are the same.
        order = [f"{alias}.{name}" for name in inner.columns]
        first = self.random.choice(order)
        order = [first, *(name for name in order if name != first)]
        directions = ["", " DESC", " NULLS LAST", " DESC NULLS FIRST"]
        ordered = ", ".join(f"{name}{self.random.choice(directions)}" for name in order)
        by = self.random.choice(list(inner.columns))
        partition = f"PARTITION BY {alias}.{by} " if self._is(0.7) else ""
        frames = ["", "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"]
        frames += ["ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"]
        frames += ["ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING", "RANGE CURRENT ROW"]
        over = f"OVER ({partition}ORDER BY {ordered})"
        framed = f"OVER ({partition}ORDER BY {ordered} {self.random.choice(frames)})"
        texts = [(f"{alias}.{name}", type_) for name, type_ in inner.columns.items()]
        of, type_ = self.random.choice(texts)
        calls = [
            (f"row_number() {over}", "int"),
            (f"rank() OVER ({partition}ORDER BY {first})", "int"),
            (f"dense_rank() OVER ({partition}ORDER BY {first} DESC)", "int"),
            (f"ntile(2) {over}", "int"),
            (f"lag({of}) {over}", type_),
            (f"lead({of}, 2) IGNORE NULLS {over}", type_),
            (f"count({of}) {framed}", "bigint"),
            (f"first_value({of}) {framed}", type_),
            (f"last_value({of}) IGNORE NULLS {framed}", type_),
            (f"count(*) OVER ({partition})", "bigint"),
        ]
        if type_ in _ORDERED:
            calls += [(f"max({of}) {framed}", type_), (f"min({of}) {framed}", type_)]
        if type_ in ("int", "double"):
            calls += [(f"sum({of}) {framed}", "double" if type_ == "double" else "bigint")]
        chosen = self.random.sample(calls, self.random.randint(1, 3))
        made, outputs = self._listed([*texts, *chosen])
        sql = f"SELECT {made} FROM ({inner.sql}) AS {alias}"
        if self._is(0.3):
            name = [c for c, t in outputs.items() if t in ("int", "bigint")]
            if name:
                sql = f"SELECT * FROM ({sql}) WHERE {name[-1]} {self.random.choice(['<=', '='])} 2"
        return Query(sql, outputs)

    def _plain(self, depth: int) -> Query:
        """Return a query whose columns can be ordered."""
        text, columns = self._from(depth)
        texts = [e for e in self._some(columns, 2, 4) if e[1] in _ORDERED] or [("1", "int")]
        made, outputs = self._listed(texts)
        return Query(f"SELECT {made} FROM {text}{self._where(columns)}", outputs)

    def _combined(self, depth: int) -> Query:
        left = self._plain(depth)
        text, columns = self._from(depth - 1)
        shown = []
        for type_ in left.columns.values():
            found = self._of(columns, [type_])
            # By a name of its own: Spark cannot plan a column that is twice in INTERSECT ALL.
            shown.append(f"{found[0] if found else self._literal(type_)} AS {self._name('r')}")
        right = f"SELECT {', '.join(shown)} FROM {text}{self._where(columns)}"
        kinds = ["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
        sql = f"({left.sql}) {self.random.choice(kinds)} ({right})"
        return Query(f"SELECT * FROM ({sql})", left.columns)

    def _top(self, depth: int) -> Query:
        inner = self._plain(depth)
        order = ", ".join(
            f"{name}{self.random.choice(['', ' DESC', ' NULLS LAST'])}" for name in inner.columns
        )
        offset = self.random.choice(["", "", " OFFSET 1"])
        limit = self.random.choice([1, 2, 5])
        return Query(
            f"SELECT * FROM ({inner.sql}) ORDER BY {order} LIMIT {limit}{offset}", inner.columns
        )

    def _twice(self, depth: int) -> Query:
        inner, name = self.query(depth - 1) if depth > 1 else self._grouped(1), self._name("e")
        a, b = ({f"{n}.{c}": t for c, t in inner.columns.items()} for n in ("a1", "b1"))
        made, outputs = self._listed(self._some({**a, **b}))
        pair = self.random.choice(list(inner.columns))
        kind = self.random.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
        sql = f"WITH {name} AS ({inner.sql}) SELECT {made} FROM {name} AS a1 {kind} {name} AS b1"
        return Query(f"{sql} ON a1.{pair} = b1.{pair}", outputs)

    def _pivoted(self, depth: int) -> Query:
        text, columns = self._from(depth)
        key, number = self._of(columns, ["string", "int"]), self._of(columns, ["int", "double"])
        group = self._of(columns, _ORDERED)
        if key is None or number is None or group is None:
            return self._select(depth)
        type_ = "double" if number[1] == "double" else "bigint"
        values = [self.random.choice(DOMAINS[key[1]])[1], "NULL"]
        sums = [(f"sum({number[0]})", type_), ("count(*)", "bigint")]
        call, made = self.random.choice(sums)
        inner = f"SELECT {group[0]} AS gg, {key[0]} AS kk, {number[0]} AS nn FROM {text}"
        call = call.replace(number[0], "nn")
        names = [self._name("p") for _ in values]
        listed = ", ".join(f"{v} AS {n}" for v, n in zip(values, names, strict=True))
        sql = f"SELECT * FROM ({inner}) PIVOT ({call} FOR kk IN ({listed}))"
        return Query(sql, {"gg": group[1], **dict.fromkeys(names, made)})

    def _exploded(self, depth: int) -> Query:
        text, columns = self._from(depth)
        found = self._of(columns, ["array<int>"])
        items = found[0] if found else "array(1, NULL, 2)"
        outer = self.random.choice(["", "OUTER "])
        item, place = self._name("i"), self._name("i")
        name = self._name("lv")
        call, made = self.random.choice(
            [(f"explode({items})", [item]), (f"posexplode({items})", [place, item])]
        )
        view = f" LATERAL VIEW {outer}{call} {name} AS {', '.join(made)}"
        columns = {**columns, **{f"{name}.{each}": "int" for each in made}}
        shown, outputs = self._listed([(f"{name}.{item}", "int"), *self._some(columns, 1, 2)])
        return Query(f"SELECT {shown} FROM {text}{view}{self._where(columns)}", outputs)

    def _timed(self, depth: int) -> Query:
        text, columns = self._from(depth)
        found = self._of(columns, ["timestamp"])
        if found is None:
            return self._grouped(depth)
        moment = found[0]
        kind, window = self.random.choice(
            [
                ("window", f"window({moment}, '5 seconds')"),
                ("window", f"window({moment}, '6 seconds', '3 seconds')"),
                ("session_window", f"session_window({moment}, '4 seconds')"),
            ]
        )
        key = self._of(columns, ["int", "string"])
        call, type_ = self._call(columns)
        texts = [(f"{kind}.start", "timestamp"), (f"{kind}.end", "timestamp"), (call, type_)]
        by = window
        if key is not None and self._is(0.6):
            texts.append(key)
            by += f", {key[0]}"
        made, outputs = self._listed(texts)
        return Query(f"SELECT {made} FROM {text}{self._where(columns)} GROUP BY {by}", outputs)
