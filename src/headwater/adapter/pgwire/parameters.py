"""Parameters of the extended protocol: from bytes to text by their types, and bound as literals.

``bind(text, values)`` is the statement a user would have typed with the values in place of ``$1``
… ``$n``. Injection is impossible by construction: replacement is by *token* (a ``$1`` inside a
string or comment is no parameter), and what is put in is one literal made here from a checked
value: a number by its digits, anything else quoted. A negative number stands in parentheses, for
``1 -$1`` must not become a comment.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType

import pyarrow as pa
from sqlglot.tokens import TokenType

from headwater.adapter.errors import ProtocolError, Unsupported
from headwater.adapter.pgwire import text_form
from headwater.adapter.pgwire.binary_form import InvalidBinary, from_binary
from headwater.adapter.pgwire.numeric_form import number_from_binary
from headwater.adapter.pgwire.passed_form import passed_from_binary, passed_name
from headwater.adapter.pgwire.refusals import InvalidEncoding, SeveralCommands
from headwater.adapter.pgwire.rows import BINARY_FORMAT, format_of
from headwater.adapter.pgwire.wire_types import UNKNOWN_OIDS, of_oid
from headwater.adapter.sql import text
from headwater.adapter.sql.forms import canonical
from headwater.adapter.sql.statements import Value
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
from headwater.adapter.sql.values import assign
from headwater.collection.types import NUMERIC_BARE, SqlType, scalar

_JSON_OID = 114
_UUID_OID = scalar("uuid").oid
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
_INTEGER_BYTES = {INT2.oid: 2, INT4.oid: 4, INT8.oid: 8}


def decode(
    values: Sequence[bytes | None], formats: Sequence[int], oids: Sequence[int]
) -> list[str | None]:
    """The parameters of a Bind message as texts of their types."""
    if len(values) != len(oids):
        raise ProtocolError(
            f"bind message supplies {len(values)} parameters, "
            f"but the prepared statement requires {len(oids)}"
        )
    return [
        _decoded(value, format_of(formats, index), oid)
        for index, (value, oid) in enumerate(zip(values, oids, strict=True))
    ]


def _decoded(value: bytes | None, form: int, oid: int) -> str | None:
    if value is None:
        return None
    type_ = of_oid(oid)
    if form == BINARY_FORMAT and _INTEGER_BYTES.get(oid) == len(value):
        return str(int.from_bytes(value, "big", signed=True))  # By far the most frequent.
    if form != BINARY_FORMAT or oid in UNKNOWN_OIDS or oid == _JSON_OID:
        # The binary form of json, and of what has no type, is its text.
        written = value
    elif type_ is None:
        written = passed_from_binary(value, oid)
    elif type_.name == "numeric":
        try:
            # Not through the column's type: a parameter has as many digits as it has.
            return text.numeric_to_text(number_from_binary(value))
        except (ValueError, struct.error) as error:
            raise InvalidBinary(type_) from error
    else:
        (found,) = text_form.to_text(from_binary([value], type_), type_)
        assert found is not None, "a value that is not NULL has a text"
        written = found
    try:
        decoded = written.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidEncoding from None
    if "\0" in decoded:
        raise InvalidEncoding
    return decoded


def count(source: Source) -> int:
    """The highest ``$n`` of the statement."""
    numbers = [number for number, _, _ in _places(source)]
    highest = max(numbers, default=0)
    if highest > PARAMETERS_MAX or 0 in numbers:
        raise ProtocolError(f"there is no parameter ${0 if 0 in numbers else highest}")
    return highest


def bind(
    source: Source,
    values: Sequence[str | None],
    oids: Sequence[int],
    expressions: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """The statement with the ``values`` (text form, or None for NULL) in place.

    Of an EXECUTE some are ``expressions`` instead, by their place among the values.
    """
    if len(values) != len(oids):
        raise ProtocolError(
            f"bind message supplies {len(values)} parameters, "
            f"but the prepared statement requires {len(oids)}"
        )
    start = source.tokens[0].start
    pieces: list[str] = []
    for number, first, last in _places(source):
        place = number - 1
        literal = expressions.get(place) or _literal(values[place], oids[place])
        pieces += (source.whole[start:first], literal)
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


def _literal(value: str | None, oid: int) -> str:
    array = of_oid(oid)
    if array is not None and array.name == "array":
        return _array_literal(value, array)
    if value is None:
        return "NULL"
    if oid in _UNTYPED:
        return _quoted(value)
    wire = _TYPED.get(oid)
    if wire is not None:
        return _typed_literal(value, wire)
    type_ = of_oid(oid)
    if type_ is None:
        name = passed_name(oid)
        if name is None:
            raise Unsupported(f"a parameter of type oid {oid}")
        return f"{_quoted(value)}::{name}"
    text_form.one_from_text(value, type_)
    return f"{_quoted(value)}::{type_.postgres}"


def are_plain(oids: Sequence[int]) -> bool:
    """Whether every literal is a value and no more: of none of these types is it a name."""
    return all(oid in _UNTYPED or oid in _TYPED or oid == _UUID_OID for oid in oids)


def as_values(values: Sequence[str | None], oids: Sequence[int]) -> list[Value] | None:
    """What the literals of these parameters evaluate to; None if one has to be parsed for that."""
    found: list[Value] = []
    for value, oid in zip(values, oids, strict=True):
        if oid in _UNTYPED or (value is None and (oid in _TYPED or oid == _UUID_OID)):
            found.append(value)
        elif value is not None and oid == _UUID_OID:
            found.append(canonical(value, "uuid"))
        elif value is not None and (oid in _INTEGER_BYTES or oid == BOOL.oid):
            found.append(text.from_text(value, arrow_of_wire(_TYPED[oid])))
        elif value is not None and oid in _TYPED and oid != NUMERIC.oid:
            found.append(assign(value, arrow_of_wire(_TYPED[oid])))
        else:
            return None
    return found


def _array_literal(value: str | None, array: SqlType) -> str:
    """``ARRAY[…]`` of literals, each with its type; of a NULL the type is all there is."""
    if value is None:
        return f"NULL::{array.postgres}"
    ((_, element),) = array.parts
    items = text_form.from_text([value], array).to_pylist()[0]
    if any(isinstance(item, list) for item in items):
        raise Unsupported("a parameter that is an array of several dimensions")
    if not items:
        return f"ARRAY[]::{array.postgres}"
    written = text_form.to_text(pa.array(items, element.arrow), element)
    literals = ("NULL" if each is None else _quoted(each.decode()) for each in written)
    name = "numeric" if element.args == NUMERIC_BARE else element.postgres
    return f"ARRAY[{', '.join(f'{each}::{name}' for each in literals)}]"


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
        raise SeveralCommands
    return sources[0] if sources else None


def _spaced(found: re.Match[str]) -> str:
    """A parameter with a space after it.

    sqlglot takes the ``$1,$`` of ``$1,$2`` for the start of a dollar quote unless there is a space
    in it. The pattern only decides where a space is put; what is a parameter, its tokens decide.
    """
    return f"{found[0]} " if found["parameter"] else found[0]
