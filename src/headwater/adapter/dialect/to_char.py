"""``to_char(time, 'YYYY-MM-DD HH24:MI')``: patterns that PostgreSQL and Spark print alike.

A pattern is fields (:data:`_FIELDS`), what stands between them (no letters, no digits), and text
in double quotes. Everything else is refused: what PostgreSQL pads with blanks (``Month``), what
has a sign, and letters that are no field. A year is printed in four digits, so that one outside
1 to 9999 is an error here.
"""

from __future__ import annotations

import re
from typing import Any, Final

from headwater.adapter.dialect.casts import guarded
from headwater.adapter.dialect.literals import string
from headwater.adapter.dialect.refusal import refuse
from headwater.adapter.dialect.signatures import Special, no_function
from headwater.adapter.dialect.typed import DATE, TEXT, TIMESTAMP, TIMESTAMPTZ, Typed, cast_sql

_FIELDS: Final = {
    "YYYY": "yyyy",
    "MM": "MM",
    "DD": "dd",
    "HH24": "HH",
    "HH12": "hh",
    "MI": "mm",
    "SS": "ss",
    "MS": "SSS",
    "US": "SSSSSS",
    "AM": "a",
    "PM": "a",
    "Mon": "MMM",
    "Dy": "EEE",
}
_PIECE: Final = re.compile(
    rf'(?P<field>{"|".join(_FIELDS)})|"(?P<text>[^"\\]*)"|(?P<between>[^A-Za-z0-9"\\]+)'
)


def _to_char(node: Any, arguments: list[Typed]) -> Typed:
    moment, pattern = arguments[0], arguments[1].literal
    if moment.type not in (DATE, TIMESTAMP, TIMESTAMPTZ):
        raise no_function(node, "to_char", arguments)
    if pattern is None:
        refuse(node, "to_char of a pattern that is no literal")
    zoned = moment.sql if moment.type == TIMESTAMPTZ else cast_sql(moment.sql, TIMESTAMPTZ)
    text = f"date_format({zoned}, {string(_pattern(node, pattern))})"
    is_year = f"year({zoned}) BETWEEN 1 AND 9999"
    message = string("to_char prints years from 1 to 9999")
    return Typed(guarded(is_year, message, text), TEXT, node)


def _pattern(node: Any, written: str) -> str:
    found, text, place = "", "", 0
    while place < len(written):
        piece = _PIECE.match(written, place)
        if piece is None:
            refuse(
                node,
                f"{written[place:]!r} in a pattern of to_char",
                f"There are {', '.join(_FIELDS)}, and text in double quotes.",
            )
        if piece["field"] is None:
            text += piece["text"] or piece["between"] or ""
        else:
            found, text = found + _plain(text) + _FIELDS[piece["field"]], ""
        place = piece.end()
    return found + _plain(text)


def _plain(text: str) -> str:
    """Text as Spark has it in a pattern; two of them side by side would be a quote."""
    return f"'{text.replace(chr(39), chr(39) * 2)}'" if text else ""


TO_CHAR: Final = Special(2, 2, _to_char)
