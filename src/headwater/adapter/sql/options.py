"""Lists of options: ``(NAME value, NAME OF SEVERAL WORDS = value, …)``.

A name is one word or several; a value is a quoted string, a whole number, TRUE or FALSE, or what
the statement permits besides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqlglot.tokens import TokenType

from headwater.adapter.errors import InvalidDefinition
from headwater.adapter.sql.durations import duration_ms
from headwater.adapter.sql.source_statements import OptionValue
from headwater.adapter.sql.tokens import Cursor

Other = TypeVar("Other")


def read_options(
    cursor: Cursor, other: Callable[[Cursor], Callable[[], Other] | None] = lambda _: None
) -> dict[str, Any]:
    """Read a list in parentheses; names come in lower case.

    ``other``: passes the words before another kind of value, if they are next, and reads it then.
    """
    cursor.expect("(")
    found: dict[str, Any] = {}
    while not found or cursor.accept(","):
        words = [cursor.identifier().lower()]
        special = other(cursor)
        while special is None and not at_value(cursor):
            words.append(cursor.identifier().lower())
            special = other(cursor)
        name = " ".join(words)
        if name in found:
            raise InvalidDefinition(f"option {name.upper()} is given twice")
        if special is not None:
            found[name] = special()
            continue
        if cursor.accept("="):
            special = other(cursor)
        found[name] = value(cursor) if special is None else special()
    cursor.expect(")")
    return found


def at_value(cursor: Cursor) -> bool:
    """Whether a value is next, or what stands before one."""
    ends = cursor.peek("=") or cursor.peek("TRUE") or cursor.peek("FALSE")
    return ends or cursor.at_end or cursor.peek_type(TokenType.STRING, TokenType.NUMBER)


def value(cursor: Cursor) -> OptionValue:
    """Read one value."""
    if cursor.accept("TRUE"):
        return True
    if cursor.accept("FALSE"):
        return False
    number = cursor.accept_type(TokenType.NUMBER)
    if number is None:
        return cursor.string()
    if not number.isdigit():
        raise InvalidDefinition(f"{number} is no whole number")
    return int(number)


def refuse_others(what: str, given: Mapping[str, OptionValue], known: tuple[str, ...]) -> None:
    """Refuse an option that is not known, naming those that are."""
    for name in given:
        if name not in known:
            there = ", ".join(each.upper() for each in known)
            raise InvalidDefinition(f"{what} takes no option {name.upper()}, only {there}")


def duration(name: str, text: OptionValue) -> int:
    """Return the length of time that an option says, in milliseconds, at least one."""
    found = duration_ms(text) if isinstance(text, str) else None
    if not found:
        raise InvalidDefinition(f"{name.upper()} {text!r} is no duration", hint="Write '200ms'.")
    return found


def number(name: str, text: OptionValue) -> int:
    """Return the whole number that an option says, quoted or not."""
    if isinstance(text, bool) or not str(text).isdigit():
        raise InvalidDefinition(f"{name.upper()} is a whole number, not {text!r}")
    return int(text)


def text(name: str, given: Mapping[str, OptionValue], what: str) -> str:
    """Return an option that must be there, and be a string."""
    found = given.get(name)
    if not isinstance(found, str) or not found:
        raise InvalidDefinition(f"{what} needs the option {name.upper()} '…'")
    return found
