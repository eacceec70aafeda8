"""The controller of views: it creates them, and steps those whose inputs have moved.

    controller = ViewController(client, session)
    view = controller.create_view("totals", sql)
    (read,) = controller.maintain_view([orders], View(("orders",), (Output("totals", sql),)))
    controller.run_once()                    # or start(): a thread that wakes on commits
    controller.view_upper(view.id)
    controller.select("SELECT * FROM totals WHERE g > 1", as_of=7)

A view is durable: its definition is an item of the log, its progress is the upper of its output.
The controller keeps nothing else, so one that is started on a location goes on where the last one
was. ``relations`` translates the names of a query to names of collections; where it is not given,
a name in a query is the name of a view or of a collection. ``create_view`` and ``maintain_view``
(``compute/maintain.py``) install the same views; the first looks its inputs up by name and starts
at the newest time, the second is given capabilities and starts where they allow.

A step that fails changes nothing; its view stalls with the reason (:meth:`ViewController.failures`)
and is tried again, less and less often, while the others go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection.capability import ReadCapability, WriteCapability
from headwater.collection.types import SqlType
from headwater.compute import definition, describe, maintained, renew
from headwater.compute import select as queries
from headwater.compute.attempts import attempted
from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.columns.settled import SettledRuns
from headwater.compute.definition import Definition
from headwater.compute.describe import ViewDescription
from headwater.compute.explain_query import explained_query
from headwater.compute.first_steps import Hydration
from headwater.compute.install import Installer, is_internal, removal, reserving
from headwater.compute.maintain import Maintaining, Validation, View, is_unreadable
from headwater.compute.maintained import MaintainedView, ViewStep
from headwater.compute.prepared import Asked, Preparing, require_reachable_blob
from headwater.compute.query import Query
from headwater.compute.recomputer import Recomputer
from headwater.compute.step import due
from headwater.compute.stepper import Stepper
from headwater.persist import evolution
from headwater.persist.batch import Times
from headwater.persist.client import Client
from headwater.persist.commands import Atomic, Command
from headwater.persist.decision import collection_named, collection_of
from headwater.persist.errors import Stopped
from headwater.persist.spark_end import SparkEnded, or_ended
from headwater.persist.state import State

LOG: Final = logging.getLogger(__name__)

Relations = Mapping[str, str]
"""From a name in a query to the name of a collection."""

RETRY_MS_FIRST: Final = 100
RETRY_MS_MAX: Final = 30_000
RETRY_PART: Final = 10
"""A view that goes on failing is tried for about one part in so many of the time, …"""
DEAR_RETRY_MS_MAX: Final = 600_000
"""… but no less often than this."""
REMEDY: Final = "let the view make less of its rows, or give Spark more by --spark-memory-mib"
PINNED_MS_MAX: Final = 3_600_000
"""How far a view that fails may be behind what it shares with others: then it shares no more."""
IDLE_SECONDS: Final = 1.0


class _Stalled(msgspec.Struct, frozen=True):
    """Why a view does not advance, and when it is tried again."""

    error: str
    attempts: int
    retry_at_ms: int


class ViewController:
    """Creates, steps, queries; one per writing runtime. Safe to call from several threads."""

    def __init__(self, client: Client, session: Any) -> None:
        self._client = client
        self._core = client.core
        self._session = session
        self._stepper = Stepper(self._core, session, self._stall, self._recovered)
        self._recomputer = Recomputer(self._core, session, self._stall, self._recovered)
        self._changing = threading.Lock()
        """Who removes what is shared by no other view has it, lest one comes in between."""
        self._maintaining = Maintaining(client, session, self._changing)
        self.validation = Validation(client, session, self._changing)
        """The validate form of :meth:`maintain_view`."""
        self._stepping = threading.Lock()
        self.preparing = Preparing(self._core, session, self._changing, self._stepping)
        """Views that are made, or removed, in an entry with other things."""
        self._stalled: dict[GlobalId, _Stalled] = {}
        self._settled = SettledRuns()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    # ---- definitions -------------------------------------------------------------------------

    def create_view(
        self,
        name: str,
        query: Query,
        *,
        relations: Relations | None = None,
        rules: bool = True,
        key: tuple[str, ...] = (),
        start: int | None = None,
        durable: bool = True,
        types: Sequence[SqlType] = (),
        also: Sequence[Command] = (),
    ) -> Definition:
        """Create a view durably, output collection ``name``; hydrated by its first step.

        ``query`` is Spark SQL, a function ``table -> DataFrame``, a DataFrame made in a
        :meth:`workspace`, or a plan (``compute/query.py``).

        It begins at ``start``, or at the newest time at which all its inputs are readable. ``also``
        is committed in the same log entry (the adapter's own record of the view). A query without
        an incremental rule is recomputed (:meth:`explain` says so), as is every query if ``rules``
        are not to be used; one that cannot be maintained at all raises
        :class:`~headwater.base.errors.InvalidUsage`, and nothing is changed. With a ``key`` the
        output is an arrangement: laid out by these columns, so that rows are found by them. What
        it holds is this process's alone, unless ``durable`` (``compute/maintain.py``). ``types``
        are those of its columns, where they are more than Spark knows of.
        """
        require_reachable_blob(self._core)
        kept_by = None if durable else self._core.epoch
        known = self._relations(relations)
        asked = Asked(name, query, known, key, types, rules, start, kept_by)
        with or_ended(self._session):
            return attempted(lambda: self.preparing.create(asked, also))

    def maintain_view(
        self,
        reads: Sequence[ReadCapability],
        view: View,
        writes: Sequence[WriteCapability | None] = (),
        *,
        durable: bool = True,
    ) -> tuple[ReadCapability, ...]:
        """Install a view over capabilities, with any number of outputs; durable on return.

        Returns a read capability for each output. What outputs hold is lost with the process if
        they are not to be ``durable``, and computed again. See ``compute/maintain.py``.
        """
        require_reachable_blob(self._core)
        with or_ended(self._session):
            return attempted(
                lambda: self._maintaining.maintain_view(reads, view, writes, durable=durable)
            )

    def workspace(self, *names: str, relations: Relations | None = None) -> Workspace:
        """Return a place to make DataFrames in, over these relations, all of them without rows.

        ::

            table = controller.workspace("orders").table
            controller.create_view("totals", table("orders").groupBy("region").count())
        """
        state, known = self._core.state, self._relations(relations)
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise InvalidUsage(f"there is no relation {unknown[0]!r}; there is {sorted(known)}")
        schemas = {
            name: evolution.from_bytes(collection_named(state, known[name]).schemas[-1])
            for name in names or known
        }
        return Workspace(self._session, schemas)

    def drop_view(self, name: str, *, also: Sequence[Command] = ()) -> bool:
        """Drop a view, its internal state, its output and its holds; whether there was one."""
        with self._stepping:
            found = [view for view in self.views() if view.name == name]
            for view in found:
                self._drop(view, also)
            return bool(found)

    def _drop(self, view: Definition, also: Sequence[Command] = ()) -> None:
        with self._changing:
            state = self._core.state
            commands = removal(state, view, _others(state, view))
            self._core.submit(Atomic((*commands, *also))).result()
        self._stalled.pop(view.id, None)

    def explain(self, name: str) -> str:
        """Say by which strategy a view is kept, and why; with what state; and where it stands."""
        return describe.written(self.describe_view(name))

    def describe_view(self, name: str) -> ViewDescription:
        """Return the same as a value."""
        for view in self.views():
            if view.name == name:
                running = {hydration.view: hydration for hydration in self.hydrations()}
                part_done = running[name].part_done if name in running else None
                failure = self.failures().get(view.id)
                return describe.described(self._core.state, view, failure, part_done)
        raise InvalidUsage(f"there is no view {name!r}; create it first")

    def views(self) -> tuple[Definition, ...]:
        """Return the views of the location, in the order of creation."""
        return definition.stored(self._core.state)

    def view_upper(self, view: GlobalId | str) -> Times:
        """Return the upper of a view (by id or name): everything before it is exact, for ever."""
        state = self._core.state
        if isinstance(view, str):
            return state.upper(collection_named(state, self._relations(None).get(view, view)))
        return state.upper(collection_of(state, view))

    def hydrations(self) -> list[Hydration]:
        """Return the views that are being hydrated in the background, and how far they are."""
        return self._stepper.hydrations()

    def failures(self) -> Mapping[GlobalId, str]:
        """Return why views do not advance: their last step failed, or what they need is gone."""
        state = self._core.state
        found: dict[GlobalId, str] = {}
        for view in definition.stored(state):
            why = definition.lost(state, view)
            if why is not None:
                found[view.id] = f"view {view.name!r} cannot advance: {why}"
            elif view.id in self._stalled:
                found[view.id] = self._stalled[view.id].error
        return found

    # ---- stepping ----------------------------------------------------------------------------

    def run_once(self) -> tuple[str, ...]:
        """Step every view whose inputs have moved; return the names of those that advanced.

        A view that failed is tried too; the reason of a failure is in :meth:`failures`.
        """
        with self._stepping:
            return self._run(self.views())

    def _run(self, views: Sequence[Definition]) -> tuple[str, ...]:
        """Step each view at most once; a view on a view after the other, to see its commit."""
        for gone in self._stalled.keys() - self._core.state.collections.keys():
            self._stalled.pop(gone, None)
        advanced: list[str] = []
        over = [view for view in views if is_unreadable(self._core.state, view)]
        for view in over:
            self._drop(view)
        waiting = self._renewed([view for view in views if view not in over])
        while waiting:
            state = self._core.state
            ready = [view for view in waiting if due(state, view) is not None]
            moving = {view.id for view in ready}
            first = [view for view in ready if not moving & set(view.inputs)]
            if not first:
                break
            waiting = [v for v in waiting if v not in first]
            steps: list[ViewStep] = []
            cuts: maintained.Cuts = {}
            for view in first:
                if isinstance(view, MaintainedView):
                    step = maintained.plan_view(state, view, cuts)
                    assert step is not None, "it is due in this state"
                    steps.append(step)
                else:
                    advanced += self._recomputer.run(view)
            advanced += self._stepper.run(steps, set(self._stalled))
        order = {view.name: number for number, view in enumerate(views)}
        return tuple(sorted(advanced, key=order.__getitem__))

    def _renewed(self, views: Sequence[Definition]) -> list[Definition]:
        """Return the views as they are under today's meaning; what cannot be is left out."""
        current: list[Definition] = []
        for view in views:
            state = self._core.state
            if is_unreadable(state, view):
                continue  # Just now: it is dropped the next time.
            why = renew.outdated(view.plan, self._session.version)
            begin = view.kept_by not in (None, self._core.epoch)
            apart = not begin and why is None and self._is_in_the_way(state, view)
            if not begin and not apart and (why is None or due(state, view) is None):
                current.append(view)
                continue
            others = _others(state, view)
            installer = Installer(state, self._session, reserving(self._core))
            try:
                if begin:
                    epoch = self._core.epoch
                    made, commands = renew.again(state, installer, view, epoch, others)
                elif apart:
                    LOG.warning("a view that fails shares nothing any more", extra=_of(view))
                    made, commands = renew.apart(state, installer, view, others)
                else:
                    made, commands = renew.renewed(state, installer, view, why or "", others)
                with self._changing:
                    if _others(self._core.state, view) != others:
                        continue  # Views came or went meanwhile: it is made anew the next time.
                    self._core.submit(Atomic(commands)).result()
            except (Stopped, SparkEnded):
                raise
            except HeadwaterError as error:
                self._stall(view, error)
            else:
                current.append(made)
        return current

    def _is_in_the_way(self, state: State, view: Definition) -> bool:
        """Whether a view that fails keeps others for too long from merging what they share."""
        if not isinstance(view, MaintainedView) or view.id not in self._stalled:
            return False
        if due(state, view) is None or self._stepper.is_in_hand(view.id):
            return False
        beside = [each for each in _others(state, view) if isinstance(each, MaintainedView)]
        return maintained.pins(state, view, beside, PINNED_MS_MAX)

    def _stall(self, view: Definition, error: HeadwaterError, took_ms: int = 0) -> None:
        if view.id not in self._core.state.collections:
            return  # It was dropped meanwhile.
        before = self._stalled.get(view.id)
        attempts = 1 if before is None else before.attempts + 1
        wait_ms_max = max(RETRY_MS_MAX, min(DEAR_RETRY_MS_MAX, RETRY_PART * took_ms))
        first_ms, said = RETRY_MS_FIRST, str(error)
        if isinstance(error, SparkEnded):  # Of memory: each attempt ends what runs beside it, too.
            first_ms, wait_ms_max, said = (
                RETRY_MS_MAX,
                DEAR_RETRY_MS_MAX,
                f"{error}; {REMEDY}",
            )
        wait_ms = min(wait_ms_max, first_ms * 2 ** min(attempts, 16))
        retry_at_ms = self._core.clock.now_ms() + wait_ms
        self._stalled[view.id] = _Stalled(said, attempts, retry_at_ms)

    def _recovered(self, view: Definition) -> None:
        self._stalled.pop(view.id, None)

    def start(self) -> None:
        """Step in the background, woken by commits, until :meth:`stop`."""
        if self._thread is not None:
            raise InvalidUsage("the controller is running already")
        self._stopping.clear()
        self._stepper.start_background()
        self._recomputer.beside.start()
        self._thread = threading.Thread(target=self._loop, name="headwater-views", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the step in hand; the location stays open, and so does the session."""
        self._stopping.set()
        self._core.wake()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
            self._recomputer.beside.stop()
            self._stepper.stop_background()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            try:
                ready = self._core.wait(self._ready, IDLE_SECONDS)
                if self._stepper.end_calls_in_vain(self.views()):
                    self._stopping.wait(RETRY_MS_FIRST / 1_000)  # They take a moment to end.
                if ready and not self._stopping.is_set():
                    with self._stepping, or_ended(self._session):
                        self._run(ready)
            except HeadwaterError:
                # Stopped or fenced: the runtime says so to everybody who asks it. Else try again.
                if self._core.stopped or self._failed():
                    return
                self._stopping.wait(RETRY_MS_FIRST / 1_000)
            except Exception:
                # A bug, and still no reason for every view to stand still in silence.
                LOG.exception("views were not stepped; they are tried again")
                self._stopping.wait(IDLE_SECONDS)

    def _failed(self) -> bool:
        machine = self._core.machine
        return machine is None or machine.failure is not None

    def _ready(self, state: State) -> tuple[Definition, ...] | None:
        if self._stopping.is_set():
            return ()
        now_ms = self._core.clock.now_ms()
        ready = tuple(
            view
            for view in definition.stored(state)
            if due(state, view) is not None
            and not self._stepper.is_in_hand(view.id)
            and view.id not in self._recomputer.beside
            and (view.id not in self._stalled or self._stalled[view.id].retry_at_ms <= now_ms)
        )
        return ready or (() if self._stepper.calls_in_vain(definition.stored(state)) else None)

    # ---- queries -----------------------------------------------------------------------------

    def hydrating(self) -> Mapping[str, float]:
        """Return which part of their first step is done, by name of the view."""
        return {hydration.view: hydration.part_done for hydration in self.hydrations()}

    def select(
        self,
        sql: str,
        as_of: int,
        *,
        relations: Relations | None = None,
        local: Mapping[str, pa.Table] | None = None,
        tentative: Mapping[str, pa.Table] | None = None,
        group: str = "",
    ) -> pa.Table:
        """Run a query of Spark SQL over collections, all of them at ``as_of``.

        Waits until each of them is sealed there. ``local`` are relations that are no collections,
        by name; ``tentative`` are updates, with diffs, that are read on top of collections, by the
        names of those; ``group`` names the jobs, for :meth:`cancel`. What Spark refuses, or fails
        at, raises :class:`~headwater.compute.select.QueryFailed` with Spark's condition and
        SQLSTATE.
        """
        known, given, more = self._relations(relations), local or {}, tentative or {}
        return queries.select(
            self._client, self._session, sql, as_of, known, given, group, self._settled, more
        )

    def cancel(self, group: str) -> None:
        """End the jobs of this name that run now: their query fails. From any thread."""
        queries.cancel(self._session, group)

    def describe(
        self, sql: str, *, relations: Relations | None = None, state: State | None = None
    ) -> pa.Schema:
        """Return the columns a query would have, without running it."""
        known = self._relations(relations)
        return queries.describe(state or self._core.state, self._session, sql, known)

    def explain_query(self, sql: str, *, relations: Relations) -> str:
        """Say by which operators a view of a query would be kept; nothing is made."""
        return explained_query(self._client, self._session, sql, relations)

    # ---- names -------------------------------------------------------------------------------

    def _relations(self, relations: Relations | None) -> Relations:
        if relations is not None:
            return relations
        state = self._core.state
        outputs = {
            view.name: state.collections[view.id].name
            for view in self.views()
            if view.id in state.collections
        }
        return {**{name: name for name in state.names if not is_internal(name)}, **outputs}


def _others(state: State, view: Definition) -> list[Definition]:
    return [other for other in definition.stored(state) if other.id != view.id]


def _of(view: Definition) -> dict[str, object]:
    return {"event": {"view": view.name}}
