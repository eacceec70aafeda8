"""``WITH RECURSIVE``: the two terms of a query that reads itself.

As PostgreSQL has it, such a query is ``first UNION ALL further``: ``first`` does not read the
query, ``further`` does, and its columns are of the types that ``first`` gives them. Spark evaluates
the same, level by level, and gives up after :data:`LEVELS_MAX`.

``UNION``, which stops where a level brings nothing new, Spark does not have: refused.
"""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from headwater.adapter.dialect.refusal import only, refuse
from headwater.adapter.sql.query import folded

LEVELS_MAX: Final = 1_000


def terms(query: Any, name: str) -> tuple[Any, Any] | None:
    """The first and the further term of the query of that name; None: it does not read itself."""
    if not _reads(query, name):
        return None
    if not isinstance(query, exp.Union) or _reads(query.this, name):
        refuse(query, f'the recursive query "{name}" other than a term UNION ALL one that reads it')
    only(query, "this", "expression", "distinct")
    if query.args.get("distinct"):
        refuse(query, "UNION in WITH RECURSIVE", "Write UNION ALL, and leave out what was seen.")
    return query.this, query.expression


def _reads(query: Any, name: str) -> bool:
    return any(
        table.args.get("db") is None and folded(table.this) == name
        for table in query.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier)
    )
