"""The statements read by recursive descent: not PostgreSQL's, or left unparsed by sqlglot.

Each function takes one whole statement and returns its value; :mod:`.parse` chooses by the first
words. The grammar stands in the docstrings of :mod:`.statements`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot.tokens import TokenType

from headwater.adapter.errors import DuplicateColumn, InvalidDefinition, Unsupported
from headwater.adapter.sql import search_path, statements
from headwater.adapter.sql.connection_statements import SecretName
from headwater.adapter.sql.materialization_statements import (
    Binding,
    CreateMaterialization,
    ValidateMaterialization,
)
from headwater.adapter.sql.tokens import Cursor, Source, is_word
from headwater.base.errors import InvalidUsage
from headwater.materialize.options import (
    ENDPOINTS,
    InvalidOption,
    endpoint,
    read_binding_settings,
    read_settings,
    strategy_name,
)

LEVELS = (
    ("SERIALIZABLE",),
    ("REPEATABLE", "READ"),
    ("READ", "COMMITTED"),
    ("READ", "UNCOMMITTED"),
)


def create_materialization(source: Source) -> statements.Statement:
    """``CREATE MATERIALIZATION … INTO endpoint (…) (binding, …)``."""
    cursor = Cursor(source)
    cursor.expect("CREATE", "MATERIALIZATION")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    return _materialization(cursor, if_not_exists)


def validate_materialization(source: Source) -> statements.Statement:
    """``VALIDATE MATERIALIZATION … INTO endpoint (…) (binding, …)``."""
    cursor = Cursor(source)
    cursor.expect("VALIDATE", "MATERIALIZATION")
    return ValidateMaterialization(_materialization(cursor, if_not_exists=False))


def _materialization(cursor: Cursor, if_not_exists: bool) -> CreateMaterialization:
    name = cursor.relation()
    cursor.expect("INTO")
    kind = cursor.identifier()
    if kind not in ENDPOINTS:
        there = ", ".join(ENDPOINTS).upper()
        raise Unsupported(f"INTO {kind.upper()}", detail=f"There are {there}.")
    connection = cursor.relation() if cursor.accept("CONNECTION") else None
    options: dict[str, str | SecretName] = {}
    if connection is None:
        options = _options(cursor)
        try:
            endpoint(kind, {name: v for name, v in options.items() if isinstance(v, str)}, options)
        except InvalidOption as error:
            raise InvalidDefinition(str(error)) from error
    cursor.expect("(")
    bindings = [_binding(cursor)]
    while cursor.accept(","):
        bindings.append(_binding(cursor))
    cursor.expect(")")
    given = settings(cursor, read_settings) if cursor.accept("WITH") else {}
    cursor.finish()
    targets = [binding.target_table for binding in bindings]
    for index, target in enumerate(targets):
        if target in targets[:index]:
            raise InvalidDefinition(f'two bindings have the target "{target}"')
    return CreateMaterialization(
        name, kind, options, tuple(bindings), if_not_exists, given, connection
    )


def settings(
    cursor: Cursor, read: Callable[[Mapping[str, str]], object] = read_settings
) -> dict[str, str]:
    """``(SETTING [=] value, …)``: values are numbers or strings, and ``read`` knows them."""
    given: dict[str, str] = {}
    cursor.expect("(")
    while True:
        name = cursor.identifier().upper()
        if name in given:
            raise InvalidDefinition(f"setting {name} is given twice")
        cursor.accept("=")
        given[name] = _text(cursor)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    try:
        read(given)
    except InvalidUsage as error:
        raise InvalidDefinition(str(error)) from error
    return given


def _options(cursor: Cursor) -> dict[str, str | SecretName]:
    """``(NAME value | NAME SECRET name, …)``."""
    options: dict[str, str | SecretName] = {}
    cursor.expect("(")
    while True:
        name = cursor.identifier().upper()
        if name in options:
            raise InvalidDefinition(f"option {name} is given twice")
        secret = cursor.accept("SECRET")
        options[name] = SecretName(cursor.relation()) if secret else _text(cursor)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return options


def _text(cursor: Cursor) -> str:
    """Read a value, quoted or not: a string, a number, TRUE or FALSE."""
    for word in ("true", "false"):
        if cursor.accept(word.upper()):
            return word
    return cursor.accept_type(TokenType.NUMBER) or cursor.string()


def _binding(cursor: Cursor) -> Binding:
    """``view AS "target" KEY (column, …) [REDUCE (…)] [DELTA UPDATES] [WITH (…)]``."""
    view = cursor.relation()
    cursor.expect("AS")
    target = cursor.identifier()
    cursor.expect("KEY")
    key = cursor.names()
    for index, column in enumerate(key):
        if column in key[:index]:
            raise DuplicateColumn(column)
    reduce: list[tuple[str, str]] = []
    if cursor.accept("REDUCE"):
        cursor.expect("(")
        while not reduce or cursor.accept(","):
            column, word = cursor.identifier(), cursor.identifier()
            try:
                reduce.append((column, strategy_name(word)))
            except InvalidOption as error:
                raise InvalidDefinition(str(error)) from error
        cursor.expect(")")
    delta = cursor.accept("DELTA", "UPDATES")
    given = settings(cursor, read_binding_settings) if cursor.accept("WITH") else {}
    return Binding(view, target, key, tuple(reduce), delta, given)


def set_variable(source: Source) -> statements.Statement:
    """``SET [SESSION | LOCAL] name {TO | =} value``; a list of values is kept as its text."""
    cursor = Cursor(source)
    cursor.expect("SET")
    if cursor.accept("TRANSACTION"):
        return statements.SetTransaction(_read_only(cursor))
    if cursor.accept("SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"):
        return statements.SetTransaction(_read_only(cursor), session=True)
    local = cursor.accept("LOCAL")
    cursor.accept("SESSION")
    if cursor.accept("TIME", "ZONE"):
        name = "timezone"
    else:
        name = _variable(cursor)
        if not cursor.accept("TO"):
            cursor.expect("=")
    if cursor.accept("DEFAULT"):
        cursor.finish()
        return statements.SetVariable(name, None, local)
    value = cursor.rest()
    if name == search_path.NAME:
        return statements.SetVariable(name, value.text, local)  # Its quotes tell names apart.
    if len(value.tokens) == 1 and not is_word(value.tokens[0], value.tokens[0].text.upper()):
        return statements.SetVariable(name, str(value.tokens[0].text), local)
    return statements.SetVariable(name, value.text, local)


def _variable(cursor: Cursor) -> str:
    """A variable's name; one that PostgreSQL does not know has a point in it."""
    parts = [cursor.identifier().lower()]
    while cursor.accept_type(TokenType.DOT) is not None:
        parts.append(cursor.identifier().lower())
    return ".".join(parts)


