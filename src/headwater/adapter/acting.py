"""As whom a statement runs, and what ``current_user`` means in it.

PostgreSQL's words for that (``current_user``, ``session_user``, ``current_role``, ``user``) are
syntax, and where a query is evaluated somebody else runs it: the reader of the shadow, the user of
the operating system whose Spark it is. So the session's user is written into the text before it
goes there, as a call of the same name, which keeps what its column is called:

>>> with acting_as("ann"):
...     print(said("SELECT current_user AS user FROM t WHERE 'user' = user"))
SELECT "current_user"('ann') AS user FROM t WHERE 'user' = "user"('ann')

In a view there is no such user: it is the same for everybody, and the dialect refuses the words.

The user is kept with the thread's context while a statement runs, as its path is
(``adapter/namespaces.py``). Relied on by: ``adapter/catalog_queries.py``, ``adapter/reads.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from psycopg.sql import Literal
from sqlglot.tokens import TokenType

from headwater.adapter.errors import SqlSyntaxError
from headwater.adapter.sql.names import quoted
from headwater.adapter.sql.renaming import Edit, edited
from headwater.adapter.sql.tokens import is_word, split

USER: Final = "headwater"
"""Who it is where nobody said."""

WORDS: Final = ("CURRENT_USER", "SESSION_USER", "CURRENT_ROLE", "USER")

_MENTIONED: Final = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)

_ACTING: Final[ContextVar[str]] = ContextVar("acting", default=USER)


@contextmanager
def acting_as(user: str) -> Iterator[None]:
    """Run as this user inside the block."""
    token = _ACTING.set(user or USER)
    try:
        yield
    finally:
        _ACTING.reset(token)


def said(text: str) -> str:
    """Return a query with the user in the place of the words that mean it."""
    if not _MENTIONED.search(text):
        return text
    try:
        sources = split(text)
    except SqlSyntaxError:
        return text  # For whoever evaluates it to refuse.
    value = Literal(_ACTING.get()).as_string(None)
    edits = []
    for source in sources:
        for before, token in zip((None, *source.tokens), source.tokens, strict=False):
            # After AS, and after a point, any word is a name.
            is_name = before is not None and (
                before.token_type == TokenType.DOT or is_word(before, "AS")
            )
            if is_word(token, *WORDS) and not is_name:
                call = f"{quoted(token.text.lower())}({value})"
                edits.append(Edit(token.start, token.end + 1, call))
    return edited(text, edits)
