"""The statements that belong to the wire, and the text of a client as statements of both kinds.

COPY, cursors (DECLARE, FETCH, MOVE, CLOSE), PREPARE, EXECUTE, DEALLOCATE, DISCARD, RESET ALL and
UNLISTEN speak of the connection: of its stream, its portals, its variables. The wire executes them
itself, by means of the statements of :mod:`headwater.adapter.sql.statements` inside them; no
backend sees them.

:func:`parse_text` keeps the promise of :func:`~headwater.adapter.sql.parse.parse_with_text`: the
whole text is parsed before any of it runs, and positions count in the client's text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlglot.tokens import TokenType

from headwater.adapter.errors import DuplicateColumn, Unsupported
from headwater.adapter.pgwire.copy_format import CopyFormat, CopyOptionSyntax, of_options
from headwater.adapter.pgwire.durations import duration_ms
from headwater.adapter.pgwire.prepare_statements import (
    ExecutePrepared,
    Prepare,
    read_execute,
    read_prepare,
)
from headwater.adapter.setting_errors import InvalidSetting
from headwater.adapter.sql import statements
from headwater.adapter.sql.parse import parse_with_text
from headwater.adapter.sql.tokens import Cursor, Source, split


@dataclass(frozen=True, slots=True)
class CopyTo:
    """``COPY (query) TO STDOUT``; of a table it is ``COPY (SELECT … FROM table)``."""

    query: statements.Statement
    query_sql: str
    format: CopyFormat


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """``COPY table [(columns)] FROM STDIN``; ``columns`` None means all."""

    table: str
    columns: tuple[str, ...] | None
    format: CopyFormat


@dataclass(frozen=True, slots=True)
class DeclareCursor:
    """``DECLARE name [BINARY] CURSOR [WITH HOLD] FOR query``."""

    name: str
    query: statements.Statement
    query_sql: str
    binary: bool = False
    hold: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """``FETCH count FROM name [WITH (TIMEOUT 'interval')]``; ``rows_max`` None means all.

    With a timeout the rows there are by then are the answer.
    """

    name: str
    rows_max: int | None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """``MOVE count FROM name``: as FETCH, and no row is sent."""

    name: str
    rows_max: int | None


@dataclass(frozen=True, slots=True)
class CloseCursor:
    """``CLOSE name``, or with None ``CLOSE ALL``."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Deallocate:
    """``DEALLOCATE name``, or with None ``DEALLOCATE ALL``."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Discard:
    """``DISCARD ALL``: the connection as if it were new."""


@dataclass(frozen=True, slots=True)
class ResetAll:
    """``RESET ALL``: every variable of the wire as if it were new."""


@dataclass(frozen=True, slots=True)
class Unlisten:
    """``UNLISTEN``: poolers send it; there is nothing to listen to."""


WireStatement = (
    CopyTo | CopyFrom | DeclareCursor | Fetch | Move | CloseCursor | Prepare | ExecutePrepared
    | Deallocate | Discard | ResetAll | Unlisten
)  # fmt: skip
AnyStatement = statements.Statement | WireStatement

_ROWS: Final = ("SELECT", "WITH", "VALUES", "TABLE", "SUBSCRIBE", "SHOW", "(")


def parse_text(
    sql: str, dialect: statements.Dialect = "postgres"
) -> tuple[tuple[AnyStatement, str], ...]:
    """The statements of ``sql``, each with the text it came from; its queries in this dialect."""
    sources = split(sql, dialect)
    if not any(_reader(source) for source in sources):
        return parse_with_text(sql, dialect)
    parsed: list[tuple[AnyStatement, str]] = []
    for source in sources:
        read = _reader(source)
        if read is None:
            parsed += parse_with_text(_alone(source), dialect)
        else:
            parsed.append((read(source), source.text))
    return tuple(parsed)


def _reader(source: Source) -> Callable[[Source], WireStatement] | None:
    cursor = Cursor(source)
    for words, read in _READERS:
        if cursor.peek(*words):
            return read
    return None


def _alone(source: Source) -> str:
    """The statement by itself, at its place: positions stay those of the client's text."""
    return str(" " * source.tokens[0].start + source.text)


# --- COPY -----------------------------------------------------------------------------------------


