"""Text → :data:`~.statements.Statement`: one function per statement, chosen by its first words.

- Queries, ``CREATE TABLE``, ``INSERT`` and ``DELETE`` are read by sqlglot's PostgreSQL dialect.
  sqlglot is lenient (it reads ``foo bar`` as an aliased column), so from its trees we take only
  what we know: :func:`_only` refuses every node with a part that is not on its list. What is not
  understood is refused, never dropped.
- Everything that PostgreSQL does not have, or that sqlglot swallows unparsed, is read by
  recursive descent over the same tokens: ``AS OF``, ``CREATE MATERIALIZATION``, ``SHOW``,
  ``SET``, ``DROP``, transactions.

Pure: no catalog is looked at. All statements of a text are parsed before the first is returned,
so that a syntax error anywhere means that nothing of the text was executed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.dialects import Postgres
from sqlglot.errors import ParseError
from sqlglot.tokens import TokenType

from headwater.adapter.errors import (
    DuplicateColumn,
    InvalidDefinition,
    SqlSyntaxError,
    UnknownColumn,
    Unsupported,
)
from headwater.adapter.sql import commands, query, statements, text
from headwater.adapter.sql.tokens import Cursor, Source, is_word, split, syntax_error, unqualified
from headwater.adapter.sql.types import arrow_type
from headwater.adapter.sql.values import evaluate


def parse(sql: str) -> tuple[statements.Statement, ...]:
    """The statements of ``sql``, in order; none if there is nothing but space and comments."""
    return tuple(statement for statement, _ in parse_with_text(sql))


def parse_with_text(sql: str) -> tuple[tuple[statements.Statement, str], ...]:
    """The statements of ``sql``, each with the text it came from."""
    return tuple((_statement(source), source.text) for source in split(sql))


def _statement(source: Source) -> statements.Statement:
    cursor = Cursor(source)
    for words, read in _STATEMENTS:
        if cursor.peek(*words):
            return read(source)
    first = source.tokens[0]
    if is_word(first, *_KNOWN_ELSEWHERE):
        length = 2 if is_word(first, "CREATE", "ALTER") else 1
        command = " ".join(token.text.upper() for token in source.tokens[:length])
        raise Unsupported(command, position=first.start + 1)
    raise syntax_error(source, first)


# --- queries --------------------------------------------------------------------------------------


def _select(source: Source) -> statements.Statement:
    source, as_of = _strip_as_of(source)
    tree = _tree(source)
    if as_of is None:
        session = query.session_columns(tree)
        if session is not None:
            return statements.SelectSession(session)
    return statements.Select(source.text, as_of, query.tables(tree))


def _strip_as_of(source: Source) -> tuple[Source, int | None]:
    """Cut a final ``AS OF <time>`` off: it belongs to the statement, outside parentheses."""
    depth = 0
    for index, token in enumerate(source.tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        cursor = Cursor(source, index)
        if index == 0 or depth or not cursor.accept("AS", "OF") or not _is_time(cursor):
            continue  # `AS of` with no time after it is an alias: PostgreSQL does not reserve OF.
        as_of = _time(cursor)
        cursor.finish()
        return Source(source.whole, source.tokens[:index]), as_of
    return source, None


def _is_time(cursor: Cursor) -> bool:
    return cursor.peek_type(TokenType.NUMBER, TokenType.STRING) or any(
        cursor.peek(word) for word in ("AT", "TIMESTAMP", "TIMESTAMPTZ")
    )


def _time(cursor: Cursor) -> int:
    """Milliseconds since the Unix epoch: as a number, or as a timestamp in quotes."""
    if cursor.accept("AT", "LEAST"):
        raise Unsupported("AS OF AT LEAST")
    number = cursor.accept_type(TokenType.NUMBER)
    if number is not None:
        if not number.isdigit():
            raise Unsupported(f"AS OF {number}", detail="A time is whole milliseconds.")
        return int(number)
    cursor.accept_any("TIMESTAMP", "TIMESTAMPTZ")
    written = cursor.string()
    if written.isascii() and written.isdigit():
        return int(written)
    instant = text.timestamp_from_text(written, zoned=True)
    # Downwards, in whole numbers: a time names the millisecond that contains it.
    return int(instant.timestamp()) * 1000 + instant.microsecond // 1000


def _create_materialized_view(source: Source) -> statements.Statement:
    cursor = Cursor(source)
    cursor.expect("CREATE", "MATERIALIZED", "VIEW")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.relation()
    if cursor.peek("("):
        raise Unsupported("a column list of a materialized view", hint="Name columns with AS.")
    if cursor.peek("WITH"):
        raise Unsupported("an option of a materialized view")
    cursor.expect("AS")
    body = cursor.rest()
    without_time, as_of = _strip_as_of(body)
    if as_of is not None:
        raise Unsupported("AS OF in a materialized view")
    tables = query.tables(_tree(without_time))
    return statements.CreateMaterializedView(name, body.text, tables, if_not_exists)


def _tree(source: Source) -> Any:
    """sqlglot's tree of a query, checked to be one we may run."""
    tree = _parse_tree(source)
    if not isinstance(tree, exp.Query | exp.Values):
        raise syntax_error(source, source.tokens[0])
    query.check(tree)
    return tree


