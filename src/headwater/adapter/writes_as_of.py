"""Writes at a time of the client's choice: ``INSERT | UPDATE | DELETE … AS OF t``.

The clause opts a statement out of the timeline, as document 004 has it: it neither asks the oracle
nor is in anybody's way. It sees everything before ``t``, happens at ``t``, and is in every read
from ``t`` on. ``t`` may not be before the table's upper: what is complete stays as it is.

- What needs to *know nothing* (rows for a table without a primary key) is durable at once, also at
  a time that is still to come; it is there when the timeline has passed it.
- What *reads* (rows to change, keys to be free, a query) has an appointment
  (``adapter/appointments.py``): it waits until all before ``t`` is complete, as a read ``AS OF``
  does, reads at ``t - 1``, and commits. The time is exact, so nothing can come between its read and
  its write: it may rest on a source, and is not refused for being overtaken, unless another with
  the same ``t`` has written what it rests on.

Nothing of a statement that waits is durable: whoever gives up, or is killed, has written nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.adapter.catalog import Sources
from headwater.adapter.errors import UnknownRelation
from headwater.adapter.limit import Limit
from headwater.adapter.pgwire.backend import Result
from headwater.adapter.sql.statements import AsOf, Delete, Insert, Update
from headwater.adapter.timestamps import STRICT
from headwater.adapter.writes import Planned, Target

if TYPE_CHECKING:
    from headwater.adapter.coordinator import Coordinator

LOOK_AGAIN_SECONDS: Final = 1.0
"""How long the clock is trusted at most: it may be set, and the statement cancelled."""


def write_as_of(
    coordinator: Coordinator,
    statement: Insert | Update | Delete,
    as_of: int,
    target: Target,
    limit: Limit,
) -> Result:
    """Run the statement; what it says is durable then, all of it at ``as_of``."""
    commits = coordinator.commits
    if not target.key and coordinator.read_by(statement, target) is None:
        planned = coordinator.plan(statement, target, None, None)
        commits.write_as_of(as_of, planned.table)
        return planned.result()
    before = as_of - 1
    with commits.appointed(target.id, target.name, as_of) as mine, coordinator.holds.at(before):
        _await(coordinator, as_of, limit)
        again = coordinator.target(statement.table)
        if again.id != target.id:
            raise UnknownRelation(target.name)  # Another has its name by now.
        coordinator.reads.wait(before, {target.id: target.name}, limit)
        sources = coordinator.read_by(statement, again, at=before)
        planned = _planned(coordinator, statement, again, sources, before, limit)
        rests_on = {} if sources is None else dict(sources.tables)
        if target.key:
            rests_on[target.id] = target.name
        committed = commits.keep(mine, planned.table, rests_on)
    return planned.result(committed.written[0])


def _planned(
    coordinator: Coordinator,
    statement: Insert | Update | Delete,
    target: Target,
    sources: Sources | None,
    before: int,
    limit: Limit,
) -> Planned:
    if sources is None:
        return coordinator.plan(statement, target, None, None)
    with coordinator.reads.chosen(sources, STRICT, AsOf(before), limit) as time:
        return coordinator.plan(statement, target, sources, time)


def _await(coordinator: Coordinator, time: int, limit: Limit) -> None:
    """Wait until the clock has come to a time, and let everything before it be complete."""
    timeline = coordinator.timeline
    while timeline.upper < time:
        if limit.is_over():
            raise limit.error(f"time {time} to come")
        ahead = time - coordinator.now_ms()
        if ahead <= 0:
            timeline.reach(time)
        else:
            rest = limit.rest_s()
            patience = LOOK_AGAIN_SECONDS if rest is None else min(rest, LOOK_AGAIN_SECONDS)
            coordinator.await_time(time, min(patience, ahead / 1000))
