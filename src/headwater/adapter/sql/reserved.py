"""Words that PostgreSQL keeps for itself: what is called so is written in quotes.

    CREATE TABLE user (k int)       syntax error at or near "user"
    CREATE TABLE "user" (k int)     and ever after FROM "user": user alone is who is connected

Those of ``pg_get_keywords()`` that are reserved (R), or may name a function or a type only (T).

Kept by: ``tests/integration/test_shadow.py``, against PostgreSQL's own list. Relied on by:
``tokens.py``, ``parse.py``.
"""

from __future__ import annotations

from typing import Final

_WORDS: Final = """
all analyse analyze and any array as asc asymmetric authorization binary both case cast check
collate collation column concurrently constraint create cross current_catalog current_date
current_role current_schema current_time current_timestamp current_user default deferrable
desc distinct do else end except false fetch for foreign freeze from full grant group having
ilike in initially inner intersect into is isnull join lateral leading left like limit
localtime localtimestamp natural not notnull null offset on only or order outer overlaps
placing primary references returning right select session_user similar some symmetric
system_user table tablesample then to trailing true union unique user using variadic verbose
when where window with
"""

RESERVED: Final = frozenset(_WORDS.split())


def hint(word: str) -> str | None:
    """Return how something of this name is written, where the word alone means something else."""
    name = word.lower()
    return f'"{name}" is a reserved word: as a name it needs quotes.' if name in RESERVED else None