def _parse_tree(source: Source) -> Any:
    """What sqlglot makes of exactly this statement."""
    try:
        trees = Postgres().parser().parse(list(source.tokens), source.whole)
    except ParseError as error:
        raise _from_sqlglot(source, error) from error
    assert len(trees) == 1, "a statement has no semicolon inside"
    return trees[0]


def _from_sqlglot(source: Source, error: ParseError) -> SqlSyntaxError:
    """sqlglot says where by line and column of the token's *last* character."""
    where = error.errors[0] if error.errors else {}
    for token in source.tokens:
        if (token.line, token.col) == (where.get("line"), where.get("col")):
            return syntax_error(source, token)
    return SqlSyntaxError(None)


def _only(node: Any, what: str, *allowed: str) -> None:
    """Refuse a node that has parts beyond the allowed ones."""
    for part, value in node.args.items():
        if value and part not in allowed:
            raise Unsupported(f"{part.rstrip('_').replace('_', ' ').upper()} in {what}")


# --- tables ---------------------------------------------------------------------------------------


def _create_table(source: Source) -> statements.Statement:
    tree = _parse_tree(source)
    if not isinstance(tree, exp.Create):
        raise syntax_error(source, source.tokens[0])
    if tree.expression is not None:
        raise Unsupported("CREATE TABLE AS")
    _only(tree, "CREATE TABLE", "this", "kind", "exists")
    if not isinstance(tree.this, exp.Schema):
        raise SqlSyntaxError(None, detail="A table has a list of columns.")
    name = _relation(tree.this.this, "CREATE TABLE")
    columns: list[statements.ColumnDef] = []
    key: tuple[str, ...] = ()
    keys: tuple[str, ...]
    for part in tree.this.expressions:
        if isinstance(part, exp.ColumnDef):
            column, is_key = _column(part)
            if any(column.name == other.name for other in columns):
                raise DuplicateColumn(column.name)
            columns.append(column)
            keys = (column.name,) if is_key else ()
        elif isinstance(part, exp.PrimaryKey):
            keys = tuple(query.folded(_identifier_of(column)) for column in part.expressions)
        elif isinstance(part, exp.Identifier):
            raise SqlSyntaxError(part.name, detail=f'Column "{part.name}" has no type.')
        else:
            raise Unsupported(f"the constraint {part.sql(dialect='postgres')}")
        if keys and key:
            raise InvalidDefinition(f'multiple primary keys for table "{name}" are not allowed')
        key = key or keys
    if not columns:
        raise Unsupported("a table without columns")
    return statements.CreateTable(
        name, _with_key(name, columns, key), key, bool(tree.args["exists"])
    )


def _with_key(
    table: str, columns: list[statements.ColumnDef], key: tuple[str, ...]
) -> tuple[statements.ColumnDef, ...]:
    """The columns, those of the key not nullable, the key checked to consist of columns."""
    names = {column.name for column in columns}
    for index, name in enumerate(key):
        if name not in names:
            raise UnknownColumn(name, table)
        if name in key[:index]:
            raise DuplicateColumn(name)
    return tuple(
        statements.ColumnDef(column.name, column.type, column.nullable and column.name not in key)
        for column in columns
    )


