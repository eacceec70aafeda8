"""The session that a query is compiled and run in as a whole: ad hoc, or to recompute a view.

It says what a maintained view says, errors included:

- A call that would make a huge value of a small number fails (``bounded.py``).
- Nothing is left out because something else has no rows. Spark plans a join, a subquery or an
  INTERSECT away as soon as it sees that a side of it is empty, with the errors of the other side,
  although nobody may say how soon that is: when it is planned, or in between two stages.
- Nothing is evaluated for other rows than those that get to it in the plan, where it may fail
  (:func:`ask_as_planned`); that it is for all of those, ``witness.py`` sees to.

Kept by: this module. Relied on by: ``select.py``, ``recompute.py``, ``compiler.py``.
"""

from __future__ import annotations

from typing import Any, Final

from headwater.compute.catalyst import postgres, reading
from headwater.compute.catalyst.bounded import bound
from headwater.compute.catalyst.numerics import know
from headwater.compute.session import new_session

NOTHING_LEFT_OUT: Final = {
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation"
    ),
    "spark.sql.adaptive.optimizer.excludedRules": (
        "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
    ),
}


AS_PLANNED: Final = {
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in (
            "PropagateEmptyRelation",
            "PushDownPredicates",
            "PushPredicateThroughJoin",
            "PushExtraPredicateThroughJoin",
            "PushLeftSemiLeftAntiThroughJoin",
            "EliminateOuterJoin",
        )
    ),
}
"""No condition is evaluated for rows that it is not asked of, to leave others out sooner."""


def ask_as_planned(session: Any) -> None:
    """Let a session evaluate what may fail for just those rows that get to it in the plan."""
    for key, value in AS_PLANNED.items():
        session.conf.set(key, value)


def query_session(session: Any) -> Any:
    """Return a session beside one of ours to run queries in."""
    made = new_session(session)
    for key, rules in NOTHING_LEFT_OUT.items():
        made.conf.set(key, rules)
    bound(made)
    know(made)
    reading.register(made)
    postgres.register(made)
    return made
