"""The character sets of MySQL and MariaDB as Python's codecs.

What is written in one of them is the same text here as where the server converts it for a client.
A set that is not in the table has no codec, and its columns cannot be followed.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from typing import Final

BINARY: Final = "binary"
UTF8: Final = ("utf8", "utf8mb3", "utf8mb4", "ascii")
"""Their bytes are UTF-8 as they are."""

_CODECS: Final[Mapping[str, str]] = {
    "big5": "big5hkscs",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "euckr": "cp949",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "macce": "mac-latin2",
    "macroman": "mac-roman",
    "sjis": "shift_jis",
    "tis620": "tis-620",
    "ucs2": "utf-16-be",
    "ujis": "euc_jp",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}

_UNICODE_1400: Final = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")
_FIRST_1400: Final = 2048


def _same_number(error: UnicodeError) -> tuple[str, int]:
    """The five bytes that Windows' set leaves open are themselves in the server's ``latin1``."""
    assert isinstance(error, UnicodeDecodeError)
    found = error.object[error.start : error.end]
    return found.decode("latin-1"), error.end


codecs.register_error("headwater-same-number", _same_number)


def is_known(charset: str) -> bool:
    """Whether texts of this set can be read."""
    return charset in UTF8 or charset in _CODECS


def decoder(charset: str) -> Callable[[bytes], str]:
    """Return what makes text of the bytes of a set that is not UTF-8 already."""
    codec = codecs.lookup(_CODECS[charset])
    errors = "headwater-same-number" if charset == "latin1" else "strict"
    return lambda data: codec.decode(data, errors)[0]


def charset_of(collation: int, known: Mapping[int, str]) -> str:
    """Return the set of a collation by its number; ``known`` is what the server says of them."""
    found = known.get(collation)
    if found is None and collation >= _FIRST_1400:  # MariaDB lists these without numbers.
        which = collation - _FIRST_1400 >> 8
        found = _UNICODE_1400[which] if which < len(_UNICODE_1400) else None
    return found or f"of collation {collation}"
