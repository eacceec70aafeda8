"""What the nemesis can do: one method ``_do_…`` for each kind of step.

Steps are total: each makes its choices by its own seed in whatever situation it meets, and where
there is nothing to do it raises ``Nothing``. The owner, zombies and readers are all driven by the
same methods: for the length of a step ``_owner`` is whoever acts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress

from headwater.algebra.frontier import Frontier
from headwater.base.errors import Determinate, ExternalError, Indeterminate
from headwater.base.ids import BatchId
from headwater.persist import commands as c
from headwater.persist.client import (
    AtomicWrite,
    Client,
    ReadHandle,
    WriteHandle,
    pending_parts,
)
from headwater.persist.errors import (
    AsOfBeforeSince,
    Fenced,
    PartCollected,
    Stopped,
)
from headwater.persist.maintenance import Maintenance
from headwater.persist.part import PartMissing
from headwater.testing import history as h
from headwater.testing.crash import Mortal
from headwater.testing.nemesis_world import (
    BIG,
    COLLECTIONS,
    TIMELINE,
    Nothing,
    Process,
    World,
    time_of,
    to_table,
)


class Steps(World):
    """The steps of a plan."""

    # ---- what is written ---------------------------------------------------------------------

    def _updates(self, name: str, lower: int, upper: int) -> tuple[h.Update, ...]:
        """Return a marker, perhaps a row more, perhaps the retraction of somebody's marker."""
        random = self._random
        self._rows += 1
        marker = (self._rows, f"{name}{self._rows}" * (BIG if random.random() < 0.25 else 1))
        first = random.randrange(lower, upper)
        updates = [(marker, first, 1)]
        if random.random() < 0.5:
            # A row many operations share: its multiplicity adds up and cancels.
            updates.append(
                ((0, "shared"), random.randrange(lower, upper), random.choice((-1, 1, 2)))
            )
        if random.random() < 0.4:
            updates.extend(self._retraction(name, first))
        return tuple(updates)

    def _retraction(self, name: str, time: int) -> Iterator[h.Update]:
        for operation in self.history.operations:
            if operation.outcome is h.Outcome.ACKNOWLEDGED and name in operation.updates:
                row, written, _ = operation.updates[name][0]
                if row[0] not in self._retracted and written <= time:
                    self._retracted.add(row[0])
                    yield row, time, -1
                    return

    def _do_write(self) -> None:
        process, name = self._live(), self._random.choice(self.plan.collections)
        upper = self._upper(process, name)
        early = self._random.random() < 0.1 and upper > 2
        lower = upper - 2 if early else upper
        updates = {name: self._updates(name, lower, lower + self._random.choice((1, 3, 8)))}
        self._write(process, f"write {name}", updates)

    def _write(self, process: Process, text: str, updates: dict[str, tuple[h.Update, ...]]) -> None:
        token = BatchId(f"token{self.history.clock}")
        ((name, rows),) = updates.items()

        def call(client: Client) -> Future[c.Outcome]:
            gid = client.core.state.names[name]
            return WriteHandle(client.core, gid).write(to_table(rows), token=token)

        operation = self._submit(process, text, lambda: call(process.client), updates=updates)
        self._retriable.append((operation, call))

    def _do_append(self) -> None:
        process, name = self._live(), self._random.choice(self.plan.collections)
        lower = self._upper(process, name)
        if self._random.random() < 0.1:
            lower += self._random.choice((-1, 1)) if lower else 1
        upper = lower + self._random.choice((1, 2, 5))
        rows = self._updates(name, lower, upper)
        token = BatchId(f"token{self.history.clock}")

        def call(client: Client) -> Future[c.Outcome]:
            handle = WriteHandle(client.core, client.core.state.names[name])
            return handle.compare_and_append(to_table(rows), lower, upper, token=token)

        operation = self._submit(
            process,
            f"append {name} [{lower}, {upper})",
            lambda: call(process.client),
            {name: upper},
            updates={name: rows},
        )
        self._retriable.append((operation, call))

    def _do_seal(self) -> None:
        process, name = self._live(), self._random.choice(self.plan.collections)
        upper = max(0, self._upper(process, name) + self._random.choice((-1, 0, 1, 1, 2, 4)))
        handle = self._handle(process, name)
        self._submit(process, f"seal {name} {upper}", lambda: handle.seal(upper), {name: upper})

    def _do_atomic(self) -> None:
        process = self._live()
        names = self._random.sample(list(COLLECTIONS), self._random.choice((2, 3)))
        uppers = {name: self._upper(process, name) for name in names}
        sealed: dict[str, int] = {}
        updates: dict[str, tuple[h.Update, ...]] = {}
        plan: list[Callable[[AtomicWrite, Client], object]] = []
        for name in names:
            lower, upper = uppers[name], uppers[name] + self._random.choice((1, 3))
            rows = updates[name] = self._updates(name, lower, upper)
            token = BatchId(f"token{self.history.clock}")
            if self._random.random() < 0.5:
                sealed[name] = upper
                plan.append(_append_to(name, rows, lower, upper, token))
            else:
                plan.append(_write_to(name, rows, token))

        def call(client: Client) -> Future[c.Outcome]:
            atomic = client.atomic()
            for add in plan:
                add(atomic, client)
            return atomic.commit()

        operation = self._submit(
            process,
            f"atomic {', '.join(names)}",
            lambda: call(process.client),
            sealed,
            updates=updates,
        )
        self._retriable.append((operation, call))

    def _do_advance(self) -> None:
        process = self._live()
        current = process.client.core.state.timelines[TIMELINE].upper
        upper = max(0, current + self._random.choice((0, 1, 3)))
        # It moves, or will move once nothing is pending, whatever is on the timeline: an
        # acknowledgement alone says nothing of a collection's upper.
        self._submit(
            process,
            f"advance {upper}",
            lambda: process.client.core.submit(c.Advance(TIMELINE, upper)),
        )
        for name, timeline in COLLECTIONS.items():
            if timeline is not None:
                self._asked(f"advance {name}", uppers={name: upper})

    def _do_allow_compaction(self) -> None:
        process, name = self._live(), self._random.choice(self.plan.collections)
        handle = self._handle(process, name)
        since = time_of(ReadHandle(process.client.core, handle.id).since)
        wanted = max(0, min(since + self._random.choice((-1, 1, 5, 9)), time_of(handle.upper) + 2))
        self._allow_compaction(process, name, wanted)

    def _do_retry(self) -> None:
        """Ask again for what nobody knows, or knows to be done: by the same token."""
        process = self._live()
        for operation, call in reversed(self._retriable):
            unknown = operation.outcome is h.Outcome.UNKNOWN
            known = operation.outcome is h.Outcome.ACKNOWLEDGED and self._random.random() < 0.3
            if unknown or known:
                self._ask_again(process, operation, call)
                return
        raise Nothing

    def _ask_again(
        self,
        process: Process,
        operation: h.Operation,
        call: Callable[[Client], Future[c.Outcome]],
    ) -> None:
        again = self._submit(
            process,
            f"retry of #{operation.begun}",
            lambda: call(process.client),
            dict(operation.uppers),
        )
        self._drain(process)
        # A refusal of the retry says nothing of the first attempt.
        if (again.outcome, operation.outcome) == (h.Outcome.ACKNOWLEDGED, h.Outcome.UNKNOWN):
            operation.outcome, operation.ended = again.outcome, again.ended
            operation.epoch = again.epoch  # whoever asked first, this one was told

    def _do_begin_part(self) -> None:
        """Write a part under an open step, as a task does; it is committed later, or never."""
        process, name = self._live(), self._random.choice(self.plan.collections)
        upper = self._upper(process, name)
        self._rows += 1
        rows: tuple[h.Update, ...] = (((self._rows, f"{name}{self._rows}" * BIG), upper + 6, 1),)
        core = process.client.core
        step = core.step()
        try:
            parts = step.write(pending_parts(core, self._handle(process, name).id, to_table(rows)))
        except BaseException:
            step.close()
            raise
        operation = h.Operation(f"commit part of {name}", process.epoch, 0, {name: rows})
        process.parts.append((operation, name, step, parts))

    def _do_commit_part(self) -> None:
        process = self._live()
        if not process.parts:
            raise Nothing
        asked, name, step, parts = process.parts.pop(0)
        core = process.client.core
        token = BatchId(f"token{self.history.clock}")
        command = c.Write(core.state.names[name], token, parts)
        self._submit(process, asked.text, lambda: core.submit(command), updates=dict(asked.updates))
        self._drain(process)
        step.close()

    # ---- what is read ------------------------------------------------------------------------

    def _do_take_snapshot(self) -> None:
        process = self._live()
        name, reader, as_of = self._readable(process)
        process.snapshots.append((name, reader.snapshot(as_of)))

    def _do_read_snapshot(self) -> None:
        process = self._live()
        if not process.snapshots:
            self._do_take_snapshot()
        index = self._random.randrange(len(process.snapshots))
        self._read(*process.snapshots[index])
        if self._random.random() < 0.5:
            del process.snapshots[index]

    def _do_hold(self) -> None:
        """Take a read capability: it outlives processes, and what it holds stays readable."""
        process = self._live()
        name, reader, as_of = self._readable(process)
        self._drain(process)
        self._held_back.add(name)
        token = f"hold{self.history.clock}"
        command = c.OpenReader(reader.id, token, "nemesis", Frontier.of(as_of))
        core = process.client.core
        taken = self._submit(process, f"hold {name} at {as_of}", lambda: core.submit(command))
        self._drain(process)
        if taken.outcome is h.Outcome.ACKNOWLEDGED:
            self._held.append((token, name, as_of))

    def _do_read_held(self) -> None:
        process = self._live()
        if not self._held:
            raise Nothing
        _, name, as_of = self._random.choice(self._held)
        reader = ReadHandle(process.client.core, process.client.core.state.names[name])
        self._read(name, reader.snapshot(as_of))

    def _do_release(self) -> None:
        process = self._live()
        if not self._held:
            raise Nothing
        reader_id, name, _ = self._held.pop()
        core = process.client.core
        command = c.DropReader(core.state.names[name], reader_id)
        self._submit(process, f"release {name}", lambda: core.submit(command))

    def _do_begin_listen(self) -> None:
        process = self._live()
        name, reader, as_of = self._readable(process)
        self._listens += 1
        process.listens.append((self._listens, name, reader.listen(as_of)))

    def _do_fetch(self) -> None:
        process = self._live()
        if not process.listens:
            self._do_begin_listen()
        number, name, listen = self._random.choice(process.listens)
        self._fetch(number, name, listen)
        if self._random.random() < 0.2:
            listen.close()
            process.listens.remove((number, name, listen))

    def _do_read_independently(self) -> None:
        """Another process reads, beside the owner's merges and garbage collection."""
        with self._reader_process() as client:
            name, reader, as_of = self._readable(Process(client, Mortal()))
            snapshot = reader.snapshot(as_of)
            self._meanwhile()
            with suppress(PartCollected):
                try:
                    self._read(name, snapshot)
                except AsOfBeforeSince:
                    self.history.observations.append(
                        h.NotReadable(self.history.tick(), name, as_of)
                    )

    def _do_listen_independently(self) -> None:
        with self._reader_process() as client:
            name, reader, as_of = self._readable(Process(client, Mortal()))
            self._listens += 1
            number, listen = self._listens, reader.listen(as_of)
            self._meanwhile()
            client.core.refresh()
            with suppress(PartCollected):
                try:
                    self._fetch(number, name, listen)
                except AsOfBeforeSince:
                    self.history.observations.append(
                        h.NotReadable(self.history.tick(), name, as_of)
                    )

    def _meanwhile(self) -> None:
        """Let the owner merge and collect under a reader that it does not know of."""
        owner = self._owner
        if owner is not None and self._random.random() < 0.7:
            with suppress(ExternalError, Stopped, Fenced, Nothing):
                if self._random.random() < 0.5:
                    self._do_append()
                    self._do_allow_compaction()
                    self._do_merge()
                self._maintain(owner)

    # ---- what happens to the location --------------------------------------------------------

    def _do_maintain(self) -> None:
        process = self._live()
        self._maintain(process)
        self._see(process)

    def _do_merge(self) -> None:
        """Merge any adjacent batches: more often, and others, than growth alone would ask for."""
        process = self._live()
        state = process.client.core.state
        collection = state.collections[state.names[self._random.choice(self.plan.collections)]]
        count = len(collection.batches)
        if not count:
            raise Nothing
        first = self._random.choice((0, 0, self._random.randrange(count)))
        last = self._random.choice((count, self._random.randrange(first, count) + 1))
        maintenance = Maintenance(process.client.core)
        try:
            applied = maintenance.merge_batches(collection, collection.batches[first:last])
        except PartMissing:
            if process not in self._zombies:
                raise
            raise Nothing from None  # its successor has merged and collected already
        self._say(f"  merged {last - first} of {count} batches of {collection.name}: {applied}")
        if self._random.random() < 0.5:
            maintenance.collect()

    def _do_roll_up(self) -> None:
        process = self._live()
        Maintenance(process.client.core).roll_up(force=True)

    def _do_sweep(self) -> None:
        process = self._live()
        Maintenance(process.client.core).sweep()

    def _do_zombie(self) -> None:
        """A former owner goes on: whatever it asks for must not be acknowledged."""
        if not self._zombies:
            raise Nothing
        owner, zombie = self._owner, self._random.choice(self._zombies)
        action = self._random.choice(
            (
                self._do_write,
                self._do_append,
                self._do_seal,
                self._do_retry,
                self._do_merge,
                self._do_maintain,
                self._do_roll_up,
                self._do_sweep,
                self._do_commit_part,
                self._do_begin_part,
                self._do_read_snapshot,
            )
        )
        self._say(f"  zombie of epoch {zombie.epoch}: {action.__name__}")
        self._owner = zombie
        try:
            action()
        except (AsOfBeforeSince, PartCollected):
            # What it reads is not pinned against its successor, which may have merged and collected
            # it: then a named error is right, and never some rows. Nothing else may meet one.
            if action != self._do_read_snapshot:
                raise
        finally:
            self._owner = owner

    def _do_restart(self) -> None:
        process = self._live()
        process.client.stop()
        self._drain(process)
        self._owner = None
        self._live()

    def _do_crash(self) -> None:
        process = self._live()
        process.mortal.die()
        self._bury(process)
        self._live()

    def _do_crash_soon(self) -> None:
        process = self._live()
        process.mortal.die_at(
            self._random.choice((1, 1, 2, 3)), self._random.choice(("before", "after"))
        )

    def _do_take_over(self) -> None:
        before = self._live()
        self._owner = self._open(take_over=True)
        self._zombies.append(before)
        if self._random.random() < 0.5:
            self._drain(before)

    def _do_outage(self) -> None:
        failure = self._random.choice((Determinate, Indeterminate))
        self._outage.begin(failure)
        try:
            for _ in range(self._random.choice((1, 2, 3))):
                with suppress(Nothing, ExternalError, Stopped, Fenced):
                    self._random.choice(
                        (
                            self._do_write,
                            self._do_seal,
                            self._do_append,
                            self._do_maintain,
                            self._do_fetch,
                        )
                    )()
            if self._owner is not None:
                self._drain(self._owner)
        finally:
            self._outage.end()

    def _do_drain(self) -> None:
        process = self._live()
        self._drain(process)
        self._see(process)


def _append_to(
    name: str, rows: tuple[h.Update, ...], lower: int, upper: int, token: BatchId
) -> Callable[[AtomicWrite, Client], object]:
    return lambda atomic, client: atomic.compare_and_append(
        WriteHandle(client.core, client.core.state.names[name]), to_table(rows), lower, upper, token
    )


def _write_to(
    name: str, rows: tuple[h.Update, ...], token: BatchId
) -> Callable[[AtomicWrite, Client], object]:
    return lambda atomic, client: atomic.write(
        WriteHandle(client.core, client.core.state.names[name]), to_table(rows), token
    )
