"""The client's text as tokens, cut into statements, with a cursor for recursive descent.

sqlglot's PostgreSQL tokenizer does the lexing (quotes, dollar quotes, comments, numbers), so that
our own statements and the queries inside them agree on where a string ends. Its notion of
*commands*, whose rest is swallowed as one string, is switched off: we parse those ourselves.

Positions are characters from 0 in the whole text the client sent; errors report them from 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal

import sqlglot
from sqlglot.dialects import Postgres, Spark
from sqlglot.errors import SqlglotError, TokenError
from sqlglot.tokens import TokenType

from headwater.adapter.errors import SqlSyntaxError
from headwater.adapter.sql import reserved
from headwater.adapter.sql.names import written

_QUOTED = (
    TokenType.IDENTIFIER,
    TokenType.STRING,
    TokenType.HEREDOC_STRING,
    TokenType.BYTE_STRING,
    TokenType.NUMBER,
)
_NUMBER: Final = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)
_STRINGS = (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.BYTE_STRING)


UNREADABLE: Final = (SqlglotError, AttributeError, LookupError, TypeError, ValueError)
"""What sqlglot's parsers raise of a text that is no SQL: its own errors, and where they trip."""


def tree_if_read(sql: str) -> Any:
    """Return what sqlglot makes of a text of PostgreSQL's; None where it cannot read it.

    For who looks for a shape and leaves everything else to others: they say what is wrong.
    """
    try:
        return sqlglot.parse_one(sql, dialect="postgres")
    except UNREADABLE:
        return None


class _Tokenizer(Postgres.Tokenizer):  # type: ignore[misc]  # sqlglot is Any here
    COMMANDS: ClassVar[set[Any]] = set()


class _SparkTokenizer(Spark.Tokenizer):  # type: ignore[misc]  # sqlglot is Any here
    COMMANDS: ClassVar[set[Any]] = set()


Dialect = Literal["postgres", "spark"]


@dataclass(frozen=True, slots=True)
class Passed:
    """A name that was read: what it is, and from where to where (exclusively) it is written."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Source:
    """One statement's text: the tokens of it, and the whole text their positions refer to."""

    whole: str
    tokens: tuple[Any, ...]
    dialect: Dialect = "postgres"
    """In which dialect queries in it are."""
    passed: list[Passed] | None = field(default=None, compare=False, repr=False)
    """Where names of objects are noted as they are read, for who asks for that."""

    @property
    def text(self) -> str:
        """The statement alone, without its semicolon and the comments around it."""
        return self.whole[self.tokens[0].start : self.tokens[-1].end + 1]


def split(sql: str, dialect: Dialect = "postgres") -> tuple[Source, ...]:
    """The statements of ``sql``; empty ones (``;;``, comments only) are none."""
    try:
        if dialect == "spark":
            tokens = _SparkTokenizer(dialect=Spark()).tokenize(sql)
        else:
            tokens = _Tokenizer(dialect=Postgres()).tokenize(sql)
    except TokenError as error:
        # The tokenizer gives up at the end of an unterminated string or comment.
        raise SqlSyntaxError(None, detail="A quoted string or comment does not end.") from error
    if dialect == "postgres":
        _check_numbers(sql, tokens)
    statements: list[Source] = []
    current: list[Any] = []
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            current.append(token)
        elif current:
            statements.append(Source(sql, tuple(current), dialect))
            current = []
    if current:
        statements.append(Source(sql, tuple(current), dialect))
    return tuple(statements)


def _check_numbers(sql: str, tokens: Sequence[Any]) -> None:
    """Refuse what begins like a number and is none: sqlglot's tokenizer takes ``0e`` for one."""
    for token in tokens:
        if token.token_type == TokenType.NUMBER and not _NUMBER.fullmatch(token.text):
            near = sql[token.start : token.end + 1]
            raise SqlSyntaxError(near, position=token.start + 1, detail="A number ends too soon.")


def is_word(token: Any, *words: str) -> bool:
    """Whether the token is one of these keywords, written without quotes."""
    return token.token_type not in _QUOTED and token.text.upper() in words


