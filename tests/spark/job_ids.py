"""Which jobs Spark has run: told to whoever counts them when all of them are known."""

from __future__ import annotations

from typing import Any


def job_ids(spark: Any, group: str | None = None) -> frozenset[int]:
    """Return the jobs of a group (``None``: of none); those that Spark has not forgotten yet.

    It is told of them by a thread of its own, and forgets the oldest when they are a thousand: so
    that thread is waited for, and who counts looks at which are new, not at how many there are.
    """
    spark._jsc.sc().listenerBus().waitUntilEmpty()
    return frozenset(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