def reset_variable(source: Source) -> statements.Statement:
    """``RESET name``."""
    cursor = Cursor(source)
    cursor.expect("RESET")
    name = _variable(cursor)
    cursor.finish()
    return statements.SetVariable(name, None)


def begin(source: Source) -> statements.Statement:
    """``BEGIN`` or ``START TRANSACTION``, with an isolation level and an access mode, or none."""
    cursor = Cursor(source)
    if not cursor.accept("BEGIN"):
        cursor.expect("START", "TRANSACTION")
    cursor.accept_any("TRANSACTION", "WORK")
    return statements.Begin(_read_only(cursor))


def _read_only(cursor: Cursor) -> bool | None:
    """The modes of a transaction, to the end; whether it only reads, where that is said."""
    read_only = None
    while not cursor.at_end:
        # What a client asks for here is never more than it gets: strict serializability.
        if cursor.accept("ISOLATION", "LEVEL"):
            if not any(cursor.accept(*level) for level in LEVELS):
                raise cursor.error()
        elif cursor.accept("READ", "ONLY"):
            read_only = True
        elif cursor.accept("READ", "WRITE"):
            read_only = False
        elif not (cursor.accept("DEFERRABLE") or cursor.accept("NOT", "DEFERRABLE")):
            raise cursor.error()
        cursor.accept(",")
    return read_only


def end(
    words: tuple[str, ...], statement: statements.Commit | statements.Rollback
) -> Callable[[Source], statements.Statement]:
    """A reader of ``words [TRANSACTION | WORK]``, which means ``statement``."""

    def read(source: Source) -> statements.Statement:
        cursor = Cursor(source)
        cursor.expect(*words)
        cursor.accept_any("TRANSACTION", "WORK")
        if isinstance(statement, statements.Rollback) and cursor.accept("TO"):
            cursor.accept("SAVEPOINT")
            return statements.RollbackTo(_last_name(cursor))
        if cursor.peek("AND"):
            raise Unsupported("a chained transaction")
        cursor.finish()
        return statement

    return read


def savepoint(source: Source) -> statements.Statement:
    """``SAVEPOINT name``."""
    cursor = Cursor(source)
    cursor.expect("SAVEPOINT")
    return statements.Savepoint(_last_name(cursor))


def release(source: Source) -> statements.Statement:
    """``RELEASE [SAVEPOINT] name``."""
    cursor = Cursor(source)
    cursor.expect("RELEASE")
    cursor.accept("SAVEPOINT")
    return statements.Release(_last_name(cursor))


def _last_name(cursor: Cursor) -> str:
    name = cursor.identifier()
    cursor.finish()
    return name