class Cursor:
    """A place in a statement's tokens, moved forward by what is recognised."""

    def __init__(self, source: Source, start: int = 0) -> None:
        self._source = source
        self._tokens: Sequence[Any] = source.tokens
        self._next = start

    @property
    def index(self) -> int:
        """How many tokens have been passed."""
        return self._next

    @property
    def at_end(self) -> bool:
        """Whether every token has been passed."""
        return self._next == len(self._tokens)

    def peek(self, *words: str) -> bool:
        """Whether the next tokens are these keywords, in this order."""
        upcoming = self._tokens[self._next : self._next + len(words)]
        return len(upcoming) == len(words) and all(
            is_word(token, word) for token, word in zip(upcoming, words, strict=True)
        )

    def accept(self, *words: str) -> bool:
        """Pass these keywords if they are next."""
        if not self.peek(*words):
            return False
        self._next += len(words)
        return True

    def accept_any(self, *words: str) -> bool:
        """Pass one of these keywords if it is next."""
        return any(self.accept(word) for word in words)

    def expect(self, *words: str) -> None:
        """Pass these keywords or complain at the first that is missing."""
        for word in words:
            if not self.accept(word):
                raise self.error()

    def peek_type(self, *token_types: Any) -> bool:
        """Whether the next token is of one of these types."""
        return not self.at_end and self._tokens[self._next].token_type in token_types

    def accept_type(self, token_type: Any) -> str | None:
        """Pass a token of this type and give its text, or None."""
        if self.at_end or self._tokens[self._next].token_type != token_type:
            return None
        self._next += 1
        return str(self._tokens[self._next - 1].text)

    def string(self) -> str:
        """A quoted string."""
        for token_type in _STRINGS:
            text = self.accept_type(token_type)
            if text is not None:
                return text
        raise self.error()

    def identifier(self) -> str:
        """One name: quoted as it stands, unquoted in lower case."""
        quoted = self.accept_type(TokenType.IDENTIFIER)
        if quoted is not None:
            if not quoted:
                raise self.error()
            return quoted
        if self.at_end or self._tokens[self._next].token_type in _QUOTED:
            raise self.error()
        word = str(self._tokens[self._next].text)
        if not (word[0].isalpha() or word[0] == "_"):
            raise self.error()
        self._next += 1
        return word.lower()

    def name(self) -> str:
        """One name of something that is there, or comes to be: no reserved word."""
        if not self.at_end and self._source.dialect == "postgres":
            token = self._tokens[self._next]
            hint = None if token.token_type in _QUOTED else reserved.hint(token.text)
            if hint is not None:
                raise syntax_error(self._source, token, hint)
        return self.identifier()

    def parts(self) -> tuple[str, ...]:
        """A name of any number of parts, as it is; what follows a point may be any word."""
        found = [self.name()]
        while self.accept_type(TokenType.DOT) is not None:
            found.append(self.identifier())
        return tuple(found)

    def relation(self) -> str:
        """An object's name, which may be written with its schema, and our database."""
        first = self._next
        name = written(self.parts())
        if self._source.passed is not None:
            start, end = self._tokens[first].start, self._tokens[self._next - 1].end + 1
            self._source.passed.append(Passed(name, start, end))
        return name

    def column(self) -> tuple[str, str]:
        """``relation.column``: a relation's name, and that of a column of it."""
        parts = self.parts()
        if len(parts) == 1:
            raise self.error()
        return written(parts[:-1]), parts[-1]

    def names(self) -> tuple[str, ...]:
        """``(name, …)``."""
        self.expect("(")
        names = [self.name()]
        while self.accept(","):
            names.append(self.name())
        self.expect(")")
        return tuple(names)

    def bracketed(self) -> Source:
        """``( … )``: what is between, as a text of its own."""
        self.expect("(")
        first, depth = self._next, 1
        while depth:
            if self.at_end:
                raise self.error()
            token_type = self._tokens[self._next].token_type
            depth += (token_type == TokenType.L_PAREN) - (token_type == TokenType.R_PAREN)
            self._next += 1
        inside = tuple(self._tokens[first : self._next - 1])
        if not inside:
            raise syntax_error(self._source, self._tokens[first])
        return replace(self._source, tokens=inside)

    def until(self, *words: str) -> str:
        """The text from here to the next of these keywords outside of brackets, or to the end."""
        first, depth = self._next, 0
        while not self.at_end and (depth or not any(self.peek(word) for word in words)):
            token_type = self._tokens[self._next].token_type
            depth += (token_type == TokenType.L_PAREN) - (token_type == TokenType.R_PAREN)
            self._next += 1
        if first == self._next:
            raise self.error()
        return replace(self._source, tokens=tuple(self._tokens[first : self._next])).text

    def finish(self) -> None:
        """Complain unless every token has been passed."""
        if not self.at_end:
            raise self.error()

    def skip(self, count: int) -> None:
        """Pass tokens that somebody else has read."""
        self._next += count

    def rest(self) -> Source:
        """What has not been passed, as a text of its own."""
        if self.at_end:
            raise self.error()
        return replace(self._source, tokens=tuple(self._tokens[self._next :]))

    def error(self) -> SqlSyntaxError:
        """The complaint about the next token."""
        if self.at_end:
            return SqlSyntaxError(None, position=self._tokens[-1].end + 2)
        return syntax_error(self._source, self._tokens[self._next])


def syntax_error(source: Source, token: Any, hint: str | None = None) -> SqlSyntaxError:
    """The complaint about this token."""
    near = source.whole[token.start : token.end + 1]
    return SqlSyntaxError(near, position=token.start + 1, hint=hint)
