"""A statement that reads and then writes, on its own: UPDATE, DELETE, INSERT of a query.

Nothing may be written between its reads and its write. The tables it writes and rests on are kept
from everybody else meanwhile (:meth:`~.turns.Turns.exclusive`), so it is never refused
for being overtaken; others on the same tables wait for it, as document 004 has it: the half-open
intervals ``[read, write)`` of such statements do not overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.adapter.catalog import Sources
from headwater.adapter.errors import SerializationFailure
from headwater.adapter.group_commit import ReadSet, Write
from headwater.adapter.limit import Limit
from headwater.adapter.pgwire.backend import Result
from headwater.adapter.sql.statements import Delete, Insert, Update

if TYPE_CHECKING:
    from headwater.adapter.coordinator import Coordinator


def read_then_write(
    coordinator: Coordinator, statement: Insert | Update | Delete, limit: Limit, sources: Sources
) -> Result:
    """Run the statement, with its tables kept from changing meanwhile."""
    target = coordinator.target(statement.table)
    tables = frozenset((target.id, *sources.tables))
    with coordinator.commits.turns.exclusive(tables, limit) as gate:
        while True:
            time = coordinator.timeline.upper - 1
            with coordinator.holds.at(time):
                # Views of the tables catch up meanwhile; the tables stay as they are.
                coordinator.reads.wait(time, sources.collections, limit)
                planned = coordinator.plan(statement, target, sources, time)
                reads = ReadSet(time, {target.id: target.name, **sources.tables})
                try:
                    write = Write((planned.table,), reads, gate)
                    committed = coordinator.commits.write(write, limit)
                except SerializationFailure:
                    # Rows that were written ahead of time have come due: read them, too.
                    coordinator.commits.alone(lambda _: ())
                    continue
            return planned.result(committed.written[0])
