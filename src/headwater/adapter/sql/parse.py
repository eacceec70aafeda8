"""Text → :data:`~.statements.Statement`: one function per statement, chosen by its first words.

- Queries, ``CREATE TABLE``, ``INSERT``, ``UPDATE`` and ``DELETE`` are read by sqlglot's PostgreSQL
  dialect. What is not understood in its trees is refused, never dropped (``sql/trees.py``).
- Everything that PostgreSQL does not have, or that sqlglot swallows unparsed, is read by
  recursive descent over the same tokens: ``AS OF``, ``CREATE MATERIALIZATION``, ``SHOW``,
  ``SET``, ``DROP``, transactions.

Pure: no catalog is looked at. All statements of a text are parsed before the first is returned,
so that a syntax error anywhere means that nothing of the text was executed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal

import pyarrow as pa
from sqlglot import exp

from headwater.adapter.errors import (
    DuplicateColumn,
    InvalidDefinition,
    SqlSyntaxError,
    UnknownColumn,
    Unsupported,
)
from headwater.adapter.shadow.classify import is_catalog_query, mentions_catalog, reads_catalog
from headwater.adapter.sql import (
    commands,
    connections,
    constraints,
    dml,
    indexes,
    objects,
    query,
    reserved,
    row_locks,
    sources,
    spark_text,
    statements,
    table_statements,
)
from headwater.adapter.sql.forms import written_form
from headwater.adapter.sql.names import quoted_name
from headwater.adapter.sql.tokens import Cursor, Source, is_word, split, syntax_error
from headwater.adapter.sql.trees import (
    only,
    parse_tree,
    placed_at,
    relation,
    strip_as_of,
    time_of,
    tree_of,
)
from headwater.adapter.sql.types import arrow_type, length_max
from headwater.adapter.sql.values import assign, fitted, value_of


def parse(sql: str) -> tuple[statements.Statement, ...]:
    """The statements of ``sql``, in order; none if there is nothing but space and comments."""
    return tuple(statement for statement, _ in parse_with_text(sql))


def parse_with_text(
    sql: str, dialect: statements.Dialect = "postgres"
) -> tuple[tuple[statements.Statement, str], ...]:
    """The statements of ``sql``, each with the text it came from; its queries in this dialect."""
    read = statement_of if dialect == "postgres" else _with_spark_query
    return tuple((read(source), source.text) for source in split(sql, dialect))


def parse_for_session(
    sql: str, dialect: statements.Dialect = "postgres"
) -> tuple[tuple[statements.ForSession, str], ...]:
    """The statements of ``sql`` where there is no connection that could answer for itself."""
    found: list[tuple[statements.ForSession, str]] = []
    for statement, text in parse_with_text(sql, dialect):
        if isinstance(statement, statements.SelectSession):
            raise Unsupported("a question about a connection", hint="There is none here.")
        found.append((statement, text))
    return tuple(found)


def _with_spark_query(source: Source) -> statements.Statement:
    if spark_text.holds_query(source) and not is_catalog_query(source.text):
        return _select(source) if spark_text.is_query(source) else statement_of(source)
    inserted = spark_text.insert(source)
    if inserted is not None:
        return inserted
    # The same in both dialects. At its place, so that positions are those of the whole text.
    ((statement, _),) = parse_with_text(" " * source.tokens[0].start + source.text)
    return statement


def statement_of(source: Source) -> statements.Statement:
    """One statement."""
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
    if source.dialect == "spark":
        return spark_text.select(source)
    if is_catalog_query(source.text):
        return _about_the_catalog(source)
    source, as_of = strip_as_of(source)
    source, locked = row_locks.strip(source)
    tree = tree_of(source)
    if locked is not None:
        row_locks.check(tree, locked)
        if as_of is not None:
            raise Unsupported("a row lock AS OF a time", hint="What has been cannot change.")
    if mentions_catalog(source.text) and reads_catalog(tree):
        raise Unsupported(
            "reading the catalog and other relations in one query",
            hint="Ask for them in two queries.",
        )
    locks = locked is not None
    return statements.Select(source.text, as_of, query.tables(tree), locks=locks)


def _table(source: Source) -> statements.Statement:
    """``TABLE name …``: PostgreSQL's short form of ``SELECT * FROM name …``."""
    cursor = Cursor(source, 1)
    cursor.accept("ONLY")  # No relation has others below it.
    rest = cursor.rest()
    (long,) = split(f"SELECT * FROM {rest.text}", source.dialect)  # noqa: S608 - parsed
    return _select(long)


