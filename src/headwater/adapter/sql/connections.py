"""Statements about secrets and connections, read by recursive descent.

A mistake in one that carries a secret is reported without any of its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from headwater.adapter.errors import SqlSyntaxError, Unsupported
from headwater.adapter.sql import objects, statements
from headwater.adapter.sql.connection_statements import (
    AlterSecret,
    CreateConnection,
    CreateSecret,
    SecretName,
    ValidateConnection,
)
from headwater.adapter.sql.options import read_options
from headwater.adapter.sql.source_statements import OptionValue
from headwater.adapter.sql.tokens import Cursor, Source


@contextmanager
def _told_without_text(form: str) -> Iterator[None]:
    try:
        yield
    except SqlSyntaxError as error:
        # Not chained: the original names a token, which may be the value.
        raise SqlSyntaxError(None, position=error.position, detail=f"Write {form}.") from None


def create_secret(source: Source) -> statements.Statement:
    """``CREATE SECRET [IF NOT EXISTS] name AS 'value'``."""
    cursor = Cursor(source)
    with _told_without_text("CREATE SECRET name AS 'value'"):
        cursor.expect("CREATE", "SECRET")
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.relation()
        cursor.expect("AS")
        value = cursor.string()
        cursor.finish()
    return CreateSecret(name, value, if_not_exists)


def alter_secret(source: Source) -> statements.Statement:
    """``ALTER SECRET name AS 'value' | RENAME TO name``."""
    cursor = Cursor(source)
    with _told_without_text("ALTER SECRET name AS 'value'"):
        cursor.expect("ALTER", "SECRET")
        name = cursor.relation()
        if cursor.peek("RENAME"):
            return objects.alter(source)
        cursor.expect("AS")
        value = cursor.string()
        cursor.finish()
    return AlterSecret(name, value)


def create_connection(source: Source) -> statements.Statement:
    """``CREATE CONNECTION [IF NOT EXISTS] name TO kind (option, …)``."""
    cursor = Cursor(source)
    cursor.expect("CREATE", "CONNECTION")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.relation()
    cursor.expect("TO")
    kind: Literal["postgres", "kafka", "mysql", "redis", "confluent schema registry"] = "postgres"
    if cursor.accept("KAFKA"):
        kind = "kafka"
    elif cursor.accept("MYSQL"):
        kind = "mysql"
    elif cursor.accept("REDIS"):
        kind = "redis"
    elif cursor.accept("CONFLUENT", "SCHEMA", "REGISTRY"):
        kind = "confluent schema registry"
    elif not cursor.accept("POSTGRES"):
        raise Unsupported(
            f"a connection TO {cursor.identifier().upper()}",
            detail="There is POSTGRES, MYSQL, REDIS, KAFKA and CONFLUENT SCHEMA REGISTRY.",
        )
    options: dict[str, OptionValue | SecretName] = read_options(cursor, secret_name)
    cursor.finish()
    return CreateConnection(name, kind, options, if_not_exists)


def secret_name(cursor: Cursor) -> Callable[[], SecretName] | None:
    """Read ``SECRET name`` if it is next."""
    return (lambda: SecretName(cursor.relation())) if cursor.accept("SECRET") else None


def validate_connection(source: Source) -> statements.Statement:
    """``VALIDATE CONNECTION name``."""
    cursor = Cursor(source)
    cursor.expect("VALIDATE", "CONNECTION")
    name = cursor.relation()
    cursor.finish()
    return ValidateConnection(name)
