"""Parameters of the extended protocol, bound as literals.

``bind(text, values)`` is the statement a user would have typed with the values in place of ``$1``
… ``$n``. Injection is impossible by construction: replacement is by *token* (a ``$1`` inside a
string or comment is no parameter), and what is put in is one literal made here from a checked
value: a number by its digits, anything else quoted. A negative number stands in parentheses, for
``1 -$1`` must not become a comment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from sqlglot.tokens import TokenType

from headwater.adapter.errors import ProtocolError, Unsupported
from headwater.adapter.sql import text
from headwater.adapter.sql.tokens import Source, split
from headwater.adapter.sql.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    WireType,
    arrow_of_wire,
)

PARAMETERS_MAX = 65_535  # The protocol counts them in 16 bits.

# What may hold a `$1` that is no parameter (strings, names, comments), and then the parameters.
_LEXEME = re.compile(
    r"""[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/
    | (?P<quote>\$(?:[^\W\d]\w*)?\$).*?(?P=quote) | [^\W\d][\w$]*
    | (?P<parameter>\$\d+)(?=[^\s\w])""",
    re.VERBOSE | re.DOTALL,
)

_UNTYPED = frozenset({0, 18, 19, TEXT.oid, 705, 1042, 1043})  # unknown, char, name, text, …
_TYPED = {
    wire.oid: wire
    for wire in (
        BOOL, BYTEA, DATE, FLOAT4, FLOAT8, INT2, INT4, INT8, NUMERIC, TIMESTAMP, TIMESTAMPTZ,
    )
}  # fmt: skip


def count(source: Source) -> int:
    """The highest ``$n`` of the statement."""
    numbers = [number for number, _, _ in _places(source)]
    highest = max(numbers, default=0)
    if highest > PARAMETERS_MAX or 0 in numbers:
        raise ProtocolError(f"there is no parameter ${0 if 0 in numbers else highest}")
    return highest


def bind(source: Source, values: Sequence[object], oids: Sequence[int]) -> str:
    """The statement with the ``values`` (text form, or None for NULL) in place."""
    if len(values) != len(oids):
        raise ProtocolError(
            f"bind message supplies {len(values)} parameters, "
            f"but the prepared statement requires {len(oids)}"
        )
    start = source.tokens[0].start
    pieces: list[str] = []
    for number, first, last in _places(source):
        pieces += (source.whole[start:first], _literal(values[number - 1], oids[number - 1]))
        start = last + 1
    pieces.append(source.whole[start : source.tokens[-1].end + 1])
    return "".join(pieces)


def _places(source: Source) -> list[tuple[int, int, int]]:
    """``(n, first character, last character)`` of every ``$n``."""
    return [
        (int(number.text), dollar.start, number.end)
        for dollar, number in zip(source.tokens, source.tokens[1:], strict=False)
        if dollar.token_type == TokenType.PARAMETER
        and dollar.text == "$"
        and number.token_type == TokenType.NUMBER
        and number.text.isdigit()
        and number.start == dollar.end + 1
    ]


def _literal(value: object, oid: int) -> str:
    if value is None:
        return "NULL"
    if not isinstance(value, str):
        raise Unsupported("an array as a parameter")
    if oid in _UNTYPED:
        return _quoted(value)
    wire = _TYPED.get(oid)
    if wire is None:
        raise Unsupported(f"a parameter of type oid {oid}")
    return _typed_literal(value, wire)


def _typed_literal(value: str, wire: WireType) -> str:
    checked = text.from_text(value, arrow_of_wire(wire))
    if isinstance(checked, bool):
        return "TRUE" if checked else "FALSE"
    if isinstance(checked, int):
        return str(checked) if checked >= 0 else f"({checked})"
    if isinstance(checked, Decimal):
        written = text.numeric_to_text(checked)
        # A whole numeric keeps a point, so that it stays a numeric: 7 / 2 is not 7.0 / 2.
        written = written if "." in written else f"{written}.0"
        return written if not checked.is_signed() else f"({written})"
    return f"{_quoted(value)}::{wire.name}"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def only_statement(sql: str) -> Source | None:
    """The one statement of a Parse message; None if it is empty."""
    sources = split(_LEXEME.sub(_spaced, sql))
    if len(sources) > 1:
        raise ProtocolError("cannot insert multiple commands into a prepared statement")
    return sources[0] if sources else None


def _spaced(found: re.Match[str]) -> str:
    """A parameter with a space after it.

    sqlglot takes the ``$1,$`` of ``$1,$2`` for the start of a dollar quote unless there is a space
    in it. The pattern only decides where a space is put; what is a parameter, its tokens decide.
    """
    return f"{found[0]} " if found["parameter"] else found[0]
