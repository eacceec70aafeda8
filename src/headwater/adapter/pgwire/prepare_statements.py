"""PREPARE and EXECUTE: the extended protocol's Parse and Bind, said in SQL.

    PREPARE name [(type, …)] AS query          a query has rows or changes them
    EXECUTE name [(expression, …)]

Both ways of preparing fill one set of names. An argument that is one literal is read here; any
other expression is kept as it is written. It reads nothing: no relation, and so no column.

Kept by: this module. Relied on by: ``wire_statements.py``, of whose statements these are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.tokens import TokenType

from headwater.adapter.errors import Unsupported
from headwater.adapter.pgwire.refusals import ColumnInArgument
from headwater.adapter.sql.forms import written_form
from headwater.adapter.sql.tokens import UNREADABLE, Cursor, Source
from headwater.adapter.sql.types import arrow_type, wire_type
from headwater.collection.types import scalar

_PREPARED: Final = ("SELECT", "WITH", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "(")
"""The words with which a statement that can be prepared begins."""
_CONSTANTS: Final = {"NULL": None, "TRUE": "true", "FALSE": "false"}


@dataclass(frozen=True, slots=True)
class Prepare:
    """``PREPARE name [(type, …)] AS query``; type 0 is for the query to say."""

    name: str
    parameter_oids: tuple[int, ...]
    query: Source


@dataclass(frozen=True, slots=True)
class Literal:
    """An argument that is its own text; ``is_number``: it stands there without quotes."""

    text: str | None
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An argument that has to be evaluated."""

    sql: str


Argument = Literal | Evaluated


@dataclass(frozen=True, slots=True)
class ExecutePrepared:
    """``EXECUTE name [(expression, …)]``."""

    name: str
    arguments: tuple[Argument, ...]


def read_prepare(source: Source) -> Prepare:
    """Read a PREPARE."""
    cursor = Cursor(source)
    cursor.expect("PREPARE")
    name = cursor.identifier()
    types = _listed(cursor.bracketed()) if cursor.peek("(") else []
    cursor.expect("AS")
    query = cursor.rest()
    if not any(Cursor(query).peek(word) for word in _PREPARED):
        raise cursor.error()
    return Prepare(name, tuple(_oid(each.text) for each in types), query)


def read_execute(source: Source) -> ExecutePrepared:
    """Read an EXECUTE."""
    cursor = Cursor(source)
    cursor.expect("EXECUTE")
    name = cursor.identifier()
    given = _listed(cursor.bracketed()) if cursor.peek("(") else []
    cursor.finish()
    return ExecutePrepared(name, tuple(map(_argument, given)))


def _listed(inside: Source) -> list[Source]:
    """Return what stands between the commas outside of brackets."""
    found: list[list[Any]] = [[]]
    depth = 0
    for token in inside.tokens:
        kind = token.token_type
        depth += kind in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth -= kind in (TokenType.R_PAREN, TokenType.R_BRACKET)
        if kind == TokenType.COMMA and depth == 0:
            found.append([])
        else:
            found[-1].append(token)
    if not all(found):
        raise Cursor(inside).error()
    return [replace(inside, tokens=tuple(each)) for each in found]


def _oid(written: str) -> int:
    if written.lower() == "unknown":
        return 0
    try:
        parsed = sqlglot.parse_one(f"CAST(NULL AS {written})", dialect="postgres")
    except UNREADABLE:
        parsed = None
    if not isinstance(parsed, exp.Cast):
        raise Unsupported(f"a parameter of type {written}")
    form = written_form(parsed.to)
    return wire_type(arrow_type(parsed.to)).oid if form is None else scalar(form).oid


def _argument(source: Source) -> Argument:
    tokens = source.tokens
    negative = len(tokens) == 2 and tokens[0].token_type == TokenType.DASH
    last = tokens[-1]
    if last.token_type == TokenType.NUMBER and (len(tokens) == 1 or negative):
        return Literal(source.text.replace(" ", ""), is_number=True)
    if len(tokens) == 1 and last.token_type == TokenType.STRING:
        return Literal(last.text)
    word = source.text.upper()
    if len(tokens) == 1 and word in _CONSTANTS:
        return Literal(_CONSTANTS[word])
    try:
        parsed = sqlglot.parse_one(source.text, dialect=source.dialect)
    except UNREADABLE as error:
        raise Cursor(source).error() from error
    if parsed.find(exp.Query):
        raise Unsupported("a subquery in EXECUTE")
    column = parsed.find(exp.Column)
    if column is not None:
        raise ColumnInArgument(column.name)
    return Evaluated(source.text)