def _copy(source: Source) -> WireStatement:
    cursor = Cursor(source)
    cursor.expect("COPY")
    options: dict[str, Any] = {}
    if cursor.accept("BINARY"):
        options["format"] = "binary"
    query: Source | None = None
    table, columns = "", None
    if cursor.peek("("):
        query, cursor = _parenthesized(source, cursor)
    else:
        table = cursor.relation()
        columns = cursor.names() if cursor.peek("(") else None
    to_client = cursor.accept("TO")
    if not to_client:
        if query is not None:
            raise cursor.error()
        cursor.expect("FROM")
    if not cursor.accept_any("STDIN", "STDOUT"):
        raise Unsupported(
            "COPY of a file or program of the server",
            hint="Use STDIN or STDOUT; in psql, \\copy reads and writes the client's files.",
        )
    _copy_options(cursor, options)
    chosen = of_options(options, to_client=to_client)
    for index, name in enumerate(columns or ()):
        if name in (columns or ())[:index]:
            raise DuplicateColumn(name)
    if not to_client:
        return CopyFrom(table, columns, chosen)
    if query is None:
        named = ", ".join(map(_quoted, columns)) if columns else "*"
        sql = f"SELECT {named} FROM {_quoted(table)}"  # noqa: S608, names quoted
    else:
        sql = _rows_only(query)
    ((statement, text),) = parse_with_text(sql, "postgres" if query is None else source.dialect)
    return CopyTo(statement, text, chosen)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _rows_only(query: Source) -> str:
    if not any(Cursor(query).peek(word) for word in _ROWS):
        raise Unsupported("COPY of, or a cursor over, a statement without rows")
    return _alone(query)


def _parenthesized(source: Source, cursor: Cursor) -> tuple[Source, Cursor]:
    """What stands in the parentheses that open here, and the place behind them."""
    depth = 0
    for index in range(cursor.index, len(source.tokens)):
        kind = source.tokens[index].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if depth == 0:
            inside = source.tokens[cursor.index + 1 : index]
            if not inside:
                raise Cursor(source, index).error()
            return Source(source.whole, inside, source.dialect), Cursor(source, index + 1)
    raise Cursor(source, len(source.tokens)).error()


def _copy_options(cursor: Cursor, options: dict[str, Any]) -> None:
    """``[WITH] (name value, …)``, or the words of before PostgreSQL 9."""
    cursor.accept("WITH")
    if cursor.accept("("):
        while True:
            name = cursor.identifier()
            if name in options:
                raise CopyOptionSyntax("conflicting or redundant options")
            options[name] = _option_value(cursor, name)
            if not cursor.accept(","):
                break
        cursor.expect(")")
    else:
        while not cursor.at_end and not cursor.peek("WHERE"):
            _old_option(cursor, options)
    if cursor.peek("WHERE"):
        raise Unsupported("COPY … WHERE")
    cursor.finish()


def _option_value(cursor: Cursor, name: str) -> Any:
    if name.startswith("force_"):
        return "*" if cursor.accept("*") else cursor.names()
    if cursor.peek(",") or cursor.peek(")"):
        return True
    number = cursor.accept_type(TokenType.NUMBER)
    if number is not None:
        return number
    if cursor.peek_type(TokenType.STRING, TokenType.BYTE_STRING, TokenType.HEREDOC_STRING):
        value = cursor.string()
        return value.lower() if name == "format" else value
    return cursor.identifier()


def _old_option(cursor: Cursor, options: dict[str, Any]) -> None:
    if cursor.accept_any("BINARY"):
        options["format"] = "binary"
    elif cursor.accept_any("CSV"):
        options["format"] = "csv"
    elif cursor.accept("HEADER"):
        options["header"] = True
    elif cursor.accept("FORCE"):
        if cursor.accept("QUOTE"):
            name = "force_quote"
        elif cursor.accept("NOT", "NULL"):
            name = "force_not_null"
        else:
            cursor.expect("NULL")
            name = "force_null"
        options[name] = "*" if cursor.accept("*") else _bare_names(cursor)
    else:
        for word in ("DELIMITER", "DELIMITERS", "NULL", "QUOTE", "ESCAPE", "ENCODING"):
            if cursor.accept(word):
                cursor.accept("AS")
                options[word.lower().rstrip("s")] = cursor.string()
                return
        raise cursor.error()


def _bare_names(cursor: Cursor) -> tuple[str, ...]:
    names = [cursor.identifier()]
    while cursor.accept(","):
        names.append(cursor.identifier())
    return tuple(names)


# --- cursors --------------------------------------------------------------------------------------


