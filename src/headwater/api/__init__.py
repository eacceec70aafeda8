"""Headwater from Python: the same statements and the same core as behind the wire.

    db = headwater.open("data")                      # read-only: beside a running server
    db.sql("SELECT region, sum(amount) FROM orders GROUP BY region").fetchall()
    db.table("orders").df(as_of=t)                   # a PySpark DataFrame, at one time
    with db.subscribe("totals") as changes: ...      # every change, exactly once

Who uses it: notebooks, programs, PySpark jobs with a SparkSession of their own. It stands beside
``cli``: it puts together what ``server`` does, without a wire.
"""

from __future__ import annotations

from headwater.api.answer import Answer
from headwater.api.database import Database, open  # noqa: A004 - as a user calls it
from headwater.api.relation import Relation
from headwater.api.subscription import Change, Progress, Subscription

__all__ = ["Answer", "Change", "Database", "Progress", "Relation", "Subscription", "open"]
