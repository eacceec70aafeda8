"""JSON values: their one order, and pointers into them.

    null < false < true < numbers < strings < arrays < objects

Numbers compare by value, integers with floats exactly; strings by code point, which is the order of
their UTF-8; arrays item by item; objects by their properties in order of name, name before value.
(Flow has bytes between booleans and numbers; a JSON document has none.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

Json = Any
"""A value of Python's ``json``: None, bool, int, float, str, list, dict with str keys."""


class Absent:
    """No value; not the same as null."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


def is_number(value: Json) -> bool:
    """Whether a value is a number; Python's bool is an int and no number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def order(value: Json) -> tuple[Any, ...]:
    """Return a key whose order is the order of values.

    >>> sorted([[], "a", 2, None, 1.5, True], key=order)
    [None, True, 1.5, 2, 'a', []]
    """
    match value:
        case None:
            return (0,)
        case bool():
            return (1, value)
        case int() | float():
            return (2, value)
        case str():
            return (3, value)
        case list():
            return (4, tuple(map(order, value)))
        case dict():
            return (5, tuple((name, order(value[name])) for name in sorted(value)))
        case _:
            raise TypeError(f"{value!r} is no JSON value")


def key_order(key: Sequence[str], value: Json) -> tuple[Any, ...]:
    """Return the order of a value by a key of pointers; a missing location comes before null."""
    found = [at_pointer(value, pointer) for pointer in key]
    return tuple((0,) if item is ABSENT else (1, order(item)) for item in found)


def at_pointer(value: Json, pointer: str) -> Json:
    """Return what a JSON pointer finds, or :data:`ABSENT`.

    >>> at_pointer({"a/b": [7]}, "/a~1b/0"), at_pointer([], "/0")
    (7, ABSENT)
    """
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and _is_index(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return ABSENT
    return value


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdigit() and (name == "0" or not name.startswith("0"))


def below(pointer: str, name: str | int) -> str:
    """Return the pointer to a property or item of what a pointer finds."""
    token = str(name).replace("~", "~0").replace("/", "~1")
    return f"{pointer}/{token}"
