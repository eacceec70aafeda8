"""A nemesis over the public API of persist: random operations, faults, crashes and rivals.

A **plan** is a list of steps, each a name and a seed, drawn from one seed. Steps are total: each
does something sensible (or nothing) in whatever situation it meets, and its choices and the faults
under it depend on its own seed only. So a plan stays meaningful when steps are left out, and a
failing one is *minimised* by leaving out what does not matter.

One location on memory ports is used by

- the owner, through a network that loses requests and replies, a storage that is down at times,
  with crashes at any effect, clean restarts, take-overs with and without a reentrance id;
- *zombies*: former owners that go on as if nothing had happened;
- independent readers that write nothing.

All of it is recorded (``testing/history.py``) and, after the storm, held against the model.
Waiting is simulated and the runtime is *stepped* (``testing/stepped.py``), so a seed gives the same
run each time; a few plans keep the real threads. Where a plan is ``pipelined`` steps do not wait
for their answers, and requests are committed in groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from random import Random
from typing import Final

from headwater.algebra.frontier import Frontier
from headwater.base.errors import ExternalError
from headwater.persist import commands as c
from headwater.persist import state as states
from headwater.persist.client import (
    ReadHandle,
)
from headwater.persist.errors import (
    Fenced,
    Stopped,
)
from headwater.persist.evolution import DIFF
from headwater.persist.log import load
from headwater.persist.maintenance import Maintenance
from headwater.testing import history as h
from headwater.testing.crash import quiet_crashes
from headwater.testing.nemesis_steps import Steps
from headwater.testing.nemesis_world import (
    BEYOND,
    COLLECTIONS,
    KEYED,
    SCHEMA,
    TIMELINE,
    Nothing,
    Plan,
    PlannedStep,
    Process,
    time_of,
)
from headwater.testing.stepped import stepped
from headwater.testing.unreliable import Crash

WEIGHTS: Final = {
    "write": 14,
    "seal": 8,
    "append": 8,
    "atomic": 6,
    "advance": 4,
    "allow_compaction": 5,
    "retry": 5,
    "begin_part": 2,
    "commit_part": 3,
    "take_snapshot": 6,
    "read_snapshot": 7,
    "hold": 3,
    "read_held": 5,
    "release": 2,
    "begin_listen": 3,
    "fetch": 8,
    "read_independently": 3,
    "listen_independently": 2,
    "merge": 8,
    "maintain": 3,
    "roll_up": 4,
    "sweep": 3,
    "zombie": 4,
    "restart": 2,
    "crash": 3,
    "crash_soon": 4,
    "take_over": 3,
    "outage": 2,
    "drain": 4,
}

LENGTH: Final = 18
"""Steps of a plan, unless more are asked for."""

ALWAYS: Final = ("write", "append", "read_snapshot")


def draw(seed: int, length: int = LENGTH, only: Sequence[str] = ()) -> Plan:
    """Return the plan of a seed, made of the kinds of steps in ``only``, if any are given.

    Else each leaves out some kinds entirely: what is rare among all is then common in some.
    """
    random = Random(seed)
    chosen = {
        name: weight
        for name, weight in WEIGHTS.items()
        if (name in only if only else name in ALWAYS or random.random() < 0.5)
    }
    names = random.choices(list(chosen), list(chosen.values()), k=length)
    steps = tuple(PlannedStep(name, random.randrange(2**32)) for name in names)
    return Plan(
        seed,
        steps,
        loss=random.choice((0.0, 0.05, 0.15, 0.4)),
        attempts_max=random.choice((1, 2, 4, 8)),
        pipelined=random.random() < 0.3,
        collections=tuple(random.sample(list(COLLECTIONS), random.choice((1, 2, 3)))),
        compacted=random.random() < 0.4,
        threads=random.random() < 0.05,
    )


class Nemesis(Steps):
    """One run of one plan."""

    def run(self) -> list[str]:
        """Run the plan; return what is wrong with its history."""
        with quiet_crashes(), nullcontext() if self.plan.threads else stepped(self._order):
            try:
                self._begin()
                self._lossy.rate = self.plan.loss
                for step in self.plan.steps:
                    self._random = Random(step.seed)
                    self._faults.seed(step.seed + 1)
                    self._order.seed(step.seed + 2)
                    self._clock.set(self._order.randrange(1_000_000))  # also back
                    self._step(step)
                self._lossy.rate = 0.0
                self._outage.end()
                self._end()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
                self._problems.append(f"unexpected {type(error).__name__}: {error}")
                self._cause = error
            finally:
                for process in [*self._zombies, *([self._owner] if self._owner else [])]:
                    process.mortal.die()
                    process.client.core.stop(release=False)
        return [*self._problems, *h.violations(self.history)]

    def _step(self, step: PlannedStep) -> None:
        self.trace.append(str(step))
        try:
            getattr(self, f"_do_{step.name}")()
        except Nothing:
            self.trace.pop()
        except Crash as crash:
            self._say(f"  {crash}")
        except (ExternalError, Stopped, Fenced) as error:
            self._say(f"  {type(error).__name__}: {error}")
        for process in [*self._zombies, self._owner]:
            if process is not None and process.mortal.dead:
                self._bury(process)

    def _begin(self) -> None:
        owner = self._open(take_over=False)
        owner.client.core.submit(c.Advance(TIMELINE, 0)).result()
        for name, timeline in COLLECTIONS.items():
            key, layout = (("k",), "run") if name == KEYED else ((), "parquet")
            owner.client.create_or_load(name, SCHEMA, key=key, layout=layout, timeline=timeline)
        self._owner = owner

    def _end(self) -> None:
        for process in [*self._zombies, *([self._owner] if self._owner else [])]:
            self._drain(process)
            with suppress(Crash):  # it may have been about to die
                for name, snapshot in process.snapshots if process is self._owner else ():
                    self._read(name, snapshot)
        final = self._open(take_over=True)
        if self._owner is not None:
            self._zombies.append(self._owner)
        self._owner = final
        self._see(final)
        maintenance = Maintenance(final.client.core)
        self._read_everything(final)
        if self.plan.compacted:
            self._compact(final, maintenance, self.plan.collections[0])
        self._maintain(final)
        maintenance.roll_up(force=True)
        maintenance.sweep()
        while final.client.core.state.garbage:
            maintenance.collect()
        self._see(final)
        self._problems.extend(states.violations(final.client.core.state))
        self._problems.extend(self._leaks(load(self._log, self._blob)))

    def _read_everything(self, process: Process) -> None:
        """Read what is sealed, seal all of it beyond all times, and read it to the end."""
        core = process.client.core
        readers = {name: ReadHandle(core, self._handle(process, name).id) for name in COLLECTIONS}
        for name in self.plan.collections:
            since, upper = time_of(readers[name].since), time_of(readers[name].upper)
            if since < upper:
                as_of = self._random.randrange(since, upper)
                self._read(name, readers[name].snapshot(as_of))
        seal = c.Seal(tuple(reader.id for reader in readers.values()), Frontier.of(BEYOND))
        uppers = dict.fromkeys(readers, BEYOND)
        self._submit(process, "seal everything", lambda: core.submit(seal), uppers)
        self._drain(process)
        for name, reader in readers.items():
            rows = reader.snapshot(BEYOND - 1).to_table().to_pylist()
            self.history.final[name] = tuple(((r["k"], r["v"]), r[DIFF]) for r in rows)

    def _compact(self, process: Process, maintenance: Maintenance, name: str) -> None:
        """Merge a whole collection, give its history up, merge it again: it reads the same."""
        handle, last = self._handle(process, name), BEYOND - 1
        reader = ReadHandle(process.client.core, handle.id)
        self._merge_all(process, maintenance, name)
        self._allow_compaction(process, name, last)
        self._drain(process)
        self._read(name, reader.snapshot(last))
        self._merge_all(process, maintenance, name)
        self._read(name, reader.snapshot(last))
        for _, held, as_of in self._held:
            if held == name:
                self._read(name, reader.snapshot(as_of))

    def _merge_all(self, process: Process, maintenance: Maintenance, name: str) -> None:
        state = process.client.core.state
        collection = state.collections[state.names[name]]
        if collection.batches:
            maintenance.merge_batches(collection, collection.batches)

    def _leaks(self, state: states.State) -> Iterator[str]:
        """After a sweep by a new owner nothing is left but what the log refers to."""
        rollups = {rollup.key for rollup in state.rollups}
        for info in self._blob.list():
            young = info.key.startswith("rollup/") and info.key > min(rollups)
            if info.key not in state.references and info.key not in rollups and not young:
                yield f"object {info.key} leaked"
        keys = {info.key for info in self._blob.list()}
        for key in {*state.references, *rollups} - keys:
            yield f"object {key} is referred to, and gone"


def minimise(plan: Plan, fails: Callable[[Plan], bool], runs_max: int = 150) -> Plan:
    """Leave out steps as long as the plan still fails."""
    size, runs = max(1, len(plan.steps) // 2), 0
    while True:
        start, shorter = 0, False
        while start < len(plan.steps) and runs < runs_max:
            runs += 1
            rest = replace(plan, steps=plan.steps[:start] + plan.steps[start + size :])
            if fails(rest):
                plan, shorter = rest, True
            else:
                start += size
        if runs >= runs_max or (size == 1 and not shorter):
            return plan
        size = max(1, size // 2)


def check(seed: int, length: int = LENGTH) -> str:
    """Run the plan of a seed; return a report of what is wrong, empty if nothing is."""
    plan = draw(seed, length)
    nemesis = Nemesis(plan)
    problems = nemesis.run()
    if not problems:
        return ""
    least = minimise(plan, lambda rest: bool(Nemesis(rest).run()))
    nemesis = Nemesis(least)
    again = nemesis.run() or problems
    return "\n".join(
        [
            f"HEADWATER_SEED={seed}/{length}: {plan}; {len(least.steps)} steps are enough:",
            *nemesis.trace,
            "and then:",
            *(f"  {problem}" for problem in again[:8]),
        ]
    )
