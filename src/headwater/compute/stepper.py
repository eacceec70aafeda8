"""The stepper: it runs steps of maintained views, as few jobs as possible, and commits them.

    one job, one log entry   for all views that have something to take in
    one log entry, no job    for all views over times at which nothing happens to them
    one job                  for all views that call functions of the user's in Python
    one job each             for a view's first step (hydration), which may be large

What a function of the user's costs nobody knows, so views that call one are stepped behind the
others, in the background in a thread of their own, and leave the arrangements that they share with
others to those to write. Their jobs are ended when nobody wants them any more.

Hydrations run one after the other; in the *background*, beside the ticking of others, while the
controller runs by itself, else at once. A hydration writes only what is as new as its view, so it
never meets the steps beside it in one collection. One whose inputs are large is run in several
tasks (``hydration.py``), and its progress is how many of them are done; else it is an estimate,
from how fast earlier ones were.

Views are *planned* together, as a :class:`Program`, and a program runs any of its views: those that
have nothing to do in a step are left out of its task, not of its plan. So a set of views that was
never stepped before needs no planning (a tenth of a second of CPU a view) as long as some program
has them all; one that comes again and again gets a program of its own, without the others' stages.

A view with a temporal filter may change although no input does. Each of its steps says when it next
may; until then it is idle like any other. That is remembered, not stored: the first step of a
process runs.

A step that fails changes nothing. One of several views is *bisected*: its halves are stepped alone,
until the views that cannot be stepped are found; they stall, with the reason, and the rest advance.
A view that is stalled is tried again behind the others and without them: finding it once is enough.

Kept by: this module. Relied on by: the controller, which decides when and what.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, Final

from pyspark.errors import PySparkException, PythonException

from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.base.tracing import span
from headwater.compute import error_side, maintained, renew
from headwater.compute.beside import Beside
from headwater.compute.catalyst import called
from headwater.compute.dataflow.chain import Chain
from headwater.compute.dataflow.program import Program
from headwater.compute.dataflow.remembered import stamps
from headwater.compute.dataflow.task import Done
from headwater.compute.definition import Definition, stored
from headwater.compute.first_steps import Begun, Hydration
from headwater.compute.hydration import RANGE_ROWS, Discard, SparkTasks, hydrated, ranges_for
from headwater.compute.ir import plan as plans
from headwater.compute.ir.refusal import OtherMeaning
from headwater.compute.maintained import GroupStep, MaintainedView, ViewStep
from headwater.compute.select import spark_message
from headwater.compute.session import MEANING
from headwater.compute.step import StepFailed, last_line
from headwater.compute.too_deep import cause_of
from headwater.persist.commands import All, Atomic
from headwater.persist.core import Core
from headwater.persist.errors import Stopped
from headwater.persist.spark import background_slots, writing
from headwater.persist.spark_end import SparkEnded, or_ended
from headwater.persist.spark_parts import Place, Writing, place_of
from headwater.persist.state import State, bound

LOG: Final = logging.getLogger(__name__)

PROGRAMS_MAX: Final = 16
"""How many sets of views are kept planned; one more is planned again when its turn comes."""

OWN_PROGRAM_AFTER: Final = 32
"""How many steps a set of views takes in a larger program before it is worth one of its own."""

BORROWED_MAX: Final = 1024
"""How many such sets are counted; then counting begins anew."""

ROWS_PER_SECOND_GUESS: Final = 200_000
"""How fast hydrations are, until one was seen."""

AT_ONCE_ALONE: Final = 2
"""How many tasks a large first step has at a time at least, where no other step waits for it."""

Stall = Callable[[MaintainedView, HeadwaterError, int], None]
"""Is told which view failed, of what, and after how many milliseconds."""
Recovered = Callable[[MaintainedView], None]
Planned = tuple[GlobalId, bytes]
"""A view as a program knows it: made anew, it has another dataflow."""


class Stepper:
    """Runs steps in one Spark session, for one location."""

    def __init__(self, core: Core, session: Any, stall: Stall, recovered: Recovered) -> None:
        self._core = core
        self._session = session
        self._stall, self._recovered = stall, recovered
        self._programs: OrderedDict[frozenset[Planned], Program] = OrderedDict()
        self._borrowed: Counter[frozenset[Planned]] = Counter()
        """How often a set of views was stepped by a larger program."""
        self._context: Any = None
        """That of the programs."""
        self._planning = threading.Lock()
        self._hydrating = Beside(core, "headwater-hydration")
        self._hydrating_calls = Beside(core, "headwater-hydration-calling")
        self._calling = Beside(core, "headwater-calling")
        self._jobs: dict[str, frozenset[Planned]] = {}
        """Groups of Spark's jobs that call functions now, with their views."""
        self._hurries = False
        """Whether such jobs are ended because all is stopped."""
        self._stalled: Container[GlobalId] = ()
        """Views that failed, and write nothing for others."""
        self._begun: dict[GlobalId, Begun] = {}
        self._rows_per_second = float(ROWS_PER_SECOND_GUESS)
        self._scheduled: dict[GlobalId, int | None] = {}
        """Of views that schedule: when they may change by themselves; never, if it is ``None``."""
        self._stamps: dict[GlobalId, str] = {}
        """Of states: what the step that wrote them last is remembered by."""
        self.range_rows = RANGE_ROWS
        """From twice as many rows on a first step is run by ranges of so many."""
        self.rows_read: dict[str, int] = {}
        """Of the last step, by ``view/operator``: what the CI holds to each rule's bound."""

    def run(self, steps: Sequence[ViewStep], stalled: Container[GlobalId] = ()) -> list[str]:
        """Run these steps, of distinct views; return the names of the views that advanced.

        The steps of views that failed before, ``stalled``, are run after the others'.
        """
        idle = [step for step in steps if self._is_idle(step)]
        first = [step for step in steps if step.hydrating]
        busy = [step for step in steps if not self._is_idle(step) and not step.hydrating]
        advanced = self._idle(idle)
        self._stalled = stalled
        for calls in (False, True):
            live = [step.view for step in (*idle, *busy) if step.view.calls is calls]
            due = [step for step in busy if step.view.calls is calls]
            if not (calls and self._calling.is_on):
                advanced += self._in_turn(due, live, stalled)
                continue
            due = [step for step in due if step.view.id not in self._calling]
            if due:
                views = [step.view.id for step in due]
                self._calling.submit(views, partial(self._in_turn, due, live, stalled))
        for step in first:
            if not self._hydrating.is_on:
                advanced += self._hydrated(step)
            elif step.view.id not in (beside := self._hydrating_of(step.view)):
                large = ranges_for(step.rows, self.range_rows, 1) is not None
                begun = Begun(step.view.name, step.rows, monotonic(), (0, 1) if large else None)
                self._begun[step.view.id] = begun
                beside.submit([step.view.id], partial(self._hydrated, step))
        return advanced

    def _in_turn(
        self,
        busy: Sequence[ViewStep],
        live: Sequence[MaintainedView],
        stalled: Container[GlobalId],
    ) -> list[str]:
        again = [step for step in busy if step.view.id in stalled]
        busy = [step for step in busy if step.view.id not in stalled]
        advanced = self._bisected(busy, live) if busy else []
        if again:
            advanced += self._bisected(again, [step.view for step in again])
        return advanced

    def _is_idle(self, step: ViewStep) -> bool:
        """Whether nothing changes in a step."""
        if not step.is_empty or not step.view.schedules:
            return step.is_empty
        if step.view.id not in self._scheduled:
            return False
        next_time = self._scheduled[step.view.id]
        return next_time is None or bound(step.interval.upper) <= next_time

    # ---- in the background ---------------------------------------------------------------------

    def start_background(self) -> None:
        """Hydrate, and call functions, beside the other steps from now on."""
        self._hurries = False
        for beside in self._besides:
            beside.start()

    def stop_background(self) -> None:
        """Wait for the tasks in hand; what is not done then will be begun again."""
        for beside in self._besides:
            beside.stop(self._hurry)
        self._begun.clear()

    def is_in_hand(self, view: GlobalId) -> bool:
        """Whether a step of the view runs, or waits for its turn, in the background."""
        return any(view in beside for beside in self._besides)

    @property
    def _besides(self) -> tuple[Beside, ...]:
        return self._hydrating, self._hydrating_calls, self._calling

    def _hydrating_of(self, view: MaintainedView) -> Beside:
        """Return where the first step of a view runs: nobody waits for one that calls functions."""
        return self._hydrating_calls if view.calls else self._hydrating

    def calls_in_vain(self, views: Iterable[Definition]) -> bool:
        """Whether functions are called for what is no longer among the views, as it was."""
        return bool(self._jobs) and bool(self._in_vain(views))

    def end_calls_in_vain(self, views: Iterable[Definition]) -> bool:
        """End such jobs, if there are any: nobody knows when the functions would return."""
        found = self._in_vain(views) if self._jobs else []
        for group in found:
            self._session.sparkContext.cancelJobGroup(group)
        return bool(found)

    def _in_vain(self, views: Iterable[Definition]) -> list[str]:
        there = _planned(view for view in views if isinstance(view, MaintainedView))
        return [group for group, calling in list(self._jobs.items()) if not calling <= there]

    def _hurry(self) -> None:
        self._hurries = True
        with suppress(Exception):  # A Spark that has ended calls nothing any more.
            self.end_calls_in_vain(())

    # ---- hydration -----------------------------------------------------------------------------

    def hydrations(self) -> list[Hydration]:
        """Return the first steps that run or wait, with how far they probably are."""
        now = monotonic()
        return [
            Hydration(one.view, one.rows, now - one.at, one.part_done(now, self._rows_per_second))
            for one in list(self._begun.values())
        ]

    def _hydrated(self, step: ViewStep) -> list[str]:
        begun = monotonic()
        try:
            advanced = self._bisected([step], [step.view])
            if advanced and step.rows > ROWS_PER_SECOND_GUESS:
                self._rows_per_second = step.rows / max(monotonic() - begun, 0.001)
            return advanced
        finally:
            self._begun.pop(step.view.id, None)

    # ---- steps ---------------------------------------------------------------------------------

    def _idle(self, steps: Sequence[ViewStep]) -> list[str]:
        if not steps:
            return []
        command = Atomic(maintained.idle_commands(self._core.state, steps))
        return self._advanced(steps, self._core.submit(command).result())

    def _advanced(self, steps: Sequence[ViewStep], outcome: object) -> list[str]:
        """Return the views that an entry advanced; none if another had stepped one first."""
        if not isinstance(outcome, All):
            return []
        for step in steps:
            self._recovered(step.view)
        return [step.view.name for step in steps]

    def _bisected(self, steps: Sequence[ViewStep], live: Sequence[MaintainedView]) -> list[str]:
        """Run steps as one job if possible; ``live`` are views that may need stepping with them."""
        begun = monotonic()
        try:
            return self._together(steps, live)
        except Stopped:
            raise
        except HeadwaterError as error:
            if isinstance(error, SparkEnded) and not error.out_of_memory:
                raise  # No view is to blame.
            if self._hurries and steps[0].view.calls:
                raise Stopped("the controller is stopped") from error
            failure = error
        except Exception as error:  # A bug, and still no reason for all views to stand still.
            LOG.exception("views were not stepped; they are tried again")
            failure = StepFailed(", ".join(step.view.name for step in steps), last_line(error))
        if len(steps) == 1:
            self._stall(steps[0].view, failure, int(1_000 * (monotonic() - begun)))
            return []
        middle = len(steps) // 2
        advanced = []
        for half in (steps[:middle], steps[middle:]):
            # Planned without the views beside them: one of those may be what cannot be planned.
            advanced += self._bisected(half, [step.view for step in half])
        return advanced

    def _together(self, steps: Sequence[ViewStep], live: Sequence[MaintainedView]) -> list[str]:
        core = self._core
        place = place_of(core)
        assert place is not None, "checked when the view was created"
        state = core.state
        views = (view for view in stored(state) if view.id not in self._stalled)
        known = [view for view in views if isinstance(view, MaintainedView)]
        group = maintained.plan_group(state, _renewed(state, steps), known)
        if not group.views:  # What they read, or they themselves, went meanwhile.
            return []
        release = core.pin(group.pinned())
        try:
            names = ", ".join(step.view.name for step in group.views)
            with span("step", views=names), core.step() as step:
                into = writing(core, step)
                done = self._by_ranges(group, place, into, step.discard)
                if done is None:
                    done = self._computed(group, place, into, live)
                done = renew.corrected(place, step, group, done)
                errors = error_side.written(place, step, group, done)
                made = maintained.commands(group, done, errors)
                advanced = self._advanced(group.views, core.submit(Atomic(made)).result())
                if advanced:
                    self._remember(group, done)
                return advanced
        finally:
            release()

    def _remember(self, group: GroupStep, done: Done) -> None:
        for number, step in enumerate(group.views):
            if step.view.schedules:
                self._scheduled[step.view.id] = done.scheduled.get(number)
            states = step.view.stored.values()
            after = stamps(self._stamps, states, done.stamps, done.parts)
            for state in states:
                self._stamps.pop(state, None)
            self._stamps.update(after)

    def _by_ranges(
        self, group: GroupStep, place: Place, into: Writing, discard: Discard
    ) -> Done | None:
        """Run a large first step in several tasks; ``None`` if it is not one, or cannot be."""
        first = group.views[0]
        if len(group.views) > 1 or not first.hydrating:
            return None
        at_once, beside = background_slots(self._session), self._hydrating.is_on
        if not beside:  # Nobody ticks meanwhile.
            at_once = max(at_once, AT_ONCE_ALONE)
        ranges = ranges_for(first.rows, self.range_rows, at_once)
        if ranges is None:
            return None

        def told(done: int, of: int) -> None:
            if beside and not self._hydrating.is_on:
                raise Stopped("hydrations in the background were stopped")
            if first.view.id not in self._core.state.collections:
                raise StepFailed(first.view.name, "it was dropped")
            begun = self._begun.get(first.view.id)
            if begun is not None:
                self._begun[first.view.id] = replace(begun, tasks=(done, of))

        tasks = SparkTasks(self._session, first.view)
        calling = self._called_by([first.view])
        with _failing(first.view.name), or_ended(self._session), calling:
            plans.decoded(first.view.plan).require(self._session.version, MEANING)
            return hydrated(tasks, group, place, into, ranges, told, discard)

    def _computed(
        self, group: GroupStep, place: Place, into: Writing, live: Sequence[MaintainedView]
    ) -> Done:
        views = [step.view for step in group.views]
        names = ", ".join(view.name for view in views)
        with _failing(names), or_ended(self._session):
            program = self._program(views, live)
            task = group.task(place, into, program.views, self._stamps)
            with self._called_by(views) as job_group:
                done = program.run(task, job_group, f"step of {names}")
        known = {view.id: view.name for view in views}
        self.rows_read = {
            f"{known[program.views[int(view)]]}/{operator}": rows
            for (view, operator), rows in (
                (key.split("/"), rows) for key, rows in done.rows_read.items()
            )
        }
        return done.renumbered(
            {program.views.index(view.id): number for number, view in enumerate(views)}
        )

    @contextmanager
    def _called_by(self, views: Sequence[MaintainedView]) -> Iterator[str]:
        """Name the group of a job, which can be ended by it if it calls functions."""
        group = views[0].reader_id
        if views[0].calls and self._calling.is_on:
            self._jobs[group] = _planned(views)
        try:
            yield group
        finally:
            self._jobs.pop(group, None)

    def _program(self, views: Sequence[MaintainedView], live: Sequence[MaintainedView]) -> Program:
        wanted = _planned(views)
        context = self._session.sparkContext
        with self._planning:
            if context is not self._context:  # Another JVM: it knows no program of the last one.
                self._programs.clear()
                self._borrowed.clear()
                self._context = context
            known = wanted if wanted in self._programs else self._larger(wanted)
            if known is None:
                own = self._borrowed.pop(wanted, 0) >= OWN_PROGRAM_AFTER
                known = self._plan(views if own else _united(views, live))
            self._programs.move_to_end(known)
            return self._programs[known]

    def _larger(self, wanted: frozenset[Planned]) -> frozenset[Planned] | None:
        """Return the fewest planned views that have these among them, while it is good enough."""
        larger = [known for known in self._programs if wanted < known]
        if not larger or self._borrowed[wanted] >= OWN_PROGRAM_AFTER:
            return None
        if len(self._borrowed) >= BORROWED_MAX:
            self._borrowed.clear()
        self._borrowed[wanted] += 1
        return min(larger, key=len)

    def _plan(self, views: Sequence[MaintainedView]) -> frozenset[Planned]:
        found = [plans.decoded(view.plan) for view in views]
        for plan in found:
            plan.require(self._session.version, MEANING)
        chain = Chain(tuple(view.flow for view in views))
        planned = _planned(views)
        functions = [plan.functions for plan in found]
        ids = tuple(view.id for view in views)
        self._programs[planned] = Program(self._session, chain, ids, functions)
        if len(self._programs) > PROGRAMS_MAX:
            self._programs.popitem(last=False)
            self._borrowed.clear()
        return planned


