"""What a statement in the log does to tables, beside what is logged as rows. Pure.

    TRUNCATE t                                         its rows go: :class:`Cleared`
    DROP, RENAME, CREATE OR REPLACE TABLE, partitions  rows go, or come, and no log has them:
    that are dropped or exchanged, …                   :class:`Lost`, with what happened
    INSERT, UPDATE, DELETE as a statement              likewise: it was not logged as rows

Anything else (a column that is added, an index) changes no rows; what it does to columns is seen
when the table's next rows are logged.

Names are compared as the server does: ``folded`` where it does not tell ``a`` from ``A``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""/\*M?!\d*|\*/|/\*.*?\*/|--\s[^\n]*|\#[^\n]*"""
    r"""|(?P<name>`(?:[^`]|``)*`)|"(?:[^"\\]|\\.|"")*"|'(?:[^'\\]|\\.|'')*'"""
    r"""|(?P<word>[\w$]+)|(?P<mark>\S)""",
    re.DOTALL,
)
_CHANGES: Final = frozenset(
    ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "SELECT", "DO")
)
_ROWS_MOVE: Final = (
    ("DROP", "PARTITION"),
    ("TRUNCATE", "PARTITION"),
    ("EXCHANGE", "PARTITION"),
    ("CONVERT", "PARTITION"),
    ("CONVERT", "TABLE"),
    ("IMPORT", "TABLESPACE"),
    ("DISCARD", "TABLESPACE"),
    ("SYSTEM", "VERSIONING"),
)
_NO_RENAME: Final = frozenset(("COLUMN", "INDEX", "KEY", "CONSTRAINT"))


@dataclass(frozen=True, slots=True)
class Cleared:
    """A table is empty from here on."""

    table: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A table's rows changed in a way that no log says."""

    table: str
    why: str


Effect = Cleared | Lost


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    quoted: bool

    def says(self, word: str) -> bool:
        return not self.quoted and self.text.upper() == word


class _Reader:
    """The tokens of a statement, one after the other."""

    def __init__(self, text: str) -> None:
        self.tokens = [
            _Token(found[0][1:-1].replace("``", "`") if found["name"] else found[0], quoted)
            for found in _TOKEN.finditer(text)
            if (quoted := bool(found["name"])) or found["word"] or found["mark"]
        ]
        self.at = 0

    def accept(self, *words: str) -> bool:
        rest = self.tokens[self.at : self.at + len(words)]
        if len(rest) == len(words) and all(t.says(w) for t, w in zip(rest, words, strict=True)):
            self.at += len(words)
            return True
        return False

    def name(self, schema: str) -> str | None:
        """Read ``[schema.]table``."""
        if self.at >= len(self.tokens):
            return None
        first = self.tokens[self.at].text
        self.at += 1
        if self.accept(".") and self.at < len(self.tokens):
            self.at += 1
            return f"{first}.{self.tokens[self.at - 1].text}"
        return f"{schema}.{first}"

    def skip_to(self, *words: str) -> bool:
        """Go behind the next of these words; whether there is one."""
        while self.at < len(self.tokens):
            if any(self.accept(word) for word in words):
                return True
            self.at += 1
        return False


def effects(
    schema: str, text: str, tables: Collection[str], *, folded: bool = False
) -> list[Effect]:
    """Return what a statement, said in ``schema``, does to some of these tables."""
    ours = {_folded(table, folded): table for table in tables}
    found = []
    for effect in _effects(_Reader(text), schema, ours, folded=folded):
        table = ours.get(_folded(effect.table, folded))
        if table is not None:
            found.append(Cleared(table) if isinstance(effect, Cleared) else Lost(table, effect.why))
    return found


def _folded(name: str, folded: bool) -> str:
    return name.lower() if folded else name


def _effects(
    reader: _Reader, schema: str, ours: Collection[str], *, folded: bool
) -> Iterator[Effect]:
    if reader.accept("SET", "STATEMENT") and reader.skip_to("FOR"):
        # MariaDB's settings for one statement.
        reader.tokens, reader.at = reader.tokens[reader.at :], 0
    if reader.accept("TRUNCATE"):
        reader.accept("TABLE")
        if (name := reader.name(schema)) is not None:
            yield Cleared(name)
    elif reader.accept("DROP", "TABLE") or reader.accept("DROP", "TABLES"):
        reader.accept("IF", "EXISTS")
        for name in _names(reader, schema):
            yield Lost(name, "was dropped upstream")
    elif reader.accept("DROP", "DATABASE") or reader.accept("DROP", "SCHEMA"):
        reader.accept("IF", "EXISTS")
        dropped = (reader.name("") or "").removeprefix(".") + "."
        for table in ours:
            if table.startswith(_folded(dropped, folded)):
                yield Lost(table, "was dropped upstream with its schema")
    elif reader.accept("RENAME", "TABLE") or reader.accept("RENAME", "TABLES"):
        reader.accept("IF", "EXISTS")
        while (name := reader.name(schema)) is not None:
            yield Lost(name, "was renamed upstream")
            if reader.skip_to("TO") and (name := reader.name(schema)) is not None:
                yield Lost(name, "was replaced upstream by another table")
            if not reader.accept(","):
                return
    elif reader.accept("CREATE", "OR", "REPLACE", "TABLE"):
        if (name := reader.name(schema)) is not None:
            yield Lost(name, "was dropped upstream and made again")
    elif reader.accept("ALTER"):
        yield from _altered(reader, schema)
    elif reader.tokens and reader.tokens[0].text.upper() in _CHANGES:
        yield from _mentioned(reader, schema, ours, folded=folded)


def _names(reader: _Reader, schema: str) -> Iterator[str]:
    while (name := reader.name(schema)) is not None:
        yield name
        if not reader.accept(","):
            return


def _altered(reader: _Reader, schema: str) -> Iterator[Effect]:
    reader.accept("ONLINE")
    ignores = reader.accept("IGNORE")
    if not reader.accept("TABLE"):
        return
    reader.accept("IF", "EXISTS")
    name = reader.name(schema)
    if name is None:
        return
    if ignores:
        yield Lost(name, "lost rows upstream, by ALTER IGNORE TABLE")
    start = reader.at
    for words in _ROWS_MOVE:
        reader.at = start
        while reader.skip_to(words[0]):
            if reader.accept(words[1]):
                said = " ".join(words)
                yield Lost(name, f"was changed upstream by {said}, which logs no rows")
                break
    reader.at = start
    while reader.skip_to("RENAME"):
        if not any(reader.accept(word) for word in _NO_RENAME):
            yield Lost(name, "was renamed upstream")


def _mentioned(
    reader: _Reader, schema: str, ours: Collection[str], *, folded: bool
) -> Iterator[Effect]:
    """A statement that changes rows: of any of our tables that it names."""
    said = [_folded(token.text, folded) for token in reader.tokens]
    for table in ours:
        space, _, name = table.partition(".")
        for n, word in enumerate(said):
            qualified = n > 1 and said[n - 1] == "."
            if word == name and (
                said[n - 2] == space if qualified else _folded(schema, folded) == space
            ):
                yield Lost(table, "was changed by a statement that was not logged as rows")
                break
