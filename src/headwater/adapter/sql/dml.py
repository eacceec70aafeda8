"""``INSERT``, ``UPDATE`` and ``DELETE`` → their statements.

What a statement reads is found by the query that it implies (:func:`matching`): the rows of its
table under its condition, with the new values beside them. That query is also how it is evaluated,
so the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from headwater.adapter.errors import DuplicateColumn, SqlSyntaxError, Unsupported
from headwater.adapter.sql import query, statements
from headwater.adapter.sql.names import bare, quoted, quoted_name
from headwater.adapter.sql.tokens import Source, split, syntax_error
from headwater.adapter.sql.trees import (
    only,
    parse_tree,
    relation,
    strip_time,
    tree_of,
)
from headwater.adapter.sql.values import cast_to_text, evaluate, value_of

NEW = "__new_{}"
"""The name of the column with the n-th new value, of :func:`matching` and :func:`conflicting`."""

PLACE = "__place"
"""The column of :func:`conflicting` that says which of the given rows it is about."""


def insert(source: Source) -> statements.Statement:
    """``INSERT INTO t [(…)] VALUES … | query [ON CONFLICT …] [RETURNING …] [AS OF time]``."""
    source, as_of = strip_time(source)
    tree = parse_tree(source)
    if not isinstance(tree, exp.Insert):
        raise syntax_error(source, source.tokens[0])
    only(tree, "INSERT", "this", "expression", "conflict", "returning", "default")
    columns, target = None, tree.this
    if isinstance(target, exp.Schema):
        columns = tuple(query.folded(column) for column in target.expressions)
        target = target.this
    name = relation(target, "INSERT")
    rows: tuple[tuple[statements.Written, ...], ...] = ()
    selected = None
    if tree.args.get("default"):
        columns, rows = (), ((),)
    elif isinstance(tree.expression, exp.Values):
        only(tree.expression, "VALUES", "expressions")
        rows = tuple(
            tuple(_row_value(value) for value in row.expressions)
            for row in tree.expression.expressions
        )
    else:
        selected = _selected(tree.expression)
    conflict = tree.args.get("conflict")
    return statements.Insert(
        name,
        columns,
        rows,
        selected,
        None if conflict is None else _on_conflict(conflict),
        _returning(tree),
        as_of,
    )


def _row_value(value: Any) -> statements.Written:
    if isinstance(value, exp.Var) and value.name.upper() == "DEFAULT":
        return statements.DEFAULT
    return value_of(value)


def _selected(tree: Any) -> statements.Select:
    if not isinstance(tree, exp.Query):
        raise Unsupported("INSERT of this")
    query.check(tree)
    return statements.Select(tree.sql(dialect="postgres"), None, query.tables(tree))


def _on_conflict(tree: Any) -> statements.OnConflict:
    only(tree, "ON CONFLICT", "expressions", "action", "conflict_keys")
    key = tuple(
        query.folded(column.find(exp.Identifier)) for column in tree.args.get("conflict_keys") or ()
    )
    return statements.OnConflict(key, _assignments(tree.expressions, excluded=True))


def update(source: Source) -> statements.Statement:
    """``UPDATE t SET … [WHERE …] [RETURNING …] [AS OF time]``."""
    source, as_of = strip_time(source)
    tree = parse_tree(source)
    if not isinstance(tree, exp.Update):
        raise syntax_error(source, source.tokens[0])
    only(tree, "UPDATE", "this", "expressions", "where", "returning")
    name = relation(tree.this, "UPDATE")
    assignments = _assignments(tree.expressions)
    where = _where(tree)
    tables = _others(name, matching(name, where, assignments))
    return statements.Update(name, assignments, where, _returning(tree), tables, as_of)


def delete(source: Source) -> statements.Statement:
    """``DELETE FROM t [WHERE …] [RETURNING …] [AS OF time]``."""
    source, as_of = strip_time(source)
    tree = parse_tree(source)
    if not isinstance(tree, exp.Delete):
        raise syntax_error(source, source.tokens[0])
    only(tree, "DELETE", "this", "where", "returning")
    name, where = relation(tree.this, "DELETE"), _where(tree)
    others = _others(name, matching(name, where))
    return statements.Delete(name, where, _returning(tree), others, as_of)


def matching(
    table: str, where_sql: str | None, assignments: Sequence[statements.Assignment] = ()
) -> str:
    """Return the query for the rows that a statement is about, and what they become."""
    new = "".join(
        f", ({assignment.value.sql}) AS {NEW.format(number)}"
        for number, assignment in enumerate(assignments)
        if isinstance(assignment.value, statements.Computed)
    )
    where = f" WHERE {where_sql}" if where_sql else ""
    return f"SELECT *{new} FROM {quoted_name(table)}{where}"  # noqa: S608 - it was parsed, and is again


def conflicting(
    table: str,
    key: Sequence[str],
    columns: Sequence[tuple[str, str]],
    rows: Sequence[tuple[Sequence[statements.Value], int]],
    assignments: Sequence[statements.Assignment],
) -> str:
    """Return the query for what ON CONFLICT DO UPDATE computes, of rows beside those they meet.

    ``columns``: name and type of each; ``rows``: the values of each, and its place.
    """
    new = "".join(
        f", ({assignment.value.sql}) AS {NEW.format(number)}"
        for number, assignment in enumerate(assignments)
        if isinstance(assignment.value, statements.Computed)
    )
    kinds = [kind for _, kind in columns]
    given = ", ".join(
        f"({', '.join(map(_cast, values, kinds))}, {place})" for values, place in rows
    )
    names = ", ".join(map(quoted, (*(name for name, _ in columns), PLACE)))
    own = quoted(bare(table))
    same = " AND ".join(f"{own}.{quoted(k)} = excluded.{quoted(k)}" for k in key)
    return (
        f"SELECT excluded.{quoted(PLACE)} AS {quoted(PLACE)}{new} FROM {quoted_name(table)} "  # noqa: S608
        f"JOIN (VALUES {given}) AS excluded ({names}) ON {same}"
    )


def _cast(value: statements.Value, kind: str) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    return f"CAST('{cast_to_text(value).replace(chr(39), chr(39) * 2)}' AS {kind})"


def _others(table: str, sql: str) -> tuple[str, ...]:
    (source,) = split(sql)
    return tuple(name for name in query.tables(tree_of(source)) if name != table)


def _where(tree: Any) -> str | None:
    where = tree.args.get("where")
    return None if where is None else where.this.sql(dialect="postgres")


def _assignments(
    expressions: Sequence[Any], *, excluded: bool = False
) -> tuple[statements.Assignment, ...]:
    found: list[statements.Assignment] = []
    for each in expressions:
        if not isinstance(each, exp.EQ) or not isinstance(each.this, exp.Column):
            raise Unsupported("an assignment to other than one column")
        if each.this.args.get("table") is not None:
            raise SqlSyntaxError(".", detail="The column of an assignment stands alone.")
        column = query.folded(each.this.this)
        if any(column == other.column for other in found):
            raise DuplicateColumn(column)
        found.append(statements.Assignment(column, _assigned(each.expression, excluded=excluded)))
    return tuple(found)


def _assigned(
    tree: Any, *, excluded: bool
) -> statements.Constant | statements.Excluded | statements.Computed | statements.Keyword:
    if isinstance(tree, exp.Column):
        qualifier = tree.args.get("table")
        if qualifier is None and not tree.this.args.get("quoted") and _is_default(tree.name):
            return statements.DEFAULT
        if excluded and qualifier is not None and query.folded(qualifier) == "excluded":
            return statements.Excluded(query.folded(tree.this))
    if isinstance(tree, exp.Var) and _is_default(tree.name):
        return statements.DEFAULT
    try:
        return statements.Constant(evaluate(tree))
    except Unsupported:
        return statements.Computed(tree.sql(dialect="postgres"))


def _is_default(word: str) -> bool:
    return word.upper() == "DEFAULT"


def _returning(tree: Any) -> tuple[statements.Returned, ...] | None:
    returning = tree.args.get("returning")
    if returning is None:
        return None
    found = []
    for each in returning.expressions:
        column = each.unalias()
        if isinstance(column, exp.Star):
            found.append(statements.Returned("*", "*"))
        elif isinstance(column, exp.Column):
            name = query.folded(column.this)
            alias = each.args.get("alias") if isinstance(each, exp.Alias) else None
            found.append(statements.Returned(name, query.folded(alias) if alias else name))
        else:
            raise Unsupported(
                "an expression in RETURNING", hint="Return columns, and compute from them."
            )
    return tuple(found)
