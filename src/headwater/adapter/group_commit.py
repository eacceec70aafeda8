"""Group commit: the writes of many sessions, decided one after another, in one log entry.

A :class:`Write` is what one transaction wants to have written: updates of some tables, and what it
had read for them. All writes of a group get one time ``t``, are decided in the order in which they
came (each sees the ones before it), and commit as one entry that seals their tables and advances
the timeline to ``t + 1``. What is refused is told so, and is not in the entry.

Decided here, against the state at ``t - 1`` that nobody can change before the entry lands:

- **primary keys**: after the write every key it touches has at most one row. Found by probing the
  keys (``adapter/keyed_reads.py``), never by reading the table;
- **conflicts**: a write that rests on reads at ``r`` is refused (40001) if a table it read has
  updates after ``r``. So no write comes between the reads and the write of a transaction.

Who is in which group, and who commits it, is for ``adapter/turns.py`` to say.

A write at a time of the client's choice (``adapter/writes_as_of.py``) is no part of a group: it has
an entry of its own, in turn with the groups, and is decided against the state just before its time.

A write may *define* objects in the same entry (a transaction block that creates a table and fills
it). It is a group of its own, decided against the state that its definitions make.

Invariant: an acknowledged write is durable, and in every read chosen after its acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.adapter.appointments import Appointment
from headwater.adapter.errors import (
    AdapterError,
    SerializationFailure,
    UnknownRelation,
    WriteInThePast,
)
from headwater.adapter.given import GivenRows, encode
from headwater.adapter.key_counts import Admitted, Key, KeyCounts, admit, keys_of
from headwater.adapter.keyed_reads import PROBE_INDEX, KeyedReads
from headwater.adapter.limit import NO_LIMIT, Limit
from headwater.adapter.storage_errors import no_room
from headwater.adapter.timeline import APPOINTED, DEFAULT, Timeline, advanced
from headwater.adapter.turns import Gate, Turns
from headwater.algebra.frontier import Frontier
from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.persist.client import Client, ReadHandle, WriteHandle
from headwater.persist.commands import Atomic, Command, CreateOrLoad, Outcome
from headwater.persist.errors import DiskFull, HeldByWriter
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.state import CollectionState, State, bound

LOAD_ROWS: Final = 1_000
"""From so many rows on, a write of new rows is checked by columns."""


@dataclass(frozen=True, slots=True, eq=False)
class TableWrite:
    """Updates of one table: rows of exactly its schema, each with its diff."""

    id: GlobalId
    name: str
    key: tuple[str, ...]
    given: pa.Table | GivenRows
    diffs: Sequence[int]
    skip_existing: bool = False
    """Leave rows out whose key is there already (``ON CONFLICT DO NOTHING``)."""

    @property
    def rows(self) -> pa.Table:
        """Its rows."""
        return self.given.table if isinstance(self.given, GivenRows) else self.given

    @property
    def num_rows(self) -> int:
        """How many."""
        return self.given.num_rows


@dataclass(frozen=True, slots=True, eq=False)
class MetKeys:
    """Keys of a table that a transaction was told of, and how many rows each had."""

    id: GlobalId
    name: str
    keys: pa.Table
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What a transaction read, and when: tables by id, with their names for messages."""

    time: int
    tables: Mapping[GlobalId, str]
    met: tuple[MetKeys, ...] = ()
    """Keys of which it knows nothing but whether they are there."""

    @property
    def rests(self) -> bool:
        """Whether there is anything in it that may change."""
        return bool(self.tables or self.met)


@dataclass(frozen=True, slots=True)
class Defines:
    """Definitions that commit in the same entry as rows."""

    made: Callable[[State], tuple[State, tuple[Command, ...]]]
    """The state that they make of one, and by which commands, or the refusal to make it."""
    turn: Callable[[], AbstractContextManager[object]] = nullcontext
    """Held while they are made and committed."""


@dataclass(frozen=True, slots=True)
class _Before:
    """What a group is decided against."""

    stored: State
    """What it has read is of this one: it may drop what it has read."""
    state: State
    """What its definitions make of that."""
    present: dict[GlobalId, KeyCounts]
    """How many rows its keys have."""
    commands: tuple[Command, ...] = ()

    @property
    def created(self) -> dict[GlobalId, CreateOrLoad]:
        """The collections that its definitions create."""
        found = (each for each in self.commands if isinstance(each, CreateOrLoad))
        return {each.id: each for each in found if each.id is not None}


@dataclass(frozen=True, slots=True)
class Committed:
    """When a write happened, and the rows each of its parts really wrote."""

    time: int
    written: tuple[pa.Table, ...]


