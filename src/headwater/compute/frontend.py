"""SQL text to a view, for the one shape the skeleton maintains; Catalyst replaces this.

The text is Spark's dialect. Anything that is not exactly the shape of ``compute/view.py`` raises
:class:`~headwater.compute.view.UnsupportedView` with the part that is too much: a clause that was
silently left out would be a wrong view. Names resolve as Spark resolves them: without regard to
case, unqualified ones if just one input has such a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.base.errors import InvalidUsage
from headwater.compute.view import (
    SIDES,
    CountOutput,
    GroupOutput,
    InputColumn,
    JoinSumView,
    Output,
    Side,
    SumOutput,
    UnsupportedView,
)

_CLAUSES: Final = {"expressions", "from_", "joins", "group"}
_TABLE: Final = {"this", "alias", "db"}


class UnknownColumn(InvalidUsage):
    """A column that no input has, or that both have."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"column {name!r} {problem}")


class UnknownRelation(InvalidUsage):
    """A relation that does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no relation {name!r}; create it first")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The two relations by the names the query gives them, and the query over them."""

    left: str
    right: str
    query: JoinSumView


def relations_of(sql: str) -> frozenset[str]:
    """Return the names a query may mean as relations, in lower case."""
    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
    except SqlglotError as error:
        raise InvalidUsage(f"the query cannot be read: {_first_line(error)}") from error
    return frozenset(table.name.lower() for table in tree.find_all(exp.Table) if table.name)


def parse(sql: str, schemas: Mapping[str, pa.Schema]) -> Parsed:
    """Return the view that ``sql`` defines over relations with these schemas."""
    try:
        statements = sqlglot.parse(sql, dialect="spark")
    except SqlglotError as error:
        raise InvalidUsage(f"the query cannot be read: {_first_line(error)}") from error
    tree = statements[0] if len(statements) == 1 else None
    if not isinstance(tree, exp.Select):
        raise UnsupportedView("anything but one SELECT")
    for clause, value in tree.args.items():
        if value and clause not in _CLAUSES:
            raise UnsupportedView(f"{clause.strip('_').upper()}")
    return _Resolver(tree, schemas).parsed()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


class _Resolver:
    """Resolves the names of one SELECT."""

    def __init__(self, tree: Any, schemas: Mapping[str, pa.Schema]) -> None:
        joins = tree.args.get("joins") or []
        if tree.args.get("from_") is None or len(joins) != 1:
            raise UnsupportedView("other than two relations joined")
        self._tree = tree
        self._join = joins[0]
        self._tables: dict[Side, Any] = {
            "left": tree.args["from_"].this,
            "right": self._join.this,
        }
        known = {name.lower(): (name, schema) for name, schema in schemas.items()}
        self._names: dict[Side, str] = {}
        self._schemas: dict[Side, pa.Schema] = {}
        for side, table in self._tables.items():
            if not isinstance(table, exp.Table):
                raise UnsupportedView("a subquery in FROM")
            extra = [k for k, v in table.args.items() if v and k not in _TABLE]
            if extra or (table.args.get("alias") and table.args["alias"].columns):
                raise UnsupportedView(f"{table.sql(dialect='spark')} in FROM")
            found = known.get(table.name.lower())
            if found is None or table.args.get("db"):
                raise UnknownRelation(table.sql(dialect="spark"))
            self._names[side], self._schemas[side] = found
        aliases = [table.alias_or_name.lower() for table in self._tables.values()]
        if aliases[0] == aliases[1]:
            raise UnsupportedView("two relations of the same name")

    def parsed(self) -> Parsed:
        left_key, right_key = self._keys()
        group = tuple(dict.fromkeys(self._group()))
        aggregated: dict[InputColumn, int] = {}
        outputs = [self._output(item, group, aggregated) for item in self._tree.expressions]
        names = [output.name for output in outputs]
        if len({name.lower() for name in names}) != len(names):
            raise UnsupportedView("two columns of the same name; give one an alias; it")
        query = JoinSumView(left_key, right_key, group, tuple(aggregated), tuple(outputs))
        return Parsed(self._names["left"], self._names["right"], query)

    def _keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        extra = [k for k, v in self._join.args.items() if v and k not in {"this", "on", "kind"}]
        kind = (self._join.args.get("kind") or "INNER").upper()
        condition = self._join.args.get("on")
        if extra or kind != "INNER" or condition is None:
            raise UnsupportedView("a join other than [INNER] JOIN … ON")
        left: list[str] = []
        right: list[str] = []
        condition = condition.unnest()
        parts = condition.flatten() if isinstance(condition, exp.And) else [condition]
        for equality in parts:
            equal = equality.unnest()
            columns = (
                [self._column(side) for side in (equal.left, equal.right)]
                if isinstance(equal, exp.EQ)
                else []
            )
            by_side = {column.side: column.name for column in columns}
            if len(by_side) != 2:
                raise UnsupportedView("a join condition other than a.k = b.k [AND …]")
            left.append(by_side["left"])
            right.append(by_side["right"])
        return tuple(left), tuple(right)

    def _group(self) -> list[InputColumn]:
        group = self._tree.args.get("group")
        if group is None or not group.expressions:
            raise UnsupportedView("aggregates without GROUP BY")
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise UnsupportedView("GROUPING SETS, CUBE, ROLLUP or ALL")
        return [self._column(column) for column in group.expressions]

    def _output(
        self, item: Any, group: tuple[InputColumn, ...], aggregated: dict[InputColumn, int]
    ) -> Output:
        value = item.unalias()
        alias = item.alias if isinstance(item, exp.Alias) else ""
        if isinstance(value, exp.Sum) and isinstance(value.this, exp.Column):
            index = aggregated.setdefault(self._column(value.this), len(aggregated))
            return SumOutput(alias or f"sum({value.this.name})", index)
        if isinstance(value, exp.Count) and not value.expressions:
            if isinstance(value.this, exp.Star):
                return CountOutput(alias or "count(1)", None)
            if isinstance(value.this, exp.Column):
                index = aggregated.setdefault(self._column(value.this), len(aggregated))
                return CountOutput(alias or f"count({value.this.name})", index)
        if isinstance(value, exp.Column):
            column = self._column(value)
            if column not in group:
                raise UnknownColumn(value.name, "is neither in GROUP BY nor inside an aggregate")
            return GroupOutput(alias or value.name, group.index(column))
        raise UnsupportedView(f"the expression {value.sql(dialect='spark')}")

    def _column(self, value: Any) -> InputColumn:
        if not isinstance(value, exp.Column) or isinstance(value.this, exp.Star):
            raise UnsupportedView(f"the expression {value.sql(dialect='spark')} here")
        qualifier, name = value.table.lower(), value.name.lower()
        found: list[InputColumn] = []
        for side in SIDES:
            if qualifier and self._tables[side].alias_or_name.lower() != qualifier:
                continue
            matching = [n for n in self._schemas[side].names if n.lower() == name]
            found.extend(InputColumn(side, match) for match in matching)
        if len(found) != 1:
            problem = "is ambiguous; qualify it" if found else "does not exist"
            raise UnknownColumn(value.sql(dialect="spark"), problem)
        return found[0]
