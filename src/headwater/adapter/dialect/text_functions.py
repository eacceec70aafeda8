"""Functions of text: positions count characters from 1, NULLs and odd lengths as in PostgreSQL."""

from __future__ import annotations

from typing import Any, Final

from headwater.adapter.dialect.casts import cast, coerce, guarded, strict
from headwater.adapter.dialect.literals import string
from headwater.adapter.dialect.refusal import refuse
from headwater.adapter.dialect.signatures import Function, Signature, Special, no_function
from headwater.adapter.dialect.typed import (
    BOOLEAN,
    BYTEA,
    INTEGER,
    INTEGERS,
    TEXT,
    UNKNOWN,
    Typed,
)
from headwater.collection.types import array


def _integer(node: Any, name: str, operand: Typed) -> Typed:
    if operand.type != UNKNOWN and operand.type not in INTEGERS[:2]:
        raise no_function(node, name, [operand])
    return coerce(operand, INTEGER)


def substring(node: Any, arguments: list[Typed]) -> Typed:
    """``substring(text, from [, for])``: characters at positions ``from … from + for - 1``."""
    text = _text(node, "substring", arguments[0])
    start = _integer(node, "substring", arguments[1]).sql
    if all(a.sql.isdigit() for a in arguments[1:]) and int(start) >= 1:
        plain = ", ".join([text.sql, *(a.sql for a in arguments[1:])])
        return Typed(f"substring({plain})", TEXT, node)
    first = f"greatest({start}, 1)"
    if len(arguments) == 2:
        return Typed(strict([start], f"substring({text.sql}, {first})"), TEXT, node)
    length = _integer(node, "substring", arguments[2]).sql
    end = f"(CAST({start} AS BIGINT) + {length})"
    count = f"CAST(least(greatest({end} - {first}, 0), 2147483647) AS INT)"
    message = string("negative substring length not allowed")
    found = guarded(f"{length} >= 0", message, f"substring({text.sql}, {first}, {count})")
    return Typed(strict([text.sql, start, length], found), TEXT, node)


def _left(node: Any, arguments: list[Typed]) -> Typed:
    text, count = _text(node, "left", arguments[0]).sql, _integer(node, "left", arguments[1]).sql
    return Typed(
        f"(CASE WHEN {count} >= 0 THEN left({text}, {count})"
        f" WHEN {count} < 0 THEN substring({text}, 1, greatest(length({text}) + {count}, 0)) END)",
        TEXT,
        node,
    )


def _right(node: Any, arguments: list[Typed]) -> Typed:
    text, count = _text(node, "right", arguments[0]).sql, _integer(node, "right", arguments[1]).sql
    first = f"CAST(least(1 - CAST({count} AS BIGINT), 2147483647) AS INT)"
    return Typed(
        f"(CASE WHEN {count} >= 0 THEN right({text}, {count})"
        # The one number whose negative is itself, and then no number of characters.
        f" WHEN {count} = CAST('-2147483648' AS INT) THEN {text}"
        f" WHEN {count} < 0 THEN substring({text}, {first}) END)",
        TEXT,
        node,
    )


def _pad(name: str) -> Special:
    def rule(node: Any, arguments: list[Typed]) -> Typed:
        text = _text(node, name, arguments[0]).sql
        count = _integer(node, name, arguments[1]).sql
        fill = _text(node, name, arguments[2]).sql if len(arguments) > 2 else "' '"
        return Typed(f"{name}({text}, {count}, {fill})", TEXT, node)

    return Special(2, 3, rule)


def trimmed(node: Any, side: str, arguments: list[Typed]) -> Typed:
    """``trim([BOTH | LEADING | TRAILING] characters FROM text)``."""
    text = _text(node, "trim", arguments[0]).sql
    characters = _text(node, "trim", arguments[1]).sql if len(arguments) > 1 else "' '"
    return Typed(f"trim({side} {characters} FROM {text})", TEXT, node)


def _trim(side: str) -> Special:
    return Special(1, 2, lambda node, arguments: trimmed(node, side, arguments))