@dataclass(slots=True, eq=False)
class Write:
    """A transaction's writes on their way; ``gate`` if it has the tables for itself."""

    tables: tuple[TableWrite, ...]
    reads: ReadSet | None = None
    gate: Gate | None = None
    defines: Defines | None = None
    outcome: Committed | BaseException | None = None

    @property
    def touches(self) -> frozenset[GlobalId]:
        """The tables it writes, or rests on."""
        read = self.reads.tables if self.reads is not None else ()
        return frozenset((*(t.id for t in self.tables), *read, *(m.id for m in self.met)))

    @property
    def met(self) -> tuple[MetKeys, ...]:
        """The keys it rests on."""
        return () if self.reads is None else self.reads.met


class GroupCommit:
    """Commits the writes of all sessions of one location."""

    def __init__(self, client: Client, timeline: Timeline, keyed: KeyedReads) -> None:
        self._client = client
        self._core = client.core
        self._timeline = timeline
        self._keyed = keyed
        self.turns = Turns(self._commit, kept_off=self._is_kept_off)

    def write(self, write: Write, limit: Limit = NO_LIMIT) -> Committed:
        """Commit; when this returns it is durable."""
        self.turns.take(write, limit)
        return settled(write)

    def offer(
        self, write: Write, whose: Hashable, tell: Callable[[], None], limit: Limit = NO_LIMIT
    ) -> None:
        """Have a write committed, and ``tell`` called when it is :func:`settled`; does not wait."""
        self.turns.offer(write, whose, tell, limit)

    def alone(
        self,
        commands: Callable[[int], Sequence[Command]],
        turn: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> Outcome:
        """Commit something else at a time of its own (a definition), in turn with the writes.

        ``turn`` is held while it is decided and committed.
        """
        with self._timeline.write_turn() as time, turn():
            *moved, advance = self._timeline.moved(time + 1)
            return self._core.submit(Atomic((*moved, *commands(time), advance))).result()

    # ---- at a time of the client's choice ----------------------------------------------------

    def write_as_of(self, as_of: int, table: TableWrite) -> None:
        """Write rows, not before the table's upper, whatever else is in it.

        It moves no time but its own: what is still to come is durable now, and there when the
        timeline has passed it.
        """
        assert not table.key, "whether a key will be free cannot be known"
        with self._timeline.write_turn() as time:
            state = self._core.state
            _check_writeable(state, table.id, table.name, as_of)
            atomic = self._client.atomic()
            rows = _timed(table.rows, table.diffs, as_of)
            atomic.write(WriteHandle(self._core, table.id), rows)
            if as_of <= time:
                upper = max(self._timeline.upper, as_of + 1)
                for each in advanced(state, upper, self._timeline.appointments, (table.id,)):
                    atomic.add(each)
            atomic.commit().result()

    @contextmanager
    def appointed(self, table: GlobalId, name: str, as_of: int) -> Iterator[Appointment]:
        """Have an appointment to write a table, not before its upper, until it is kept or not."""
        timeline = self._timeline
        with timeline.write_turn():
            _check_writeable(self._core.state, table, name, as_of)
            mine = Appointment(table, as_of)
            timeline.appointments = timeline.appointments.having(mine)
        try:
            yield mine
        finally:
            with timeline.write_turn():
                if mine in timeline.appointments.standing:
                    self._end(mine, None)

    def keep(
        self, mine: Appointment, table: TableWrite, rests_on: Mapping[GlobalId, str]
    ) -> Committed:
        """Write at the time of an appointment, given what is before it; it is durable then."""
        with self._timeline.write_turn():
            state = self._core.state
            _check_writeable(state, table.id, table.name, mine.time)
            for gid, name in rests_on.items():
                if self._timeline.appointments.overtook(mine, gid):
                    if gid == table.id:
                        raise WriteInThePast(name, mine.time, mine.time + 1)
                    raise SerializationFailure(name)
            write = Write((table,))
            present = self._present(state, (write,), mine.time - 1)
            (admitted,) = admit(state, write, present)
            self._end(mine, admitted)
        return Committed(mine.time, (admitted[0],))

    def _end(self, mine: Appointment, admitted: Admitted | None) -> None:
        """Write what there is to be written, and let the table go on; for who has the turn."""
        timeline, state = self._timeline, self._core.state
        wrote = admitted is not None and admitted[0].num_rows > 0
        # Before it is tried: if it fails, the next who moves the timeline lets the table go.
        timeline.appointments = rest = timeline.appointments.without(mine, wrote=wrote)
        try:
            if wrote:
                assert admitted is not None
                atomic = self._client.atomic()
                atomic.write(WriteHandle(self._core, mine.table), _timed(*admitted, mine.time))
                upper = max(timeline.upper, mine.time + 1)
                for each in advanced(state, upper, rest, (mine.table,)):
                    atomic.add(each)
                atomic.commit().result()
            elif mine.table in state.timelines[DEFAULT].apart:
                self._core.submit(Atomic(timeline.moved(timeline.upper))).result()
        finally:
            self.turns.wake()

    def _is_kept_off(self, write: Write) -> bool:
        appointments = self._timeline.appointments
        if not appointments.standing:
            return False
        soonest = max(self._core.clock.now_ms(), self._timeline.upper)
        return appointments.bar(write.touches, soonest)

    # ---- committing --------------------------------------------------------------------------

    def _commit(self, group: Sequence[Write]) -> None:
        """Give every write of the group its outcome."""
        try:
            with self._timeline.write_turn() as time:
                self._commit_at(time, group)
        except BaseException as error:
            for write in group:
                if write.outcome is None:
                    write.outcome = error
            if not isinstance(error, Exception):
                raise

    def _commit_at(self, time: int, group: Sequence[Write]) -> None:
        appointments = self._timeline.appointments
        if appointments.standing:
            group = [each for each in group if not appointments.bar(each.touches, time)]
        group = _encoded(group)
        if not group:
            return
        defines = group[0].defines
        with nullcontext() if defines is None else defines.turn():
            try:
                before = self._before(self._core.state, group)
            except AdapterError as refused:
                (write,) = group
                write.outcome = refused
                return
            self._decide(time, group, before)

    def _decide(self, time: int, group: Sequence[Write], before: _Before) -> None:
        accepted: list[tuple[Write, tuple[Admitted, ...]]] = []
        changed: set[GlobalId] = set()
        for write in group:
            try:
                _check_unchanged(before.stored, write.reads, changed, time)
                accepted.append((write, admit(before.state, write, before.present)))
                changed.update(table.id for table in write.tables)
            except AdapterError as refused:
                write.outcome = refused
        if accepted:
            self._append(before, time, accepted)
        for write, admitted in accepted:
            write.outcome = Committed(time, tuple(rows for rows, _ in admitted))

    def _append(
        self, before: _Before, time: int, accepted: Sequence[tuple[Write, tuple[Admitted, ...]]]
    ) -> None:
        updates: dict[GlobalId, tuple[list[pa.Table], list[int]]] = {}
        for write, admitted in accepted:
            for table, (rows, diffs) in zip(write.tables, admitted, strict=True):
                if rows.num_rows:
                    tables, all_diffs = updates.setdefault(table.id, ([], []))
                    tables.append(rows)
                    all_diffs += diffs
        atomic = self._client.atomic()
        created = before.created
        for each in before.commands:
            atomic.add(each)
        for gid, (tables, all_diffs) in updates.items():
            rows = _timed(pa.concat_tables(tables), all_diffs, time)
            if gid in created:
                atomic.write_created(created[gid], rows)
            else:
                atomic.write(WriteHandle(self._core, gid), rows)
        for command in advanced(before.state, time + 1, self._timeline.appointments, updates):
            atomic.add(command)
        atomic.commit().result()

    def _before(self, state: State, group: Sequence[Write]) -> _Before:
        """Return what a group is decided against."""
        present = self._present(state, group, state.timelines[DEFAULT].upper - 1)
        defines = group[0].defines
        if defines is None:
            return _Before(state, state, present)
        made, commands = defines.made(state)
        before = _Before(state, made, present, commands)
        present.update((gid, KeyCounts()) for gid, each in before.created.items() if each.key)
        return before

    def _present(
        self, state: State, group: Sequence[Write], before: int
    ) -> dict[GlobalId, KeyCounts]:
        """Return how many rows each key has at ``before`` that the group touches."""
        asked: dict[GlobalId, list[TableWrite]] = {}
        met: dict[GlobalId, list[pa.Table]] = {}
        for write in group:
            for table in write.tables:
                if table.key and table.num_rows and table.id in state.collections:
                    asked.setdefault(table.id, []).append(table)
            for each in write.met:
                if each.id in state.collections:
                    met.setdefault(each.id, []).append(each.keys)
        present: dict[GlobalId, KeyCounts] = {}
        for gid in asked.keys() | met.keys():
            tables, more = asked.get(gid, []), met.get(gid, [])
            alone = len(tables) == 1 and not more and _is_load(tables[0])
            if alone and self._all_new(state, tables[0], before):
                continue  # Nobody else in the group asks how many rows its keys have.
            key = state.collections[gid].key
            keys = pa.concat_tables([*(table.rows.select(list(key)) for table in tables), *more])
            places: dict[Key, int] = {}
            for place, name in enumerate(keys_of(keys, key)):
                places.setdefault(name, place)
            if len(places) < keys.num_rows:
                keys = keys.take(pa.array(places.values(), pa.int64()))
            found = self._lookup(state, gid, keys, before)
            names, counts = list(places), dict.fromkeys(places, 0)
            for index, diff in zip(
                found.column(PROBE_INDEX).to_pylist(), found.column(DIFF).to_pylist(), strict=True
            ):
                counts[names[index]] += diff
            present[gid] = KeyCounts(counts)
        return present

    def _lookup(self, state: State, gid: GlobalId, keys: pa.Table, before: int) -> pa.Table:
        # A table that was left behind, and is let go by this very entry, has had no writes since.
        before = min(before, bound(state.upper(state.collections[gid])) - 1)
        arrays = [column.combine_chunks() for column in keys.columns]
        return self._keyed.lookup(ReadHandle(self._core, gid).snapshot(before), arrays)

    def _all_new(self, state: State, table: TableWrite, before: int) -> bool:
        """Whether all keys of a load differ, and none is there; by columns, not by rows."""
        keys = table.rows.select(list(table.key))
        distinct = keys.group_by(list(table.key)).aggregate([]).num_rows
        return (
            distinct == keys.num_rows and not self._lookup(state, table.id, keys, before).num_rows
        )


def settled(write: Write) -> Committed:
    """Return what became of a write that has its outcome, or raise why it was refused."""
    if isinstance(write.outcome, DiskFull):
        raise no_room(write.outcome) from write.outcome
    if isinstance(write.outcome, HeadwaterError):
        raise write.outcome.again()
    if isinstance(write.outcome, BaseException):
        raise write.outcome
    assert write.outcome is not None
    return write.outcome


def _check_writeable(state: State, gid: GlobalId, name: str, as_of: int) -> None:
    """Refuse a time before the table's upper, or of a table that somebody else holds."""
    collection = state.collections.get(gid)
    if collection is None:
        raise UnknownRelation(name)
    upper = state.upper(collection)
    if not upper.allows(as_of):
        raise WriteInThePast(name, as_of, upper.only())
    for writer_id, writer in collection.writers.items():
        if writer_id != APPOINTED:
            raise HeldByWriter(name, Frontier.of(as_of + 1), writer.purpose, writer.frontier)


def _encoded(group: Sequence[Write]) -> list[Write]:
    """Encode the rows of a group; return those that can be, the others have an outcome."""
    tables = [table for write in group for table in write.tables]
    encode(table.given for table in tables if isinstance(table.given, GivenRows))
    able = []
    for write in group:
        try:
            for table in write.tables:
                _ = table.rows
            able.append(write)
        except Exception as error:  # noqa: BLE001 - of this one, whatever it is
            write.outcome = error
    return able


def _timed(rows: pa.Table, diffs: Sequence[int], time: int) -> pa.Table:
    """Return updates at one time, of rows with their diffs."""
    times = pa.repeat(pa.scalar(time, pa.int64()), rows.num_rows)
    timed = rows.append_column(pa.field(TIME, pa.int64(), nullable=False), times)
    numbers = pa.array(diffs, pa.int64())
    return timed.append_column(pa.field(DIFF, pa.int64(), nullable=False), numbers)


def _is_load(table: TableWrite) -> bool:
    """Whether a write just adds many rows, whose keys are equal in Arrow when they are in SQL."""
    floating = any(pa.types.is_floating(table.rows.schema.field(k).type) for k in table.key)
    many = table.num_rows >= LOAD_ROWS and not table.skip_existing and not floating
    return many and min(table.diffs) == 1


def _check_unchanged(
    state: State, reads: ReadSet | None, changed: Container[GlobalId], time: int
) -> None:
    """Refuse reads of tables that have been written since, or are by who is before in the group."""
    if reads is None:
        return
    for gid, name in reads.tables.items():
        collection = state.collections.get(gid)
        if gid in changed or collection is None or _written_after(collection, reads.time, time):
            raise SerializationFailure(name)


def _written_after(collection: CollectionState, time: int, until: int) -> bool:
    """Whether there are updates after ``time`` and not after ``until``.

    A hold at ``time`` keeps such times apart. Some may not be sealed yet (``INSERT … AS OF``).
    """
    for batch in reversed(collection.batches):
        if bound(batch.upper) <= time + 1:
            break
        if any(part.through(time + 1, bound(batch.upper)) is not None for part in batch.parts):
            return True
    return any(
        part.through(time + 1, until + 1) is not None
        for unsealed in collection.unsealed
        for part in unsealed.parts
    )