def _about_the_catalog(source: Source) -> statements.Statement:
    try:
        session = query.session_columns(parse_tree(source))
    except SqlSyntaxError:
        session = None  # What sqlglot cannot read the shadow may.
    if session is None:
        return statements.SelectCatalog(source.text)
    return statements.SelectSession(session)


def _explain(source: Source) -> statements.Statement:
    cursor = Cursor(source)
    cursor.expect("EXPLAIN")
    timestamp = cursor.accept("TIMESTAMP")
    if not timestamp:
        cursor.accept("PLAN")
    cursor.accept("FOR")
    if not timestamp and cursor.peek("CREATE", "OR", "REPLACE", "MATERIALIZED"):
        create = _create_materialized_view(cursor.rest())
        return statements.ExplainReplacement(create)
    kept: tuple[tuple[str, ...], Literal["materialized view", "index"]]
    for kept in ((("MATERIALIZED", "VIEW"), "materialized view"), (("INDEX",), "index")):
        if not timestamp and cursor.accept(*kept[0]):
            name = cursor.relation()
            cursor.finish()
            return statements.ExplainView(name, kept[1])
    if cursor.accept("VIEW"):
        name = cursor.relation()
        cursor.finish()
        (select,) = parse(f"SELECT * FROM {quoted_name(name)}")  # noqa: S608 - quoted
    elif any(cursor.peek(*words) for words in _QUERIES) or (
        source.dialect == "spark" and cursor.peek("FROM")
    ):
        select = statement_of(cursor.rest())
    else:
        raise Unsupported(
            "EXPLAIN of this",
            detail="There is EXPLAIN [TIMESTAMP] query, EXPLAIN MATERIALIZED VIEW, VIEW and "
            "INDEX with a name, and EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW.",
        )
    if not isinstance(select, statements.Select):
        raise Unsupported("EXPLAIN of a query about the session or the catalog")
    return statements.ExplainTimestamp(select) if timestamp else statements.ExplainQuery(select)


def _create_materialized_view(source: Source) -> statements.CreateMaterializedView:
    cursor = Cursor(source)
    cursor.expect("CREATE")
    or_replace = cursor.accept("OR", "REPLACE")
    cursor.expect("MATERIALIZED", "VIEW")
    if_not_exists = not or_replace and cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.relation()
    if cursor.peek("("):
        raise Unsupported("a column list of a materialized view", hint="Name columns with AS.")
    retain_ms = objects.retention(cursor) if cursor.accept("WITH") else None
    body, tables = _body(cursor, "a materialized view")
    return statements.CreateMaterializedView(
        name, body, tables, if_not_exists, retain_ms, source.dialect, or_replace
    )


def _create_view(source: Source) -> statements.Statement:
    cursor = Cursor(source)
    cursor.expect("CREATE")
    or_replace = cursor.accept("OR", "REPLACE")
    cursor.expect("VIEW")
    name = cursor.relation()
    columns = cursor.names() if cursor.peek("(") else None
    body, tables = _body(cursor, "a view")
    return statements.CreateView(name, body, tables, columns, or_replace, source.dialect)


def _body(cursor: Cursor, what: str) -> tuple[str, tuple[str, ...]]:
    """``AS query``, and what the query reads."""
    cursor.expect("AS")
    body = cursor.rest()
    without_time, as_of = strip_as_of(body)
    if as_of is not None:
        raise Unsupported(f"AS OF in {what}")
    if body.dialect == "spark":
        return body.text, spark_text.tables(body)
    return body.text, query.tables(tree_of(without_time))


def _subscribe(source: Source) -> statements.Statement:
    cursor = Cursor(source)
    cursor.expect("SUBSCRIBE")
    cursor.accept("TO")
    if any(cursor.peek(word) for word in ("SELECT", "WITH", "VALUES")):
        raise Unsupported("SUBSCRIBE to a query without brackets", hint="Write SUBSCRIBE (query).")
    followed = None
    if cursor.peek("("):
        inner = cursor.bracketed()
        followed = _followed(inner)
        named, name = False, f"({inner.text})"
    else:
        named = cursor.accept("SUBSCRIPTION")
        name = cursor.relation()
    options = {"SNAPSHOT": True, "PROGRESS": False}
    if cursor.accept("WITH"):
        cursor.expect("(")
        while True:
            option = next((word for word in options if cursor.accept(word)), None)
            if option is None:
                raise cursor.error()
            cursor.accept("=")
            options[option] = not cursor.accept("FALSE")
            cursor.accept("TRUE")
            if not cursor.accept(","):
                break
        cursor.expect(")")
    as_of = up_to = None
    if cursor.accept("AS", "OF"):
        at_least = cursor.accept("AT", "LEAST")
        as_of = statements.AsOf(time_of(cursor), at_least)
    if cursor.accept("UP", "TO"):
        up_to = time_of(cursor)
    envelope = _envelope(cursor) if cursor.accept("ENVELOPE") else None
    if cursor.peek("WITHIN"):
        raise Unsupported("an order of SUBSCRIBE")
    cursor.finish()
    if named and (as_of is not None or not options["SNAPSHOT"]):
        raise Unsupported("a start of its own of a named subscription")
    return statements.Subscribe(
        name, options["SNAPSHOT"], options["PROGRESS"], as_of, up_to, envelope, named, followed
    )


