"""Patterns: ``LIKE``, ``ILIKE``, and the regular expressions that both engines read alike.

ILIKE compares both sides in lower case, as PostgreSQL does; a regular expression without regard to
case takes each letter in both. Upper and lower case are those of each code point by itself, as of
PostgreSQL's locale ``C.UTF-8``, the shadow's (``compute/catalyst/postgres.py``).
"""

from __future__ import annotations

from typing import Any, Final

from headwater.adapter.dialect.casts import coerce
from headwater.adapter.dialect.literals import string
from headwater.adapter.dialect.operators import no_operator
from headwater.adapter.dialect.refusal import refuse
from headwater.adapter.dialect.typed import BOOLEAN, TEXT, UNKNOWN, Typed

_REGEX_PLAIN: Final = frozenset(" !\"#%&',-/:;<=>@_`~")
_READ: Final = "Letters, digits, . ^ $ * + ? | ( ) {n,m} [a-z] and \\ before punctuation are read."


def like(node: Any, operand: Typed, pattern: Typed, escape: str, *, fold: bool) -> Typed:
    """``LIKE`` and ``ILIKE``.

    A pattern from the rows with a backslash before an ordinary character is an error in Spark.
    """
    operand, pattern = _text(node, "LIKE", operand), _text(node, "LIKE", pattern)
    if len(escape) > 1 or (pattern.literal is None and escape != "\\"):
        refuse(node, "this ESCAPE with this pattern")
    sql = pattern.sql
    if pattern.literal is not None:
        sql = string(_like_pattern(node, pattern.literal, escape))
    if fold:
        return Typed(f"(headwater_lower({operand.sql}) LIKE headwater_lower({sql}))", BOOLEAN, node)
    return Typed(f"({operand.sql} LIKE {sql})", BOOLEAN, node)


def _like_pattern(node: Any, pattern: str, escape: str) -> str:
    """The pattern with a backslash before what is meant literally, and nowhere else."""
    written, place = [], 0
    while place < len(pattern):
        character = pattern[place]
        if escape and character == escape:
            place += 1
            if place == len(pattern):
                refuse(node, "a LIKE pattern that ends with its escape character")
            character = pattern[place]
            written.append("\\" + character if character in "%_\\" else character)
        else:
            written.append("\\\\" if character == "\\" else character)
        place += 1
    return "".join(written)


def regex(node: Any, operand: Typed, pattern: Typed, *, fold: bool) -> Typed:
    """``~`` and ``~*`` with a literal pattern of the syntax both engines read alike.

    Without regard to case, a letter means itself in upper and in lower case and nothing else (an s
    no long s, as it would to Java): so it is written.
    """
    if pattern.literal is None:
        refuse(node, "a regular expression that is no literal")
    operand = _text(node, "~", operand)
    written = "(?s)" + _java_regex(node, pattern.literal, fold=fold)
    return Typed(f"({operand.sql} RLIKE {string(written)})", BOOLEAN, node)


def _java_regex(node: Any, pattern: str, *, fold: bool) -> str:
    written: list[str] = []
    place = 0
    while place < len(pattern):
        character = pattern[place]
        following = pattern[place + 1 : place + 2]
        if character == "[":
            inside, place = _bracket(node, pattern, place + 1)
            written.append(_class(node, inside, fold=fold))
        elif character == "\\":
            if not following or following.isalnum() or ord(following) > 127:
                refuse(node, "this escape of a regular expression", _READ)
            written.append("\\" + following)
            place += 1
        elif character == "$":
            written.append("\\z")  # Java's $ also matches before a last line feed.
        elif character in "*+?}" and following in ("?", "+", "*"):
            refuse(node, "a quantifier after a quantifier", _READ)
        elif character == "(" and following in ("?", "*"):
            refuse(node, "a group of this kind", _READ)
        elif character.isalnum():
            cases = _cases(character) if fold else [character]
            written.append(character if cases == [character] else f"[{''.join(cases)}]")
        elif character in ".^*+?|(){}" or character in _REGEX_PLAIN:
            written.append(character)
        else:
            refuse(node, "this character in a regular expression", _READ)
        place += 1
    return "".join(written)


_UPPER_SINCE: Final = {"\u019b": "\ua7dc", "\u0264": "\ua7cb"}
"""What Unicode 16 has given an upper case, which PostgreSQL knows and not every Python."""


def _cases(letter: str) -> list[str]:
    """A letter in upper and in lower case, each one character: PostgreSQL's two, sorted."""
    forms = [_UPPER_SINCE.get(letter, letter.upper()), letter.title(), letter]
    upper = next(form for form in forms if len(form) == 1)
    # The one lower case that is two characters in full.
    lower = "i" if letter == "\u0130" else letter.lower()
    return sorted({upper, lower})


def _bracket(node: Any, pattern: str, start: int) -> tuple[str, int]:
    """What stands in a bracket that is open at ``start``, and where it is closed."""
    first = start + 1 if pattern[start : start + 1] == "^" else start
    end = pattern.find("]", first)
    inside = pattern[start:end]
    if end <= first or set(inside) & set("[\\&~"):
        refuse(node, "this bracket expression", _READ)
    return inside, end


def _class(node: Any, inside: str, *, fold: bool) -> str:
    if not fold:
        return f"[{inside}]"
    written, place = inside[:1] if inside.startswith("^") else "", int(inside.startswith("^"))
    while place < len(inside):
        character, last = inside[place], inside[place + 2 : place + 3]
        if inside[place + 1 : place + 2] != "-" or not last:
            written += "".join(_cases(character)) if character.isalnum() else character
            place += 1
            continue
        if not (character + last).isascii():
            refuse(node, "a range of letters beyond z without regard to case", _READ)
        members = map(chr, range(ord(character), ord(last) + 1))
        letters = {case for each in members if each.isalpha() for case in _cases(each)}
        written += f"{character}-{last}{''.join(sorted(letters))}"
        place += 3
    return f"[{written}]"


def _text(node: Any, operator: str, operand: Typed) -> Typed:
    if operand.type not in (TEXT, UNKNOWN):
        raise no_operator(node, operator, operand, operand)
    return coerce(operand, TEXT)
