"""PostgreSQL's dialect → Spark SQL, from an allow-list, with PostgreSQL's meaning.

``to_spark(sql, relations)`` reads a query as PostgreSQL does, gives every expression PostgreSQL's
type, and writes Spark SQL that has the same value. Nothing is passed through: text is written
only by a rule of this package, so what has no rule (a node, a function, an overload, a cast, an
option of a clause) is refused with its position, and never guessed. That Spark then agrees with
PostgreSQL is tested on both (``tests/spark/test_dialect.py``).

- :mod:`.parser`: text → tree, and the tree is PostgreSQL's reading of the text.
- :mod:`.typed`: an expression with its type; :mod:`.literals`, :mod:`.casts`, :mod:`.operators`,
  :mod:`.text_functions`, :mod:`.number_functions`, :mod:`.time_functions`, :mod:`.aggregates`: the
  allow-list, as tables and rules.
- :mod:`.scope`, :mod:`.from_clause`, :mod:`.expressions`, :mod:`.query`: names and clauses.
- :mod:`.transpile`: the door.
"""

from __future__ import annotations

from headwater.adapter.dialect.transpile import Column, Transpiled, to_spark

__all__ = ["Column", "Transpiled", "to_spark"]