def _followed(source: Source) -> statements.Select:
    select = _select(source)
    if not isinstance(select, statements.Select) or select.as_of is not None:
        raise Unsupported(
            "SUBSCRIBE to a query about the session, or with a time of its own",
            hint="AS OF stands behind the brackets.",
        )
    return select


def _envelope(cursor: Cursor) -> statements.Envelope:
    kind: Literal["upsert", "debezium"] = "debezium"
    if cursor.accept("UPSERT"):
        kind = "upsert"
    else:
        cursor.expect("DEBEZIUM")
    cursor.expect("(", "KEY")
    key = cursor.names()
    cursor.expect(")")
    for index, column in enumerate(key):
        if column in key[:index]:
            raise DuplicateColumn(column)
    return statements.Envelope(kind, key)


# --- tables ---------------------------------------------------------------------------------------


def _create_table(source: Source) -> statements.Statement:
    made_of_query = table_statements.create_table_as(source)
    if made_of_query is not None:
        return made_of_query
    source, retain_ms = _strip_retention(source)
    tree = parse_tree(source)
    if not isinstance(tree, exp.Create):
        raise syntax_error(source, source.tokens[0])
    only(tree, "CREATE TABLE", "this", "kind", "exists")
    if not isinstance(tree.this, exp.Schema):
        raise SqlSyntaxError(None, detail="A table has a list of columns.")
    name = relation(tree.this.this, "CREATE TABLE")
    columns: list[statements.ColumnDef] = []
    key: tuple[str, ...] = ()
    keys: tuple[str, ...]
    for part in tree.this.expressions:
        if isinstance(part, exp.ColumnDef):
            with placed_at(part.this):
                hint = None if part.this.args.get("quoted") else reserved.hint(part.name)
                if hint is not None and source.dialect == "postgres":
                    raise SqlSyntaxError(part.name, hint=hint)
                column, is_key = _column(part)
                if any(column.name == other.name for other in columns):
                    raise DuplicateColumn(column.name)
            columns.append(column)
            keys = (column.name,) if is_key else ()
        elif (found := constraints.primary_key(part)) is not None:
            keys = tuple(query.folded(_identifier_of(column)) for column in found.expressions)
        elif isinstance(part, exp.Identifier):
            raise SqlSyntaxError(part.name, detail=f'Column "{part.name}" has no type.')
        else:
            raise constraints.refused(part)
        if keys and key:
            raise InvalidDefinition(f'multiple primary keys for table "{name}" are not allowed')
        key = key or keys
    if not columns:
        raise Unsupported("a table without columns")
    return statements.CreateTable(
        name, _with_key(name, columns, key), key, bool(tree.args["exists"]), retain_ms
    )


def _strip_retention(source: Source) -> tuple[Source, int | None]:
    """Cut a final ``WITH (RETAIN HISTORY FOR …)`` off, which sqlglot does not know."""
    for index in range(len(source.tokens)):
        cursor = Cursor(source, index)
        if cursor.accept("WITH") and cursor.peek("(", "RETAIN"):
            retain_ms = objects.retention(cursor)
            cursor.finish()
            return Source(source.whole, source.tokens[:index]), retain_ms
    return source, None


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
        replace(column, nullable=column.nullable and column.name not in key) for column in columns
    )


def _column(part: Any) -> tuple[statements.ColumnDef, bool]:
    name = query.folded(part.this)
    if part.args.get("kind") is None:
        raise SqlSyntaxError(name, detail=f'Column "{name}" has no type.')
    kind = part.args["kind"]
    length = length_max(kind)
    type_, form = arrow_type(kind) if length is None else pa.string(), written_form(kind)
    nullable, is_key = True, False
    default: statements.Value | statements.Calculated = None
    for constraint in part.args.get("constraints") or ():
        if isinstance(constraint.kind, exp.NotNullColumnConstraint):
            nullable = bool(constraint.kind.args.get("allow_null"))
        elif isinstance(constraint.kind, exp.PrimaryKeyColumnConstraint):
            is_key = True
        elif isinstance(constraint.kind, exp.DefaultColumnConstraint):
            # Kept as it will be stored: a default of a wrong type is refused here.
            written = value_of(constraint.kind.this)
            if isinstance(written, statements.Calculated):
                default = written
            else:
                default = assign(written, type_, form)
        else:
            raise constraints.refused(constraint)
    if length is not None and isinstance(default, str):
        default = fitted(default, length)
    return statements.ColumnDef(name, type_, nullable, default, length, form), is_key


