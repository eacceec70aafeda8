"""A second opinion: what DuckDB answers to a query of Spark SQL over the same rows.

    duck = Duck(tables)
    duck.answer(sql)                       # a table, by the dialect of DuckDB
    difference(view_rows, duck.answer(sql))  # what is wrong with the view, or nothing

The text is translated by sqlglot; a few rewritings stand for differences of meaning:

- **Ties.** Our answers break ties by the canonical order of the row. So an ``ORDER BY`` with
  ``LIMIT`` goes on with all output columns, ascending and NULL first; and a window over one table
  whose columns are known, with those of the table.
- **NULLs** sort as in Spark: first ascending, last descending. sqlglot writes that down.
- **Averages in comparisons.** DuckDB's ``avg`` of decimals is a double, Spark's a decimal with four
  more digits. ``0.2 * avg(x)`` as a double may be just above a number that it equals, so inside of
  a comparison the average is cast to the decimal.

Answers are compared exactly, after a cast to the view's own types that may not lose anything, but
for columns that are floating in DuckDB's answer, because its averages and quotients of decimals
are: those may differ by one in the view's last digit (decimals) or by a few bits (doubles).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

RELATIVE: Final = 1e-12
_NUMERICS: Final = {
    "headwater_total": exp.Add,
    "headwater_difference": exp.Sub,
    "headwater_product": exp.Mul,
    "headwater_remainder": exp.Mod,
    "headwater_quotient": exp.Div,
}
_ALIKE: Final = {"headwater_upper": exp.Upper, "headwater_lower": exp.Lower}
"""DuckDB's map code point by code point, too."""


def translated(sql: str, columns: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return a query of Spark SQL in DuckDB's dialect; ``columns`` are those of known tables."""
    tree = sqlglot.parse_one(sql, read="spark")
    for average in list(tree.find_all(exp.Avg)):
        if average.find_ancestor(exp.LT, exp.GT, exp.LTE, exp.GTE):
            average.replace(exp.cast(average.copy(), "DECIMAL(18, 6)"))
    for each in list(tree.find_all(exp.Exists)):
        if each.expression is not None:  # exists(array, e -> …), whose function sqlglot drops
            tests = exp.Anonymous(this="list_transform", expressions=[each.this, each.expression])
            each.replace(exp.Anonymous(this="list_bool_or", expressions=[tests]))
    for call in list(tree.find_all(exp.Anonymous)):
        operator = _NUMERICS.get(str(call.this).lower())
        if operator is not None:
            call.replace(
                exp.paren(operator(this=call.expressions[0], expression=call.expressions[1]))
            )
        if str(call.this).lower() in _ALIKE:
            call.replace(_ALIKE[str(call.this).lower()](this=call.expressions[0]))
        if str(call.this).lower() == "headwater_held":
            call.replace(call.expressions[0])
    if tree.args.get("limit") and tree.args.get("order"):
        outputs = [exp.Literal.number(n + 1) for n in range(len(tree.selects))]
        _break_ties(tree.args["order"], outputs)
    for window in tree.find_all(exp.Window):
        select = window.find_ancestor(exp.Select)
        assert select is not None, "a window is computed by a SELECT"
        source = select.args["from_"].this
        known = isinstance(source, exp.Table) and not select.args.get("joins")
        if known and window.args.get("order"):
            names = (columns or {}).get(source.name, ())
            _break_ties(window.args["order"], [exp.column(name) for name in names])
    return str(tree.sql(dialect="duckdb"))


def _break_ties(order: Any, by: Sequence[Any]) -> None:
    for expression in by:
        order.append("expressions", exp.Ordered(this=expression, nulls_first=True))


class Duck:
    """A DuckDB in memory that sees some tables."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        import duckdb

        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET threads = 1")
        self._columns = {name: table.column_names for name, table in tables.items()}
        for name, table in tables.items():
            self._connection.register(name, table)

    def execute(self, text: str) -> pa.Table:
        """Run a text in DuckDB's own dialect."""
        return self._connection.sql(text).to_arrow_table()

    def answer(self, sql: str) -> pa.Table:
        """Answer a query of Spark SQL."""
        return self.execute(translated(sql, self._columns))

    def close(self) -> None:
        """Give back what it holds."""
        self._connection.close()


def difference(view: pa.Table, answer: pa.Table) -> str | None:
    """Say how a view's rows (a snapshot, with ``__diff``) differ from an answer, if they do."""
    if "__diff" in view.column_names:
        counts = view.column("__diff").to_numpy()
        repeated = np.repeat(np.arange(counts.size), counts)
        view = view.drop_columns(["__diff"]).take(pa.array(repeated))
    columns = range(view.num_columns)
    near = [n for n in columns if pa.types.is_floating(answer.column(n).type)]
    exact = [n for n in columns if n not in near]
    found = _sorted(view, exact, near)
    try:
        wanted = _sorted(_as(answer, view.schema, exact), exact, near)
    except pa.ArrowInvalid as error:
        return f"the answer does not fit the view's types: {error}"
    if len(found) != len(wanted):
        return f"{len(found)} rows, not {len(wanted)}: {_first(found, wanted)}"
    slack = {n: _slack(view.schema.field(n).type) for n in near}
    for ours, theirs in zip(found, wanted, strict=True):
        for n in columns:
            if ours[n] != theirs[n] and not (n in slack and _is_near(ours[n], theirs[n], slack[n])):
                return f"{view.column_names[n]} is {ours[n]!r}, not {theirs[n]!r}, in {ours}"
    return None


def _as(answer: pa.Table, schema: pa.Schema, exact: list[int]) -> pa.Table:
    columns = [
        column.cast(schema.field(n).type) if n in exact else column
        for n, column in enumerate(answer.columns)
    ]
    return pa.table(columns, names=[f"c{n}" for n in range(len(columns))])


def _sorted(table: pa.Table, exact: list[int], near: list[int]) -> list[tuple[Any, ...]]:
    """Return the rows, sorted by their exact columns; near ones as floats, only then."""
    columns = [pc.cast(c, pa.float64()) if n in near else c for n, c in enumerate(table.columns)]
    named = pa.table(columns, names=[f"c{n}" for n in range(len(columns))])
    rows = [tuple(row.values()) for row in named.to_pylist()]
    return sorted(rows, key=lambda row: [(row[n] is not None, row[n]) for n in (*exact, *near)])


def _slack(type_: pa.DataType) -> float:
    return 10.0**-type_.scale if pa.types.is_decimal(type_) else 0.0


def _is_near(ours: Any, theirs: Any, slack: float) -> bool:
    if ours is None or theirs is None:
        return False
    return bool(abs(ours - theirs) <= slack + RELATIVE * max(abs(ours), abs(theirs)))


def _first(found: list[Any], wanted: list[Any]) -> str:
    for number, row in enumerate(found):
        if number >= len(wanted) or row != wanted[number]:
            return f"row {number} is {row}, wanted {wanted[number : number + 1]}"
    return f"{wanted[len(found)]} is missing"