def _column(part: Any) -> tuple[statements.ColumnDef, bool]:
    name = query.folded(part.this)
    if part.args.get("kind") is None:
        raise SqlSyntaxError(name, detail=f'Column "{name}" has no type.')
    nullable, is_key = True, False
    for constraint in part.args.get("constraints") or ():
        if isinstance(constraint.kind, exp.NotNullColumnConstraint):
            nullable = bool(constraint.kind.args.get("allow_null"))
        elif isinstance(constraint.kind, exp.PrimaryKeyColumnConstraint):
            is_key = True
        else:
            raise Unsupported(f"the column constraint {constraint.sql(dialect='postgres')}")
    return statements.ColumnDef(name, arrow_type(part.args["kind"]), nullable), is_key


def _identifier_of(part: Any) -> Any:
    """A key column stands as an identifier, or inside the ordering sqlglot puts around it."""
    return part if isinstance(part, exp.Identifier) else part.find(exp.Identifier)


def _relation(table: Any, what: str) -> str:
    _only(table, what, "this", "db", "catalog")
    return unqualified([query.folded(part) for part in table.parts])


def _insert(source: Source) -> statements.Statement:
    _refuse_as_of(source)
    tree = _parse_tree(source)
    if not isinstance(tree, exp.Insert):
        raise syntax_error(source, source.tokens[0])
    _only(tree, "INSERT", "this", "expression")
    if not isinstance(tree.expression, exp.Values):
        raise Unsupported("INSERT other than of VALUES")
    _only(tree.expression, "VALUES", "expressions")
    columns = None
    target = tree.this
    if isinstance(target, exp.Schema):
        columns = tuple(query.folded(column) for column in target.expressions)
        target = target.this
    rows = tuple(
        tuple(evaluate(value) for value in row.expressions) for row in tree.expression.expressions
    )
    return statements.Insert(_relation(target, "INSERT"), columns, rows)


def _delete(source: Source) -> statements.Statement:
    _refuse_as_of(source)
    tree = _parse_tree(source)
    if not isinstance(tree, exp.Delete):
        raise syntax_error(source, source.tokens[0])
    _only(tree, "DELETE", "this", "where")
    where = tree.args.get("where")
    where_sql = None if where is None else where.this.sql(dialect="postgres")
    return statements.Delete(_relation(tree.this, "DELETE"), where_sql)


def _refuse_as_of(source: Source) -> None:
    if _strip_as_of(source)[1] is not None:
        raise Unsupported("AS OF in a statement that writes")


_STATEMENTS: tuple[tuple[tuple[str, ...], Callable[[Source], statements.Statement]], ...] = (
    (("SELECT",), _select),
    (("WITH",), _select),
    (("VALUES",), _select),
    (("(",), _select),
    (("INSERT",), _insert),
    (("DELETE",), _delete),
    (("CREATE", "MATERIALIZATION"), commands.create_materialization),
    (("CREATE", "MATERIALIZED"), _create_materialized_view),
    (("CREATE", "TABLE"), _create_table),
    (("DROP",), commands.drop),
    (("SHOW",), commands.show),
    (("SET",), commands.set_variable),
    (("RESET",), commands.reset_variable),
    (("BEGIN",), commands.begin),
    (("START",), commands.begin),
    (("COMMIT",), commands.end(("COMMIT",), statements.Commit())),
    (("END",), commands.end(("END",), statements.Commit())),
    (("ROLLBACK",), commands.end(("ROLLBACK",), statements.Rollback())),
    (("ABORT",), commands.end(("ABORT",), statements.Rollback())),
)

# PostgreSQL's and Materialize's statements that we know by name and do not do: 0A000, not 42601.
_KNOWN_ELSEWHERE = (
    "ALTER", "ANALYZE", "CALL", "CLOSE", "CLUSTER", "COMMENT", "COPY", "CREATE", "DEALLOCATE",
    "DECLARE", "DISCARD", "DO", "EXECUTE", "EXPLAIN", "FETCH", "GRANT", "LISTEN", "LOCK", "MERGE",
    "MOVE", "NOTIFY", "PREPARE", "REFRESH", "REINDEX", "RELEASE", "REVOKE", "SAVEPOINT",
    "SUBSCRIBE", "TABLE", "TRUNCATE", "UNLISTEN", "UPDATE", "VACUUM", "VALIDATE",
)  # fmt: skip