def _identifier_of(part: Any) -> Any:
    """A key column stands as an identifier, or inside the ordering sqlglot puts around it."""
    return part if isinstance(part, exp.Identifier) else part.find(exp.Identifier)


_QUERIES: Final = (
    ("SELECT",), ("WITH",), ("VALUES",), ("TABLE",), ("(", "SELECT"), ("(", "WITH"), ("(", "("),
)  # fmt: skip

_STATEMENTS: tuple[tuple[tuple[str, ...], Callable[[Source], statements.Statement]], ...] = (
    (("SELECT",), _select),
    (("WITH",), _select),
    (("VALUES",), _select),
    (("TABLE",), _table),
    (("(",), _select),
    (("EXPLAIN",), _explain),
    (("SUBSCRIBE",), _subscribe),
    (("INSERT",), dml.insert),
    (("UPDATE",), dml.update),
    (("DELETE",), dml.delete),
    (("CREATE", "MATERIALIZATION"), commands.create_materialization),
    (("CREATE", "MATERIALIZED"), _create_materialized_view),
    (("CREATE", "OR", "REPLACE", "MATERIALIZED"), _create_materialized_view),
    (("CREATE", "TABLE"), _create_table),
    (("TRUNCATE",), table_statements.truncate),
    (("CREATE", "VIEW"), _create_view),
    (("CREATE", "OR", "REPLACE", "VIEW"), _create_view),
    (("CREATE", "INDEX"), indexes.create_index),
    (("CREATE", "UNIQUE", "INDEX"), indexes.create_index),
    (("CREATE", "SCHEMA"), objects.create_schema),
    (("ALTER", "SCHEMA"), objects.alter_schema),
    (("CREATE", "SUBSCRIPTION"), objects.create_subscription),
    (("CREATE", "SOURCE"), sources.create_source),
    (("CREATE", "SECRET"), connections.create_secret),
    (("ALTER", "SECRET"), connections.alter_secret),
    (("CREATE", "CONNECTION"), connections.create_connection),
    (("ALTER", "CONNECTION"), objects.alter),
    (("VALIDATE", "CONNECTION"), connections.validate_connection),
    (("VALIDATE", "MATERIALIZATION"), commands.validate_materialization),
    (("ACKNOWLEDGE",), objects.acknowledge),
    (("DROP",), objects.drop),
    (("ALTER", "TABLE"), objects.alter),
    (("ALTER", "VIEW"), objects.alter),
    (("ALTER", "MATERIALIZED"), objects.alter),
    (("ALTER", "INDEX"), objects.alter),
    (("ALTER", "MATERIALIZATION"), objects.alter),
    (("ALTER", "SUBSCRIPTION"), objects.alter),
    (("ALTER", "SOURCE"), objects.alter),
    (("COMMENT",), objects.comment),
    (("REFRESH",), objects.refresh),
    (("SHOW",), objects.show),
    (("SET",), commands.set_variable),
    (("RESET",), commands.reset_variable),
    (("BEGIN",), commands.begin),
    (("START",), commands.begin),
    (("COMMIT",), commands.end(("COMMIT",), statements.Commit())),
    (("END",), commands.end(("END",), statements.Commit())),
    (("ROLLBACK",), commands.end(("ROLLBACK",), statements.Rollback())),
    (("ABORT",), commands.end(("ABORT",), statements.Rollback())),
    (("SAVEPOINT",), commands.savepoint),
    (("RELEASE",), commands.release),
)

# PostgreSQL's and Materialize's statements that we know by name and do not do: 0A000, not 42601.
_KNOWN_ELSEWHERE = (
    "ALTER", "ANALYZE", "CALL", "CLOSE", "CLUSTER", "COPY", "CREATE", "DEALLOCATE",
    "DECLARE", "DISCARD", "DO", "EXECUTE", "FETCH", "GRANT", "LISTEN", "LOCK", "MERGE",
    "MOVE", "NOTIFY", "PREPARE", "REINDEX", "REVOKE", "UNLISTEN", "VACUUM", "VALIDATE",
)  # fmt: skip
