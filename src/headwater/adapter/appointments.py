"""Appointments: the times at which statements are going to write a table (``UPDATE … AS OF t``).

A statement that reads what is before ``t``, and writes at ``t``, takes a while in between, and may
have to wait until ``t`` comes at all. From the moment it is admitted until it is done it has an
*appointment*: nobody completes its table past ``t``. Until the timeline gets there, it binds
nobody. When the timeline goes on past ``t``, the table stays behind by a write capability at ``t``
(``adapter/timeline.py``), and whoever writes the table, or rests on it, at ``t`` or later waits
(``adapter/turns.py``). Everything else goes on.

What follows, for the order of statements: take statements at one time in the order in which they
were committed.

- who *writes at a later time* has seen the statement, or has waited for it;
- two statements with appointments at the *same* time have both read what was before it. The later
  one is refused if it rests on what the earlier one wrote (:meth:`Appointments.overtook`), so what
  one has missed is always written by one behind it, and no two have missed each other.

Appointments are in memory: after a crash or a take-over nobody has any, and the timeline lets the
tables go whose capability is left over.

Kept by: the timeline, in whose turn they change. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headwater.base.ids import GlobalId


@dataclass(frozen=True, slots=True, eq=False)
class Appointment:
    """One statement that is going to write ``table`` at ``time``."""

    table: GlobalId
    time: int


@dataclass(frozen=True, slots=True)
class Appointments:
    """Those that stand, and what was written by those that were kept."""

    standing: tuple[Appointment, ...] = ()
    written: frozenset[tuple[GlobalId, int]] = frozenset()
    """Of times that somebody may still have an appointment at."""

    @property
    def tables(self) -> frozenset[GlobalId]:
        """The tables that are going to be written."""
        return frozenset(each.table for each in self.standing)

    def first(self, table: GlobalId) -> int | None:
        """Return the time past which a table is not completed; None: any."""
        return min((each.time for each in self.standing if each.table == table), default=None)

    def bar(self, tables: Collection[GlobalId], time: int) -> bool:
        """Whether a write at ``time`` that touches ``tables`` has to wait."""
        return any(each.time <= time and each.table in tables for each in self.standing)

    def overtook(self, mine: Appointment, table: GlobalId) -> bool:
        """Whether a table was written at the very time of an appointment, by another one."""
        return (table, mine.time) in self.written

    def having(self, made: Appointment) -> Appointments:
        """With one more."""
        return Appointments((*self.standing, made), self.written)

    def without(self, ended: Appointment, *, wrote: bool) -> Appointments:
        """After one was kept, or given up.

        A table is not before the earliest appointment that stands, or follows the timeline, which
        is past what was written: so nobody asks about what was written before.
        """
        standing = tuple(each for each in self.standing if each is not ended)
        earliest = min((each.time for each in standing), default=None)
        written = self.written | {(ended.table, ended.time)} if wrote else self.written
        return Appointments(
            standing,
            frozenset(each for each in written if earliest is not None and each[1] >= earliest),
        )