def _declare(source: Source) -> WireStatement:
    cursor = Cursor(source)
    cursor.expect("DECLARE")
    name = cursor.identifier()
    binary = hold = False
    while not cursor.accept("CURSOR"):
        if cursor.accept("BINARY"):
            binary = True
        elif cursor.peek("SCROLL"):
            raise Unsupported("a cursor that scrolls", hint="Rows are fetched forward, once.")
        elif not (cursor.accept_any("INSENSITIVE", "ASENSITIVE") or cursor.accept("NO", "SCROLL")):
            raise cursor.error()
    if cursor.accept("WITH", "HOLD"):
        hold = True
    else:
        cursor.accept("WITHOUT", "HOLD")
    cursor.expect("FOR")
    ((statement, text),) = parse_with_text(_rows_only(cursor.rest()), source.dialect)
    return DeclareCursor(name, statement, text, binary, hold)


def _fetch(source: Source) -> WireStatement:
    cursor = Cursor(source)
    cursor.expect("FETCH")
    rows_max = _forward(cursor, "FETCH")
    name = cursor.identifier()
    timeout_ms = None
    if cursor.accept("WITH"):
        cursor.expect("(", "TIMEOUT")
        cursor.accept("=")
        timeout_ms = duration_ms(cursor.string())
        cursor.expect(")")
    cursor.finish()
    return Fetch(name, rows_max, timeout_ms)


def _move(source: Source) -> WireStatement:
    cursor = Cursor(source)
    cursor.expect("MOVE")
    rows_max = _forward(cursor, "MOVE")
    name = cursor.identifier()
    cursor.finish()
    return Move(name, rows_max)


def _forward(cursor: Cursor, what: str) -> int | None:
    """``[NEXT | [FORWARD] [count | ALL]] [FROM | IN]``."""
    rows_max: int | None = 1
    if cursor.accept("FORWARD"):
        rows_max = _count(cursor)
    elif cursor.accept("NEXT"):
        pass
    elif any(cursor.peek(word) for word in _SCROLLING) or cursor.peek_type(TokenType.DASH):
        raise Unsupported(f"{what} other than forward", hint="Rows are fetched forward, once.")
    else:
        rows_max = _count(cursor)
    cursor.accept_any("FROM", "IN")
    return rows_max


_SCROLLING: Final = ("PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "BACKWARD")


def _count(cursor: Cursor) -> int | None:
    if cursor.accept("ALL"):
        return None
    number = cursor.accept_type(TokenType.NUMBER)
    if number is None:
        return 1
    if not number.isdigit():
        raise InvalidSetting(f"{number} is no number of rows")
    return int(number)


def _close(source: Source) -> WireStatement:
    return CloseCursor(_name_or_all(source, "CLOSE"))


def _deallocate(source: Source) -> WireStatement:
    return Deallocate(_name_or_all(source, "DEALLOCATE"))


def _name_or_all(source: Source, word: str) -> str | None:
    cursor = Cursor(source)
    cursor.expect(word)
    cursor.accept("PREPARE")
    name = None if cursor.accept("ALL") else cursor.identifier()
    cursor.finish()
    return name


# --- the rest -------------------------------------------------------------------------------------


def _discard(source: Source) -> WireStatement:
    cursor = Cursor(source)
    cursor.expect("DISCARD")
    if not cursor.accept("ALL"):
        raise Unsupported("DISCARD other than ALL")
    cursor.finish()
    return Discard()


def _reset_all(source: Source) -> WireStatement:
    cursor = Cursor(source)
    cursor.expect("RESET", "ALL")
    cursor.finish()
    return ResetAll()


def _unlisten(source: Source) -> WireStatement:
    cursor = Cursor(source)
    cursor.expect("UNLISTEN")
    if not cursor.accept("*"):
        cursor.identifier()
    cursor.finish()
    return Unlisten()


_READERS: tuple[tuple[tuple[str, ...], Callable[[Source], WireStatement]], ...] = (
    (("COPY",), _copy),
    (("DECLARE",), _declare),
    (("FETCH",), _fetch),
    (("MOVE",), _move),
    (("CLOSE",), _close),
    (("PREPARE",), read_prepare),
    (("EXECUTE",), read_execute),
    (("DEALLOCATE",), _deallocate),
    (("DISCARD",), _discard),
    (("RESET", "ALL"), _reset_all),
    (("UNLISTEN",), _unlisten),
)
