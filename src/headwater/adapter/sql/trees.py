"""sqlglot's trees of statements, and the refusal of what is in them that we do not know.

sqlglot is lenient (it reads ``foo bar`` as an aliased column), so from its trees we take only what
we know: :func:`only` refuses every node with a part that is not on its list. What is not understood
is refused, never dropped. ``AS OF`` is not in its grammar and is cut off first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.dialects import Postgres
from sqlglot.errors import ParseError
from sqlglot.tokens import TokenType

from headwater.adapter.errors import (
    AdapterError,
    DatetimeOutOfRange,
    SqlSyntaxError,
    Unsupported,
)
from headwater.adapter.sql import query, statements, text
from headwater.adapter.sql.names import written
from headwater.adapter.sql.tokens import UNREADABLE, Cursor, Source, syntax_error
from headwater.adapter.too_complex import TooComplex
from headwater.persist.batch import TIME_LIMIT


def strip_as_of(source: Source) -> tuple[Source, statements.AsOf | None]:
    """Cut a final ``AS OF <time>`` off: it belongs to the statement, outside parentheses."""
    depth = 0
    for index, token in enumerate(source.tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        cursor = Cursor(source, index)
        if index == 0 or depth or not cursor.accept("AS", "OF") or not _is_time(cursor):
            continue  # `AS of` with no time after it is an alias: PostgreSQL does not reserve OF.
        at_least = cursor.accept("AT", "LEAST")
        as_of = statements.AsOf(time_of(cursor), at_least)
        cursor.finish()
        return replace(source, tokens=source.tokens[:index]), as_of
    return source, None


def strip_time(source: Source) -> tuple[Source, int | None]:
    """Cut a final ``AS OF <time>`` off a statement that writes: it happens then, and only then."""
    source, as_of = strip_as_of(source)
    return source, None if as_of is None else written_at(as_of)


def written_at(as_of: statements.AsOf) -> int:
    """Return the time of a write."""
    if as_of.at_least:
        raise Unsupported("AS OF AT LEAST of a write", hint="Write AS OF the time itself.")
    return as_of.time


def _is_time(cursor: Cursor) -> bool:
    return cursor.peek_type(TokenType.NUMBER, TokenType.STRING) or any(
        cursor.peek(word) for word in ("AT", "TIMESTAMP", "TIMESTAMPTZ")
    )


def time_of(cursor: Cursor) -> int:
    """Milliseconds since the Unix epoch: as a number, or as a timestamp in quotes."""
    number = cursor.accept_type(TokenType.NUMBER)
    if number is not None:
        if not number.isdigit():
            raise Unsupported(f"AS OF {number}", detail="A time is whole milliseconds.")
        return _in_time(number)
    cursor.accept_any("TIMESTAMP", "TIMESTAMPTZ")
    written = cursor.string()
    if written.isascii() and written.isdigit():
        return _in_time(written)
    instant = text.timestamp_from_text(written, zoned=True)
    # Downwards, in whole numbers: a time names the millisecond that contains it.
    return int(instant.timestamp()) * 1000 + instant.microsecond // 1000


def _in_time(digits: str) -> int:
    time = int(digits)
    if time >= TIME_LIMIT:
        raise DatetimeOutOfRange(digits)
    return time


def tree_of(source: Source) -> Any:
    """sqlglot's tree of a query, checked to be one we may run."""
    tree = parse_tree(source)
    if not isinstance(tree, exp.Query | exp.Values):
        raise syntax_error(source, source.tokens[0])
    query.check(tree)
    return tree


def parse_tree(source: Source) -> Any:
    """What sqlglot makes of exactly this statement."""
    tree = read_by(Postgres(), source, source.tokens)
    check_operands(tree)
    return tree


def read_by(dialect: Any, source: Source, tokens: Sequence[Any]) -> Any:
    """What a dialect of sqlglot makes of a statement's tokens: one tree, or a syntax error."""
    try:
        trees = dialect.parser().parse(list(tokens), source.whole)
    except ParseError as error:
        raise from_sqlglot(source, error) from error
    except RecursionError as error:
        raise TooComplex from error
    except UNREADABLE as error:
        raise SqlSyntaxError(None, detail="It cannot be read as a query.") from error
    if len(trees) != 1 or trees[0] is None:
        raise syntax_error(source, source.tokens[0])
    return trees[0]


def check_operands(tree: Any) -> None:
    """Refuse what is put together as if it were a query: sqlglot reads more there than there is."""
    for union in tree.find_all(exp.SetOperation):
        for operand in (union.this, union.expression):
            inner = operand.unnest()
            if not isinstance(inner, exp.Query | exp.Values | exp.Table):
                raise SqlSyntaxError(first_word(inner), detail="A query is wanted here.")


def first_word(tree: Any) -> str:
    """What a tree that should not be there begins with, for an error."""
    return str(tree.sql(dialect="postgres")).strip("( ").partition(" ")[0]


@contextmanager
def placed_at(identifier: Any) -> Iterator[None]:
    """Say of mistakes without a place that they stand where this identifier does."""
    try:
        yield
    except AdapterError as error:
        if error.position is None and "start" in identifier.meta:
            error.position = identifier.meta["start"] + 1
        raise


def from_sqlglot(source: Source, error: ParseError) -> SqlSyntaxError:
    """sqlglot says where by line and column of the token's *last* character."""
    where = error.errors[0] if error.errors else {}
    for token in source.tokens:
        if (token.line, token.col) == (where.get("line"), where.get("col")):
            return syntax_error(source, token)
    return SqlSyntaxError(None)


def only(node: Any, what: str, *allowed: str) -> None:
    """Refuse a node that has parts beyond the allowed ones."""
    for part, value in node.args.items():
        if value and part not in allowed:
            raise Unsupported(f"{part.rstrip('_').replace('_', ' ').upper()} in {what}")


def relation(table: Any, what: str) -> str:
    """The name of a table that stands alone, without alias or anything else."""
    if not isinstance(table, exp.Table):
        raise SqlSyntaxError(first_word(table), detail=f"{what} wants the name of a relation.")
    only(table, what, "this", "db", "catalog")
    return written([query.folded(part) for part in table.parts])
