"""One ingestion: a source, its remap, its outputs and dead letters, and the loop between them.

A *tick* is

    probe ─▶ mint ─▶ append to remap ─▶ read, stamp, decode ─▶ append everywhere ─▶ tell upstream
             pure      entry 1              pure but for reading      entry 2           commit

Every decision is a pure function next door (:func:`~headwater.storage.remap.mint`,
:func:`~headwater.storage.reclock.times_of`, :func:`~headwater.storage.resumption.resumption`, the
envelopes); here are the effects, in the one order that is right:

- entry 1 makes the binding durable **before** any record carries its time;
- entry 2 appends **all** outputs with their errors and the dead letters, moves their uppers and the
  holds on remap and outputs together: nothing of a range is there without the rest;
- upstream is told to forget **after** entry 2, and just what remap says is before its upper.

A probe that finds nothing new makes one entry of both, with no rows. A tick that finds remap ahead
of the outputs (the process before us died between the entries) mints nothing, and first appends
what is bound: it reads exactly the range that is missing and stamps every record as before.

**Racing.** Starting takes the role of the ingestion in a new epoch, and every entry asserts it, so
a zombie is refused (``Fenced``). Should two run in one epoch all the same, the appends compare
uppers: the one that finds another upper than it thought has lost the race, drops its probe, and
reads where things are now. Tokens are drawn, not made of the range: two probes of one millisecond
would give two bindings one token, and the loser would believe that its own is there.

**On a timeline** (:class:`Following`) everything an ingestion keeps follows the timeline, as tables
do: while nothing is new upstream its uppers move with everybody's, and it commits nothing at all.
Something new is bound in a turn of the timeline, at a time that nobody's upper has passed. Entry 1
then also takes a write capability on every output and the dead letters, which keeps them where they
are, and advances the timeline past the binding; entry 2 drops the capabilities after the appends,
and they follow again. So whoever reads in between waits for exactly what is bound, and what was
bound by a process that died holds them until the next one has appended it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.ids import Epoch
from headwater.persist.client import Client, pending_parts
from headwater.persist.commands import (
    Acquired,
    AcquireRole,
    Advance,
    AllowCompaction,
    AssertRole,
    Atomic,
    Command,
    DowngradeReader,
    DropWriter,
    OpenReader,
    OpenWriter,
    ReleaseRole,
    UpperMismatch,
)
from headwater.persist.core import Core, Step, this_process
from headwater.persist.spark_parts import place_of
from headwater.persist.state import State
from headwater.storage import dead_letters, remap
from headwater.storage.cleared import cleared
from headwater.storage.envelope import Changes, Upsert
from headwater.storage.following import Following
from headwater.storage.kept import Entry, Kept
from headwater.storage.keyed_changes import KEPT, Keyed
from headwater.storage.keyed_range import KeyedRange
from headwater.storage.keyed_state import KeyedState
from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.outputs import (
    BOUND,
    HOLD,
    Definition,
    Output,
    Statistics,
    bound_by,
    hold_of,
)
from headwater.storage.reclock import time_of
from headwater.storage.remap import Minted, Probe, Remap, mint
from headwater.storage.resumption import Resumption, Uppers, remap_since, resumption
from headwater.storage.source import Estimated, Momentary, Source
from headwater.storage.stamp import since, stamped
from headwater.storage.stored_remap import read_remap
from headwater.storage.tasks import Tasks, planned
from headwater.storage.upsert_range import UpsertRange
from headwater.storage.written_by_tasks import RangeByTasks


class Ingestion:
    """Runs one source into its collections. One thread at a time."""

    def __init__(
        self,
        client: Client,
        definition: Definition,
        source: Source,
        following: Following | None = None,
        tasks: Callable[[Core, Step], Tasks] | None = None,
    ) -> None:
        """Take the role, and look where things are; ``tasks`` read what is large, if there are."""
        self.definition = definition
        self.source = source
        self.statistics = Statistics()
        self._following = following
        self._tasks = tasks
        self._client = client
        self._core = client.core
        self._epoch = self._take_role()
        timeline = None if following is None else following.name
        write, read = client.create_or_load(definition.remap, remap.SCHEMA, timeline=timeline)
        self._remap_kept = Kept(write, read)
        if following is not None:
            self._core.submit(OpenReader(write.id, self._hold, HOLD)).result()
        write, read = client.create_or_load(
            definition.dead_letters, dead_letters.SCHEMA, timeline=timeline
        )
        self._letters = Kept(write, read)
        self._outputs = {output.name: self._open(output) for output in definition.outputs}
        self._remap = Remap.empty()
        self.resumption = self._look()
        """Where this ingestion is: all of it durable before, nothing after."""
        self.statistics.snapshot_committed = not any(map(self._is_new, self._outputs.values()))
        self._tell_upstream()

    # ---- starting ----------------------------------------------------------------------------

    def _take_role(self) -> Epoch:
        acquire = AcquireRole(self.definition.role, this_process(), take_over=True)
        outcome = self._core.submit(acquire).result()
        assert isinstance(outcome, Acquired)
        return outcome.epoch

    def _open(self, output: Output) -> Kept:
        envelope = output.envelope
        write, read = self._client.create_or_load(
            output.collection,
            envelope.schema,
            key=envelope.key,
            layout=envelope.layout,
            timeline=None if self._following is None else self._following.name,
        )
        kept = Kept(write, read)
        self._core.submit(OpenReader(write.id, self._hold, HOLD)).result()
        if isinstance(envelope, Upsert | Keyed):
            kept.state = KeyedState(self._core, read, envelope.key)
        return kept

    @property
    def _hold(self) -> str:
        return hold_of(self.definition)

    @property
    def _bound_by(self) -> str:
        return bound_by(self.definition)

    def stop(self) -> None:
        """Give the role back; another may start at once."""
        self._core.submit(ReleaseRole(self.definition.role, self._epoch)).result()
        self.source.close()

    # ---- where things are --------------------------------------------------------------------

    def _look(self) -> Resumption:
        """Read every frontier afresh, and remap; return where to go on."""
        state = self._core.look()
        for kept in self._appended_to:
            kept.upper = _upper(state, kept)
        birth = 0
        if self._following is not None:
            # Remap is compacted strictly below what is durable: at its since, nothing was yet.
            since = self._remap_kept.read.since.only()
            birth = since if min(kept.upper for kept in self._appended_to) <= since else 0
        self._remap = read_remap(self._remap_kept.read, birth)
        self._remap_kept.upper = self._remap.upper
        self.statistics.offsets_known = self._remap.latest
        return self._resumption()

    def _resumption(self) -> Resumption:
        outputs = {name: kept.upper for name, kept in self._outputs.items()}
        uppers = Uppers(outputs, self._letters.upper, self._remap.upper)
        return resumption(uppers, self._remap)

    @property
    def _appended_to(self) -> tuple[Kept, ...]:
        """What a range is appended to."""
        return (self._letters, *self._outputs.values())

    # ---- on a timeline -----------------------------------------------------------------------

    def _follow(self) -> None:
        """Take note of where the timeline has moved what is kept."""
        state = self._core.state
        for kept in (self._remap_kept, *self._appended_to):
            kept.upper = _upper(state, kept)
        self._remap = self._remap.known_before(self._remap_kept.upper)
        self.resumption = self._resumption()

    def _tick_following(self, following: Following) -> bool:
        self._follow()
        lost = self._first_is_lost()
        if lost or self.resumption.time == self._remap.upper:
            probed = self.source.probe()
            self.statistics.offsets_known = probed
            if self._remap.bindings and probed == self._remap.latest and not lost:
                return True
            with following.write_turn() as time:
                self._follow()
                minted = mint(self.definition.name, self._remap, Probe(time, probed))
                if minted is None or not self._append_binding(minted, following.moved(time + 1)):
                    return False
            self._follow()
        return self._append_range()

    # ---- one tick ----------------------------------------------------------------------------

    def tick(self, now_ms: int) -> bool:
        """Ingest what is new upstream, as of ``now_ms``; whether anything came of it.

        ``False``: the time is bound already, or somebody else was faster; try again later.
        """
        if self._following is not None:
            return self._tick_following(self._following)
        lost = self._first_is_lost()
        if lost or self.resumption.time == self._remap.upper:
            minted = mint(self.definition.name, self._remap, Probe(now_ms, self.source.probe()))
            if minted is None:
                return False
            self.statistics.offsets_known = minted.binding.offsets
            if not minted.changes and not lost:
                return self._append_idle(minted)
            if not self._append_binding(minted):
                return False
        return self._append_range()

    def _first_is_lost(self) -> bool:
        """Whether what is bound first can be had only at another place: then that is bound, too.

        Nothing of the source is durable, and nobody has seen it: its contents come a little later.
        """
        return (
            isinstance(self.source, Momentary)
            and bool(self._remap.bindings)
            and self.resumption.offsets == NOTHING
            and all(map(self._is_new, self._outputs.values()))
            and not self.source.has(self._remap.latest)
        )

    def _append_binding(self, minted: Minted, moved: Sequence[Command] = ()) -> bool:
        entry = Entry()
        with self._core.step() as step:
            rows = pending_parts(self._core, self._remap_kept.write.id, minted.updates())
            if self._following is not None:  # From its creation to the first binding.
                entry.commands.append(DropWriter(self._remap_kept.write.id, self._bound_by))
            entry.append(self._remap_kept, minted.upper, step.write(rows))
            if self._following is not None:
                for kept in self._appended_to:
                    entry.commands.append(OpenWriter(kept.write.id, self._bound_by, BOUND))
            entry.commands += moved
            if not self._commit(entry):
                return False
        self._bound(minted)
        return True

    def _bound(self, minted: Minted) -> None:
        binding = minted.binding
        self._remap = self._remap.bind(binding.time, minted.upper, binding.offsets)
        self._remap_kept.upper = minted.upper

    def _append_idle(self, minted: Minted) -> bool:
        """Nothing is new: move every upper, remap's too, in one entry."""
        entry = Entry()
        entry.append(self._remap_kept, minted.upper)
        self._append_all(entry, minted.upper, {}, ())
        if not self._commit(entry):
            return False
        self._bound(minted)
        self._appended(minted.upper)
        return True

    def _append_range(self) -> bool:
        """Append what is bound and not there yet, to everything."""
        upper = self._remap.upper
        entry = Entry()
        if not self.statistics.snapshot_committed and isinstance(self.source, Estimated):
            self.statistics.snapshot_known = self.source.estimate(self._remap.latest)
        with self._core.step() as step:
            parts, letters = self._written(step, self.resumption.offsets, self._remap.latest)
            self._append_all(entry, upper, parts, letters)
            if not self._commit(entry):
                return False
        self._appended(upper)
        return True

    def _append_all(
        self, entry: Entry, upper: int, parts: dict[str, list[Any]], letters: Sequence[Any]
    ) -> None:
        if self._following is not None:
            for kept in self._appended_to:
                entry.commands.append(DropWriter(kept.write.id, self._bound_by))
        for name, kept in self._outputs.items():
            entry.append(kept, upper, parts.get(name, ()))
        entry.append(self._letters, upper, letters)
        if self._following is not None:
            entry.commands.append(Advance(self._following.name, None))
        # Everything reaches ``upper`` with this entry, so that is where resumption is after it.
        since = Frontier.of(remap_since(upper))
        for kept in self._outputs.values():
            entry.commands.append(DowngradeReader(kept.write.id, self._hold, since))
        remap_id = self._remap_kept.write.id
        if self._following is None:
            entry.commands.append(AllowCompaction(((remap_id, since),)))
        else:
            # Its owner keeps history for whoever looks; what resumption needs is held beside that.
            entry.commands.append(DowngradeReader(remap_id, self._hold, since))

    def _appended(self, upper: int) -> None:
        for kept in self._appended_to:
            kept.upper = max(kept.upper, upper)
        self._remap = self._remap.compact(remap_since(upper))
        self.resumption = self._resumption()
        self.statistics.snapshot_committed = True
        self._tell_upstream()

    def _tell_upstream(self) -> None:
        """Everything before these offsets is durable in everything: it may be forgotten."""
        self.source.commit(self.resumption.offsets)
        self.statistics.offsets_committed = self.resumption.offsets

    def _commit(self, entry: Entry) -> bool:
        """Commit; ``False`` if somebody else appended: then look where things are now."""
        fence = AssertRole(self.definition.role, self._epoch)
        outcome = self._core.submit(Atomic((fence, *entry.commands))).result()
        if not isinstance(outcome, UpperMismatch):
            return True
        self.statistics.races_lost += 1
        self.resumption = self._look()
        return False

    # ---- reading, stamping, decoding ---------------------------------------------------------

    def _written(
        self, step: Step, lower: Offsets, upper: Offsets
    ) -> tuple[dict[str, list[Any]], list[Any]]:
        """Read a range batch by batch and write its parts; of each output, and of the letters.

        Memory is some batches, however long the range is and however many keys it tells of.
        """
        by_tasks = self._written_by_tasks(step, lower, upper)
        if by_tasks is not None:
            return by_tasks
        parts: dict[str, list[Any]] = {name: [] for name in self._outputs}
        letters: list[Any] = []
        envelopes = {output.name: output.envelope for output in self.definition.outputs}
        upserts: dict[str, UpsertRange] = {}
        keyed: dict[str, KeyedRange] = {}
        for records in self.source.read(lower, upper):
            kept = self._outputs.get(records.output)
            if kept is None:
                continue  # An output that nobody asked for.
            self._count(records.table.num_rows, records.table.nbytes)
            times = stamped(self.source.name, self._remap, records.table, lower, upper)
            envelope = envelopes[records.output]
            if isinstance(envelope, Upsert):
                if records.output not in upserts:
                    upserts[records.output] = self._upserting(kept, envelope, records.output)
                changes = upserts[records.output].add(since(times, kept.upper))
                self._write(step, kept, changes, parts[records.output], letters)
                continue
            if isinstance(envelope, Keyed) and KEPT in times.column_names:
                there = parts[records.output]
                if records.output not in keyed:
                    rows_of = partial(self._rows_of, kept, there)
                    keyed[records.output] = KeyedRange(envelope, records.output, rows_of)
                told = keyed[records.output]
                for changes in told.add(since(times, kept.upper)):
                    self._write(step, kept, changes, there, letters)
                if records.clears is None:
                    continue
                for changes in told.rest():
                    self._write(step, kept, changes, there, letters)
                changes = told.nothing
            else:
                changes = envelope.changes(records.output, times)
            if records.clears is not None:
                before, at = self._everything(kept), self._time_of(*records.clears)
                there = parts[records.output]
                changes = cleared(self._core, kept.write.id, changes, there, before, at)
            self._write(step, kept, changes, parts[records.output], letters)
        ranges: dict[str, UpsertRange | KeyedRange] = {**upserts, **keyed}
        for name, range_ in ranges.items():
            for changes in range_.rest():
                self._write(step, self._outputs[name], changes, parts[name], letters)
        return parts, letters

    def _upserting(self, kept: Kept, envelope: Upsert, name: str) -> UpsertRange:
        """Return what folds a range into an output as it is before."""
        assert kept.state is not None
        errors = kept.state.errors(kept.as_of(self._remap.birth))
        return UpsertRange(envelope, name, partial(self._rows_of, kept, ()), errors)

    def _rows_of(self, kept: Kept, written: Sequence[Any], keys: Sequence[pa.Array]) -> pa.Table:
        """Return the rows that keys have: before the range, and with what is written of it."""
        assert kept.state is not None
        return kept.state.rows(kept.as_of(self._remap.birth), written, keys)

    def _written_by_tasks(
        self, step: Step, lower: Offsets, upper: Offsets
    ) -> tuple[dict[str, list[Any]], list[Any]] | None:
        """Let tasks read a large range and write its parts; ``None`` if it is to be read here."""
        place = place_of(self._core)
        if self._tasks is None or place is None:
            return None
        pieces = planned(self.source, lambda source: source.pieces(lower, upper))
        if pieces is None:
            return None
        envelopes = {output.name: output.envelope for output in self.definition.outputs}
        outputs = {name: (envelopes[name], kept) for name, kept in self._outputs.items()}
        tasks = self._tasks(self._core, step)
        found = RangeByTasks(
            self._core, place, tasks, self.source, self._remap, outputs, self._letters
        ).written(pieces)
        if found is None:
            return None
        self._count(found.messages, found.bytes)
        self.statistics.updates += found.updates
        self.statistics.dead_letters += found.dead_letters
        for name, told in found.unfolded.items():
            envelope, kept = outputs[name]
            assert isinstance(envelope, Upsert)
            upserting = self._upserting(kept, envelope, name)
            upserting.take(self._core.blob, told)
            for changes in upserting.rest():
                self._write(step, kept, changes, found.parts[name], found.letters)
        found.forget(self._core)
        return found.parts, found.letters

    def _count(self, messages: int, size: int) -> None:
        self.statistics.messages += messages
        self.statistics.bytes += size
        if not self.statistics.snapshot_committed:
            self.statistics.snapshot_staged += messages

    def _is_new(self, kept: Kept) -> bool:
        """Whether nothing was ever appended."""
        return kept.as_of(self._remap.birth) is None

    def _everything(self, kept: Kept) -> list[pa.Table]:
        """Return what an output has before the range."""
        as_of = kept.as_of(self._remap.birth)
        return [] if as_of is None else [kept.read.snapshot(as_of).to_table()]

    def _time_of(self, partition: str, offset: int) -> int:
        time = time_of(self._remap, partition, offset)
        assert time is not None, "what is read is bound"
        return time

    def _write(
        self, step: Step, kept: Kept, changes: Changes, parts: list[Any], letters: list[Any]
    ) -> None:
        updates, errors = since(changes.updates, kept.upper), since(changes.errors, kept.upper)
        dead = since(changes.letters, self._letters.upper)
        self.statistics.updates += updates.num_rows
        self.statistics.dead_letters += dead.num_rows
        parts += step.write(pending_parts(self._core, kept.write.id, updates, errors))
        letters += step.write(pending_parts(self._core, self._letters.write.id, dead))


def _upper(state: State, kept: Kept) -> int:
    return state.upper(state.collections[kept.write.id]).only()


__all__ = ["Definition", "Ingestion", "Output", "Statistics", "read_remap"]
