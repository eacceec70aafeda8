"""Texts of statements as they may be kept and shown: without the secrets that stand in them.

A secret belongs into ``CREATE SECRET``. Where an option of a statement takes one in clear all the
same (the address of an endpoint, the key of a webhook, the configuration of a connector), the text
that the catalog keeps has :data:`HIDDEN` in its place.
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot.tokens import TokenType

from headwater.adapter.sql.tokens import is_word, split

HIDDEN: Final = "********"

_OPTIONS: Final = ("SECRET", "PASSWORD", "CONFIG")
"""Options whose value is hidden as a whole."""
_IN_ADDRESS: Final = re.compile(r"(://[^/@\s:']*):[^@\s]*@")
_IN_PAIRS: Final = re.compile(
    r"((?:password|sslpassword)\s*=\s*)(?:''[^']*''|[^\s&']+)", re.IGNORECASE
)


def redacted(sql: str) -> str:
    """Return one statement's text without its secrets.

    >>> redacted("CREATE MATERIALIZATION m INTO WEBHOOK (URL 'http://u:p@h', SECRET 'x') (…)")
    "CREATE MATERIALIZATION m INTO WEBHOOK (URL 'http://u:********@h', SECRET '********') (…)"
    >>> redacted("… INTO POSTGRES (DSN 'host=h password=p dbname=d') …")
    "… INTO POSTGRES (DSN 'host=h password=******** dbname=d') …"
    """
    (source,) = split(sql)
    pieces: list[str] = []
    at = 0
    for before, token in zip((None, *source.tokens), source.tokens, strict=False):
        if token.token_type != TokenType.STRING:
            continue
        text = sql[token.start : token.end + 1]
        if before is not None and is_word(before, *_OPTIONS):
            text = f"'{HIDDEN}'"
        else:
            text = _IN_PAIRS.sub(rf"\1{HIDDEN}", _IN_ADDRESS.sub(rf"\1:{HIDDEN}@", text))
        pieces += (sql[at : token.start], text)
        at = token.end + 1
    return "".join((*pieces, sql[at:]))