@contextmanager
def _failing(names: str) -> Iterator[None]:
    """Say of what a step of these views failed."""
    try:
        yield
    except OtherMeaning as error:
        raise StepFailed(names, f"{error}; drop the view and create it again") from error
    except HeadwaterError:
        raise
    except PythonException as error:
        raise StepFailed(names, called.plain(last_line(error))) from error
    except PySparkException as error:
        raise StepFailed(names, spark_message(error)) from error
    except Exception as error:  # whatever Spark's gateway or a task of ours raises
        raise StepFailed(names, cause_of(error)) from error


def _renewed(state: State, steps: Sequence[ViewStep]) -> list[ViewStep]:
    """Return the steps from the newest state: after a bisection the old one is too old."""
    cuts: maintained.Cuts = {}
    planned = [
        step if step.state is state else maintained.plan_view(state, step.view, cuts)
        for step in steps
    ]
    return [step for step in planned if step is not None]


def _planned(views: Iterable[MaintainedView]) -> frozenset[Planned]:
    return frozenset((view.id, view.dataflow) for view in views)


def _united(
    views: Sequence[MaintainedView], live: Sequence[MaintainedView]
) -> list[MaintainedView]:
    """Return the views and those beside them, in an order that does not depend on the step."""
    found = {view.id: view for view in (*live, *views)}
    return [found[gid] for gid in sorted(found)]
