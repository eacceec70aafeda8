"""The session that a query is compiled and run in as a whole: ad hoc, or to recompute a view.

It says what a maintained view says, errors included:

- A call that would make a huge value of a small number fails (``bounded.py``).
- Nothing is left out because something else has no rows. Spark plans a join, a subquery or an
  INTERSECT away as soon as it sees that a side of it is empty, with the errors of the other side,
  although nobody may say how soon that is: when it is planned, or in between two stages.

Kept by: this module. Relied on by: ``select.py``, ``recompute.py``, ``compiler.py``.
"""

from __future__ import annotations

from typing import Any, Final

from headwater.compute.catalyst.bounded import bound
from headwater.compute.session import new_session

NOTHING_LEFT_OUT: Final = {
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation"
    ),
    "spark.sql.adaptive.optimizer.excludedRules": (
        "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
    ),
}


def query_session(session: Any) -> Any:
    """Return a session beside one of ours to run queries in."""
    made = new_session(session)
    for key, rules in NOTHING_LEFT_OUT.items():
        made.conf.set(key, rules)
    bound(made)
    return made