def _concat(node: Any, arguments: list[Typed]) -> Typed:
    """``concat(…)`` takes anything with a text form, and NULLs as empty."""
    pieces = [f"coalesce({_as_text(argument).sql}, '')" for argument in arguments]
    return Typed(f"concat({', '.join(pieces)})", TEXT, node)


def _concat_ws(node: Any, arguments: list[Typed]) -> Typed:
    separator = _text(node, "concat_ws", arguments[0])
    pieces = [separator.sql, *(_as_text(argument).sql for argument in arguments[1:])]
    return Typed(f"concat_ws({', '.join(pieces)})", TEXT, node)


def _as_text(operand: Typed) -> Typed:
    if operand.type == BOOLEAN:
        # Output functions say t and f where a cast says true and false.
        sql = f"CASE WHEN {operand.sql} THEN 't' WHEN NOT {operand.sql} THEN 'f' END"
        return operand.of(f"({sql})", TEXT)
    return cast(operand, TEXT)


def _text(node: Any, name: str, operand: Typed) -> Typed:
    if operand.type not in (TEXT, UNKNOWN):
        raise no_function(node, name, [operand])
    return coerce(operand, TEXT)


def _string_to_array(node: Any, arguments: list[Typed]) -> Typed:
    text, separator = _text(node, "string_to_array", arguments[0]), arguments[1].literal
    if not separator:
        refuse(node, "string_to_array with a separator that is no literal, or empty")
    pattern = string("\\Q" + separator.replace("\\E", "\\E\\\\E\\Q") + "\\E")
    found = f"CASE WHEN {text.sql} = '' THEN array() ELSE split({text.sql}, {pattern}, -1) END"
    return Typed(f"CAST(({found}) AS ARRAY<STRING>)", array(TEXT), node)


def _array_to_string(node: Any, arguments: list[Typed]) -> Typed:
    if arguments[0].type != array(TEXT):
        raise no_function(node, "array_to_string", arguments)
    pieces = [arguments[0].sql, *(_text(node, "array_to_string", a).sql for a in arguments[1:])]
    return Typed(f"array_join({', '.join(pieces)})", TEXT, node)


_T, _I = TEXT, INTEGER
_LENGTH: Final = (Signature((_T,), _I, "length({0})"),)

TEXT_FUNCTIONS: Final[dict[str, Function]] = {
    "length": (*_LENGTH, Signature((BYTEA,), _I, "octet_length({0})")),
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "octet_length": (
        Signature((_T,), _I, "octet_length({0})"),
        Signature((BYTEA,), _I, "octet_length({0})"),
    ),
    "upper": (Signature((_T,), _T, "headwater_upper({0})"),),
    "lower": (Signature((_T,), _T, "headwater_lower({0})"),),
    "btrim": _trim("BOTH"),
    "ltrim": _trim("LEADING"),
    "rtrim": _trim("TRAILING"),
    "substring": Special(2, 3, substring),
    "substr": Special(2, 3, substring),
    "left": Special(2, 2, _left),
    "right": Special(2, 2, _right),
    "lpad": _pad("lpad"),
    "rpad": _pad("rpad"),
    "strpos": (Signature((_T, _T), _I, "locate({1}, {0})"),),
    "replace": (Signature((_T, _T, _T), _T, "replace({0}, {1}, {2})"),),
    "repeat": (Signature((_T, _I), _T, "repeat({0}, {1})"),),
    "reverse": (Signature((_T,), _T, "reverse({0})"),),
    "translate": (Signature((_T, _T, _T), _T, "translate({0}, {1}, {2})"),),
    "split_part": (Signature((_T, _T, _I), _T, "split_part({0}, {1}, {2})"),),
    "starts_with": (Signature((_T, _T), BOOLEAN, "startswith({0}, {1})"),),
    "md5": (Signature((_T,), _T, "md5({0})"),),
    "concat": Special(1, 100, _concat),
    "concat_ws": Special(2, 100, _concat_ws),
    "string_to_array": Special(2, 2, _string_to_array),
    "array_to_string": Special(2, 3, _array_to_string),
}
