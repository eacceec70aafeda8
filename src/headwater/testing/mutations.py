"""Statements that nobody would write, made of those that somebody would: for looking for XX000.

A :class:`Mutator` takes texts of a corpus apart into tokens and puts them together wrongly: tokens
left out, doubled, swapped, taken from other texts; texts put into each other (a cursor over a COPY
of an EXPLAIN), where a statement may stand and where none may. About half of what comes out is
still a statement of some kind, which is where the mistakes are.

Everything follows from the seed: the n-th text of a seed is the same whatever became of those
before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Final

TOKEN: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[A-Za-z_][A-Za-z_0-9]*|\d+(?:\.\d+)?|\$\d+|::|<=|>=|<>|=>"
    r"|\|\||->>|->|\s+|."
)

AROUND: Final = (
    "EXPLAIN {}",
    "EXPLAIN TIMESTAMP FOR {}",
    "DECLARE c CURSOR FOR {}",
    "DECLARE h BINARY CURSOR WITH HOLD FOR {}",
    "PREPARE p AS {}",
    "PREPARE p (int, text) AS {}",
    "COPY ({}) TO STDOUT",
    "COPY ({}) TO STDOUT (FORMAT binary)",
    "COPY ({}) TO STDOUT (FORMAT csv, HEADER)",
    "CREATE TABLE made AS {}",
    "CREATE TABLE IF NOT EXISTS made AS {} WITH NO DATA",
    "CREATE VIEW made AS {}",
    "CREATE MATERIALIZED VIEW made AS {}",
    "CREATE OR REPLACE VIEW made AS {}",
    "INSERT INTO t {}",
    "SELECT * FROM ({}) AS s",
    "SELECT ({})",
    "SELECT EXISTS ({})",
    "SELECT 1 WHERE 1 IN ({})",
    "WITH w AS ({}) SELECT * FROM w",
    "WITH RECURSIVE w AS ({}) SELECT * FROM w",
    "({})",
    "({}) UNION ALL ({})",
    "TABLE ({})",
    "SUBSCRIBE ({}) UP TO 1",
    "BEGIN; {}; ROLLBACK",
    "{}; {}",
    "SAVEPOINT s; {}",
    "EXECUTE p({})",
    "FETCH {} FROM c",
    "SET statement_timeout = {}",
    "DO {}",
    "VALUES ({})",
)
"""Places for a statement; in some of them none can be."""

STRANGE: Final = (
    *("NULL", "''", "'x'", "-1", "0", "1e400", "99999999999999999999", "1.5", "TRUE", "*", "()"),
    *("(", ")", ",", ".", ";", "::", "[", "]", "$1", "$0", "$99", "'\\x00'", '""', '"T"', "E'\\'"),
    *("NOT", "AS", "OF", "DEFAULT", "DISTINCT", "ALL", "ANY", "CASE", "END", "CAST", "INTERVAL"),
    *("ARRAY", "ROW", "LATERAL", "OVER", "FILTER", "WITHIN", "USING", "NATURAL", "LIKE", "ESCAPE"),
    *("b'1'", "x'ff'", "U&'d'", "$$", "/*", "--", "é", "😀", "pg_catalog", "hw_catalog", "public"),
    *("version()", "current_user", "now()", "count(*)", "sum(k)", "generate_series(1, 3)", "oid"),
)


class Mutator:
    """See the module's docstring."""

    def __init__(self, corpus: Sequence[str], seed: int) -> None:
        self._corpus = corpus
        self.seed = seed
        self._tokens = [token for text in corpus for token in TOKEN.findall(text) if token.strip()]
        self._alike: dict[str, list[str]] = {}
        for token in self._tokens:
            self._alike.setdefault(_kind(token), []).append(token)

    def text(self, number: int) -> str:
        """Return the text of this number."""
        random = Random(f"{self.seed}/{number}")
        text = random.choice(self._corpus)
        if random.random() < 0.45:
            text = self._put_into(text, random)
        for _ in range(random.choice((0, 0, 1, 1, 1, 2, 2, 4))):
            text = self._changed(text, random)
        if random.random() < 0.1:
            text = self._put_into(text, random)
        return text.replace("\0", "")

    def _put_into(self, text: str, random: Random) -> str:
        around = random.choice(AROUND)
        first, *rest = around.split("{}")
        others = (text, *(random.choice(self._corpus) for _ in rest))
        return first + "".join(each + end for each, end in zip(others, rest, strict=False))

    def _changed(self, text: str, random: Random) -> str:
        tokens = TOKEN.findall(text) or [" "]
        places = [n for n, token in enumerate(tokens) if token.strip()] or [0]
        place, other = random.choice(places), random.choice(places)
        match random.randrange(14):
            case 0:
                del tokens[place]
            case 1:
                tokens.insert(place, tokens[place] + " ")
            case 2:
                tokens[place], tokens[other] = tokens[other], tokens[place]
            case 3:
                tokens[place] = f" {random.choice(self._tokens)} "
            case 4:
                tokens.insert(place, f" {random.choice(self._tokens)} ")
            case 5:
                tokens[place] = f" {random.choice(STRANGE)} "
            case 6:
                tokens.insert(place, f" {random.choice(STRANGE)} ")
            case 7:
                del tokens[min(place, other) : max(place, other)]
            case 8:
                low, high = sorted((place, other))
                tokens[low:high] = [f"({''.join(tokens[low:high])})"]
            case _:  # By one of its kind: most of these are statements still.
                alike = self._alike.get(_kind(tokens[place]), self._tokens)
                tokens[place] = random.choice(alike)
        return "".join(tokens)


def _kind(token: str) -> str:
    """A keyword, a name, a number, a text, or a sign."""
    if token[0].isdigit():
        return "number"
    if token[0] in "'\"":
        return "text"
    if token[0].isalpha():
        return "keyword" if token.isupper() else "name"
    return "sign"
