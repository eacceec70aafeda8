"""An INSERT that waits for nothing but being durable, and needs no thread of its own meanwhile.

Rows of values for one table, outside a transaction block, are planned in no time and without asking
anybody: no query is evaluated, no expression calculated, nothing read. What then takes long is the
commit that they share with others. So whoever serves many clients plans such a statement where it
is, leaves it to the group commit, and goes on; a thread that slept for each would cost more than
the statement does (32 clients: some twenty switches between threads for a row).

:func:`planned` is None for everything else, and for everything that would be refused: it is then
executed as statements are, where there is time to say in PostgreSQL's words what is wrong with it.

Kept by: this module. Relied on by: ``adapter/session.py``, which makes a promise of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from headwater.adapter.group_commit import Write, settled
from headwater.adapter.pgwire.backend import Result
from headwater.adapter.sql.statements import Calculated, Insert
from headwater.adapter.writes import Planned
from headwater.base import tracing
from headwater.base.errors import HeadwaterError
from headwater.persist.state import State

if TYPE_CHECKING:
    from headwater.adapter.coordinator import Coordinator

VALUES_MAX: Final = 256
"""How many values are few: others wait while they are planned."""


@dataclass(frozen=True, slots=True, eq=False)
class Promised:
    """A statement that was left to the group commit."""

    planned: Planned
    write: Write
    note: Callable[[Literal["idle"]], None]
    """Notes what its session does."""

    def result(self) -> Result:
        """Answer, once it has its outcome."""
        self.note("idle")
        return self.planned.result(settled(self.write).written[0])


def planned(
    coordinator: Coordinator,
    statement: Insert,
    state: State,
    note: Callable[[Literal["idle"]], None],
) -> Promised | None:
    """Return what a statement outside a transaction wants written, if it is such a one."""
    if not _is_blind(statement) or tracing.is_collected():  # Whose spans belong to one thread.
        return None
    try:
        target = coordinator.target(statement.table, state)
        if any(isinstance(each, Calculated) for each in target.rules.defaults.values()):
            return None
        found = coordinator.plan(statement, target, None, None)
    except HeadwaterError:
        return None  # It will be again, and told then.
    return Promised(found, Write((found.table,)), note)


def _is_blind(statement: Insert) -> bool:
    """Whether it has values alone, and few."""
    conflict, rows = statement.on_conflict, statement.rows
    if statement.query is not None or statement.as_of is not None:
        return False
    if conflict is not None and conflict.assignments:
        return False
    if sum(map(len, rows)) > VALUES_MAX:
        return False
    return not any(isinstance(value, Calculated) for row in rows for value in row)
